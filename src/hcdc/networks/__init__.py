"""What is trained: cells, ConvNet-3, graph layers and filters, and users' own modules."""

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
from hcdc.networks._convnet_pass import Features, Pass, PlainPass, fused, pays
from hcdc.networks._convnet_tangents import Fused, loss_products
from hcdc.networks._convnet_vector import Initialiser, compute_type, loss_gradient
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
    "Features",
    "FilterNetwork",
    "Fused",
    "Initialiser",
    "ModuleNetwork",
    "Network",
    "Params",
    "Pass",
    "PlainPass",
    "ZooNetwork",
    "check_lam",
    "compute_type",
    "factory_name",
    "fused",
    "gumbel_noise",
    "gumbel_one_hot",
    "loss_gradient",
    "loss_products",
    "pays",
    "split_edges",
]
