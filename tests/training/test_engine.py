"""Jobs and engines: recipes of candidates, several training sets, and engines of one's own."""

import dataclasses

import numpy as np
import pytest
import torch
from torch import nn

from hcdc.core.checkpoint import Checkpoint
from hcdc.core.configs import config_hash
from hcdc.core.errors import InputError
from hcdc.core.recipe import Recipe
from hcdc.datasets import Rows, TableData, data
from hcdc.spaces import Box, Finite, PolynomialFilter, Product
from hcdc.tasks import GraphTask, ImageTask, TableTask
from hcdc.training import (
    ENGINES,
    Engine,
    Job,
    Lanes,
    Streams,
    engine_of,
    group_by_recipe,
    init_many,
    predictors,
    register_engine,
    run_candidates,
    score,
    score_many,
    train,
    train_many,
)

FILTERS = PolynomialFilter(order=2, width=4)
RATES = Product(FILTERS, Box(["lr", "weight_decay"], 1e-3, 0.1, "log"))
RECIPE = Recipe(steps=4, seeds=2)


@pytest.fixture(scope="module")
def graph():
    return GraphTask(data("embedded"))


@pytest.fixture(scope="module")
def filters(graph):
    return FILTERS.sample(3, np.random.default_rng(0))


def test_engines_are_found_by_the_task(graph, monkeypatch):
    assert isinstance(engine_of(graph), Lanes)
    assert isinstance(engine_of(ImageTask(data("digits"))), Streams)
    monkeypatch.setattr(GraphTask, "engine", "steam")
    with pytest.raises(
        InputError, match="engine of the graph task 'steam' is not known; did you mean 'stream"
    ):
        engine_of(graph)


def test_a_task_may_name_an_engine_of_ones_own(graph, filters, monkeypatch):
    monkeypatch.setitem(ENGINES, "backwards", None)

    @register_engine("backwards")
    class Backwards(Lanes):
        def score(self, job):
            return [results[::-1] for results in super().score(job)]

    job = Job(graph, FILTERS, filters, [graph.train], RECIPE, {"val": graph.val}, role="x")
    forwards = [result.values for result in score(job)[0]]
    monkeypatch.setattr(GraphTask, "engine", "backwards")
    assert [result.values for result in score(job)[0]] == forwards[::-1]
    assert issubclass(Backwards, Engine)


def test_lanes_on_several_training_sets_are_each_on_its_own(graph, filters):
    trains = [graph.sample("train", 12, seed) for seed in (0, 1)]
    parts = [{"val": graph.val}, {"val": graph.sample("val", 12, 0)}]
    batches = []
    found = score(Job(graph, FILTERS, filters, trains, RECIPE, parts, 5, "x", on_batch=batches.append))
    for results, one, some in zip(found, trains, parts):
        alone = run_candidates(graph, FILTERS, filters, one, some, RECIPE, 5, "x", "cpu")
        assert [r.values for r in results] == [r.values for r in alone]
    assert [result for batch in batches for _, result in batch] == found[0]
    assert found[0][0].values != found[1][0].values


def test_results_hold_every_initialisation(graph, filters):
    (results,) = score(Job(graph, FILTERS, filters, [graph.train], RECIPE, {"val": graph.val}, role="x"))
    for result in results:
        assert set(result.repeats) == set(result.values) == {"val.loss", "val.score"}
        for name, each in result.repeats.items():
            assert len(each) == 2
            assert float(torch.tensor(each, dtype=torch.float64).mean()) == result.values[name]
        assert len(set(result.repeats["val.loss"])) == 2


def test_a_candidate_may_change_its_training(graph):
    """Results are those of each candidate's own recipe, and in the order of the candidates."""
    configs = RATES.sample(3, np.random.default_rng(1))
    configs = [*configs, {**configs[0], "lr": configs[1]["lr"]}]
    batches = []
    job = Job(
        graph, RATES, configs, [graph.train], RECIPE, {"val": graph.val}, 2, "x", on_batch=batches.append
    )
    (found,) = score(job)
    assert {str(config): result for batch in batches for config, result in batch} == {
        str(config): result for config, result in zip(configs, found)
    }
    trained = train(job)
    assert found[0].values != found[3].values
    for config, result, predict in zip(configs, found, trained):
        changed = dataclasses.replace(RECIPE, lr=config["lr"], weight_decay=config["weight_decay"])
        decayed = GraphTask(graph.data, weight_decay=config["weight_decay"])
        bound = decayed.bind(RATES)
        (alone,) = score(Job(graph, RATES, [config], [graph.train], RECIPE, {"val": graph.val}, 2, "x"))
        assert result.values == alone[0].values
        keys = [(config_hash(config), k) for k in range(2)]
        lam = RATES.encode(config).float().expand(2, -1)
        params = train_many(bound, init_many(bound, keys, 2, "x", "cpu"), lam, graph.train, changed)
        loss = score_many(bound, params, lam, graph.val).loss
        assert result.repeats["val.loss"] == pytest.approx(loss.tolist(), rel=1e-5)
        outputs = predict(graph.val)
        losses = [float(graph.loss(output, graph.val)) for output in outputs]
        assert losses == pytest.approx(loss.tolist(), rel=1e-5)


def test_networks_train_by_recipes_of_their_own(tmp_path):
    """Images: a learning rate and a number of epochs per candidate; checkpoints are told apart."""
    task = ImageTask(data("digits"), lambda config: nn.Sequential(nn.Flatten(), nn.Linear(64, 10)))
    space = Finite([{"lr": 0.1, "epochs": 1}, {"lr": 0.01, "epochs": 1}, {"lr": 0.1, "epochs": 2}])
    small = task.sample("train", 20, 0)
    recipe = Recipe(steps=9, optimizer="sgd", batch=10, lr=0.5)
    given = {"seed": 1, "role": "x", "checkpoint": Checkpoint(tmp_path / "state", "key")}
    found = predictors(task, space, space.candidates(), small, recipe, **given)
    for config, predict in zip(space.candidates(), found):
        changed = dataclasses.replace(recipe, lr=config["lr"], steps=2 * config["epochs"])
        fixed = Finite("width", [1])
        (alone,) = predictors(task, fixed, fixed.candidates(), small, changed, seed=1, role="x")
        assert torch.equal(predict(task.val), alone(task.val))
    again = predictors(task, space, space.candidates(), small, recipe, **given)
    assert all(torch.equal(a(task.val), b(task.val)) for a, b in zip(found, again))
    assert len(list(tmp_path.iterdir())) == 3


def test_candidates_are_grouped_by_what_differs(graph, filters):
    job = Job(graph, FILTERS, [{}] * 4, [graph.train], dataclasses.replace(RECIPE, lr_end=0.005))
    groups = group_by_recipe(job, [{"lr": 0.1}, {"width": 3}, {"lr": 0.1, "width": 2}, {"lr": 0.001}])
    assert [numbers for numbers, _ in groups] == [[0, 2], [1], [3]]
    assert groups[1][1] is job
    assert [part.recipe.lr for _, part in groups] == [0.1, RECIPE.lr, 0.001]
    assert [part.recipe.lr_end for _, part in groups] == [0.005, 0.005, 0.001]


def test_weight_decay_is_refused_where_the_task_has_none_to_change():
    part = Rows(torch.randn(12, 2), torch.arange(12) % 2)
    task = TableTask(TableData("rows", "memory", part, part, part, num_classes=2))
    job = Job(task, task.space(), [{}], [task.train], RECIPE)
    with pytest.raises(InputError, match="'weight_decay': a table task has no weight decay to change"):
        group_by_recipe(job, [{"weight_decay": 0.1}])
