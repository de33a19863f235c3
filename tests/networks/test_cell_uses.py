"""Nodes hand out their images and their ReLU once for each use, so kernels can add up the gradients."""

import pytest
import torch
from torch.nn import functional as F

from hcdc.networks import CellNetwork, _cells

CELLS = [
    (3, 1, 2, 4, 3, 2),
    (0, 3, 0, 0, 1, 3),
    (4, 4, 1, 1, 4, 0),
    (0, 0, 0, 0, 0, 0),
    (1,) * 6,
    (0, 0, 0, 0, 3, 0),
]


@pytest.mark.parametrize("cells", [1, 2])
@pytest.mark.parametrize("cell", CELLS, ids=str)
def test_each_result_of_a_node_is_used_once(cell, cells, monkeypatch):
    given = []

    class Kernels:
        @staticmethod
        def node(normed, plain, totals, relus):
            total = sum([F.batch_norm(y, None, None, *v, training=True) for y, *v in normed] + list(plain))
            given.extend([total.clone() for _ in range(totals)] + [F.relu(total) for _ in range(relus)])
            return tuple(given[len(given) - totals - relus :])

    network = CellNetwork(cell, cells, 4, 3, 10, affine=True, fused=True)
    generator = torch.Generator().manual_seed(0)
    params = {name: p.double() for name, p in network.init(generator).items()}
    params = {name: p.requires_grad_() for name, p in params.items()}
    x = torch.randn(4, 3, 8, 8, generator=generator, dtype=torch.float64)
    expected = network.forward(params, None, x)
    with monkeypatch.context() as patch:
        patch.setattr(_cells, "_norm_cuda", lambda: Kernels)
        patch.setattr(_cells, "_by_triton", lambda *tensors: True)
        patch.setattr(_cells, "pool_3x3", lambda x, fused: F.avg_pool2d(x, 3, 1, 1, count_include_pad=False))
        patch.setattr(_cells, "batch_norm", lambda *given: pytest.fail("BatchNorm outside a node"))
        found = network.forward(params, None, x)
    assert torch.allclose(found, expected, rtol=1e-12)
    given = [one for one in given if one.requires_grad]  # not zeros
    slopes = torch.autograd.grad(found.sum(), given, allow_unused=True)
    if any(_cells.EDGES[edge][0] == 0 for edge in _cells.live_edges(cell)):
        assert all(slope is not None for slope in slopes)
