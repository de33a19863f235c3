"""Trained candidates as functions of a labelled set: the forward pass of what training gives."""

import dataclasses
import itertools

import numpy as np
import pytest
import torch
from torch import nn

from hcdc.core.checkpoint import Checkpoint
from hcdc.core.configs import config_hash
from hcdc.core.errors import InputError, NumericalError
from hcdc.core.progress import Progress
from hcdc.core.recipe import Recipe
from hcdc.core.seeds import stream
from hcdc.datasets import Rows, TableData, data
from hcdc.spaces import Finite, NASBench201, stack
from hcdc.tasks import ImageTask, TableTask
from hcdc.training import (
    Job,
    _lanes,
    _networks,
    _streams,
    init_many,
    predictors,
    run_candidates,
    score,
    train_many,
    train_networks,
)

SPACE = NASBench201(channels=2)
RECIPE = Recipe(steps=3, lr=0.05, optimizer="sgd", batch=10, seeds=2)


@pytest.fixture(scope="module")
def task():
    return ImageTask(data("digits"))


@pytest.fixture(scope="module")
def cells():
    return SPACE.candidates()[:3]


@pytest.fixture(scope="module")
def made(task, cells):
    """S_train and the predictors of three cells, two repeats each."""
    train = task.sample("train", 20, 0)
    return train, predictors(task, SPACE, cells, train, RECIPE, seed=3, role="probe", device="cpu")


@pytest.fixture(scope="module")
def trained(task, cells, made):
    """The networks of the cells, and what training makes of their parameters, by cell and repeat."""
    networks = [task.network(SPACE, cell).fast() for cell in cells]
    found = train_networks(
        networks, [made[0]], RECIPE, lambda n, k, r, p: [{name: q.clone() for name, q in p.items()}],
        seed=3, role="probe", device="cpu",
    )  # fmt: skip
    return networks, [sets[0] for sets in found]


def test_outputs_are_those_of_the_trained_networks(task, made, trained):
    assert len(made[1]) == 3
    assert [len(params) for params in trained[1]] == [2, 2, 2]
    stored = task.subset(task.val, torch.arange(143))
    assert stored.x.dtype == torch.uint8
    seen = task.inputs(stored.x)
    for network, predict, params in zip(trained[0], made[1], trained[1]):
        plain = dataclasses.replace(network, fused=False)
        outputs = predict(stored)
        assert outputs.shape == (2, 143, 10)
        for output, theta in zip(outputs, params):
            assert torch.equal(output, network.forward(theta, None, seen))
            torch.testing.assert_close(output, plain.forward(theta, None, seen), rtol=1e-4, atol=1e-4)
        assert not torch.equal(outputs[0], outputs[1])


def test_outputs_are_differentiable_in_the_examples(task, made, trained):
    small = task.sample("val", 10, 0)
    x = small.x.clone().requires_grad_()
    data_with = task.replace(small, {"x": x})
    network = dataclasses.replace(trained[0][1], fused=False)
    for repeat in range(2):
        (slope,) = torch.autograd.grad(task.loss(made[1][1](data_with)[repeat], data_with), x)
        theta = {name: p.double() for name, p in trained[1][1][repeat].items()}
        double = small.x.double().requires_grad_()
        loss = torch.nn.functional.cross_entropy(network.forward(theta, None, double), small.y)
        (expected,) = torch.autograd.grad(loss, double)
        assert float(expected.abs().max()) > 1e-4
        torch.testing.assert_close(slope.double(), expected, rtol=1e-3, atol=1e-6)


@pytest.fixture
def two_lanes(monkeypatch):
    """Repeats of a network train two at a time, as they do on CUDA."""
    monkeypatch.setattr(_networks._Runs, "lanes", lambda run, network: (2, 1))


FOUR = dataclasses.replace(RECIPE, seeds=4)


@pytest.fixture(scope="module")
def four(task, cells, made):
    """Predictors of three cells, four repeats each, trained one by one."""
    return predictors(task, SPACE, cells, made[0], FOUR, seed=3, role="probe", device="cpu")


def test_lanes_give_the_outputs_of_repeats_in_order(task, cells, made, four, two_lanes):
    """Two groups of two lanes: outputs and slopes are those of four trainings one by one."""
    found = predictors(task, SPACE, cells, made[0], FOUR, seed=3, role="probe", device="cpu")
    small = task.sample("val", 10, 0)
    for predict, alone in zip(found, four):
        outputs, expected = predict(task.val), alone(task.val)
        assert outputs.shape == expected.shape == (4, 539, 10)
        assert not any(torch.allclose(a, b, atol=0.01) for a, b in itertools.combinations(expected, 2))
        torch.testing.assert_close(outputs, expected, rtol=1e-3, atol=1e-3)
        slopes = []
        for one in (predict, alone):
            x = small.x.clone().requires_grad_()
            some = one(task.replace(small, {"x": x}))
            loss = sum((k + 1) * task.loss(output, small) for k, output in enumerate(some))
            slopes.append(torch.autograd.grad(loss, x)[0])
        assert float(slopes[1].abs().max()) > 1e-3
        torch.testing.assert_close(*slopes, rtol=1e-2, atol=1e-4)


def test_a_predictor_keeps_its_own_parameters(task, cells, made, four):
    """Training re-uses its tensors: what was trained later must not change what was trained before."""
    alone = predictors(task, SPACE, cells[:1], made[0], FOUR, seed=3, role="probe", device="cpu")[0]
    assert torch.equal(four[0](task.val), alone(task.val))
    assert not torch.equal(four[0](task.val), four[1](task.val))


def test_tables_have_predictors_too():
    rng = np.random.default_rng(0)
    x = torch.from_numpy(rng.normal(size=(40, 3)))
    y = torch.arange(40) % 2
    rows = [Rows(x[a:b], y[a:b]) for a, b in ((0, 20), (20, 30), (30, 40))]
    task = TableTask(TableData("rows", "memory", *rows, num_classes=2))
    space = task.space()
    configs = space.sample(3, rng)
    recipe = Recipe(steps=5, lr=0.1, seeds=2)
    found = predictors(task, space, configs, task.train, recipe, seed=1, role="probe", device="cpu")
    assert len(found) == 3
    for config, predict in zip(configs, found):
        keys = [(config_hash(config), repeat) for repeat in range(2)]
        lam = stack(space, [config]).expand(2, -1)
        params = train_many(task, init_many(task, keys, 1, "probe", "cpu"), lam, task.train, recipe)
        outputs = predict(task.val)
        assert outputs.shape == (2, 10, 2)
        for repeat, output in enumerate(outputs):
            one = {name: p[repeat] for name, p in params.items()}
            torch.testing.assert_close(output, task.predict(one, lam[0], task.val))
        assert not torch.equal(outputs[0], outputs[1])


# --- results of candidates ---------------------------------------


def results(task, cells, train, parts, **options):
    return run_candidates(task, SPACE, cells, train, parts, RECIPE, 3, "probe", "cpu", **options)


def test_results_are_means_over_repeats_on_every_part(task, cells, made):
    train, found = made
    weight = torch.rand(20, generator=torch.Generator().manual_seed(0))
    weighted = task.replace(task.sample("val", 20, 1), {"weight": weight})
    batches = []
    got = results(task, cells, train, {"val": task.val, "w": weighted}, on_batch=batches.append)
    assert [config for batch in batches for config, _ in batch] == cells
    assert [result for batch in batches for _, result in batch] == got
    for result, predict in zip(got, found):
        for name, part in (("val", task.val), ("w", weighted)):
            outputs = predict(part)
            assert len(outputs) == 2
            loss = torch.stack([task.loss(o, part) for o in outputs]).mean()
            score = torch.stack([task.score(o, part) for o in outputs]).mean()
            assert result.values[f"{name}.loss"] == pytest.approx(float(loss), rel=1e-5)
            assert result.values[f"{name}.score"] == pytest.approx(float(score), rel=1e-5)
        assert result.seconds > 0


def test_results_of_lanes_are_those_of_every_repeat(task, cells, made, four, two_lanes):
    """Losses and accuracies of two groups of two lanes, whose mean is over all four."""
    weight = torch.rand(20, generator=torch.Generator().manual_seed(0))
    parts = {"val": task.val, "w": task.replace(task.sample("val", 20, 1), {"weight": weight})}
    got = run_candidates(task, SPACE, cells, made[0], parts, FOUR, 3, "probe", "cpu")
    for result, predict in zip(got, four):
        for name, part in parts.items():
            outputs = predict(part)
            losses = torch.stack([task.loss(o, part) for o in outputs])
            scores = torch.stack([task.score(o, part) for o in outputs])
            assert float(losses.std()) > 1e-3
            assert result.values[f"{name}.loss"] == pytest.approx(float(losses.mean()), rel=1e-3)
            assert result.values[f"{name}.score"] == pytest.approx(float(scores.mean()), abs=1e-3)
            assert result.repeats[f"{name}.loss"] == pytest.approx(losses.tolist(), rel=1e-3)
            assert result.repeats[f"{name}.score"] == pytest.approx(scores.tolist(), abs=1e-3)


@pytest.mark.parametrize("scored", [1000, 200])
def test_a_score_is_loss_and_accuracy_by_lane(scored, task, trained, monkeypatch):
    """Of one share, and of three: 180, 180 and 179 images, each with BatchNorm's statistics of its own."""
    monkeypatch.setattr(_streams, "SCORED", scored)
    order = torch.arange(539) if scored == 1000 else torch.randperm(539, generator=stream(0, "shares"))
    shares = task.inputs(task.val.x)[order].tensor_split(1 if scored == 1000 else 3)
    network, thetas = trained[0][0], trained[1][0]
    both = {name: torch.cat([theta[name] for theta in thetas]) for name in thetas[0]}
    found = _streams.score_images(network.side_by_side(2), both, task, task.val, None)
    assert found.shape == (2, 2)
    for row, theta in zip(found, thetas):
        (alone,) = _streams.score_images(network, theta, task, task.val, None)
        outputs = torch.cat([network.forward(theta, None, x) for x in shares])[order.argsort()]
        expected = torch.stack([task.loss(outputs, task.val), task.score(outputs, task.val)])
        torch.testing.assert_close(alone, expected)
        torch.testing.assert_close(row, expected, rtol=1e-3, atol=1e-4)
    assert float((found[0] - found[1]).abs()[0]) > 1e-3


def test_a_result_does_not_depend_on_the_candidates_beside_it(task, cells, made):
    train = made[0]
    parts = {"val": task.val}
    together = [r.values for r in results(task, cells, train, parts)]
    assert [r.values for r in results(task, cells[::-1], train, parts)] == together[::-1]
    assert results(task, cells[1:2], train, parts)[0].values == together[1]


def test_images_that_lie_class_by_class_are_scored_like_others(task, cells, made, monkeypatch):
    """Shares of one class each would have BatchNorm's statistics of that class."""
    monkeypatch.setattr(_streams, "SCORED", 20)
    by_class = task.subset(task.val, task.val.y.argsort(stable=True))
    shuffled = task.subset(task.val, torch.randperm(539, generator=torch.Generator().manual_seed(1)))
    parts = {"sorted": by_class, "shuffled": shuffled}
    values = [r.values for r in results(task, cells, made[0], parts)]
    sizes = [abs(v["sorted.loss"] - v["shuffled.loss"]) for v in values]
    assert max(sizes) < 0.05 * max(v["shuffled.loss"] for v in values)


def test_parts_are_scored_in_equal_shares(task, cells, made, monkeypatch):
    """BatchNorm takes the statistics of a share; 539 images in shares of at most 200 are 180, 180 and 179."""
    monkeypatch.setattr(_streams, "SCORED", 200)
    train, found = made
    got = results(task, cells[:1], train, {"val": task.val})[0].values["val.score"]
    order = torch.randperm(539, generator=stream(0, "shares"))
    shares = order.tensor_split(3)
    assert [len(share) for share in shares] == [180, 180, 179]
    outputs = torch.cat([found[0](task.subset(task.val, i)) for i in shares], 1)[:, order.argsort()]
    assert outputs.shape == (2, 539, 10)
    right = sum(float(task.score(o, task.val)) / 2 for o in outputs)
    assert got == pytest.approx(right, rel=1e-6)


def test_a_network_that_diverges_is_named(task, cells, made):
    wild = dataclasses.replace(RECIPE, lr=1e30)
    with pytest.raises(NumericalError, match=r"candidate .*cell.* non-finite loss .*\(now 1e\+30\)"):
        run_candidates(task, SPACE, cells[:1], made[0], {"val": task.val}, wild, 0, "x", "cpu")


# --- statistics of the training images ---------------------------------------


BY_TRAIN = dataclasses.replace(RECIPE, statistics="train")


@pytest.fixture(scope="module")
def by_train(task, cells, made):
    """The predictors of `made`, whose BatchNorm takes the statistics of S_train."""
    return predictors(task, SPACE, cells, made[0], BY_TRAIN, seed=3, role="probe", device="cpu")


def in_front(network, theta, train, x):
    """Logits of ``x`` in float64 with S_train in front, from whose images the statistics are."""
    plain = dataclasses.replace(network, fused=False, reference=len(train))
    double = {name: p.double() for name, p in theta.items()}
    return plain.forward(double, None, torch.cat([train.x.double(), x.double()]))[len(train) :]


def test_the_statistics_of_a_recipe(task):
    stored = task.subset(task.train, torch.arange(7))
    assert stored.x.dtype == torch.uint8
    by_batch, by_train = (Job(task, SPACE, [], [stored], recipe) for recipe in (RECIPE, BY_TRAIN))
    assert _streams._statistics(by_batch, stored) is None
    assert torch.equal(_streams._statistics(by_train, stored), task.inputs(stored.x))
    ready = task.sample("train", 10, 0)
    assert torch.equal(_streams._statistics(by_train, ready), ready.x)


def test_predictors_follow_the_recipe(task, made, trained, by_train):
    train, by_batch = made
    seen = task.inputs(task.val.x)
    for network, predict, other, params in zip(trained[0], by_train, by_batch, trained[1]):
        outputs = predict(task.val)
        assert outputs.shape == (2, 539, 10)
        for output, theta in zip(outputs, params):
            expected = in_front(network, theta, train, seen)
            torch.testing.assert_close(output.double(), expected, rtol=1e-4, atol=1e-4)
        assert float((outputs - other(task.val)).abs().max()) > 0.1
        # on S_train itself both recipes are one, and no image depends on those beside it
        torch.testing.assert_close(predict(train), other(train), rtol=1e-4, atol=1e-4)
        some = torch.tensor([5, 90, 31])
        few = task.subset(task.val, some)
        torch.testing.assert_close(predict(few), outputs[:, some], rtol=1e-4, atol=1e-4)
        assert not torch.allclose(other(few), other(task.val)[:, some], atol=0.1)


def test_statistics_are_those_of_stored_pixels_normalised(task, cells):
    stored = task.subset(task.train, torch.arange(20))
    ready = task.replace(stored, {"x": task.inputs(stored.x)})
    assert stored.x.dtype == torch.uint8
    one, two = (
        predictors(task, SPACE, cells[:1], train, BY_TRAIN, seed=3, role="probe", device="cpu")[0]
        for train in (stored, ready)
    )
    assert torch.equal(one(task.val), two(task.val))


def test_slopes_in_the_examples_by_statistics_of_training(task, made, trained, by_train):
    """Against the network in float64, whose own slope is that of finite differences."""
    small = task.sample("val", 10, 0)
    network, theta = trained[0][1], trained[1][1][0]

    def loss(x):
        return nn.functional.cross_entropy(in_front(network, theta, made[0], x), small.y)

    double = small.x.double().requires_grad_()
    (expected,) = torch.autograd.grad(loss(double), double)
    to = torch.randn(small.x.shape, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        central = (loss(small.x + 1e-6 * to) - loss(small.x - 1e-6 * to)) / 2e-6
    assert float((expected * to).sum()) == pytest.approx(float(central), rel=1e-5)
    x = small.x.clone().requires_grad_()
    outputs = by_train[1](task.replace(small, {"x": x}))[0]
    (slope,) = torch.autograd.grad(nn.functional.cross_entropy(outputs, small.y), x)
    assert float(expected.abs().max()) > 1e-4
    torch.testing.assert_close(slope.double(), expected, rtol=1e-3, atol=1e-6)


def test_lanes_with_statistics_of_training_are_repeats_one_by_one(task, cells, made, monkeypatch):
    four = dataclasses.replace(FOUR, statistics="train")
    alone = predictors(task, SPACE, cells[:2], made[0], four, seed=3, role="probe", device="cpu")
    monkeypatch.setattr(_networks._Runs, "lanes", lambda run, network: (2, 1))
    found = predictors(task, SPACE, cells[:2], made[0], four, seed=3, role="probe", device="cpu")
    results = run_candidates(task, SPACE, cells[:2], made[0], {"val": task.val}, four, 3, "probe", "cpu")
    for result, predict, one in zip(results, found, alone):
        outputs = one(task.val)
        torch.testing.assert_close(predict(task.val), outputs, rtol=1e-3, atol=1e-3)
        loss = torch.stack([task.loss(o, task.val) for o in outputs]).mean()
        assert result.values["val.loss"] == pytest.approx(float(loss), rel=1e-3)


@pytest.mark.parametrize("scored", [1000, 71, 10])
def test_results_by_statistics_of_training_do_not_depend_on_shares(
    scored, task, cells, made, by_train, monkeypatch
):
    monkeypatch.setattr(_streams, "SCORED", scored)
    few = task.sample("val", 20, 0)
    parts = {"val": task.val, "bright": task.replace(few, {"x": 2 * few.x + 0.5})}
    got = run_candidates(task, SPACE, cells, made[0], parts, BY_TRAIN, 3, "probe", "cpu")
    by_batch = results(task, cells, made[0], parts)
    for result, predict, other in zip(got, by_train, by_batch):
        for name, part in parts.items():
            outputs = predict(part)
            loss = torch.stack([task.loss(o, part) for o in outputs]).mean()
            score = torch.stack([task.score(o, part) for o in outputs]).mean()
            assert result.values[f"{name}.loss"] == pytest.approx(float(loss), rel=1e-4)
            assert result.values[f"{name}.score"] == pytest.approx(float(score), abs=1e-6)
        assert abs(result.values["bright.loss"] - other.values["bright.loss"]) > 0.02


def test_every_training_set_has_statistics_of_its_own(task, cells, made):
    """Results on two sets together are those on each."""
    other = task.sample("train", 20, 1)
    other = task.replace(other, {"x": 3 * other.x - 1})
    found = score(Job(task, SPACE, cells, [made[0], other], BY_TRAIN, {"val": task.val}, 3, "probe"))
    for train, got in zip((made[0], other), found):
        alone = run_candidates(task, SPACE, cells, train, {"val": task.val}, BY_TRAIN, 3, "probe", "cpu")
        assert [r.values for r in got] == [r.values for r in alone]
    assert abs(found[0][0].values["val.loss"] - found[1][0].values["val.loss"]) > 1e-3


def test_training_sets_may_have_parts_of_their_own(task, cells, made):
    trains, vals = [made[0], task.sample("train", 20, 1)], [task.sample("val", 10, seed) for seed in (0, 1)]
    own = [{"val": val} for val in vals]
    found = score(Job(task, SPACE, cells, trains, RECIPE, own, 3, "probe"))
    for k, train in enumerate(trains):
        for j, part in enumerate(own):
            alone = run_candidates(task, SPACE, cells, train, part, RECIPE, 3, "probe", "cpu")
            assert ([r.values for r in found[k]] == [r.values for r in alone]) == (j == k)


def test_a_network_for_all_candidates_has_no_such_statistics(task, cells, made):
    """ConvNet-3 normalises every image by itself."""
    plain = ImageTask(task.data, "convnet")
    outputs, values = [], []
    for recipe in (RECIPE, BY_TRAIN):
        short = dataclasses.replace(recipe, steps=1, seeds=1)
        (predict,) = predictors(plain, SPACE, cells[:1], made[0], short, seed=3, role="probe", device="cpu")
        outputs.append(predict(made[0]))
        (result,) = run_candidates(
            plain, SPACE, cells[:1], made[0], {"few": made[0]}, short, 3, "probe", "cpu"
        )
        values.append(result.values)
    assert torch.equal(*outputs)
    assert values[0] == values[1]


def test_modules_of_a_user_are_scored_by_the_batch_alone(task, made):
    own = ImageTask(task.data, lambda config: nn.Sequential(nn.Flatten(), nn.Linear(64, 10)))
    space = Finite("width", [1, 2])
    train, parts = made[0], {"few": made[0]}
    words = "'statistics' 'train': modules of your own are scored with the statistics of the images"
    (predict,) = predictors(own, space, [{"width": 1}], train, BY_TRAIN, seed=0, role="x", device="cpu")
    with pytest.raises(InputError, match=words):
        predict(train)
    with pytest.raises(InputError, match=words):
        run_candidates(own, space, space.candidates(), train, parts, BY_TRAIN, 0, "x", "cpu")
    assert len(run_candidates(own, space, space.candidates(), train, parts, RECIPE, 0, "x", "cpu")) == 2


# --- interruptions ---------------------------------------


class Stopping(Progress):
    """Notes the steps of its phase and raises `KeyboardInterrupt` at number ``stop``."""

    def __init__(self, stop=None):
        super().__init__(every=0.0)
        self.stop, self.seen = stop, []

    def report(self, text, last=False):
        self.seen.append(text.split(",")[0])
        if len(self.seen) == self.stop:
            raise KeyboardInterrupt


@pytest.fixture
def counted(monkeypatch):
    """How many candidates each call trained for predictors."""
    calls = []
    of_images, of_others = _streams.train_networks, _lanes.train_many

    def networks(some, *rest, **options):
        calls.append(len(some))
        return of_images(some, *rest, **options)

    def many(*arguments):
        calls.append(1)
        return of_others(*arguments)

    monkeypatch.setattr(_streams, "train_networks", networks)
    monkeypatch.setattr(_lanes, "train_many", many)
    return calls


def kept(task, space, configs, train, recipe, path, stop=None):
    """Predictors with a checkpoint, and what progress was told."""
    progress = Stopping(stop)
    found = predictors(
        task, space, configs, train, recipe, seed=3, role="probe", device="cpu",
        checkpoint=Checkpoint(path, "key"), phase=progress.phase("networks", len(configs)),
    )  # fmt: skip
    return found, progress.seen


def outputs_and_slopes(task, predict):
    """The bytes of a predictor's outputs and of a slope in the examples."""
    small = task.sample("val", 10, 0)
    x = small.x.clone().requires_grad_()
    some = predict(task.replace(small, {"x": x}))
    loss = sum((k + 1) * task.loss(output, small) for k, output in enumerate(some))
    (slope,) = torch.autograd.grad(loss, x)
    with torch.no_grad():
        return predict(task.val).numpy().tobytes(), slope.numpy().tobytes()


@pytest.mark.parametrize("lanes", [1, 2])
@pytest.mark.parametrize("statistics", ["batch", "train"])
def test_interrupted_trainings_continue_to_the_same_bits(
    lanes, statistics, task, cells, made, counted, tmp_path, monkeypatch
):
    """Two networks a batch: the first batch is kept, and the third cell alone is trained after it."""
    monkeypatch.setattr(_networks._Runs, "lanes", lambda run, network: (lanes, 1))
    recipe = dataclasses.replace(FOUR, statistics=statistics)
    whole = predictors(task, SPACE, cells, made[0], recipe, seed=3, role="probe", device="cpu")
    expected = [outputs_and_slopes(task, predict) for predict in whole]
    assert len(set(expected)) == 3
    assert counted == [2, 1]
    with pytest.raises(KeyboardInterrupt):
        kept(task, SPACE, cells, made[0], recipe, tmp_path / "state", stop=1)
    assert sorted(file.name for file in tmp_path.iterdir()) == ["state.network0", "state.network1"]
    continued, told = kept(task, SPACE, cells, made[0], recipe, tmp_path / "state")
    assert counted == [2, 1, 2, 1]
    assert told == ["[1] networks: 3/3"]
    again, told = kept(task, SPACE, cells, made[0], recipe, tmp_path / "state")
    assert counted == [2, 1, 2, 1]  # nothing more
    assert told == ["[1] networks: 3/3"]
    for found in (continued, again):
        assert [outputs_and_slopes(task, predict) for predict in found] == expected


def test_what_was_kept_does_not_depend_on_the_batches_of_the_rest(
    task, cells, made, counted, tmp_path, monkeypatch
):
    """Whatever is missing is trained, three at a time where there are as many cores."""
    arguments = (task, SPACE, cells, made[0], FOUR, tmp_path / "state")
    whole, told = kept(*arguments)
    assert told == ["[1] networks: 2/3", "[1] networks: 3/3"]
    (tmp_path / "state.network1").unlink()
    monkeypatch.setattr(_streams, "networks_at_once", lambda device: 3)
    continued, _ = kept(*arguments)
    assert counted == [2, 1, 1]
    for one, other in zip(whole, continued):
        assert outputs_and_slopes(task, one) == outputs_and_slopes(task, other)


def test_networks_of_another_kind_are_not_taken(task, cells, made, counted, tmp_path):
    """Another recipe, candidate or command: trained anew."""
    path = tmp_path / "state"
    kept(task, SPACE, cells, made[0], RECIPE, path)
    other = dataclasses.replace(RECIPE, lr=0.1)
    found, _ = kept(task, SPACE, cells, made[0], other, path)
    assert counted == [2, 1, 2, 1]
    plain = predictors(task, SPACE, cells, made[0], other, seed=3, role="probe", device="cpu")
    assert [outputs_and_slopes(task, p) for p in found] == [outputs_and_slopes(task, p) for p in plain]
    counted.clear()
    kept(task, SPACE, [cells[0], cells[2], cells[2]], made[0], other, path)
    assert counted == [1]
    predictors(
        task, SPACE, cells, made[0], other, seed=3, role="probe", device="cpu",
        checkpoint=Checkpoint(path, "another key"),
    )  # fmt: skip
    assert counted == [1, 2, 1]


def test_networks_of_a_changed_module_are_not_taken(task, made, counted, tmp_path):
    """Two modules of one name and shape: the parameters of the first are nothing to the second."""
    space = Finite("width", [4])

    def factory(activation):
        return lambda config: nn.Sequential(nn.Flatten(), nn.Linear(64, 4), activation(), nn.Linear(4, 10))

    first, second = (ImageTask(task.data, factory(a)) for a in (nn.ReLU, nn.Tanh))
    arguments = (space, space.candidates(), made[0], RECIPE, tmp_path / "state")
    (one,), _ = kept(first, *arguments)
    (two,), _ = kept(second, *arguments)
    assert counted == [1, 1]
    assert outputs_and_slopes(task, one) != outputs_and_slopes(task, two)
    (again,), _ = kept(second, *arguments)
    assert counted == [1, 1]
    assert outputs_and_slopes(task, again) == outputs_and_slopes(task, two)


def test_interrupted_trainings_of_tables_continue_to_the_same_bits(counted, tmp_path):
    rng = np.random.default_rng(0)
    x, y = torch.from_numpy(rng.normal(size=(40, 3))), torch.arange(40) % 2
    rows = [Rows(x[a:b], y[a:b]) for a, b in ((0, 20), (20, 30), (30, 40))]
    task = TableTask(TableData("rows", "memory", *rows, num_classes=2))
    configs = task.space().sample(4, rng)
    arguments = (task, task.space(), configs, task.train, Recipe(steps=5, lr=0.1, seeds=2))
    whole = predictors(*arguments, seed=3, role="probe", device="cpu")
    with pytest.raises(KeyboardInterrupt):
        kept(*arguments, tmp_path / "state", stop=3)
    assert len(counted) == 4 + 3
    continued, told = kept(*arguments, tmp_path / "state")
    assert len(counted) == 4 + 4
    assert told == ["[1] networks: 4/4"]
    for one, other in zip(whole, continued):
        assert outputs_and_slopes(task, one) == outputs_and_slopes(task, other)
