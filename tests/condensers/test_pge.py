import pytest
import torch
from plain_gcond import PlainPGE

from hcdc.condensers._pge import init_pge, pge_adjacency


def params_and_features(n, d, hidden, seed=0):
    generator = torch.Generator().manual_seed(seed)
    params = {k: v.double() for k, v in init_pge(d, hidden, generator).items()}
    for name in ("scale1", "shift1", "scale2", "shift2"):
        params[name] += 0.3 * torch.randn(hidden, generator=generator, dtype=torch.float64)
    return params, torch.rand(n, d, generator=generator, dtype=torch.float64)


@pytest.mark.parametrize(("n", "d", "hidden"), [(2, 1, 3), (7, 5, 4), (12, 30, 16)])
def test_split_first_layer_equals_the_mlp_on_concatenated_pairs(n, d, hidden):
    params, x = params_and_features(n, d, hidden)
    plain = (
        PlainPGE(d, hidden).double().take(params)
    )  # with biases before the normalisations, which must cancel
    torch.testing.assert_close(pge_adjacency(x, params), plain(x), rtol=0, atol=1e-10)


def test_gradients_equal_the_plain_form():
    params, x = params_and_features(7, 5, 4)
    plain = PlainPGE(5, 4).double().take(params)
    weights = torch.rand(7, 7, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    own = [t.clone().requires_grad_() for t in (x, *params.values())]
    split = torch.autograd.grad((weights * pge_adjacency(own[0], dict(zip(params, own[1:])))).sum(), own)
    x = x.requires_grad_()
    first, norm1, _, middle, norm2, _, out = plain.mlp
    tensors = [
        x,
        first.weight,
        middle.weight,
        out.weight,
        out.bias,
        norm1.weight,
        norm1.bias,
        norm2.weight,
        norm2.bias,
    ]
    g = torch.autograd.grad((weights * plain(x)).sum(), tensors)
    grads = dict(zip(("x", *params), split))
    pairs = [
        (grads["x"], g[0]),
        (torch.cat([grads["left"], grads["right"]]), g[1].t()),
        (grads["middle"], g[2].t()),
        (grads["out"], g[3][0]),
        (grads["bias"], g[4]),
        (grads["scale1"], g[5]),
        (grads["shift1"], g[6]),
        (grads["scale2"], g[7]),
        (grads["shift2"], g[8]),
    ]
    for found, wanted in pairs:
        torch.testing.assert_close(found, wanted, rtol=0, atol=1e-10)
    assert all(float(found.abs().max()) > 1e-6 for found, _ in pairs)


def test_initial_weights_lie_within_their_bounds():
    params = init_pge(50, 16, torch.Generator().manual_seed(0))
    for name, inputs in (("left", 100), ("right", 100), ("middle", 16), ("out", 16)):
        bound = inputs**-0.5
        assert 0.8 * bound < float(params[name].abs().max()) <= bound
