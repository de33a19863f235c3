"""What is searched: boxes, finite sets, products, training, graph filters, graph networks and cells."""

from hcdc.core.configs import Config, config_hash
from hcdc.networks import OPERATIONS
from hcdc.spaces._base import Space, stack
from hcdc.spaces._box import Box
from hcdc.spaces._candidate import Candidate
from hcdc.spaces._dimension import TRAINING, Dimension
from hcdc.spaces._finite import Finite, halves, project_simplex
from hcdc.spaces._gnn_zoo import GNNZoo
from hcdc.spaces._graphnas import GraphNAS
from hcdc.spaces._nasbench201 import (
    NASBench201,
    canonical,
    cell_string,
    computation,
    connected,
    genotype,
    operations,
)
from hcdc.spaces._nasbench_graph import NASBenchGraph
from hcdc.spaces._polynomial import PolynomialFilter
from hcdc.spaces._product import Product
from hcdc.spaces._registry import from_spec, register
from hcdc.spaces._training import Training

__all__ = [
    "OPERATIONS",
    "TRAINING",
    "Box",
    "Candidate",
    "Config",
    "Dimension",
    "Finite",
    "GNNZoo",
    "GraphNAS",
    "NASBench201",
    "NASBenchGraph",
    "PolynomialFilter",
    "Product",
    "Space",
    "Training",
    "canonical",
    "cell_string",
    "computation",
    "config_hash",
    "connected",
    "from_spec",
    "genotype",
    "halves",
    "operations",
    "project_simplex",
    "register",
    "stack",
]
