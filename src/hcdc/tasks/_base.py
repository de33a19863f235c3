"""What is learned: a training loss and a validation loss as pure functions of (params, lambda, data).

A new kind of data needs one subclass of `Task`. Everything else (hypergradients, alignment, HCDC, batched
training) is written on this class alone.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import torch
from torch import Tensor

from hcdc.core.configs import Config
from hcdc.core.errors import InputError
from hcdc.networks import Params
from hcdc.spaces import Space


class Task(ABC):
    """Data, a model family and its losses.

    ``data`` in the methods is whatever object the task uses for a labelled set (`Nodes`, `Rows`, ...):
    T_train, T_val, S_train and S_val all have that type. Methods are pure: they may be transformed by
    ``torch.func`` and batched over (params, lam) with ``vmap``; ``data`` is shared by the batch.

    The training loss is ``loss(predict(...)) + penalty(...)``: the split is what Gauss-Newton products need.
    """

    kind: str

    @property
    @abstractmethod
    def train(self) -> Any:
        """T_train, the original training set."""

    @property
    @abstractmethod
    def val(self) -> Any:
        """T_val, the original validation set."""

    @abstractmethod
    def init(self, generator: torch.Generator) -> Params:
        """Fresh parameters theta_0, drawn on the CPU."""

    @abstractmethod
    def predict(self, params: Params, lam: Tensor, data: Any) -> Tensor:
        """Model outputs on the labelled examples of ``data``, ``[m, outputs]``."""

    @abstractmethod
    def loss(self, outputs: Tensor, data: Any) -> Tensor:
        """Scalar loss of outputs against the labels (and weights) of ``data``; convex in the outputs."""

    def penalty(self, params: Params, lam: Tensor) -> Tensor:
        """Scalar regulariser of the training loss (weight decay lives here); 0 by default."""
        return next(iter(params.values())).new_zeros(())

    def train_loss(self, params: Params, lam: Tensor, data: Any) -> Tensor:
        """L^train(theta, lambda): loss plus penalty."""
        return self.loss(self.predict(params, lam, data), data) + self.penalty(params, lam)

    def val_loss(self, params: Params, lam: Tensor, data: Any) -> Tensor:
        """L^val(theta, lambda): loss without penalty."""
        return self.loss(self.predict(params, lam, data), data)

    def score(self, outputs: Tensor, data: Any) -> Tensor:
        """Accuracy (classification) or minus the loss (anything else), higher is better."""
        return -self.loss(outputs, data)

    def target(self) -> Task:
        """This task with a validation loss that stands for what ranks candidates on the original data.

        Candidates are ranked by their score; where that has no gradient (accuracy), a smooth stand-in takes
        the place of the validation loss when original hypergradients are taken. Itself by default.
        """
        return self

    def prepare(self, data: Any) -> None:
        """Make what ``predict`` needs of ``data`` before any ``torch.func`` transform; nothing by default."""
        return

    # --- synthetic data -------------------------------------------------------------------------------------

    @abstractmethod
    def sample(self, part: str, size: int, seed: int, balanced: bool = False) -> Any:
        """``size`` random real examples of ``part`` (``"train"`` or ``"val"``) as a small labelled set.

        Classes come in their original proportions, or in equal numbers where ``balanced``.
        """

    @abstractmethod
    def tensors(self, data: Any) -> dict[str, Tensor]:
        """The tensors of a synthetic set that may be learned, by name (usually ``{"x": features}``)."""

    @abstractmethod
    def replace(self, data: Any, tensors: dict[str, Tensor]) -> Any:
        """The synthetic set with those tensors replaced."""

    def subset(self, data: Any, index: Tensor) -> Any:
        """The labelled examples ``index`` ``[b]`` of ``data``, for mini-batches of a synthetic set.

        Differentiable in the tensors of ``data``. A task without it has no mini-batches.
        """
        raise InputError(f"this {self.kind} task has no mini-batches of S_val; leave 'val_batch' at 0")

    # --- binding to a space ---------------------------------------------------------------------------------

    def bind(self, space: Space, config: Config | None = None) -> Task:
        """This task with the network of ``space`` (for ``config``, or relaxed); itself if it has its own."""
        return self

    @abstractmethod
    def to(self, device: torch.device | str) -> Task:
        """This task with its data on ``device``."""
