"""One forward pass of any network, watched: its ReLUs, and the feature maps between its blocks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

LAYERS = frozenset({F.conv1d, F.conv2d, F.conv3d, F.linear})
RELUS = frozenset({F.relu, F.relu6, F.leaky_relu, torch.relu, torch.relu_, Tensor.relu, Tensor.relu_})
WEIGHTED = ("Convolution", "Addmm", "Mm", "Bmm", "Baddbmm")
ACTIVATIONS = ("Relu", "Hardtanh", "LeakyRelu", "Gelu", "Silu", "Elu", "Hardswish", "Tanh", "Sigmoid")


class _Watch(TorchFunctionMode):
    """Keeps the outputs of ReLUs, how many layers read each tensor, and all feature maps."""

    def __init__(self) -> None:
        super().__init__()
        self.relus: list[Tensor] = []
        self.maps: list[Tensor] = []
        self.readers: Counter[int] = Counter()

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        found = func(*args, **(kwargs or {}))
        if func in LAYERS:
            self.readers[id(args[0])] += 1
        if func in RELUS:
            self.relus.append(found)
        if isinstance(found, Tensor) and found.dim() == 4 and found.shape[2:].numel() > 1:
            self.maps.append(found)
        return found


@dataclass(frozen=True)
class Watched:
    """A forward pass with its autograd graph, in which only the inputs require gradients.

    Attributes:
        inputs: ``[n, ...]``.
        outputs: Logits ``[n, classes]``.
        relus: Outputs of each ReLU ``[n, ...]``, and how many convolutions and linear layers read it; without
            ReLUs over edges.
        blocks: Feature maps ``[n, c, h, w]`` between blocks, first to last: every path from the inputs to the
            outputs leads through them (so a residual block is one block), and at least one weighted layer
            lies between two of them. Activations belong to the next block.
    """

    inputs: Tensor
    outputs: Tensor
    relus: list[tuple[Tensor, int]]
    blocks: list[Tensor]


def watch(forward: Callable[[Tensor], Tensor], inputs: Tensor) -> Watched:
    """Run ``forward`` on ``inputs`` and watch it."""
    x = inputs.detach().requires_grad_()
    with torch.enable_grad(), _Watch() as seen:
        outputs = forward(x)
    relus = [(relu, seen.readers[id(relu)]) for relu in seen.relus if len(relu) == len(x)]
    maps = {m.grad_fn._sequence_nr(): m for m in seen.maps if m.grad_fn is not None}
    return Watched(x, outputs, relus, _blocks(outputs, maps))


def _blocks(outputs: Tensor, maps: dict[int, Tensor]) -> list[Tensor]:
    """The last map before each weighted layer, and the last of all, among those on all paths."""
    blocks: list[Tensor] = []
    last: Tensor | None = None
    for node, alone in _nodes(outputs):
        if node.name().startswith(WEIGHTED) and last is not None:
            blocks.append(last)
            last = None
        if alone and not node.name().startswith(ACTIVATIONS):
            last = maps.get(node._sequence_nr(), last)
    return blocks if last is None else [*blocks, last]


def _nodes(outputs: Tensor) -> list[tuple[Any, bool]]:
    """The nodes of the autograd graph as computed, first to last, and whether all paths lead through each."""
    nodes: dict[int, Any] = {}
    last_use: Counter[int] = Counter()
    todo: list[Any] = [outputs.grad_fn]
    while todo:
        node = todo.pop()
        if node is None or node.name().endswith("AccumulateGrad") or node._sequence_nr() in nodes:
            continue
        number = node._sequence_nr()
        nodes[number] = node
        for source, _ in node.next_functions:
            if source is not None:
                last_use[source._sequence_nr()] = max(number, last_use[source._sequence_nr()])
                todo.append(source)
    found, latest = [], 0
    for number in sorted(nodes):
        found.append((nodes[number], latest <= number))
        latest = max(latest, last_use[number])
    return found
