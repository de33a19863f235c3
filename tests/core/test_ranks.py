import math

import numpy as np
import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st
from scipy import stats

from hcdc.core import ranks
from hcdc.core.ranks import (
    calibration,
    kendall,
    mean_interval,
    regret,
    spearman,
    top_k_overlap,
    upper_half_spearman,
)

few_values = st.integers(-4, 4).map(float)  # ties are common
pairs = st.integers(2, 25).flatmap(
    lambda n: st.tuples(
        st.lists(few_values, min_size=n, max_size=n), st.lists(few_values, min_size=n, max_size=n)
    )
)
CORRELATIONS = pytest.mark.parametrize("statistic", [spearman, kendall])


def varied(*lists):
    return all(len(set(values)) > 1 for values in lists)


@given(pairs)
def test_against_scipy_with_ties(pair):
    a, b = pair
    assume(varied(a, b))
    assert spearman(a, b) == pytest.approx(stats.spearmanr(a, b).statistic, abs=1e-12)
    assert kendall(a, b) == pytest.approx(stats.kendalltau(a, b).statistic, abs=1e-12)


@given(pairs)
def test_calibration_counts_pairs_in_order(pair):
    """Eq. (HC) pair by pair."""
    a, b = pair
    assume(varied(a))
    ordered = [(i, j) for i in range(len(a)) for j in range(i) if a[i] != a[j]]
    alike = [(i, j) for i, j in ordered if (a[i] - a[j]) * (b[i] - b[j]) > 0]
    assert calibration(a, b) == len(alike) / len(ordered)
    assert calibration(a, a) == 1
    against = calibration(a, [-value for value in b])
    assert calibration(a, b) + against <= 1 + 1e-12
    strict = [value + k / 100 for k, value in enumerate(b)]  # no ties
    untied = [value + k / 100 for k, value in enumerate(a)]
    assert calibration(untied, strict) == pytest.approx((1 + kendall(untied, strict)) / 2)


def test_calibration_and_ties():
    assert calibration([1, 1, 2], [1, 2, 3]) == 1  # the truth does not order the first two
    assert calibration([1, 2, 3], [5, 5, 9]) == pytest.approx(2 / 3)  # the proxy must
    assert calibration([1, 2, 3], [0, 0, 0]) == 0
    for a, b in [([1, 1], [1, 2]), ([1], [2]), ([], []), ([1, math.nan], [1, 2]), ([1, 2], [1, math.inf])]:
        assert math.isnan(calibration(a, b))


def test_calibration_of_distant_scores_does_not_overflow():
    assert calibration([0, 1e200, 2e200], [-1e200, 0, 1e200]) == 1
    assert calibration([0, 1e-200], [0, 1e-200]) == 1


def test_worked_example_with_average_ranks():
    # ranks of b are 1.5, 1.5, 3: the correlation of (1, 2, 3) with them is sqrt(3) / 2
    assert spearman([1, 2, 3], [5, 5, 9]) == pytest.approx(math.sqrt(3) / 2)
    # two concordant pairs, one tied in b: 2 / sqrt(3 * 2)
    assert kendall([1, 2, 3], [5, 5, 9]) == pytest.approx(2 / math.sqrt(6))


@CORRELATIONS
@pytest.mark.parametrize(
    ("a", "b"),
    [
        ([1, 1, 1], [1, 2, 3]),
        ([1, 2, 3], [0, 0, 0]),
        ([1], [2]),
        ([], []),
        ([1, 2, math.nan], [1, 2, 3]),
        ([1, 2, 3], [1, math.inf, 3]),
    ],
)
def test_undefined_is_nan(statistic, a, b):
    assert math.isnan(statistic(a, b))


@CORRELATIONS
@given(pair=pairs)
def test_invariances(statistic, pair):
    """Symmetric; unchanged by monotone maps and by the order of candidates; turned by reversing one list."""
    a, b = pair
    assume(varied(a, b))
    value = statistic(a, b)
    assert -1 <= value <= 1
    assert statistic(b, a) == pytest.approx(value, abs=1e-12)
    assert statistic(np.exp(a), np.power(b, 3)) == pytest.approx(value, abs=1e-12)
    assert statistic(a[::-1], b[::-1]) == pytest.approx(value, abs=1e-12)
    assert statistic(a, [-v for v in b]) == pytest.approx(-value, abs=1e-12)
    assert statistic(a, a) == pytest.approx(1)


@pytest.mark.parametrize(("a", "b"), [([1, 2], [1, 2, 3]), ([[1, 2]], [[1, 2]])])
def test_lists_must_match(a, b):
    with pytest.raises(ValueError, match="two lists of equal length"):
        spearman(a, b)


def test_top_k_overlap():
    truth = [9, 8, 7, 1, 2]
    assert top_k_overlap(truth, [5, 1, 9, 2, 8], 3) == pytest.approx(2 / 3)
    assert top_k_overlap(truth, truth, 2) == 1
    assert top_k_overlap(truth, [-v for v in truth], 2) == 0
    assert top_k_overlap(truth, truth, 4) == 1
    assert math.isnan(top_k_overlap(truth, truth, 5))  # all of them, whatever the proxy
    assert math.isnan(top_k_overlap(truth, [0] * 5, 99))
    assert math.isnan(top_k_overlap([], [], 3))


def test_upper_half_spearman_looks_at_the_better_half_by_truth():
    truth = [1, 2, 3, 10, 11, 12, 13]
    proxy = [9, 8, 7, 4, 3, 2, 1]  # 4 of 7: 10, 11, 12, 13, all reversed
    assert upper_half_spearman(truth, proxy) == pytest.approx(-1)
    proxy[3:] = [1, 2, 3, 4]
    assert upper_half_spearman(truth, proxy) == pytest.approx(1)


def test_regret():
    assert regret([0.5, 0.9, 0.8], [1, 2, 3]) == pytest.approx(0.1)
    assert regret([0.5, 0.9, 0.8], [1, 3, 2]) == 0
    assert regret([0.5, 0.9, 0.8], [math.nan, 2, 3]) == pytest.approx(0.1)
    assert regret([0.5, 0.9, 0.8], [1, 1, 1]) == pytest.approx(0.4)  # the first of the best


@given(pairs)
def test_regret_is_never_negative_and_zero_for_the_truth(pair):
    a, b = pair
    assert regret(a, b) >= 0
    assert regret(a, a) == 0


def test_the_interval_of_draws_holds_the_value():
    assert ranks.percentiles(0.65, np.linspace(0.66, 0.95, 100), 0.9)[0] == 0.65
    assert ranks.percentiles(0.99, np.linspace(0.66, 0.95, 100), 0.9)[1] == 0.99


def test_there_is_no_interval_where_many_draws_are_undefined():
    undefined = np.full(100, np.nan)
    for kept, found in ((60, True), (59, False), (0, False)):
        undefined[:kept] = 0.5
        undefined[kept:] = np.nan
        assert math.isfinite(ranks.percentiles(0.5, undefined, 0.9)[0]) == found
    assert all(math.isnan(v) for v in ranks.percentiles(math.nan, np.linspace(0, 1, 100), 0.9))


def test_mean_interval_against_scipy():
    values = [0.9, 0.93, 0.88, 0.95, 0.91]
    mean, interval = mean_interval(values, 0.9)
    low, high = stats.ttest_1samp(values, 0).confidence_interval(0.9)
    assert mean == pytest.approx(np.mean(values))
    assert interval.as_list() == pytest.approx([low, high])


def test_mean_interval_of_one_value_has_no_width():
    mean, interval = mean_interval([0.5])
    assert mean == 0.5
    assert all(math.isnan(v) for v in interval.as_list())


def test_standard_values_have_mean_0_and_variance_1_or_are_all_0():
    values = np.array([3.0, -1.0, 4.0, 1.0, -5.0])
    expected = (values - values.mean()) / values.std()
    np.testing.assert_allclose(ranks.standard(values), expected)
    np.testing.assert_allclose(ranks.standard(1e3 * values + 7), expected)
    assert ranks.standard(np.full(4, 2.0)).tolist() == [0.0] * 4


@pytest.mark.parametrize(
    "values", [[3.0, 1, 2], [1.0, 1, 2, 2, 2, 0], [5.0, 5, 5], [0.5, -1, 0.5, 7, -1, -1]]
)
def test_ranks_with_ties_are_average_ranks_made_standard(values):
    ranked = stats.rankdata(values)
    oracle = (ranked - ranked.mean()) / (ranked.std() or 1.0)
    np.testing.assert_allclose(ranks.standard_ranks(values), oracle)
    found = ranks.standard_tensor_ranks(torch.tensor(values, dtype=torch.float64))
    torch.testing.assert_close(found, torch.from_numpy(oracle))
