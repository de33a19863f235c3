"""Which numbers of S_val's examples are learned: all of them, or two factors of low rank.

A form gives the learned numbers at the start, the examples that they stand for, and the chain rule. So
whatever computes a gradient in the examples need not know how they are parameterised.

Example:
    >>> import torch
    >>> form = examples_form({"x": torch.ones(6, 3, 8, 8)}, factors=2, seed=0)
    >>> {name: tuple(tensor.shape) for name, tensor in form.start().items()}
    {'left': (6, 2), 'right': (2, 192)}
    >>> bool((form.examples(form.start())["x"] == 1).all())
    True
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from hcdc.core.seeds import stream

Tensors = dict[str, Tensor]


class Form(ABC):
    """How the tensors of S_val follow from the numbers that are learned."""

    @abstractmethod
    def start(self) -> Tensors:
        """The learned numbers, so that S_val is the set it starts from."""

    @abstractmethod
    def examples(self, learned: Tensors) -> Tensors:
        """The tensors of S_val, as `Task.replace` takes them."""

    @abstractmethod
    def chained(self, learned: Tensors, gradient: Tensors) -> Tensors:
        """The gradient in the learned numbers, from that in the tensors of S_val."""


@dataclass(frozen=True)
class Plain(Form):
    """Every number is learned.

    Attributes:
        tensors: S_val at the start.
    """

    tensors: Mapping[str, Tensor]

    def start(self) -> Tensors:
        return {name: tensor.detach().clone() for name, tensor in self.tensors.items()}

    def examples(self, learned: Tensors) -> Tensors:
        return learned

    def chained(self, learned: Tensors, gradient: Tensors) -> Tensors:
        return gradient


@dataclass(frozen=True)
class Factors(Form):
    """The examples are their start plus a product of rank r, in which they share what is learned::

        X = X_0 + L R,    L [m, r],    R [r, d].

    X ``[m, d]`` holds one example per row: the features of a node, the values of a row, or the pixels of an
    image. The r rows of R are common to all examples, and L says how much of each an example gets. So
    r (m + d) numbers are learned instead of m d. With G = d loss / d X::

        d loss / d L = G R^T,    d loss / d R = L^T G.

    R starts at 0. L starts as sqrt(m / r) Q with orthonormal columns Q ``[m, r]``, so its rows have a mean
    square norm of 1, whatever r. With r = m, L is orthogonal, L L^T = I, and a first step of gradient descent
    on R moves X by that of plain gradient descent. More than m factors add nothing, so r is at most m.

    Attributes:
        plain: Edge weights, if they are learned too; every one of them is.
        x: X_0, of shape ``[m, ...]``.
        left: L at the start.
    """

    plain: Plain
    x: Tensor
    left: Tensor

    def start(self) -> Tensors:
        right = self.x.new_zeros(self.left.shape[1], self.x[0].numel())
        return {**self.plain.start(), "left": self.left.clone(), "right": right}

    def examples(self, learned: Tensors) -> Tensors:
        others = {name: learned[name] for name in self.plain.tensors}
        return {"x": self.x + (learned["left"] @ learned["right"]).view_as(self.x), **others}

    def chained(self, learned: Tensors, gradient: Tensors) -> Tensors:
        slope = gradient["x"].flatten(1)
        others = {name: gradient[name] for name in self.plain.tensors}
        return {**others, "left": slope @ learned["right"].t(), "right": learned["left"].t() @ slope}


def examples_form(tensors: Mapping[str, Tensor], factors: int, seed: int) -> Form:
    """The form of an S_val.

    Args:
        tensors: S_val at the start, see `Task.tensors`.
        factors: r; 0 learns every number.
        seed: Determines L at the start (role ``"factors"``).
    """
    if not factors:
        return Plain(tensors)
    x = tensors["x"].detach().clone()
    count, rank = len(x), min(factors, len(x))
    drawn = torch.randn(count, rank, dtype=torch.float64, generator=stream(seed, "factors"))
    left = (count / rank) ** 0.5 * torch.linalg.qr(drawn).Q
    others = {name: tensor for name, tensor in tensors.items() if name != "x"}
    return Factors(Plain(others), x, left.to(x))
