"""Targets and objectives of S_val: the model of everything known, and pairs weighted toward the top."""

import numpy as np
import pytest
import torch
from quick_hcdc import SPACE as GRAPHS
from quick_hcdc import short_recipes
from scipy import optimize
from tiny_graph import tiny_task

from hcdc.condensers import condense, free_figures, modelled, plan, probe_configs
from hcdc.condensers.validation import _probing as probing
from hcdc.condensers.validation import _trained as probed
from hcdc.condensers.validation._objectives import (
    OBJECTIVES,
    TEMPERATURE,
    bradley_terry,
    bradley_terry_bound,
    bradley_terry_slope,
    misplaced,
    pair_weights,
    uncorrelated,
)
from hcdc.condensers.validation._probing import companion_configs, describe, outline
from hcdc.condensers.validation._settings import Probing
from hcdc.condensers.validation._targets import copied_figures, make_companions
from hcdc.condensers.validation._weights import fit_top_weights, fit_weights
from hcdc.core.errors import InputError
from hcdc.core.posterior import Results, corrected, expected_scores
from hcdc.core.ranks import spearman, standard, standard_ranks
from hcdc.datasets import data
from hcdc.spaces import GraphNAS, NASBench201
from hcdc.tasks import ImageTask

__all__ = ["short_recipes"]

CELLS = NASBench201(channels=2)


def vector(count, seed):
    return torch.randn(count, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


# --- the loss over pairs ------------------------------------------------------------------------------------


def test_a_pair_weighs_what_its_worse_candidate_shares_among_those_above():
    weight = pair_weights(torch.tensor([0.1, 0.9, 0.5, 0.5], dtype=torch.float64))
    expected = torch.zeros(4, 4, dtype=torch.float64)
    expected[1, 2] = expected[1, 3] = 1 / 3  # the two in the middle have only the best above them
    expected[1, 0] = expected[2, 0] = expected[3, 0] = 1 / 9
    torch.testing.assert_close(weight, expected)
    ten = pair_weights(torch.arange(10.0).flip(0).double())
    for k in (1, 2, 5, 10):
        assert float(ten[:k, :k].sum()) == pytest.approx((k - 1) / 9)


def test_the_loss_is_that_of_the_logistic_model():
    scores, target = vector(7, 0), vector(7, 1)
    order = target.argsort(descending=True).tolist()
    by_hand = 0.0
    for place, j in enumerate(order[1:], start=1):
        lost = [np.log1p(np.exp(-float(scores[i] - scores[j]) / TEMPERATURE)) for i in order[:place]]
        by_hand += np.mean(lost) / 6
    assert float(bradley_terry(scores, target)) == pytest.approx(by_hand, rel=1e-12)
    assert float(bradley_terry(scores + 3, target)) == pytest.approx(by_hand, rel=1e-12)
    assert float(misplaced(-5 * scores - 2, target)) == pytest.approx(float(misplaced(-scores, target)))


@pytest.mark.parametrize("name", OBJECTIVES)
def test_gradients_are_finite_differences(name):
    losses, target = vector(8, 2).requires_grad_(), torch.from_numpy(standard_ranks(vector(8, 3)))
    assert torch.autograd.gradcheck(lambda x: OBJECTIVES[name](x, target), losses)
    (slope,) = torch.autograd.grad(OBJECTIVES[name](losses, target), losses)
    for k in range(8):
        with torch.no_grad():
            step = torch.zeros(8, dtype=torch.float64)
            step[k] = 1e-6
            ahead, behind = (OBJECTIVES[name](losses + sign * step, target) for sign in (1, -1))
        assert float(slope[k]) == pytest.approx(float(ahead - behind) / 2e-6, abs=1e-8)


def test_the_slope_of_weights_is_that_of_the_loss_and_within_its_bound():
    scores, target = vector(9, 4), torch.tensor([3.0, 1, 1, 1, 0, 0, 2, 2, 5]).double()
    own = scores.clone().requires_grad_()
    (expected,) = torch.autograd.grad(9 * bradley_terry(own, target), own)
    torch.testing.assert_close(bradley_terry_slope(scores, target), expected)
    for at in (torch.zeros(9).double(), scores):
        curvature = torch.autograd.functional.hessian(lambda s: 9 * bradley_terry(s, target), at)
        most = float(torch.linalg.eigvalsh(curvature)[-1])
        assert 0 < most <= bradley_terry_bound(target)


def test_the_top_decides_where_the_correlation_prefers_the_bottom():
    """Four candidates: one set of scores swaps the best two, the other the last two.

    The second has one candidate above it, so that pair weighs 1/3; the last has three, so each weighs 1/9.
    """
    target = torch.tensor([3.0, 2.0, 1.0, 0.0]).double()
    top, bottom = (torch.tensor(each).double() for each in ([2.0, 3.0, 1.0, 0.0], [3.0, 2.0, 0.0, 1.0]))
    ranks = torch.from_numpy(standard_ranks(target))
    assert float(uncorrelated(-top, ranks)) == pytest.approx(float(uncorrelated(-bottom, ranks)))
    assert spearman(target, top) == spearman(target, bottom)

    def soft(apart):
        return float(np.log1p(np.exp(-apart / TEMPERATURE)))

    # by hand: pairs (better, worse) with the differences of scores of each error
    at_top = soft(-1) / 3 + (soft(1) + soft(2)) / 6 + (soft(2) + soft(3) + soft(1)) / 9
    at_bottom = soft(1) / 3 + (soft(3) + soft(2)) / 6 + (soft(2) + soft(1) + soft(-1)) / 9
    assert float(bradley_terry(top, ranks)) == pytest.approx(at_top)
    assert float(bradley_terry(bottom, ranks)) == pytest.approx(at_bottom)
    assert at_top > at_bottom + 0.5
    # a choice that the correlation makes the other way round: the bottom error is larger in its eyes
    worse = torch.tensor([3.0, 2.0, 0.0, 1.3]).double()
    assert float(uncorrelated(-worse, ranks)) > float(uncorrelated(-top, ranks))
    assert float(misplaced(-worse, ranks)) < float(misplaced(-top, ranks))


# --- weights ------------------------------------------------------------------------------------------------


def objective(rows, targets, ridge, a, start):
    def value(w):
        total, at = 0.0, 0
        for part, target in zip(rows, targets):
            found = torch.from_numpy(part / a["scale"] @ w)
            total += len(rows[0]) * float(bradley_terry(found, torch.from_numpy(target)))
            at += len(part)
        return total + ridge / 2 * float(((w - start) ** 2).sum())

    return value


def test_top_weights_minimise_their_objective():
    rng = np.random.default_rng(0)
    rows = [part - part.mean(0) for part in (rng.normal(size=(6, 5)), rng.normal(size=(9, 5)))]
    targets = [standard_ranks(part @ rng.random(5) + 0.5 * rng.normal(size=len(part))) for part in rows]
    share = np.sqrt(6 / 9)
    joined, goal = (
        np.concatenate([rows[0], share * rows[1]]),
        np.concatenate([targets[0], share * targets[1]]),
    )
    scale = np.sqrt((joined**2).sum() / 5)
    equal = (joined / scale).sum(1)
    start = np.full(5, max(equal @ goal / (equal @ equal), 1e-6))
    value = objective(rows, targets, 0.5, {"scale": scale}, start)
    found = fit_top_weights(rows, targets, 0.5)
    best = optimize.minimize(value, start, bounds=[(0, None)] * 5, method="L-BFGS-B", options={"ftol": 1e-14})
    assert (found >= 0).all()
    assert value(found) <= best.fun + 1e-7
    np.testing.assert_allclose(found, best.x, atol=1e-3)
    assert np.abs(found - fit_weights(joined, goal, 0.5)).max() > 0.01


def test_top_weights_trust_the_examples_that_tell_the_top_apart():
    """Half of the examples order the better half of candidates and are blind below, half the other way."""
    rng = np.random.default_rng(1)
    skill = np.sort(rng.normal(size=40))
    upper = np.where(skill > np.median(skill), skill, np.median(skill))
    lower = np.where(skill > np.median(skill), np.median(skill), skill)
    # each blind half is filled with a confusing order
    rows = np.stack([side + 0.4 * rng.normal(size=40) for side in [upper] * 15 + [lower] * 15], 1)
    rows = rows - rows.mean(0)
    target = standard_ranks(skill)
    plain, top = fit_weights(rows, target, 1.0), fit_top_weights([rows], [target], 1.0)
    assert top[:15].sum() / top.sum() > plain[:15].sum() / plain.sum() + 0.03


# --- the model's target -------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def digits():
    return ImageTask(data("digits"))


def test_the_model_expects_the_posterior_mean_given_everything(digits):
    probes, others = probe_configs(CELLS, 6, 0), companion_configs(CELLS, 6, 8, 0)
    every, rng = [*probes, *others], np.random.default_rng(0)
    truth = rng.random(6).tolist()
    copied = {"loss": rng.normal(size=14), "accuracy": rng.random(14)}
    figures = {**free_figures(digits, CELLS, every), **copied}
    found = modelled(CELLS, probes, truth, others, figures)
    shape = np.asarray([outline(CELLS, config) for config in every])
    clear = {name: corrected(shape, values, np.arange(14)) for name, values in copied.items()}
    at = np.asarray([describe(CELLS, config) for config in every])
    full = Results(np.arange(6), standard_ranks(truth))
    np.testing.assert_allclose(found, expected_scores(at, {**figures, **clear}, full=full)[6:])
    better = {**figures, "loss": copied["loss"] + np.eye(14)[9] * 20}
    assert modelled(CELLS, probes, truth, others, better)[3] > found[3]  # a lower loss promises more
    assert np.abs(modelled(CELLS, probes, [-t for t in truth], others, figures) - found).max() > 0.01
    few = modelled(CELLS, probes, truth, others, figures, basis=8)
    assert few.shape == found.shape
    assert np.abs(few - found).max() > 1e-6


def test_figures_that_are_not_defined_are_left_out(digits, monkeypatch):
    usual = probing.free_scores

    def partly(task, space, configs, names, seed):
        if "jacov" in names:
            raise InputError("jacov is not defined here")
        found = usual(task, space, configs, names, seed)
        return {name: [float("nan"), *values[1:]] for name, values in found.items()}

    every = CELLS.candidates()[:3]
    whole = free_figures(digits, CELLS, every)
    monkeypatch.setattr(probing, "free_scores", partly)
    found = free_figures(digits, CELLS, every)
    assert set(whole) - set(found) == {"jacov"}
    assert found["synflow"][0] == -np.inf  # the worst, not unknown
    np.testing.assert_array_equal(found["synflow"][1:], whole["synflow"][1:])


def test_scores_that_only_some_candidates_have_are_left_out(short_recipes):
    """Networks of GraphNAS mix activations, and only those with a ReLU have the score naswot."""
    task, space = tiny_task(), GraphNAS()
    every = sorted(
        space.sample(8, np.random.default_rng(0)), key=lambda config: "relu" not in config.values()
    )
    assert "naswot" in free_figures(task, space, every[:1])
    assert "naswot" not in free_figures(task, space, every[-1:])
    found = free_figures(task, space, every)
    assert "naswot" not in found
    assert {"jacov", "synflow"} <= set(found)
    small = condense(
        task, space, train_size=6, val_size=6, val_method="probes", truth_epochs=2,
        options={"probes": 4, "companions": 8, "target": "model", "probe_steps": 2},
    )  # fmt: skip
    assert len(small.val) == 6


def test_copied_figures_are_means_over_repeats_and_finite(digits):
    real = digits.pool(50, 0)

    def sure(value):
        return lambda data: torch.full((2, len(data), 10), value)

    def right(data):
        return 9.0 * torch.nn.functional.one_hot(data.y, 10).float()[None]

    found = copied_figures(digits, [sure(0.0), right, sure(float("nan"))], real)
    assert found["loss"][0] == pytest.approx(-np.log(10), rel=1e-5)
    assert found["accuracy"][1] == 1.0
    assert found["loss"][1] > -0.01
    assert found["loss"][2] == found["loss"].min() == found["loss"][0]


def test_companions_of_the_model_have_its_scores_alone(digits):
    networks = [lambda data, k=k: k * torch.nn.functional.one_hot(data.y, 10).float()[None] for k in range(6)]
    expected = np.array([0.3, 0.1, 0.9, -1.0, 0.4, 0.2])
    for name, loss in (("model", 0.0), ("ridge", 1.0)):
        found = make_companions(digits, networks, expected, 0, Probing(target=name, companions=6))
        real = copied_figures(digits, networks, digits.pool(2000, 0))["loss"]
        np.testing.assert_allclose(found.scores, standard(expected) + loss * standard(real), atol=1e-5)


@pytest.mark.parametrize("way", ["probes", "weighted"])
@pytest.mark.parametrize("changed", [{"target": "model"}, {"objective": "top"}])
def test_ways_follow_targets_and_objectives(way, changed, short_recipes):
    """Whole runs on a graph: S_val differs from the usual one, and equal runs give equal bytes."""
    given = {"probes": 5, "companions": 8, **({"probe_steps": 5} if way == "probes" else {})}

    def made(**more):
        small = condense(
            tiny_task(), GRAPHS, train_size=6, val_size=6, val_method=way, options={**given, **more},
            truth_epochs=2,
        )  # fmt: skip
        values = small.val.weight if way == "weighted" else small.tensors()["val/x"]
        return values.double() if values.layout == torch.strided else values.to_dense().double()

    usual, found = made(), made(**changed)
    assert found.shape == usual.shape
    assert not torch.allclose(found, usual)
    assert torch.equal(found, made(**changed))


def test_unknown_choices_are_refused():
    with pytest.raises(InputError, match="target 'modle' is not known; did you mean 'model'"):
        Probing(target="modle")
    with pytest.raises(InputError, match="objective 'best' is not known"):
        Probing(objective="best")


@pytest.mark.parametrize("way", ["probes", "weighted"])
def test_the_model_without_companions_is_refused_before_any_work(way):
    def planned(**options):
        return plan(tiny_task(), GRAPHS, train_size=6, val_method=way, options={"probes": 5, **options})

    with pytest.raises(InputError, match=f"target 'model' of val_method '{way}' .* companions=60"):
        planned(target="model")
    assert planned(target="model", companions=60).way.target == "model"


# --- networks that several plans share ----------------------------------------------------------------------


def test_plans_that_differ_in_what_they_learn_share_their_networks(tmp_path, monkeypatch, short_recipes):
    task = tiny_task()

    def planned(way, seed=0, **options):
        given = {"probes": 5, "companions": 4, **options}
        return plan(
            task, GRAPHS, train_size=6, val_size=6, val_method=way, options=given, seed=seed, truth_epochs=2
        )

    several = [
        planned("probes", probe_steps=3), planned("probes", probe_steps=3, objective="top"),
        planned("probes", target="model", probe_steps=3, companions=6),
    ]  # fmt: skip
    alone = [one.run(checkpoint=None) for one in several]
    trained, usual = [], probed.predictors

    def counting(*given, checkpoint=None, **more):
        before = written()
        found = usual(*given, checkpoint=checkpoint, **more)
        trained.append(sum(before.get(name) != at for name, at in written().items()))
        return found

    def written():
        return {file.name: file.stat().st_mtime_ns for file in tmp_path.iterdir()}

    monkeypatch.setattr(probed, "predictors", counting)
    together = [one.run(checkpoint=None, networks=tmp_path / "trained") for one in several]
    assert trained == [9, 0, 2]  # the third has two companions more
    for one, other in zip(alone, together):
        assert one.tensors().keys() == other.tensors().keys()
        for name, tensor in one.tensors().items():
            assert torch.equal(dense(tensor), dense(other.tensors()[name])), name
    assert together[1].record["phases"]["val"] > 0
    keys = [one.networks_key() for one in (*several, planned("probes", seed=1))]
    assert keys[0] == keys[1] == keys[2] != keys[3]


def dense(tensor):
    return tensor.to_dense() if tensor.layout != torch.strided else tensor
