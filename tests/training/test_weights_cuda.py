"""Weights in Triton against the plain ones: on CUDA, or by its interpreter (TRITON_INTERPRET=1)."""

import os

import pytest
import torch

pytest.importorskip("triton", reason="Triton is not installed")
if not (torch.cuda.is_available() or os.environ.get("TRITON_INTERPRET") == "1"):
    pytest.skip("no CUDA device, and TRITON_INTERPRET=1 is not set", allow_module_level=True)

from hcdc.networks._cells import block_diagonal
from hcdc.training._weights import Layout, Weights
from hcdc.training._weights_cuda import WideWeights

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
SHAPES = {
    "a": (5,),
    "k": (4, 3, 3, 3),
    "w": (6, 2, 1, 1),
    "big": (8, 300, 1, 1),
    "m": (6, 5),
    "unused": (2, 3, 3, 3),
}
WIDE = frozenset({"w", "big", "unused"})


@pytest.mark.parametrize(("clip", "decay"), [(0.0, 0.0), (0.5, 1e-2), (1e3, 1e-2)])
@pytest.mark.parametrize("lanes", [2, 3])
def test_gradients_and_weights_are_those_of_the_plain_form(lanes, clip, decay):
    draw = torch.Generator().manual_seed(0)
    layout = Layout({name: torch.empty(shape) for name, shape in SHAPES.items()}, lanes)
    wide, plain = WideWeights(layout, DEVICE, WIDE), Weights(layout, DEVICE)
    for _ in range(2):
        theta = torch.randn(wide.theta.shape, generator=draw).to(DEVICE)
        given, spread = {}, {}
        for name, p in plain.params.items():
            g = torch.randn(p.shape, generator=draw).to(torch.bfloat16).to(DEVICE)
            g = g.contiguous(memory_format=torch.channels_last) if g.dim() == 4 else g
            between = 7 * (1 - block_diagonal(torch.ones_like(g), lanes)) if name in WIDE else 0
            dense = block_diagonal(g, lanes) + between if name in WIDE else g
            given[name] = None if name == "unused" else g.to(p.dtype)
            spread[name] = None if name == "unused" else dense.to(wide.params[name].dtype)
        for weights, found in ((wide, spread), (plain, given)):
            weights.theta.copy_(theta)
            weights.refresh()
            weights.collect(found, decay, clip)
        torch.testing.assert_close(wide.gradient, plain.gradient, rtol=1e-5, atol=1e-6)
        assert torch.equal(wide.theta, theta)
        for name, p in wide.params.items():
            expected = plain.params[name].to(p.dtype)
            torch.testing.assert_close(p, block_diagonal(expected, lanes) if name in WIDE else expected)
        for name, p in wide.trained().items():
            assert p.shape == plain.params[name].shape
            torch.testing.assert_close(p, plain.params[name].to(p.dtype))
