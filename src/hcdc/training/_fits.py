"""Training candidates that the task fits one by one, without parameters that could be batched or stored."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from hcdc.core.configs import Config, config_hash
from hcdc.core.errors import NumericalError
from hcdc.core.seeds import derive
from hcdc.training._engine import Engine, Groups, register_engine
from hcdc.training._job import Job, Predictor, Result


@register_engine("fits")
class Fits(Engine):
    """Fits each candidate by ``task.fitted(config, train, seed)``.

    Seeds are keyed by (seed, role, configuration, repeat). Fitted models are not stored: an interrupted run
    fits them again.
    """

    def made(self, job: Job, config: Config) -> list[Predictor]:
        (train,) = job.trains
        return [job.task.fitted(config, train, seed) for seed in _seeds(job, config)]

    def parameters(self, job: Job, made: Sequence[Any]) -> list[Groups]:
        return [[{}] for _ in made]

    def predictors(self, job: Job, made: Sequence[Any], trained: Sequence[Groups]) -> list[Predictor]:
        return [_together(each) for each in made]

    def train(self, job: Job) -> list[Predictor]:
        assert len(job.trains) == 1, "predictors are trained on one set"
        found = []
        for config in job.configs:
            found.append(_together(self.made(job, config)))
            if job.phase is not None:
                job.phase.step(len(found))
        return found

    def scored(self, job: Job) -> list[list[Result]]:
        return [
            [self._result(job, config, train, parts) for config in job.configs]
            for train, parts in zip(job.trains, job.own_parts)
        ]

    def _result(self, job: Job, config: Config, train: Any, parts: Any) -> Result:
        """Fit one candidate on one set and score it on the parts."""
        begun = time.perf_counter()
        models = [job.task.fitted(config, train, seed) for seed in _seeds(job, config)]
        repeats: dict[str, list[float]] = {}
        scoring: dict[str, float] = {}
        for name, part in parts.items():
            before = time.perf_counter()
            outputs = [model(part) for model in models]
            repeats[f"{name}.loss"] = [float(job.task.loss(each, part)) for each in outputs]
            repeats[f"{name}.score"] = [float(job.task.score(each, part)) for each in outputs]
            scoring[name] = time.perf_counter() - before
        values = {what: sum(each) / len(each) for what, each in repeats.items()}
        result = Result(values, time.perf_counter() - begun, scoring, repeats)
        if not (result.finite or job.keep_diverged):
            raise NumericalError(f"candidate {config} has a non-finite loss after fitting")
        return result


def _seeds(job: Job, config: Config) -> list[int]:
    """One seed below 2^31 per repeat."""
    key = config_hash(config)
    return [derive(job.seed, job.role, key, repeat) % 2**31 for repeat in range(job.recipe.seeds)]


def _together(models: Sequence[Predictor]) -> Predictor:
    def outputs(data: Any) -> Tensor:
        return torch.stack([model(data) for model in models])

    return outputs
