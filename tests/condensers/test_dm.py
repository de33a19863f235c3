import pytest
import torch
from image_reducer_conformance import ImageReducerConformance
from reducer_conformance import reduce
from tiny_graph import tiny_task
from tiny_images import tiny_image_task

from hcdc.condensers import REDUCERS, _dm, make_reducer
from hcdc.condensers._class_images import Grouped, RealBatches, class_groups
from hcdc.core.checkpoint import Checkpoint
from hcdc.core.errors import InputError, NumericalError
from hcdc.core.progress import Progress
from hcdc.core.seeds import derive
from hcdc.datasets import Images
from hcdc.networks import ConvNet, Initialiser
from hcdc.training import augment, draw_augmentation


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def quick(**changes):
    return REDUCERS["dm"](**{"iterations": 40, "lr_img": 0.5, "batch": 6, "width": 4, "depth": 2, **changes})


class TestDM(ImageReducerConformance):
    stores = True

    def make(self):
        return quick()


def network(width=5, side=8):
    net = ConvNet(3, 4, (side, side), width=width, depth=2)
    return net, {name: p.double() for name, p in net.init(generator(1)).items()}


def slope_by_autograd(net, params, real, synthetic, a, dtype):
    """`matching_loss` in the form of `matching_slope`."""
    leaf = synthetic[0].clone().requires_grad_()
    cast = {name: p.to(dtype) for name, p in params.items()}
    loss = _dm.matching_loss(net, cast, real, (leaf, synthetic[1]), a)
    return loss.detach(), torch.autograd.grad(loss, leaf)[0]


FORMS = pytest.mark.parametrize("slope", [slope_by_autograd, _dm.matching_slope])


@FORMS
def test_the_gradient_equals_that_of_a_plain_loop_over_classes(slope):
    """Each class by itself, without what fills it up, with torch's derivative of `ConvNet.features`."""
    net, params = network()
    counts = [(7, 3), (7, 2), (5, 3), (7, 3)]  # real and synthetic images of each class
    a = draw_augmentation(generator(3), 4, (8, 8))
    real = torch.randn(4, 7, 3, 8, 8, generator=generator(4), dtype=torch.float64)
    syn = torch.randn(4, 3, 3, 8, 8, generator=generator(5), dtype=torch.float64)
    weights = []
    for k, width in enumerate((7, 3)):
        valid = torch.tensor([[float(i < count[k]) for i in range(width)] for count in counts]).double()
        weights.append(valid / valid.sum(1, keepdim=True))
    loss, found = slope(net, params, (real, weights[0]), (syn, weights[1]), a, torch.float64)

    expected, total = torch.zeros_like(found), 0.0
    for c, (n_real, n_syn) in enumerate(counts):
        mine = syn[c, :n_syn].detach().requires_grad_()
        target = net.features(params, augment(real[c : c + 1, :n_real], a[c : c + 1])[0]).mean(0)
        mean = net.features(params, augment(mine[None], a[c : c + 1])[0]).mean(0)
        term = ((target - mean) ** 2).sum()
        (gradient,) = torch.autograd.grad(term, mine)
        expected[c, :n_syn] += gradient
        total += float(term.detach())
    assert float(loss) == pytest.approx(total, rel=1e-9)
    assert torch.allclose(found, expected, rtol=1e-8, atol=1e-12)
    assert float(found.abs().max()) > 1e-3


@pytest.mark.parametrize(("at_once", "written"), [(4096, False), (20, False), (4096, True), (1, True)])
def test_a_run_equals_plain_iterations(at_once, written, monkeypatch):
    """The whole method written as a loop, with the same draws; however many classes are embedded at once.

    Derivatives by autograd as on a CPU, and written out as on a GPU.
    """
    monkeypatch.setitem(_dm.AT_ONCE, "cpu", at_once)
    monkeypatch.setattr(_dm, "pays", lambda device: written)
    config, task, seed = quick(iterations=12, lr_img=2.0, momentum=0.5), tiny_image_task(), 7
    small = reduce(config, task, size=8, seed=seed)

    start = task.sample("train", 8, derive(seed, "dm", "train", "start"))
    x, velocity = start.x.clone(), torch.zeros_like(start.x)
    net = ConvNet(3, 3, (8, 8), width=4, depth=2)
    initialiser, batches = Initialiser(net, "cpu"), RealBatches(task, "train", 6)
    for first, count in ((0, 10), (10, 2)):
        draw = generator(derive(seed, "dm", "train", first))
        u = torch.rand(count, initialiser.length, generator=draw)
        index, a = batches.draw(draw, count), draw_augmentation(draw, 3 * count, (8, 8))
        for k in range(count):
            vector = torch.empty(initialiser.length)
            initialiser.write(vector, u[k])
            params = net.views(vector)
            leaf = x.clone().requires_grad_()
            loss = torch.zeros(())
            for c in range(3):
                shared = a[3 * k + c : 3 * k + c + 1]
                real = task.chosen("train", index[k, c]).x
                assert bool((task.train.y[index[k, c]] == c).all())
                target = net.features(params, augment(real[None], shared)[0]).mean(0)
                mean = net.features(params, augment(leaf[start.y == c][None], shared)[0]).mean(0)
                loss = loss + (target - mean).square().sum()
            velocity = 0.5 * velocity + torch.autograd.grad(loss, leaf)[0]
            x = x - 2.0 * velocity
    assert float((small.x - start.x).abs().max()) > 0.01
    assert torch.allclose(small.x, x, atol=1e-4)


def test_matching_brings_the_mean_embeddings_together():
    """Under fresh networks the matched images are nearer to the class means than the images they began as."""
    task = tiny_image_task()
    small = reduce(quick(iterations=150, lr_img=1.0, width=8), task, size=6)
    before = task.sample("train", 6, derive(0, "dm", "train", "start"))
    net = ConvNet(3, 3, (8, 8), width=8, depth=2)
    real = task.inputs(task.train.x)

    def distance(images, params):
        return sum(
            float((net.features(params, images.x[images.y == c]).mean(0) - mean).square().sum())
            for c, mean in enumerate(net.features(params, real[task.train.y == c]).mean(0) for c in range(3))
        )

    fresh = [net.init(generator(100 + k)) for k in range(5)]
    assert sum(distance(small, p) for p in fresh) < 0.7 * sum(distance(before, p) for p in fresh)


def test_batches_have_each_class_without_repeats_and_all_of_a_small_class():
    task = tiny_image_task()
    batches = RealBatches(task, "train", 10)  # classes of 14, 9 and 11
    index = batches.draw(generator(), 200)
    assert index.shape == (200, 3, 10)
    assert torch.equal(task.train.y[index], torch.arange(3)[:, None].expand(200, 3, 10))
    for c, count in enumerate((10, 9, 10)):
        assert all(len(set(row[:count].tolist())) == count for row in index[:, c])
        assert batches.weight[c].tolist() == pytest.approx([1 / count] * count + [0.0] * (10 - count))
        assert len(index[:, c].unique()) == (14, 9, 11)[c]
    drawn = index[:, 0].flatten().bincount()
    drawn = drawn[drawn > 0].double()
    assert float(drawn.max() / drawn.min()) < 1.3  # uniform: 143 each
    assert torch.equal(batches.images_at(index[0, 1]), task.chosen("train", index[0, 1]).x)


def test_class_groups_and_grouped_images_keep_the_order():
    y = torch.tensor([2, 0, 1, 0, 2, 2])
    index, valid = class_groups(y, 3)
    assert index.tolist() == [[1, 3, 1], [2, 2, 2], [0, 4, 5]]
    assert valid.tolist() == [[True, True, False], [True, False, False], [True, True, True]]
    given = Images(torch.randn(6, 1, 2, 2, generator=generator()), y)
    grouped = Grouped(given, 3)
    assert grouped.weight.sum(1).tolist() == pytest.approx([1, 1, 1])
    assert torch.equal(grouped.images().x, given.x)
    grouped.x[0, 1] += 1
    assert (grouped.images().x != given.x).flatten(1).any(1).tolist() == [
        False,
        False,
        False,
        True,
        False,
        False,
    ]


def test_says_when_it_diverges():
    task = tiny_image_task()
    with pytest.raises(NumericalError, match=r"DM diverged by iteration .* at lr_img 1e\+38"):
        reduce(quick(lr_img=1e38), task, size=6)


def test_reports_the_matching_loss():
    seen = []

    class Noted(Progress):
        def report(self, text, last=False):
            seen.append(text)

    quick(iterations=20).reduce(
        tiny_image_task(), "train", 6, 0, progress=Noted(every=0.0), checkpoint=Checkpoint(None)
    )
    assert "DM: 10/20, matching loss " in seen[0]
    assert "DM: 20/20, matching loss " in seen[-1]


def test_refuses_a_graph():
    with pytest.raises(InputError, match="method 'dm' condenses images, but 'tiny' has graphs"):
        reduce(quick(), tiny_task())


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"iterations": 0}, "'iterations' of method 'dm' must be at least 1, got 0"),
        ({"lr_img": 0.0}, "'lr_img' of method 'dm' must be more than 0"),
        ({"momentum": 1.0}, "'momentum' of method 'dm' must be at least 0 and less than 1, got 1.0"),
    ],
)
def test_refuses_senseless_settings(change, text):
    with pytest.raises(InputError, match=text):
        quick(**change)


@pytest.mark.parametrize("preset", ["default", "cifar10", "cifar100"])
def test_reference_settings(preset):
    settings = make_reducer("dm", preset).settings()
    assert settings == {
        "iterations": 20_000, "lr_img": 1.0, "momentum": 0.5, "batch": 256, "width": 128, "depth": 3
    }  # fmt: skip


@FORMS
def test_bfloat16_gives_nearly_the_same_gradient(slope):
    """What a GPU computes in; the mean over a batch of 16 moves the gradient far more than this."""
    net = ConvNet(3, 4, (16, 16), width=16)
    params = net.init(generator(1))
    x = torch.randn(2, 24, 3, 16, 16, generator=generator(2)).cumsum(-1).cumsum(-2) / 8
    a, weight = draw_augmentation(generator(3), 2, (16, 16)), torch.full((2, 16), 1 / 16)
    found = []
    for dtype in (torch.float32, torch.bfloat16):
        synthetic = x[:, 16:], torch.full((2, 8), 1 / 8)
        _, gradient = slope(net, params, (x[:, :16], weight), synthetic, a, dtype)
        assert gradient.dtype == torch.float32
        found.append(gradient.flatten())
    assert float(torch.cosine_similarity(*found, 0)) > 0.99
    assert float(found[1].norm() / found[0].norm()) == pytest.approx(1, abs=0.02)
