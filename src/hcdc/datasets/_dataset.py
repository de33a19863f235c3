"""The base of every data set, whatever kind of data it holds."""

from __future__ import annotations

import dataclasses
import hashlib
from abc import ABC
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor

CHUNK = 2048
"""Examples hashed at a time, because pixels may stay on disk."""


def fingerprint(pieces: Iterable[tuple[str, Tensor]]) -> str:
    """A hash of tensors, each with a text that is hashed before it."""
    digest = hashlib.sha256()
    for text, tensor in pieces:
        digest.update(text.encode())
        for chunk in torch.split(tensor.detach(), CHUNK):
            digest.update(np.ascontiguousarray(chunk.cpu().numpy()).data)
    return digest.hexdigest()[:32]


class Dataset(ABC):
    """A data set with a split; subclasses are frozen dataclasses.

    The methods here serve data sets whose parts are labelled sets (`LabelledSet`); see `SplitData`.

    Attributes:
        name: What the user calls it (``"cora"``, a file name).
        source: Where it came from (``"planetoid"``, a path, ``"memory"``).
        train, val, test: The split; each has a length.
        num_classes: Number of classes; None for regression.
        class_names: One name per class.
        split: How the split was made, in words (printed and stored).
        normalisation: How features were scaled: ``"standard"``, ``"row"`` (divided by row sum) or ``"none"``.
        origin: Arguments for `hcdc.data` to read it again; empty for data passed in memory.
    """

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

    @property
    def kind(self) -> str:
        """Name of the kind of data, e.g. ``"graph"``."""
        return str(self.train.kind)

    @property
    def words(self) -> str:
        """The kind in words, e.g. ``"a graph"``."""
        return str(self.train.noun)

    def __repr__(self) -> str:
        sizes = " / ".join(f"{size:,}" for size in self.sizes().values())
        target = ", regression" if self.num_classes is None else f" in {self.num_classes} classes"
        return f"<{self.words.split()[-1]} '{self.name}': {sizes} {self.contents()}{target}>"

    def contents(self) -> str:
        """What the examples are, in a few words, e.g. ``"of 3 x 32 x 32"``."""
        return f"of {self.train.form}"

    def pieces(self) -> Iterator[tuple[str, Tensor]]:
        """Every tensor that defines the data, each with a text that is hashed before it."""
        for part in (self.train, self.val, self.test):
            yield from part.pieces()

    def to(self, device: torch.device | str) -> Self:
        """The same data on another device."""
        return self._moved(**{part: getattr(self, part).to(device) for part in ("train", "val", "test")})

    def sizes(self) -> dict[str, int]:
        """Labelled examples in each part of the split."""
        return {"train": len(self.train), "val": len(self.val), "test": len(self.test)}

    def fingerprint(self) -> str:
        """A hash of content and split, equal for equal data whatever its source; computed once."""
        return self._fingerprint

    @cached_property
    def _fingerprint(self) -> str:
        return fingerprint(self.pieces())

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


@dataclass(frozen=True, eq=False, repr=False)
class SplitData(Dataset):
    """A data set of your own: three labelled sets of one kind, which say what kind it is.

    Attributes:
        name, train, val, test, num_classes, class_names, source, split, normalisation, origin: As in
            `Dataset`.
    """

    name: str
    train: Any
    val: Any
    test: Any
    num_classes: int | None = None
    class_names: tuple[str, ...] = ()
    source: str = "memory"
    split: str = "given"
    normalisation: str = "none"
    origin: dict[str, Any] = field(default_factory=dict)
