"""Node classification on one graph, transductive or inductive."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from hcdc.core.configs import Config
from hcdc.core.errors import InputError, unknown_name
from hcdc.core.labels import allocate_labels, draw_members, members
from hcdc.core.recipe import Recipe
from hcdc.core.seeds import numpy_stream, stream
from hcdc.core.sparse import SparseMatrix
from hcdc.datasets import Graph, GraphData, Nodes
from hcdc.networks import GCN, Dropout, Network, Params
from hcdc.spaces import TRAINING, Space
from hcdc.tasks._base import NETWORK_SETTINGS, PARTS, Task
from hcdc.tasks._registry import register_task
from hcdc.tasks._soft import soft_accuracy

SETTINGS = ("transductive", "inductive")
STRUCTURES = ("induced", "reach")


def graph_lanes(most: int, data: Nodes, device: torch.device | str) -> int:
    """At most ``most`` lanes; each peaks at 3 to 8 KiB per node, in a Gauss-Newton product."""
    nodes_at_once = 9_000_000 if torch.device(device).type == "cuda" else 4_000_000
    return max(1, min(most, nodes_at_once // data.graph.num_nodes))


@register_task
@dataclass(frozen=True, eq=False)
class GraphTask(Task):
    """Cross-entropy on the labelled nodes of a graph; the training loss includes weight decay.

    Attributes:
        data: The data set.
        setting: ``"transductive"``: training sees the whole graph and the labels of the training nodes;
            ``"inductive"``: training sees only the subgraph of the training nodes, and validation and test
            nodes are scored in their own subgraphs, as in GCond.
        weight_decay: Coefficient of ``w/2 ||theta||^2``.
        structure: Edges of sampled small sets: the ``"induced"`` subgraph, or ``"reach"``, see
            `Graph.reach_subgraph`.
        learn_adjacency: Also learn the weights of a synthetic validation graph's initial edges; a weight that
            reaches 0 stays there.
        smooth: Use minus the soft accuracy as validation loss, see `soft_accuracy`; set by `target`.
        net: The network, set by `bind`.
    """

    data: GraphData
    setting: str = "transductive"
    weight_decay: float = 5e-4
    structure: str = "induced"
    learn_adjacency: bool = False
    smooth: bool = False
    net: Network | None = None
    _parts: dict[str, Nodes] = dataclasses.field(default_factory=dict, repr=False)

    kind = "graph"

    def __post_init__(self) -> None:
        if not isinstance(self.data, GraphData):
            raise InputError(
                f"GraphTask: data is {type(self.data).__name__}, not a graph; pass what hcdc.data(...) gives "
                "for a graph"
            )
        if self.setting not in SETTINGS:
            raise unknown_name("setting", self.setting, SETTINGS)
        if self.structure not in STRUCTURES:
            raise unknown_name("structure", self.structure, STRUCTURES)

    flags = ("setting",)
    spaces = ("polynomial-filter", "gnn-zoo")
    train_method = "reach"
    weighted_metric = "accuracy"  # losses of different layers are not alike: some are sure and wrong
    recipe_settings = NETWORK_SETTINGS
    learns = frozenset({"adjacency", "fanout", "nodes"})

    def part(self, name: str) -> Nodes:
        """T_train, T_val or the test nodes (``"train"``, ``"val"``, ``"test"``) in the graph they see."""
        if name not in self._parts:
            if name not in PARTS:
                raise unknown_name("part", name, PARTS)
            index = getattr(self.data, name)
            y = self.data.y[index]
            if self.setting == "transductive":
                self._parts[name] = Nodes(self.data.graph, y, index)
            else:
                self._parts[name] = Nodes(self.data.graph.sparse_subgraph(index), y)
        return self._parts[name]

    @property
    def train(self) -> Nodes:
        return self.part("train")

    @property
    def val(self) -> Nodes:
        return self.part("val")

    @property
    def test(self) -> Nodes:
        return self.part("test")

    @property
    def num_classes(self) -> int:
        return self.data.num_classes

    @property
    def features(self) -> int:
        return self.data.graph.num_features

    def by_recipe(self, recipe: Recipe, train: Nodes | None = None) -> GraphTask:
        return dataclasses.replace(self, weight_decay=recipe.weight_decay)

    def val_method(self, truth: bool, space: Space) -> str:
        """Few full trainings suffice if hypergradients exist in every dimension of a continuous space."""
        seen = all(each.visibility == "alignment" for each in space.dimensions())
        return "landscape" if seen and space.candidates() is None else "both"

    def pool(self, size: int, seed: int) -> Nodes:
        """All of T_val, since a validation node needs the whole graph anyway."""
        return self.val

    def lanes(self, data: Nodes, device: torch.device | str) -> int:
        return graph_lanes(super().lanes(data, device), data, device)

    def parameter_count(self, space: Space, config: Config) -> int | None:
        if space.plain:
            return self.bind(space, config)._network().parameter_count()
        return space.parameter_count(config, self.features, self.num_classes)

    def reads(self, space: Space) -> Collection[str]:
        """Width and depth of its own network, a GCN, if the space leaves the network to the task."""
        return ("width", "depth") if space.plain else ()

    @property
    def training(self) -> Collection[str]:
        return [name for name in TRAINING if name != "augment"]

    def with_dropout(self, dropout: Dropout) -> GraphTask:
        return self._with(net=self._network().with_dropout(dropout))

    def bind(self, space: Space, config: Config | None = None) -> GraphTask:
        net = space.network(self.features, self.data.num_classes, config)
        if net is None and space.plain:
            net = GCN(self.features, self.num_classes, **space.sizes(config))
        if net is None or net.takes != "graph":
            raise InputError(f"space '{space.name}' builds no graph network; use PolynomialFilter or GNNZoo")
        return dataclasses.replace(self, net=net)

    def _network(self) -> Network:
        if self.net is None:
            raise InputError("this GraphTask has no network yet; bind it to a space: task.bind(space)")
        return self.net

    def init(self, generator: torch.Generator) -> Params:
        return self._network().init(generator)

    def prepare(self, data: Nodes) -> None:
        self._network().prepare(data.graph)

    def predict(self, params: Params, lam: Tensor, data: Nodes) -> Tensor:
        """Logits ``[m, classes]`` of the labelled nodes."""
        logits = self._network().forward(params, lam, data.graph)
        return logits if data.index is None else logits.index_select(0, data.index)

    def loss(self, outputs: Tensor, data: Nodes) -> Tensor:
        if data.weight is None:
            return F.cross_entropy(outputs, data.y)
        each = F.cross_entropy(outputs, data.y, reduction="none")
        return (each * data.weight).sum() / data.weight.sum()

    def val_loss(self, params: Params, lam: Tensor, data: Nodes) -> Tensor:
        outputs = self.predict(params, lam, data)
        return -soft_accuracy(outputs, data.y) if self.smooth else self.loss(outputs, data)

    def target(self) -> GraphTask:
        return dataclasses.replace(self, smooth=True)

    def penalty(self, params: Params, lam: Tensor) -> Tensor:
        return 0.5 * self.weight_decay * torch.stack([p.square().sum() for p in params.values()]).sum()

    def train_gradients(self, params: Params, lam: Tensor, data: Nodes) -> tuple[Params, Tensor]:
        """By plain reverse mode if the network runs all lanes at once; the penalty's part in closed form."""
        leaves = {name: p.detach().requires_grad_() for name, p in params.items()}
        with torch.enable_grad():
            logits = self._network().forward_lanes(leaves, lam, data.graph)
            if logits is None:
                return super().train_gradients(params, lam, data)
            outputs = logits if data.index is None else logits.index_select(1, data.index)
            y = data.y.expand(len(outputs), -1)
            each = F.cross_entropy(outputs.flatten(0, 1), y.flatten(), reduction="none").view(y.shape)
            weight = torch.ones_like(each[0]) if data.weight is None else data.weight
            loss = each @ (weight / weight.sum())
            found = torch.autograd.grad(loss.sum(), list(leaves.values()))
        decay = self.weight_decay
        gradient = {name: g.add_(decay * params[name]) for name, g in zip(leaves, found)}
        squares = torch.stack([p.flatten(1).square().sum(1) for p in params.values()]).sum(0)
        return gradient, loss.detach() + 0.5 * decay * squares

    def labels(self, part: str, size: int) -> Tensor:
        """Labels ``[size]`` of a small set, sorted by class, in the original proportions."""
        return allocate_labels(self.part(part).y, size, self.num_classes, f"{part}_size")

    def chosen(self, part: str, picked: Tensor) -> Nodes:
        """The labelled nodes at positions ``picked`` ``[m]`` of a part, with their dense induced subgraph."""
        nodes = self.part(part)
        picked = picked.to(nodes.y.device)
        return Nodes(nodes.graph.subgraph(nodes.positions()[picked]), nodes.y[picked])

    def sample(self, part: str, size: int, seed: int, balanced: bool = False) -> Nodes:
        """Class-proportional random nodes, sorted by class, with edges according to ``structure``."""
        nodes = self.part(part)
        labels = allocate_labels(nodes.y, size, self.num_classes, f"{part}_size", balanced)
        wanted = labels.bincount(minlength=self.num_classes)
        pools = members(nodes.y, self.num_classes)
        drawn = draw_members(pools, wanted.tolist(), stream(seed, "sample", part))
        picked = torch.cat(drawn).to(nodes.y.device)
        index = nodes.positions()[picked]
        reach = self.structure == "reach"
        graph = nodes.graph.reach_subgraph(index) if reach else nodes.graph.subgraph(index)
        return Nodes(graph, nodes.y[picked])

    def neighbourhood(self, part: str, size: int, fanouts: Sequence[int], seed: int) -> Nodes:
        """Class-proportional random labelled nodes of ``part`` inside sampled neighbourhoods.

        Args:
            part: ``"train"``, ``"val"`` or ``"test"``.
            size: Number of labelled nodes.
            fanouts: Neighbours kept at each hop, see `Graph.sample_neighbours`.
            seed: Determines the draws.
        """
        nodes = self.part(part)
        wanted = self.labels(part, size).bincount(minlength=self.num_classes)
        drawn = draw_members(
            members(nodes.y, self.num_classes), wanted.tolist(), stream(seed, "sample", part)
        )
        picked = torch.cat(drawn).to(nodes.y.device)
        rng = numpy_stream(seed, "neighbours", part)
        graph, places = nodes.graph.sample_neighbours(nodes.positions()[picked], fanouts, rng)
        return Nodes(graph, nodes.y[picked], places)

    def rival_sets(self, size: int, seed: int) -> dict[str, tuple[Nodes, str]]:
        """S_val before learning: random validation nodes joined by reach."""
        near = dataclasses.replace(self, structure="reach").sample("val", size, seed)
        return {"reach": (near, f"{size} random validation nodes joined by reach")}

    def for_learning(self, structure: str, adjacency: bool) -> GraphTask:
        return dataclasses.replace(self, structure=structure, learn_adjacency=adjacency)

    def sampled(self, nodes: int, fanouts: Sequence[int], seed: int) -> tuple[Nodes, Nodes]:
        """Sampled T_train and T_val, prepared for the network."""
        found = [self.sampled_part(part, nodes, fanouts, seed) for part in ("train", "val")]
        for some in found:
            self.prepare(some)
        return found[0], found[1]

    def sampled_part(self, part: str, nodes: int, fanouts: Sequence[int], seed: int) -> Nodes:
        """Some labelled nodes of ``part`` in a sampled neighbourhood, for graphs that do not fit.

        Args:
            part: ``"train"``, ``"val"`` or ``"test"``.
            nodes: Number of labelled nodes, drawn at random; all if 0 or too large.
            fanouts: Neighbours kept at each hop, see `Graph.sample_neighbours`; empty means the whole graph.
            seed: Determines the draws (role ``"neighbours"``).
        """
        whole = self.part(part)
        rng = numpy_stream(seed, "neighbours", part)
        y, index = whole.y, whole.positions()
        if 0 < nodes < len(whole):
            picked = torch.from_numpy(np.sort(rng.choice(len(whole), nodes, replace=False))).to(y.device)
            y, index = y[picked], index[picked]
        if not fanouts:
            return Nodes(whole.graph, y, index)
        graph, places = whole.graph.sample_neighbours(index, fanouts, rng)
        return Nodes(graph, y, places)

    def tensors(self, data: Nodes) -> dict[str, Tensor]:
        """Features; with ``learn_adjacency`` also the tensor that `replace` turns into an adjacency."""
        assert isinstance(data.graph.x, Tensor), "a synthetic graph has dense features"
        if not self.learn_adjacency:
            return {"x": data.graph.x}
        n = data.graph.num_nodes
        empty = torch.zeros(n, n, dtype=data.graph.x.dtype, device=data.graph.device)
        assert not isinstance(data.graph.adj, SparseMatrix), "a synthetic graph has a dense adjacency"
        return {"x": data.graph.x, "adj": empty if data.graph.adj is None else data.graph.adj}

    def replace(self, data: Nodes, tensors: dict[str, Tensor]) -> Nodes:
        if "weight" in tensors:
            return dataclasses.replace(data, weight=tensors["weight"])
        if "adj" not in tensors:
            return dataclasses.replace(data, graph=data.graph.with_x(tensors["x"]))
        raw = tensors["adj"]
        off_diagonal = 1 - torch.eye(len(raw), dtype=raw.dtype, device=raw.device)
        adj = torch.relu(raw + raw.t()) / 2 * off_diagonal
        return dataclasses.replace(data, graph=Graph(tensors["x"], adj))

    def to(self, device: torch.device | str) -> GraphTask:
        return dataclasses.replace(self, data=self.data.to(device), _parts={})

    def spec(self) -> dict[str, Any]:
        return {"name": "graph", "setting": self.setting, "weight_decay": self.weight_decay}
