import dataclasses
import json
from importlib import resources

import pytest
import torch
from reducer_conformance import reduce
from tiny_graph import tiny_task as tiny_graph_task
from torch import nn
from torch.nn import functional as F

import hcdc
import hcdc.condensers._dc as module
from hcdc.condensers import REDUCERS
from hcdc.core.checkpoint import Checkpoint
from hcdc.core.errors import InputError, NumericalError
from hcdc.core.progress import Progress
from hcdc.core.seeds import stream
from hcdc.datasets import ImageData, Images
from hcdc.tasks import ImageTask
from hcdc.testing import RecordingProgress
from hcdc.training import Augmentation, augment, augment_each, draw_augmentation

DC, DSA = REDUCERS["dc"], REDUCERS["dsa"]
pytestmark = pytest.mark.usefixtures("save_always")
QUICK = {"iterations": 4, "outer": 3, "inner": 2, "batch_real": 6, "batch_train": 4, "width": 4}


@pytest.fixture(params=[False, True], ids=["autograd, as on a CPU", "written out, as on a GPU"])
def both_forms(request, monkeypatch):
    """The derivatives in both of their forms."""
    monkeypatch.setattr(module, "pays", lambda device: request.param)


def tiny_images(dtype=torch.float64, channels=2, side=8, counts=(9, 5, 12)):
    """Three classes of unequal numbers of random images, in mixed order."""
    generator = stream(0, "test", "tiny-images")

    def part():
        y = torch.repeat_interleave(torch.arange(len(counts)), torch.tensor(counts))
        y = y[torch.randperm(len(y), generator=generator)]
        x = torch.randn(len(y), channels, side, side, generator=generator, dtype=torch.float64)
        return Images((x + y[:, None, None, None]).to(dtype), y)

    mean, std = torch.full((channels,), 0.5), torch.full((channels,), 2.0)
    return ImageTask(
        ImageData("tiny", "test", part(), part(), part(), len(counts), mean, std, ("a", "b", "c")), "convnet"
    )


def content(images):
    return images.x.numpy().tobytes() + images.y.numpy().tobytes()


class PlainNet(nn.Module):
    """ConvNet-3 of ordinary layers; convolutions have biases, the norm is torch's GroupNorm."""

    def __init__(self, channels, classes, width, features):
        super().__init__()
        blocks = []
        for k in range(3):
            below = channels if k == 0 else width
            norm = nn.GroupNorm(width, width)
            blocks += [nn.Conv2d(below, width, 3, padding=1), norm, nn.ReLU(), nn.AvgPool2d(2)]
        self.net = nn.Sequential(*blocks, nn.Flatten(), nn.Linear(features, classes)).double()

    def take(self, params):
        with torch.no_grad():
            for own, given in zip(self.net.parameters(), params.values(), strict=True):
                own.copy_(given)
        return self

    def forward(self, x):
        return self.net(x)


def plain_distance(found, wanted):
    """Row-wise cosine distances of all weights, biases and norms skipped."""
    total = 0.0
    for f, w in zip(found, wanted):
        if f.dim() > 1:
            for a, b in zip(f.flatten(1), w.flatten(1)):
                total = total + 1 - (a * b).sum() / (a.norm() * b.norm() + 1e-6)
    return total


def plain_match(net, task, part, x, y, picked, view):
    """The matching distance of all classes as a differentiable function of x; ``view(images, class)``."""
    images, total = task.part(part), 0.0
    for c in range(task.num_classes):
        mine = picked[c][: int((images.y == c).sum())]
        assert bool((images.y[mine] == c).all())
        sides = []
        for shown, create in ((images.x[mine], False), (x[y == c], True)):
            loss = F.cross_entropy(net(view(shown, c)), torch.full((len(shown),), c))
            sides.append(torch.autograd.grad(loss, list(net.parameters()), create_graph=create))
        total = total + plain_distance(sides[1], sides[0])
    return total


def plain_view(run):
    if not run.method.augmented:
        return lambda x, c: x
    return lambda x, c: augment(x[None], run.shared[c : c + 1])[0]


def plain_run(run, task, part, start, y):
    """The whole algorithm by ordinary means, with the draws of ``run`` (a twin that makes its own steps)."""
    method, x = run.method, start.clone().requires_grad_()
    optimiser = torch.optim.SGD([x], lr=method.lr_img, momentum=method.momentum)
    net = PlainNet(run.net.inputs, task.num_classes, method.width, run.net.features_out)
    for iteration in range(method.iterations):
        run.begin(iteration)
        net.take(run.params)
        trained = torch.optim.SGD(net.parameters(), lr=method.lr_net)
        for step in range(method.outer):
            if step:
                run.train(step - 1)
                for epoch, order in enumerate(run.order):
                    shown = x.detach()[order]
                    if method.augmented:
                        shown = augment_each(shown, run.own[epoch * len(y) : (epoch + 1) * len(y)])
                    pairs = zip(shown.split(method.batch_train), y[order].split(method.batch_train))
                    for xs, ys in pairs:
                        trained.zero_grad()
                        F.cross_entropy(net(xs), ys).backward()
                        trained.step()
            run.match(step)
            optimiser.zero_grad()
            plain_match(net, task, part, x, y, run.picked, plain_view(run)).backward(inputs=[x])
            optimiser.step()
    return x.detach()


def test_row_distance_and_its_derivative():
    generator = stream(0, "test", "rows")
    f, w = (torch.randn(2, 3, 2, 3, 3, generator=generator, dtype=torch.float64) for _ in range(2))
    w[0, 1] *= 1e-7  # where the added 1e-6 matters
    f.requires_grad_()
    wanted = sum(plain_distance([a], [b]) for a, b in zip(f, w))
    distance, slope = module.row_distance(f.detach(), w)
    torch.testing.assert_close(distance, wanted.detach())
    torch.testing.assert_close(slope, torch.autograd.grad(wanted, f)[0])
    assert bool(module.row_distance(torch.zeros_like(w), w)[1].isfinite().all())


@pytest.mark.usefixtures("both_forms")
@pytest.mark.parametrize("method", [DC, DSA])
def test_equals_the_plain_algorithm(method):
    """All iterations in float64; classes of unequal size on both sides, one smaller than the real batch."""
    task, size, seed = tiny_images(), 7, 3
    reducer = method(**QUICK)
    small = reduce(reducer, task, size=size, seed=seed)
    start = reducer.start(task, "train", size, seed)
    assert start.dtype == torch.float64
    x = plain_run(module.Matching(reducer, task, "train", size, seed), task, "train", start, small.y)
    torch.testing.assert_close(small.x, x, rtol=0, atol=1e-8)
    assert float((small.x - start).abs().max()) > 0.1


@pytest.mark.usefixtures("both_forms")
@pytest.mark.parametrize("method", [DC, DSA])
def test_a_step_follows_the_finite_differences_of_the_distance(method):
    task, reducer = tiny_images(), method(**{**QUICK, "lr_img": 1e-9, "momentum": 0.0, "outer": 1})
    run = module.Matching(reducer, task, "train", 6, 0)
    run.begin(0)
    before = run.x.clone()
    run.match(0)
    slope = (before - run.x) / reducer.lr_img
    direction = torch.randn(before.shape, generator=stream(0, "test"), dtype=torch.float64)
    values = []
    for side in (1e-5, -1e-5):
        run.x.copy_(before + side * direction)
        run.total.zero_()
        run.match_step()
        values.append(float(run.total))
    by_difference = (values[0] - values[1]) / 2e-5
    assert abs(by_difference) > 0.01
    assert float((slope * direction).sum()) == pytest.approx(by_difference, rel=1e-4)


def test_the_first_order_side_can_be_bfloat16(monkeypatch):
    """As it runs on CUDA: the slope of the pixels and the network's epochs stay close to float32."""
    monkeypatch.setattr(module, "pays", lambda device: True)
    found = []
    for dtype in (torch.float32, torch.bfloat16):
        run = module.Matching(DC(**QUICK, depth=2), tiny_images(torch.float32), "train", 9, 0)
        run.first_order = dtype
        run.begin(0)
        begun = run.params["1.weight"].clone()
        run.match(0)
        run.train(0)
        assert run.params["1.weight"].dtype == torch.float32
        found.append((run.velocity.flatten(), (run.params["1.weight"] - begun).flatten()))
    for exact, rounded in zip(*found):
        assert not torch.equal(exact, rounded)
        assert float(F.cosine_similarity(exact, rounded, dim=0)) > 0.99


@pytest.mark.usefixtures("both_forms")
def test_classes_in_several_passes_change_nothing(monkeypatch):
    task = tiny_images()
    whole = reduce(DSA(**QUICK), task)
    monkeypatch.setattr(module, "IMAGES", 1)
    torch.testing.assert_close(reduce(DSA(**QUICK), task).x, whole.x, rtol=0, atol=1e-9)


def test_real_images_are_drawn_without_repeats_from_their_class():
    task = tiny_images()
    run = module.Matching(DC(**QUICK), task, "val", 6, 0)
    run.begin(0)
    assert run.all_picked.shape == (3, 3, 6)
    seen = set()
    for picked in run.all_picked:
        for c, count in enumerate((6, 5, 6)):
            mine = picked[c, :count].tolist()
            assert len(set(mine)) == count
            assert bool((task.val.y[mine] == c).all())
            seen.add(tuple(mine))
        torch.testing.assert_close(run.real_weight.sum(1), torch.ones(3, dtype=torch.float64))
    assert len(seen) == 9
    assert bool((run.real_weight[1] == torch.tensor([0.2] * 5 + [0.0], dtype=torch.float64)).all())
    for order in run.all_orders.flatten(0, 1):
        assert sorted(order.tolist()) == list(range(6))


def test_each_iteration_has_a_fresh_network():
    run = module.Matching(DC(**QUICK), tiny_images(), "train", 6, 0)
    run.begin(0)
    first = {name: p.clone() for name, p in run.params.items()}
    run.begin(1)
    assert not torch.equal(run.params["1.weight"], first["1.weight"])
    run.begin(0)
    assert all(torch.equal(run.params[name], p) for name, p in first.items())


def test_network_batches_have_one_operation_each():
    run = module.Matching(DSA(**{**QUICK, "inner": 40}), tiny_images(), "train", 6, 0)
    run.begin(0)
    own = run._draw_own()
    assert len(own) == 40 * 6
    coloured = (own.brightness != 0).view(40, 6)
    first, second = coloured[:, :4], coloured[:, 4:]  # batches of 4 and 2
    assert bool((first.all(1) | ~first.any(1)).all())
    assert 0 < int(first.all(1).sum()) < 40
    assert not torch.equal(first[:, 0], second[:, 0])
    assert len(own.brightness[own.brightness != 0].unique()) > 20


@pytest.mark.parametrize("method", [DC, DSA])
class TestConformance:
    @pytest.mark.parametrize(("part", "size"), [("train", 3), ("train", 8), ("val", 10)])
    def test_sizes_and_labels(self, method, part, size):
        task = tiny_images(torch.float32)
        small = reduce(method(**{**QUICK, "iterations": 1}), task, part, size)
        assert small.x.shape == (size, 2, 8, 8)
        assert small.x.dtype == torch.float32
        assert bool(small.x.isfinite().all())
        assert torch.equal(small.y, task.labels(part, size))
        assert small.weight is None

    def test_same_seed_same_bytes_other_seed_others(self, method):
        task = tiny_images(torch.float32)
        made = [content(reduce(method(**QUICK), task, seed=seed)) for seed in (3, 3, 4)]
        assert made[0] == made[1] != made[2]

    def test_the_original_is_not_changed(self, method):
        task = tiny_images()
        before = task.data.fingerprint()
        reduce(method(**QUICK), task)
        assert task.data.fingerprint() == before

    def test_an_interrupted_run_continues_to_the_same_bytes(self, method, tmp_path):
        task, checkpoint = tiny_images(torch.float32), Checkpoint(tmp_path / "state", "key")
        whole = content(reduce(method(**QUICK), task))
        with pytest.raises(KeyboardInterrupt):
            reduce(method(**QUICK), task, progress=RecordingProgress(stop_in=1), checkpoint=checkpoint)
        rest = RecordingProgress()
        assert content(reduce(method(**QUICK), task, progress=rest, checkpoint=checkpoint)) == whole
        assert [done for _, done, _ in rest.steps] == [3, 4]
        again = RecordingProgress()
        assert content(reduce(method(**QUICK), task, progress=again, checkpoint=checkpoint)) == whole
        assert again.steps == []

    def test_iterates_show_the_way(self, method):
        task, reducer = tiny_images(torch.float32), method(**QUICK)
        options = {"progress": Progress(), "checkpoint": Checkpoint(None)}
        way = list(reducer.iterates(task, "train", 8, 0, every=1, **options))
        assert [now.iteration for now in way] == [0, 1, 2, 3, None]
        assert way[0].figure is None
        assert all(now.figure > 0 for now in way[1:])
        torch.testing.assert_close(way[0].images.x, reducer.start(task, "train", 8, 0), rtol=0, atol=0)
        assert len({content(now.images) for now in way}) == 5
        assert content(way[-1].images) == content(reduce(reducer, task))

    def test_settings_make_the_same_reducer(self, method):
        reducer = method(**QUICK)
        assert method(**json.loads(json.dumps(reducer.settings()))) == reducer

    def test_presets_are_the_published_settings(self, method):
        text = resources.files("hcdc.condensers").joinpath("presets", f"{method.name}.json").read_text()
        presets = json.loads(text)
        assert set(presets) == {"default", "cifar10", "cifar100"}
        for preset in presets.values():
            assert set(preset) == {"note", "settings"}
            assert method(**preset["settings"]).settings() == preset["settings"]
        assert method(**presets["default"]["settings"]) == method()
        published = {"iterations": 1000, "outer": 50, "inner": 10, "lr_img": 0.1, "momentum": 0.5}
        published |= {"lr_net": 0.01, "batch_real": 256, "batch_train": 256, "width": 128, "depth": 3}
        assert presets["cifar10"]["settings"] == presets["cifar100"]["settings"] == published

    def test_divergence_is_a_diagnosis(self, method):
        task = tiny_images()
        task.data.train.x[int(torch.nonzero(task.data.train.y == 1)[0])] = float("nan")
        with pytest.raises(NumericalError, match=r"diverged by iteration 1 of 4.*pixels and 0.01 of the net"):
            reduce(method(**QUICK), task)

    def test_refuses_what_it_cannot_condense(self, method):
        with pytest.raises(InputError, match=f"'{method.name}' condenses images, but 'tiny' has graphs"):
            reduce(method(**QUICK), tiny_graph_task())
        with pytest.raises(InputError, match=r"class 1 .*has only 5 train images"):
            reduce(method(**QUICK), tiny_images(), size=18)

    @pytest.mark.parametrize(
        ("settings", "text"),
        [
            ({"outer": 0}, "must be at least 1, got 0"),
            ({"inner": -1}, "must be at least 0, got -1"),
            ({"lr_img": 0.0}, "must be more than 0, got 0.0"),
            ({"momentum": 1.0}, "must be at least 0 and less than 1, got 1.0"),
        ],
    )
    def test_refuses_senseless_settings(self, method, settings, text):
        with pytest.raises(
            InputError, match=f"setting '{next(iter(settings))}' of method '{method.name}' {text}"
        ):
            method(**settings)


def test_dc_starts_from_noise_and_dsa_from_real_images_of_the_label():
    task = tiny_images()
    noise = DC().start(task, "train", 9, 0)
    assert abs(float(noise.mean())) < 0.1
    assert float(noise.std()) == pytest.approx(1, abs=0.1)
    start, y = DSA().start(task, "train", 9, 0), task.labels("train", 9)
    for image, label in zip(start, y):
        same = (task.train.x == image).flatten(1).all(1)
        assert task.train.y[same].tolist() == [int(label)]


def test_dsa_without_an_operation_is_dc_from_the_same_start(monkeypatch):
    task, dsa = tiny_images(), DSA(**{**QUICK, "inner": 0})
    monkeypatch.setattr(DC, "start", lambda self, *given: dsa.start(*given))
    monkeypatch.setattr(DC, "name", "dsa")  # equal draws
    monkeypatch.setattr(
        module, "draw_augmentation", lambda g, groups, size: Augmentation.identity(groups, size)
    )
    plain = reduce(DC(**dataclasses.asdict(dsa)), task)
    torch.testing.assert_close(reduce(dsa, task).x, plain.x, rtol=0, atol=1e-12)
    monkeypatch.setattr(module, "draw_augmentation", draw_augmentation)
    assert float((reduce(dsa, task).x - plain.x).abs().max()) > 0.01


@pytest.mark.parametrize("method", [DC, DSA])
def test_the_distance_falls_on_digits(method):
    task = ImageTask(hcdc.data("digits"), "convnet")
    reducer = method(iterations=12, outer=4, inner=2, batch_real=32, width=8, depth=2, lr_img=0.5)
    options = {"progress": Progress(), "checkpoint": Checkpoint(None), "every": 1}
    figures = [now.figure for now in reducer.iterates(task, "train", 20, 0, **options)][1:]
    assert sum(figures[-3:]) < 0.85 * sum(figures[:3])
