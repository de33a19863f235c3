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
    has_triton,
    split_edges,
)
from hcdc.networks._convnet import ConvNet
from hcdc.networks._convnet_pass import Features, Pass, PlainPass, pays
from hcdc.networks._convnet_vector import Initialiser, compute_type, loss_gradient, loss_products
from hcdc.networks._dropout import Dropout
from hcdc.networks._filters import BASES, GCN, FilterNetwork
from hcdc.networks._fused import Fused, fused
from hcdc.networks._graphnas import ACTIVATIONS, AGGREGATORS, ATTENTIONS, GraphNASLayer, GraphNASNetwork
from hcdc.networks._modules import Factory, ModuleNetwork, factory_name
from hcdc.networks._resnet import ResNet
from hcdc.networks._zoo import WiredNetwork, ZooNetwork

__all__ = [
    "ACTIVATIONS",
    "AGGREGATORS",
    "ATTENTIONS",
    "BASES",
    "EDGES",
    "GCN",
    "KERNELS",
    "MIXTURE",
    "NONE",
    "OPERATIONS",
    "SKIP",
    "CellNetwork",
    "ConvNet",
    "Dropout",
    "Factory",
    "Features",
    "FilterNetwork",
    "Fused",
    "GraphNASLayer",
    "GraphNASNetwork",
    "Initialiser",
    "ModuleNetwork",
    "Network",
    "Params",
    "Pass",
    "PlainPass",
    "ResNet",
    "WiredNetwork",
    "ZooNetwork",
    "check_lam",
    "compute_type",
    "factory_name",
    "fused",
    "gumbel_noise",
    "gumbel_one_hot",
    "has_triton",
    "loss_gradient",
    "loss_products",
    "pays",
    "split_edges",
]
