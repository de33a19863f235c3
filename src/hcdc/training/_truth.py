"""Full-data results of candidates, cached on disk by data, task, space, recipe and configuration."""

from __future__ import annotations

import json
import logging
import math
import os
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from hcdc.core import records
from hcdc.core.checkpoint import content_key
from hcdc.core.configs import Config, config_hash
from hcdc.core.errors import InputError, NumericalError
from hcdc.core.progress import Progress
from hcdc.core.recipe import Recipe
from hcdc.core.seeds import stream
from hcdc.datasets import Images
from hcdc.networks import Params
from hcdc.spaces import Space, stack
from hcdc.tasks import ImageTask, Task
from hcdc.training._many import Scores, init_many, score_many, train_many
from hcdc.training._networks import STREAMS, forward, networks_that_fit, side_by_side, train_networks
from hcdc.training._predictors import image_networks, networks_at_once, statistics_of

log = logging.getLogger("hcdc")

SCORED = 1000
"""Images that are scored at once."""


@dataclass(frozen=True)
class Result:
    """What one candidate reached, averaged over the recipe's seeds.

    Attributes:
        values: Figures by name, ``"PART.loss"`` and ``"PART.score"``; a loss that is not finite is NaN.
        seconds: Seconds spent on this candidate in all (its share of the batch it was trained in).
        part_seconds: Of these, the seconds of scoring each part.
    """

    values: dict[str, float]
    seconds: float
    part_seconds: dict[str, float] = field(default_factory=dict)

    @property
    def finite(self) -> bool:
        """Whether all figures are: those of a candidate that diverged are not."""
        return all(map(math.isfinite, self.values.values()))

    def seconds_for(self, part: str) -> float:
        """Seconds of training and of scoring ``part`` alone."""
        return self.seconds - sum(s for name, s in self.part_seconds.items() if name != part)


def run_candidates(
    task: Task,
    space: Space,
    configs: Sequence[Config],
    train: Any,
    parts: dict[str, Any],
    recipe: Recipe,
    seed: int,
    role: str,
    device: torch.device | str,
    on_batch: Callable[[list[tuple[Config, Result]]], None] | None = None,
    keep_diverged: bool = False,
) -> list[Result]:
    """Train every candidate on ``train`` and score it on ``parts``.

    Initialisations are keyed by (seed, role, configuration, repeat), so a result does not depend on which
    candidates share a batch. Spaces whose candidates share a parameter shape train in batches, others one by
    one.

    Args:
        task: An unbound or bound task; it is bound to the space here.
        parts: Labelled sets by name.
        on_batch: Called with each finished batch.
        keep_diverged: A candidate whose loss is not finite has NaN for it; otherwise it stops with a
            diagnosis.
    """
    if task.engine == "streams":
        assert isinstance(task, ImageTask)
        return run_on_sets(
            task, space, configs, [train], parts, recipe, seed, role, device, on_batch, keep_diverged
        )[0]
    results: list[Result] = []
    lanes = max(1, task.lanes(train, device) // recipe.seeds) if space.batched else 1
    for start in range(0, len(configs), lanes):
        batch = list(configs[start : start + lanes])
        begun = time.perf_counter()
        bound = task.bind(space, None if space.batched else batch[0])
        keys = [(config_hash(config), repeat) for config in batch for repeat in range(recipe.seeds)]
        lam = stack(space, batch).repeat_interleave(recipe.seeds, 0).to(device)
        params = train_many(bound, init_many(bound, keys, seed, role, device), lam, train, recipe)
        if lam.is_cuda:
            torch.cuda.synchronize()
        table: dict[str, torch.Tensor] = {}
        scoring: dict[str, float] = {}
        for name, part in parts.items():
            before = time.perf_counter()
            scored = _score_each if keep_diverged else score_many
            scores = scored(bound, params, lam, part)
            table[f"{name}.loss"] = scores.loss.double().view(-1, recipe.seeds).mean(1).cpu()
            table[f"{name}.score"] = scores.score.double().view(-1, recipe.seeds).mean(1).cpu()
            scoring[name] = (time.perf_counter() - before) / len(batch)
        share = (time.perf_counter() - begun) / len(batch)
        done = [Result({k: float(v[i]) for k, v in table.items()}, share, scoring) for i in range(len(batch))]
        results += done
        if on_batch is not None:
            on_batch(list(zip(batch, done)))
    return results


def _score_each(bound: Task, params: Params, lam: torch.Tensor, part: Any) -> Scores:
    """`score_many`, in which a lane whose loss is not finite has NaN and stops nobody."""
    with suppress(NumericalError):
        return score_many(bound, params, lam, part)
    loss, score = (torch.full((len(lam),), math.nan, device=lam.device) for _ in range(2))
    for r in range(len(lam)):
        lane = {name: p[r : r + 1] for name, p in params.items()}
        with suppress(NumericalError):
            one = score_many(bound, lane, lam[r : r + 1], part)
            loss[r], score[r] = one.loss[0], one.score[0]
    return Scores(loss, score)


class _PartTimes:
    """Seconds of scoring by key, in networks that train and are scored side by side.

    On CUDA they are taken by events on the network's own stream: to wait for it would hold up the others.

    Args:
        device: Where networks are scored.
        networks: How many there are; of these several run at the same time.
    """

    def __init__(self, device: torch.device | str, networks: int):
        self.cuda = torch.device(device).type == "cuda"
        most = min(STREAMS, networks_that_fit(device)) if self.cuda else torch.get_num_threads()
        self.at_once = min(networks, most)
        self.marks: list[tuple[tuple[int, str], Any, Any]] = []

    @contextmanager
    def of(self, key: tuple[int, str]) -> Iterator[None]:
        """Count the seconds of a block to a key."""
        begun = self._now()
        yield
        self.marks.append((key, begun, self._now()))

    def _now(self) -> Any:
        if not self.cuda:
            return time.perf_counter()
        event = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
        event.record()
        return event

    def seconds(self) -> dict[tuple[int, str], float]:
        """The seconds of each key that the whole took longer for it, once all is done."""
        found: dict[tuple[int, str], float] = defaultdict(float)
        for key, begun, done in self.marks:
            spent = begun.elapsed_time(done) / 1000 if self.cuda else done - begun
            found[key] += spent / self.at_once
        return found


def run_on_sets(
    task: ImageTask,
    space: Space,
    configs: Sequence[Config],
    trains: Sequence[Images],
    parts: dict[str, Images] | Sequence[dict[str, Images]],
    recipe: Recipe,
    seed: int,
    role: str,
    device: torch.device | str,
    on_batch: Callable[[list[tuple[Config, Result]]], None] | None = None,
    keep_diverged: bool = False,
) -> list[list[Result]]:
    """`run_candidates` of images on several training sets of one size, which share what is set up for a
    network: results by training set and candidate.

    Args:
        parts: What networks are scored on, or one of these for each training set.
        on_batch: Called with each finished batch of the first training set.
        keep_diverged: As for `run_candidates`.
    """
    own = [parts] * len(trains) if isinstance(parts, dict) else list(parts)
    assert len(own) == len(trains), "each training set has its parts"
    results: list[list[Result]] = [[] for _ in trains]
    references = [statistics_of(task, train, recipe) for train in trains]
    at_once = networks_at_once(device)
    for start in range(0, len(configs), at_once):
        batch = list(configs[start : start + at_once])
        networks = image_networks(task, space, batch)
        times = _PartTimes(device, len(batch))

        @torch.no_grad()
        def score(
            network: int,
            k: int,
            repeats: range,
            params: Params,
            networks: Any = networks,
            times: _PartTimes = times,
        ) -> torch.Tensor:
            many = side_by_side(networks[network], len(repeats))
            found = []
            for name, part in own[k].items():
                with times.of((k, name)):
                    found.append(_score(many, params, task, part, references[k]))
            return torch.stack(found, 1)

        begun = time.perf_counter()
        found = train_networks(
            networks, trains, recipe, score, seed=seed, role=role, device=device, inputs=task.inputs
        )
        share = (time.perf_counter() - begun) / len(batch) / len(trains)
        scoring = times.seconds()
        for k, done in enumerate(results):
            each = {name: scoring[k, name] / len(batch) for name in own[k]}
            for config, sets in zip(batch, found):
                values = _values(config, torch.cat(sets[k]), own[k], recipe, keep_diverged)
                done.append(Result(values, share, each))
        if on_batch is not None:
            on_batch(list(zip(batch, results[0][start:])))
    return results


def _values(
    config: Config, scores: torch.Tensor, parts: dict[str, Images], recipe: Recipe, keep_diverged: bool
) -> dict[str, float]:
    """The figures of a candidate from the scores ``[R, parts, 2]`` of its repeats."""
    mean = scores.double().mean(0).cpu()
    bad = ~torch.isfinite(mean)
    if bool(bad.any()) and not keep_diverged:
        raise NumericalError(
            f"candidate {config} has a non-finite loss after training; a smaller learning "
            f"rate (now {recipe.lr}) or a limit on the gradient's norm ('clip') may help"
        )
    named = zip(parts, mean.masked_fill(bad, math.nan).tolist())
    return {f"{part}.{what}": v for part, row in named for what, v in zip(("loss", "score"), row)}


def _score(
    network: Any, params: Params, task: ImageTask, part: Images, reference: torch.Tensor | None = None
) -> torch.Tensor:
    """Loss and accuracy ``[R, 2]`` on a part; BatchNorm takes the statistics of the reference, or of up to
    `SCORED` images, in equal shares: a last one of few images would be scored by poor statistics. Shares are
    drawn, since images may lie class by class, and statistics of one class are those of no batch.
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


def cache_folder(cache: str | os.PathLike[str] | None = None) -> Path:
    """Where full-data results are kept: the argument, else ``$HCDC_CACHE``, else ``~/.cache/hcdc/truth``."""
    return Path(cache or os.environ.get("HCDC_CACHE") or Path.home() / ".cache" / "hcdc" / "truth")


def _usable(folder: Path) -> Path:
    """The folder of the cache, made where it is not there; refused where it cannot be."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(
            f"the folder '{folder}' for full-data results cannot be made: {error.strerror or error}; name "
            "another as the cache, or by $HCDC_CACHE"
        ) from error
    return folder


def truth(
    task: Task,
    space: Space,
    configs: Sequence[Config],
    recipe: Recipe,
    *,
    fingerprint: str,
    description: dict[str, Any],
    device: torch.device | str = "cpu",
    cache: str | os.PathLike[str] | None = None,
    progress: Progress | None = None,
) -> list[Result]:
    """Full-data results of ``configs``: validation and test figures by the full recipe, cached on disk.

    A result holds wherever it was made, its seconds do not: results from another device have NaN seconds.
    ``seconds_for("val")`` is what a search would pay; of results that an older version cached, which does not
    say the seconds of parts, it holds the scoring of the test part too. Candidates that diverge are kept like
    others, with NaN for what is not finite, and a warning names them; `full_scores` ranks them last. Where
    all do, it stops with a diagnosis.

    Args:
        task: The task on the original data; needs ``train``, ``val`` and ``test``.
        fingerprint: Of the data; part of the cache key.
        description: Task and space specifications; part of the cache key.
        cache: Folder of the cache, see `cache_folder`.
    """
    key = content_key({"data": fingerprint, "recipe": recipe.as_dict(), **description})
    here = records.device_name(device)
    folder = _usable(cache_folder(cache))
    file = folder / f"{key}.jsonl"
    known: dict[str, Result] = {}
    if file.exists():
        for line in records.read(file):
            seconds = line["seconds"] if line["device"] == here else math.nan
            values = {name: math.nan if v is None else v for name, v in line["values"].items()}
            known[line["hash"]] = Result(values, seconds, line.get("part_seconds", {}))
    keys = {config_hash(config): task.identity(space, config) for config in configs}
    missing = [config for config in configs if keys[config_hash(config)] not in known]
    if missing:
        if not os.access(folder, os.W_OK):
            raise InputError(
                f"the folder '{folder}' for full-data results cannot be written; name another as the cache, "
                "or by $HCDC_CACHE"
            )
        phase = (progress or Progress()).phase("full data", len(missing))
        phase.first_step = 0
        count = 0

        def keep(batch: list[tuple[Config, Result]]) -> None:
            nonlocal count
            for config, result in batch:
                known[keys[config_hash(config)]] = result
                records.append(
                    file,
                    {
                        "hash": keys[config_hash(config)],
                        "config": json.loads(json.dumps(config)),
                        "values": result.values,
                        "seconds": result.seconds,
                        "part_seconds": result.part_seconds,
                        "device": here,
                    },
                )
            count += len(batch)
            phase.step(count)

        parts = {"val": task.val, "test": task.test}
        run_candidates(task, space, missing, task.train, parts, recipe, 0, "truth", device, keep, True)
    results = [known[keys[config_hash(config)]] for config in configs]
    lost = [str(config) for config, result in zip(configs, results) if not result.finite]
    if lost and len(lost) == len(results):
        raise NumericalError(
            f"all {len(lost)} candidates have a non-finite loss after training on the full data; a copy made "
            f"with a smaller learning rate there (full_recipe lr, now {recipe.lr}) may help"
        )
    if lost:
        told = f"{len(lost)} of {len(results)} candidates diverged"
        log.warning("full data: %s and are ranked last: %s", told, ", ".join(lost))
    return results


def full_scores(results: Sequence[Result], part: str) -> list[float]:
    """Scores on ``part`` of full-data results, of which one is finite at least; higher is better.

    Who diverged has the worst there is: an accuracy of 0, or, as minus an error has no end, just below the
    worst of the others.
    """
    low = min(r.values[f"{part}.score"] for r in results if r.finite)
    worst = 0.0 if low >= 0 else math.nextafter(low, -math.inf)
    return [r.values[f"{part}.score"] if r.finite else worst for r in results]
