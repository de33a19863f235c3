"""Hyperparameters of training, trained for real: images, tables and graphs."""

import dataclasses

import numpy as np
import pytest
import torch
from scipy.sparse import csr_matrix
from torch.nn import functional as F

from hcdc.core.configs import config_hash
from hcdc.core.errors import InputError
from hcdc.core.recipe import Recipe
from hcdc.core.seeds import derive
from hcdc.core.sparse import SparseMatrix
from hcdc.datasets import Graph, GraphData, Rows, TableData, data
from hcdc.networks import GCN, Dropout, ResNet
from hcdc.spaces import Finite, GNNZoo, NASBench201, PolynomialFilter, Product, Training
from hcdc.tasks import GraphTask, ImageTask, TableTask
from hcdc.training import Job, engine_of, init_many, predictors, score, train_many

IMAGES = Recipe(steps=30, lr=0.1, optimizer="sgd", batch=32, clip=5.0)
FULL = Recipe(steps=20, lr=0.05)
CELL = "|nor_conv_3x3~0|+|nor_conv_1x1~0|avg_pool_3x3~1|+|skip_connect~0|nor_conv_3x3~1|nor_conv_1x1~2|"
LANES = ["lr", "weight_decay", "momentum", "dropout", "label_smoothing"]


@pytest.fixture(scope="module")
def digits():
    return ImageTask(data("digits"))


@pytest.fixture(scope="module")
def graph():
    """60 nodes in three classes, most of whose neighbours are of their class."""
    rng = np.random.default_rng(0)
    y = np.arange(60) % 3
    near = np.triu(rng.random((60, 60)) < np.where(y[:, None] == y, 0.2, 0.02), 1)
    x = torch.from_numpy(rng.normal(size=(60, 6)) + np.eye(3, 6)[y]).float()
    adj = SparseMatrix.from_scipy(csr_matrix((near | near.T).astype(float)), torch.float32, symmetric=True)
    train, val, test = torch.from_numpy(rng.permutation(60)).split([24, 18, 18])
    return GraphTask(GraphData("blocks", "memory", Graph(x, adj), torch.from_numpy(y), train, val, test, 3))


def table(classes=3, model="mlp"):
    rng = np.random.default_rng(0)
    x = torch.from_numpy(rng.normal(size=(120, 4))).float()
    noise = torch.from_numpy(rng.normal(size=120)).float()
    y = x[:, :3].argmax(1) if classes else x[:, 0] - x[:, 1] + 0.1 * noise
    rows = [Rows(x[a:b], y[a:b]) for a, b in ((0, 60), (60, 90), (90, 120))]
    return TableTask(TableData("rows", "memory", *rows, num_classes=classes), model)


def scores(task, space, configs, recipe, what="val.score", **more):
    job = Job(task, space, configs, [task.train], recipe, {"val": task.val}, seed=1, **more)
    return [result.values[what] for result in score(job)[0]]


# --- it is read ---------------------------------------------------------------------------------------------


def test_a_hopeless_learning_rate_comes_last(digits):
    space = Training({"lr": (1e-7, 1.0), "width": [4]})
    configs = [{"lr": lr, "width": 4} for lr in (0.3, 1e-7, 0.1)]
    found = scores(digits, space, configs, IMAGES)
    assert int(np.argmin(found)) == 1
    assert found[1] < 0.3 < 0.75 < min(found[0], found[2])


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("weight_decay", [1e-6, 0.01]), ("momentum", [0.5, 0.95]), ("dropout", [0.0, 0.5]),
        ("label_smoothing", [0.0, 0.2]), ("augment", ["none", "flip", "crop", "flip-crop"]),
        ("schedule", ["constant", "cosine", "linear", "step"]), ("batch", [16, 64]),
        ("optimizer", ["sgd", "nesterov", "adam", "adamw"]),
        ("epochs", [1, 2]), ("steps", [2, 6]), ("width", [2, 3]), ("depth", [1, 2]), ("lr", [0.01, 0.1]),
    ],
)  # fmt: skip
def test_every_setting_changes_how_a_small_resnet_is_trained(name, values, digits):
    """Candidates together are those that train alone, and no two of them are the same."""
    small = digits.sample("train", 60, 0)
    space = Training({name: values})
    configs = [{name: value} for value in values]
    recipe = dataclasses.replace(IMAGES, steps=6, batch=20, lr=0.05)
    found = predictors(digits, space, configs, small, recipe)
    outputs = [predict(digits.val) for predict in found]
    for config, one in zip(configs, outputs):
        (alone,) = predictors(digits, space, [config], small, recipe)
        assert torch.equal(alone(digits.val), one)
    for k, one in enumerate(outputs):
        assert all(float((one - other).abs().max()) > 1e-5 for other in outputs[:k])


def test_another_batch_size_keeps_the_number_of_epochs(digits):
    """899 images: 30 steps of 32 are 15 of 64 and 60 of 16; the full batch is one of 899."""
    space = Training({"batch": [16, 32, 64, 1024]})
    job = Job(digits, space, space.candidates(), [digits.train], IMAGES)
    ((_, part),) = engine_of(digits).groups(job)
    assert [part.recipe_of(k).steps for k in range(4)] == [60, 30, 15, 1]
    both = Training({"batch": [16], "epochs": [3]})
    ((_, part),) = engine_of(digits).groups(Job(digits, both, both.candidates(), [digits.train], IMAGES))
    assert part.recipe_of(0).steps == 3 * (899 // 16)


def test_images_train_a_resnet_of_the_width_and_depth_that_is_asked_for(digits):
    space = Training(["lr", "width", "depth"])
    config = {"lr": 0.1, "width": 16, "depth": 2}
    assert digits.network(space, config) == ResNet(1, 10, 16, 2)
    assert digits.network(Training(["lr"]), {"lr": 0.1}) == ResNet(1, 10)
    assert digits.parameter_count(space, config) == ResNet(1, 10, 16, 2).parameter_count()
    digits.fit(Training())


def test_cells_with_a_learning_rate_and_dropout(digits):
    space = Product(NASBench201(channels=2, cells=1), Training(["lr", "dropout"]))
    digits.fit(space)
    configs = [{"cell": CELL, "lr": lr, "dropout": p} for lr, p in ((0.001, 0.0), (0.2, 0.0), (0.2, 0.5))]
    losses = scores(digits, space, configs, IMAGES, "val.loss")
    assert losses[1] < losses[0]
    assert abs(losses[2] - losses[1]) > 1e-3


@pytest.mark.parametrize(
    ("space", "name"),
    [
        (Product(NASBench201(channels=2), Training(["width"])), "width"),
        (Product(Training(["lr"]), Finite("gain", [1, 2])), "gain"),
    ],
)
def test_what_nothing_reads_is_refused(space, name, digits):
    with pytest.raises(InputError, match=f"hyperparameter '{name}': nothing reads it"):
        digits.fit(space)


def test_tables_and_graphs_refuse_what_they_do_not_read(graph):
    for task, names in (
        (graph, ["augment"]), (table(), ["augment"]), (table(None), ["label_smoothing"]),
        (table(model="logistic"), ["dropout"]), (table(model="logistic"), ["width"]),
    ):  # fmt: skip
        with pytest.raises(InputError, match=f"hyperparameter '{names[0]}': nothing reads it"):
            task.fit(Training(names))
    for task in (graph, table()):
        task.fit(Training([*LANES, "batch", "optimizer", "schedule", "epochs", "width", "depth"]))


# --- lanes --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("optimizer", ["sgd", "nesterov", "adam", "adamw"])
@pytest.mark.parametrize("kind", ["graph", "table", "penalised"])
def test_candidates_with_settings_of_their_own_train_in_one_batch(kind, optimizer, graph):
    """Lanes with different rates, decays, momenta, dropout and smoothing are the trainings by each recipe."""
    task = graph if kind == "graph" else table()
    training = Training(LANES if kind != "penalised" else [n for n in LANES if n != "weight_decay"])
    space = Product(task.space(), training) if kind == "penalised" else training
    configs = space.sample(3, np.random.default_rng(0))
    recipe = dataclasses.replace(FULL, optimizer=optimizer, seeds=2, lr=0.1)
    job = Job(task, space, configs, [task.train], recipe, {"val": task.val}, seed=1)
    ((numbers, part),) = engine_of(task).groups(job)
    assert numbers == [0, 1, 2]
    assert set(part.own[0]) >= {d.name for d in training.dimensions()}
    together = score(job)[0]
    for config, result in zip(configs, together):
        changes = {name: config[name] for name in LANES if name in config}
        alone = dataclasses.replace(recipe, **changes)
        bound = task.bind(space).by_recipe(alone)
        (own,) = score(Job(task, space, [config], [task.train], recipe, {"val": task.val}, seed=1))[0]
        assert result.values == pytest.approx(own.values, rel=1e-4)
        keys = [(config_hash(config), r) for r in range(2)]
        lam = space.encode(config).float().expand(2, -1)
        masks = torch.tensor([derive(1, "train-dropout", *key) for key in keys])
        start = init_many(bound, keys, 1, "train", "cpu")
        params = train_many(bound, start, lam, task.train, alone, keys=masks)
        for r in range(2):
            lane = {name: p[r] for name, p in params.items()}
            loss = float(task.loss(bound.predict(lane, lam[r], task.val), task.val))
            assert result.repeats["val.loss"][r] == pytest.approx(loss, rel=1e-3)


def test_widths_train_apart_and_rates_of_one_width_together(graph):
    space = Training(["lr", "width"])
    configs = [{"lr": lr, "width": w} for lr, w in ((0.1, 8), (0.1, 16), (0.01, 8), (0.01, 16))]
    for task in (graph, table()):
        job = Job(task, space, configs, [task.train], FULL, {"val": task.val})
        groups = [numbers for numbers, _ in engine_of(task).groups(job)]
        assert groups == [[0, 2], [1, 3]]
        found = score(job)[0]
        for config, result in zip(configs, found):
            (alone,) = score(Job(task, space, [config], [task.train], FULL, {"val": task.val}))[0]
            assert result.values == pytest.approx(alone.values, rel=1e-4)
    assert graph.bind(space, configs[1]).net == GCN(graph.features, graph.num_classes, width=16)
    wide = table().bind(Training(["width", "depth"]), {"width": 8, "depth": 3})
    shapes = {name: tuple(p.shape) for name, p in wide.init(torch.Generator()).items()}
    assert shapes["weight2"] == (8, 8)
    assert len(shapes) == 8


@pytest.mark.parametrize("space", [PolynomialFilter(order=1, width=4), GNNZoo()], ids=["filters", "zoo"])
def test_graph_networks_have_dropout(space, graph):
    product = Product(space, Training(["dropout"]))
    architecture = space.sample(1, np.random.default_rng(0))[0]
    configs = [{**architecture, "dropout": p} for p in (0.0, 0.5)]
    kept, dropped = scores(graph, product, configs, Recipe(steps=3, lr=0.05), "val.loss")
    assert abs(kept - dropped) > 1e-4
    (plain,) = scores(graph, space, [architecture], Recipe(steps=3, lr=0.05), "val.loss")
    assert np.isfinite(plain)


def test_a_network_with_learned_weights_is_better_than_chance_on_a_table():
    space = Training(["lr", "dropout", "depth"])
    configs = [{"lr": 0.05, "dropout": 0.2, "depth": 2}, {"lr": 1e-3, "dropout": 0.2, "depth": 2}]
    good, slow = scores(table(), space, configs, Recipe(steps=60))
    assert good > 0.8 > slow


# --- dropout and smoothing ----------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["image", "table", "graph"])
def test_dropout_is_on_in_training_and_off_in_scoring(kind, digits, graph, monkeypatch):
    task = {"image": digits, "table": table(), "graph": graph}[kind]
    seen = []
    call = Dropout.__call__
    monkeypatch.setattr(
        Dropout, "__call__", lambda self, x, *a, **k: seen.append(1) or call(self, x, *a, **k)
    )
    space = Training(["dropout"])
    recipe = Recipe(steps=4, lr=0.05, batch=10, optimizer="sgd")
    (predict,) = predictors(task, space, [{"dropout": 0.5}], task.sample("train", 20, 0), recipe)
    trained = len(seen)
    assert trained >= 4
    first = predict(task.val)
    assert torch.equal(first, predict(task.val))
    assert len(seen) == trained
    (plain,) = predictors(task, space, [{"dropout": 0.0}], task.sample("train", 20, 0), recipe)
    assert not torch.equal(plain(task.val), first)


@pytest.mark.parametrize("weighted", [False, True])
def test_label_smoothing_is_torchs(weighted):
    generator = torch.Generator().manual_seed(0)
    outputs = torch.randn(12, 3, generator=generator, dtype=torch.float64)
    y = torch.arange(12) % 3
    weight = torch.rand(12, generator=generator, dtype=torch.float64) if weighted else None
    found = table().smoothed_loss(outputs, Rows(outputs, y, weight), 0.3)
    each = F.cross_entropy(outputs, y, label_smoothing=0.3, reduction="none")
    expected = each.mean() if weight is None else (weight * each).sum() / weight.sum()
    torch.testing.assert_close(found, expected)
