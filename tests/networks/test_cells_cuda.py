"""Pools and convolutions of cells by Triton against torch's: on CUDA, or by Triton's interpreter."""

import os

import pytest
import torch
from torch.nn import functional as F

pytest.importorskip("triton", reason="Triton is not installed")
if not (torch.cuda.is_available() or os.environ.get("TRITON_INTERPRET") == "1"):
    pytest.skip("no CUDA device, and TRITON_INTERPRET=1 is not set", allow_module_level=True)

from hcdc.networks import CellNetwork, _cells, _conv_cuda, _pool_cuda

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
DTYPE = torch.bfloat16 if torch.cuda.is_available() else torch.float32
"""The interpreter cannot multiply bfloat16 matrices; on CUDA, float32 ones are rounded."""

ROUGH = 6e-3 if torch.cuda.is_available() else 1e-6


def drawn(*shape):
    generator = torch.Generator().manual_seed(sum(shape))
    x = torch.randn(shape, generator=generator).to(DEVICE, DTYPE)
    return x.contiguous(memory_format=torch.channels_last)


def agree(ours, theirs, leaves, upstream):
    results = []
    for function, dtype in ((ours, DTYPE), (theirs, torch.float64)):
        given = [leaf.to(dtype).detach().requires_grad_() for leaf in leaves]
        out = function(*given)
        results.append([out, *torch.autograd.grad(out, given, upstream.to(dtype))])
    for a, b in zip(*results, strict=True):
        assert float((a.double() - b).detach().norm() / b.detach().norm()) < ROUGH


@pytest.mark.parametrize("shape", [(2, 16, 5, 7), (3, 70, 1, 4), (2, 8, 8, 8), (1, 3, 2, 2)], ids=str)
def test_pool_is_torch_s(shape):
    def pool(x):
        return F.avg_pool2d(x, 3, stride=1, padding=1, count_include_pad=False)

    agree(_pool_cuda.pool_3x3, pool, [drawn(*shape)], drawn(*shape))


@pytest.mark.parametrize(("width", "shape"), [(16, (2, 32, 5, 7)), (32, (3, 64, 3, 3)), (64, (1, 128, 2, 4))])
def test_convolution_is_torch_s(width, shape):
    groups = shape[1] // width
    leaves = [drawn(*shape), drawn(shape[1], width, 3, 3)]
    agree(
        _conv_cuda.convolve_3x3, lambda x, w: F.conv2d(x, w, padding=1, groups=groups), leaves, drawn(*shape)
    )


@pytest.mark.skipif(DEVICE == "cpu", reason="no CUDA device")
def test_a_network_by_kernels_is_that_of_torch(monkeypatch):
    """In bfloat16 against float64, with two lanes of sixteen channels."""
    network = CellNetwork((3, 1, 2, 4, 3, 2), 1, 16, 3, 10, affine=True, fused=True).side_by_side(2)
    generator = torch.Generator().manual_seed(0)
    single = [network.side_by_side(1).init(generator) for _ in range(2)]
    params = {name: torch.cat([one[name] for one in single]).cuda() for name in network.shapes()}
    x = drawn(64, 3, 32, 32)
    with torch.autocast("cuda", torch.bfloat16):
        found = network.forward(params, None, x)
    monkeypatch.setattr(_cells, "_by_triton", lambda *given: False)
    expected = network.forward({n: p.double() for n, p in params.items()}, None, x.double())
    assert float((found.double() - expected).norm() / expected.norm()) < 0.05
