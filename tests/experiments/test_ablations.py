"""``ablations``: the parts of a hypergradient, rows without a run of their own, differences by seed."""

import math
from dataclasses import replace

import pytest
import torch

import hcdc
from hcdc.condensers.validation._settings import Alignment
from hcdc.core.recipe import Recipe
from hcdc.experiments.reproductions._frame import Work
from hcdc.experiments.reproductions._run import key, read, reproduce
from hcdc.experiments.reproductions.ablations import (
    BASE,
    DAMPING,
    FILTERS,
    VARIANTS,
    Ablations,
    ImplicitOnly,
    LearnedLabels,
    OneTheta,
    Supernet,
    compared,
    derived,
    frequent,
    gain,
    no_response,
    own_solvers,
)
from hcdc.hypergrad import conjugate_gradient, hypergradient, response_hypergradient, solve_response
from hcdc.spaces import PolynomialFilter
from hcdc.tasks import GraphTask
from hcdc.training import init_many, train_many


def test_direct_and_implicit_variants_are_the_parts_of_the_hypergradient():
    data, space = hcdc.data("embedded"), PolynomialFilter(width=4)
    whole, implicit = (kind(data).bind(space) for kind in (GraphTask, ImplicitOnly))
    params = whole.init(torch.Generator().manual_seed(0))
    lam = torch.tensor([0.3, 0.5, 0.2, -0.1])
    train, val = whole.sample("train", 12, 0), whole.sample("val", 12, 0)
    solver = conjugate_gradient(20, damping=1e-3)
    parts = hypergradient(whole, params, lam, train, val, solver)
    assert min(parts.direct.norm(), parts.implicit.norm()) > 1e-4

    def found(task, solver):
        response = solve_response(task, params, lam, train, solver).x
        return response_hypergradient(task, params, lam, response, val)

    torch.testing.assert_close(found(whole, solver), parts.total, rtol=1e-3, atol=1e-5)
    torch.testing.assert_close(found(whole, no_response()), parts.direct)
    torch.testing.assert_close(found(implicit, solver), parts.implicit, rtol=1e-3, atol=1e-5)


def test_learned_labels_are_distributions_that_the_loss_is_a_mean_over():
    """The weights of a node's classes sum to 1, and the loss is the cross-entropy with them."""
    task = LearnedLabels(hcdc.data("embedded"))
    start = task.sample("val", 12, 0)
    tensors = task.tensors(start)
    tensors["labels"] = tensors["labels"] + 0.02 * torch.arange(12.0)[:, None] * torch.arange(6.0)
    made = task.replace(start, tensors)
    soft = made.weight.view(12, 6)
    torch.testing.assert_close(soft.sum(1), torch.ones(12))
    torch.testing.assert_close(task.tensors(made)["labels"].softmax(1), tensors["labels"].softmax(1))
    outputs = torch.randn(12, 6, generator=torch.Generator().manual_seed(0))
    expected = torch.nn.functional.cross_entropy(outputs, soft)
    torch.testing.assert_close(task.loss(outputs[made.index], made), expected)
    first = task.replace(start, task.tensors(start)).weight.view(12, 6)
    assert torch.equal(first.argmax(1), start.y)
    assert 0.88 < float(first.max()) < 0.93


def test_one_theta_minimises_the_mean_of_the_losses():
    """Adam on the mean loss, one lambda after another, is the oracle."""
    data, space, recipe = hcdc.data("embedded"), PolynomialFilter(width=3), Recipe(steps=4, lr=0.05)
    task = OneTheta(data).bind(space).by_recipe(recipe)
    lam = torch.tensor([[0.3, 0.5, 0.2, -0.1], [0.9, -0.4, 0.0, 0.6], [-0.2, 0.1, 0.7, 0.3]])
    train = task.sample("train", 12, 0)
    start = init_many(task, [(0,), (1,), (2,)], 0, "test", "cpu")
    found = train_many(task, start, lam, train, recipe)
    theta = {name: p[0].clone().requires_grad_() for name, p in start.items()}
    adam = torch.optim.Adam(theta.values(), lr=recipe.lr)
    for _ in range(recipe.steps):
        adam.zero_grad()
        torch.stack([task.train_loss(theta, row, train) for row in lam]).mean().backward()
        adam.step()
    for name, p in theta.items():
        torch.testing.assert_close(found[name], p.detach().expand_as(found[name]), rtol=1e-3, atol=1e-4)


def test_a_supernet_does_not_depend_on_where_it_is_used():
    data, recipe = hcdc.data("embedded"), Recipe(steps=3, lr=0.05)
    task = Supernet(data).bind(PolynomialFilter(width=3)).by_recipe(recipe)
    train, lam = task.sample("train", 12, 0), torch.tensor([[0.3, 0.5, 0.2, -0.1], [0.9, -0.4, 0.0, 0.6]])
    found = []
    for some in (lam, lam[:1].neg()):
        start = init_many(task, [(k,) for k in range(len(some))], 0, "test", "cpu")
        found.append(train_many(task, start, some, train, recipe))
    at = task.filters(lam)
    assert at.shape == (FILTERS, 4)
    assert bool((at.abs() <= 1).all())
    for name, p in found[0].items():
        torch.testing.assert_close(p, found[1][name].expand_as(p))


def test_every_task_is_judged_by_plain_trainings(tmp_path):
    """Whatever theta a variant aligns at: the filters and their full-data results are the same."""
    what = Ablations.at("smoke", {"variants": ("base", "supernet")})
    reproduce(what, [100], tmp_path / "out.jsonl")
    base, other = read(tmp_path / "out.jsonl", Ablations)
    assert base["truth"] == other["truth"]
    assert base["making"]["history"] != other["making"]["history"]


def test_every_variant_changes_one_plan(tmp_path):
    what = Ablations(graphs=("embedded:12",))
    units = what.units([100])
    assert len(units) == len(VARIANTS)
    assert all(unit["changes"] for unit in units if unit["variant"] != "base")
    options = [variant.options for variant in VARIANTS.values()]
    assert all(BASE.get(key) != value for changed in options for key, value in changed.items())


def test_only_the_schedule_differs_between_batched_and_sequential():
    """The base's points, theta and anchors are Algorithm 1's; both take 80 steps on S_val."""
    one, two = VARIANTS["batched"].options, VARIANTS["sequential"].options
    own = {"points", "steps", "theta_steps", "schedule"}
    assert {k: v for k, v in one.items() if k not in own} == {k: v for k, v in two.items() if k not in own}
    assert one["steps"] == two["trajectories"] * two["theta_steps"]
    assert one["points"] * Alignment().lam_every == two["theta_steps"]
    assert VARIANTS["sequential"].against == "batched"


def test_the_exact_inverse_is_damped_as_the_base_is():
    base = Alignment()
    assert (base.solver, base.damping) == ("conjugate_gradient", DAMPING)
    data = frequent(hcdc.data("embedded"), 3)
    task = GraphTask(data).bind(PolynomialFilter(width=2))
    assert task.train.graph.x.shape[1] == 3
    for part in (task.train, task.val):
        task.prepare(part)
    params = task.init(torch.Generator().manual_seed(0))
    lam = torch.tensor([0.3, 0.5, 0.2, -0.1])
    with own_solvers():
        solver = Alignment(solver="exact-damped").make_solver()
    found = hypergradient(task, params, lam, task.train, task.val, solver)
    expected = hypergradient(task, params, lam, task.train, task.val, conjugate_gradient(200, DAMPING))
    torch.testing.assert_close(found.implicit, expected.implicit, rtol=1e-3, atol=1e-6)
    assert float(found.diagnostics.residual) < 1e-4


def test_the_exact_variant_makes_a_copy_and_is_compared_with_its_own_base(tmp_path):
    what = Ablations.at("smoke", {"variants": ("base-64", "exact-64")})
    units = what.units([100])
    assert units[1]["changes"] == {"solver": "exact-damped", "width": 8, "words": 64}
    found = reproduce(what, [100], tmp_path / "out.jsonl").table.rows
    assert [row[4] for row in found] == ["", "base on 64 words"]
    corrs = {"base": {1: 0.5}, "base-64": {1: 0.5}, "exact-64": {1: 0.75}, "direct": {1: 0.25}}
    assert compared("exact-64", "base-64", corrs) == ["base on 64 words", "+0.250"]
    assert compared("direct", "base", corrs) == ["base", "-0.250"]
    assert compared("base-64", "base", corrs) == compared("base", "base", corrs) == ["", ""]
    assert compared("sequential", "batched", corrs) == ["base", "not run"]
    corrs |= {"sequential": {1: 0.125}}
    assert compared("sequential", "batched", corrs) == ["base", "-0.375"]
    assert compared("sequential", "batched", corrs | {"batched": {1: 0.25}}) == [
        VARIANTS["batched"].chosen, "-0.125",
    ]  # fmt: skip


def test_probes_come_with_their_own_settings():
    what, work = Ablations(graphs=("embedded:12",)), Work()
    units = {unit["variant"]: unit for unit in what.units([100])}
    assert what.planned(units["probes-5"], work).meta["val_method"] == "probes"
    assert units["probes-5"]["changes"] == {"probes": 5, "val_method": "probes"}
    assert what.planned(units["base"], work).meta["settings"]["val"]["trajectories"] == 16


def test_units_hold_what_a_variant_changes(monkeypatch):
    """So a record of another difference under the same name is not taken for the unit's."""
    what = Ablations(variants=("base", "implicit", "val-35", "neumann-5"))
    told = {unit["variant"]: unit["changes"] for unit in what.units([100])}
    assert told == {
        "base": {}, "implicit": {"task": "ImplicitOnly"}, "val-35": {"val_size": 35},
        "neumann-5": {"solver": "neumann", "iterations": 5},
    }  # fmt: skip
    before = what.units([100])
    monkeypatch.setitem(VARIANTS, "val-35", replace(VARIANTS["val-35"], planned={"val_size": 36}))
    assert [key(a) == key(b) for a, b in zip(before, what.units([100]))] == [True, True, False, True]


def test_rows_of_the_base_by_accuracy_and_of_its_rivals():
    record = {
        "label": "base", "seed": 7, "truth": [1.0, 2.0, 3.0],
        "repeats": {"score": [[0.1, 0.1], [0.2, 0.4], [0.2, 0.2]]},
        "rivals": [{"name": "real-val", "spearman": 0.5, "calibration": None}, {"name": "other"}],
    }  # fmt: skip
    found = derived([record, {**record, "label": "direct"}])
    assert found.keys() == {("accuracy", 7), ("real-val", 7)}
    assert found["accuracy", 7][:2] == pytest.approx((0.5, 2 / 3))
    assert math.isnan(found["real-val", 7][1])


def test_a_note_says_why_more_steps_change_nothing():
    """Held-out objectives of two seeds; the least came at step 150 and at step 25."""
    what = Ablations(variants=("steps-450",))

    def notes(*least):
        found = []
        for seed, best in enumerate(least):
            history = [{"step": step, "held_out": abs(step - best)} for step in range(0, 451, 25)]
            found.append({
                "label": "steps-450", "seed": seed, "spearman": 0.9, "calibration": 0.8,
                "making": {"condense_seconds": 1.0, "history": history},
                "unit": {"dataset": "cora", "size": 35},
            })  # fmt: skip
        return what.table(found).notes

    assert any("always came within the first 150" in note for note in notes(150, 25))
    assert not any("450 steps" in note for note in (*notes(150, 175), *notes()))


def test_what_a_row_is_compared_with_is_named_as_in_its_own_row():
    corrs = {name: {1: 0.5} for name in VARIANTS}
    told = {compared(name, variant.against, corrs)[0] for name, variant in VARIANTS.items()} - {""}
    chosen = [variant.chosen for variant in VARIANTS.values()]
    assert {chosen.count(words) for words in told} == {1}


def test_differences_are_paired_by_seed():
    assert gain({1: 0.5}, {1: 0.75, 2: 0.0}) == "-0.250"
    assert gain({1: 0.5, 2: 0.6}, {1: 0.4, 2: 0.5}) == "+0.100 [+0.100, +0.100]"
    assert gain({1: math.nan}, {1: 0.4}) == "undefined"
