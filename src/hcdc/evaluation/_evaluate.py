"""The benchmark: how a condensed set ranks fresh candidates, against the full data and against its rivals."""

from __future__ import annotations

import dataclasses
import hashlib
import logging
import math
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from numbers import Integral
from pathlib import Path
from typing import Any

import numpy as np
import torch
from scipy import stats

from hcdc.core import ranks
from hcdc.core.checkpoint import Checkpoint, content_key
from hcdc.core.configs import Config, config_hash
from hcdc.core.errors import InputError, NumericalError
from hcdc.core.progress import Progress
from hcdc.core.recipe import Recipe
from hcdc.core.records import device_name, environment, jsonable
from hcdc.core.seeds import numpy_stream
from hcdc.datasets import CondensedDataset, reopen
from hcdc.evaluation._ridge import ridge_predictions
from hcdc.spaces import Space, from_spec, halves
from hcdc.tasks import GraphTask, ImageTask, Task, task_from_spec
from hcdc.training import Result, run_candidates
from hcdc.truth import TrainedTruth, Truth, cache_folder, check_truth, full_scores

log = logging.getLogger("hcdc")

TOP_K = 10
NO_TRUTH = "all candidates score the same on the full data, so there is no ranking to agree with"


@dataclass(frozen=True)
class Evaluation:
    """What `evaluate` found; ``values`` is the JSON document.

    The document has rank agreement of the copy (``spearman``, ``kendall``, ``interval``, ...), what its pick
    is worth (``regret``, ``selected_test_accuracy`` beside ``best_test_accuracy``; scores of a regression are
    minus the squared error), what it cost (``condense_seconds``, ``proxy_seconds``, ``full_seconds``,
    ``break_even_trials``), the scores themselves, and one entry a rival. Candidates that ``diverged`` on the
    copy have a score just below the worst of the others; those in ``diverged_on_full`` have the worst
    full-data score there is, see `hcdc.truth.full_scores`. A rival with random validation examples has so
    many as its ``val_size``; one that is ``whole`` trains on the full data as long as the full recipe does.
    """

    values: dict[str, Any]

    def as_dict(self) -> dict[str, Any]:
        plain: dict[str, Any] = jsonable(self.values)
        return plain

    def __getitem__(self, key: str) -> Any:
        return self.values[key]


def reopen_task(small: CondensedDataset, model: Any = None, **options: Any) -> Task:
    """The task on the original data of a condensed set, read again from where its description says.

    Args:
        small: The condensed set.
        model: The user's own model that it was made with, which no file holds.
        options: Those of `hcdc.datasets.reopen`.
    """
    spec = small.meta["task"]
    if model is not None:
        if ":" not in str(spec.get("model")):
            raise InputError("model: the copy was not made with a model of your own; leave it out")
        spec = {**spec, "model": model}
    return task_from_spec(spec, reopen(small.meta["data"], **options))


def _check_task(task: Task, small: CondensedDataset) -> None:
    """Refuse a task that is not the one the copy was made for."""
    spec, data = getattr(task, "spec", None), getattr(task, "data", None)
    if spec is not None and jsonable(spec()) != small.meta["task"]:
        raise InputError(
            f"task {jsonable(spec())}: the copy was made for {small.meta['task']}; pass that one"
        )
    if data is not None and data.fingerprint() != small.meta["data"].get("fingerprint"):
        raise InputError(
            f"task: its data '{data.name}' has fingerprint {data.fingerprint()}, and the copy was made from "
            f"data with {small.meta['data'].get('fingerprint')}; pass the original data"
        )


def judges(small: CondensedDataset, space: Space, candidates: int, seed: int) -> tuple[list[Config], int]:
    """Fresh candidates (role ``"judge"``), and how many were dropped because the copy was made with them."""
    used = set(small.meta.get("candidates") or [])
    if space.candidates() is None:
        drawn = space.sample(candidates, numpy_stream(seed, "judge"))
    else:
        half = halves(space, int(small.meta["seed"]))[1]
        drawn = [half[i] for i in numpy_stream(seed, "judge").permutation(len(half))[:candidates]]
    kept = [config for config in drawn if config_hash(config) not in used]
    return kept, len(drawn) - len(kept)


def checked_judges(
    small: CondensedDataset, task: Task, candidates: int, seed: int
) -> tuple[list[Config], int]:
    """`judges`, refused where they cannot be ranked."""
    numbers: dict[str, Any] = {"candidates": candidates, "seed": seed}
    for name, value in numbers.items():
        if isinstance(value, bool) or not isinstance(value, Integral):
            text = " ".join(repr(value).split())[:60]
            raise InputError(f"{name} {text}: give a whole number (candidates are drawn anew, by the seed)")
    if seed < 0:
        raise InputError(f"seed {seed}: at least 0 is needed")
    if candidates < 2:
        raise InputError(
            f"candidates {candidates}: at least 2 are needed to speak of a ranking; 80 is the default"
        )
    if isinstance(task, ImageTask) and task.model == "convnet":
        raise InputError(
            "model 'convnet' is one network for all candidates of a space, so there is no ranking to judge; "
            "make the copy with model 'space' or with a model of your own"
        )
    space = from_spec(small.meta["space"])
    configs, dropped = judges(small, space, candidates, seed)
    if len(configs) >= 2:
        return configs, dropped
    if len(configs) + dropped < candidates:
        raise InputError(
            f"candidates {candidates}: {_available(space, len(configs))}, which is too few for a ranking; "
            "it needs at least 2 to judge with"
        )
    raise InputError(
        f"candidates {candidates}: {dropped} of {dropped + len(configs)} were used to make this copy, "
        "which leaves no ranking to judge; ask for more"
    )


def _available(space: Space, judging: int) -> str:
    """How many candidates a space has, and how many of them may judge."""
    every = space.candidates()
    if every is None:
        return f"space '{space.name}' has {judging:,} different ones"
    return f"space '{space.name}' has {len(every):,}, and the half that condensing never uses is {judging:,}"


def _undefined(a: np.ndarray[Any, Any], b: np.ndarray[Any, Any]) -> str:
    """Why two lists of scores have no rank agreement."""
    if not np.isfinite(a).all():
        return "some scores on the full data are not finite, so there is no ranking to agree with"
    if (a == a[0]).all():
        return NO_TRUTH
    if not np.isfinite(b).all():
        return "some scores are not finite, so there is no ranking"
    return "all scores are equal, so there is no ranking"


def agreement(truth_scores: Sequence[float], test: Sequence[float], proxy: Sequence[float]) -> dict[str, Any]:
    """Rank agreement of ``proxy`` with full-data validation scores, and what its pick is worth."""
    a, b = np.asarray(truth_scores), np.asarray(proxy)
    value = ranks.spearman(a, b)
    undefined = math.isnan(value)
    pick = None if undefined else int(np.argmax(b))
    return {
        "spearman": value,
        "kendall": ranks.kendall(a, b),
        "interval": ranks.bootstrap(ranks.spearman, a, b).as_list(),
        "level": 0.90,
        "top_k_overlap": math.nan if undefined else ranks.top_k_overlap(a, b, TOP_K),
        "upper_half_spearman": ranks.upper_half_spearman(a, b),
        "regret": math.nan if undefined else ranks.regret(a, b),
        "selected_test_accuracy": math.nan if pick is None else float(test[pick]),
        "proxy": [float(v) for v in b],
        "note": _undefined(a, b) if undefined else "",
    }


def evaluate(
    small: CondensedDataset,
    *,
    candidates: int = 80,
    seed: int = 0,
    task: Task | None = None,
    device: torch.device | str = "cpu",
    cache: str | os.PathLike[str] | None = None,
    rivals: bool = True,
    progress: Progress | None = None,
    condense_seconds: float | None = None,
    table: Truth | None = None,
) -> Evaluation:
    """Rank fresh candidates on the copy and on the full data, and compare.

    Args:
        small: The condensed set.
        candidates: How many configurations to judge with (finite spaces: at most, from the half not used in
            condensing).
        seed: Of the candidates (role ``"judge"``).
        task: The task on the original data; read again from where ``small.meta`` says it lies where None.
        device: Where to train.
        cache: Folder for full-data results, and for what an interrupted evaluation has trained beside them.
        rivals: Also rank with the rivals.
        condense_seconds: What making the copy cost; from ``small.record`` where None.
        table: Full-data results of the candidates; without it they are trained on the full data.
    """
    if task is None:
        task = reopen_task(small)
    else:
        _check_task(task, small)
    task = task.to(device)
    small = small.to(device)
    space = from_spec(small.meta["space"])
    full = Recipe.from_dict(small.meta["full_recipe"])
    recipe = Recipe.from_dict(small.meta["calibrated_recipe"])
    if table is not None:
        check_truth(table, task)
    configs, dropped = checked_judges(small, task, candidates, seed)
    if len(configs) + dropped < candidates:
        asked = f"{candidates:,} candidates were asked for, and {len(configs):,} judge the copy"
        log.warning("%s: %s", asked, _available(space, len(configs) + dropped))
    progress = progress or Progress()
    run = _Judge(task, space, configs, small, device, progress, _writable(cache_folder(cache)), table)
    parts = {"copy": small.val if small.val is not None else task.val}
    if rivals:  # what cannot be drawn is found out before the work
        parts |= run.rival_sets()
    source = table or TrainedTruth(
        task, space, full, device=device, cache=cache, progress=progress,
        fingerprint=str(small.meta["data"].get("fingerprint")),
    )  # fmt: skip
    known = source.results(configs)
    scores, test = full_scores(known, "val"), full_scores(known, "test")
    full_seconds = sum(r.seconds_for("val") for r in known)  # a search pays for no test

    results = run.on_copy(parts, recipe)
    try:
        proxy = proxy_scores(results, recipe.metric, "copy")
    except NumericalError:
        run.forget()  # the same command would end here again
        raise
    proxy_seconds = sum(r.seconds_for("copy") for r in results)
    if condense_seconds is None:
        condense_seconds = small.record.get("condense_seconds")
        if condense_seconds is not None:
            condense_seconds += small.record.get("probe_seconds", 0.0)  # looked up, and yet paid by somebody
    per_proxy, per_full = proxy_seconds / len(configs), full_seconds / len(configs)
    result: dict[str, Any] = {
        "dataset": small.meta["data"].get("name"),
        "kind": small.kind,
        "truth_source": None if table is None else table.words(),
        "method": small.meta["method"],
        "preset": small.meta.get("preset"),
        "train_method": small.meta.get("train_method"),
        "val_method": small.meta["val_method"],
        "train_size": small.meta["train_size"],
        "val_size": small.meta["val_size"],
        "seed": small.meta["seed"],
        "judge_seed": seed,
        "space": small.meta["space"],
        "metric": recipe.metric,
        "candidates": len(configs),
        "dropped": dropped,
        "diverged": len(diverged(results, "copy")),
        "diverged_on_full": [config for config, r in zip(configs, known) if not r.finite],
        **agreement(scores, test, proxy),
        "best_test_accuracy": float(test[int(np.argmax(scores))]),
        "condense_seconds": condense_seconds,
        "proxy_seconds": proxy_seconds,
        "full_seconds": full_seconds,
        "proxy_seconds_per_candidate": per_proxy,
        "full_seconds_per_candidate": per_full,
        "break_even_trials": break_even(condense_seconds, per_proxy, per_full),
        "configs": configs,
        "truth": scores,
        "test": test,
        "rivals": [],
        "environment": environment(device),
    }
    if rivals:
        budget = None if condense_seconds is None else condense_seconds + proxy_seconds
        for rival in run.rivals(results, full, budget, full_seconds):
            found = agreement(scores, test, rival["proxy"])
            if found["note"] == result["note"] == NO_TRUTH:
                found["note"] = ""  # said of the copy, and no rival's fault
            result["rivals"].append({**rival, **found})
    run.forget()
    return Evaluation(result)


def break_even(condense_seconds: float | None, per_proxy: float, per_full: float) -> int | None:
    """The number of trials from which condensing pays; None where a trial on the copy is not cheaper."""
    if condense_seconds is None or not per_proxy < per_full:
        return None
    return max(1, math.ceil(condense_seconds / (per_full - per_proxy)))


def proxy_scores(results: Sequence[Result], metric: str, part: str) -> list[float]:
    """Scores on ``part``, higher is better, whatever the metric; who diverged is just below the worst."""
    scores = [
        r.values[f"{part}.score"] if metric == "accuracy" else -r.values[f"{part}.loss"] for r in results
    ]
    bad = diverged(results, part)
    if len(bad) == len(results):
        raise NumericalError(
            "every candidate has a non-finite loss after training; a smaller learning rate ('lr') of the "
            "recipe, or a limit on the gradient's norm ('clip'), may help"
        )
    last = math.nextafter(min(v for k, v in enumerate(scores) if k not in bad), -math.inf)
    return [last if k in bad else v for k, v in enumerate(scores)]


def diverged(results: Sequence[Result], part: str) -> set[int]:
    """The candidates whose loss on ``part`` is not finite."""
    return {k for k, r in enumerate(results) if not math.isfinite(r.values[f"{part}.loss"])}


def _visits(recipe: Recipe, count: int) -> int:
    """How often a recipe looks at one of ``count`` examples, over all seeds."""
    return recipe.steps * recipe.seeds * min(recipe.batch or count, count)


def _writable(folder: Path) -> Path | None:
    """The folder, where it can be written: a copy can be judged by results in one that cannot."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError:
        return None
    return folder if os.access(folder, os.W_OK) else None


class _Judge:
    """Trains the judging candidates on the copy and for the rivals.

    Args:
        folder: Where an interrupted evaluation continues from; None begins anew.
    """

    def __init__(
        self,
        task: Task,
        space: Space,
        configs: list[Config],
        small: CondensedDataset,
        device: torch.device | str,
        progress: Progress,
        folder: Path | None,
        table: Truth | None = None,
    ):
        self.table, self.progress, self.folder = table, progress, folder
        self.kept: list[Checkpoint] = []
        self.task, self.space, self.configs, self.small, self.device = task, space, configs, small, device
        self.mark = {
            "copy": hashlib.sha256(small.to_bytes()).hexdigest(),
            "candidates": [task.identity(space, config) for config in configs],
            "device": device_name(device),  # seconds are its own
        }
        self.by = str(small.meta["calibrated_recipe"]["metric"])
        self.drawn = small.meta["val_method"] == "random"
        self.metric = "accuracy" if getattr(task, "num_classes", None) is not None else "loss"
        size = round(len(small.train) * len(task.val) / len(task.train))
        least = getattr(task, "num_classes", None) or 1
        self.most = task.most("val") if isinstance(task, ImageTask) else len(task.val)
        self.val_size = min(self.most, small.meta["val_size"] or max(size, least))

    def on_copy(self, parts: dict[str, Any], recipe: Recipe) -> list[Result]:
        """Candidates trained on S_train once, scored on every part."""
        return self._trained("candidates on the copy", self.small.train, parts, recipe, "judge")

    def on_full(self, name: str, recipe: Recipe) -> tuple[list[float], float]:
        """Scores on T_val of candidates trained on T_train by a shorter recipe, and the seconds it took.

        Where all diverge this rival has no scores (NaN), and the others are judged all the same.
        """
        parts = {"val": self.task.val}
        results = self._trained(f"rival {name}", self.task.train, parts, recipe, "early-stopping")
        none = len(diverged(results, "val")) == len(results)
        scores = [math.nan] * len(results) if none else proxy_scores(results, self.metric, "val")
        return scores, sum(r.seconds for r in results)

    def _trained(
        self, name: str, train: Any, parts: dict[str, Any], recipe: Recipe, role: str
    ) -> list[Result]:
        """Results of every candidate; batches of an interrupted evaluation are not trained again."""
        key = content_key({**self.mark, "name": name, "parts": list(parts), "recipe": recipe.as_dict()})
        store = Checkpoint(None if self.folder is None else self.folder / f"{key}.judging", key)
        self.kept.append(store)
        results: list[Result] = []
        if (saved := store.load()) is not None:
            results = [Result(**values) for values in saved[1]["results"]]
        phase = self.progress.phase(name, len(self.configs))
        phase.first_step = len(results)

        def keep(batch: list[tuple[Config, Result]]) -> None:
            results.extend(result for _, result in batch)
            store.save({}, {"results": [dataclasses.asdict(result) for result in results]})
            phase.step(len(results))

        if missing := self.configs[len(results) :]:
            run_candidates(
                self.task, self.space, missing, train, parts, recipe, 0, role, self.device, keep, True
            )
        else:
            phase.step(len(results))
        bad = diverged(results, next(iter(parts)))
        if 0 < len(bad) < len(results):
            log.warning("%s: %d of %d diverged and are ranked last", name, len(bad), len(results))
        return results

    def forget(self) -> None:
        """Remove what only an interrupted evaluation needs."""
        for store in self.kept:
            store.remove()

    def rival_sets(self) -> dict[str, Any]:
        """Other validation sets for the same S_train: as many random real examples, and all of T_val.

        Where T_val lacks a class of images there is no random set, which has equally many of each.
        """
        seed = int(self.small.meta["seed"])
        sets = {"real": self.task.val}
        if self.most:
            sets["random"] = self.task.sample("val", self.val_size, seed)
        if isinstance(self.task, GraphTask):
            near = dataclasses.replace(self.task, structure="reach")
            sets["reach"] = near.sample("val", self.val_size, seed)
        return sets

    def rivals(
        self, results: list[Result], full: Recipe, budget: float | None, full_seconds: float
    ) -> list[dict[str, Any]]:
        """Every rival's name, scores and cost."""
        count, found = len(self.configs), []

        def add(
            name: str,
            words: str,
            scores: Sequence[float],
            seconds: float,
            extra: float = 0.0,
            **more: Any,
        ) -> None:
            found.append(
                {
                    "name": name,
                    "description": words,
                    "proxy": list(scores),
                    "seconds_per_candidate": seconds / count,
                    "extra_seconds": extra,
                    **more,
                }
            )

        def same_train(name: str, part: str, metric: str, words: str, **more: Any) -> None:
            seconds = sum(r.seconds_for(part) for r in results)
            made = self.small.record.get("phases", {}).get("train", 0.0)
            scores = proxy_scores(results, metric, part)
            add(name, f"same S_train, {words}, by {metric}", scores, seconds, extra=made, **more)

        size = self.val_size
        metrics = {self.metric: "", "loss": "-loss"} if self.metric == "accuracy" else {"loss": ""}
        for metric, end in metrics.items():
            if self.most and not (self.drawn and metric == self.by):  # which is the copy once more
                words = f"{size} random validation examples"
                same_train(f"random-val{end}", "random", metric, words, val_size=size)
        if isinstance(self.task, GraphTask):
            words = f"{size} random validation nodes joined by reach"
            same_train("random-reach-val-loss", "reach", "loss", words, val_size=size)
        for metric, end in metrics.items():
            same_train(f"real-val{end}", "real", metric, "the whole real validation set")
        if self.table is not None:
            early = [self.table.score(config, "val", 12) for config in self.configs]
            seconds = sum(self.table.seconds(config) for config in self.configs) * 12 / 200
            add("12-epochs", "full data, 12 of 200 epochs, from the table", early, seconds)
        else:
            self._shortened(add, full, budget, full_seconds)
        counts = [self._parameters(config) for config in self.configs]
        if all(c is not None for c in counts):
            sizes = [float(c) for c in counts if c is not None]
            add("parameter-count", "number of parameters, no training", sizes, 0.0)
        self._from_probes(add, results, full, full_seconds)
        return found

    def _shortened(
        self, add: Callable[..., None], full: Recipe, budget: float | None, full_seconds: float
    ) -> None:
        """Rivals that train on the full data for less."""
        copy = Recipe.from_dict(self.small.meta["calibrated_recipe"])
        share = _visits(copy, len(self.small.train)) / _visits(full, len(self.task.train))
        wanted = {
            "early-stopping": (max(1, round(full.steps * share)), "as many example visits as on the copy")
        }
        if budget is not None and full_seconds > 0:
            steps = max(1, math.floor(full.steps * full.seeds * budget / full_seconds))
            wanted["equal-cost"] = (steps, "the seconds of condensing and searching")
        whole = [name for name, (steps, _) in wanted.items() if steps >= full.steps]
        for name in whole[1:]:  # the same training once more
            del wanted[name]
        for name, (steps, cost) in wanted.items():
            cost = "the whole training, which takes less" if steps > full.steps else cost
            steps = min(steps, full.steps)
            add(
                name,
                f"full data, one seed, {steps} of {full.steps} steps: {cost}",
                *self.on_full(name, dataclasses.replace(full, steps=steps, seeds=1)),
                whole=steps == full.steps,
            )

    def _from_probes(
        self, add: Callable[..., None], results: list[Result], full: Recipe, full_seconds: float
    ) -> None:
        """Rivals that see the same full trainings: a regression on them, alone and with the real loss.

        It is fitted to ranks: a few probes with very low scores would decide a regression on scores.
        """
        probes = self.small.meta.get("probes") or {}
        described = probes.get("lam") or [self.space.features(c) for c in probes.get("configs") or []]
        if len(described) < 5:
            return
        own = self.space.encode if "lam" in probes else self.space.features
        each = full.seeds if "lam" in probes else 1  # a point of a trajectory is a training of one seed
        extra = len(described) * full_seconds / (len(self.configs) * each)
        if "truth" in self.small.meta:  # a table says what these very probes took
            extra = self.small.record.get("probe_seconds", extra)
        fresh = np.asarray([list(own(config)) for config in self.configs], np.float64)
        begun = time.perf_counter()
        predicted = ridge_predictions(
            np.asarray(described, np.float64), stats.rankdata(probes["score"]), fresh
        )
        seconds = time.perf_counter() - begun
        words = f"kernel ridge on the {len(described)} full trainings that condensing made"
        add("ridge-probes", f"{words}, no copy at all", predicted.tolist(), seconds, extra=extra)
        real = np.asarray(proxy_scores(results, "loss", "real"))
        add(
            "ridge-and-real-val",
            "that ridge and the loss of the same S_train on the whole real validation set, equal weights",
            (ranks.standard(predicted) + ranks.standard(real)).tolist(),
            seconds + sum(r.seconds_for("real") for r in results),
            extra=extra + self.small.record.get("phases", {}).get("train", 0.0),
        )

    def _parameters(self, config: Config) -> int | None:
        """Number of parameters of a candidate; None where nobody knows."""
        if isinstance(self.task, ImageTask) and not isinstance(self.task.model, str):
            bound = self.task.bind(self.space, config)
            return sum(p.numel() for p in bound.init(torch.Generator().manual_seed(0)).values())
        return self.space.parameter_count(config, *self._width())

    def _width(self) -> tuple[int, int]:
        if isinstance(self.task, GraphTask):
            return self.task.data.graph.num_features, self.task.num_classes
        if isinstance(self.task, ImageTask):
            return self.task.data.shape[0], self.task.num_classes
        return self.small.train.tensors()["x"].shape[1], getattr(self.task, "num_classes", None) or 1
