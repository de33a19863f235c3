"""Results of the paper by name: one file per name."""

import importlib

from hcdc.experiments.reproductions._frame import REPRODUCTIONS, SCALES, Reproduction, Scale, Table, register
from hcdc.experiments.reproductions._run import Reproduced, listing, parse_seeds, parse_shard, reproduce

__all__ = [
    "REPRODUCTIONS",
    "SCALES",
    "Reproduced",
    "Reproduction",
    "Scale",
    "Table",
    "listing",
    "parse_seeds",
    "parse_shard",
    "register",
    "reproduce",
]

MODULES = (
    "adjacency_overfit",
    "convnet_accuracy",
    "filters_80",
    "gcn_accuracy",
    "gnn_manifold",
    "gnn_zoo",
    "graphs_rank",
    "images_rank",
    "loss_landscape",
    "nas",
    "nas201",
    "nasbench_graph",
    "trajectories",
)
for _name in MODULES:
    importlib.import_module(f"{__name__}.{_name}")
