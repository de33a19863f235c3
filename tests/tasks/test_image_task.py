"""ImageTask: what networks see, balanced draws, and modules of a user as pure functions."""

import dataclasses
import functools
import random

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F

from hcdc.core.errors import InputError
from hcdc.datasets import ImageData, Images, image_data
from hcdc.networks import CellNetwork, ConvNet, Dropout, ModuleNetwork
from hcdc.networks._modules import _warn_of_dropout
from hcdc.spaces import Finite, GNNZoo, NASBench201, PolynomialFilter, Product
from hcdc.tasks import ImageTask
from hcdc.tasks._soft import soft_accuracy
from hcdc.testing import TaskConformance
from hcdc.training._networks import forward

COUNTS = {"train": (9, 7, 8), "val": (4, 5, 6), "test": (5, 5, 5)}
SPACE = NASBench201(channels=2)


def some_images(floating=False, channels=3) -> ImageData:
    rng = np.random.default_rng(0)
    parts = {}
    for name, counts in COUNTS.items():
        y = rng.permutation(np.repeat([0, 1, 2], counts))
        x = torch.from_numpy(rng.integers(0, 256, (len(y), channels, 8, 8)).astype(np.uint8))
        parts[name] = (x.float() * 0.3 + 5 if floating else x, y)
    return image_data("noise", "memory", parts, class_names=("cat", "dog", "eel"))


class TestConformance(TaskConformance):
    options = TaskConformance.options | {"probes": 4, "probe_steps": 1, "companions": 0, "nodes": 3}

    def make(self):
        return ImageTask(some_images()), NASBench201(cells=1, channels=2)


@pytest.fixture(params=[False, True], ids=["uint8", "float"])
def task(request):
    return ImageTask(some_images(request.param))


# --- what networks see ---------------------------------------


def test_stored_and_floating_images_are_seen_normalised(task):
    """Mean 0 and variance 1 a channel over T_train, whichever way the images are stored."""
    floating = task.data.train.x.is_floating_point()
    seen = task.inputs(task.train.x)
    assert seen.dtype == torch.float32
    torch.testing.assert_close(seen.mean((0, 2, 3)), torch.zeros(3), rtol=0, atol=1e-4)
    torch.testing.assert_close(seen.square().mean((0, 2, 3)), torch.ones(3), rtol=1e-3, atol=0)
    for part in ("train", "val", "test"):
        raw = getattr(task.data, part).x
        values = raw.double() if floating else raw.double() / 255
        expected = (values - task.data.mean.view(-1, 1, 1)) / task.data.std.view(-1, 1, 1)
        torch.testing.assert_close(
            task.inputs(getattr(task, part).x).double(), expected, rtol=1e-4, atol=1e-5
        )
    assert task.train.x.dtype == (torch.float32 if floating else torch.uint8)  # uint8 stays as it is stored


def test_synthetic_images_are_taken_as_they_are(task):
    """Floating point is normalised once, when a part is read, and never again, nor clipped."""
    wild = 50 * torch.randn(2, 3, 8, 8, generator=torch.Generator().manual_seed(0))
    assert task.inputs(wild) is wild
    chosen = task.chosen("train", torch.tensor([3, 1]))
    assert torch.equal(chosen.x, task.inputs(task.train.x)[[3, 1]])
    assert torch.equal(task.inputs(chosen.x), chosen.x)
    assert torch.equal(chosen.y, task.train.y[[3, 1]])


def test_both_kinds_of_storage_give_the_same():
    one, two = ImageTask(some_images()), ImageTask(some_images(True))
    torch.testing.assert_close(one.inputs(one.val.x), two.inputs(two.val.x), rtol=1e-3, atol=1e-4)
    a, b = one.sample("train", 6, 0), two.sample("train", 6, 0)
    torch.testing.assert_close(a.x, b.x, rtol=1e-3, atol=1e-4)
    assert torch.equal(a.y, b.y)


def test_predictions_see_normalised_images(task):
    bound = task.bind(SPACE, SPACE.candidates()[0])
    params = bound.init(torch.Generator().manual_seed(0))
    expected = bound.net.forward(params, None, task.inputs(task.val.x))
    assert torch.equal(bound.predict(params, torch.zeros(30), bound.val), expected)
    assert not torch.equal(expected, bound.net.forward(params, None, task.data.val.x.float()))


# --- small sets ---------------------------------------


@pytest.mark.parametrize(("size", "counts"), [(3, (1, 1, 1)), (7, (3, 2, 2)), (12, (4, 4, 4))])
def test_samples_are_balanced_real_and_seeded(task, size, counts):
    small = task.sample("val", size, seed=5)
    assert tuple(small.y.bincount(minlength=3).tolist()) == counts
    assert torch.equal(small.y, small.y.sort().values)
    assert torch.equal(small.y, task.labels("val", size))
    real = task.inputs(task.val.x)
    places = [torch.nonzero((real == x).flatten(1).all(1)).flatten() for x in small.x]
    assert all(len(place) == 1 for place in places)
    assert len(torch.cat(places).unique()) == size  # no image twice
    assert torch.equal(task.val.y[torch.cat(places)], small.y)
    again, other = task.sample("val", size, seed=5), task.sample("val", size, seed=6)
    assert torch.equal(small.x, again.x)
    assert not torch.equal(small.x, other.x)


def test_sizes_that_a_class_cannot_fill_are_refused(task):
    with pytest.raises(
        InputError,
        match=r"val_size 15 is 5 images per class, but class 0 \('cat'\) has only 4 val images; "
        r"choose at most 4 per class, 12 in all",
    ):
        task.sample("val", 15, 0)
    with pytest.raises(InputError, match=r"train_size 22 is 8 images per class, but class 1 \('dog'\) has"):
        task.labels("train", 22)
    with pytest.raises(InputError, match="val_size 2: there are 3 classes, so at least 3"):
        task.sample("val", 2, 0)
    with pytest.raises(InputError, match="part 'tests' is not known; did you mean 'test'"):
        task.part("tests")


def test_pixels_and_weights_can_be_replaced_and_parts_taken(task):
    small = task.sample("val", 6, 0)
    assert set(task.tensors(small)) == {"x"}
    weight = torch.arange(6.0)
    weighted = task.replace(small, {"weight": weight})
    moved = task.replace(weighted, {"x": small.x + 1})
    assert torch.equal(moved.weight, weight)
    assert torch.equal(moved.x, small.x + 1)
    part = task.subset(weighted, torch.tensor([4, 0]))
    assert torch.equal(part.weight, torch.tensor([4.0, 0.0]))
    assert torch.equal(part.y, small.y[[4, 0]])
    assert task.subset(small, torch.tensor([1])).weight is None
    with pytest.raises(InputError, match="'adj' is not known"):
        task.replace(small, {"adj": weight})


# --- losses ---------------------------------------


def test_losses_scores_and_the_target():
    task = ImageTask(some_images(), weight_decay=0.02).bind(SPACE, SPACE.candidates()[3])
    params = task.init(torch.Generator().manual_seed(0))
    lam = torch.zeros(30)
    outputs = task.predict(params, lam, task.val)
    y = task.val.y
    each = -outputs.double().log_softmax(1)[torch.arange(len(y)), y]
    torch.testing.assert_close(task.val_loss(params, lam, task.val).double(), each.mean())
    decay = sum(float(p.double().square().sum()) for p in params.values())
    assert float(task.train_loss(params, lam, task.val)) == pytest.approx(
        float(each.mean()) + 0.01 * decay, rel=1e-5
    )
    right = (outputs.argmax(1) == y).double()
    assert float(task.score(outputs, task.val)) == pytest.approx(float(right.mean()))
    target = task.target()
    torch.testing.assert_close(target.val_loss(params, lam, task.val), -soft_accuracy(outputs, y))
    torch.testing.assert_close(  # what trains is not changed
        target.train_loss(params, lam, task.val), task.train_loss(params, lam, task.val)
    )
    assert not task.smooth
    weight = torch.rand(len(y), generator=torch.Generator().manual_seed(1))
    weighted = task.replace(task.val, {"weight": weight})
    share = weight.double() / weight.double().sum()
    assert float(task.loss(outputs, weighted)) == pytest.approx(float((share * each).sum()), rel=1e-5)
    assert float(task.score(outputs, weighted)) == pytest.approx(float((share * right).sum()), rel=1e-5)
    equal = task.replace(task.val, {"weight": torch.full((len(y),), 0.3)})
    torch.testing.assert_close(task.loss(outputs, equal), task.loss(outputs, task.val))


# --- networks ---------------------------------------


def test_the_validation_loss_by_the_statistics_of_other_images():
    """As plain networks are scored; with derivatives in parameters and lambda, and of cells alone."""
    task = ImageTask(some_images())
    bound = task.bind(SPACE)
    val = Images(task.inputs(task.val.x).double(), task.val.y)
    reference = task.inputs(task.train.x[:7]).double()
    scored = dataclasses.replace(bound, reference=reference)
    params = {name: p.double() for name, p in bound.init(torch.Generator().manual_seed(0)).items()}
    config = SPACE.candidates()[0]
    lam = SPACE.encode(config)
    cell = dataclasses.replace(SPACE.network(3, 3, config), affine=False)
    outputs = forward(cell, params, val.x, reference)[0].double()
    found = scored.val_loss(params, lam, val)
    torch.testing.assert_close(found, bound.loss(outputs, val), rtol=1e-5, atol=1e-6)
    assert float(bound.val_loss(params, lam, val) - scored.val_loss(params, lam, val)) != 0
    assert torch.equal(scored.train_loss(params, lam, val), bound.train_loss(params, lam, val))
    lam = torch.from_numpy(np.random.default_rng(0).dirichlet([2.0] * 5, 6)).flatten()
    of_params, of_lam = torch.func.grad(scored.val_loss, argnums=(0, 1))(params, lam, val)
    generator = torch.Generator().manual_seed(1)
    along = {n: torch.randn(p.shape, dtype=p.dtype, generator=generator) for n, p in params.items()}
    to = torch.randn(30, dtype=lam.dtype, generator=generator)

    def at(t):
        return scored.val_loss({n: p + t * along[n] for n, p in params.items()}, lam + t * to, val)

    slope = sum((of_params[n] * along[n]).sum() for n in params) + of_lam @ to
    torch.testing.assert_close(slope, (at(1e-7) - at(-1e-7)) / 2e-7, rtol=1e-5, atol=1e-7)


def test_networks_by_model():
    task = ImageTask(some_images())
    relaxed = task.bind(SPACE).net
    assert isinstance(relaxed, CellNetwork)
    assert relaxed.cell is None
    assert relaxed.classes == 3
    assert not relaxed.affine
    cell = task.network(SPACE, SPACE.candidates()[0])
    assert cell.cell is not None
    assert cell.affine
    assert ImageTask(some_images(channels=1), "convnet").network() == ConvNet(1, 3, (8, 8))
    with pytest.raises(InputError, match="no network yet"):
        task.init(torch.Generator())
    filters = PolynomialFilter(order=2, width=4)
    for space in (Finite("width", [1, 2]), filters, GNNZoo(), Product(filters, Finite("depth", [1, 2]))):
        with pytest.raises(
            InputError, match=f"space '{space.name}' builds no image network; use NASBench201"
        ):
            task.bind(space)
    with pytest.raises(InputError, match="space 'none' builds no image network"):
        task.network()


def test_settings_are_checked():
    images = some_images()
    with pytest.raises(InputError, match="model 'convnett' is not known; did you mean 'convnet'"):
        ImageTask(images, "convnett")
    with pytest.raises(InputError, match="model 5: it must be 'space', 'convnet' or a function"):
        ImageTask(images, 5)
    for decay in (-1.0, float("nan")):
        with pytest.raises(InputError, match="weight_decay"):
            ImageTask(images, weight_decay=decay)


def test_a_task_moves_and_describes_itself(task):
    moved = task.to("cpu")
    assert torch.equal(moved.val.x, task.val.x)
    assert moved._parts is not task._parts
    assert task.spec() == {"name": "image", "model": "space", "weight_decay": 5e-4}
    assert ImageTask(**{"data": task.data, **{k: v for k, v in task.spec().items() if k != "name"}})


# --- a user's own modules ---------------------------------------


class Functional(nn.Module):
    """Dropout as a function, a buffer, and a second head while training: what ``eval()`` changes."""

    def __init__(self, width):
        super().__init__()
        self.first, self.last = nn.Linear(192, width), nn.Linear(width, 3)
        self.register_buffer("offset", torch.full((192,), 2.0))

    def forward(self, x):
        hidden = F.dropout(self.first(x.flatten(1) + self.offset), 0.5, training=self.training)
        logits = self.last(F.relu(hidden))
        return (logits, hidden) if self.training else logits


def normed(config):
    return nn.Sequential(
        nn.Conv2d(3, config["width"], 3),
        nn.BatchNorm2d(config["width"]),
        nn.Dropout2d(0.7),
        nn.ReLU(),
        nn.Flatten(),
        nn.Dropout(0.9),
        nn.Linear(36 * config["width"], 3),
    )


def selu(config):
    return nn.Sequential(nn.Flatten(), nn.Linear(192, config["width"]), nn.AlphaDropout(0.1), nn.SELU())


def functional(config):
    return Functional(config["width"])


MODULES = [normed, functional]
CONFIG = {"width": 4}


@pytest.mark.parametrize("factory", MODULES)
def test_a_module_is_a_pure_function(factory):
    net = ModuleNetwork(factory, CONFIG)
    x = torch.randn(5, 3, 8, 8, generator=torch.Generator().manual_seed(0))
    params = net.init(torch.Generator().manual_seed(1))
    before = {name: p.clone() for name, p in params.items()}
    state = torch.random.get_rng_state()
    first, second = net.forward(params, None, x), net.forward(params, torch.ones(2), x)
    assert torch.equal(first, second)  # nothing is drawn, no running statistics
    assert first.shape == (5, 3)
    assert torch.equal(torch.random.get_rng_state(), state)
    assert all(torch.equal(params[name], before[name]) for name in params)
    assert not torch.equal(first, net.forward({name: 2 * p for name, p in params.items()}, None, x))
    assert net.prepare(x) is None


def test_batch_norm_takes_the_statistics_of_the_batch():
    net = ModuleNetwork(normed, CONFIG)
    x = torch.randn(6, 3, 8, 8, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    params = {name: p.double() for name, p in net.init(torch.Generator().manual_seed(1)).items()}
    maps = F.conv2d(x, params["0.weight"], params["0.bias"])
    mean, variance = maps.mean((0, 2, 3), keepdim=True), maps.var((0, 2, 3), correction=0, keepdim=True)
    hidden = (maps - mean) / (variance + 1e-5).sqrt() * params["1.weight"][:, None, None]
    hidden = F.relu(hidden + params["1.bias"][:, None, None]).flatten(1)
    torch.testing.assert_close(net.forward(params, None, x), hidden @ params["6.weight"].T + params["6.bias"])


def test_dropout_layers_are_on_in_a_training_step_alone():
    """Dropout2d drops whole channels, Dropout units; each scales the rest, by its own rate."""
    seen = {}

    def factory(config):
        return nn.Sequential(nn.Dropout2d(0.5), Seen(), nn.Dropout(0.25), Seen(), nn.Flatten())

    class Seen(nn.Module):
        def forward(self, x):
            seen.setdefault(id(self), []).append(x)
            return x

    net = ModuleNetwork(factory, CONFIG)
    x = torch.ones(200, 3, 8, 8)
    assert net.drops
    assert torch.equal(net.forward({}, None, x), x.flatten(1))
    seen.clear()
    dropped = net.with_dropout(Dropout(0.9, torch.tensor([5])))
    first = dropped.forward({}, None, x)
    channels, units = (passed[0] for passed in seen.values())
    assert set(channels.amax((2, 3)).flatten().tolist()) == {0.0, 2.0}
    assert torch.equal(channels.amax((2, 3)), channels.amin((2, 3)))
    assert float((channels == 0).float().mean()) == pytest.approx(0.5, abs=0.08)
    kept = channels > 0
    assert float((units[kept] == 0).float().mean()) == pytest.approx(0.25, abs=0.02)
    assert torch.allclose(units[units > 0], torch.tensor(2 / 0.75))
    assert torch.equal(first, dropped.forward({}, None, x))  # the key alone decides
    other = net.with_dropout(Dropout(0.9, torch.tensor([6]))).forward({}, None, x)
    assert not torch.equal(first, other)
    assert torch.equal(net.forward({}, None, x), x.flatten(1))


def test_dropout_that_is_off_is_told_once(caplog):
    _warn_of_dropout.cache_clear()
    for width in (2, 3):
        ModuleNetwork(selu, {"width": width})
        ModuleNetwork(functools.partial(selu), {"width": width})
    (record,) = caplog.records
    assert record.levelname == "WARNING"
    assert (
        f"model {__name__}:selu: its dropout, e.g. '2' (AlphaDropout), is off in training" in record.message
    )
    caplog.clear()
    ModuleNetwork(normed, CONFIG)
    ModuleNetwork(lambda config: nn.Sequential(nn.Flatten(), nn.Dropout(0.0), nn.Linear(192, 3)), CONFIG)
    assert not caplog.records


@pytest.mark.parametrize("factory", MODULES)
def test_starts_come_from_the_generator_alone(factory):
    net, twin = ModuleNetwork(factory, CONFIG), ModuleNetwork(factory, CONFIG)
    state = torch.random.get_rng_state()
    first = net.init(torch.Generator().manual_seed(3))
    torch.rand(7)  # whatever others draw
    moved = torch.random.get_rng_state()
    second = twin.init(torch.Generator().manual_seed(3))
    assert torch.equal(torch.random.get_rng_state(), moved)
    torch.random.set_rng_state(state)
    assert first.keys() == second.keys()
    assert all(torch.equal(first[name], second[name]) for name in first)
    assert not any(p.requires_grad for p in first.values())
    third = net.init(torch.Generator().manual_seed(4))
    weight = next(iter(first))
    assert not torch.equal(first[weight], third[weight])


def test_starts_drawn_by_numpy_or_random_come_from_the_generator_too():
    def factory(config):
        module = nn.Linear(4, 2)
        module.weight.data = torch.tensor(np.random.rand(2, 4), dtype=torch.float32)  # noqa: NPY002
        module.bias.data = torch.tensor([random.random(), random.random()])
        return module

    network = ModuleNetwork(factory, {})
    before = np.random.get_state()[1].tolist(), random.getstate()  # noqa: NPY002
    starts = [network.init(torch.Generator().manual_seed(seed)) for seed in (1, 1, 2)]
    assert (np.random.get_state()[1].tolist(), random.getstate()) == before  # noqa: NPY002
    for name in ("weight", "bias"):
        assert torch.equal(starts[0][name], starts[1][name])
        assert not torch.equal(starts[0][name], starts[2][name])


def test_a_module_takes_its_width_from_the_configuration():
    task = ImageTask(some_images(), normed)
    space = Finite("width", [2, 5])
    shapes = [
        task.bind(space, config).init(torch.Generator())["0.weight"].shape[0] for config in space.candidates()
    ]
    assert shapes == [2, 5]
    with pytest.raises(
        InputError, match=r"no relaxed network, so there are no hypergradients .* choose val_method"
    ):
        task.bind(space)
    with pytest.raises(InputError, match=r"the factory returned int for .*, not a Module"):
        ImageTask(some_images(), lambda config: 5).bind(space, {"width": 2})


class Callable:
    def __call__(self, config):
        return normed(config)


def test_a_module_is_described_by_its_name():
    images = some_images()
    name = f"{__name__}:normed"
    assert ImageTask(images, normed).spec()["model"] == name
    assert ImageTask(images, functools.partial(normed)).spec()["model"] == name
    assert ImageTask(images, Callable()).spec()["model"] == f"{__name__}:Callable"
    assert ":" in ImageTask(images, lambda config: normed(config)).spec()["model"]


def test_gradients_pass_through_a_module():
    task = dataclasses.replace(ImageTask(some_images(), normed), weight_decay=0.0)
    bound = task.bind(Finite("width", [2, 3]), {"width": 2})
    params = {
        name: p.double().requires_grad_() for name, p in bound.init(torch.Generator().manual_seed(0)).items()
    }
    small = task.sample("train", 6, 0)
    small = Images(small.x.double().requires_grad_(), small.y)
    loss = bound.train_loss(params, torch.zeros(2), small)
    found = torch.autograd.grad(loss, [small.x, params["6.weight"]])
    step = torch.zeros_like(small.x)
    step[2, 1, 3, 3] = 1e-6
    plus, minus = (
        bound.train_loss(params, torch.zeros(2), Images(small.x + s * step, small.y)) for s in (1, -1)
    )
    assert float(found[0][2, 1, 3, 3]) == pytest.approx((plus - minus).item() / 2e-6, rel=1e-4, abs=1e-9)
    assert bool(found[1].any())


def test_parameters_that_need_no_gradient_stay_as_they_are():
    def factory(config):
        module = nn.Sequential(nn.Flatten(), nn.Linear(16, 5), nn.Linear(5, 3))
        module[1].requires_grad_(False)
        return module

    net = ModuleNetwork(factory, CONFIG, 3)
    params = net.init(torch.Generator().manual_seed(1))
    assert set(params) == {"2.weight", "2.bias"}
    x = torch.rand(4, 1, 4, 4)
    kept = net.module[1].weight.detach().clone()
    expected = nn.functional.linear(net.module[1](x.flatten(1)), params["2.weight"], params["2.bias"])
    torch.testing.assert_close(net.forward(params, None, x), expected)
    assert torch.equal(net.module[1].weight, kept)


def test_what_a_factory_shares_or_is_given_stays_the_users():
    shared = nn.BatchNorm2d(1)
    config = {"width": 3}

    def factory(given):
        return nn.Sequential(shared, nn.Flatten(), nn.Linear(16, given.pop("width")))

    nets = [ModuleNetwork(factory, config, 3) for _ in range(2)]
    assert config == {"width": 3}
    assert shared.training
    assert shared.running_mean is not None
    assert nets[0].module[0] is not nets[1].module[0]


@pytest.mark.parametrize(
    "module",
    [nn.Conv2d(3, 3, 1), nn.Sequential(nn.Flatten(), nn.Linear(15, 3))],
    ids=["channels", "features"],
)
def test_modules_that_do_not_fit_the_images_are_refused(module):
    net = ModuleNetwork(lambda config: module, CONFIG, 3)
    said = r"the module for .* does not take images of shape \(4, 1, 4, 4\): "
    with pytest.raises(InputError, match=said):
        net.forward(net.init(torch.Generator()), None, torch.rand(4, 1, 4, 4))


@pytest.mark.parametrize(
    ("module", "said"),
    [
        (nn.Sequential(nn.Flatten(), nn.Linear(16, 7)), r"shape \(4, 7\)"),
        (nn.Sequential(nn.Flatten(), nn.Linear(16, 2)), r"shape \(4, 2\)"),
        (nn.Linear(4, 3), r"shape \(4, 1, 4, 3\)"),
        (nn.Conv2d(1, 3, 1), r"shape \(4, 3, 4, 4\)"),
        (nn.Sequential(nn.Flatten(0), nn.Linear(64, 3)), r"shape \(3,\)"),
        (nn.LSTM(16, 3), "tuple"),
    ],
)
def test_outputs_that_are_no_logits_are_refused(module, said):
    net = ModuleNetwork(lambda config: module, CONFIG, 3)
    x = torch.rand(4, 1, 4, 4).flatten(1) if isinstance(module, nn.LSTM) else torch.rand(4, 1, 4, 4)
    with pytest.raises(InputError, match=rf"gave {said} for 4 images; logits of shape \(4, 3\)"):
        net.forward(net.init(torch.Generator()), None, x)


def test_logits_may_have_trailing_ones():
    module = nn.Sequential(nn.Conv2d(1, 3, 4))
    net = ModuleNetwork(lambda config: module, CONFIG, 3)
    assert net.forward(net.init(torch.Generator()), None, torch.rand(4, 1, 4, 4)).shape == (4, 3, 1, 1)
