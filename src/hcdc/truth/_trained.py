"""Full-data results by training, cached on disk by data, task, space, recipe and configuration."""

from __future__ import annotations

import json
import logging
import math
import os
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import torch

from hcdc.core import records
from hcdc.core.checkpoint import content_key
from hcdc.core.configs import Config, config_hash
from hcdc.core.errors import InputError, NumericalError
from hcdc.core.progress import Progress
from hcdc.core.recipe import Recipe
from hcdc.spaces import Space
from hcdc.tasks import Task
from hcdc.training import Job, Result, score
from hcdc.truth._base import Truth

log = logging.getLogger("hcdc")


def cache_folder(cache: str | os.PathLike[str] | None = None) -> Path:
    """Folder of full-data results: the argument, else ``$HCDC_CACHE``, else ``~/.cache/hcdc/truth``."""
    return Path(cache or os.environ.get("HCDC_CACHE") or Path.home() / ".cache" / "hcdc" / "truth")


class TrainedTruth(Truth):
    """Trains candidates on the full data by the full recipe and caches the results on disk.

    Results hold on every device, their seconds do not: cached results from another device have NaN seconds.
    ``Result.seconds_for("val")`` is what a search would pay. Results cached by older versions lack seconds
    per part, so there it includes scoring the test part. Diverged candidates are kept, with NaN for values
    that are not finite; a warning names them, and `full_scores` ranks them last.

    Args:
        task: The task on the original data; without a test set there are no test figures.
        space: The search space.
        recipe: The full recipe.
        device: Where to train.
        cache: Folder of the cache, see `cache_folder`.
        progress: Reports a phase "full data" if something has to be trained.
        fingerprint: The data's fingerprint, if already known.
    """

    def __init__(
        self,
        task: Task,
        space: Space,
        recipe: Recipe,
        *,
        device: torch.device | str = "cpu",
        cache: str | os.PathLike[str] | None = None,
        progress: Progress | None = None,
        fingerprint: str | None = None,
    ):
        self.task, self.space, self.recipe, self.device = task, space, recipe, device
        self.cache, self.progress, self._fingerprint = cache, progress, fingerprint
        self._known: dict[str, Result] = {}

    @cached_property
    def fingerprint(self) -> str:
        """Of the data; part of the cache key."""
        return self.task.fingerprint() if self._fingerprint is None else self._fingerprint

    def score(self, config: Config, part: str = "val", fidelity: int | None = None) -> float:
        """A candidate's score; trains the candidate if its score is unknown; NaN if it diverged."""
        if fidelity is not None:
            raise InputError(f"fidelity {fidelity}: candidates are only trained by the full recipe")
        return self._results([config])[0].values[f"{part}.score"]

    def seconds(self, config: Config) -> float:
        """Seconds for training and validation; a search does not pay for testing."""
        return self._results([config])[0].seconds_for("val")

    def known(self, config: Config) -> bool:
        self._read()
        return self.task.identity(self.space, config) in self._known

    def results(self, configs: Sequence[Config], parts: Sequence[str] | None = None) -> list[Result]:
        """Validation and test results; raises an error if all candidates diverge."""
        results = self._results(configs)
        lost = [str(config) for config, result in zip(configs, results) if not result.finite]
        if lost and len(lost) == len(results):
            raise NumericalError(
                f"all {len(lost)} candidates have a non-finite loss after training on the full data; a "
                f"smaller learning rate there (full_recipe lr, now {self.recipe.lr}) may help"
            )
        if lost:
            told = f"{len(lost)} of {len(results)} candidates diverged"
            log.warning("full data: %s and are ranked last: %s", told, ", ".join(lost))
        return results

    def ensure(self, configs: Sequence[Config]) -> None:
        """Accept every candidate: unknown ones are trained on demand."""
        return

    def spec(self) -> dict[str, Any]:
        return {"name": "trained", "recipe": self.recipe.as_dict()}

    def words(self) -> str:
        return f"trained on the full data, {self.recipe.steps:,} steps, {self.recipe.seeds} seeds"

    def check(self, task: Task) -> None:
        if not self.task.same_as(task.spec()):
            raise InputError(
                f"truth: its task is {self.task.spec()}, but the task here is {task.spec()}; give the same"
            )

    # --- the cache ------------------------------------------------------------------------------------------

    @cached_property
    def file(self) -> Path:
        """The cache file; creates its folder if necessary."""
        told = {"task": self.task.key(), "space": self.space.spec()}
        key = content_key({"data": self.fingerprint, "recipe": self.recipe.as_dict(), **told})
        folder = cache_folder(self.cache)
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise InputError(
                f"cannot create the folder '{folder}' for full-data results: {error.strerror or error}; "
                "choose another cache folder, or set $HCDC_CACHE"
            ) from error
        return folder / f"{key}.jsonl"

    def _read(self) -> None:
        """Load the results in the cache file."""
        if not self.file.exists():
            return
        here = records.device_name(self.device)
        for line in records.read(self.file):
            seconds = line["seconds"] if line["device"] == here else math.nan
            values = {name: _number(v) for name, v in line["values"].items()}
            repeats = {name: [_number(v) for v in each] for name, each in line.get("repeats", {}).items()}
            self._known[line["hash"]] = Result(values, seconds, line.get("part_seconds", {}), repeats)

    def _results(self, configs: Sequence[Config]) -> list[Result]:
        """Results of all candidates, diverged or not; unknown ones are trained together and cached."""
        self._read()
        keys = [self.task.identity(self.space, config) for config in configs]
        missing = {key: config for key, config in zip(keys, configs) if key not in self._known}
        if missing:
            self._train(missing)
        return [self._known[key] for key in keys]

    def _train(self, missing: dict[str, Config]) -> None:
        if not os.access(self.file.parent, os.W_OK):
            raise InputError(
                f"cannot write to the folder '{self.file.parent}' for full-data results; choose another "
                "cache folder, or set $HCDC_CACHE"
            )
        names = {config_hash(config): key for key, config in missing.items()}
        here = records.device_name(self.device)

        def keep(batch: list[tuple[Config, Result]]) -> None:
            for config, result in batch:
                key = names[config_hash(config)]
                self._known[key] = result
                line = {"hash": key, "config": json.loads(json.dumps(config)), "device": here}
                figures = {name: getattr(result, name) for name in FIGURES}
                records.append(self.file, {**line, **figures})

        task = self.task
        parts = {"val": task.val} if task.test is None else {"val": task.val, "test": task.test}
        score(
            Job(
                task, self.space, list(missing.values()), [task.train], self.recipe,
                parts=parts, role="truth", device=self.device,
                phase=(self.progress or Progress()).phase("full data", len(missing)),
                on_batch=keep, keep_diverged=True,
            )
        )  # fmt: skip


FIGURES = ("values", "seconds", "part_seconds", "repeats")


def _number(value: float | None) -> float:
    return math.nan if value is None else value
