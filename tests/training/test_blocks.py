import pytest
import torch
from torch.nn import functional as F

from hcdc.core.seeds import stream
from hcdc.spaces._convnet import ConvNet
from hcdc.training import _blocks
from hcdc.training._blocks import Features, Pass, block, block_back, block_push, block_push_back

SIZES = [(8, 8), (13, 10)]  # the second drops rows and columns in its pools


def drawn(*shape, seed=0, dtype=torch.float64):
    return torch.randn(*shape, generator=stream(seed, "test", "blocks"), dtype=torch.float64).to(dtype)


def params_of(net):
    """All parameters random, scales and shifts too; float64."""
    generator = stream(0, "test", "params")
    return {
        name: torch.randn(shape, generator=generator, dtype=torch.float64) * 0.4 + name.endswith("scale")
        for name, shape in net.shapes().items()
    }


def plain_block(u, scale, shift):
    """By torch's layers; u and the result are [n, h, w, c]."""
    z = F.group_norm(u.permute(0, 3, 1, 2), u.shape[3], scale, shift)
    return F.avg_pool2d(F.relu(z), 2).permute(0, 2, 3, 1)


@pytest.mark.parametrize("size", SIZES)
def test_a_block_and_its_derivatives(size):
    """Reverse mode, and both tangents by differences of what they are the tangents of."""
    u, u_dot = drawn(3, *size, 4), drawn(3, *size, 4, seed=1)
    scale, shift = drawn(4, seed=2), drawn(4, seed=3) * 0.3
    y, mean, r = block(u, scale, shift)
    torch.testing.assert_close(y, plain_block(u, scale, shift))
    dy, dy_dot = drawn(*y.shape, seed=4), drawn(*y.shape, seed=5)
    du, s0, s1 = block_back(u, mean, r, scale, shift, dy)
    leaves = [t.clone().requires_grad_() for t in (u, scale, shift)]
    wanted = torch.autograd.grad(plain_block(*leaves), leaves, dy)
    torch.testing.assert_close((du, s1.sum((0, 1, 2)), s0.sum((0, 1, 2))), wanted)

    pushed = block_push(u, mean, r, scale, shift, u_dot)
    both = block_push_back(u, mean, r, scale, shift, u_dot, dy, dy_dot)
    step, found = 1e-7, []
    for sign in (1, -1):
        moved = u + sign * step * u_dot
        y, mean_at, r_at = block(moved, scale, shift)
        found.append((y, block_back(moved, mean_at, r_at, scale, shift, dy + sign * step * dy_dot)[0]))
    for tangent, up, down in zip((pushed, both), *found):
        assert float(tangent.abs().max()) > 0.1
        torch.testing.assert_close(tangent, (up - down) / (2 * step), rtol=1e-5, atol=1e-6)


def test_a_large_mean_does_not_spoil_the_variance():
    u = drawn(2, 32, 32, 3, dtype=torch.float32) * 0.01 + 1000
    y, mean, r = block(u, torch.ones(3), torch.zeros(3))
    exact = block(u.double(), torch.ones(3).double(), torch.zeros(3).double())
    torch.testing.assert_close((mean.double(), r.double()), exact[1:], rtol=1e-4, atol=0)
    torch.testing.assert_close(y.double(), exact[0], rtol=0, atol=0.01)  # the float32 of 1000 itself
    flat = torch.full((1, 4, 4, 1), 3.3)
    y, mean, r = block(flat, torch.ones(1), torch.full((1,), 0.5))
    assert float(r) == pytest.approx(_blocks.NORM_EPS**-0.5)
    assert bool((y == 0.5).all())


def test_sums_are_made_in_float32():
    u, scale, shift = drawn(2, 32, 32, 3, dtype=torch.bfloat16) + 4, torch.ones(3), torch.zeros(3)
    y, mean, r = block(u, scale, shift)
    assert (y.dtype, mean.dtype, r.dtype) == (torch.bfloat16, torch.float32, torch.float32)
    exact = block(u.double(), scale.double(), shift.double())
    torch.testing.assert_close((mean.double(), r.double()), exact[1:], rtol=1e-5, atol=0)
    dy = drawn(*y.shape, seed=1, dtype=torch.bfloat16)
    du, s0, s1 = block_back(u, mean, r, scale, shift, dy)
    assert du.dtype == torch.bfloat16
    sums = block_back(u.double(), *exact[1:], scale.double(), shift.double(), dy.double())[1:]
    torch.testing.assert_close((s0.double(), s1.double()), sums, rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize("size", SIZES)
def test_features_and_their_way_back_to_pixels(size):
    net = ConvNet(3, 4, size, width=5)
    params, x = params_of(net), drawn(6, 3, *size).requires_grad_()
    features = Features(net, params, x.detach(), torch.float64)
    wanted = net.features(params, x)
    torch.testing.assert_close(features.values, wanted.detach())
    slope = drawn(*wanted.shape, seed=1)
    (gradient,) = torch.autograd.grad(wanted, x, slope)
    assert float(gradient.abs().max()) > 0.1
    torch.testing.assert_close(features.pixels(slope), gradient)
    some = features[2:5]
    assert type(some) is Features
    assert torch.equal(some.values, features.values[2:5])
    torch.testing.assert_close(some.pixels(slope[2:5]), gradient[2:5])
    torch.testing.assert_close(features.pixels(slope), gradient)  # the whole is as it was


@pytest.mark.parametrize("size", SIZES)
def test_pass_has_the_derivatives_of_autograd(size):
    net, groups, n = ConvNet(3, 4, size, width=5), 3, 4
    params, generator = params_of(net), stream(1, "test", "pass")
    x = torch.randn(groups * n, 3, *size, generator=generator, dtype=torch.float64)
    y = torch.randint(4, (groups * n,), generator=generator)
    weight = torch.rand(groups * n, generator=generator, dtype=torch.float64)
    made = Pass(net, params, x, y, weight, torch.float64)
    for p in params.values():
        p.requires_grad_()
    x.requires_grad_()

    def losses():
        each = F.cross_entropy(net.forward(params, None, x), y, reduction="none") * weight
        return each.view(groups, n).sum(1)

    names = [name for name in params if name.endswith("weight")]
    wanted = torch.autograd.grad(losses().sum(), list(params.values()))
    found = made.gradients()
    assert list(found) == list(net.shapes())
    for name, w in zip(params, wanted):
        if name.endswith(".bias") and name != "linear.bias":
            assert not found[name].any()
        torch.testing.assert_close(found[name], w, rtol=1e-9, atol=1e-12)

    by_group = made.weight_gradients(groups)
    v = [torch.randn(g.shape, generator=generator, dtype=torch.float64) for g in by_group]
    product = 0.0
    for c, loss in enumerate(losses()):
        gradient = torch.autograd.grad(
            loss, [params[name] for name in names], create_graph=True, retain_graph=True
        )
        for k, g in enumerate(gradient):
            torch.testing.assert_close(by_group[k][c], g.detach(), rtol=1e-9, atol=1e-12)
            product = product + (g * v[k][c]).sum()
    slope = torch.autograd.grad(product, x)[0]
    assert float(slope.abs().max()) > 0.1
    torch.testing.assert_close(made.pixel_slope(v), slope, rtol=1e-8, atol=1e-11)


def test_bfloat16_gives_nearly_the_same_gradient():
    net = ConvNet(3, 4, (16, 16), width=16)
    params = {name: p.float() for name, p in params_of(net).items()}
    x, y = drawn(8, 3, 16, 16, dtype=torch.float32), torch.arange(8) % 4
    found = []
    for dtype in (torch.float32, torch.bfloat16):
        gradients = Pass(net, params, x, y, torch.full((8,), 1 / 8), dtype).gradients()
        assert all(g.dtype == torch.float32 for g in gradients.values())
        found.append(torch.cat([g.flatten() for g in gradients.values()]))
    assert not torch.equal(*found)
    assert float(torch.cosine_similarity(*found, 0)) > 0.99


def test_what_is_compiled_is_one_graph_for_all_numbers_of_images(monkeypatch):
    """With a compiler that only counts; another size of images is another graph."""
    from torch._dynamo.testing import CompileCounter

    counter = CompileCounter()
    monkeypatch.setattr(
        _blocks, "_compiled", lambda f: torch.compile(f, dynamic=False, fullgraph=True, backend=counter)
    )
    monkeypatch.setattr(_blocks, "fused", _blocks._called_compiled)
    net = ConvNet(2, 3, (8, 8), width=4, depth=2)
    params = params_of(net)
    for n in (6, 5, 9):
        x, y, weight = drawn(n, 2, 8, 8), torch.arange(n) % 3, torch.ones(n).double()
        with torch.no_grad():
            made = Pass(net, params, x, y, weight, torch.float64)
            made.pixel_slope([drawn(*g.shape, seed=1) for g in made.weight_gradients(1)])
        torch.testing.assert_close(made.values, net.features(params, x))
        assert counter.frame_count == 4 * 2, n  # four functions, two layers
