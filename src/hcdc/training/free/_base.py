"""What a training-free score is, what it sees, and the register of scores."""

from __future__ import annotations

import dataclasses
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, TypeVar

import torch
from torch import Tensor

from hcdc.core.errors import unknown_name
from hcdc.networks import Params
from hcdc.tasks import Task
from hcdc.training.free._watch import Watched, watch


@dataclass(frozen=True)
class Untrained:
    """A candidate at its initialisation, and a minibatch of real training examples.

    Attributes:
        task: The task, bound to the candidate's network.
        params: Its initial parameters.
        lam: Its hyperparameters ``[H]``.
        data: The labelled set of n examples.
        seed: Seed of random draws.
    """

    task: Task
    params: Params
    lam: Tensor
    data: Any
    seed: int = 0

    @property
    def inputs(self) -> Tensor:
        """What the network sees ``[n, ...]``: images, rows, or the features of all nodes."""
        return self.task.tensors(self.data)["x"]

    def outputs(self, inputs: Tensor | None = None, params: Params | None = None) -> Tensor:
        """Logits ``[n, classes]``, at other inputs or parameters if given."""
        data = self.data if inputs is None else self.task.replace(self.data, {"x": inputs})
        return self.task.predict(self.params if params is None else params, self.lam, data)

    @cached_property
    def watched(self) -> Watched:
        """A forward pass of the minibatch; scores share it."""
        return watch(self.outputs, self.inputs)

    def first(self, count: int) -> Untrained:
        """The same candidate with the first ``count`` examples; nodes keep their whole graph."""
        some = torch.arange(min(count, len(self.data)), device=self.inputs.device)
        return dataclasses.replace(self, data=self.task.subset(self.data, some))

    def double(self) -> Untrained:
        """The same candidate in float64."""
        data = type(self.data).from_tensors(_double(self.data.tensors()))
        return dataclasses.replace(self, params=_double(self.params), lam=self.lam.double(), data=data)


def _double(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name: t.double() if t.is_floating_point() else t for name, t in tensors.items()}


class FreeScore(ABC):
    """A statistic of an untrained candidate that predicts how well it trains.

    A subclass says its ``name`` and defines `measure`; `register_free` makes it known. If the score is not
    defined for a network, `measure` raises an `InputError` that says why.

    Attributes:
        name: Its name.
        alone: Whether the score of a candidate does not depend on the others.
    """

    name: ClassVar[str]
    alone: ClassVar[bool] = True

    @abstractmethod
    def measure(self, candidate: Untrained) -> tuple[float, ...]:
        """The parts of one candidate's score; one number unless `combine` says otherwise."""

    def combine(self, measured: Sequence[tuple[float, ...]]) -> list[float]:
        """Scores of all candidates from their parts; higher is better."""
        return [value for (value,) in measured]


_SCORES: dict[str, FreeScore] = {}
Score = TypeVar("Score", bound=type[FreeScore])


def register_free(score: Score) -> Score:
    """Class decorator: make a `FreeScore` known by its ``name``.

    Raises:
        ValueError: Another class has that name already.
    """
    if score.name in _SCORES:
        raise ValueError(f"a training-free score '{score.name}' is registered already: {_SCORES[score.name]}")
    _SCORES[score.name] = score()
    return score


def free_names() -> list[str]:
    """Names of all training-free scores, sorted."""
    return sorted(_SCORES)


def free_score(name: str) -> FreeScore:
    """The training-free score of this name."""
    if name not in _SCORES:
        raise unknown_name("training-free score", name, _SCORES)
    return _SCORES[name]
