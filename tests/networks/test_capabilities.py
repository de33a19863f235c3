"""What networks can do, asked of themselves."""

import dataclasses

import pytest
import torch
from torch import nn

from hcdc.core.errors import InputError
from hcdc.networks import ConvNet, FilterNetwork, ModuleNetwork
from hcdc.spaces import NASBench201

CELL = NASBench201(channels=2).network(
    1, 10, {"cell": "|nor_conv_3x3~0|+|none~0|skip_connect~1|+|skip_connect~0|none~1|nor_conv_1x1~2|"}
)
CONVNET = ConvNet(1, 10, (8, 8), width=4, depth=2)
MODULE = ModuleNetwork(lambda config: nn.Sequential(nn.Flatten(), nn.Linear(64, 10)), {})
FILTER = FilterNetwork("powers", 2, 2, 4, 1, 7, 3)
OTHERS = [CONVNET, MODULE, FILTER]


@pytest.mark.parametrize("network", [CELL, *OTHERS], ids=lambda n: type(n).__name__)
def test_parameters_have_the_shapes_that_a_network_says(network):
    params = network.init(torch.Generator().manual_seed(0))
    assert network.shapes() == {name: tuple(p.shape) for name, p in params.items()}
    assert network.parameter_count() == sum(p.numel() for p in params.values())


@pytest.mark.parametrize("network", OTHERS, ids=lambda n: type(n).__name__)
def test_others_run_alone_and_are_not_drawn(network):
    assert network.lanes == 1
    assert not network.can_run_side_by_side
    assert network.side_by_side(1) is network
    assert network.fast() is network
    with pytest.raises(InputError, match="runs alone, not 2 side by side"):
        network.side_by_side(2)
    with pytest.raises(InputError, match="'gdas' draws the operations of cells, and this network has none"):
        network.drawn(1.0)


def test_cells_run_side_by_side_fast_and_drawn():
    assert CELL.can_run_side_by_side
    assert CELL.side_by_side(1) is CELL
    assert CELL.side_by_side(3) == dataclasses.replace(CELL, lanes=3)
    assert CELL.fast() == dataclasses.replace(CELL, fused=True)
    relaxed = dataclasses.replace(CELL, cell=None)
    assert relaxed.drawn(0.5).tau == 0.5
