"""The plan of a condensation: all checks and costs first, then the work."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from hcdc.condensers._base import Reducer
from hcdc.condensers._checks import (
    TRAIN,
    check_s_train,
    check_sizes,
    check_truth_has,
    check_types,
    checked_recipe,
)
from hcdc.condensers._cost import Cost, Expense
from hcdc.condensers._registry import REDUCERS, make_reducer, reducer_for, reducer_presets
from hcdc.condensers.validation import VALIDATIONS, Validation, Work, make_validation
from hcdc.core.checkpoint import Checkpoint, content_key
from hcdc.core.errors import HcdcError, InputError, unknown_name
from hcdc.core.files import cache_root
from hcdc.core.progress import Progress, duration, timed, usual_progress
from hcdc.core.recipe import Recipe
from hcdc.core.records import device_name, environment, jsonable
from hcdc.datasets import CondensedDataset
from hcdc.spaces import Space
from hcdc.tasks import Task
from hcdc.truth import Truth, check_truth

AUTO = "auto"
"""The default checkpoint: a file in the cache that an equal call finds again."""
TRUTH_EPOCHS = 20
SCREEN = 100
"""Most characters of a description that fits a screen."""
PHASES = (
    r"(\.(train|val|scores|recipe|probes|figures)(\.expert\d+)?|"
    r"\.(original-\w+|(lam|network)\d+|network\.0))?"
)
"""Regular expression for the suffixes of a run's checkpoint files."""


@dataclass(frozen=True)
class Plan:
    """What will be done, checked and described before the work begins.

    Attributes:
        task: What is learned, with the original data.
        space: What will be searched.
        seed: Determines every random draw.
        train_size, val_size: |S_train| and |S_val|.
        s_train: A copy whose S_train is taken; None makes one.
        reducer: What makes S_train.
        way: What makes S_val.
        truth: Full-data results of probes; None trains the probes.
        full, calibrated: How candidates are trained and scored on the full data and on the copy.
        meta: The metadata of the condensed file, without the candidates used.
    """

    task: Task
    space: Space
    seed: int
    train_size: int
    val_size: int
    s_train: CondensedDataset | None
    reducer: Reducer
    way: Validation
    truth: Truth | None
    full: Recipe
    calibrated: Recipe
    meta: dict[str, Any] = field(repr=False)

    def relaxed(self) -> Recipe:
        """How the relaxed network is trained on the original data."""
        return self.task.relaxed_recipe(self.full, self.calibrated)

    def key(self) -> str:
        """A hash of the plan; equal commands have equal keys."""
        return content_key({**self.meta, "train_size": self.train_size, "val_size": self.val_size})

    def networks_key(self) -> str:
        """A hash of what decides how a candidate is trained on S_train, whatever is learned from it."""
        names = ("data", "task", "space", "train_method", "calibrated_recipe", "seed", "train_seed")
        own = {name: self.meta.get(name) for name in names}
        return content_key({**own, "train": self.meta["settings"]["train"], "train_size": self.train_size})

    def made(self, small: CondensedDataset) -> bool:
        """Whether a condensed data set was made by this plan, perhaps before some settings existed."""
        planned = {**self.meta, "train_size": self.train_size}
        if small.val is not None:
            planned["val_size"] = self.val_size
        stored = small.meta["settings"]
        settings = {
            "train": self.reducer.completed(stored["train"]),
            "val": self.way.completed(stored["val"]) or None,
        }
        found = {**small.meta, "settings": settings}
        if tried := found.get("recipes_tried"):  # the first was planned; the file holds the best
            found = {**found, "calibrated_recipe": tried[0]["recipe"]}
        plain = json.loads(json.dumps(jsonable(planned)))
        return all(found.get(key) == value for key, value in plain.items())

    # --- before the work ----------------------------------------------------------------------------------

    def summary(self, device: torch.device | str = "cpu") -> list[tuple[str, str]]:
        """What will be done, as (label, text) lines."""
        meta, way = self.meta, self.way
        preset = f", preset {meta['preset']}" if meta["preset"] else ""
        how = f"S_train by {meta['train_method']}, S_val by {meta['val_method']}"
        full = ("full recipe", in_words(meta["full_recipe"]))
        if self.truth is not None:
            full = ("full data", f"results from the {self.truth.words()}")
        recipe = in_words(meta["calibrated_recipe"])
        if way.settings().get("calibrate"):
            recipe += ", or another that the probes choose"
        lines = [
            ("data", self.task.words()),
            ("method", f"{meta['method']}{preset}: {how}"),
            ("sizes", f"S_train {self.task.sized(self.train_size)}, S_val {way.sized(self)}"),
            ("space", space_words(self.space)),
            full,
            ("relaxed network", self._relaxed_words()),
            ("calibrated recipe", recipe),
            ("device", device_name(device)),
            ("note", way.doubt(self.task)),
        ]
        return [(label, text) for label, text in lines if text]

    def _relaxed_words(self) -> str:
        """With a table, only the relaxed network is trained on the full data."""
        if self.truth is None or "relaxed_recipe" not in self.meta:
            return ""
        return f"trained on the full data: {in_words(self.meta['relaxed_recipe'])}"

    def cost(self, device: torch.device | str = "cpu") -> Cost:
        """What the work costs on a device; seconds come from short trials on it."""
        moved = self.task.to(device)
        return Cost((*self.way.cost(self, moved, device), *self._reduction(moved)))

    def _reduction(self, task: Task) -> list[Expense]:
        """The cost of the method behind S_train (and S_val, if it makes both)."""
        sizes = {} if self.s_train is not None else {"train": self.train_size}
        if self.way.reduces:
            sizes["val"] = self.val_size
        trained = self.reducer.trains(self.task)
        told = " and ".join(filter(None, [trained and f"{trained} on the full data", self.reducer.loops()]))
        if not (told and sizes):
            return []
        told = f"{' and '.join(f'S_{part}' for part in sizes)} by {self.reducer.name}: {told}"
        spent = [self.reducer.seconds(task, part, size) for part, size in sizes.items()]
        told += " for each" if len(sizes) > 1 and spent[-1] != 0 else ""
        known = [each for each in spent if each is not None]
        if len(known) < len(spent):
            return [Expense(f"{told}, whose time is not predicted", None)]
        total = sum(known)
        return [Expense(f"{told}, about {duration(total)} (estimate from a few examples)", total)]

    # --- the work -----------------------------------------------------------------------------------------

    def run(
        self,
        *,
        device: torch.device | str = "cpu",
        checkpoint: str | os.PathLike[str] | None = AUTO,
        progress: Progress | None = None,
        done: Callable[[CondensedDataset], object] | None = None,
        networks: str | os.PathLike[str] | None = None,
    ) -> CondensedDataset:
        """Carry out the plan; other arguments and the result are as in `condense`.

        Args:
            networks: Where to keep candidates trained on S_train, as file names that begin with this, for
                plans that differ in nothing but what they learn from them. Each plan counts their seconds.
        """
        if checkpoint == AUTO:
            checkpoint = _own_place(f"{self.key()}.ckpt")
        store = Checkpoint(checkpoint, self.key())
        if progress is None:
            progress = usual_progress()
            if progress.live and not store.begun():
                progress.report(f"cost: {self.cost(device).words()}", last=True)
        try:
            small = self._make(device, store, progress, networks)
        except HcdcError:
            _forget(store)  # the same command would fail here again
            raise
        if done is not None:
            done(small)
        _forget(store)
        return small

    def _make(
        self,
        device: torch.device | str,
        store: Checkpoint,
        progress: Progress,
        networks: str | os.PathLike[str] | None,
    ) -> CondensedDataset:
        meta, moved = dict(self.meta), self.task.to(device)
        s_train, learned, train_seconds = self._made_train(moved, device, store, progress)
        meta |= {"train_learned": learned} if learned else {}
        store = store.timed_anew()
        kept = None if networks is None else Checkpoint(networks, self.networks_key(), store.clock)
        with timed() as spent:
            made = self.way.make(self, Work(moved, s_train, device, store, progress, kept))
        val_seconds = spent[0] + store.clock.earlier
        record = {
            **made.record,
            "condense_seconds": None if train_seconds is None else train_seconds + val_seconds,
            "phases": {"train": train_seconds, "val": val_seconds},
            "environment": environment(device),
        }
        s_val = None if made.val is None else made.val.to("cpu")
        return CondensedDataset(s_train.to("cpu"), s_val, meta | made.says, record, self.task)

    def _made_train(
        self, task: Task, device: torch.device | str, store: Checkpoint, progress: Progress
    ) -> tuple[Any, dict[str, Any], float | None]:
        """S_train on the device, what was learned with it, and the seconds of making it (None: not known)."""
        if (taken := self.s_train) is not None:
            return taken.train.to(device), taken.meta.get("train_learned", {}), taken.train_seconds
        place = store.timed_anew().child("train")
        with timed() as spent:
            *_, made = self.reducer.iterates(
                task, "train", self.train_size, self.seed, progress=progress, checkpoint=place
            )
        return made.images, dict(made.told), spent[0] + place.clock.earlier


def plan(
    task: Task,
    space: Space,
    method: str = "hcdc",
    *,
    train_size: int | None = None,
    val_size: int | None = None,
    seed: int = 0,
    s_train: CondensedDataset | None = None,
    train_method: str | None = None,
    val_method: str | None = None,
    preset: str | None = None,
    options: Mapping[str, Any] | None = None,
    truth: Truth | None = None,
    truth_epochs: int = TRUTH_EPOCHS,
    recipe: Mapping[str, Any] | None = None,
    full_recipe: Mapping[str, Any] | None = None,
) -> Plan:
    """Check the arguments of `condense` and describe its work and cost, without doing it.

    Example:
        >>> import hcdc
        >>> task, space = hcdc.GraphTask(hcdc.data("embedded")), hcdc.spaces.PolynomialFilter()
        >>> made = hcdc.condensers.plan(task, space, train_size=30, val_method="real")
        >>> made.cost().words()
        'no full-data training'
    """
    options = dict(options or {})
    if s_train is not None and train_size is None:
        train_size = len(s_train.train)
    check_types(task, space, train_size, val_size, seed, truth_epochs)
    assert train_size is not None, "what is no number was refused"
    if s_train is not None:
        train_method = check_s_train(s_train, task, train_size, train_method, method, options)
    if truth is not None:
        check_truth(truth, task)
    if val_method is None and method == "hcdc":
        val_method = _usual_way(task, space, truth is not None, preset)
    train_method, val_method = _methods(task, method, train_method, val_method)
    if preset not in (None, "default") and VALIDATIONS[val_method].otherwise:
        raise InputError(
            f"preset '{preset}' does not describe val_method '{val_method}'; leave one of them out"
        )
    check_sizes(task, train_size, val_size)
    task.fit(space)
    reducer, way, preset = _makers(task, method, train_method, val_method, preset, dict(options))
    if s_train is not None:
        reducer = make_reducer(train_method, **s_train.meta["settings"]["train"])
    way = way.for_space(space, options)
    val_size = way.val_size(task, train_size) if val_size is None else val_size
    task.check_size("train", train_size)
    way.check_size(task, val_size)
    way.refuse(task, space, seed)
    asked = way.asked(space, seed)
    if truth is not None and method == "hcdc":
        check_truth_has(truth, asked, val_method)
    full, small = task.recipes(train_size, truth_epochs, way.metric(task))
    small = checked_recipe("recipe", small, recipe or {}, task)
    full = checked_recipe("full_recipe", full, full_recipe or {}, task)
    if "batch" in (full_recipe or {}) and "steps" not in (full_recipe or {}):
        full = task.for_epochs(full, truth_epochs)
    meta: dict[str, Any] = {
        "data": task.describe(),
        "task": task.spec(),
        "space": space.spec(),
        "method": method,
        "train_method": train_method,
        "val_method": val_method,
        "preset": preset,
        "settings": {"train": reducer.settings(), "val": way.settings() or None},
        "full_recipe": full.as_dict(),
        "calibrated_recipe": small.as_dict(),
        "metric": small.metric,
        "seed": seed,
    }
    if truth is not None:
        meta["truth"] = truth.spec()
    if s_train is not None:
        meta["train_seed"] = s_train.meta.get("train_seed", s_train.meta["seed"])
    made = Plan(task, space, seed, train_size, val_size, s_train, reducer, way, truth, full, small, meta)
    meta |= way.describe(made)
    return made


def _usual_way(task: Task, space: Space, truth: bool, preset: str | None) -> str:
    """The task's way to make S_val, or the one that a named preset describes."""
    usual = task.val_method(truth, space)
    return usual if preset in (None, "default") else VALIDATIONS[usual].otherwise or usual


def _methods(task: Task, method: str, train_method: str | None, val_method: str | None) -> tuple[str, str]:
    """The methods for S_train and S_val, as given or by default."""
    if method not in (*REDUCERS, "hcdc"):
        raise unknown_name("method", method, (*REDUCERS, "hcdc"))
    learned = method == "hcdc"
    train_method = train_method or (task.train_method if learned else method)
    val_method = val_method or "same"
    if train_method not in REDUCERS:
        raise unknown_name("train_method", train_method, REDUCERS)
    if val_method not in VALIDATIONS:
        raise unknown_name("val_method", val_method, VALIDATIONS)
    if not learned and train_method != method:
        raise InputError(
            f"train_method '{train_method}': method '{method}' makes S_train itself; leave it out, or choose "
            "method 'hcdc'"
        )
    if not learned and VALIDATIONS[val_method].learned:
        raise InputError(
            f"val_method '{val_method}' learns S_val, which is method 'hcdc' with train_method '{method}'"
        )
    return train_method, val_method


def _makers(
    task: Task, method: str, train_method: str, val_method: str, preset: str | None, options: dict[str, Any]
) -> tuple[Reducer, Validation, str | None]:
    """The makers of S_train and S_val with their settings, and the preset."""
    if method != "hcdc":
        reducer, chosen = reducer_for(train_method, task, preset, options)
        if preset is not None and preset != chosen and reducer_presets(method):
            raise unknown_name(f"preset of method '{method}'", preset, reducer_presets(method))
        return reducer, make_validation(val_method, task), preset
    of_train = {k.removeprefix(TRAIN): options.pop(k) for k in list(options) if k.startswith(TRAIN)}
    reducer, _ = reducer_for(train_method, task, preset, of_train)
    for name in options:
        if name in reducer.names() and name not in VALIDATIONS[val_method].for_task(task).names():
            raise InputError(
                f"setting '{name}': val_method '{val_method}' has no such setting; the setting of S_train's "
                f"method '{reducer.name}' is '{TRAIN}{name}'"
            )
    preset = preset or task.preset
    return reducer, make_validation(val_method, task, preset, options), preset


def in_words(values: Mapping[str, Any]) -> str:
    """Settings in one line."""
    return ", ".join(f"{key.replace('_', ' ')} {value}" for key, value in values.items())


def space_words(space: Space) -> str:
    """The settings of a space or, if they would fill a screen, a count of its dimensions."""
    told = in_words(space.spec())
    return told if len(told) <= SCREEN else f"{space.name}, {space.words()}"[:SCREEN]


def _own_place(name: str) -> Path | None:
    """The run's checkpoint file in the cache; None if the cache is not writable."""
    folder = cache_root() / "runs"
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError:
        return None
    return folder / name if os.access(folder, os.W_OK) else None


def _forget(store: Checkpoint) -> None:
    """Remove the checkpoint and those of its phases, but no other file with a similar name."""
    if store.path is None or not store.path.parent.is_dir():
        return
    own = re.compile(re.escape(store.path.name) + PHASES)
    for file in store.path.parent.iterdir():
        if own.fullmatch(file.name):
            file.unlink(missing_ok=True)
