import dataclasses

import pytest
import torch
from torch.nn import functional as F

import hcdc
from hcdc.core.checkpoint import Checkpoint
from hcdc.core.errors import InputError, NumericalError
from hcdc.datasets import Images
from hcdc.networks import ConvNet, Initialiser, _convnet_vector, loss_gradient
from hcdc.tasks import ImageTask
from hcdc.training import (
    ConvNetRecipe,
    _convnets,
    augment_each,
    convnet_accuracy,
    draw_each,
    embeddings,
    train_convnets,
)
from hcdc.training._convnets import accuracy

QUICK = ConvNetRecipe(epochs=6, batch=8, width=6, depth=2, lr=0.05)


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


@pytest.fixture(scope="module")
def task():
    return ImageTask(hcdc.data("digits"), model="convnet")


def test_a_vector_holds_the_parameters_and_their_distribution():
    net = ConvNet(3, 10, (16, 16), width=32)
    initialiser = Initialiser(net, "cpu")
    vector = torch.empty(initialiser.length)
    initialiser.write(vector, torch.rand(initialiser.length, generator=generator()))
    drawn, usual = net.views(vector), net.init(generator(1))
    assert {name: p.shape for name, p in drawn.items()} == {name: p.shape for name, p in usual.items()}
    assert sum(p.numel() for p in usual.values()) == initialiser.length
    for name, p in drawn.items():
        assert p.data_ptr() >= vector.data_ptr()  # a view
        if name.endswith(("scale", "shift")):
            assert torch.equal(p, usual[name])
        elif p.numel() > 500:
            assert float(p.abs().max()) == pytest.approx(float(usual[name].abs().max()), rel=0.01)
            assert abs(float(p.mean())) < 0.1 * float(p.std())


def test_embedding_equals_the_network_also_in_its_derivative():
    net = ConvNet(3, 5, (9, 8), width=6, depth=3)
    params = {name: p.double() for name, p in net.init(generator()).items()}
    for name in params:
        if name.endswith(("scale", "shift", "bias")):
            params[name] += torch.randn(params[name].shape, generator=generator(1), dtype=torch.float64)
    x = torch.randn(4, 3, 9, 8, generator=generator(2), dtype=torch.float64).requires_grad_()
    mine, usual = net.logits(params, x), net.forward(params, None, x)
    assert torch.allclose(mine, usual, atol=1e-9)
    assert torch.allclose(net.embed(params, x), net.features(params, x), atol=1e-9)
    ours, theirs = (torch.autograd.grad(out.square().sum(), x)[0] for out in (mine, usual))
    assert torch.allclose(ours, theirs, atol=1e-7)


def plain_training(task, small, seed, recipe):
    """The published evaluation as a plain loop with torch's optimiser."""
    net, initialiser = recipe.net(task), Initialiser(recipe.net(task), "cpu")
    draw = generator(seed)
    vector = torch.empty(initialiser.length)
    initialiser.write(vector, torch.rand(initialiser.length, generator=draw))
    params = {name: p.clone().requires_grad_() for name, p in net.views(vector).items()}
    count, batch = len(small), recipe.batch
    steps = -(-count // batch)
    at_once = max(1, 48 // steps)
    x = task.inputs(small.x)
    for epoch in range(recipe.epochs):
        if epoch in (0, recipe.epochs // 2 + 1):
            rate = recipe.lr if epoch == 0 else recipe.lr / 10
            optimiser = torch.optim.SGD(
                params.values(), rate, momentum=recipe.momentum, weight_decay=recipe.weight_decay
            )
        if epoch % at_once == 0:
            order = torch.rand(at_once, count, generator=draw).argsort(1)
            if recipe.augment:
                a = draw_each(draw, batch, net.size, batches=at_once * steps)
        for k in range(steps):
            index = order[epoch % at_once][k * batch : (k + 1) * batch]
            seen = x[index]
            if recipe.augment:
                first = (epoch % at_once * steps + k) * batch
                seen = augment_each(seen, a[first : first + len(index)])
            optimiser.zero_grad()
            F.cross_entropy(net.forward(params, None, seen), small.y[index]).backward()
            optimiser.step()
    return {name: p.detach() for name, p in params.items()}


@pytest.mark.parametrize("written", [False, True])
@pytest.mark.parametrize("augmented", [False, True])
def test_training_equals_the_plain_loop(task, augmented, written, monkeypatch):
    """Derivatives by autograd as on a CPU, and written out as on a GPU.

    Biases of convolutions have no effect, and weight decay alone moves them.
    """
    monkeypatch.setattr(_convnet_vector, "pays", lambda device: written)
    monkeypatch.setattr(_convnets, "pays", lambda device: written)
    small = task.sample("train", 20, 0)  # batches of 8, 8 and 4
    recipe = dataclasses.replace(QUICK, augment=augmented)
    (found,) = train_convnets(task, small, [5], recipe)
    usual = plain_training(task, small, 5, recipe)
    for name, p in found.items():
        assert torch.allclose(p, usual[name], atol=2e-4), name
    (shorter,) = train_convnets(task, small, [5], dataclasses.replace(recipe, epochs=3))
    assert float((found["linear.weight"] - shorter["linear.weight"]).abs().max()) > 0.02


def test_both_gradients_are_those_of_the_network(monkeypatch):
    net = ConvNet(2, 3, (9, 8), width=4, depth=2)
    vector = torch.randn(Initialiser(net, "cpu").length, generator=generator(), dtype=torch.float64) * 0.5
    x = torch.randn(5, 2, 9, 8, generator=generator(1), dtype=torch.float64)
    y, weight = torch.tensor([0, 2, 1, 1, 0]), torch.tensor([0.3, 0.0, 0.2, 1.0, 0.5], dtype=torch.float64)
    leaf = vector.clone().requires_grad_()
    each = F.cross_entropy(net.forward(net.views(leaf), None, x), y, reduction="none")
    (wanted,) = torch.autograd.grad((each * weight).sum(), leaf)
    for written in (False, True):
        monkeypatch.setattr(_convnet_vector, "pays", lambda device, written=written: written)
        found = loss_gradient(net, vector, x, y, torch.float64, weight)
        assert torch.allclose(found, wanted, rtol=1e-8, atol=1e-12), written


def test_bytes_of_the_original_are_normalised_in_the_batch(task):
    some = Images(task.train.x[:30], task.train.y[:30])
    assert some.x.dtype == torch.uint8
    seen = Images(task.inputs(some.x), some.y)
    one, two = (train_convnets(task, images, [1], QUICK)[0] for images in (some, seen))
    assert all(torch.equal(one[name], two[name]) for name in one)


def test_a_network_does_not_depend_on_the_others(task):
    small = task.sample("train", 20, 0)
    both, alone = train_convnets(task, small, [3, 4], QUICK), train_convnets(task, small, [4], QUICK)
    assert all(torch.equal(both[1][name], alone[0][name]) for name in alone[0])
    assert not torch.equal(both[0]["0.weight"], both[1]["0.weight"])


@pytest.mark.usefixtures("save_always")
@pytest.mark.parametrize("stop", [2, 4, 5, 8])
def test_an_interrupted_training_continues_to_the_same_network(task, stop, tmp_path, monkeypatch):
    """Draws are made for two epochs at once; the rate falls after the fourth of six."""
    monkeypatch.setattr("hcdc.training._convnets.BLOCK", 2)
    small, recipe = task.sample("train", 10, 0), dataclasses.replace(QUICK, augment=True)
    whole = train_convnets(task, small, [3, 4], recipe)
    store, seen = Checkpoint(tmp_path / "run", "key"), []

    def interrupt(epoch):
        seen.append(epoch)
        if epoch == stop:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train_convnets(task, small, [3, 4], recipe, on_epoch=interrupt, checkpoint=store)
    again = train_convnets(task, small, [3, 4], recipe, on_epoch=seen.append, checkpoint=store)
    assert len(seen) < 12 + stop  # not from the start
    for one, two in zip(whole, again):
        assert all(torch.equal(one[name], two[name]) for name in one)
    train_convnets(task, small, [3, 4], recipe, on_epoch=pytest.fail, checkpoint=store)  # all is there


def test_a_training_of_another_device_is_not_continued(task, tmp_path):
    """The state of its generator would not fit."""
    small, store = task.sample("train", 10, 0), Checkpoint(tmp_path / "run", "key")
    (whole,) = train_convnets(task, small, [3], QUICK, checkpoint=store)
    tensors, state = store.child("0").load()
    assert state == {"done": 6, "device": "cpu"}
    tensors["generator"] = torch.zeros(16, dtype=torch.uint8)
    store.child("0").save({**tensors, "vector": 0 * tensors["vector"]}, {"done": 3, "device": "cuda"})
    (again,) = train_convnets(task, small, [3], QUICK, checkpoint=store)
    assert all(torch.equal(whole[name], again[name]) for name in whole)


def test_epochs_are_counted_over_all_networks(task):
    seen = []
    train_convnets(task, task.sample("train", 10, 0), [0, 1], QUICK, on_epoch=seen.append)
    assert seen == list(range(1, 13))


@pytest.mark.parametrize("written", [False, True])
def test_scores_and_embeddings_go_over_all_images(task, written, monkeypatch):
    monkeypatch.setattr("hcdc.training._convnets.CHUNK", 100)
    monkeypatch.setattr(_convnet_vector, "pays", lambda device: written)
    monkeypatch.setattr(_convnets, "pays", lambda device: written)
    net = QUICK.net(task)
    params = net.init(generator())
    x = task.inputs(task.test.x)
    expected = (net.forward(params, None, x).argmax(1) == task.test.y).double().mean()
    assert float(accuracy(task, net, params, task.test)) == pytest.approx(float(expected), abs=0.003)
    points = embeddings(task, net, params, task.test)
    assert torch.allclose(points, net.features(params, x), atol=1e-4)


def test_accuracy_of_a_small_set(task):
    """Digits: 20 images a class teach more than guessing, and more than 20 with labels mixed up."""
    recipe = ConvNetRecipe(width=16, depth=2, lr=0.05, batch=64)
    small = task.sample("train", 200, 0)
    found = convnet_accuracy(small, task.data, 2, epochs=30, recipe=recipe)
    assert found["test_accuracy"] > 0.8
    assert found["test_accuracy"] == pytest.approx(sum(found["test_accuracies"]) / 2)
    low, high = sorted(found["test_accuracies"])
    assert found["test_std"] == pytest.approx((high - low) / 2)
    assert (found["networks"], found["epochs"], found["augment"]) == (2, 30, False)
    again = convnet_accuracy(small, task.data, 2, epochs=30, recipe=recipe)
    assert again == found
    mixed = Images(small.x, small.y[torch.randperm(200, generator=generator())])
    assert convnet_accuracy(mixed, task.data, 1, epochs=30, recipe=recipe)["test_accuracy"] < 0.5


def test_published_epochs(monkeypatch, task):
    seen = []

    def noted(task, train, seeds, recipe, *rest):
        seen.append((recipe.epochs, recipe.augment, len(seeds), len(set(seeds))))
        return [recipe.net(task).init(generator())]

    monkeypatch.setattr("hcdc.training._convnets.train_convnets", noted)
    small = task.sample("train", 10, 0)
    convnet_accuracy(small, task.data)
    convnet_accuracy(small, task.data, augment=True)
    assert seen == [(300, False, 20, 20), (1000, True, 20, 20)]
    recipe = ConvNetRecipe()
    assert (recipe.lr, recipe.momentum, recipe.weight_decay, recipe.batch) == (0.01, 0.9, 5e-4, 256)
    assert (recipe.width, recipe.depth) == (128, 3)


def test_says_when_training_diverges(task):
    with pytest.raises(NumericalError, match="diverged at learning rate 1e"):
        train_convnets(task, task.sample("train", 10, 0), [0], dataclasses.replace(QUICK, lr=1e30))


def test_refuses_senseless_settings_and_weights(task):
    with pytest.raises(InputError, match="'epochs' of a ConvNet recipe must be at least 1, got 0"):
        ConvNetRecipe(epochs=0)
    with pytest.raises(InputError, match="'momentum' of a ConvNet recipe must be at least 0 and less than 1"):
        ConvNetRecipe(momentum=1.0)
    small = task.sample("train", 10, 0)
    with pytest.raises(InputError, match="these carry weights"):
        train_convnets(task, dataclasses.replace(small, weight=torch.ones(10)), [0], QUICK)
    with pytest.raises(InputError, match="networks 0"):
        convnet_accuracy(small, task.data, 0)
