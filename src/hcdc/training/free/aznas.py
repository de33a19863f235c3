"""AZ-NAS: four training-free scores in one."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
from scipy.stats import rankdata

from hcdc.core.errors import InputError
from hcdc.training.free._base import FreeScore, Untrained, free_score, register_free
from hcdc.training.free._maps import entropy, gain


@register_free
class AZNAS(FreeScore):
    """Expressivity, progressivity, trainability and complexity (Lee and Ham, CVPR 2024).

    With h_l the `entropy` after block l and s_l the `gain` of block l, the parts are the sum of h_l, the
    smallest h_l - h_(l-1), the mean of 2 - s_l - 1 / s_l, and multiply-adds. Scores are sums over the parts
    of log(rank / candidates), so they depend on the other candidates. Parameters start as in training.
    """

    name = "aznas"
    alone = False

    def measure(self, candidate: Untrained) -> tuple[float, ...]:
        blocks = candidate.watched.blocks
        if len(blocks) < 2:
            raise InputError(
                f"aznas compares the feature maps of images after each block, and this network has "
                f"{len(blocks)}; leave it out"
            )
        h = [entropy(x) for x in blocks]
        s = [gain(*pair, candidate.seed) for pair in pairwise(blocks)]
        trainable = float(np.mean([2 - g - 1 / (g + 1e-6) for g in s]))
        return sum(h), float(np.diff(h).min()), trainable, *free_score("flops").measure(candidate)

    def combine(self, measured: Sequence[tuple[float, ...]]) -> list[float]:
        parts = np.asarray(measured)
        ranks = rankdata(np.where(np.isnan(parts), -np.inf, parts), axis=0)
        scores: list[float] = np.log(ranks / len(ranks)).sum(1).tolist()
        return scores
