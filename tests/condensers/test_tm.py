"""Trajectory matching: written-out derivatives, the walk back through the student's steps, experts."""

import json
import math
import weakref
from importlib import resources

import pytest
import torch
from image_reducer_conformance import ImageReducerConformance
from tiny_images import tiny_image_task
from torch.fx.experimental.proxy_tensor import make_fx
from torch.nn import functional as F
from torch.utils._python_dispatch import TorchDispatchMode

import hcdc
from hcdc.condensers import TM, _experts, _tm
from hcdc.condensers._experts import ExpertTrainer
from hcdc.condensers._tm import Matching
from hcdc.core.checkpoint import Checkpoint
from hcdc.core.errors import InputError, NumericalError
from hcdc.core.progress import Progress
from hcdc.datasets import Images
from hcdc.networks import ConvNet, _convnet_blocks, _convnet_vector, loss_gradient, loss_products
from hcdc.tasks import ImageTask
from hcdc.testing import RecordingProgress, set_bytes
from hcdc.training import Augmentation, augment_each

NETS = {
    "colour": ConvNet(3, 3, (8, 8), width=4, depth=3),
    "odd sides, grey": ConvNet(1, 5, (7, 9), width=3, depth=2),
    "one block": ConvNet(2, 2, (4, 4), width=4, depth=1),
}


def drawn(net, images=5, seed=0):
    """theta with scales and shifts that are not 1 and 0, a direction, images and labels; float64."""
    generator = torch.Generator().manual_seed(seed)
    theta = net.flatten(net.init(generator)).double()
    theta += 0.1 * torch.randn(theta.shape, generator=generator, dtype=torch.float64)
    along = torch.randn(theta.shape, generator=generator, dtype=torch.float64)
    x = torch.randn(images, net.inputs, *net.size, generator=generator, dtype=torch.float64) + 2
    return theta, along, x, torch.arange(images) % net.classes


def loss_of(net, theta, x, y):
    return F.cross_entropy(net.forward(net.views(theta), None, x), y)


def match_of(config, net, size=6, seed=0, dtype=torch.float64):
    """A matching with draws, and an expert's start and target."""
    theta, along, x, _ = drawn(net, size, seed)
    start = Images(x.to(dtype), torch.arange(size) % net.classes)
    match = Matching(config, net, start)
    match.draw(seed)
    return match, theta.to(dtype), (theta + 0.05 * along).to(dtype)


def unrolled(match, start, target, through=True):
    """D, dD/dX and dD/da by autograd through the graph of all steps; or with each theta_k held fixed."""
    x, size = match.x.clone().requires_grad_(), match.size.clone().requires_grad_()
    theta = start.clone().requires_grad_()
    for k in range(match.config.student_steps):
        rows = match.order[k]
        batch = augment_each(x[rows], Augmentation(*(t[k] for t in match.parameters)))
        at = theta if through else theta.detach().requires_grad_()
        loss = loss_of(match.net, at, batch, match.y[rows])
        (g,) = torch.autograd.grad(loss, at, create_graph=True)
        theta = theta - size * g
    distance = (theta - target).square().sum() / (start - target).square().sum()
    return distance.detach(), *torch.autograd.grad(distance, (x, size))


@pytest.mark.parametrize("name", NETS)
class TestWrittenDerivatives:
    def test_gradient_is_that_of_autograd(self, name, monkeypatch):
        theta, _, x, y = drawn(NETS[name])
        leaf = theta.clone().requires_grad_()
        (wanted,) = torch.autograd.grad(loss_of(NETS[name], leaf, x, y), leaf)
        for written in (False, True):
            monkeypatch.setattr(_convnet_vector, "pays", lambda device, written=written: written)
            found = loss_gradient(NETS[name], theta, x, y, torch.float64)
            torch.testing.assert_close(found, wanted, rtol=0, atol=1e-12)

    def test_products_are_those_of_differentiating_twice(self, name, monkeypatch):
        theta, along, x, y = drawn(NETS[name])
        leaf, pixels = theta.clone().requires_grad_(), x.clone().requires_grad_()
        (g,) = torch.autograd.grad(loss_of(NETS[name], leaf, pixels, y), leaf, create_graph=True)
        curved, mixed = torch.autograd.grad(g @ along, (leaf, pixels))
        for written in (False, True):
            monkeypatch.setattr(_convnet_vector, "pays", lambda device, written=written: written)
            found = loss_products(NETS[name], theta, along, x, y, torch.float64)
            for one, other in zip(found, (g.detach() @ along, curved, mixed), strict=True):
                torch.testing.assert_close(one, other, rtol=1e-10, atol=1e-11)
        assert float(mixed.abs().max()) > 1e-3

    def test_a_constant_channel_stays_finite(self, name, monkeypatch):
        theta, along, x, y = drawn(NETS[name])
        x[0] = 3.0
        for written in (False, True):
            monkeypatch.setattr(_convnet_vector, "pays", lambda device, written=written: written)
            found = loss_products(NETS[name], theta.float(), along.float(), x.float(), y, torch.float32)
            assert all(bool(t.isfinite().all()) for t in found)


def test_large_means_cost_no_precision(monkeypatch):
    """In float32, images far from 0: the norm must not subtract large squares."""
    net = NETS["colour"]
    theta, _, x, y = drawn(net)
    monkeypatch.setattr(_convnet_vector, "pays", lambda device: True)
    wanted = loss_gradient(net, theta, x + 300, y, torch.float64)
    found = loss_gradient(net, theta.float(), (x + 300).float(), y, torch.float32)
    assert float((found - wanted).norm() / wanted.norm()) < 1e-3


def test_bfloat16_is_near(monkeypatch):
    """What precision "bf16" computes on CUDA, here on the CPU."""
    monkeypatch.setattr(_convnet_vector, "pays", lambda device: True)
    net = ConvNet(3, 10, (16, 16), width=16, depth=2)
    theta, along, x, y = (t if t.dtype == torch.long else t.float() for t in drawn(net, 20))
    full, half = (
        loss_products(net, theta, along, x - 2, y, dtype) for dtype in (torch.float, torch.bfloat16)
    )
    for one, other in zip(full[1:], half[1:]):
        assert other.dtype == torch.float32
        assert float(F.cosine_similarity(one.flatten(), other.flatten(), 0)) > 0.98


@pytest.mark.parametrize("function", ["forward", "backward", "forward_push", "backward_push"])
def test_blocks_can_be_traced_for_the_compiler(function):
    """What `Fused` hands to the compiler on CUDA computes the same."""
    generator = torch.Generator().manual_seed(0)

    def normal(*shape):
        return torch.randn(*shape, generator=generator)

    plane, half, one, vector = (2, 5, 4, 3), (2, 2, 2, 3), (2, 1, 1, 3), (3,)
    kept = [plane, one, one, vector, vector]
    kernels, shapes = {
        "forward": (_convnet_blocks.WHOLE, [plane, vector, vector]),
        "backward": (_convnet_blocks.WHOLE, [*kept, half]),
        "forward_push": (_convnet_blocks, [plane, vector, vector, plane, vector, vector]),
        "backward_push": (_convnet_blocks, [*kept, plane, one, one, half, half, vector]),
    }[function]
    tensors = [normal(*shape) for shape in shapes]
    plain = getattr(kernels, function).function
    traced = make_fx(plain, tracing_mode="fake")(*tensors)
    for one_, other in zip(traced(*tensors), plain(*tensors), strict=True):
        torch.testing.assert_close(one_, other)


def test_augmentation_is_pulled_back():
    """<A x - A 0, d> = <x, A^T d>, traced as for the compiler."""
    generator = torch.Generator().manual_seed(0)
    x, d = (torch.randn(12, 3, 8, 8, generator=generator) for _ in range(2))
    parameters = _tm.draw_each(generator, 2, (8, 8), batches=6).tensors()
    linear = _experts._augmented(x, *parameters) - _experts._augmented(torch.zeros_like(x), *parameters)
    back = make_fx(_experts._pulled_back, tracing_mode="fake")(d, *parameters)(d, *parameters)
    torch.testing.assert_close((linear * d).sum(), (x * back).sum())


class TestWalkBack:
    @pytest.mark.parametrize(("batch", "steps"), [(0, 3), (4, 5), (2, 1)])
    @pytest.mark.parametrize("name", ["colour", "odd sides, grey"])
    def test_equals_autograd_through_all_steps(self, batch, steps, name):
        config = TM(student_steps=steps, batch=batch, step_size=0.3)
        match, start, target = match_of(config, NETS[name])
        distance, dx, dsize = unrolled(match, start, target)
        torch.testing.assert_close(match.derivatives(start, target), distance, rtol=1e-12, atol=0)
        torch.testing.assert_close(match.dx, dx, rtol=0, atol=1e-10 * float(dx.abs().max()))
        torch.testing.assert_close(match.dsize, dsize, rtol=1e-10, atol=0)
        assert float(dx.abs().max()) > 0

    def test_a_walk_without_hessians_is_exact_for_one_step_only(self):
        for steps, exact in ((1, True), (3, False)):
            match, start, target = match_of(TM(student_steps=steps, step_size=0.3), NETS["colour"])
            match.derivatives(start, target)
            _, dx, _ = unrolled(match, start, target, through=False)
            apart = float((match.dx - dx).norm() / dx.norm())
            assert (apart < 1e-10) == exact
            assert exact or apart > 1e-3

    def test_batches_are_whole_orders(self):
        match, _, _ = match_of(TM(student_steps=5, batch=2), NETS["colour"], size=6)
        assert match.order.shape == (5, 2)
        assert sorted(match.order[:3].flatten().tolist()) == list(range(6))
        assert len(set(match.order[3:].flatten().tolist())) == 4

    @pytest.mark.parametrize("written", [False, True])
    def test_memory_does_not_grow_with_the_steps(self, written, monkeypatch):
        monkeypatch.setattr(_convnet_vector, "pays", lambda device: written)

        def peak(steps, walk):
            match, start, target = match_of(TM(student_steps=steps), NETS["colour"], dtype=torch.float32)
            with Live(t for t in vars(match).values() if isinstance(t, torch.Tensor)) as live:
                (match.derivatives if walk else lambda *a: unrolled(match, *a))(start, target)
            return live.peak

        assert peak(9, walk=True) == peak(3, walk=True)
        assert peak(9, walk=False) > 2 * peak(3, walk=False)


class Live(TorchDispatchMode):
    """Counts the bytes of tensors made inside that are alive, and their peak; not those that were there."""

    def __init__(self, before):
        super().__init__()
        self.now = self.peak = 0
        self.known = {tensor.untyped_storage().data_ptr() for tensor in before}

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        out = function(*args, **(kwargs or {}))
        for t in out if isinstance(out, (tuple, list)) else (out,):
            if isinstance(t, torch.Tensor):
                storage = t.untyped_storage()
                place = storage.data_ptr()
                if place not in self.known and place:
                    self.known.add(place)
                    self.now += storage.nbytes()
                    self.peak = max(self.peak, self.now)
                    weakref.finalize(storage, self._drop, place, storage.nbytes())
        return out

    def _drop(self, place, count):
        self.now -= count
        self.known.discard(place)


class TestExperts:
    def trainer(self, batch=8):
        task = tiny_image_task(floating=True)
        images = Images(task.train.x.double(), task.train.y)
        net = ConvNet(3, 3, (8, 8), width=4, depth=2)
        return ExpertTrainer(net, images, lambda x: x, 0.1, batch)

    def test_equal_a_plain_loop(self):
        trainer = self.trainer()
        path = trainer.train(2, 5, "role", 0)
        theta = path[0].clone()
        for epoch in range(2):
            generator = torch.Generator().manual_seed(hcdc.core.seeds.derive(5, "role", 0, epoch))
            order, parameters = trainer._draw(generator)
            assert order.shape == (5, 8)
            assert set(order.flatten().tolist()) == set(range(34))
            for k, rows in enumerate(order):
                x = augment_each(trainer.images.x[rows], Augmentation(*(t[k] for t in parameters)))
                leaf = theta.clone().requires_grad_()
                loss = loss_of(trainer.net, leaf, x, trainer.images.y[rows])
                theta = theta - 0.1 * torch.autograd.grad(loss, leaf)[0]
            torch.testing.assert_close(path[epoch + 1], theta, rtol=0, atol=1e-12)

    def test_depend_on_their_key_alone(self):
        one, other = self.trainer(), self.trainer()
        other.train(1, 5, "role", 1)
        assert torch.equal(one.train(1, 5, "role", 0), other.train(1, 5, "role", 0))
        assert not torch.equal(one.train(1, 5, "role", 0), one.train(1, 5, "role", 1))

    def test_a_batch_larger_than_the_data(self):
        assert self.trainer(batch=99).order.shape == (1, 34)

    def test_divergence_is_named(self):
        with pytest.raises(NumericalError, match=r"expert 1 of 1 diverged.*learning rate 1e\+30"):
            run(quick(expert_lr=1e30, experts=1))


def quick(**settings):
    given = {
        "iterations": 4,
        "student_steps": 3,
        "target_epochs": 1,
        "start_epochs": 2,
        "experts": 2,
        "expert_batch": 16,
        "width": 4,
        "depth": 2,
        "lr_img": 10.0,
        "step_size": 0.02,
    }
    return TM(**{**given, **settings})


def run(reducer, task=None, size=6, seed=0, progress=None, checkpoint=None):
    return reducer.reduce(
        task or tiny_image_task(),
        "train",
        size,
        seed,
        progress=progress or Progress(),
        checkpoint=checkpoint or Checkpoint(None),
    )


class TestTM(ImageReducerConformance):
    def make(self):
        return quick()

    @pytest.mark.usefixtures("save_always")
    def test_an_interrupted_run_continues_to_the_same_bytes(self, tmp_path, monkeypatch):
        monkeypatch.setattr(_tm, "CHECK", 1)
        whole = self.reduce()
        checkpoint = Checkpoint(tmp_path / "state", "key")
        with pytest.raises(KeyboardInterrupt):
            self.reduce(progress=RecordingProgress(stop_in=1), checkpoint=checkpoint)
        assert [file.name for file in tmp_path.iterdir()] == ["state.expert0"]
        with pytest.raises(KeyboardInterrupt):
            self.reduce(progress=RecordingProgress(stop_in=2), checkpoint=checkpoint)
        assert {file.name for file in tmp_path.iterdir()} == {"state", "state.expert0", "state.expert1"}
        monkeypatch.setattr(_tm, "ExpertTrainer", None)  # the experts are read back
        continued = RecordingProgress()
        assert set_bytes(self.reduce(progress=continued, checkpoint=checkpoint)) == set_bytes(whole)
        assert [done for name, done, _ in continued.steps if name == "TM"] == [3, 4]
        assert [file.name for file in tmp_path.iterdir()] == ["state"]

    def test_iterates_lead_to_what_reduce_returns(self):
        reducer, task = self.make(), tiny_image_task()
        options = {"progress": Progress(), "checkpoint": Checkpoint(None)}
        found = list(reducer.iterates(task, "train", 6, 0, every=1, **options))
        assert [now.iteration for now in found] == [1, 2, 3, None]
        assert set_bytes(found[-1].images) == set_bytes(run(reducer))
        assert len({set_bytes(now.images) for now in found}) == 4
        assert len({now.told["step_size"] for now in found}) == 4

    def test_the_file_has_the_step_size_that_was_learned(self, tmp_path):
        task = tiny_image_task()
        settings = quick().settings()
        small = hcdc.condense(
            task,
            hcdc.spaces.NASBench201(),
            "tm",
            train_size=6,
            val_size=3,
            val_method="random",
            options=settings,
        )
        (last,) = quick().iterates(task, "train", 6, 0, progress=Progress(), checkpoint=Checkpoint(None))
        assert last.told["step_size"] != settings["step_size"]
        small.save(tmp_path / "small.hcdc")
        kept = hcdc.CondensedDataset.load(tmp_path / "small.hcdc")
        assert kept.meta["train_learned"] == last.told
        assert ("learned beside", f"train: step_size={last.told['step_size']}") in kept.summary()
        assert "val=" not in dict(kept.summary())["settings"]

    def test_refuses_other_data(self):
        from tiny_graph import tiny_task

        with pytest.raises(InputError, match="method 'tm' condenses images"):
            run(self.make(), tiny_task())

    @pytest.mark.parametrize(
        ("settings", "text"),
        [
            ({"iterations": 0}, "'iterations' of method 'tm' must be at least 1, got 0"),
            ({"student_steps": 0}, "'student_steps' of method 'tm' must be at least 1"),
            ({"batch": -1}, "'batch' of method 'tm' must be at least 0"),
            ({"lr_img": 0.0}, "'lr_img' of method 'tm' must be more than 0"),
            ({"step_size": math.nan}, "'step_size' of method 'tm' must be finite"),
            ({"lr_step": -1.0}, "'lr_step' of method 'tm' must be at least 0"),
            ({"precision": "bf61"}, "precision 'bf61' is not known; did you mean 'bf16'"),
        ],
    )
    def test_refuses_senseless_settings(self, settings, text):
        with pytest.raises(InputError, match=text):
            TM(**settings)

    def test_divergence_is_diagnosed_and_leaves_no_experts(self, tmp_path):
        with pytest.raises(NumericalError, match=r"TM diverged by iteration 4 of 4.*try a smaller"):
            run(quick(lr_img=1e38, step_size=1.0), checkpoint=Checkpoint(tmp_path / "state", "key"))
        assert not list(tmp_path.iterdir())

    def test_the_step_size_stays_positive(self):
        match, start, target = match_of(TM(student_steps=2, lr_step=1e6, step_size=0.1), NETS["colour"])
        match.derivatives(start, target)
        match.dsize.fill_(1.0)
        match.derivatives = lambda *_: torch.zeros(())
        match.step(start, target)
        assert float(match.size) == pytest.approx(1e-4)

    def test_momentum_is_that_of_torch(self):
        match, start, target = match_of(TM(student_steps=2, lr_img=3.0, lr_step=0.01), NETS["colour"])
        x, size = (torch.nn.Parameter(t.clone()) for t in (match.x, match.size))
        optimiser = torch.optim.SGD(
            [{"params": [x], "lr": 3.0}, {"params": [size], "lr": 0.01}], momentum=0.5
        )
        for seed in range(3):
            match.draw(seed)
            match.step(start, target)
            x.grad, size.grad = match.dx.clone(), match.dsize.clone()
            optimiser.step()
        torch.testing.assert_close(match.x, x.detach())
        torch.testing.assert_close(match.size, size.detach())


def test_the_distance_falls_on_digits():
    task = ImageTask(hcdc.data("digits"), model="convnet")
    config = quick(iterations=30, student_steps=5, experts=1, expert_batch=128, expert_lr=0.02, lr_img=30.0)
    seen = []

    class Seen(Progress):
        def report(self, text, last=False):
            seen.append(text)

    run(config, task, size=20, progress=Seen(every=0.0))
    distances = [float(t.split("distance ")[1].split(",")[0]) for t in seen if "distance" in t]
    assert len(set(distances)) == 3
    assert distances[-1] < 0.8 * distances[0]


def test_presets_are_the_published_settings():
    text = resources.files("hcdc.condensers").joinpath("presets", "tm.json").read_text()
    presets = {name: TM(**preset["settings"]) for name, preset in json.loads(text).items()}
    assert presets["default"] == TM()
    for name, (steps, batch, size) in {"cifar10": (30, 0, 1e-3), "cifar100": (80, 125, 1e-2)}.items():
        config = presets[name]
        assert config.settings() == json.loads(text)[name]["settings"]
        assert (config.student_steps, config.batch, config.step_size) == (steps, batch, size)
        assert (config.target_epochs, config.start_epochs, config.iterations) == (2, 40, 5000)
        assert (config.lr_img, config.lr_step, config.expert_lr, config.expert_batch) == (
            1e3,
            1e-5,
            0.01,
            256,
        )
        assert config.expert_epochs == 41
