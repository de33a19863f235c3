"""What is trained: cells, ConvNet-3, graph layers and filters, and a user's own modules."""

from hcdc.networks._base import Network, Params, check_lam
from hcdc.networks._cells import (
    EDGES,
    KERNELS,
    MIXTURE,
    NONE,
    OPERATIONS,
    SKIP,
    CellNetwork,
    gumbel_noise,
    gumbel_one_hot,
    split_edges,
)
from hcdc.networks._convnet import ConvNet
from hcdc.networks._filters import BASES, FilterNetwork
from hcdc.networks._modules import Factory, ModuleNetwork, factory_name
from hcdc.networks._zoo import ZooNetwork

__all__ = [
    "BASES",
    "EDGES",
    "KERNELS",
    "MIXTURE",
    "NONE",
    "OPERATIONS",
    "SKIP",
    "CellNetwork",
    "ConvNet",
    "Factory",
    "FilterNetwork",
    "ModuleNetwork",
    "Network",
    "Params",
    "ZooNetwork",
    "check_lam",
    "factory_name",
    "gumbel_noise",
    "gumbel_one_hot",
    "split_edges",
]
