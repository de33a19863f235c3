"""Kernel inducing points: the closed-form kernel, ridge regression, random features, the loop."""

import json
import math
from importlib import resources

import pytest
import torch
from image_reducer_conformance import ImageReducerConformance
from tiny_images import tiny_image_task

import hcdc
from hcdc.condensers import REDUCERS, _kip
from hcdc.condensers._kip import arc_cosine, conv_slope, fc_slope, ntk, ridge_loss
from hcdc.core.checkpoint import Checkpoint
from hcdc.core.errors import InputError, NumericalError
from hcdc.core.progress import Progress
from hcdc.core.seeds import derive
from hcdc.networks import ConvNet
from hcdc.tasks import ImageTask
from hcdc.testing import set_bytes

KIP = REDUCERS["kip"]


def normal(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


class TestKernel:
    @pytest.mark.parametrize("rho", [-1.0, -0.9, 0.0, 0.3, 0.999, 1.0])
    def test_arc_cosine_kernels_are_the_moments_they_name(self, rho):
        """E over a standard normal pair in the plane: (1 / pi) integral over the angle, as E[r^2] = 2."""
        angle, between = torch.linspace(0, 2 * math.pi, 200_001, dtype=torch.float64), math.acos(rho)
        u, v = angle.cos(), (angle - between).cos()
        step = 2 * math.pi / 200_000
        zero = 2 * float(((u > 0) & (v > 0))[:-1].sum()) * step / (2 * math.pi)
        one = 2 * float((u.relu() * v.relu())[:-1].sum()) * step / math.pi
        found = arc_cosine(torch.tensor(rho, dtype=torch.float64))
        assert float(found[0]) == pytest.approx(zero, abs=1e-4)
        assert float(found[1]) == pytest.approx(one, abs=1e-8)

    def test_one_hidden_layer_by_hand(self):
        """T = |x||z|/d (kappa_1 + rho kappa_0): 2 |x|^2/d with itself, |x||z|/(d pi) across, 0 opposite."""
        x = torch.tensor([[3.0, 0.0]], dtype=torch.float64)
        z = torch.tensor([[3.0, 0.0], [0.0, 2.0], [-1.0, 0.0]], dtype=torch.float64)
        wanted = torch.tensor([[9.0, 3 / math.pi, 0.0]], dtype=torch.float64)
        torch.testing.assert_close(ntk(x, z, 1), wanted, rtol=1e-12, atol=1e-12)

    def test_no_hidden_layer_is_linear(self):
        x, z = normal(3, 5), normal(4, 5, seed=1)
        torch.testing.assert_close(ntk(x, z, 0), x @ z.t() / 5)

    def test_a_very_wide_network_agrees(self):
        x, width, repeats = normal(4, 6), 1024, 12
        total = torch.zeros(4, 4, dtype=torch.float64)
        for seed in range(repeats):
            shapes = [(width, 6), (width, width), (1, width)]
            weights = [normal(*s, seed=10 * seed + k).requires_grad_() for k, s in enumerate(shapes)]

            def network(row, weights=weights):
                h = weights[0] @ row / math.sqrt(6)
                for w in weights[1:]:
                    h = w @ h.relu() * math.sqrt(2 / width)
                return h.squeeze()

            slopes = [torch.autograd.grad(network(row), weights) for row in x]
            total += torch.tensor(
                [[float(sum((a * b).sum() for a, b in zip(g, h))) for h in slopes] for g in slopes]
            )
        wanted = ntk(x, x, 2)
        assert float((total / repeats - wanted).norm() / wanted.norm()) < 0.05

    def test_it_is_symmetric_positive_and_defined_everywhere(self):
        x = torch.cat([normal(5, 3, 2, 2), torch.zeros(1, 3, 2, 2, dtype=torch.float64)])
        x[4] = -x[3]
        leaf = x.clone().requires_grad_()
        kernel = ntk(leaf, leaf, 3)
        torch.testing.assert_close(kernel, kernel.t())
        assert float(torch.linalg.eigvalsh(kernel.detach())[0]) > -1e-12
        (slope,) = torch.autograd.grad(kernel.sum(), leaf)
        assert bool(slope.isfinite().all())


def test_ridge_regression_by_hand():
    ss, bs = torch.tensor([[2.0, 0.0], [0.0, 4.0]]), torch.tensor([[1.0, 1.0]])
    y, y_b = torch.tensor([[1.0], [-1.0]]), torch.tensor([[0.5]])
    predicted = 1 / (2 + 0.3) - 1 / (4 + 0.3)
    assert float(ridge_loss(ss, bs, y, y_b, 0.1)) == pytest.approx(0.5 * (predicted - 0.5) ** 2)


def test_the_slope_of_the_closed_form_is_that_of_differences():
    x, batch, y, y_b = normal(5, 1, 2, 3), normal(7, 1, 2, 3, seed=1), normal(5, 3), normal(7, 3, seed=2)
    _, slope = fc_slope(x, y, batch, y_b, 2, 1e-2)
    along = normal(5, 1, 2, 3, seed=3)
    ahead, behind = (fc_slope(x + h * along, y, batch, y_b, 2, 1e-2)[0] for h in (1e-5, -1e-5))
    assert float((ahead - behind) / 2e-5) == pytest.approx(float((slope * along).sum()), rel=1e-6)


def test_the_slope_of_random_features_is_that_of_autograd(monkeypatch):
    monkeypatch.setattr(_kip, "CHUNK", 2)
    net = ConvNet(1, 3, (8, 8), width=3, depth=2)
    networks = [
        {name: p.double() for name, p in net.init(torch.Generator().manual_seed(k)).items()} for k in range(3)
    ]
    x, batch, y, y_b = normal(5, 1, 8, 8), normal(7, 1, 8, 8, seed=1), normal(5, 3), normal(7, 3, seed=2)
    loss, slope = conv_slope(net, networks, x, y, batch, y_b, 1e-2)
    leaf = x.clone().requires_grad_()
    phi, phi_b = (torch.cat([net.features(p, t) for p in networks], 1) for t in (leaf, batch))
    count = 3 * net.features_out
    wanted = ridge_loss(phi @ phi.t() / count, phi_b @ phi.t() / count, y, y_b, 1e-2)
    torch.testing.assert_close(loss, wanted.detach(), rtol=1e-10, atol=0)
    torch.testing.assert_close(slope, torch.autograd.grad(wanted, leaf)[0], rtol=1e-8, atol=1e-12)


def quick(kernel, **settings):
    given = {"steps": 4, "batch": 20, "networks": 2, "width": 4, "depth": 2, "kernel": kernel}
    return KIP(**{**given, **settings})


def run(reducer, task, size, **options):
    given = {"progress": Progress(), "checkpoint": Checkpoint(None)}
    return reducer.reduce(task, "train", size, 0, **{**given, **options})


class KIPConformance(ImageReducerConformance):
    stores = True
    kernel = ""

    def make(self):
        return quick(self.kernel)

    def test_iterates_lead_to_what_reduce_returns(self):
        task, options = tiny_image_task(), {"progress": Progress(), "checkpoint": Checkpoint(None)}
        found = list(self.make().iterates(task, "train", 6, 0, every=2, **options))
        assert [now.iteration for now in found] == [2, None]
        assert set_bytes(found[-1].images) == set_bytes(run(self.make(), task, 6))
        assert set_bytes(found[0].images) != set_bytes(found[1].images)

    def test_the_error_falls_on_digits_and_pixels_stay_near(self):
        """The error of regression from 20 images to fresh ones, by the closed-form kernel."""
        task = ImageTask(hcdc.data("digits"), model="convnet")
        small = run(quick(self.kernel, steps=40, batch=400, lr=0.03, width=16), task, 20)
        start = task.sample("train", 20, derive(0, "kip", "train", "start"))
        assert torch.equal(start.y, small.y)
        before, after = (self.error(task, images) for images in (start, small))
        assert after < 0.9 * before
        moved = (small.x - start.x).abs()
        assert 0 < float(moved.mean()) < 0.5

    @staticmethod
    def error(task, small):
        x, fresh = small.x.double(), task.inputs(task.test.x).double()
        y, wanted = (torch.eye(10, dtype=torch.float64)[t] - 0.1 for t in (small.y, task.test.y))
        return float(ridge_loss(ntk(x, x, 2), ntk(fresh, x, 2), y, wanted, 5e-3))


class TestFullyConnected(KIPConformance):
    kernel = "fc"


class TestConvolutional(KIPConformance):
    kernel = "conv"

    def test_networks_are_fresh_in_every_step(self):
        task = tiny_image_task()
        regression = _kip._Regression(self.make(), task, "train", task.labels("train", 6))
        x = task.sample("train", 6, 0).x
        assert regression.slope(x, 1)[0] == regression.slope(x, 1)[0] != regression.slope(x, 2)[0]


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"kernel": "cnov"}, "kernel 'cnov' is not known; did you mean 'conv'"),
        ({"steps": 0}, "'steps' of method 'kip' must be at least 1, got 0"),
        ({"lr": 0.0}, "'lr' of method 'kip' must be more than 0, got 0.0"),
        ({"reg": math.nan}, "'reg' of method 'kip' must be finite, got nan"),
    ],
)
def test_refuses_senseless_settings(settings, text):
    with pytest.raises(InputError, match=text):
        KIP(**settings)


def test_divergence_is_diagnosed():
    with pytest.raises(NumericalError, match=r"KIP diverged by step 2 of 4.*learning rate 1e\+37"):
        run(quick("conv", lr=1e37), tiny_image_task(), 6)


def test_refuses_other_data():
    from tiny_graph import tiny_task

    with pytest.raises(InputError, match="method 'kip' condenses images"):
        run(quick("fc"), tiny_task(), 6)


def test_presets_are_whole():
    text = resources.files("hcdc.condensers").joinpath("presets", "kip.json").read_text()
    presets = json.loads(text)
    assert set(presets) == {"default", "cifar10", "cifar100", "fc"}
    assert KIP(**presets["default"]["settings"]) == KIP()
    for preset in presets.values():
        assert KIP(**preset["settings"]).settings() == preset["settings"]
    notebook = {"kernel": "fc", "depth": 1, "reg": 1e-6, "batch": 5000, "lr": 0.04}
    assert presets["fc"]["settings"].items() >= notebook.items()
