"""ConvNet-3 as pure functions: torch's own layers, and derivatives that torch's GroupNorm does not have."""

import math

import pytest
import torch
from torch import nn
from torch.func import functional_call, grad, jvp

from hcdc.core.errors import InputError
from hcdc.networks import ConvNet
from hcdc.networks._convnet import instance_norm


def layers(net):
    """The same network of torch's layers."""
    parts = []
    for k in range(net.depth):
        below = net.inputs if k == 0 else net.width
        parts += [
            nn.Conv2d(below, net.width, 3, padding=1),
            nn.GroupNorm(net.width, net.width),
            nn.ReLU(),
            nn.AvgPool2d(2),
        ]
    return nn.Sequential(*parts, nn.Flatten(), nn.Linear(net.features_out, net.classes))


def named_as_layers(net, params):
    """Parameters under the names of `layers`."""
    found = {}
    for k in range(net.depth):
        found |= {f"{4 * k}.{name}": params[f"{k}.{name}"] for name in ("weight", "bias")}
        found |= {
            f"{4 * k + 1}.weight": params[f"{k}.scale"],
            f"{4 * k + 1}.bias": params[f"{k}.shift"],
        }
    last = 4 * net.depth + 1
    return found | {f"{last}.{name}": params[f"linear.{name}"] for name in ("weight", "bias")}


def noisy(net, seed=0):
    """Double parameters, none of them 0 or 1."""
    draw = torch.Generator().manual_seed(seed)
    start = net.init(draw)
    return {name: p.double() + 0.1 * torch.randn(p.shape, generator=draw) for name, p in start.items()}


def images(count, net, seed=1):
    draw = torch.Generator().manual_seed(seed)
    return torch.randn(count, net.inputs, *net.size, generator=draw, dtype=torch.float64)


@pytest.mark.parametrize(("classes", "count"), [(10, 320_010), (100, 504_420)])
def test_parameter_counts_are_the_published_ones(classes, count):
    net = ConvNet(3, classes)
    assert sum(math.prod(shape) for shape in net.shapes().values()) == count
    assert sum(p.numel() for p in layers(net).parameters()) == count


@pytest.mark.parametrize("fused", [False, True])
@pytest.mark.parametrize(
    ("inputs", "size", "width", "depth"), [(3, (8, 8), 4, 3), (1, (10, 7), 3, 2), (3, (16, 8), 2, 1)]
)
def test_it_is_the_network_of_torch_layers(inputs, size, width, depth, fused):
    net = ConvNet(inputs, 5, size, width, depth, fused)
    params, x = noisy(net), images(6, net)
    module = layers(net).double()
    named = named_as_layers(net, params)
    assert {name: p.shape for name, p in module.named_parameters()} == {n: p.shape for n, p in named.items()}
    torch.testing.assert_close(net.forward(params, None, x), functional_call(module, named, (x,)))
    assert net.features(params, x).shape == (6, net.features_out)
    linear = net.features(params, x) @ params["linear.weight"].T + params["linear.bias"]
    torch.testing.assert_close(net.forward(params, torch.ones(3), x), linear)


def test_an_image_is_normalised_by_itself():
    """Unlike BatchNorm: the outputs of one image do not depend on the others."""
    net = ConvNet(1, 3, (8, 8), 4, 2)
    params, x = noisy(net), images(5, net)
    torch.testing.assert_close(net.forward(params, None, x)[2:3], net.forward(params, None, x[2:3]))


def test_starts_are_uniform_within_the_bounds_of_torchs_layers():
    net = ConvNet(3, 10, (8, 8), 16, 3)
    params = net.init(torch.Generator().manual_seed(0))
    assert list(params) == list(net.shapes())
    assert all(params[name].shape == shape for name, shape in net.shapes().items())
    fans = {"0": 27, "1": 144, "2": 144, "linear": 16}
    for name, p in params.items():
        layer, kind = name.split(".")
        assert p.dtype == torch.float32
        if kind in ("scale", "shift"):
            assert torch.equal(p, torch.full_like(p, float(kind == "scale")))
            continue
        bound = 1 / math.sqrt(fans[layer])
        assert net.fan_in(name) == fans[layer]
        assert float(p.abs().max()) <= bound
        if p.numel() > 100:
            assert float(p.abs().max()) > 0.95 * bound
            assert float(p.std()) == pytest.approx(bound / math.sqrt(3), rel=0.1)
    again = net.init(torch.Generator().manual_seed(0))
    assert all(torch.equal(params[name], again[name]) for name in params)
    other = net.init(torch.Generator().manual_seed(1))
    assert not torch.equal(params["0.weight"], other["0.weight"])


def test_the_composed_norm_has_right_derivatives_of_derivatives():
    """Forward over reverse, what alignment takes, against central differences of the gradient."""
    net = ConvNet(1, 3, (4, 4), 2, 1)
    params, x = noisy(net), images(3, net)
    direction = images(3, net, seed=2)

    def loss(pixels):
        return net.forward(params, None, pixels).softmax(1)[:, 0].log().sum()

    along = jvp(grad(loss), (x,), (direction,))[1]
    step = 1e-5
    expected = (grad(loss)(x + step * direction) - grad(loss)(x - step * direction)) / (2 * step)
    assert float(expected.abs().max()) > 1e-2
    torch.testing.assert_close(along, expected, rtol=1e-5, atol=1e-7)


def test_both_norms_agree():
    draw = torch.Generator().manual_seed(0)
    x = 3 + 2 * torch.randn(4, 3, 5, 6, generator=draw, dtype=torch.float64)
    scale, shift = torch.rand(2, 3, generator=draw, dtype=torch.float64)
    plain, fused = (instance_norm(x, scale, shift, f) for f in (False, True))
    torch.testing.assert_close(plain, fused)
    torch.testing.assert_close(plain.mean((2, 3)), shift.expand(4, 3))


def test_wrong_images_are_refused():
    with pytest.raises(InputError, match="4 x 8 pixels are too small for a ConvNet of depth 3; at least 8"):
        ConvNet(3, 10, (4, 8))
    net = ConvNet(3, 10, (8, 8), 2)
    params = net.init(torch.Generator().manual_seed(0))
    for shape in ((2, 1, 8, 8), (2, 3, 8, 16), (3, 8, 8)):
        with pytest.raises(InputError, match=r"needs \[n, 3, 8, 8\]"):
            net.forward(params, None, torch.zeros(shape))
