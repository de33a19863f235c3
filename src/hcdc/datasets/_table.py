"""Tables: rows of numbers with a class or a value to predict."""

from __future__ import annotations

import dataclasses
import hashlib
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor


@dataclass(frozen=True, eq=False)
class Rows:
    """Labelled rows: one of T_train, T_val, S_train, S_val.

    Attributes:
        x: Features ``[m, d]``.
        y: Class numbers ``[m]`` (int64) or values ``[m]`` (floating point).
        weight: Non-negative weight of each row in the loss; None means equal weights.
    """

    x: Tensor
    y: Tensor
    weight: Tensor | None = None

    def __len__(self) -> int:
        return int(self.y.shape[0])

    def to(self, device: torch.device | str) -> Rows:
        return Rows(
            self.x.to(device), self.y.to(device), None if self.weight is None else self.weight.to(device)
        )


@dataclass(frozen=True, eq=False)
class TableData:
    """A table with a split.

    Attributes:
        name, source: As in `GraphData`.
        train, val, test: The rows of the split, features standardised by the training rows.
        num_classes: Number of classes, or None for regression.
        feature_names, class_names: Names for reports.
        split: How the split came about, in words.
        origin: Arguments with which `hcdc.data` reads it again; empty for data handed over in memory.
    """

    name: str
    source: str
    train: Rows
    val: Rows
    test: Rows
    num_classes: int | None
    feature_names: tuple[str, ...] = ()
    class_names: tuple[str, ...] = ()
    split: str = ""
    origin: dict[str, Any] = field(default_factory=dict)

    kind = "table"

    def to(self, device: torch.device | str) -> TableData:
        return dataclasses.replace(
            self, train=self.train.to(device), val=self.val.to(device), test=self.test.to(device)
        )

    def fingerprint(self) -> str:
        """A hash of all rows and the split."""
        digest = hashlib.sha256()
        for rows in (self.train, self.val, self.test):
            for tensor in (rows.x, rows.y):
                digest.update(str(tuple(tensor.shape)).encode())
                digest.update(np.ascontiguousarray(tensor.detach().cpu().numpy()).tobytes())
        return digest.hexdigest()[:32]
