"""Training many networks of images: every run is the plain loop, whoever trains beside it."""

import dataclasses
import math

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from hcdc.core.errors import InputError
from hcdc.core.recipe import Recipe
from hcdc.core.seeds import derive, stream
from hcdc.datasets import Images, data
from hcdc.networks import NONE, OPERATIONS, SKIP, ConvNet, Dropout, ModuleNetwork, ResNet, _cells
from hcdc.spaces import NASBench201, cell_string
from hcdc.tasks import ImageTask, draw_flip_crop, flip_crop
from hcdc.training import Job, _networks, score, train_networks
from hcdc.training._networks import Layout, batches, forward
from hcdc.training._optimizers import learning_rates

CONV = OPERATIONS.index("nor_conv_3x3")

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
    "resnet": ResNet(1, 10, width=2, fused=True),
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


def kept(network, sets, repeats, params):
    return [
        {name: p.detach().clone() for name, p in _networks.of_set(params, place, len(sets)).items()}
        for place in range(len(sets))
    ]


def run(networks, trains, recipe=RECIPE, seed=0, after=kept, **options):
    return train_networks(networks, trains, recipe, after, seed=seed, role="test", device="cpu", **options)


@pytest.fixture
def lanes(monkeypatch):
    """Set how many repeats of a network, on how many training sets, train as one, whatever the device."""

    def choose(count, sets=1):
        monkeypatch.setattr(_networks._Runs, "lanes", lambda run, network: (count, sets))

    return choose


def of_lanes(params, count):
    """The parameters of each of ``count`` lanes, taken apart."""
    parts = {name: p.unflatten(0, (count, -1)) for name, p in params.items()}
    return [{name: p[lane] for name, p in parts.items()} for lane in range(count)]


def same(a, b):
    return a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)


def torch_optimiser(leaves, recipe):
    if recipe.optimizer == "adam":
        return torch.optim.Adam(leaves, lr=recipe.lr)
    if recipe.optimizer == "adamw":
        return torch.optim.AdamW(leaves, lr=recipe.lr, weight_decay=recipe.weight_decay)
    nesterov = recipe.optimizer == "nesterov"
    return torch.optim.SGD(leaves, lr=recipe.lr, momentum=recipe.momentum, nesterov=nesterov)


def torch_schedule(optimiser, recipe):
    steps, name = recipe.steps, recipe.schedule
    if name == "auto":
        name = "constant" if "adam" in recipe.optimizer else "cosine"
    if name == "cosine":
        return torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, steps, recipe.lr_end)
    if name == "linear":
        return torch.optim.lr_scheduler.LinearLR(optimiser, 1, recipe.lr_end / recipe.lr, steps)
    places = [] if name == "constant" else [math.ceil(steps / 2), math.ceil(3 * steps / 4)]
    return torch.optim.lr_scheduler.MultiStepLR(optimiser, places, 0.1)


def plain_loop(network, train, recipe, seed=0, repeat=0, norms=None):
    """torch.optim and its cosine in float64, weight decay in the loss (but AdamW's), gradients clipped.

    Norms of gradients before the clip are appended to ``norms``.
    """
    start = network.init(stream(seed, "test", repeat))
    leaves = {name: p.double().requires_grad_() for name, p in start.items()}
    optimiser = torch_optimiser(leaves.values(), recipe)
    schedule = torch_schedule(optimiser, recipe)
    masks = Dropout(recipe.dropout, torch.tensor([derive(seed, "test-dropout", repeat)]))
    generator = stream(seed, "test-batches", repeat)
    order = batches(len(train), recipe.batch, recipe.steps, generator)
    if recipe.augment != "none":
        flip, shift = draw_flip_crop(generator, order.numel(), pad=int(recipe.augment != "flip"))
        flip = flip & (recipe.augment != "crop")
        flip, shift = flip.view(order.shape), shift.view(*order.shape, 2)
    for step, index in enumerate(order):
        x = train.x[index].double()
        if recipe.augment != "none":
            x = flip_crop(x, flip[step], shift[step])
        dropping = recipe.dropout or network.drops
        training = network.with_dropout(masks.at(torch.tensor([step]))) if dropping else network
        logits = training.forward(leaves, None, x)
        loss = F.cross_entropy(logits, train.y[index], label_smoothing=recipe.label_smoothing)
        decay = sum(p.square().sum() for p in leaves.values()) * (recipe.optimizer != "adamw")
        optimiser.zero_grad()
        (loss + recipe.weight_decay / 2 * decay).backward()
        if recipe.clip:
            norm = nn.utils.clip_grad_norm_(leaves.values(), recipe.clip)
            if norms is not None:
                norms.append(float(norm))
        optimiser.step()
        schedule.step()
    return {name: p.detach() for name, p in leaves.items()}


RECIPES = pytest.mark.parametrize(
    "changes",
    [
        {},
        {"clip": 0.0, "weight_decay": 0.0},
        {"batch": 0, "lr_end": 0.0},
        {"augment": "flip-crop"},
        {"augment": "crop"},
        {"augment": "flip"},
        {"optimizer": "nesterov", "momentum": 0.6, "lr": 0.1},
        {"momentum": 0.2, "schedule": "linear", "label_smoothing": 0.2, "lr": 0.15},
        {"dropout": 0.5, "schedule": "step", "lr_end": 0.0},
    ],
    ids=[
        "all",
        "no clip, no decay",
        "full batch",
        "augmented",
        "shifted",
        "mirrored",
        "nesterov",
        "smoothed",
        "dropped",
    ],
)


@pytest.mark.parametrize("name", NETWORKS)
@RECIPES
def test_a_training_is_that_of_torch_sgd(name, changes, train):
    """By a seed where no unit is so close to zero that single and double precision differ in its sign."""
    network, recipe = NETWORKS[name], dataclasses.replace(RECIPE, **changes)
    found = run([network], [train], recipe, seed=4)[0][0][0]
    expected = plain_loop(network, train, recipe, seed=4)
    start = network.init(stream(4, "test", 0))
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

    def after(network, sets, repeats, params):
        calls.extend((network, k, repeats) for k in sets)
        return kept(network, sets, repeats, params)

    found = run(networks, [train, other], recipe, after=after)
    once = [range(r, r + 1) for r in range(2)]
    assert sorted(calls, key=str) == [(n, k, r) for n in range(2) for k in range(2) for r in once]
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


@pytest.mark.parametrize("count", [1, 2])
def test_weights_that_no_path_uses_only_decay(count, train, lanes):
    lanes(count)
    dead = cell_string((CONV, NONE, NONE, SKIP, NONE, NONE))
    network = dataclasses.replace(SPACE.network(1, 10, {"cell": dead}), fused=True)
    recipe = dataclasses.replace(RECIPE, clip=0.0, weight_decay=0.1, seeds=count)
    found = of_lanes(run([network], [train], recipe)[0][0][0], count)
    factor, momentum = 1.0, 0.0
    for rate in learning_rates(recipe).tolist():
        momentum = 0.9 * momentum + recipe.weight_decay * factor
        factor -= rate * momentum
    assert 0.5 < factor < 0.999
    for repeat, params in enumerate(found):
        start = network.init(stream(0, "test", repeat))
        unused = [key for key in start if key.startswith("cells.")]
        assert len(unused) == 9
        for key in unused:
            torch.testing.assert_close(params[key], factor * start[key], rtol=1e-5, atol=1e-7)


def test_a_parameter_that_is_one_number_is_trained(train):
    """Of a user's own module; a temperature, say."""

    class Scaled(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear, self.factor = nn.Linear(64, 10), nn.Parameter(torch.tensor(2.0))

        def forward(self, x):
            return self.factor * self.linear(x.flatten(1))

    network = ModuleNetwork(lambda config: Scaled(), {})
    found = run([network], [train])[0][0][0]
    expected = plain_loop(network, train, RECIPE)
    assert found["factor"].shape == ()
    assert float((found["factor"] - 2).abs()) > 1e-3
    for key, p in found.items():
        torch.testing.assert_close(p.double(), expected[key], rtol=1e-4, atol=2e-5)


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


def test_one_training_set_stays_where_it_lies(train, task, lanes):
    """On the CPU; sets that train as one are joined."""
    other = task.sample("train", 20, 1)
    setting = _networks._Runs([train, other], [RECIPE], kept, 0, "test", torch.device("cpu"), lambda x: x)
    trainer = _networks._Trainer(setting, NETWORKS["cell"], RECIPE)
    assert trainer.x is train.x
    trainer.begin([other], trainer.now)
    assert trainer.x is other.x
    assert trainer.y is other.y
    lanes(1, 2)
    joined = _networks._Trainer(setting, NETWORKS["cell"], RECIPE)
    assert torch.equal(joined.x, torch.cat([train.x, other.x]))
    joined.begin([other, train], joined.now)
    assert torch.equal(joined.x, torch.cat([other.x, train.x]))
    assert torch.equal(joined.y, torch.cat([other.y, train.y]))


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
    with pytest.raises(InputError, match="training sets of one shape"):
        run([network], [train, Images(train.x[:5], train.y[:5])])
    with pytest.raises(InputError, match="training images have weights"):
        run([network], [dataclasses.replace(train, weight=torch.ones(20))])


# --- lanes ---------------------------------------


ADAMS = [
    {"optimizer": "adam", "lr": 0.01},
    {"optimizer": "adamw", "lr": 0.01, "weight_decay": 0.5, "schedule": "cosine", "dropout": 0.3},
]


@pytest.mark.parametrize("changes", ADAMS, ids=["adam", "adamw"])
def test_a_training_by_adam_is_that_of_torch(changes, train, lanes):
    """A network without parameters whose gradient is 0, since Adam would scale up its rounding errors."""
    network, recipe = NETWORKS["resnet"], dataclasses.replace(RECIPE, seeds=2, **changes)
    single = run([network], [train], recipe)[0][0]
    lanes(2)
    (group,) = run([network], [train], recipe)[0][0]
    for repeat, (alone, found) in enumerate(zip(single, of_lanes(group, 2))):
        expected = plain_loop(network, train, recipe, repeat=repeat)
        start = network.init(stream(0, "test", repeat))
        for key, p in expected.items():
            torch.testing.assert_close(alone[key].double(), p, rtol=1e-3, atol=1e-4)
            torch.testing.assert_close(found[key].double(), p, rtol=1e-3, atol=1e-4)
            assert float((p - start[key]).abs().max()) > 0.005


def test_each_network_has_its_own_recipe(train):
    """Networks that differ in every setting train together as they train alone."""
    other = {"batch": 5, "steps": 9, "lr": 0.2, "optimizer": "adamw", "augment": "flip", "dropout": 0.4}
    recipes = [RECIPE, dataclasses.replace(RECIPE, **other), dataclasses.replace(RECIPE, momentum=0.5)]
    together = run([NETWORKS["resnet"]] * 3, [train], recipes)
    for recipe, (found,) in zip(recipes, together):
        assert same(found[0], run([NETWORKS["resnet"]], [train], recipe)[0][0][0])
    assert not same(together[0][0][0], together[2][0][0])


@pytest.mark.parametrize("count", [2, 4])
@RECIPES
def test_lanes_are_trainings_of_their_own(count, changes, train, lanes):
    """Four repeats, two at a time or all at once: each is the plain loop of it, and the single one."""
    network, recipe = NETWORKS["cell"], dataclasses.replace(RECIPE, seeds=4, **changes)
    single = run([network], [train], recipe)[0][0]
    lanes(count)
    groups = run([network], [train], recipe)[0][0]
    assert len(single) == 4
    assert len(groups) == 4 // count
    together = [params for group in groups for params in of_lanes(group, count)]
    for repeat, (found, alone) in enumerate(zip(together, single)):
        expected = plain_loop(network, train, recipe, repeat=repeat)
        start = network.init(stream(0, "test", repeat))
        assert found.keys() == expected.keys()
        moved = 0.0
        for key, p in found.items():
            assert p.shape == start[key].shape
            torch.testing.assert_close(p.double(), expected[key], rtol=1e-4, atol=2e-5)
            torch.testing.assert_close(p, alone[key], rtol=1e-4, atol=2e-5)
            moved = max(moved, float((p - start[key]).abs().max()))
        assert moved > 0.01
    assert not torch.allclose(together[0]["stem.weight"], together[1]["stem.weight"], atol=1e-2)


@pytest.mark.parametrize("count", [2, 3])
def test_a_lane_with_large_gradients_does_not_clip_another(count, train, lanes, monkeypatch):
    """Repeat 1 starts with a huge classifier; the limit lies between its gradients and all others."""
    network = NETWORKS["cell"]
    usual, loud = type(network).init, stream(0, "test", 1).initial_seed()

    def init(self, generator):
        params = usual(self, generator)
        if generator.initial_seed() == loud:
            params["linear.weight"] = 10 * params["linear.weight"]
        return params

    monkeypatch.setattr(type(network), "init", init)
    recipe = dataclasses.replace(RECIPE, clip=10.0, lr=0.01, seeds=count)
    lanes(count)
    found = of_lanes(run([network], [train], recipe)[0][0][0], count)
    for repeat, params in enumerate(found):
        norms = []
        expected = plain_loop(network, train, recipe, repeat=repeat, norms=norms)
        assert len(norms) == recipe.steps
        if repeat == 1:
            assert min(norms) > 2 * recipe.clip
        else:
            assert max(norms) < 0.75 * recipe.clip
        for key, p in params.items():
            torch.testing.assert_close(p.double(), expected[key], rtol=1e-4, atol=2e-5)


@pytest.mark.parametrize("sets", [1, 2])
@pytest.mark.parametrize("augment", ["none", "flip-crop"])
def test_lanes_of_every_network_training_set_and_repeat(train, task, lanes, sets, augment):
    """One call a network, training set and group of repeats; the others' results are not disturbed."""
    lanes(2, sets)
    other = task.sample("train", 20, 1)
    networks = [NETWORKS["cell"], dataclasses.replace(SPACE.network(1, 10, {"cell": OTHER}), fused=True)]
    recipe = dataclasses.replace(RECIPE, steps=3, seeds=4, augment=augment)
    calls = []

    def after(network, sets, repeats, params):
        calls.extend((network, k, repeats) for k in sets)
        return kept(network, sets, repeats, params)

    found = run(networks, [train, other], recipe, after=after)
    groups = [range(0, 2), range(2, 4)]
    assert sorted(calls, key=str) == [(n, k, r) for n in range(2) for k in range(2) for r in groups]
    assert [[len(calls) for calls in sets] for sets in found] == [[2, 2], [2, 2]]
    for n, network in enumerate(networks):
        for k, part in enumerate((train, other)):
            for group, repeats in enumerate(groups):
                for repeat, params in zip(repeats, of_lanes(found[n][k][group], 2)):
                    expected = plain_loop(network, part, recipe, repeat=repeat)
                    for key, p in params.items():
                        torch.testing.assert_close(p.double(), expected[key], rtol=1e-4, atol=2e-5)


def test_training_sets_that_train_as_one_have_the_clip_and_the_parameters_of_their_own(train, task, lanes):
    """One repeat on four training sets, two and two: what `after` gets has the shapes of one network."""
    lanes(1, 2)
    trains = [train, *(task.sample("train", 20, seed) for seed in (1, 2, 3))]
    recipe = dataclasses.replace(RECIPE, clip=0.5)
    (found,) = run([NETWORKS["cell"]], trains, recipe)
    shapes = NETWORKS["cell"].shapes()
    for part, (params,) in zip(trains, found):
        assert {name: tuple(p.shape) for name, p in params.items()} == shapes
        norms = []
        expected = plain_loop(NETWORKS["cell"], part, recipe, norms=norms)
        assert min(norms) > recipe.clip
        for key, p in params.items():
            torch.testing.assert_close(p.double(), expected[key], rtol=1e-4, atol=2e-5)


@pytest.mark.parametrize("parts", ["one mapping", "one for each set", "statistics of the training set"])
def test_sets_that_train_as_one_are_scored_as_alone(parts, train, task, lanes):
    """Scored together if they have the same parts, else one by one: both times as if trained alone."""
    trains = [train, task.sample("train", 20, 1)]
    vals = [{"val": task.sample("val", 30, seed), "more": task.sample("val", 20, 9)} for seed in (5, 6)]
    given = vals if parts == "one for each set" else [vals[0]] * 2
    statistics = "train" if parts.startswith("statistics") else "batch"
    recipe = dataclasses.replace(RECIPE, steps=3, seeds=2, statistics=statistics)

    def scored(some, its_parts):
        found = score(Job(task, SPACE, [{"cell": CELL}], some, recipe, its_parts, role="test"))
        return [result.repeats for (result,) in found]

    expected = [scored([one], [own])[0] for one, own in zip(trains, given)]
    lanes(2, 2)
    together = scored(trains, vals[0] if parts == "one mapping" else given)
    for one, alone in zip(together, expected, strict=True):
        assert set(one) == set(alone) == {f"{part}.{what}" for part in vals[0] for what in ("loss", "score")}
        for name, values in alone.items():
            assert one[name] == pytest.approx(values, rel=1e-4)
    assert together[0]["val.loss"] != pytest.approx(together[1]["val.loss"], rel=1e-3)


def test_stored_pixels_of_lanes_are_normalised(task, lanes):
    lanes(2)
    stored = Images(task.train.x[:20], task.train.y[:20])
    recipe = dataclasses.replace(RECIPE, seeds=2, augment="flip-crop")
    found = of_lanes(run([NETWORKS["cell"]], [stored], recipe, inputs=task.inputs)[0][0][0], 2)
    ready = Images(task.inputs(stored.x), stored.y)
    for repeat, params in enumerate(found):
        expected = plain_loop(NETWORKS["cell"], ready, recipe, repeat=repeat)
        for key, p in params.items():
            torch.testing.assert_close(p.double(), expected[key], rtol=1e-4, atol=2e-5)


USUAL_LANES = _networks._Runs.lanes


def lanes_on_cuda(run, network):
    """What `_Runs.lanes` would say on CUDA."""
    return USUAL_LANES(dataclasses.replace(run, device=torch.device("cuda")), network)


@pytest.mark.parametrize(
    ("seeds", "sets", "count"),
    [
        *((s, 1, (n, 1)) for s, n in ((1, 1), (2, 2), (6, 6), (7, 7), (8, 8), (9, 3), (10, 5), (11, 1))),
        *((s, 1, (n, 1)) for s, n in ((12, 6), (16, 8))),
        (1, 8, (1, 8)), (1, 9, (1, 3)), (1, 11, (1, 1)), (2, 8, (2, 4)), (3, 4, (3, 2)), (8, 5, (8, 1)),
    ],
)  # fmt: skip
def test_lanes_are_the_largest_divisors_of_repeats_then_of_sets_within_the_limit(seeds, sets, count, train):
    recipe = dataclasses.replace(RECIPE, seeds=seeds)
    here = _networks._Runs([train] * sets, [recipe], kept, 0, "test", torch.device("cpu"), lambda x: x)
    assert _networks.LANES == 8
    assert lanes_on_cuda(here, NETWORKS["cell"]) == count
    assert here.lanes(NETWORKS["cell"]) == (1, 1)
    for name in ("convnet", "module"):
        assert lanes_on_cuda(here, NETWORKS[name]) == (1, 1)


def test_repeats_that_the_limit_does_not_divide_are_all_trained(train, monkeypatch):
    """Six repeats and at most four lanes: three at a time; a network that cannot goes one by one."""
    monkeypatch.setattr(_networks, "LANES", 4)
    monkeypatch.setattr(_networks._Runs, "lanes", lanes_on_cuda)
    recipe = dataclasses.replace(RECIPE, steps=3, seeds=6)
    calls = []

    def after(network, sets, repeats, params):
        calls.append((network, repeats))
        return kept(network, sets, repeats, params)

    cells, nets = run([NETWORKS["cell"], NETWORKS["convnet"]], [train], recipe, after=after)
    once = [range(r, r + 1) for r in range(6)]
    assert [r for network, r in calls if network == 0] == [range(0, 3), range(3, 6)]
    assert [r for network, r in calls if network == 1] == once
    together = [params for group in cells[0] for params in of_lanes(group, 3)]
    for name, found in (("cell", together), ("convnet", nets[0])):
        assert len(found) == 6
        for repeat, params in enumerate(found):
            expected = plain_loop(NETWORKS[name], train, recipe, repeat=repeat)
            for key, p in params.items():
                torch.testing.assert_close(p.double(), expected[key], rtol=1e-4, atol=2e-5)


@pytest.mark.parametrize("name", NETWORKS)
def test_outputs_have_a_dimension_of_lanes(name, train):
    network = NETWORKS[name]
    params = network.init(stream(0, "test", 0))
    assert network.side_by_side(1) is network
    found = forward(network, params, train.x)
    assert found.shape == (1, 20, 10)
    assert torch.equal(found[0], network.forward(params, None, train.x))
    if name == "cell":
        other = network.init(stream(0, "test", 1))
        both = {key: torch.cat([p, other[key]]) for key, p in params.items()}
        many = forward(network.side_by_side(2), both, train.x)
        assert many.shape == (2, 20, 10)
        torch.testing.assert_close(many[:1], found, rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(many[1:], forward(network, other, train.x), rtol=1e-4, atol=1e-5)


# --- statistics in scoring ---------------------------------------


def in_eval(network, params, x, reference):
    """Logits in float64 by torch's BatchNorm as it is in ``eval()``, with statistics kept from a first pass
    over the reference (mean, and variance without Bessel's correction)."""
    kept = []

    def keeping(images, scale, shift, fused=False, first=0):
        rows = images.transpose(0, 1).flatten(1)
        kept.append((rows.mean(1), rows.var(1, correction=0)))
        return F.batch_norm(images, *kept[-1], scale, shift, training=False)

    def giving(images, scale, shift, fused=False, first=0):
        return F.batch_norm(images, *kept.pop(0), scale, shift, training=False)

    double = {name: p.double() for name, p in params.items()}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_cells, "batch_norm", keeping)
        network.forward(double, None, reference.double())
        assert len(kept) > 5
        patch.setattr(_cells, "batch_norm", giving)
        found = network.forward(double, None, x.double())
    assert kept == []
    return found


@pytest.fixture(scope="module")
def scored(task):
    """Images of other statistics than those of training."""
    return 2 * task.sample("val", 10, 0).x + 0.5


@pytest.fixture(scope="module")
def theta(train):
    """Two trained repeats of the cell."""
    return run([NETWORKS["cell"]], [train], dataclasses.replace(RECIPE, seeds=2))[0][0]


@pytest.mark.parametrize("fused", [False, True])
def test_with_a_reference_scores_are_those_of_torch_in_eval(fused, theta, train, scored):
    network = dataclasses.replace(NETWORKS["cell"], fused=fused)
    expected = torch.stack([in_eval(network, params, scored, train.x) for params in theta])
    assert float((expected[0] - expected[1]).abs().max()) > 0.1
    for params, alone in zip(theta, expected):
        found = forward(network, params, scored, train.x)
        assert found.shape == (1, 10, 10)
        assert found.dtype == torch.float32
        torch.testing.assert_close(found[0].double(), alone, rtol=1e-4, atol=1e-4)
        by_batch = forward(network, params, scored)
        assert torch.equal(by_batch[0], network.forward(params, None, scored))
        assert float((by_batch - found).abs().max()) > 0.1
    both = {name: torch.cat([params[name] for params in theta]) for name in theta[0]}
    many = forward(network.side_by_side(2), both, scored, train.x)
    assert many.shape == (2, 10, 10)
    torch.testing.assert_close(many.double(), expected, rtol=1e-4, atol=1e-4)


def test_with_a_reference_one_image_is_scored_whatever_lies_beside_it(theta, train, scored):
    network = NETWORKS["cell"]
    together = forward(network, theta[0], scored, train.x)[0]
    for k in (0, 7):
        beside = torch.cat([5 * scored[3:5], scored[k : k + 1]])
        for some in (scored[k : k + 1], beside):
            found = forward(network, theta[0], some, train.x)[0, -1]
            torch.testing.assert_close(found, together[k], rtol=1e-4, atol=1e-4)
        assert float((forward(network, theta[0], beside)[0, -1] - together[k]).abs().max()) > 0.1


def test_the_images_themselves_as_reference_are_the_batch(theta, train):
    for params in theta:
        found = forward(NETWORKS["cell"], params, train.x, train.x)
        torch.testing.assert_close(found, forward(NETWORKS["cell"], params, train.x), rtol=1e-4, atol=1e-4)


def test_slopes_in_scored_images_are_those_of_torch_in_eval(theta, train, scored):
    y = torch.arange(10)
    slopes = []
    for compute in (lambda x: forward(NETWORKS["cell"], theta[0], x, train.x)[0], None):
        x = (scored if compute else scored.double()).clone().requires_grad_()
        outputs = compute(x) if compute else in_eval(NETWORKS["cell"], theta[0], x, train.x)
        slopes.append(torch.autograd.grad(F.cross_entropy(outputs, y), x)[0].double())
    assert float(slopes[1].abs().max()) > 1e-3
    torch.testing.assert_close(*slopes, rtol=1e-3, atol=1e-5)


def test_networks_without_batch_norm_have_no_use_for_a_reference(train, scored):
    network = NETWORKS["convnet"]
    params = network.init(stream(0, "test", 0))
    assert torch.equal(forward(network, params, scored, train.x), forward(network, params, scored))


def test_modules_of_a_user_take_no_reference(train, scored):
    network = NETWORKS["module"]
    params = network.init(stream(0, "test", 0))
    with pytest.raises(InputError) as caught:
        forward(network, params, scored, train.x)
    assert str(caught.value) == (
        "recipe setting 'statistics' 'train': modules of your own are scored with the statistics of the "
        "images that are scored; choose 'batch'"
    )
    assert forward(network, params, scored).shape == (1, 10, 10)


def test_statistics_change_nothing_in_training(train):
    other = dataclasses.replace(RECIPE, statistics="train")
    for network in NETWORKS.values():
        assert same(run([network], [train], other)[0][0][0], run([network], [train])[0][0][0])


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
    vector = layout.vector([params])
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


LAID = {"a": (5,), "b": (4, 3, 2, 2), "d": (6, 5), "e": (2, 3, 4)}


def some_params(count):
    draw = torch.Generator().manual_seed(1)
    return [{name: torch.randn(shape, generator=draw) for name, shape in LAID.items()} for _ in range(count)]


@pytest.mark.parametrize("count", [1, 2, 3])
def test_a_layout_of_lanes_is_a_vector_and_back(count):
    """Parameters are R times as long, the lanes of each one after the other; kernels first."""
    many = some_params(count)
    layout = Layout(many[0], count)
    vector = layout.vector(many)
    assert vector.shape == (count * (48 + 30 + 24 + 5),)
    assert layout.matrices == count * 102
    seen = layout.views(vector, vector)
    assert set(seen) == set(LAID)
    for name, (out, *rest) in LAID.items():
        assert seen[name].shape == (count * out, *rest)
        assert torch.equal(seen[name], torch.cat([lane[name] for lane in many]))
    split = layout.views(vector.zero_(), torch.ones(layout.matrices))
    assert {name for name, p in split.items() if p.any()} == {"b", "d", "e"}
    assert all(bool((split[name] == 1).all()) for name in ("b", "d", "e"))


@pytest.mark.parametrize("count", [1, 2, 3])
def test_owners_are_the_lanes_of_a_vectors_entries(count):
    many = some_params(count)
    layout = Layout(many[0], count)
    owners = layout.owners()
    assert owners.shape == layout.vector(many).shape
    marked = [{name: torch.full_like(p, k) for name, p in lane.items()} for k, lane in enumerate(many)]
    assert torch.equal(owners, layout.vector(marked).long())
    assert torch.equal(owners.bincount(), torch.full((count,), 107))
    for lane, params in enumerate(many):
        assert torch.equal(layout.vector(many)[owners == lane], Layout(params).vector([params]))


def test_kernels_lie_as_channels_last():
    params = {"k": torch.arange(24.0).view(2, 3, 2, 2)}
    for count in (1, 2):
        layout = Layout(params, count)
        vector = layout.vector([params] * count)
        kernel = layout.views(vector, vector)["k"]
        assert kernel.is_contiguous(memory_format=torch.channels_last)
        assert torch.equal(kernel[-2:], params["k"])


@pytest.mark.parametrize("name", ["cell", "convnet", "module"])
def test_networks_start_from_their_own_draws(name, train):
    """Layers that networks have in common are drawn once, and to the same bits."""
    setting = _networks._Runs([train], [RECIPE], kept, 3, "test", torch.device("cpu"), lambda x: x)
    others = [NETWORKS["cell"], dataclasses.replace(NETWORKS["cell"], cell=(CONV, 0, 2, 3, 0, 1))]
    for network in [*others, NETWORKS[name]]:
        inits = [network.init(stream(3, "test", r)) for r in (2, 3)]
        for sets in (1, 2):
            layout = Layout(inits[0], 2 * sets)
            found = setting.start(network, layout, range(2, 4), sets)
            assert torch.equal(found, layout.vector(inits * sets))
    assert len(setting._shared) == 2  # one draw of all cells' layers for each number of sets


def test_wide_kernels_are_those_that_grouped_convolutions_are_slow_for():
    network = NASBench201(channels=16).network(3, 10, {"cell": cell_string((CONV, 2, 0, 0, 0, SKIP))})
    expected = {f"cells.{k}.0-2.nor_conv_1x1.weight" for k in range(3)} | {"stem.weight"}
    expected |= {f"reductions.{k}.{part}.weight" for k in range(2) for part in ("first", "shortcut")}
    assert network.wide() == expected
    assert NETWORKS["convnet"].wide() == frozenset()


@pytest.mark.parametrize(("free", "freed"), [(24, True), (25, False), (90, False)])
def test_memory_is_freed_where_little_is_left(free, freed, monkeypatch):
    """Recordings that are gone are collected first, or their memory would stay."""
    calls = []
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (free, 100))
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: calls.append("freed"))
    monkeypatch.setattr(_networks.gc, "collect", lambda: calls.append("collected"))
    _networks._make_room(torch.device("cuda"), 0.25)
    assert calls == (["collected", "freed"] if freed else [])
