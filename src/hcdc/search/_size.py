"""Larger networks first: what is hoped of candidates beforehand chooses some of the first cheap trainings."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from hcdc.core.ranks import standard_ranks
from hcdc.core.seeds import numpy_stream
from hcdc.search._board import HINT_LOWEST, Index
from hcdc.search._problem import Array, Rung

if TYPE_CHECKING:
    from hcdc.search._ladder import Ladder

PART = 0.3
"""The largest candidates are as many as this part of the budget could train on the rung."""
WORTH = 6
"""The hope that larger is better counts as much as this many audited scores."""


def hoped(ladder: Ladder, rung: Rung, eligible: Index) -> Index:
    """The largest of the candidates that may enter a rung, of which two thirds of its picks are made.

    They are as many as a filter by size would train. That holds for the cheapest stand-in in use until it has
    proved itself: before, it has too few scores to find out by itself that size helps. Everything is eligible
    where no size is known, or where audits say otherwise.
    """
    if rung is not ladder.kept[0] or rung is ladder.full or ladder.pays(rung):
        return eligible
    hint = ladder.board.hint(ladder.free)
    if not hint.shape[1] or _overruled(ladder, rung, hint):
        return eligible
    most = int(PART * ladder.budget / ladder.prices.of(rung))
    ties = numpy_stream(ladder.seed, "size").random(len(hint))
    return np.intersect1d(eligible, np.lexsort((ties, -hint[:, 0]))[:most])


def _overruled(ladder: Ladder, rung: Rung, hint: Array) -> bool:
    """Whether a uniform sample says that larger is not better on a rung, in spite of what is hoped.

    The slope of normal scores on the normal scores of sizes, in a regression with as many further
    candidates as the hope is worth, whose slope is the expected one.
    """
    scores = ladder.board.scores(rung.name)
    audits = [i for i in ladder.sample if np.isfinite(scores[i])]
    sizes = hint[audits, 0]
    seen = float((sizes - sizes.mean()) @ standard_ranks(scores[audits])) if audits else 0.0
    return WORTH * HINT_LOWEST + seen <= 0
