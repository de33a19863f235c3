"""Labelled sets: T_train, T_val, S_train and S_val, for any kind of data.

A kind of data is a class here and a name in the file. To add one, subclass `LabelledSet` (or `Examples`, if
all examples fit in one tensor) and decorate it with `register_kind`.
"""

from __future__ import annotations

import dataclasses
import sys
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Self, TypeVar

import torch
from torch import Tensor
from torch.utils.data import TensorDataset

from hcdc.core.errors import InputError, unknown_name
from hcdc.core.labels import members


class LabelledSet(ABC):
    """Examples with labels: T_train, T_val, S_train or S_val. Each kind of data is a subclass.

    Attributes:
        kind: Name of the kind in the condensed file.
        regression: Whether labels may be values instead of classes.
        y: Labels ``[m]``.
        weight: Non-negative loss weight of each label ``[m]``; None means equal weights.
    """

    kind: ClassVar[str]
    regression: ClassVar[bool] = False
    y: Tensor
    weight: Tensor | None

    def __len__(self) -> int:
        return int(self.y.shape[0])

    @property
    @abstractmethod
    def form(self) -> str:
        """The form of one example: a number of features, or a shape such as ``3 x 32 x 32``."""

    @abstractmethod
    def tensors(self) -> dict[str, Tensor]:
        """Its content as a file stores it, by name; None values are left out."""

    def dense(self) -> dict[str, Tensor]:
        """Its content as dense tensors, at least ``"x"`` and ``"y"``."""
        return self.tensors()

    @classmethod
    @abstractmethod
    def from_tensors(cls, tensors: Mapping[str, Tensor]) -> Self:
        """Rebuild the set from its `tensors`; a missing tensor raises ``KeyError``."""

    @abstractmethod
    def subset(self, index: Tensor) -> Self:
        """The examples at positions ``index`` ``[b]``, with their labels and weights."""

    @abstractmethod
    def to(self, device: torch.device | str) -> Self:
        """The same set on another device."""

    @abstractmethod
    def describe(self) -> str:
        """What it holds, in one line."""

    @abstractmethod
    def check_shapes(self, name: str) -> None:
        """Refuse tensors whose shapes do not match; errors call the set ``name``."""

    def check(self, name: str, num_classes: int | None) -> None:
        """Refuse what cannot be trained on: wrong shapes, types, labels or weights, NaN and infinity.

        Args:
            name: Name of the set in errors, ``"train"`` or ``"val"``.
            num_classes: Number of classes; None for regression or if unknown.
        """
        self.check_shapes(name)
        y, weight, floats = self.y, self.weight, self.floats()
        x = floats["x"]
        if not x.is_floating_point() or (y.is_floating_point() and (num_classes or not self.regression)):
            raise InputError(
                f"{name}/x is {x.dtype} and {name}/y {y.dtype}; numbers and class numbers are needed"
            )
        if not y.is_floating_point() and (
            int(y.min()) < 0 or (num_classes is not None and int(y.max()) >= num_classes)
        ):
            raise InputError(
                f"{name}/y holds labels {int(y.min())} .. {int(y.max())}; allowed are 0 .. classes - 1"
            )
        if weight is not None and (weight.shape != y.shape or not bool((weight >= 0).all())):
            raise InputError(f"{name}/weight must hold one non-negative number for each of {len(y)} labels")
        if weight is not None and not bool((weight > 0).any()):
            raise InputError(f"{name}/weight is 0 for each of {len(y)} labels, which leaves no loss")
        for key, value in {**floats, "y": y, "weight": weight}.items():
            if value is not None and not bool(torch.isfinite(value).all()):
                raise InputError(f"{name}/{key} holds NaN or infinity")

    def pieces(self) -> Iterator[tuple[str, Tensor]]:
        """Every tensor that it holds, as stored, each with a text that is hashed before it."""
        for tensor in self.tensors().values():
            yield str(tuple(tensor.shape)), tensor

    def floats(self) -> dict[str, Tensor]:
        """The tensors that must be finite, including ``"x"``; labels and weights are checked separately."""
        return {"x": self.tensors()["x"]}

    def pools(self, num_classes: int) -> list[Tensor]:
        """For each class, the positions of its examples, on the CPU."""
        return members(self.y, num_classes)

    def pictures(self) -> Tensor | None:
        """Images to draw ``[m, c, h, w]``, on the CPU; None for other kinds of examples."""
        return None

    def details(self, name: str, num_classes: int | None) -> list[tuple[str, str]]:
        """More (label, text) lines for ``hcdc inspect``; ``name`` is ``"S_train"`` or ``"S_val"``."""
        return []

    def as_passed(self, part: str) -> Any:
        """What an objective gets if no full data says otherwise: a torch Dataset of pairs."""
        return TensorDataset(self.tensors()["x"].cpu(), self.y.cpu())

    def to_pyg(self, part: str) -> Any:
        """The set as PyG ``Data``; only graphs can be converted."""
        raise InputError(
            f"this condensed data set is of kind '{self.kind}', which PyG cannot represent; "
            "use to_torch() or to_numpy()"
        )


@dataclass(frozen=True, eq=False, repr=False)
class Examples(LabelledSet):
    """Examples stacked in one tensor.

    Attributes:
        noun: What the examples are called, e.g. ``"rows"``.
        axes: Names of the axes of ``x``; the first is over examples.
        x: Examples ``[m, ...]``.
        y, weight: As in `LabelledSet`.
    """

    noun: ClassVar[str]
    axes: ClassVar[tuple[str, ...]]

    x: Tensor
    y: Tensor
    weight: Tensor | None = None

    def __repr__(self) -> str:
        weighted = "" if self.weight is None else ", weighted"
        dtype = str(self.x.dtype).removeprefix("torch.")
        return f"<{len(self):,} {self.noun} of {self.form}, {dtype}{weighted}>"

    @property
    def form(self) -> str:
        return " x ".join(map(str, self.x.shape[1:]))

    def tensors(self) -> dict[str, Tensor]:
        found = {"x": self.x, "y": self.y, "weight": self.weight}
        return {key: value for key, value in found.items() if value is not None}

    @classmethod
    def from_tensors(cls, tensors: Mapping[str, Tensor]) -> Self:
        return cls(tensors["x"], tensors["y"], tensors.get("weight"))

    def subset(self, index: Tensor) -> Self:
        parts = {key: value[index] for key, value in self.tensors().items()}
        return dataclasses.replace(self, **parts)

    def to(self, device: torch.device | str) -> Self:
        parts = {key: value.to(device) for key, value in self.tensors().items()}
        return dataclasses.replace(self, **parts)

    def describe(self) -> str:
        return f"{len(self)} {self.noun}" + ("" if self.weight is None else ", weighted")

    def check_shapes(self, name: str) -> None:
        x, y = self.x, self.y
        if x.dim() != len(self.axes) or y.dim() != 1 or len(y) == 0:
            raise InputError(
                f"{name}/x has shape {tuple(x.shape)} and {name}/y {tuple(y.shape)}; "
                f"[{', '.join(self.axes)}] and [m] are needed"
            )
        if len(x) != len(y):
            raise InputError(f"{name} has {len(x)} {self.noun} and {len(y)} labels")


# --- the registry -----------------------------------------------------------------------------------------

KINDS: dict[str, type[LabelledSet]] = {}
Kind = TypeVar("Kind", bound=type[LabelledSet])


def register_kind(form: Kind) -> Kind:
    """Class decorator: let condensed files hold this kind, under the name ``form.kind``."""
    known = KINDS.get(form.kind)
    if known is not None and (kind_module(known), known.__name__) != (kind_module(form), form.__name__):
        raise InputError(
            f"kind '{form.kind}' is taken by {kind_module(known)}.{known.__name__}; choose another name"
        )
    KINDS[form.kind] = form
    return form


def kind_named(name: str, module: str | None = None) -> type[LabelledSet]:
    """The registered class of a kind.

    Args:
        name: Name of the kind.
        module: Module that defines it, according to the file; errors name it.
    """
    if name in KINDS:
        return KINDS[name]
    if module is None:
        raise unknown_name("kind", name, KINDS)
    raise InputError(
        f"kind '{name}' is defined in module '{module}'; import it first, or pass --import {module}"
    )


def kind_module(form: type[LabelledSet]) -> str:
    """The module that defines a kind; for a script, the name to import it by."""
    if form.__module__ != "__main__":
        return form.__module__
    return Path(getattr(sys.modules["__main__"], "__file__", None) or "__main__").stem
