"""Training many networks of images: every run is the plain loop, whoever trains beside it."""

import dataclasses

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from hcdc.core.errors import InputError
from hcdc.core.recipe import Recipe
from hcdc.core.seeds import stream
from hcdc.datasets import data
from hcdc.datasets._images import Images
from hcdc.spaces import NASBench201
from hcdc.spaces._cells import CONV_3X3, NONE, SKIP
from hcdc.spaces._convnet import ConvNet
from hcdc.spaces._nasbench201 import cell_string
from hcdc.tasks import ImageTask
from hcdc.tasks._image import ModuleNetwork
from hcdc.training import train_networks
from hcdc.training._augment import draw_flip_crop, flip_crop
from hcdc.training._networks import Layout, batches, learning_rates

SPACE = NASBench201(channels=2)
CELL = "|nor_conv_3x3~0|+|nor_conv_1x1~0|avg_pool_3x3~1|+|skip_connect~0|nor_conv_3x3~1|nor_conv_1x1~2|"
OTHER = "|nor_conv_3x3~0|+|none~0|skip_connect~1|+|none~0|none~1|nor_conv_1x1~2|"
RECIPE = Recipe(steps=6, lr=0.05, weight_decay=0.01, optimizer="sgd", batch=8, lr_end=0.002, clip=0.5)


def small_module(config):
    return nn.Sequential(
        nn.Conv2d(1, config["width"], 3, stride=2),
        nn.BatchNorm2d(config["width"]),
        nn.ReLU(),
        nn.Dropout(0.5),
        nn.Flatten(),
        nn.Linear(9 * config["width"], 10),
    )


NETWORKS = {
    "cell": dataclasses.replace(SPACE.network(1, 10, {"cell": CELL}), fused=True),
    "convnet": ConvNet(1, 10, (8, 8), width=4, depth=2),
    "module": ModuleNetwork(small_module, {"width": 3}),
}


@pytest.fixture(scope="module")
def task():
    return ImageTask(data("digits"))


@pytest.fixture(scope="module")
def train(task):
    return task.sample("train", 20, 0)


@pytest.fixture
def threads():
    """Set the number of threads; put back afterwards."""
    before = torch.get_num_threads()
    yield torch.set_num_threads
    torch.set_num_threads(before)


def kept(network, k, repeat, params):
    return {name: p.detach().clone() for name, p in params.items()}


def run(networks, trains, recipe=RECIPE, seed=0, after=kept, **options):
    return train_networks(networks, trains, recipe, after, seed=seed, role="test", device="cpu", **options)


def same(a, b):
    return a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)


def plain_loop(network, train, recipe, seed=0, repeat=0):
    """torch.optim.SGD and its cosine in float64, weight decay in the loss, gradients clipped."""
    start = network.init(stream(seed, "test", repeat))
    leaves = {name: p.double().requires_grad_() for name, p in start.items()}
    optimiser = torch.optim.SGD(leaves.values(), lr=recipe.lr, momentum=0.9)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, recipe.steps, recipe.lr_end)
    generator = stream(seed, "test-batches", repeat)
    order = batches(len(train), recipe.batch, recipe.steps, generator)
    if recipe.augment == "flip-crop":
        flip, shift = draw_flip_crop(generator, order.numel(), pad=1)
        flip, shift = flip.view(order.shape), shift.view(*order.shape, 2)
    for step, index in enumerate(order):
        x = train.x[index].double()
        if recipe.augment == "flip-crop":
            x = flip_crop(x, flip[step], shift[step])
        loss = F.cross_entropy(network.forward(leaves, None, x), train.y[index])
        decay = sum(p.square().sum() for p in leaves.values())
        optimiser.zero_grad()
        (loss + recipe.weight_decay / 2 * decay).backward()
        if recipe.clip:
            nn.utils.clip_grad_norm_(leaves.values(), recipe.clip)
        optimiser.step()
        schedule.step()
    return {name: p.detach() for name, p in leaves.items()}


@pytest.mark.parametrize("name", NETWORKS)
@pytest.mark.parametrize(
    "changes",
    [{}, {"clip": 0.0, "weight_decay": 0.0}, {"batch": 0, "lr_end": 0.0}, {"augment": "flip-crop"}],
    ids=["all", "no clip, no decay", "full batch", "augmented"],
)
def test_a_training_is_that_of_torch_sgd(name, changes, train):
    network, recipe = NETWORKS[name], dataclasses.replace(RECIPE, **changes)
    found = run([network], [train], recipe)[0][0][0]
    expected = plain_loop(network, train, recipe)
    start = network.init(stream(0, "test", 0))
    assert found.keys() == expected.keys() == start.keys()
    moved = 0.0
    for key, p in found.items():
        assert p.shape == start[key].shape
        torch.testing.assert_close(p.double(), expected[key], rtol=1e-4, atol=2e-5)
        moved = max(moved, float((p - start[key]).abs().max()))
    assert moved > 0.01


def test_every_network_training_set_and_repeat(train, task):
    """Results lie by network, training set and repeat, and each is that of a training of its own."""
    other = task.sample("train", 20, 1)
    networks, recipe = [NETWORKS["cell"], NETWORKS["convnet"]], dataclasses.replace(RECIPE, seeds=2)
    calls = []

    def after(network, k, repeat, params):
        calls.append((network, k, repeat))
        return kept(network, k, repeat, params)

    found = run(networks, [train, other], recipe, after=after)
    assert sorted(calls) == [(n, k, r) for n in range(2) for k in range(2) for r in range(2)]
    assert [[len(repeats) for repeats in sets] for sets in found] == [[2, 2], [2, 2]]
    for n, network in enumerate(networks):
        for k, part in enumerate((train, other)):
            alone = run([network], [part], recipe)[0][0]
            assert same(found[n][k][0], alone[0])
            assert same(found[n][k][1], alone[1])
            assert not same(alone[0], alone[1])
    expected = plain_loop(networks[0], other, recipe, repeat=1)
    for key, p in found[0][1][1].items():
        torch.testing.assert_close(p.double(), expected[key], rtol=1e-4, atol=2e-5)


def test_results_depend_on_neither_company_nor_threads(train, threads):
    recipe = dataclasses.replace(RECIPE, steps=3, seeds=2)
    networks = list(NETWORKS.values())
    threads(1)
    serial = run(networks, [train], recipe)
    for count, some in ((2, networks), (2, networks[1:2]), (3, networks[::-1]), (1, networks[:1])):
        threads(count)
        found = run(some, [train], recipe)
        assert torch.get_num_threads() == count
        for network, sets in zip(some, found):
            for one, two in zip(serial[networks.index(network)][0], sets[0]):
                assert same(one, two)


def test_modules_on_threads_do_not_share_their_draws(train, threads):
    """Modules draw from torch's one global stream: their initialisation must not depend on who else does."""

    def deep(config):
        return nn.Sequential(nn.Flatten(), *(nn.Linear(64, 64) for _ in range(20)), nn.Linear(64, 10))

    networks = [ModuleNetwork(deep, {"number": k}) for k in range(6)]
    recipe = Recipe(steps=1, lr=1e-30, weight_decay=0.0, optimizer="sgd", seeds=4)
    threads(4)
    for sets in run(networks, [train], recipe):
        for repeat, params in enumerate(sets[0]):
            expected = networks[0].init(stream(0, "test", repeat))
            for key, p in params.items():
                torch.testing.assert_close(p, expected[key], rtol=0, atol=1e-20)


def test_networks_meet_the_same_draws(train):
    """A layer of one name starts equal in two cells; seeds and repeats differ. Next to no step is taken."""
    cells = [SPACE.network(1, 10, {"cell": cell}) for cell in (CELL, OTHER)]
    recipe = Recipe(steps=1, lr=1e-30, weight_decay=0.0, optimizer="sgd", seeds=2)
    one, two = (sets[0] for sets in run(cells, [train], recipe))
    shared = [key for key in one[0] if key in two[0] and key.endswith("weight")]
    assert any(key.startswith("cells.") for key in shared)
    for repeat in range(2):
        for key in shared:
            torch.testing.assert_close(one[repeat][key], two[repeat][key], rtol=0, atol=1e-20)
    assert not torch.equal(one[0]["stem.weight"], one[1]["stem.weight"])
    elsewhere = run(cells[:1], [train], recipe, seed=1)[0][0][0]
    assert not torch.equal(one[0]["stem.weight"], elsewhere["stem.weight"])


def test_weights_that_no_path_uses_only_decay(train):
    dead = cell_string((CONV_3X3, NONE, NONE, SKIP, NONE, NONE))
    network = dataclasses.replace(SPACE.network(1, 10, {"cell": dead}), fused=True)
    recipe = dataclasses.replace(RECIPE, clip=0.0, weight_decay=0.1)
    found = run([network], [train], recipe)[0][0][0]
    start = network.init(stream(0, "test", 0))
    factor, momentum = 1.0, 0.0
    for rate in learning_rates(recipe).tolist():
        momentum = 0.9 * momentum + recipe.weight_decay * factor
        factor -= rate * momentum
    assert 0.5 < factor < 0.999
    unused = [key for key in start if key.startswith("cells.")]
    assert len(unused) == 9
    for key in unused:
        torch.testing.assert_close(found[key], factor * start[key], rtol=1e-5, atol=1e-7)


def test_stored_pixels_are_normalised_step_by_step(task):
    """uint8 images give what the normalised ones give."""
    stored = Images(task.train.x[:20], task.train.y[:20])
    assert stored.x.dtype == torch.uint8
    ready = Images(task.inputs(stored.x), stored.y)
    network = NETWORKS["cell"]
    assert same(
        run([network], [stored], inputs=task.inputs)[0][0][0],
        run([network], [ready], inputs=task.inputs)[0][0][0],
    )


def test_augmentation_is_drawn_from_the_seed(train):
    recipe = dataclasses.replace(RECIPE, augment="flip-crop")
    network = NETWORKS["convnet"]
    first = run([network], [train], recipe)[0][0][0]
    assert same(first, run([network], [train], recipe)[0][0][0])
    assert not same(first, run([network], [train])[0][0][0])


def test_no_network_gives_no_result(train, threads):
    assert run([], [train]) == []
    threads(2)
    assert run([], [train]) == []


def test_what_cannot_be_trained_is_refused(train):
    network = NETWORKS["convnet"]
    with pytest.raises(InputError, match="optimizer 'sgd', and this recipe has 'adam'"):
        run([network], [train], Recipe())
    with pytest.raises(InputError, match="training sets of one shape"):
        run([network], [train, Images(train.x[:5], train.y[:5])])
    with pytest.raises(InputError, match="training images have weights"):
        run([network], [dataclasses.replace(train, weight=torch.ones(20))])


# --- the pieces ---------------------------------------


def test_batches_are_epochs_without_repeats():
    order = batches(10, 3, 8, torch.Generator().manual_seed(0))
    assert order.shape == (8, 3)
    epochs = [order[k : k + 3].flatten() for k in (0, 3)]
    for epoch in epochs:
        assert len(epoch.unique()) == 9
    assert not torch.equal(*epochs)
    assert len(order[6:].flatten().unique()) == 6
    for batch in (0, 10, 25):
        whole = batches(10, batch, 3, torch.Generator().manual_seed(0))
        assert torch.equal(whole.sort(1).values, torch.arange(10).expand(3, 10))
    assert torch.equal(order, batches(10, 3, 8, torch.Generator().manual_seed(0)))


def test_learning_rates_are_torchs_cosine():
    recipe = Recipe(steps=7, lr=0.3, lr_end=0.02, optimizer="sgd")
    optimiser = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=0.3)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, 7, 0.02)
    expected = []
    for _ in range(7):
        expected.append(schedule.get_last_lr()[0])
        optimiser.step()
        schedule.step()
    torch.testing.assert_close(learning_rates(recipe), torch.tensor(expected))


def test_a_layout_is_a_vector_and_back():
    draw = torch.Generator().manual_seed(0)
    shapes = {"a": (5,), "b": (4, 3, 2, 2), "c": (), "d": (6, 5), "e": (2, 3, 4)}
    params = {name: torch.randn(shape, generator=draw) for name, shape in shapes.items()}
    layout = Layout(params)
    vector = layout.vector(params)
    assert vector.shape == (48 + 30 + 24 + 5 + 1,)
    assert layout.matrices == 102
    seen = layout.views(vector, vector)
    assert set(seen) == set(params)
    assert all(torch.equal(seen[name], params[name]) for name in params)
    vector.zero_()
    assert not any(p.any() for p in seen.values())  # views, not copies
    work = torch.ones(layout.matrices)
    split = layout.views(vector, work)
    assert {name for name, p in split.items() if p.any()} == {"b", "d", "e"}


def test_kernels_lie_as_channels_last():
    params = {"k": torch.arange(24.0).view(2, 3, 2, 2)}
    layout = Layout(params)
    assert layout.views(layout.vector(params), layout.vector(params))["k"].is_contiguous(
        memory_format=torch.channels_last
    )
