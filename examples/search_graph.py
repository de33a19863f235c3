"""Search a graph network in a plain PyG loop.

    python search_graph.py 2m

`data.train` is the whole graph; on a subset its `train_mask` marks fewer nodes.
"""

from __future__ import annotations

import sys

import torch
from torch.nn import functional as F
from torch_geometric.data import Data
from torch_geometric.nn import GCNConv

import hcdc


def data() -> hcdc.FullData:
    """CiteSeer, which comes with the package: 2,110 papers, their words and citations."""
    given = hcdc.data("citeseer-embedded")
    graph = Data(x=given.graph.x.to_dense(), edge_index=given.graph.edges()[0], y=given.y)
    for part in ("train", "val", "test"):
        graph[f"{part}_mask"] = torch.isin(torch.arange(graph.num_nodes), getattr(given, part))
    return hcdc.FullData(graph)


class GCN(torch.nn.Module):
    def __init__(self, features: int, width: int, classes: int, dropout: float):
        super().__init__()
        self.first, self.second, self.dropout = GCNConv(features, width), GCNConv(width, classes), dropout

    def forward(self, graph: Data) -> torch.Tensor:
        hidden = F.dropout(F.relu(self.first(graph.x, graph.edge_index)), self.dropout, self.training)
        return self.second(hidden, graph.edge_index)


def objective(trial, data) -> float:
    graph = data.train
    width, dropout = trial.suggest_int("width", 4, 32, log=True), trial.suggest_float("dropout", 0.0, 0.8)
    model = GCN(graph.num_features, width, data.num_classes, dropout)
    lr = trial.suggest_float("lr", 1e-3, 1e-1, log=True)
    decay = trial.suggest_float("decay", 1e-5, 1e-1, log=True)
    optimizer = torch.optim.Adam(model.parameters(), lr=lr, weight_decay=decay)
    for _ in range(data.epochs(12)):
        optimizer.zero_grad()
        F.cross_entropy(model(graph)[graph.train_mask], graph.y[graph.train_mask]).backward()
        optimizer.step()
    model.eval()
    with torch.no_grad():
        if data.test is not None:
            data.score(model(data.test), split="test")  # shown with the result, never used to choose
        return data.score(model(data.val))


if __name__ == "__main__":
    found = hcdc.search(objective, data(), budget=sys.argv[1] if len(sys.argv) > 1 else "2m")
    print(f"use {found.best}: accuracy {found.score}, found in {found.seconds:.0f} s")
