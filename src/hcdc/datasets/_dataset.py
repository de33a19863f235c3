"""The base of every data set, whatever kind of data it holds."""

from __future__ import annotations

import dataclasses
import hashlib
from abc import ABC, abstractmethod
from collections.abc import Iterator
from functools import cached_property
from typing import Any, ClassVar, Self

import numpy as np
import torch
from torch import Tensor

CHUNK = 2048
"""Examples hashed at a time, because pixels may stay on disk."""


class Dataset(ABC):
    """A data set with a split; subclasses are frozen dataclasses.

    Attributes:
        kind: Kind of data, e.g. ``"graph"``.
        words: The kind in words, e.g. ``"a graph"``.
        name: What the user calls it (``"cora"``, a file name).
        source: Where it came from (``"planetoid"``, a path, ``"memory"``).
        train, val, test: The split; each has a length.
        num_classes: Number of classes; None for regression.
        class_names: One name per class.
        split: How the split was made, in words (printed and stored).
        normalisation: How features were scaled: ``"standard"``, ``"row"`` (divided by row sum) or ``"none"``.
        origin: Arguments for `hcdc.data` to read it again; empty for data passed in memory.
    """

    kind: ClassVar[str]
    words: ClassVar[str]
    name: str
    source: str
    train: Any
    val: Any
    test: Any
    num_classes: int | None
    class_names: tuple[str, ...]
    split: str
    normalisation = "standard"
    origin: dict[str, Any]

    def __repr__(self) -> str:
        sizes = " / ".join(f"{size:,}" for size in self.sizes().values())
        target = ", regression" if self.num_classes is None else f" in {self.num_classes} classes"
        return f"<{self.words.split()[-1]} '{self.name}': {sizes} {self.contents()}{target}>"

    @abstractmethod
    def contents(self) -> str:
        """What the examples are, in a few words, e.g. ``"of 3 x 32 x 32"``."""

    @abstractmethod
    def pieces(self) -> Iterator[tuple[str, Tensor]]:
        """Every tensor that defines the data, each with a text that is hashed before it."""

    @abstractmethod
    def to(self, device: torch.device | str) -> Self:
        """The same data on another device."""

    def sizes(self) -> dict[str, int]:
        """Labelled examples in each part of the split."""
        return {"train": len(self.train), "val": len(self.val), "test": len(self.test)}

    def fingerprint(self) -> str:
        """A hash of content and split, equal for equal data whatever its source; computed once."""
        return self._fingerprint

    @cached_property
    def _fingerprint(self) -> str:
        digest = hashlib.sha256()
        for text, tensor in self.pieces():
            digest.update(text.encode())
            for chunk in torch.split(tensor.detach(), CHUNK):
                digest.update(np.ascontiguousarray(chunk.cpu().numpy()).data)
        return digest.hexdigest()[:32]

    def describe(self) -> dict[str, Any]:
        """What a condensed file stores about its data; `reopen` uses it to read the data again."""
        return {
            "name": self.name,
            "source": self.source,
            "fingerprint": self.fingerprint(),
            "num_classes": self.num_classes,
            "class_names": list(self.class_names),
            "normalisation": self.normalisation,
            "split": self.split,
            "origin": dict(self.origin),
        }

    def _moved(self, **parts: Any) -> Self:
        """The same data with moved parts; keeps a computed fingerprint."""
        made = dataclasses.replace(self, **parts)  # type: ignore[type-var]
        if "_fingerprint" in self.__dict__:
            made.__dict__["_fingerprint"] = self._fingerprint
        return made
