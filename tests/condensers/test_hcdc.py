"""HCDC on tiny graphs and tables: sizes, bytes, interruptions, what is learned, and what is refused."""

import dataclasses
import functools
import json

import numpy as np
import pytest
import torch
from quick_hcdc import PAPER, QUICK, SPACE, Interrupting, content, make, poor_start, short_recipes, tiny_table
from reducer_conformance import reduce
from tiny_graph import tiny_data, tiny_task

import hcdc.condensers.validation._batched as learning
import hcdc.condensers.validation._run as points
from hcdc.condensers import Alignment, allocate_labels, learn_validation, make_reducer, make_validation
from hcdc.core.checkpoint import Checkpoint
from hcdc.core.configs import config_hash
from hcdc.core.errors import InputError, NumericalError
from hcdc.core.progress import Progress
from hcdc.core.recipe import Recipe
from hcdc.hypergrad import trajectory_starts
from hcdc.spaces import Box, Finite, GNNZoo, PolynomialFilter, halves
from hcdc.tasks import GraphTask, TableTask

pytestmark = pytest.mark.usefixtures("short_recipes")
__all__ = ["short_recipes"]


def learn(task=None, seed=0, val_size=9, trained=4, **settings):
    """`learn_validation` on a random S_train, candidates trained for ``trained`` steps."""
    task = task or tiny_task()
    recipe = Recipe(steps=trained, lr=0.05)
    return learn_validation(
        task,
        SPACE,
        task.sample("train", 9, seed),
        val_size,
        seed,
        Alignment(**{**QUICK, **settings}),
        recipe,
        recipe,
        device="cpu",
        progress=Progress(),
        checkpoint=Checkpoint(None),
    )


@functools.cache
def quick(seed=0, paper=False):
    """A copy of the tiny graph that several tests compare with."""
    return make(seed=seed, options=PAPER if paper else QUICK)


# --- what comes out -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("setting", ["transductive", "inductive"])
def test_sizes_labels_and_form(setting):
    task = tiny_task(setting)
    small = make(task, train_size=7, val_size=11)
    assert (len(small.train), len(small.val)) == (7, 11)
    assert torch.equal(small.train.y, allocate_labels(task.train.y, 7, 3))
    assert torch.equal(small.val.y, allocate_labels(task.val.y, 11, 3))
    for part in (small.train, small.val):
        assert part.graph.x.shape == (len(part), task.data.graph.num_features)
        assert not part.graph.x.requires_grad
        assert bool(part.graph.x.isfinite().all())
        assert torch.equal(part.graph.adj, part.graph.adj.t())
    assert small.meta["metric"] == small.meta["calibrated_recipe"]["metric"] == "loss"
    json.dumps(small.meta)


def test_s_train_is_that_of_the_method_that_makes_it_and_s_val_is_learned():
    task = tiny_task()
    small = make(task, train_method="kcenter")
    assert torch.equal(small.train.graph.x, reduce(make_reducer("kcenter"), task, "train", 6).graph.x)
    near = dataclasses.replace(task, structure="reach")
    start = near.sample("val", 9, 0)
    assert torch.equal(small.val.graph.adj, start.graph.adj)
    assert not torch.equal(small.val.graph.x, start.graph.x)
    torch.testing.assert_close(
        small.val.graph.x, start.graph.x, rtol=0, atol=4 * 1e-3 * 1.5
    )  # steps times lr


@pytest.mark.parametrize("paper", [False, True])
def test_same_seed_same_bytes_other_seed_other_bytes(paper):
    first = quick(paper=paper).to_bytes()
    assert make(options=PAPER if paper else QUICK).to_bytes() == first
    assert quick(5, paper).to_bytes() != first


def test_the_original_is_not_changed():
    task = tiny_task(dense=True)
    before = task.data.fingerprint()
    make(task)
    assert task.data.fingerprint() == before


def test_every_configuration_met_is_in_the_file_and_every_full_training_a_probe():
    small = quick(5)
    starts = {config_hash(SPACE.decode(lam)) for lam in trajectory_starts(SPACE, 4, 5)}
    assert starts < set(small.meta["candidates"])
    assert len(small.meta["candidates"]) == 3 + 2 * 4  # the held-out ones and two points a trajectory
    assert small.record["full_trainings"] == len(small.meta["probes"]["lam"]) == 3 + 2 * 4
    met = {config_hash(SPACE.decode(torch.tensor(lam))) for lam in small.meta["probes"]["lam"]}
    assert met == set(small.meta["candidates"])
    assert all(0 <= score <= 1 for score in small.meta["probes"]["score"])


def test_balanced_and_proportional_labels():
    assert make(val_size=12).val.y.bincount().tolist() == [6, 4, 2]
    assert make(val_size=12, options={**QUICK, "labels": "balanced"}).val.y.bincount().tolist() == [4, 4, 4]


def test_a_learned_adjacency_is_symmetric_and_non_negative_without_loops(monkeypatch):
    poor_start(monkeypatch)
    plain = make(val_size=12).val.graph.adj
    adj = make(val_size=12, options={**QUICK, "adjacency": True, "lr": 0.05}).val.graph.adj
    assert torch.equal(adj, adj.t())
    assert bool((adj >= 0).all())
    assert not bool(adj.diagonal().any())
    assert not torch.equal(adj, plain)
    assert bool((plain > 0)[adj > 0].all())  # edges it began with, by other weights


@pytest.mark.parametrize("structure", ["reach", "induced"])
def test_structure_is_that_of_the_nodes_s_val_starts_from(structure):
    task = tiny_task()
    found = make(task, options={**QUICK, "points": 1, "structure": structure}).val.graph.adj
    assert torch.equal(found, dataclasses.replace(task, structure=structure).sample("val", 9, 0).graph.adj)


# --- interruptions ------------------------------------------------------------------------------------------


def count_full_trainings(monkeypatch, task):
    calls = []
    train_many = points.train_many

    def counted(bound, params, lam, data, recipe):
        if data is bound.train:
            calls.append(len(lam))
        return train_many(bound, params, lam, data, recipe)

    monkeypatch.setattr(points, "train_many", counted)
    return calls


def test_an_interrupted_run_continues_to_the_same_bytes(tmp_path, monkeypatch):
    """Wherever it is stopped: between chunks of original trainings, between looks, before the next lambda."""
    monkeypatch.setattr(GraphTask, "lanes", lambda *_: 2)
    task = tiny_task()
    calls = count_full_trainings(monkeypatch, task)
    counting = Interrupting()
    whole = make(task, progress=counting).to_bytes()
    trainings, last = sum(calls), counting.reports
    assert trainings == 3 + 2 * 4
    for stop in (2, 4, last // 2, last - 1, last):
        file = tmp_path / f"{stop}.ckpt"
        calls.clear()
        with pytest.raises(KeyboardInterrupt):
            make(task, progress=Interrupting(stop), checkpoint=file)
        before = sum(calls)
        assert any(name.name.startswith(file.name) for name in tmp_path.iterdir()) == (before > 0)
        assert make(task, checkpoint=file).to_bytes() == whole
        assert sum(calls) == trainings  # none is made twice
        assert not list(tmp_path.iterdir())


def test_interrupted_again_and_again_it_gets_there(tmp_path):
    whole, file, interrupted, small = quick().to_bytes(), tmp_path / "run.ckpt", 0, None
    while small is None:
        try:
            small = make(progress=Interrupting(3), checkpoint=file)
        except KeyboardInterrupt:
            interrupted += 1
    assert interrupted > 2
    assert small.to_bytes() == whole


def test_an_interrupted_run_of_algorithm_1_continues_to_the_same_bytes(tmp_path):
    counting = Interrupting()
    options = {**PAPER, "trajectories": 3}
    whole = make(options=options, progress=counting).to_bytes()
    for stop in (2, counting.reports - 1):
        file = tmp_path / "run.ckpt"
        with pytest.raises(KeyboardInterrupt):
            make(options=options, progress=Interrupting(stop), checkpoint=file)
        assert make(options=options, checkpoint=file).to_bytes() == whole


def test_a_checkpoint_of_another_command_is_not_used(tmp_path):
    file = tmp_path / "run.ckpt"
    with pytest.raises(KeyboardInterrupt):
        make(seed=1, progress=Interrupting(5), checkpoint=file)
    assert any(tmp_path.iterdir())
    assert make(seed=5, checkpoint=file).to_bytes() == quick(5).to_bytes()


# --- what is learned ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("distance", "anchors"), [("cosine", 1.0), ("cosine", 0.0), ("scaled_l2", 1.0)])
def test_s_val_improves_the_objective_on_lambdas_it_never_saw(distance, anchors):
    size = {"trajectories": 16, "points": 1, "holdout": 8, "batch": 16, "iterations": 5}
    found = learn(
        trained=60, distance=distance, anchors=anchors, steps=24, check=8, patience=9, lr=0.02, **size
    )
    values = [entry["held_out"] for entry in found.history]
    assert min(values) < 0.85 * values[0]


def test_the_best_iterate_is_kept():
    """With steps that are far too long the held-out objective goes up again."""
    settings = {"points": 1, "patience": 99, "lr": 0.5}
    found = learn(**settings, steps=8)
    values = [entry["held_out"] for entry in found.history]
    best = int(np.argmin(values))
    assert 0 < best < len(values) - 1
    cut = learn(**settings, steps=best)
    assert [entry["held_out"] for entry in cut.history] == values[: best + 1]
    assert torch.equal(found.val.graph.x, cut.val.graph.x)


def test_the_start_is_kept_where_nothing_is_better(caplog):
    found = learn(points=1, patience=99, lr=5.0, steps=4)
    assert [entry["step"] for entry in found.history] == [0, 1, 2, 3, 4]
    values = [entry["held_out"] for entry in found.history]
    assert min(values[1:]) > values[0]
    assert torch.equal(found.val.graph.x, tiny_task().sample("val", 9, 0).graph.x)
    assert "S_val stays as it began" in caplog.text


def test_it_stops_early_where_nothing_improves():
    long = learn(points=1, patience=2, lr=0.5, steps=20)
    assert len(long.history) < 20
    values = [entry["held_out"] for entry in long.history]
    assert min(values[-2:]) >= min(values[:-2])


def test_algorithm_1_aligns():
    """The same trajectories once more: the second pass is better aligned than the first."""
    found = learn(**{**PAPER, "repeats": 2, "theta_steps": 4, "lam_every": 3, "lr": 0.005, "step_lam": 0.1})
    losses = [entry["train"] for entry in found.history]
    assert len(losses) == 2 * 2
    assert sum(losses[2:]) < 0.5 * sum(losses[:2])
    assert found.full_trainings == 0
    assert found.probes["lam"] == []


def test_shared_responses_need_no_training_on_the_original(monkeypatch):
    task = tiny_task()
    calls = count_full_trainings(monkeypatch, task)
    small = make(task, options={**QUICK, "response": "shared", "anchors": 0.0})
    assert calls == []
    assert small.record["full_trainings"] == 0
    assert small.meta["probes"] == {"lam": [], "score": []}
    assert content(small) != content(make(task, options={**QUICK, "anchors": 0.0}))


# --- mini-batches and neighbour sampling --------------------------------------------------------------------


def test_mini_batches_of_s_val():
    whole = content(quick())
    for everything in (9, 50):
        assert content(make(val_size=9, options={**QUICK, "val_batch": everything})) == whole
    few = make(val_size=9, options={**QUICK, "val_batch": 3})
    assert content(few) != whole
    assert content(few) == content(make(val_size=9, options={**QUICK, "val_batch": 3}))


def test_with_every_neighbour_kept_sampling_changes_nothing():
    whole = quick()
    for options in ({"fanout": ",".join(["90"] * 10)}, {"fanout": "", "nodes": 90}):
        sampled = make(options={**QUICK, **options})
        torch.testing.assert_close(sampled.val.graph.x, whole.val.graph.x, rtol=1e-4, atol=1e-5)
        assert sampled.meta["probes"]["score"] == pytest.approx(whole.meta["probes"]["score"], abs=1e-6)


@pytest.mark.parametrize("paper", [False, True])
def test_sampled_neighbours(tmp_path, paper):
    task, options = tiny_task(), {**(PAPER if paper else QUICK), "fanout": "3,2", "nodes": 8}
    counting = Interrupting()
    small = make(task, options=options, progress=counting)
    assert "P" not in task.data.graph._cache  # nothing was made of the whole graph
    assert content(small) != content(quick(paper=paper))
    file = tmp_path / "run.ckpt"
    with pytest.raises(KeyboardInterrupt):
        make(task, options=options, progress=Interrupting(counting.reports - 1), checkpoint=file)
    assert make(task, options=options, checkpoint=file).to_bytes() == small.to_bytes()


# --- other spaces and tasks ---------------------------------------------------------------------------------


def test_a_finite_space_is_condensed_on_one_half():
    pytest.importorskip("torch_geometric")
    space = GNNZoo(relax_width=4)
    options = {**QUICK, "points": 1, "holdout": 2, "steps": 2, "trajectories": 3}
    small = make(space=space, seed=2, options=options)
    mine, judging = ({config_hash(config) for config in half} for half in halves(space, 2))
    assert set(small.meta["candidates"]) == mine
    assert not mine & judging
    weights = torch.tensor(small.meta["probes"]["lam"])
    assert bool((weights >= 0).all())
    torch.testing.assert_close(weights[:, :-2].sum(1), torch.ones(len(weights)))


@pytest.mark.parametrize("classes", [3, None])
@pytest.mark.parametrize("options", [QUICK, {**QUICK, "val_batch": 4}, PAPER])
def test_tables(classes, options, monkeypatch):
    poor_start(monkeypatch)
    task = tiny_table(classes)
    small = make(task, task.space(), options=options)
    assert (len(small.train), len(small.val)) == (6, 9)
    assert small.meta["train_method"] == "random"
    assert small.meta["full_recipe"]["metric"] == ("loss" if classes is None else "accuracy")
    start = task.sample("val", 9, 0)
    assert torch.equal(small.val.y, start.y)
    assert not torch.equal(small.val.x, start.x)
    assert bool(small.val.x.isfinite().all())


def test_a_table_improves_the_objective_too():
    task = tiny_table()
    options = {**QUICK, "points": 1, "trajectories": 10, "batch": 8, "steps": 40, "check": 5, "lr": 0.05}
    values = [entry["held_out"] for entry in make(task, task.space(), options=options).record["history"]]
    assert min(values) < 0.9 * values[0]


def test_one_dimension_has_no_cosine():
    task = tiny_table()
    single = TableTask(task.data, "logistic", penalty="single")
    small = make(single, single.space())
    assert len(small.val) == 9
    assert small.meta["settings"]["val"]["distance"] == "scaled_l2"
    assert make(single, single.space(), options={**QUICK, "distance": "scaled_l2"}).to_bytes() == (
        small.to_bytes()
    )
    with pytest.raises(InputError, match="scaled_l2"):
        make(single, single.space(), options={**QUICK, "distance": "cosine"})
    assert make(task, task.space()).meta["settings"]["val"]["distance"] == "cosine"


# --- what is refused ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"schedule": "sequential"}, "needs response 'shared', got 'own'"),
        ({"schedule": "sequential", "response": "shared", "val_batch": 3}, "no mini-batches"),
        ({"distance": "cosin"}, "did you mean 'cosine'"),
        ({"response": "mine"}, "response 'mine'"),
        ({"schedule": "batch"}, "did you mean 'batched'"),
        ({"labels": "equal"}, "choose one of: balanced, proportional"),
        ({"steps": 0}, "'steps' of method 'hcdc' must be at least 1, got 0"),
        ({"theta_steps": -1}, "'theta_steps'"),
        ({"holdout": 1}, "'holdout' of method 'hcdc' must be at least 2, got 1"),
        ({"lr": 0.0}, "'lr' of method 'hcdc' must be more than 0, got 0.0"),
        ({"lr": float("nan")}, "'lr'"),
        ({"step_lam": -0.1}, "'step_lam'"),
        ({"anchors": -1.0}, "'anchors' of method 'hcdc' must be at least 0"),
        ({"damping": -1.0}, "'damping'"),
        ({"val_batch": -1}, "'val_batch'"),
        ({"nodes": -1}, "'nodes'"),
        ({"fanout": "10,x"}, "'10,5,5', or empty for the whole graph, got '10,x'"),
        ({"fanout": "10,0"}, "'fanout'"),
        ({"fanout": "10,"}, "'fanout'"),
        ({"fanout": " "}, "'fanout'"),
        ({"curvature": "fisher"}, "curvature"),
        ({"solver": "gauss"}, "solver"),
        ({"relaxation": "gumbel"}, "relaxation 'gumbel' is not known; choose one of: gdas, softmax"),
        ({"tau": 0.0}, "'tau' of method 'hcdc' must be at least 0.2"),
        ({"tau": float("inf")}, "'tau'"),
    ],
)
def test_settings_that_cannot_be_are_refused(settings, words):
    with pytest.raises(InputError) as error:
        Alignment(**settings)
    assert words in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"step": 3}, "did you mean 'steps'"),
        ({"steps": 2.5}, "'steps' of val_method 'both' must be int, got 2.5"),
        ({"steps": True}, "'steps'"),
        ({"fanout": 10}, "'fanout' of val_method 'both' must be str"),
        ({"adjacency": 1}, "'adjacency' of val_method 'both' must be bool"),
    ],
)
def test_names_and_types_of_settings(settings, words):
    with pytest.raises(InputError, match=words):
        make_validation("both", tiny_task(), options=settings)


@pytest.mark.parametrize(("option", "value"), [("adjacency", True), ("fanout", "3"), ("nodes", 5)])
def test_settings_for_graphs_are_refused_for_tables(option, value):
    task = tiny_table()
    with pytest.raises(InputError, match=f"'{option}' of val_method 'both' is not for table tasks"):
        make(task, task.space(), options={**QUICK, option: value})


def test_operations_are_drawn_of_cells_alone(monkeypatch):
    monkeypatch.setattr(points, "train_many", None)
    table = tiny_table()
    for task, space in ((None, SPACE), (table, table.space())):
        with pytest.raises(InputError, match=f"'gdas' draws the operations of cells.* '{space.name}' have"):
            make(task, space, options={**QUICK, "relaxation": "gdas"})


def test_a_space_that_does_not_fit_the_task_is_refused_before_any_work(monkeypatch):
    monkeypatch.setattr(points, "train_many", None)
    with pytest.raises(InputError, match="builds no graph network"):
        make(space=Box(["a", "b"], 0.0, 1.0))
    with pytest.raises(InputError, match=r"4 penalties; use task.space\(\)"):
        make(tiny_table(), Finite("a", [1, 2]))


def huge_task(factor):
    data = tiny_data(dense=True)
    graph = data.graph.with_x(data.graph.x * factor)
    return GraphTask(dataclasses.replace(data, graph=graph))


@pytest.mark.parametrize("factor", [1e25, 1e38])
@pytest.mark.parametrize("options", [QUICK, PAPER])
def test_numbers_that_overflow_stop_with_a_diagnosis(factor, options, tmp_path):
    with pytest.raises(NumericalError, match="finite") as error:
        make(huge_task(factor), options=options, checkpoint=tmp_path / "run.ckpt")
    assert "try" in str(error.value) or "may help" in str(error.value)
    assert not list(tmp_path.iterdir())


def test_a_learning_rate_that_overflows_stops_with_a_diagnosis():
    with pytest.raises(NumericalError, match=r"smaller lr \(now 1e\+30\)"):
        make(options={**QUICK, "lr": 1e30})


def test_a_gradient_that_is_not_a_number_stops_with_a_diagnosis(monkeypatch):
    def broken(task, params, lam, response, g_T, v_T, s_val, *_):
        return torch.tensor(0.5), {"x": torch.full_like(s_val.graph.x, torch.nan)}

    monkeypatch.setattr(learning, "anchored_gradient", broken)
    with pytest.raises(NumericalError, match=r"gradient of S_val is not finite at step 1 \(loss 0.5\)"):
        make()


def test_larger_spaces_have_room():
    space = PolynomialFilter(order=1, width=4, filters=2)
    assert len(make(space=space).val) == 9


def test_trajectories_go_down_the_synthetic_hypergradient(monkeypatch):
    """By a step of length step_lam, or less where the space ends."""
    steps = []
    plain = learning.Batched.next_lam

    def watched(self, points, t, resumed):
        data = self.task.replace(self.s_val, self.tensors)
        with torch.no_grad():
            _, g = learning.values_and_hypergradients(
                self.task, points.params, points.lam, points.response, data
            )
        found = plain(self, points, t, resumed)
        steps.append((points.lam.clone(), g, found.clone()))
        return found

    monkeypatch.setattr(learning.Batched, "next_lam", watched)
    make(options={**QUICK, "points": 3, "step_lam": 0.05})
    assert len(steps) == 2
    for before, g, after in steps:
        unit = g / g.norm(dim=1, keepdim=True).clamp_min(1e-12)  # one candidate's is 0 here
        torch.testing.assert_close(after, SPACE.project(before - 0.05 * unit))
        along = ((after - before) * g).sum(1)
        assert bool((along <= 0).all())
        assert bool((along < 0).any())
