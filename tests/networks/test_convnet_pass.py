import pytest
import torch
from torch.nn import functional as F

from hcdc.core.seeds import stream
from hcdc.networks import ConvNet, Features, Pass, PlainPass, _convnet_blocks, _fused
from hcdc.networks._convnet_blocks import (
    back_sums,
    block,
    block_back,
    block_push,
    block_push_back,
    moments,
    push_back_sums,
    push_means,
)

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
    affine = drawn(4, seed=2), drawn(4, seed=3) * 0.3
    affine_dot = drawn(4, seed=6), drawn(4, seed=7)

    def whole(u, dy, *affine):
        kept = u, *moments(u), *affine
        sums = back_sums(*kept, dy)
        return block(*kept), block_back(*kept, dy, *sums), *sums

    kept = u, *moments(u), *affine
    y = block(*kept)
    torch.testing.assert_close(y, plain_block(u, *affine))
    dy, dy_dot = drawn(*y.shape, seed=4), drawn(*y.shape, seed=5)
    sums = back_sums(*kept, dy)
    leaves = [t.clone().requires_grad_() for t in (u, *affine)]
    wanted = torch.autograd.grad(plain_block(*leaves), leaves, dy)
    shift, scale = (each.sum((0, 1, 2)) for each in sums)
    torch.testing.assert_close((block_back(*kept, dy, *sums), scale, shift), wanted)

    means = push_means(*kept[:3], u_dot)
    read = *kept, u_dot, *means, dy, dy_dot
    moved = push_back_sums(*read)
    step = 1e-7
    for dots, given in (((0.0, 0.0), ()), (affine_dot, affine_dot)):
        found = (
            block_push(*kept, u_dot, *means, *given),
            block_push_back(*read, *sums, *moved, *given[:1]),
            *moved,
        )
        up, down = (
            whole(u + e * u_dot, dy + e * dy_dot, *(a + e * d for a, d in zip(affine, dots)))
            for e in (step, -step)
        )
        for tangent, high, low in zip(found, up, down):
            assert float(tangent.abs().max()) > 0.1
            torch.testing.assert_close(tangent, (high - low) / (2 * step), rtol=1e-5, atol=1e-6)


def test_a_large_mean_does_not_spoil_the_variance():
    u = drawn(2, 32, 32, 3, dtype=torch.float32) * 0.01 + 1000
    mean, r = moments(u)
    torch.testing.assert_close((mean.double(), r.double()), moments(u.double()), rtol=1e-4, atol=0)
    variance = u.double().var((1, 2), correction=0, keepdim=True)
    torch.testing.assert_close(
        r.double(), torch.rsqrt(variance + _convnet_blocks.NORM_EPS), rtol=1e-4, atol=0
    )
    flat = torch.full((1, 4, 4, 1), 3.3)
    assert [float(v) for v in moments(flat)] == pytest.approx([3.3, _convnet_blocks.NORM_EPS**-0.5])
    assert bool((block(flat, *moments(flat), torch.ones(1), torch.full((1,), 0.5)) == 0.5).all())


def test_sums_are_made_in_float32():
    u, affine = drawn(2, 32, 32, 3, dtype=torch.bfloat16) + 4, (torch.ones(3), torch.zeros(3))
    kept = u, *moments(u), *affine
    exact = [t.double() for t in (u, *moments(u.double()), *affine)]
    y = block(*kept)
    assert (y.dtype, kept[1].dtype, kept[2].dtype) == (torch.bfloat16, torch.float32, torch.float32)
    torch.testing.assert_close([t.double() for t in kept[1:3]], exact[1:3], rtol=1e-5, atol=0)
    dy = drawn(*y.shape, seed=1, dtype=torch.bfloat16)
    sums = back_sums(*kept, dy)
    assert block_back(*kept, dy, *sums).dtype == torch.bfloat16
    wanted = back_sums(*exact, dy.double())
    torch.testing.assert_close(tuple(s.double() for s in sums), wanted, rtol=1e-4, atol=1e-3)


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


@pytest.mark.parametrize("form", [Pass, PlainPass])
@pytest.mark.parametrize("size", SIZES)
def test_pass_has_the_derivatives_of_autograd(size, form):
    """Of the composed norm; `PlainPass` takes torch's own, and graphs of its own."""
    net, groups, n = ConvNet(3, 4, size, width=5), 3, 4
    params, generator = params_of(net), stream(1, "test", "pass")
    x = torch.randn(groups * n, 3, *size, generator=generator, dtype=torch.float64)
    y = torch.randint(4, (groups * n,), generator=generator)
    weight = torch.rand(groups * n, generator=generator, dtype=torch.float64)
    made = form(net, params, x, y, weight, torch.float64)
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
        if form is Pass and name.endswith(".bias") and name != "linear.bias":
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
    """With a compiler that only counts. What sums over pixels is shared by layers too."""
    from torch._dynamo.testing import CompileCounter

    counter = CompileCounter()
    monkeypatch.setattr(
        _fused, "_compiled", lambda f: torch.compile(f, dynamic=False, fullgraph=True, backend=counter)
    )
    monkeypatch.setattr(
        _fused,
        "fused",
        lambda f, *given, any_size=False: _fused._called_compiled(f, given, any_size),
    )
    net = ConvNet(2, 3, (16, 16), width=4, depth=3)
    params = params_of(net)
    for n in (6, 5, 9):
        x, y, weight = drawn(n, 2, 16, 16), torch.arange(n) % 3, torch.ones(n).double()
        with torch.no_grad():
            made = Pass(net, params, x, y, weight, torch.float64)
            made.pixel_slope([drawn(*g.shape, seed=1) for g in made.weight_gradients(1)])
        torch.testing.assert_close(made.values, net.features(params, x))
        assert counter.frame_count == 4 + 4 * 3, n  # four functions that sum, four a layer
