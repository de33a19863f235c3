"""Trust in a stand-in: intervals that cover, verdicts that hold, dimensions that disagree are kept open."""

import math

import numpy as np
import pytest
from scipy import stats

from hcdc.core.errors import InputError
from hcdc.core.ranks import spearman
from hcdc.core.trusted import DIMENSION_VERDICTS, VERDICTS, DimensionTrust, Estimate, Trust
from hcdc.evaluation.trust import (
    FEWEST,
    RankEstimate,
    agreement,
    columns,
    dimension_agreement,
    judge,
    nearest_weights,
    rank_estimate,
)
from hcdc.spaces import Box, Finite, Product


def copula(rho, count, rng):
    """Scores of a Gaussian copula whose Spearman correlation is ``rho``; heavy-tailed margins."""
    pearson = 2 * math.sin(math.pi * rho / 6)
    x, e = rng.standard_normal((2, count))
    return x**3, np.exp(2 * (pearson * x + math.sqrt(1 - pearson**2) * e))


def rank_interval(x, y, **given):
    found = rank_estimate(x, y, **given)
    return found.rho, found.interval()


class TestInterval:
    def test_uniform_weights_give_the_usual_correlation(self):
        rng = np.random.default_rng(0)
        x, y = rng.integers(0, 5, 30), rng.integers(0, 4, 30)  # many ties
        assert rank_interval(x, y)[0] == pytest.approx(spearman(x, y), abs=1e-12)

    def test_chosen_probes_at_every_candidate_give_the_correlation(self):
        rng = np.random.default_rng(0)
        x, y = rng.standard_normal((2, 40))
        places = (stats.rankdata(x) - 0.5) / 40
        np.testing.assert_allclose(nearest_weights(places), 1 / 40, atol=1e-12)
        rho, interval = rank_interval(x, y, positions=places, candidates=40)
        assert rho == pytest.approx(spearman(x, y), abs=1e-12)
        assert interval[1] - interval[0] == pytest.approx(0, abs=1e-6)

    def test_nearest_weights_are_shares_of_the_ranking(self):
        np.testing.assert_allclose(nearest_weights(np.array([0.9, 0.1, 0.5])), [0.3, 0.3, 0.4])

    @pytest.mark.parametrize("rho", [0.0, 0.5, 0.9])
    @pytest.mark.parametrize("count", [8, 24])
    def test_covers_on_a_copula(self, rho, count):
        """600 resamples: a coverage of .9 has a standard error of .012."""
        rng = np.random.default_rng(7)
        held = []
        for _ in range(600):
            low, high = rank_interval(*copula(rho, count, rng))[1]
            held.append(low <= rho <= high)
        assert 0.86 <= np.mean(held) <= 0.97

    @pytest.mark.parametrize("ceiling", [math.inf, 0.0])
    def test_covers_with_probes_from_the_top(self, ceiling):
        """A third of the probes are uniform, the others the best by the stand-in.

        Under a ceiling the better half of the candidates is equal but for noise, and an interval that takes
        these probes for uniform ones misses.
        """
        rng, held, naive = np.random.default_rng(8), [], []
        places = (np.arange(500) + 0.5) / 500
        for _ in range(300):
            x = np.sort(rng.standard_normal(500))
            y = np.minimum(x, ceiling) + 0.4 * rng.standard_normal(500)
            first = rng.permutation(500)[:8]
            index = np.concatenate([first, np.setdiff1d(np.arange(500), first)[-16:]])
            true = spearman(x, y)
            low, high = rank_interval(x[index], y[index], positions=places[index], candidates=500)[1]
            held.append(low <= true <= high)
            low, high = rank_interval(x[index], y[index])[1]
            naive.append(low <= true <= high)
        assert 0.84 <= np.mean(held) <= 0.98
        assert ceiling > 0 or np.mean(naive) < 0.7

    def test_narrows_as_the_population_is_used_up(self):
        x, y = copula(0.6, 40, np.random.default_rng(0))
        widths = [np.ptp(rank_interval(x, y, candidates=n)[1]) for n in (math.inf, 400, 50)]
        assert widths[0] > widths[1] > widths[2] > 0

    def test_says_nothing_where_nothing_is_known(self):
        assert rank_interval([1, 2, 3, 4], [1, 2, 3, 4])[1] == (-1, 1)
        rho, interval = rank_interval(np.ones(9), np.arange(9))
        assert math.isnan(rho)
        assert interval == (-1, 1)


class TestAgreement:
    def test_perfect_stand_in(self):
        x = np.linspace(0, 1, 200)
        found = agreement(x, np.arange(0, 200, 9), x[::9] ** 2)
        assert found.verdict == "trust"
        assert found.spearman == pytest.approx(1)
        assert found.recall.value == pytest.approx(1)
        assert found.interval[0] > 0.9
        assert found.interval[1] == 1
        assert found.regret.value == 0
        assert 0 < found.regret.interval[1] < 0.2
        assert found.survivors.value == pytest.approx(1)

    def test_recall_and_regret_of_a_reversed_stand_in(self):
        x = np.linspace(0, 1, 40)
        found = agreement(x, np.arange(40), -x, finite=True)
        assert found.verdict == "no"
        assert found.recall.value == 0
        gaps = [np.ptp(np.random.default_rng(k).choice(40, 8, replace=False)) / 39 for k in range(4000)]
        assert found.of == 8
        assert found.regret.value == pytest.approx(np.mean(gaps), rel=0.02)

    def test_recall_and_regret_at_k_are_those_of_the_ranking(self):
        """Ten candidates; the stand-in has the truly best one in third place, and is right on the rest."""
        x, y = np.arange(10.0), np.array([0, 1, 2, 3, 4, 5, 6, 9, 7, 8.0])
        found = agreement(x, np.arange(10), y, k=0.2, finite=True)
        assert (found.k, found.keep) == (0.2, 0.5)
        assert found.at_k.recall.value == pytest.approx(0.5)  # the second best of the best two
        assert (found.at_k.kept, found.at_k.of) == (1, 5)
        assert found.at_k.regret == found.regret
        assert agreement(x, np.arange(10), y, k=0.3).at_k.recall.value == pytest.approx(1)
        two = agreement(x, np.arange(10), y, k=0.4).at_k
        assert (two.kept, two.of, two.recall.value) == (2, 5, 1)
        # two of five lose 9 - 8 where all of the best three are among the five: (7 over 2) of (10 over 5)
        assert two.regret.value == pytest.approx(21 / 252, abs=0.02)
        three = agreement(x, np.arange(10), y, k=0.6).at_k
        assert (three.kept, three.regret.value) == (3, 0)
        cut = found.survivors_at_k  # of the best five: the best one is 9, and third
        assert (cut.kept, cut.of, cut.recall.value, cut.recall.probes) == (1, 2, 0, 1)

    def test_half_is_kept_by_default_and_other_figures_do_not_depend_on_k(self):
        x, y = copula(0.7, 100, np.random.default_rng(5))
        found, few = (agreement(x, np.arange(30), y[:30], k=k) for k in (None, 0.2))
        assert (found.k, found.at_k.recall) == (0.5, found.recall)
        for name in ("spearman", "verdict", "survivors", "recall", "regret", "of", "keep"):
            assert getattr(found, name) == getattr(few, name)
        assert (few.at_k.recall.probes, found.at_k.recall.probes) == (6, 15)
        assert few.at_k.regret.value > found.at_k.regret.value

    @pytest.mark.parametrize("rho", [0.5, 0.9])
    def test_recall_and_regret_at_k_are_covered(self, rho):
        """True values from 400,000 pairs; 200 resamples: a coverage of .9 has a standard error of .02."""
        rng = np.random.default_rng(1)
        pearson = 2 * math.sin(math.pi * rho / 6)

        def pairs(count):
            x, e = rng.standard_normal((2, count))
            return x, pearson * x + math.sqrt(1 - pearson**2) * e

        x, y = pairs(400_000)
        recall = (x > np.quantile(x, 0.75))[y > np.quantile(y, 0.75)].mean()
        first = np.argsort(-x.reshape(-1, 8), 1)[:, :2]
        groups = y.reshape(-1, 8)
        regret = (groups.max(1) - np.take_along_axis(groups, first, 1).max(1)).mean()
        held = []
        for _ in range(200):
            x, y = pairs(24)
            cut = agreement(x, np.arange(24), y, k=0.25).at_k
            assert (cut.kept, cut.of) == (2, 8)
            pair = (cut.recall.interval, recall), (cut.regret.interval, regret)
            held.append([low <= true <= high for (low, high), true in pair])
        assert np.mean(held, 0).min() >= 0.86

    def test_probes_chosen_by_their_rank_have_cuts_too(self):
        x = np.linspace(0, 1, 100)
        index = np.array([5, 20, 40, 55, 70, 80, 90, 95, 98, 99])
        found = agreement(x, index, x[index], uniform=False, k=0.25)
        assert found.at_k.recall.value == found.survivors_at_k.recall.value == 1
        assert found.at_k.regret.value == 0
        low = agreement(x, index[:3], x[index[:3]], uniform=False)  # no survivor among the probes
        assert low.survivors_at_k.recall.value is None

    def test_trust_is_rarely_wrong_and_often_said(self):
        rng = np.random.default_rng(3)
        said = {rho: [] for rho in (0.0, 0.65, 0.93)}
        for rho, verdicts in said.items():
            for _ in range(200):
                x, y = copula(rho, 24, rng)
                verdicts.append(agreement(x, np.arange(24), y).verdict)
        assert np.mean(np.array(said[0.0]) == "trust") == 0
        assert np.mean(np.array(said[0.65]) == "trust") <= 0.1
        assert np.mean(np.array(said[0.93]) == "trust") >= 0.5

    @pytest.mark.parametrize(
        ("rho", "error", "probes", "verdict"),
        [
            (0.9, 0.2, 24, "trust"),
            (0.9, 0.2, 15, "keep open"),
            (0.9, 0.32, 24, "keep open"),
            (0.05, 0.1, 24, "no"),
            (0.3, 0.3, 24, "unknown"),
            (math.nan, math.inf, 24, "unknown"),
        ],
    )
    def test_verdicts(self, rho, error, probes, verdict):
        said, why = judge(RankEstimate(rho, math.atanh(rho), error, 30), probes)
        assert said == verdict
        assert verdict in VERDICTS
        assert why.endswith("no rank correlation") or f"{probes} probes" in why

    def test_few_probes_are_not_trusted_however_well_they_agree(self):
        estimate = RankEstimate(0.95, math.atanh(0.95), 0.1, 30)
        assert judge(estimate, FEWEST)[0] == "trust"
        verdict, why = judge(estimate, FEWEST - 1)
        assert verdict == "keep open"
        assert why.endswith("with 97.5 % confidence; 15 probes are too few to say trust: 16 are needed")

    @pytest.mark.parametrize(
        ("rho", "verdict", "told"),
        [(0.6, "keep open", True), (0.3, "unknown", True), (-0.6, "no", False), (math.nan, "unknown", False)],
    )
    def test_too_few_probes_are_told_with_every_verdict_they_change(self, rho, verdict, told):
        estimate = RankEstimate(rho, math.atanh(rho), math.inf if math.isnan(rho) else 0.25, 30)
        said, why = judge(estimate, 12)
        assert said == verdict
        assert ("12 probes are too few to say trust: 16 are needed" in why) == told
        assert "too few to say trust" not in judge(estimate, FEWEST)[1]

    def test_theory_limits_what_the_jackknife_says(self):
        """Every other pair is swapped, so that no probe matters: the jackknife finds hardly any error."""
        x = np.arange(16.0)
        y = x.reshape(8, 2)[:, ::-1].ravel()
        found = rank_estimate(x, y)
        theory = math.sqrt((1 + found.rho**2 / 2) / 13)
        assert found.normal == pytest.approx(theory)
        assert found.error < theory
        low = math.tanh(found.z - stats.t.ppf(0.975, 14) * theory)
        assert found.surely(0.95) == pytest.approx(low)
        assert found.surely(0.95) < found.interval(0.95)[0]

    def test_chosen_probes_count_by_their_weights(self):
        rng = np.random.default_rng(0)
        positions = np.concatenate([np.linspace(0.05, 0.8, 8), np.linspace(0.9, 0.99, 16)])
        x, y = positions, positions + 0.02 * rng.standard_normal(24)
        chosen, uniform = rank_estimate(x, y, positions=positions), rank_estimate(x, y)
        assert uniform.effective == 24
        assert chosen.effective == pytest.approx(1 / (nearest_weights(positions) ** 2).sum())
        assert chosen.effective < 12
        assert chosen.normal > 1.5 * uniform.normal

    def test_refusals(self):
        with pytest.raises(InputError, match="as many full scores"):
            agreement([1, 2, 3], [0, 1], [1.0])
        with pytest.raises(InputError, match="not among the 3"):
            agreement([1, 2, 3], [0, 3], [1.0, 2.0])
        with pytest.raises(InputError, match="finite"):
            agreement([1, 2, math.nan], [0, 1], [1.0, 2.0])
        with pytest.raises(InputError, match="keep 1"):
            agreement([1, 2, 3], [0, 1], [1.0, 2.0], keep=1)
        with pytest.raises(InputError, match="k 0: the share of candidates must lie between 0 and 1"):
            agreement([1, 2, 3], [0, 1], [1.0, 2.0], k=0)

    def test_json_and_back(self):
        x, y = copula(0.8, 60, np.random.default_rng(0))
        found = agreement(x, np.arange(30), y[:30])
        part = DimensionTrust(name="lr", tau=0.5, interval=(0.1, 0.8), importance=0.3)
        full = Trust(**{**vars(found), "dimensions": [part]})
        again = Trust.from_json({**full.to_json(), "newer": 1})
        assert again.to_json() == full.to_json()
        assert again.dimension("lr").tau == 0.5
        assert isinstance(again.recall, Estimate)
        assert again.at_k.recall.value == found.at_k.recall.value > 0
        assert again.survivors_at_k.regret.probes == found.survivors_at_k.regret.probes > 0
        older = {name: value for name, value in full.to_json().items() if not name.endswith("_k")}
        assert Trust.from_json(older).at_k.recall.value is None


def test_one_probe_has_no_plural():
    assert judge(rank_estimate([1.0], [1.0]), 1)[1].startswith("1 probe with equal or too few scores")


class TestDimensions:
    """An additive model: dimension a acts alike on both, b flips its sign, c acts on the truth alone."""

    @pytest.fixture(scope="class")
    def found(self):
        rng = np.random.default_rng(0)
        a, b, c, d = rng.uniform(-1, 1, (4, 800))
        noise = 0.1 * rng.standard_normal((2, 800))
        copy = a + b + 0.4 * d + noise[0]
        truth = a - b + c + 0.4 * d + noise[1]
        index = rng.permutation(800)[:80]
        parts = dimension_agreement(
            {"a": a, "b": b, "c": c, "d": d}, copy, index, truth[index], groups={"a + b": a + b}
        )
        return {part.name: part for part in parts}

    def test_verdicts(self, found):
        assert found["a"].verdict == "choose here"
        assert found["b"].verdict == "keep open"
        assert found["c"].verdict != "choose here"
        assert {part.verdict for part in found.values()} <= set(DIMENSION_VERDICTS)

    def test_flipped_effect_has_negative_tau(self, found):
        assert found["a"].tau > 0.9
        assert found["b"].interval[1] < 0

    def test_without_groups_importance_is_the_share_of_variance(self):
        rng = np.random.default_rng(1)
        a, b = rng.uniform(-1, 1, (2, 2000))
        copy = a + b
        truth = 2 * a + b
        parts = dimension_agreement({"a": a, "b": b}, copy, np.arange(2000), truth)
        assert [p.importance for p in parts] == pytest.approx([0.8, 0.2], abs=0.05)
        assert [p.verdict for p in parts] == ["choose here"] * 2

    def test_group_that_drives_the_truth_is_kept_open(self):
        """The stand-in sees the parts with equal signs; the truth depends on their difference."""
        rng = np.random.default_rng(2)
        lr, batch = rng.uniform(-1, 1, (2, 600))
        copy = 0.3 * (lr - batch) ** 2 + 0.5 * lr + 0.5 * batch + 0.05 * rng.standard_normal(600)
        truth = 2 * (lr - batch) + 0.1 * rng.standard_normal(600)
        index = rng.permutation(600)[:100]
        parts = dimension_agreement(
            {"lr": lr, "batch": batch}, copy, index, truth[index], groups={"step": lr - batch}
        )
        assert all(p.verdict != "choose here" for p in parts if p.name in ("batch", "step"))

    @pytest.mark.parametrize("equal", ["copy", "truth"])
    def test_equal_scores_show_no_disagreement(self, equal):
        a, index = np.linspace(-1, 1, 80), np.arange(80)
        scores = {"copy": a, "truth": a, equal: np.zeros(80)}
        (part,) = dimension_agreement({"a": a}, scores["copy"], index, scores["truth"])
        assert (part.verdict, part.tau, part.interval) == ("unknown", 0.0, (-1.0, 1.0))

    def test_few_audits_of_noise_choose_nothing(self):
        rng = np.random.default_rng(3)
        described = dict(zip("abcd", rng.uniform(-1, 1, (4, 300))))
        copy = sum(described.values())
        truth = rng.standard_normal(16)
        parts = dimension_agreement(described, copy, np.arange(16), truth)
        assert all(p.verdict != "choose here" for p in parts)

    def test_columns_of_a_space(self):
        space = Product(
            Box(["lr", "dropout"], [1e-3, 0], [1e-1, 1], ["log", "linear"]), Finite("act", ["a", "b"])
        )
        configs = [{"lr": 0.01, "dropout": 0.5, "act": "b"}, {"lr": 0.1, "act": "a"}]
        found = columns(configs, space.dimensions())
        np.testing.assert_allclose(found["lr"], np.log([0.01, 0.1]))
        assert found["dropout"][0] == 0.5
        assert math.isnan(found["dropout"][1])
        np.testing.assert_array_equal(found["act"], [[0, 1], [1, 0]])
        parts = dimension_agreement(found, [0.0, 1.0], [0, 1], [0.0, 1.0])
        assert all(p.verdict == "unknown" for p in parts)
