"""The pools of cells against dense matrices, in every memory order and on every device."""

import pytest
import torch

from hcdc.networks._cells import _halving_matrix, _pool_matrix, halve, pool_3x3

DEVICES = [
    "cpu",
    pytest.param("cuda", marks=pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")),
]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("order", [torch.contiguous_format, torch.channels_last], ids=["plain", "last"])
@pytest.mark.parametrize("fused", [False, True])
@pytest.mark.parametrize("size", [(5, 7), (32, 32), (33, 34)], ids=str)
@pytest.mark.parametrize(("pool", "dense"), [(pool_3x3, _pool_matrix), (halve, _halving_matrix)])
def test_pools_and_their_gradients_are_matrix_products(pool, dense, size, fused, order, device):
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(2, 3, *size, generator=generator, dtype=torch.float64).to(device)
    x = x.contiguous(memory_format=order).requires_grad_()
    out = pool(x, fused)
    upstream = torch.randn(out.shape, generator=generator, dtype=torch.float64).to(device)
    (slope,) = torch.autograd.grad(out, x, upstream.contiguous(memory_format=order))
    matrix = dense(*size, x.device, x.dtype)
    torch.testing.assert_close(out.flatten(2), x.flatten(2) @ matrix.T)
    torch.testing.assert_close(slope.flatten(2), upstream.flatten(2) @ matrix)
