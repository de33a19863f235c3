"""Training each candidate as its own network, side by side on CUDA streams or CPU threads."""

from __future__ import annotations

import math
import time
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from hcdc.core.configs import Config
from hcdc.core.errors import NumericalError
from hcdc.core.recipe import Recipe
from hcdc.core.seeds import stream
from hcdc.datasets import Images
from hcdc.networks import Network, Params
from hcdc.spaces import TRAINING
from hcdc.tasks import Task
from hcdc.training._engine import Engine, Groups, register_engine
from hcdc.training._job import Job, Predictor, Result
from hcdc.training._networks import STREAMS, forward, networks_that_fit, of_set, train_networks

SCORED = 1000
"""Images scored at once."""


def networks_at_once(device: torch.device | str) -> int:
    """How many networks to train before saving their results."""
    return 64 if torch.device(device).type == "cuda" else 2 * torch.get_num_threads()


@register_engine("streams")
class Streams(Engine):
    """Trains one network per candidate. For images.

    The task gives each candidate's network (``task.network``) and turns stored pixels into its inputs
    (``task.inputs``). Labelled sets have ``x`` and ``y``. Candidates may differ in any training setting.
    Initialisations, batches and dropout are keyed by (seed, role, repeat), so all candidates share them.
    Checkpoints store kernels as ``[out, height, width, in]``, their channels_last order in memory: another
    order could change the last bits of results.
    """

    def apart(self, job: Job) -> Collection[str]:
        return TRAINING

    def train_at_once(self, job: Job) -> int:
        return networks_at_once(job.device)

    def score_at_once(self, job: Job) -> int:
        return networks_at_once(job.device)

    def made(self, job: Job, config: Config) -> Network:
        return job.task.network(job.space, config).fast()

    def parameters(self, job: Job, made: Sequence[Network]) -> list[Groups]:
        found = train_networks(
            made, job.trains, _recipes(job),
            lambda network, sets, repeats, params: [{name: _stored(p) for name, p in params.items()}],
            seed=job.seed, role=job.role, device=job.device, inputs=job.task.inputs,
        )  # fmt: skip
        return [sets[0] for sets in found]

    def predictors(self, job: Job, made: Sequence[Network], trained: Sequence[Groups]) -> list[Predictor]:
        reference = _statistics(job, job.trains[0])
        return [_predictor(job, network, groups, reference) for network, groups in zip(made, trained)]

    def scored(self, job: Job) -> list[list[Result]]:
        task, own, count = job.task, job.own_parts, len(job.configs)
        references = [_statistics(job, train) for train in job.trains]
        networks = [self.made(job, config) for config in job.configs]
        times = PartTimes(job.device, count)

        @torch.no_grad()
        def score(network: int, sets: range, repeats: range, params: Params) -> list[Tensor]:
            """Scores ``[R, parts, 2]`` by training set; sets with the same parts are scored as one."""
            alike = all(own[k] is own[sets[0]] and references[k] is None for k in sets)
            groups = [sets] if alike else [range(k, k + 1) for k in sets]
            found: list[Tensor] = []
            for place, group in enumerate(groups):
                many = networks[network].side_by_side(len(group) * len(repeats))
                theirs, scores = of_set(params, place, len(groups)), []
                for name, part in own[group[0]].items():
                    with times.of([(k, name) for k in group]):
                        scores.append(score_images(many, theirs, task, part, references[group[0]]))
                found += torch.stack(scores, 1).chunk(len(group))
            return found

        begun = time.perf_counter()
        found = train_networks(
            networks, job.trains, _recipes(job), score,
            seed=job.seed, role=job.role, device=job.device, inputs=task.inputs,
        )  # fmt: skip
        share = (time.perf_counter() - begun) / count / len(job.trains)
        scoring = times.seconds()
        results = []
        for k, parts in enumerate(own):
            each = {name: scoring[k, name] / count for name in parts}
            results.append(
                [
                    _result(job, number, torch.cat(sets[k]), parts, share, each)
                    for number, sets in enumerate(found)
                ]
            )
        return results


def _statistics(job: Job, train: Images) -> Tensor | None:
    """Images for BatchNorm's statistics during scoring; None uses the scored images themselves."""
    return job.task.inputs(train.x) if job.recipe.statistics == "train" else None


def _stored(p: Tensor) -> Tensor:
    """A copy of a parameter in its memory order."""
    lying = p.detach().permute(0, 2, 3, 1) if p.dim() == 4 else p.detach()
    return lying.clone(memory_format=torch.contiguous_format)


def _predictor(job: Job, network: Network, groups: Groups, reference: Tensor | None) -> Predictor:
    many, inputs = network.side_by_side(job.recipe.seeds // len(groups)), job.task.inputs
    kept = [
        {name: p.permute(0, 3, 1, 2) if p.dim() == 4 else p for name, p in group.items()} for group in groups
    ]
    return lambda data: torch.cat([forward(many, one, inputs(data.x), reference) for one in kept])


def _recipes(job: Job) -> list[Recipe]:
    return [job.recipe_of(k) for k in range(len(job.configs))]


def _result(
    job: Job,
    number: int,
    scores: Tensor,
    parts: Mapping[str, Any],
    seconds: float,
    part_seconds: dict[str, float],
) -> Result:
    """One candidate's result from the scores ``[R, parts, 2]`` of its repeats."""
    mean = scores.double().mean(0).cpu()
    bad = ~torch.isfinite(mean)
    if bool(bad.any()) and not job.keep_diverged:
        raise NumericalError(
            f"candidate {job.configs[number]} has a non-finite loss after training; a smaller learning "
            f"rate (now {job.recipe_of(number).lr}) or a limit on the gradient's norm ('clip') may help"
        )
    names = [f"{part}.{what}" for part in parts for what in ("loss", "score")]
    values = dict(zip(names, mean.masked_fill(bad, math.nan).flatten().tolist()))
    repeats = dict(zip(names, scores.double().cpu().flatten(1).T.tolist()))
    return Result(values, seconds, part_seconds, repeats)


def score_images(
    network: Network, params: Params, task: Task, part: Images, reference: Tensor | None = None
) -> Tensor:
    """Loss and accuracy ``[R, 2]`` on a part.

    BatchNorm takes statistics from the reference, or from equal shares of up to `SCORED` images: a small last
    share would have poor statistics. Shares are drawn at random because images may be sorted by class.
    """
    count = math.ceil(len(part) / SCORED)
    if count <= 1:
        outputs = forward(network, params, task.inputs(part.x), reference)
    else:
        order = torch.randperm(len(part), generator=stream(0, "shares"))
        shares = [share.to(part.x.device) for share in torch.tensor_split(order, count)]
        logits = [forward(network, params, task.inputs(part.x[share]), reference) for share in shares]
        outputs = torch.cat(logits, 1)[:, order.argsort().to(part.x.device)]
    loss, score = (torch.vmap(lambda o, f=f: f(o, part))(outputs) for f in (task.loss, task.score))
    return torch.stack([loss, score], 1)


class PartTimes:
    """Scoring seconds by key, for networks that train and are scored concurrently.

    On CUDA, events on the network's own stream measure them, since waiting would hold up other streams.

    Args:
        device: Where networks are scored.
        networks: How many there are; several run at the same time.
    """

    def __init__(self, device: torch.device | str, networks: int):
        self.cuda = torch.device(device).type == "cuda"
        most = min(STREAMS, networks_that_fit(device)) if self.cuda else torch.get_num_threads()
        self.at_once = min(networks, most)
        self.marks: list[tuple[Sequence[tuple[int, str]], Any, Any]] = []

    @contextmanager
    def of(self, keys: Sequence[tuple[int, str]]) -> Iterator[None]:
        """Add the seconds of a block to some keys, in equal shares."""
        begun = self._now()
        yield
        self.marks.append((keys, begun, self._now()))

    def _now(self) -> Any:
        if not self.cuda:
            return time.perf_counter()
        event = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
        event.record()
        return event

    def seconds(self) -> dict[tuple[int, str], float]:
        """How many seconds each key added to the whole; call after all work is done."""
        found: dict[tuple[int, str], float] = defaultdict(float)
        for keys, begun, done in self.marks:
            spent = begun.elapsed_time(done) / 1000 if self.cuda else done - begun
            for key in keys:
                found[key] += spent / self.at_once / len(keys)
        return found
