"""Training candidates in batches: one lane per candidate and initialisation, all on shared data."""

from __future__ import annotations

import math
import time
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from typing import Any

import torch
from torch import Tensor

from hcdc.core.configs import Config, config_hash
from hcdc.core.errors import NumericalError
from hcdc.core.seeds import derive
from hcdc.networks import Params
from hcdc.spaces import Candidate, stack
from hcdc.tasks import Task
from hcdc.training._engine import Engine, Groups, register_engine
from hcdc.training._job import Job, Predictor, Result
from hcdc.training._many import LANE_SETTINGS, Scores, init_many, score_many, train_many


@register_engine("lanes")
class Lanes(Engine):
    """Trains in batches with ``vmap``. For graphs, tables and every task without an engine of its own.

    Candidates with the same network and number of steps, batch size, optimiser and schedule are scored in
    batches, each with its own learning rate, weight decay, momentum, dropout and label smoothing.
    Initialisations and dropout are keyed by (seed, role, configuration, repeat).
    """

    def apart(self, job: Job) -> Collection[str]:
        """The settings of lanes, except those that the task's model reads: they may change its shape."""
        read = job.task.reads(job.space)
        return [name for name in LANE_SETTINGS if name not in read]

    def shapes(self, job: Job, candidates: Sequence[Candidate]) -> Sequence[str]:
        return [candidate.shape for candidate in candidates]

    def score_at_once(self, job: Job) -> int:
        return max(1, job.task.lanes(job.trains[0], job.device) // job.recipe.seeds)

    def made(self, job: Job, config: Config) -> Task:
        return job.task.bind(job.space, None if job.space.batched else config)

    def parameters(self, job: Job, made: Sequence[Task]) -> list[Groups]:
        (train,) = job.trains
        return [
            [self._trained(bound, job.some([k]), train, self._lam(job, config))]
            for k, (bound, config) in enumerate(zip(made, job.configs))
        ]

    def predictors(self, job: Job, made: Sequence[Task], trained: Sequence[Groups]) -> list[Predictor]:
        lam = [self._lam(job, config) for config in job.configs]
        return [_predictor(*each) for each in zip(made, trained, lam)]

    @staticmethod
    def _lam(job: Job, config: Config) -> Tensor:
        """lambda of one candidate, repeated per initialisation ``[R, H]``."""
        return stack(job.space, [config]).to(job.device).expand(job.recipe.seeds, -1)

    @staticmethod
    def _trained(bound: Task, job: Job, train: Any, lam: Tensor) -> Params:
        """Train the job's candidates; returns parameters ``[B R, ...]``."""
        keys = [(config_hash(config), repeat) for config in job.configs for repeat in range(job.recipe.seeds)]
        start = init_many(bound, keys, job.seed, job.role, job.device)
        masks = torch.tensor([derive(job.seed, f"{job.role}-dropout", *key) for key in keys])
        own = {
            name: torch.tensor([each[name] for each in job.own]).repeat_interleave(job.recipe.seeds).to(lam)
            for name in (job.own[0] if job.own else ())
        }
        return train_many(bound, start, lam, train, job.recipe, own, masks)

    def scored(self, job: Job) -> list[list[Result]]:
        return [self._on_set(job, train, parts) for train, parts in zip(job.trains, job.own_parts)]

    def _on_set(self, job: Job, train: Any, parts: Mapping[str, Any]) -> list[Result]:
        """Results of one batch on one training set."""
        count, seeds = len(job.configs), job.recipe.seeds
        begun = time.perf_counter()
        bound = self.made(job, job.configs[0])
        lam = stack(job.space, job.configs).repeat_interleave(seeds, 0).to(job.device)
        params = self._trained(bound, job, train, lam)
        if lam.is_cuda:
            torch.cuda.synchronize()
        means: dict[str, Tensor] = {}
        repeats: dict[str, Tensor] = {}
        scoring: dict[str, float] = {}
        for name, part in parts.items():
            before = time.perf_counter()
            scored = score_each if job.keep_diverged else score_many
            scores = scored(bound, params, lam, part)
            for what, each in ((f"{name}.loss", scores.loss), (f"{name}.score", scores.score)):
                rows = each.double().view(-1, seeds)
                means[what], repeats[what] = rows.mean(1).cpu(), rows.cpu()
            scoring[name] = (time.perf_counter() - before) / count
        share = (time.perf_counter() - begun) / count
        return [
            Result(
                {what: float(mean[k]) for what, mean in means.items()},
                share,
                scoring,
                {what: rows[k].tolist() for what, rows in repeats.items()},
            )
            for k in range(count)
        ]


def _predictor(bound: Task, groups: Groups, lam: Tensor) -> Predictor:
    (params,) = groups
    lanes = [{name: p[r] for name, p in params.items()} for r in range(len(lam))]
    return lambda data: torch.stack([bound.predict(one, lam[0], data) for one in lanes])


def score_each(bound: Task, params: Params, lam: Tensor, part: Any) -> Scores:
    """`score_many`, but a lane with a non-finite loss gets NaN instead of stopping all lanes."""
    with suppress(NumericalError):
        return score_many(bound, params, lam, part)
    loss, score = (torch.full((len(lam),), math.nan, device=lam.device) for _ in range(2))
    for r in range(len(lam)):
        lane = {name: p[r : r + 1] for name, p in params.items()}
        with suppress(NumericalError):
            one = score_many(bound, lane, lam[r : r + 1], part)
            loss[r], score[r] = one.loss[0], one.score[0]
    return Scores(loss, score)
