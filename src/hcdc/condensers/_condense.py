"""From a task and a search space to a condensed data set."""

from __future__ import annotations

import dataclasses
import json
import os
import re
from dataclasses import dataclass
from importlib import resources
from typing import Any

import torch

from hcdc.condensers._base import Reducer
from hcdc.condensers._hcdc import HCDC, learn_validation
from hcdc.condensers._registry import REDUCERS, make_reducer, reducer_presets
from hcdc.core.checkpoint import Checkpoint, content_key
from hcdc.core.errors import HcdcError, InputError, unknown_name
from hcdc.core.progress import Progress, timed
from hcdc.core.recipe import Recipe
from hcdc.core.records import environment
from hcdc.datasets import CondensedDataset, describe
from hcdc.spaces import Space
from hcdc.tasks import Task

LEARNED = ("aligned", "both")
VAL_METHODS = (*LEARNED, "same", "random", "real")
METHODS = (*REDUCERS, "hcdc")
PHASES = r"(\.(train|val|original-\w+|lam\d+))?"
"""What the checkpoints of one run are called after the name of the first, as a regular expression."""


def hcdc_presets() -> dict[str, dict[str, Any]]:
    """The presets of HCDC: ``{preset: {"note", "settings"}}``."""
    text = resources.files("hcdc.condensers").joinpath("presets", "hcdc.json").read_text()
    presets: dict[str, dict[str, Any]] = json.loads(text)
    return presets


def make_hcdc(preset: str | None = None, **overrides: Any) -> HCDC:
    """HCDC's settings from a preset and overrides."""
    presets = hcdc_presets()
    if preset is not None and preset not in presets:
        raise unknown_name("preset of method 'hcdc'", preset, presets)
    names = {f.name: f for f in dataclasses.fields(HCDC)}
    for key in overrides:
        if key not in names:
            raise unknown_name("setting of method 'hcdc'", key, names)
    settings = {**presets[preset or "default"]["settings"], **overrides}
    for key, value in settings.items():
        wanted = {"int": int, "float": (int, float), "str": str, "bool": bool}[str(names[key].type)]
        if not isinstance(value, wanted) or (isinstance(value, bool) and wanted is not bool):  # type: ignore[arg-type]
            raise InputError(f"setting '{key}' of method 'hcdc' must be {names[key].type}, got {value!r}")
    return HCDC(**settings)


def _reducer(
    name: str, preset: str | None, dataset: str, overrides: dict[str, Any]
) -> tuple[Reducer, str | None]:
    """The reducer with the given preset, else the one named as the data set, else its default."""
    presets = reducer_presets(name)
    for choice in (preset, dataset.removesuffix("-embedded"), "default"):
        if choice is not None and choice in presets:
            return make_reducer(name, choice, **overrides), choice
    return make_reducer(name, None, **overrides), None


@dataclass(frozen=True)
class Plan:
    """What `condense` is about to do, known before the work begins.

    Attributes:
        train_size, val_size: |S_train| and |S_val|.
        reducer: What makes S_train.
        config: HCDC's settings; None for other methods.
        full, calibrated: How candidates are trained and scored on the full data and on the copy.
        meta: What the condensed file will say, less the candidates used.
    """

    train_size: int
    val_size: int
    reducer: Reducer
    config: HCDC | None
    full: Recipe
    calibrated: Recipe
    meta: dict[str, Any]

    def key(self) -> str:
        """A hash of the plan: equal commands have equal keys."""
        return content_key({**self.meta, "train_size": self.train_size, "val_size": self.val_size})


def condense(
    task: Task,
    space: Space,
    method: str = "hcdc",
    *,
    train_size: int,
    val_size: int | None = None,
    seed: int = 0,
    train_method: str | None = None,
    val_method: str | None = None,
    preset: str | None = None,
    options: dict[str, Any] | None = None,
    device: torch.device | str = "cpu",
    checkpoint: str | os.PathLike[str] | None = None,
    progress: Progress | None = None,
) -> CondensedDataset:
    """Make a condensed data set.

    Args:
        task: What is learned, with the original data.
        space: What will be searched.
        method: ``"random"``, ``"reach"``, ``"kcenter"``, ``"herding"``, ``"gcondx"``, ``"gcond"`` or
            ``"hcdc"``.
        train_size: |S_train|, a total.
        val_size: |S_val|; by default ``train_size`` times the original ratio of validation to training
            examples.
        seed: Decides every random draw.
        train_method: What makes S_train for HCDC, ``"reach"`` by default (tables: ``"random"``); every other
            method makes it itself.
        val_method: What makes S_val: ``"both"`` (HCDC: hypergradients aligned, values of the same full
            trainings as anchors), ``"aligned"`` (HCDC as in the paper: hypergradients alone), ``"same"`` (the
            reducer of S_train on the validation examples), ``"random"`` (random validation examples) or
            ``"real"`` (none: the whole real validation set is used). ``"both"`` for HCDC, ``"same"``
            otherwise.
        preset: Named settings of the method.
        options: Settings that differ from the preset.
        device: Where to compute.
        checkpoint: A file to continue from after an interruption (with a few beside it, ``FILE.PHASE``);
            removed when all is done, and where the run ends in an error of ours.
        progress: Where progress is reported.

    Returns:
        The condensed data set; its ``record`` holds seconds, device and history.

    Example:
        >>> import hcdc
        >>> task = hcdc.GraphTask(hcdc.data("embedded"))
        >>> small = hcdc.condense(task, hcdc.spaces.PolynomialFilter(), "random", train_size=30)
        >>> len(small.train)
        30
    """
    made = plan(
        task, space, method, train_size=train_size, val_size=val_size, seed=seed, train_method=train_method,
        val_method=val_method, preset=preset, options=options,
    )  # fmt: skip
    store = Checkpoint(checkpoint, made.key())
    try:
        small = _make(task, space, made, seed, device, store, progress or Progress())
    except HcdcError:
        _forget(store)  # the same command would end here again
        raise
    _forget(store)
    return small


def _make(
    task: Task,
    space: Space,
    made: Plan,
    seed: int,
    device: torch.device | str,
    store: Checkpoint,
    progress: Progress,
) -> CondensedDataset:
    """Do what was planned."""
    meta, reducer, config = dict(made.meta), made.reducer, made.config
    val_method, val_size = meta["val_method"], made.val_size
    progress.count = max(progress.count, 2)
    moved = task.to(device)
    seconds: dict[str, float] = {}
    with timed() as spent:
        s_train = reducer.reduce(
            moved, "train", made.train_size, seed, progress=progress, checkpoint=store.child("train")
        )
    seconds["train"] = spent[0]
    record: dict[str, Any] = {}
    s_val = None
    with timed() as spent:
        if config is not None and val_method in LEARNED:
            result = learn_validation(
                moved, space, s_train, val_size, seed, config, made.full, made.calibrated,
                device=device, progress=progress, checkpoint=store,
            )  # fmt: skip
            s_val = result.val
            meta["candidates"] = sorted(set(result.candidates))
            meta["probes"] = result.probes
            record = {"history": result.history, "full_trainings": result.full_trainings}
        elif val_method == "random":
            s_val = moved.sample("val", val_size, seed)
        elif val_method == "same":
            s_val = reducer.reduce(
                moved, "val", val_size, seed, progress=progress, checkpoint=store.child("val")
            )
    seconds["val"] = spent[0]
    record |= {
        "condense_seconds": sum(seconds.values()),
        "phases": seconds,
        "environment": environment(device),
    }
    return CondensedDataset(s_train.to("cpu"), None if s_val is None else s_val.to("cpu"), meta, record)


def plan(
    task: Task,
    space: Space,
    method: str = "hcdc",
    *,
    train_size: int,
    val_size: int | None = None,
    seed: int = 0,
    train_method: str | None = None,
    val_method: str | None = None,
    preset: str | None = None,
    options: dict[str, Any] | None = None,
) -> Plan:
    """Check the arguments of `condense` and say what it will do, without doing it."""
    if method not in METHODS:
        raise unknown_name("method", method, METHODS)
    learned = method == "hcdc"
    default = ("reach" if task.kind == "graph" else "random") if learned else method
    train_method = train_method or default
    val_method = val_method or ("both" if learned else "same")
    if train_method not in REDUCERS:
        raise unknown_name("train_method", train_method, REDUCERS)
    if val_method not in VAL_METHODS:
        raise unknown_name("val_method", val_method, VAL_METHODS)
    if not learned and train_method != method:
        raise InputError(
            f"train_method '{train_method}': method '{method}' makes S_train itself; leave it out, or choose "
            "method 'hcdc'"
        )
    if val_method in LEARNED and not learned:
        raise InputError(
            f"val_method '{val_method}' learns S_val, which is method 'hcdc' with train_method '{method}'"
        )
    _check_sizes(task, train_size, val_size)
    ratio = len(task.val) / len(task.train)
    val_size = val_size or max(round(train_size * ratio), getattr(task, "num_classes", None) or 1)
    val_size = min(val_size, len(task.val))
    name = task.data.name if hasattr(task, "data") else "memory"
    options = dict(options or {})
    reducer, reducer_preset = _reducer(train_method, preset, name, {} if learned else options)
    if preset is not None and not learned and preset != reducer_preset and reducer_presets(method):
        raise unknown_name(f"preset of method '{method}'", preset, reducer_presets(method))
    config = make_hcdc(preset, **options) if learned else None
    if config is not None and val_method == "aligned":
        config = dataclasses.replace(config, anchors=0.0)
    if config is not None and val_method in LEARNED:
        config.check_for(task, space)

    decay = getattr(task, "weight_decay", 5e-4)
    scored = getattr(task, "num_classes", None) is not None
    full = Recipe(weight_decay=decay, seeds=3, metric="accuracy" if scored else "loss")
    by_loss = val_method in LEARNED or not scored
    small = dataclasses.replace(full, metric="loss" if by_loss else "accuracy")
    meta: dict[str, Any] = {
        "data": describe(task.data) if hasattr(task, "data") else {"name": name},
        "task": task.spec() if hasattr(task, "spec") else {"name": task.kind},
        "space": space.spec(),
        "method": method,
        "train_method": train_method,
        "val_method": val_method,
        "preset": preset,
        "settings": {"train": reducer.settings(), "val": None if config is None else config.settings()},
        "full_recipe": full.as_dict(),
        "calibrated_recipe": small.as_dict(),
        "metric": small.metric,
        "seed": seed,
    }
    return Plan(train_size, val_size, reducer, config, full, small, meta)


def _check_sizes(task: Task, train_size: int, val_size: int | None) -> None:
    classes = getattr(task, "num_classes", None)
    least = classes or 1
    needed = "at least 1 is" if classes is None else f"there are {classes} classes, so at least {classes} are"
    for what, size, part in (("train_size", train_size, task.train), ("val_size", val_size, task.val)):
        if size is None:
            continue
        if size < least:
            raise InputError(f"{what} {size}: {needed} needed; try {min(5 * least, len(part))}")
        if size > len(part):
            raise InputError(
                f"{what} {size}: the original has only {len(part)} such examples; choose at most that"
            )


def _forget(store: Checkpoint) -> None:
    """Remove the checkpoint and those of its phases, and no other file that is called alike."""
    if store.path is None or not store.path.parent.is_dir():
        return
    own = re.compile(re.escape(store.path.name) + PHASES)
    for file in store.path.parent.iterdir():
        if own.fullmatch(file.name):
            file.unlink(missing_ok=True)
