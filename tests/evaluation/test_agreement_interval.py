"""The interval of an evaluation: honest for few candidates, and the same as in a trust report."""

import math

import numpy as np
import pytest

from hcdc.evaluation._agreement import agreement
from hcdc.evaluation.trust import rank_estimate


def drawn(rng, count, spearman):
    """Scores from a normal pair with this rank correlation."""
    rho = 2 * math.sin(math.pi * spearman / 6)
    a = rng.standard_normal(count)
    return a, rho * a + math.sqrt(1 - rho**2) * rng.standard_normal(count)


@pytest.mark.parametrize("spearman", [0.5, 0.9])
@pytest.mark.parametrize("count", [10, 20, 80])
def test_it_covers_as_often_as_it_says(count, spearman):
    rng = np.random.default_rng(count)
    found = [agreement(a, [], b)["interval"] for a, b in (drawn(rng, count, spearman) for _ in range(200))]
    assert 0.84 <= np.mean([low <= spearman <= high for low, high in found]) <= 0.98


def test_few_candidates_in_order_are_not_certain():
    assert agreement([1, 2, 3, 4], [], [1, 2, 3, 4])["interval"] == (-1.0, 1.0)
    low, high = agreement(range(10), range(10), range(10))["test_interval"]
    assert 0.9 < low < 0.98  # with .97, ten candidates in perfect order turn up in 4 % of samples
    assert high == 1.0


def test_it_is_that_of_trust():
    a, b = drawn(np.random.default_rng(0), 12, 0.6)
    assert agreement(a, [], b)["interval"] == rank_estimate(a, b).interval(0.9)


@pytest.mark.parametrize(("a", "b"), [([1, 1, 1], [1, 2, 3]), ([1], [1]), ([1, 2, math.nan], [1, 2, 3])])
def test_there_is_none_without_a_correlation(a, b):
    assert all(map(math.isnan, agreement(a, [], b)["interval"]))
