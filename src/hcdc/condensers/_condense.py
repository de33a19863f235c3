"""From a task and a search space to a condensed data set."""

from __future__ import annotations

import dataclasses
import json
import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from numbers import Integral
from typing import Any, TypeVar

import numpy as np
import torch

from hcdc.condensers._base import Reducer
from hcdc.condensers._coreset import Coreset
from hcdc.condensers._hcdc import HCDC, learn_validation
from hcdc.condensers._image_coreset import embedding_steps
from hcdc.condensers._probing import (
    FEWEST,
    Probing,
    choose_recipe,
    companion_configs,
    expectations,
    learn_examples,
    make_companions,
    mean_loss,
    probe_configs,
    weigh_examples,
)
from hcdc.condensers._registry import REDUCERS, make_reducer, reducer_presets
from hcdc.core.checkpoint import Checkpoint, content_key
from hcdc.core.configs import Config, config_hash
from hcdc.core.errors import HcdcError, InputError, NumericalError, unknown_name
from hcdc.core.progress import Phase, Progress, timed
from hcdc.core.recipe import Recipe
from hcdc.core.records import environment
from hcdc.core.seeds import numpy_stream
from hcdc.datasets import CondensedDataset, describe
from hcdc.spaces import Space
from hcdc.tasks import ImageTask, Task
from hcdc.training import Predictor, predictors
from hcdc.truth import TrainedTruth, Truth, check_truth, full_scores

ALIGNED = ("aligned", "both")
PROBED = ("probes", "weighted")
LEARNED = (*ALIGNED, *PROBED)
VAL_METHODS = (*LEARNED, "same", "random", "real")
METHODS = (*REDUCERS, "hcdc")
TRAIN = "train."
"""Before the name of a setting of HCDC: it is one of the method that makes S_train."""
TRUTH_EPOCHS = 20
IMAGE_RATIO = 0.4
"""Validation images to training images of a copy: 20 and 50 a class."""
PHASES = r"(\.(train|val|scores|recipe|probes)(\.expert\d+)?|\.(original-\w+|(lam|network)\d+|network\.0))?"
"""What the checkpoints of one run are called after the name of the first, as a regular expression."""


def hcdc_presets() -> dict[str, dict[str, Any]]:
    """The presets of HCDC: ``{preset: {"note", "settings"}}``."""
    text = resources.files("hcdc.condensers").joinpath("presets", "hcdc.json").read_text()
    presets: dict[str, dict[str, Any]] = json.loads(text)
    return presets


def make_hcdc(preset: str | None = None, **overrides: Any) -> HCDC:
    """HCDC's settings from a preset and overrides."""
    return _settings(HCDC, preset, overrides)


def make_probing(preset: str | None = None, **overrides: Any) -> Probing:
    """The settings of learning from probes, from the same presets."""
    return _settings(Probing, preset, overrides)


S = TypeVar("S", HCDC, Probing)


def _settings(form: type[S], preset: str | None, overrides: dict[str, Any]) -> S:
    """Settings of one form; presets and overrides may hold those of the other too, which are left out."""
    presets = hcdc_presets()
    if preset is not None and preset not in presets:
        raise unknown_name("preset of method 'hcdc'", preset, presets)
    known = {f.name: f for each in (HCDC, Probing) for f in dataclasses.fields(each)}
    for key in overrides:
        if key not in known:
            raise unknown_name("setting of method 'hcdc'", key, known)
    settings = {**presets[preset or "default"]["settings"], **overrides}
    for key, value in settings.items():
        wanted = {"int": int, "float": (int, float), "str": str, "bool": bool}[str(known[key].type)]
        if not isinstance(value, wanted) or (isinstance(value, bool) and wanted is not bool):  # type: ignore[arg-type]
            raise InputError(f"setting '{key}' of method 'hcdc' must be {known[key].type}, got {value!r}")
    own = {f.name for f in dataclasses.fields(form)}
    return form(**{key: value for key, value in settings.items() if key in own})


def _reducer(
    name: str, preset: str | None, task: Task, dataset: str, overrides: dict[str, Any]
) -> tuple[Reducer, str | None]:
    """The reducer with the given preset, else the one named as the data set, else its default.

    The default of K-Center and Herding is for graphs; of images it is that of CIFAR-10, for as many epochs.
    """
    presets = reducer_presets(name)
    of_images = isinstance(task, ImageTask) and issubclass(REDUCERS[name], Coreset)
    for choice in (preset, dataset.removesuffix("-embedded"), "default"):
        if choice is not None and choice in presets:
            if choice == "default" and of_images:
                epochs = {"steps": embedding_steps(len(task.train))}
                return make_reducer(name, "cifar10", **{**epochs, **overrides}), choice
            return make_reducer(name, choice, **overrides), choice
    return make_reducer(name, None, **overrides), None


@dataclass(frozen=True)
class Plan:
    """What `condense` is about to do, known before the work begins.

    Attributes:
        train_size, val_size: |S_train| and |S_val|.
        reducer: What makes S_train.
        config: HCDC's settings where hypergradients are aligned.
        probing: The settings of learning from probes, where there are any.
        truth: Full-data results of probes from a table; None trains them.
        full, calibrated: How candidates are trained and scored on the full data and on the copy.
        meta: What the condensed file will say, less the candidates used.
    """

    train_size: int
    val_size: int
    reducer: Reducer
    config: HCDC | None
    probing: Probing | None
    truth: Truth | None
    full: Recipe
    calibrated: Recipe
    meta: dict[str, Any]

    def relaxed(self, task: Task) -> Recipe:
        """How the relaxed network is trained on the original data: of images, four times as long as on the
        copy at most."""
        if not isinstance(task, ImageTask):
            return self.full
        return dataclasses.replace(self.full, steps=min(self.full.steps, 4 * self.calibrated.steps))

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
    truth: Truth | None = None,
    truth_epochs: int = TRUTH_EPOCHS,
    recipe: Mapping[str, Any] | None = None,
    full_recipe: Mapping[str, Any] | None = None,
    device: torch.device | str = "cpu",
    checkpoint: str | os.PathLike[str] | None = None,
    progress: Progress | None = None,
    done: Callable[[CondensedDataset], object] | None = None,
) -> CondensedDataset:
    """Make a condensed data set.

    Args:
        task: What is learned, with the original data.
        space: What will be searched.
        method: ``"random"``, ``"kcenter"``, ``"herding"``, ``"hcdc"``; graphs also ``"reach"``,
            ``"gcondx"``, ``"gcond"``; images also ``"dc"``, ``"dsa"``, ``"dm"``, ``"kip"``, ``"tm"``.
        train_size: |S_train|, a total.
        val_size: |S_val|; by default ``train_size`` times the original ratio of validation to training
            examples.
        seed: Decides every random draw.
        train_method: What makes S_train for HCDC, ``"reach"`` by default (tables: ``"random"``); every other
            method makes it itself.
        val_method: What makes S_val: ``"both"`` (HCDC: hypergradients aligned, values of the same full
            trainings as anchors), ``"aligned"`` (HCDC as in the paper: hypergradients alone), ``"same"`` (the
            reducer of S_train on the validation examples), ``"random"`` (random validation examples) or
            ``"real"`` (none: the whole real validation set is used). From probes, candidates whose full-data
            result is known: ``"probes"`` (their order is learned) and ``"weighted"`` (real validation
            examples with weights); for images ``"both"`` is alignment first, then probes. The default is
            ``"both"`` for HCDC (of images ``"weighted"`` with a table or a model of your own, ``"aligned"``
            without), ``"same"`` otherwise.
        preset: Named settings of the method.
        options: Settings that differ from the preset. Of HCDC, ``"train.NAME"`` is the setting NAME of the
            method that makes S_train.
        truth: A table of full-data results for the probes; without it they are trained on the full data.
        truth_epochs: Epochs of a full-data training of images, where there is no table.
        recipe: Settings of the training on the copy (`Recipe`) that differ from the default, e.g.
            ``{"lr": 0.1}``; of graphs and tables steps, lr, seeds and metric.
        full_recipe: The same of the training on the full data, e.g. ``{"augment": "none"}``; its metric is
            fixed. Of images, ``steps`` takes the place of ``truth_epochs``.
        device: Where to compute.
        checkpoint: A file to continue from after an interruption (with others beside it, ``FILE.PHASE``);
            removed when all is done, and where the run ends in an error of ours.
        progress: Where progress is reported.
        done: Called with the condensed data set before the checkpoint goes, to save it; what it raises leaves
            the checkpoint there.

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
        val_method=val_method, preset=preset, options=options, truth=truth, truth_epochs=truth_epochs,
        recipe=recipe, full_recipe=full_recipe,
    )  # fmt: skip
    store = Checkpoint(checkpoint, made.key())
    try:
        small = _make(task, space, made, seed, device, store, progress or Progress())
    except HcdcError:
        _forget(store)  # the same command would end here again
        raise
    if done is not None:
        done(small)
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
    meta, reducer = dict(made.meta), made.reducer
    val_method, val_size = meta["val_method"], made.val_size
    moved = task.to(device)
    seconds: dict[str, float] = {}
    place = store.timed_anew().child("train")
    with timed() as spent:
        s_train, learned = reducer.reduce_and_tell(
            moved, "train", made.train_size, seed, progress=progress, checkpoint=place
        )
    meta |= {"train_learned": learned} if learned else {}
    seconds["train"] = spent[0] + place.clock.earlier
    record: dict[str, Any] = {}
    s_val: Any = None
    store = store.timed_anew()
    with timed() as spent:
        if val_method in LEARNED:
            s_val, found, record = _learn(moved, space, made, s_train, seed, device, store, progress)
            meta |= found
        elif val_method == "random":
            s_val = moved.sample("val", val_size, seed)
        elif val_method == "same":
            s_val, learned = reducer.reduce_and_tell(
                moved, "val", val_size, seed, progress=progress, checkpoint=store.child("val")
            )
            meta |= {"val_learned": learned} if learned else {}
    seconds["val"] = spent[0] + store.clock.earlier
    record |= {
        "condense_seconds": sum(seconds.values()),
        "phases": seconds,
        "environment": environment(device),
    }
    return CondensedDataset(s_train.to("cpu"), None if s_val is None else s_val.to("cpu"), meta, record)


def _learn(
    task: Task,
    space: Space,
    made: Plan,
    s_train: Any,
    seed: int,
    device: torch.device | str,
    store: Checkpoint,
    progress: Progress,
) -> tuple[Any, dict[str, Any], dict[str, Any]]:
    """S_val, what the file says of how it was learned, and the record: alignment, then probes."""
    s_val, used, history, count, looked_up = None, [], [], 0, 0.0
    probes: dict[str, Any] = {}
    kept: dict[str, Any] = {}
    if made.config is not None:
        result = learn_validation(
            task, space, s_train, made.val_size, seed, made.config, made.relaxed(task), made.calibrated,
            device=device, progress=progress, checkpoint=store,
        )  # fmt: skip
        s_val, used, history, count = result.val, result.candidates, result.history, result.full_trainings
        probes = result.probes
    if made.probing is not None:
        configs = probe_configs(space, made.probing.probes, seed)
        with timed() as spent:
            scores, seconds = _probe_scores(task, space, configs, made, device, progress)
        looked_up = seconds if made.truth else max(0.0, seconds - spent[0])  # what the cache knew
        asked = store.child("scores")
        if (saved := asked.load()) is not None:  # what was trained then is among the earlier seconds
            looked_up = saved[1]["looked_up"]
        else:
            asked.save({}, {"looked_up": looked_up})
        beside = companion_configs(space, made.probing.probes, made.probing.companions, seed)

        def train(
            some: list[Config], recipe: Recipe, place: Checkpoint | None = None, phase: Phase | None = None
        ) -> list[Predictor]:
            return predictors(
                task, space, some, s_train, recipe, seed=seed, role="probe", device=device,
                checkpoint=place, phase=phase,
            )  # fmt: skip

        recipe = made.calibrated
        if made.probing.calibrate:
            around, place = task.recipes_around(recipe), store.child("recipe")
            trying = progress.phase("recipes on the copy", len(around))

            def tell(found: int, agreement: float) -> None:
                trying.step(found, f"agreement with the probes {agreement:.3f}")

            recipe, tried = choose_recipe(
                task, scores, around, lambda one: train(configs, one), seed, made.probing, tell, place
            )
            kept |= {"calibrated_recipe": recipe.as_dict(), "recipes_tried": tried}
        together = configs + beside
        training = progress.phase("probes and companions on the copy", len(together))
        trained = train(together, recipe, store, training)
        networks = trained[: len(configs)]
        _check_trained(task, networks, s_train, recipe)
        expected = expectations(space, configs, scores, beside)
        companions = make_companions(task, trained[len(configs) :], expected, seed, made.probing)
        phase = progress.phase("S_val from probes", made.probing.probe_steps)
        if made.meta["val_method"] == "weighted":
            s_val, learned = weigh_examples(
                task, networks, scores, made.val_size, seed, made.probing, companions
            )
            phase.step(made.probing.probe_steps)
        else:
            start = task.sample("val", made.val_size, seed) if s_val is None else s_val
            s_val, learned = learn_examples(
                task, networks, scores, start, made.probing, companions=companions,
                device=device, phase=phase, checkpoint=store.child("probes"),
            )  # fmt: skip
        history, count = history + learned, count + (0 if made.truth else len(configs))
        used = used + [config_hash(config) for config in together]
        probes = {"configs": configs, "score": scores}
    kept |= {"candidates": sorted(set(used)), "probes": probes}
    return s_val, kept, {"history": history, "full_trainings": count, "probe_seconds": looked_up}


@torch.no_grad()
def _check_trained(task: Task, networks: Sequence[Predictor], s_train: Any, recipe: Recipe) -> None:
    """Refuse probes that diverged: nothing can be learned from them."""
    lost = sum(not np.isfinite(float(mean_loss(task, predict, s_train))) for predict in networks)
    if lost:
        raise NumericalError(
            f"{lost} of {len(networks)} probes have no finite loss after training on the copy; a smaller "
            f"learning rate of the recipe (lr, now {recipe.lr}) or a limit on the gradient's norm (clip, now "
            f"{recipe.clip}) may help"
        )


def _probe_scores(
    task: Task,
    space: Space,
    configs: list[Config],
    made: Plan,
    device: torch.device | str,
    progress: Progress,
) -> tuple[list[float], float]:
    """Full-data validation scores of the probes, last where they diverged, and the seconds of training and
    validating them."""
    source = made.truth or TrainedTruth(
        task, space, made.full, device=device, progress=progress,
        fingerprint=str(made.meta["data"].get("fingerprint")),
    )  # fmt: skip
    known = source.results(configs, ("val",))
    if (finite := sum(r.finite for r in known)) < FEWEST:
        raise NumericalError(
            f"{finite} of {len(known)} probes have a finite loss after training on the full data, and at "
            f"least {FEWEST} are needed; a smaller learning rate there (full_recipe lr, now {made.full.lr}) "
            "may help"
        )
    return full_scores(known, "val"), sum(r.seconds_for("val") for r in known)


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
    truth: Truth | None = None,
    truth_epochs: int = TRUTH_EPOCHS,
    recipe: Mapping[str, Any] | None = None,
    full_recipe: Mapping[str, Any] | None = None,
) -> Plan:
    """Check the arguments of `condense` and say what it will do, without doing it."""
    _check_types(task, space, train_size, val_size, seed, truth_epochs)
    if truth is not None:
        check_truth(truth, task)
    if method not in METHODS:
        raise unknown_name("method", method, METHODS)
    learned = method == "hcdc"
    default = ("reach" if task.kind == "graph" else "random") if learned else method
    train_method = train_method or default
    images = isinstance(task, ImageTask)
    if val_method is None:
        relaxed = isinstance(getattr(task, "model", None), str)
        of_images = "aligned" if truth is None and relaxed else "weighted"
        val_method = (of_images if images else "both") if learned else "same"
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
    if val_size is None:
        ratio = IMAGE_RATIO if images else len(task.val) / len(task.train)
        val_size = max(round(train_size * ratio), getattr(task, "num_classes", None) or 1)
        val_size = min(val_size, len(task.val))
        if isinstance(task, ImageTask) and val_method != "weighted":  # which takes images of any class
            val_size = min(val_size, task.most("val")) or task.num_classes
    if isinstance(task, ImageTask):
        task.bind(space, space.sample(1, numpy_stream(seed, "plan"))[0])
        task.labels("train", train_size)
        if val_method not in ("real", "weighted"):
            task.labels("val", val_size)
    name = task.data.name if hasattr(task, "data") else "memory"
    options = dict(options or {})
    of_train = options
    if learned:
        of_train = {k.removeprefix(TRAIN): options.pop(k) for k in list(options) if k.startswith(TRAIN)}
    reducer, reducer_preset = _reducer(train_method, preset, task, name, of_train)
    if preset is not None and not learned and preset != reducer_preset and reducer_presets(method):
        raise unknown_name(f"preset of method '{method}'", preset, reducer_presets(method))
    config, probing = None, None
    if learned:
        preset = preset or ("images" if images else None)
        config, probing = make_hcdc(preset, **options), make_probing(preset, **options)
        if val_method in ("aligned", "both") and (val_method == "aligned" or images):
            config = dataclasses.replace(config, anchors=0.0)
        if val_method not in ALIGNED:
            config = None
        if not (val_method in PROBED or (val_method == "both" and images)):
            probing = None
        _check_used(options, config, probing, reducer, val_method)
    if config is not None:
        config.check_for(task, space)
    if probing is not None:
        probe_configs(space, probing.probes, seed)  # more than there are is refused before the work
    if isinstance(task, ImageTask) and task.model == "convnet" and val_method in LEARNED:
        raise InputError(
            "model 'convnet' is one network for all candidates of a space, so there is no order to learn; "
            "leave it out, or choose val_method 'same', 'random' or 'real'"
        )
    if val_method == "weighted" and getattr(task, "num_classes", None) is None:
        raise InputError(
            "val_method 'weighted': weights are fitted to losses of classes, and this task has none; choose "
            "'probes' or 'both'"
        )
    if val_method == "weighted" and task.kind == "graph":
        raise InputError(
            "val_method 'weighted': weighted validation nodes would keep the whole graph; choose 'probes', "
            "'both' or 'real'"
        )
    if truth is not None and probing is None and learned:
        raise InputError(
            f"truth: val_method '{val_method}' needs no full-data results of probes; leave it out"
        )

    scored = getattr(task, "num_classes", None) is not None
    by_loss = val_method in LEARNED or not scored
    full, small = _recipes(task, train_size, truth_epochs, "loss" if by_loss else "accuracy")
    small = _changed("recipe", small, recipe or {}, task)
    full = _changed("full_recipe", full, full_recipe or {}, task)
    if images and "batch" in (full_recipe or {}) and "steps" not in (full_recipe or {}):
        whole = len(task.train)
        full = dataclasses.replace(full, steps=truth_epochs * max(1, whole // (full.batch or whole)))
    settings = {k: v for each in (config, probing) if each is not None for k, v in each.settings().items()}
    meta: dict[str, Any] = {
        "data": describe(task.data) if hasattr(task, "data") else {"name": name},
        "task": task.spec() if hasattr(task, "spec") else {"name": task.kind},
        "space": space.spec(),
        "method": method,
        "train_method": train_method,
        "val_method": val_method,
        "preset": preset,
        "settings": {"train": reducer.settings(), "val": settings or None},
        "full_recipe": full.as_dict(),
        "calibrated_recipe": small.as_dict(),
        "metric": small.metric,
        "seed": seed,
    }
    if truth is not None:
        meta["truth"] = truth.spec()
    made = Plan(train_size, val_size, reducer, config, probing, truth, full, small, meta)
    if images and config is not None and config.response == "own":
        meta["relaxed_recipe"] = made.relaxed(task).as_dict()
    return made


def _check_used(
    options: Mapping[str, Any],
    config: HCDC | None,
    probing: Probing | None,
    reducer: Reducer,
    val_method: str,
) -> None:
    """Refuse settings of HCDC that this way to S_val does not read."""
    read = {f.name for each in (config, probing) if each is not None for f in dataclasses.fields(each)}
    for name in options:
        if name not in read:
            hint = "leave it out"
            if name in reducer.settings():
                hint = f"the setting of S_train's method '{reducer.name}' is '{TRAIN}{name}'"
            elif name in {f.name for f in dataclasses.fields(Probing)}:
                hint = "leave it out, or choose val_method 'probes'"
            raise InputError(f"setting '{name}': val_method '{val_method}' makes no use of it; {hint}")


def _recipes(task: Task, train_size: int, truth_epochs: int, metric: str) -> tuple[Recipe, Recipe]:
    """How candidates are trained on the full data and on the copy, where nothing else is said.

    Images: on the copy 10 epochs at a learning rate of .05, averaged over 16 initialisations. The recipe on
    the small set decides the sign of the rank correlation; chance is what is left (see docs/decisions.md).
    """
    decay = getattr(task, "weight_decay", 5e-4)
    scored = getattr(task, "num_classes", None) is not None
    if not isinstance(task, ImageTask):
        full = Recipe(weight_decay=decay, seeds=3, metric="accuracy" if scored else "loss")
        return full, dataclasses.replace(full, metric=metric)
    count = len(task.train)
    batch = min(count, 256, max(32, count // 20))  # an epoch of few images has twenty steps all the same
    full = Recipe(
        steps=truth_epochs * (count // batch), lr=0.1, weight_decay=decay, metric="accuracy",
        optimizer="sgd", batch=batch, augment=task.augmentation, clip=5.0,
    )  # fmt: skip
    batch = min(64, train_size)
    small = Recipe(
        steps=max(20, round(10 * train_size / batch)), lr=0.05, weight_decay=3e-4, seeds=16, metric=metric,
        optimizer="sgd", batch=batch, clip=5.0,
    )  # fmt: skip
    return full, small


def _changed(argument: str, recipe: Recipe, changes: Mapping[str, Any], task: Task) -> Recipe:
    """A recipe with some settings of the user's, given as the ``argument`` of `plan`."""
    images = isinstance(task, ImageTask)
    known = [f.name for f in dataclasses.fields(recipe)] if images else ["steps", "lr", "seeds", "metric"]
    if argument == "full_recipe":  # scores on the full data are accuracies by the batch's statistics
        known = [name for name in known if name not in ("metric", "statistics")]
    for name in changes:
        if name not in known:
            raise unknown_name(f"{argument} setting", name, known)
    found = dataclasses.replace(recipe, **changes)
    if images and found.optimizer != "sgd":
        raise InputError(f"{argument} setting optimizer '{found.optimizer}': images are trained by 'sgd'")
    if images and found.statistics == "train" and callable(getattr(task, "model", None)):
        raise InputError(
            f"{argument} setting statistics 'train': modules of your own are scored with the statistics of "
            "the images that are scored; choose 'batch'"
        )
    if "metric" in changes and found.metric == "accuracy" and getattr(task, "num_classes", None) is None:
        raise InputError(f"{argument} setting metric 'accuracy': this task has no classes; choose 'loss'")
    return found


def _check_types(
    task: object, space: object, train_size: object, val_size: object, seed: object, truth_epochs: object
) -> None:
    """Refuse arguments of another kind before they fail somewhere."""
    if not isinstance(task, Task):
        raise InputError(
            f"task is {type(task).__name__}; give a task, e.g. ImageTask(hcdc.data(...)) or GraphTask(...)"
        )
    if not isinstance(space, Space):
        raise InputError(f"space is {type(space).__name__}; give a space, e.g. hcdc.spaces.NASBench201()")
    whole = {"train_size": train_size, "seed": seed, "truth_epochs": truth_epochs}
    whole |= {} if val_size is None else {"val_size": val_size}
    for name, value in whole.items():
        if value is True or value is False or not isinstance(value, Integral):
            raise InputError(f"{name} {value!r}: give a whole number")
    if isinstance(seed, Integral) and seed < 0:
        raise InputError(f"seed {seed}: at least 0 is needed")
    if isinstance(truth_epochs, Integral) and truth_epochs < 1:
        raise InputError(f"truth_epochs {truth_epochs}: at least 1 is needed")


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
