"""What rivals work with: the copy, the task, the candidates, and the trainings of them."""

from __future__ import annotations

import dataclasses
import hashlib
import logging
import math
import os
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import torch

from hcdc.core.checkpoint import Checkpoint, content_key
from hcdc.core.configs import Config, config_hash
from hcdc.core.progress import Progress, usual_progress
from hcdc.core.recipe import Recipe
from hcdc.core.records import device_name
from hcdc.core.results import Rival
from hcdc.datasets import CondensedDataset
from hcdc.evaluation._agreement import agreement, diverged, proxy_scores
from hcdc.spaces import Space
from hcdc.tasks import Task
from hcdc.training import Result, run_candidates
from hcdc.truth import Truth, full_scores

log = logging.getLogger("hcdc")
BESIDE = "beside "
"""Before the name of a further copy: a part of `Context.copied`."""


class Trained(NamedTuple):
    """What a training for one rival gave: scores, seconds of all candidates, `repeats`."""

    scores: list[float]
    seconds: float
    repeats: dict[str, list[list[float]]]


class Context:
    """One evaluation, as rivals see it.

    Args:
        small: The copy.
        task: The task on the original data.
        space: The search space.
        configs: The candidates that judge.
        seed: Of their initialisations on the copy.
        beside: Further copies with the same S_train, by name.
        device: Where to train.
        progress: Where progress is reported.
        folder: Where an interrupted evaluation continues from; None starts anew.
        truth: Full-data results that somebody else made; None where candidates are trained here.
        condense_seconds: What making the copy cost; from ``small.record`` if None.

    Attributes:
        full: The recipe on the full data.
        calibrated: The recipe on the copy.
        known: Full-data results of the candidates, set once they are known.
        cached: Some of these were known before, so their seconds were taken at another time.
        copied: Results of the candidates on the copy and on the sets of rivals, set once they are trained.
        shared: What one rival leaves for another, by name.
    """

    def __init__(
        self,
        small: CondensedDataset,
        task: Task,
        space: Space,
        configs: Sequence[Config],
        *,
        seed: int = 0,
        beside: Mapping[str, CondensedDataset] | None = None,
        device: torch.device | str = "cpu",
        progress: Progress | None = None,
        folder: Path | None = None,
        truth: Truth | None = None,
        condense_seconds: float | None = None,
    ):
        self.small, self.task, self.space, self.configs = small, task, space, list(configs)
        self.device, self.progress, self.folder = device, progress or usual_progress(), folder
        self.seed, self.beside, self.truth = seed, dict(beside or {}), truth
        self.condense_seconds = _condense_seconds(small) if condense_seconds is None else condense_seconds
        self.full = Recipe.from_dict(small.meta["full_recipe"])
        self.calibrated = Recipe.from_dict(small.meta["calibrated_recipe"])
        self.known: list[Result] = []
        self.cached = False
        self.copied: list[Result] = []
        self.shared: dict[str, Any] = {}
        self._kept: list[Checkpoint] = []

    # --- what there is --------------------------------------------------------------------------------------

    @property
    def metric(self) -> str:
        """What ranks candidates on original data: accuracy for classes, the loss for anything else."""
        return "loss" if self.task.num_classes is None else "accuracy"

    @property
    def made_seconds(self) -> float:
        """Seconds of making S_train."""
        return self.small.train_seconds or 0.0

    @cached_property
    def val_size(self) -> int:
        """Number of random validation examples of a rival: |S_val|, or in proportion where that is real."""
        task, small = self.task, self.small
        size = round(len(small.train) * len(task.val) / len(task.train))
        return min(task.most("val"), small.meta["val_size"] or max(size, task.num_classes or 1))

    @cached_property
    def offered(self) -> dict[str, tuple[Any, str]]:
        """Validation sets that the task itself offers as rivals, each with its words."""
        return self.task.rival_sets(self.val_size, int(self.small.meta["seed"]))

    def scores(self, part: str) -> list[float]:
        """Full-data scores of the candidates; none where the truth has no such part."""
        there = all(f"{part}.score" in result.values for result in self.known)
        return full_scores(self.known, part) if there else []

    @property
    def full_seconds(self) -> float:
        """Seconds of all candidates on the full data; a search pays for no test."""
        return sum(r.seconds_for("val") for r in self.known)

    @property
    def proxy_seconds(self) -> float:
        """Seconds of all candidates on the copy."""
        return sum(r.seconds_for("copy") for r in self.copied)

    @property
    def short_steps(self) -> int:
        """Steps on the full data with the example visits of a trial on the copy."""
        share = visits(self.calibrated, len(self.small.train)) / visits(self.full, len(self.task.train))
        return max(1, round(self.full.steps * share))

    # --- trainings ------------------------------------------------------------------------------------------

    def train_on_copy(self, parts: dict[str, Any]) -> list[Result]:
        """Candidates trained on S_train once, scored on every part."""
        name, train = "candidates on the copy", self.small.train
        return self._trained(name, train, parts, self.calibrated, "judge", self.seed)

    def train_on_full(self, name: str, recipe: Recipe, seed: int = 0) -> Trained:
        """Candidates trained on T_train by another recipe, and scored on T_val.

        Where all diverge there are no scores (NaN), and the other rivals are judged all the same.
        """
        parts = {"val": self.task.val}
        results = self._trained(f"rival {name}", self.task.train, parts, recipe, "early-stopping", seed)
        none = len(diverged(results, "val")) == len(results)
        scores = [math.nan] * len(results) if none else proxy_scores(results, self.metric, "val")
        return Trained(scores, sum(r.seconds for r in results), repeats(results, "val"))

    def _trained(
        self, name: str, train: Any, parts: dict[str, Any], recipe: Recipe, role: str, seed: int = 0
    ) -> list[Result]:
        """Results of every candidate; batches of an interrupted evaluation are not trained again."""
        told = {"name": name, "parts": list(parts), "recipe": recipe.as_dict()}
        key = content_key({**self._mark, **told, **({"seed": seed} if seed else {})})
        store = Checkpoint(None if self.folder is None else self.folder / f"{key}.judging", key)
        self._kept.append(store)
        known: dict[str, Result] = {}
        if (saved := store.load()) is not None:
            known = {name: Result(**values) for name, values in saved[1]["results"].items()}
        phase = self.progress.phase(name, len(self.configs))
        phase.first_step = len(known)

        def keep(batch: list[tuple[Config, Result]]) -> None:
            known.update({config_hash(config): result for config, result in batch})
            store.save({}, {"results": {key: dataclasses.asdict(result) for key, result in known.items()}})
            phase.step(len(known))

        if missing := [config for config in self.configs if config_hash(config) not in known]:
            run_candidates(
                self.task, self.space, missing, train, parts, recipe, seed, role, self.device, keep, True
            )
        else:
            phase.step(len(known))
        results = [known[config_hash(config)] for config in self.configs]
        bad = diverged(results, next(iter(parts)))
        if 0 < len(bad) < len(results):
            log.warning("%s: %d of %d diverged and are ranked last", name, len(bad), len(results))
        return results

    @cached_property
    def _mark(self) -> dict[str, Any]:
        """What an interrupted evaluation must have in common with this one."""
        others = {name: _sha256(other) for name, other in self.beside.items()}
        return {
            "copy": _sha256(self.small),
            "candidates": [self.task.identity(self.space, config) for config in self.configs],
            "device": device_name(self.device),  # seconds are its own
            **({"beside": others} if others else {}),
        }

    def forget(self) -> None:
        """Remove what only an interrupted evaluation needs."""
        for store in self._kept:
            store.remove()

    # --- rivals ---------------------------------------------------------------------------------------------

    def rival(
        self, name: str, words: str, scores: Sequence[float], seconds: float, once: float = 0.0, **more: Any
    ) -> Rival:
        """A rival from its scores.

        Args:
            name, words: What it is called, and what it does.
            scores: One per candidate, higher is better.
            seconds: Seconds of all candidates.
            once: Seconds before the first one.
            **more: Further fields of `Rival`.
        """
        truth, test = self.scores("val"), self.scores("test")
        return Rival(
            name=name, description=words, seconds_per_candidate=seconds / len(self.configs),
            extra_seconds=once, **more, **agreement(truth, test, scores),
        )  # fmt: skip

    def same_train(self, name: str, part: str, metric: str, words: str, **more: Any) -> Rival:
        """A rival that shares S_train and has another validation set, one of the parts of `copied`."""
        scores = proxy_scores(self.copied, metric, part)
        seconds = sum(r.seconds_for(part) for r in self.copied)
        given = {"once": self.made_seconds, "repeats": repeats(self.copied, part), **more}
        return self.rival(name, f"same S_train, {words}, by {metric}", scores, seconds, **given)

    def other_copy(self, name: str) -> Rival:
        """A further copy as a rival."""
        meta, once = self.beside[name].meta, _condense_seconds(self.beside[name])
        words, metric = f"S_val by {meta['val_method']}", meta["calibrated_recipe"]["metric"]
        return self.same_train(
            name, BESIDE + name, metric, words, once=once or 0.0, val_size=meta["val_size"]
        )


def _sha256(small: CondensedDataset) -> str:
    return hashlib.sha256(small.to_bytes()).hexdigest()


def _condense_seconds(small: CondensedDataset) -> float | None:
    """What making the copy cost, with the full-data results that were looked up: somebody paid for them."""
    seconds = small.record.get("condense_seconds")
    return None if seconds is None else float(seconds + small.record.get("probe_seconds", 0.0))


def repeats(results: Sequence[Result], part: str) -> dict[str, list[list[float]]]:
    """Loss and score of each candidate on a part, by initialisation ``[n][R]``."""
    return {what: [r.repeats.get(f"{part}.{what}", []) for r in results] for what in ("loss", "score")}


def visits(recipe: Recipe, count: int) -> int:
    """How often a recipe looks at one of ``count`` examples, over all seeds."""
    return recipe.steps * recipe.seeds * min(recipe.batch or count, count)


def writable(folder: Path) -> Path | None:
    """The folder if it can be written, else None: a copy can be judged by results in one that cannot."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError:
        return None
    return folder if os.access(folder, os.W_OK) else None
