"""What audit samples say of a rung: how far its ranking can be believed, overall and per dimension.

An audit sample is drawn uniformly beforehand. Candidates that a search promoted never enter it: intervals
from the top of a ranking do not hold.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from types import MappingProxyType

import numpy as np

from hcdc.core.configs import Config
from hcdc.core.ranks import standard_ranks
from hcdc.core.trusted import DimensionTrust, Trust
from hcdc.evaluation.trust import agreement, dimension_agreement
from hcdc.search._board import Board, free_figures
from hcdc.search._groups import Term, group_values
from hcdc.search._problem import Array

FEWEST = 5
"""Audits without which nothing is said per dimension."""
RATE, BATCH, MOMENTUM = ("lr", "learning_rate"), ("batch", "batch_size"), ("momentum",)
"""Names of the parameters that make up the length of a step."""


def complete(board: Board, sample: Sequence[int], *rungs: str) -> list[int]:
    """The members of a sample that have a score on all of these rungs."""
    return [
        i
        for i in sample
        if all((o := board.outcomes[rung].get(i)) is not None and o.complete for rung in rungs)
    ]


def rung_trust(
    board: Board, rung: str, against: str, sample: Sequence[int], entered: Sequence[int], seed: int
) -> Trust:
    """How far the ranking on a rung can be believed, measured against the next rung in use.

    Args:
        board: What is known.
        rung, against: The rung, and the next one.
        sample: The audit sample: drawn uniformly, and scored on ``against`` whatever it got on ``rung``.
        entered: The uniform sample that was scored on ``rung``; survivors are counted in it.
        seed: Draws what the estimators draw.
    """
    everything, scored = board.problem.candidates(), board.scored(rung)
    audited = complete(board, sample, rung, against)
    finite = everything is not None and len(scored) == len(everything)
    drawn = scored.tolist() if finite else [*dict.fromkeys([*complete(board, entered, rung), *audited])]
    low, high = board.scores(rung), board.scores(against)[audited]
    found = agreement(low[drawn], _places(audited, drawn), high, finite=finite, seed=seed)
    configs = [board.configs[i] for i in scored]
    dimensions = by_dimension(
        board.problem.described(configs), configs, low[scored], _places(audited, scored.tolist()), high, seed,
        board.problem.groups,
    )  # fmt: skip
    return dataclasses.replace(found, against=against, candidates=len(scored), dimensions=dimensions)


def _places(some: Sequence[int], within: Sequence[int]) -> list[int]:
    found = {i: place for place, i in enumerate(within)}
    return [found[i] for i in some]


def free_trust(board: Board, rung: str, against: str, sample: Sequence[int], seed: int) -> Trust:
    """The same for the figures of a free rung, which has scored all candidates: the sum of their ranks."""
    audited = complete(board, sample, against)
    outcomes = [board.outcomes[rung][i] for i in range(len(board.configs))]
    ranks = np.sum([standard_ranks(column) for column in free_figures(outcomes).T], 0)
    found = agreement(ranks, audited, board.scores(against)[audited], finite=True, seed=seed)
    return dataclasses.replace(found, against=against)


def by_dimension(
    described: Mapping[str, Array],
    configs: Sequence[Config],
    scores: Array,
    audited: Sequence[int],
    truth: Array,
    seed: int,
    groups: Mapping[str, Sequence[Term]] = MappingProxyType({}),
) -> list[DimensionTrust]:
    """Agreement per dimension that varies, for the length of a step where there is one, and per group.

    Args:
        described: Numbers per dimension of all candidates, see `hcdc.search.Problem.described`.
        configs: The candidates.
        scores: Their scores on the stand-in ``[N]``.
        audited: Those whose truth is known.
        truth: Their truth.
        seed: Draws the posterior.
        groups: Declared groups.
    """
    varied = {name: values for name, values in described.items() if _varies(values)}
    if len(audited) < FEWEST or not varied:
        return []
    declared = {name: v for name, v in group_values(groups, configs).items() if _varies(v)}
    together = {**step_length(configs), **declared}
    return dimension_agreement(varied, scores, audited, truth, groups=together, seed=seed)


def _varies(values: Array) -> bool:
    columns = values.reshape(len(values), -1).T
    return any(len(known := c[np.isfinite(c)]) > 1 and np.ptp(known) > 0 for c in columns)


def step_length(configs: Sequence[Config]) -> dict[str, Array]:
    """log lr - log batch - log(1 - momentum) ``[n]`` by name, if the learning rate is not all of it.

    Together they say how far a step goes, and often matter more than apart. What does not vary is left out.
    """
    found: dict[str, Array] = {}
    for names, word, power in ((RATE, "{}", 1), (BATCH, "{}", -1), (MOMENTUM, "(1 - {})", -1)):
        for name in names:
            values = np.array([_number(config.get(name)) for config in configs])
            values = 1 - values if names is MOMENTUM else values
            if _varies(values) and np.nanmin(values) > 0:
                logs = power * np.log(values)
                found[word.format(name)] = logs if names is RATE else np.nan_to_num(logs)
                break
        if not found:
            return {}
    return {" / ".join(found): np.sum(list(found.values()), 0)} if len(found) > 1 else {}


def _number(value: object) -> float:
    return float(value) if isinstance(value, int | float) else np.nan
