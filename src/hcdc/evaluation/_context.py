"""What rivals work with: the copy, the task, the candidates and their training."""

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
"""Prefix of the parts in `Context.copied` that belong to further copies."""


class Trained(NamedTuple):
    """Training for one rival: scores, seconds for all candidates, and `repeats`."""

    scores: list[float]
    seconds: float
    repeats: dict[str, list[list[float]]]


class Context:
    """One evaluation, as rivals see it.

    Arguments are those of `evaluate`; ``configs`` are the candidates that judge, and an interrupted
    evaluation continues from ``folder``.

    Attributes:
        full, calibrated: The recipes on the full data and on the copy.
        known: Full-data results of the candidates, once there are any.
        cached: Some of them were cached, so they were timed in another run.
        copied: Results of the candidates on S_val and on the rivals' sets, once trained.
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

    # --- facts ----------------------------------------------------------------------------------------------

    @property
    def metric(self) -> str:
        """The metric on original data: accuracy for classes, otherwise loss."""
        return "loss" if self.task.num_classes is None else "accuracy"

    @property
    def made_seconds(self) -> float:
        """Seconds spent making S_train."""
        return self.small.train_seconds or 0.0

    @cached_property
    def val_size(self) -> int:
        """Random validation examples of a rival: |S_val|, or a proportional number if S_val is real."""
        task, small = self.task, self.small
        size = round(len(small.train) * len(task.val) / len(task.train))
        return min(task.most("val"), small.meta["val_size"] or max(size, task.num_classes or 1))

    @cached_property
    def offered(self) -> dict[str, tuple[Any, str]]:
        """Validation sets that the task offers to rivals, each with a description."""
        return self.task.rival_sets(self.val_size, int(self.small.meta["seed"]))

    def scores(self, part: str) -> list[float]:
        """Full-data scores of the candidates; empty if the truth lacks this part."""
        there = all(f"{part}.score" in result.values for result in self.known)
        return full_scores(self.known, part) if there else []

    @property
    def full_seconds(self) -> float:
        """Seconds for all candidates on the full data, without testing."""
        return sum(r.seconds_for("val") for r in self.known)

    @property
    def proxy_seconds(self) -> float:
        """Seconds for all candidates on the copy."""
        return sum(r.seconds_for("copy") for r in self.copied)

    @property
    def short_steps(self) -> int:
        """Full-data steps that visit as many examples as a trial on the copy."""
        share = visits(self.calibrated, len(self.small.train)) / visits(self.full, len(self.task.train))
        return max(1, round(self.full.steps * share))

    # --- training -------------------------------------------------------------------------------------------

    def train_on_copy(self, parts: dict[str, Any]) -> list[Result]:
        """Train every candidate on S_train once and score it on every part."""
        name, train = "candidates on the copy", self.small.train
        return self._trained(name, train, parts, self.calibrated, "judge", self.seed)

    def train_on_full(self, name: str, recipe: Recipe, seed: int = 0) -> Trained:
        """Train every candidate on T_train by another recipe and score it on T_val.

        If all diverge, scores are NaN and the evaluation goes on.
        """
        parts = {"val": self.task.val}
        results = self._trained(f"rival {name}", self.task.train, parts, recipe, "early-stopping", seed)
        none = len(diverged(results, "val")) == len(results)
        scores = [math.nan] * len(results) if none else proxy_scores(results, self.metric, "val")
        return Trained(scores, sum(r.seconds for r in results), repeats(results, "val"))

    def full_rival(self, name: str, words: str, recipe: Recipe) -> Rival:
        """A rival that trains on the full data by another recipe."""
        scores, seconds, repeats = self.train_on_full(name, recipe)
        return self.rival(name, words, scores, seconds, repeats=repeats)

    def _trained(
        self, name: str, train: Any, parts: dict[str, Any], recipe: Recipe, role: str, seed: int = 0
    ) -> list[Result]:
        """Results of every candidate; an interrupted evaluation continues where it stopped."""
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
        """What identifies this evaluation when it continues."""
        others = {name: _sha256(other) for name, other in self.beside.items()}
        return {
            "copy": _sha256(self.small),
            "candidates": [self.task.identity(self.space, config) for config in self.configs],
            "device": device_name(self.device),  # seconds are its own
            **({"beside": others} if others else {}),
        }

    def forget(self) -> None:
        """Remove the checkpoints."""
        for store in self._kept:
            store.remove()

    # --- rivals ---------------------------------------------------------------------------------------------

    def rival(
        self, name: str, words: str, scores: Sequence[float], seconds: float, once: float = 0.0, **more: Any
    ) -> Rival:
        """A rival from its scores, one per candidate, higher is better.

        Args:
            name, words: Its name and a description.
            scores: The scores ``[n]``.
            seconds: Seconds for all candidates.
            once: Seconds before the first one.
            **more: Further fields of `Rival`.
        """
        truth, test = self.scores("val"), self.scores("test")
        return Rival(
            name=name, description=words, seconds_per_candidate=seconds / len(self.configs),
            extra_seconds=once, **more, **agreement(truth, test, scores),
        )  # fmt: skip

    def same_train(self, name: str, part: str, metric: str, words: str, **more: Any) -> Rival:
        """A rival with the same S_train and another validation set, one of the parts of `copied`."""
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
    """What making the copy cost, including full-data results that were only looked up."""
    seconds = small.record.get("condense_seconds")
    return None if seconds is None else float(seconds + small.record.get("probe_seconds", 0.0))


def repeats(results: Sequence[Result], part: str) -> dict[str, list[list[float]]]:
    """Loss and score of each candidate on a part, per initialisation ``[n][R]``."""
    return {what: [r.repeats.get(f"{part}.{what}", []) for r in results] for what in ("loss", "score")}


def visits(recipe: Recipe, count: int) -> int:
    """Example visits of a recipe on ``count`` examples, over all seeds."""
    return recipe.steps * recipe.seeds * min(recipe.batch or count, count)


def writable(folder: Path) -> Path | None:
    """The folder if it is writable, else None: results can still be read from it."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError:
        return None
    return folder if os.access(folder, os.W_OK) else None
