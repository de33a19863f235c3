"""Results of the paper by name: one file per name."""

import importlib

from hcdc.experiments.reproductions._frame import REPRODUCTIONS, SCALES, Reproduction, Scale, Table, register
from hcdc.experiments.reproductions._run import (
    Reproduced,
    expected_seconds,
    listing,
    parse_seeds,
    parse_shard,
    reproduce,
)

__all__ = [
    "REPRODUCTIONS",
    "SCALES",
    "Reproduced",
    "Reproduction",
    "Scale",
    "Table",
    "expected_seconds",
    "listing",
    "parse_seeds",
    "parse_shard",
    "register",
    "reproduce",
]

MODULES = (
    "ablations",
    "adjacency_overfit",
    "convnet_accuracy",
    "cross_validation",
    "filters_80",
    "gcn_accuracy",
    "gnn_manifold",
    "gnn_transfer",
    "gnn_zoo",
    "graph_nas_curve",
    "graphs_rank",
    "images_rank",
    "learned_images",
    "loss_landscape",
    "nas",
    "nas201",
    "nasbench_graph",
    "nested_problems",
    "ranks",
    "trajectories",
)
for _name in MODULES:
    importlib.import_module(f"{__name__}.{_name}")
