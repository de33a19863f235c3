"""The benchmark: rank new candidates on the copy, on the full data and by rivals, and compare."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch

from hcdc.core.configs import Config
from hcdc.core.errors import NumericalError
from hcdc.core.progress import Progress
from hcdc.core.records import environment
from hcdc.core.results import Evaluation
from hcdc.datasets import CondensedDataset
from hcdc.evaluation._agreement import agreement, diverged, proxy_scores
from hcdc.evaluation._break_even import break_even
from hcdc.evaluation._context import BESIDE, Context, repeats, writable
from hcdc.evaluation._judges import check_beside, checked_judges, refuse_alike, warn_of_few
from hcdc.evaluation._tasks import task_of
from hcdc.evaluation.rivals import chosen_rivals
from hcdc.spaces import from_spec
from hcdc.tasks import Task
from hcdc.truth import TrainedTruth, Truth, cache_folder, check_truth

NAMED = ("method", "preset", "train_method", "val_method", "train_size", "val_size", "seed", "space")
"""Metadata of the copy that the evaluation repeats."""


def evaluate(
    small: CondensedDataset,
    *,
    candidates: int | Sequence[Config] = 80,
    seed: int = 0,
    task: Task | None = None,
    device: torch.device | str = "cpu",
    truth: Truth | None = None,
    cache: str | os.PathLike[str] | None = None,
    rivals: bool | Sequence[str] = True,
    beside: Mapping[str, CondensedDataset] | None = None,
    progress: Progress | None = None,
    condense_seconds: float | None = None,
) -> Evaluation:
    """Rank new candidates on the copy and on the full data, and compare.

    Args:
        small: The condensed data set.
        candidates: How many configurations to rank, or a list of them; none may have been used to make the
            copy. A finite space gives at most the half that condensing never uses.
        seed: Determines the candidates and their initialisations on the copy (role ``"judge"``).
        task: The task on the original data. By default the one that made the copy in this process; otherwise
            the data is read again from the source in ``small.meta``.
        device: Where to train.
        truth: Full-data results of the candidates; None trains them on the full data.
        cache: Folder for full-data results and for the checkpoints of this evaluation.
        rivals: True for all rivals, False for none, or a list of names (`rival_names`).
        beside: Further copies with the same S_train and recipe, by name. Candidates are trained once; each
            copy ranks them too, as a rival of that name.
        progress: Where progress is reported.
        condense_seconds: What making the copy cost; None takes it from ``small.record``.
    """
    task = task_of(small, task).to(device)
    if truth is not None:
        check_truth(truth, task)
    check_beside(small, beside := dict(beside or {}))
    configs, dropped = checked_judges(small, task, candidates, seed, list(beside.values()))
    context = Context(
        small.to(device), task, from_spec(small.meta["space"]), configs, seed=seed, beside=beside,
        device=device, progress=progress, folder=writable(cache_folder(cache)), truth=truth,
        condense_seconds=condense_seconds,
    )  # fmt: skip
    asked = len(candidates) if isinstance(candidates, Sequence) else candidates
    warn_of_few(context.space, asked, len(configs), dropped)
    chosen = chosen_rivals(context, rivals)
    parts = {"copy": task.val if context.small.val is None else context.small.val}
    for rival in chosen:  # fails before the work if a set cannot be drawn
        parts |= rival.sets(context)
    for name, other in beside.items():
        parts[BESIDE + name] = task.val if other.val is None else other.val.to(device)
    source = truth or TrainedTruth(
        task, context.space, context.full, device=device, cache=cache, progress=context.progress,
        fingerprint=str(small.meta["data"].get("fingerprint")),
    )  # fmt: skip
    context.cached = any(source.known(config) for config in configs)
    context.known = source.results(configs)
    refuse_alike(configs, context.scores("val"))
    context.copied = context.train_on_copy(parts)
    found = _copy_result(context, seed, dropped)
    ranked = [context.other_copy(name) for name in beside]
    ranked += [rival.run(context) for rival in chosen if rival.applies(context)]
    found = dataclasses.replace(found, rivals=ranked)
    context.forget()
    return dataclasses.replace(found, **dataclasses.asdict(break_even(found, context)))


def _copy_result(context: Context, seed: int, dropped: int) -> Evaluation:
    """How the copy ranks, without rivals."""
    meta, count = context.small.meta, len(context.configs)
    scores, test = context.scores("val"), context.scores("test")
    try:
        proxy = proxy_scores(context.copied, context.calibrated.metric, "copy")
    except NumericalError:
        context.forget()  # the same command would fail here again
        raise
    named: dict[str, Any] = {key: meta.get(key) for key in NAMED}
    classes = context.task.num_classes is not None
    return Evaluation(
        **named,
        dataset=meta["data"].get("name"),
        kind=context.small.kind,
        accuracy=classes and min(scores) >= 0 and max(scores) <= 1,
        truth_source=None if context.truth is None else context.truth.words(),
        metric=context.calibrated.metric,
        judge_seed=seed,
        candidates=count,
        dropped=dropped,
        diverged=len(diverged(context.copied, "copy")),
        diverged_on_full=[c for c, r in zip(context.configs, context.known) if not r.finite],
        configs=context.configs,
        truth=scores,
        test=test,
        best_test_accuracy=float(test[int(np.argmax(scores))]) if test else None,
        constant=context.task.constant_score(),
        condense_seconds=context.condense_seconds,
        proxy_seconds=context.proxy_seconds,
        full_seconds=context.full_seconds,
        proxy_seconds_per_candidate=context.proxy_seconds / count,
        full_seconds_per_candidate=context.full_seconds / count,
        environment=environment(context.device),
        repeats=repeats(context.copied, "copy"),
        **agreement(scores, test, proxy),
    )
