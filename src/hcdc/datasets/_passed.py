"""One part of a user's data, kept in the type that was passed: arrays, a data frame, a Dataset, a graph."""

from __future__ import annotations

import hashlib
import sys
from abc import ABC, abstractmethod
from collections.abc import Iterator
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch.utils.data import Dataset, Subset, TensorDataset

from hcdc.core.errors import InputError
from hcdc.datasets._labelled import LabelledSet
from hcdc.datasets._pyg import is_pyg

Labels = NDArray[Any]
Index = NDArray[np.int64]

ROADS = (
    "a map-style torch Dataset, a pair of arrays or tensors (X, y), a pandas DataFrame with target=, or a "
    "PyG Data with train_mask and val_mask"
)


class Passed(ABC):
    """One part of the data as the user passed it.

    Attributes:
        value: What the user passed, or a smaller piece of the same type.
        divisible: Whether training on fewer examples takes less time.
    """

    divisible: ClassVar[bool] = True

    def __init__(self, value: Any):
        self.value = value

    @abstractmethod
    def __len__(self) -> int:
        """Number of labelled examples."""

    @abstractmethod
    def known_labels(self) -> Labels | None:
        """Labels ``[m]`` if they can be had without reading every example."""

    @cached_property
    def labels(self) -> Labels | None:
        """Labels ``[m]``; None if the examples have none."""
        return self.known_labels()

    def own(self) -> Passed:
        """The same examples for one trial, which may drop or change columns of a data frame."""
        return self

    @abstractmethod
    def take(self, index: Index) -> Any:
        """The examples at ``index``, in the type that was passed."""

    @abstractmethod
    def like(self, part: LabelledSet, name: str, classes: Labels | None) -> Passed:
        """A set of a copy in this type.

        Args:
            part: S_train or S_val.
            name: ``"train"`` or ``"val"``.
            classes: The user's labels of classes 0, 1, ..., if those are others.
        """

    @abstractmethod
    def pieces(self) -> Iterator[Any]:
        """What is hashed: arrays, tensors and texts."""

    def rows(self, outputs: NDArray[Any]) -> NDArray[Any]:
        """The rows of a model's outputs that belong to the labels, in their order."""
        return outputs

    def batches(self, classes: Labels | None) -> Dataset[Any]:
        """Examples for a ``DataLoader``."""
        raise InputError("a graph is trained on as a whole, without a loader; use data.train and data.val")


class PassedArrays(Passed):
    """A pair (X, y); X and y are numpy arrays, tensors, scipy matrices, data frames or series."""

    def __init__(self, value: Any):
        x, y = value
        super().__init__((x, y))
        for name, array in (("X", x), ("y", y)):
            if not hasattr(array, "shape") or not len(array.shape):
                raise InputError(
                    f"{name} of the pair (X, y) is a {type(array).__name__}; arrays or tensors are needed"
                )
        if x.shape[0] != y.shape[0]:
            raise InputError(f"X has {x.shape[0]} rows and y {y.shape[0]}; each row needs one label")

    def __len__(self) -> int:
        return int(self.value[1].shape[0])

    def known_labels(self) -> Labels:
        return to_numpy(self.value[1])

    def take(self, index: Index) -> Any:
        return tuple(_rows(array, index) for array in self.value)

    def like(self, part: LabelledSet, name: str, classes: Labels | None) -> Passed:
        x, y = self.value
        return PassedArrays((_as_type(part.tensors()["x"], x), _as_type(part.y, y, classes)))

    def pieces(self) -> Iterator[Any]:
        yield from self.value

    def batches(self, classes: Labels | None) -> Dataset[Any]:
        return TensorDataset(_numbers(self.value[0]), _targets(self.value[1], classes))


class PassedFrame(Passed):
    """A pandas DataFrame with a column to predict."""

    def __init__(self, value: Any, target: str | None):
        super().__init__(value)
        columns = [str(column) for column in value.columns]
        if target is None or target not in value.columns:
            given = "is missing" if target is None else f"'{target}' is not a column"
            raise InputError(f"target {given}: name the column to predict, one of: {', '.join(columns[:12])}")
        self.target = target

    def __len__(self) -> int:
        return len(self.value)

    def known_labels(self) -> Labels:
        return to_numpy(self.value[self.target])

    def own(self) -> Passed:
        made = PassedFrame(self.value.copy(), self.target)
        made.labels = self.labels  # known even if the trial drops the column
        return made

    def take(self, index: Index) -> Any:
        return self.value.iloc[index]

    def like(self, part: LabelledSet, name: str, classes: Labels | None) -> Passed:
        x = self.value.drop(columns=self.target)
        made = _as_type(part.tensors()["x"], x)
        made[self.target] = _as_type(part.y, self.value[self.target], classes)
        return PassedFrame(made[list(self.value.columns)], self.target)

    def pieces(self) -> Iterator[Any]:
        yield from (self.target, self.value)

    def batches(self, classes: Labels | None) -> Dataset[Any]:
        x = _numbers(self.value.drop(columns=self.target))
        return TensorDataset(x, _targets(self.value[self.target], classes))


class PassedDataset(Passed):
    """A map-style torch Dataset of pairs (x, y)."""

    def __len__(self) -> int:
        return len(self.value)

    def known_labels(self) -> Labels | None:
        return _dataset_labels(self.value)

    @cached_property
    def labels(self) -> Labels | None:
        """As `known_labels`, else from the examples, each of which is read once."""
        known = self.known_labels()
        if known is not None or not len(self):
            return known
        items = [self.value[i] for i in range(len(self))]
        if not all(isinstance(item, (tuple, list)) and len(item) == 2 for item in items):
            return None
        try:
            return np.array([to_numpy(item[1]) for item in items])
        except (TypeError, ValueError):
            return None

    def take(self, index: Index) -> Any:
        if type(self.value) is TensorDataset:
            return TensorDataset(*(_rows(tensor, index) for tensor in self.value.tensors))
        return Subset(self.value, index.tolist())

    def like(self, part: LabelledSet, name: str, classes: Labels | None) -> Passed:
        if classes is not None and classes.dtype.kind not in "biu":
            raise InputError(
                f"the {name} part of a copy is a Dataset of tensors, which cannot hold labels such as "
                f"'{classes[0]}'; number the classes 0, 1, ..."
            )
        return PassedDataset(TensorDataset(part.tensors()["x"].cpu(), _renamed(part.y.cpu(), classes)))

    def pieces(self) -> Iterator[Any]:
        yield f"{type(self.value).__name__} {len(self)}"
        labels = self.known_labels()
        if labels is not None:
            yield labels
        for position in (0, len(self) - 1):
            item = self.value[position]
            yield from item if isinstance(item, (tuple, list)) else [item]

    def batches(self, classes: Labels | None) -> Dataset[Any]:
        found: Dataset[Any] = self.value
        return found


class PassedGraph(Passed):
    """A PyG ``Data`` whose mask marks the labelled nodes of this part; the whole graph is always computed."""

    divisible = False

    def __init__(self, value: Any, mask: str):
        super().__init__(value)
        self.mask = mask
        marked = value.get(mask)
        if value.y is None or marked is None or marked.dim() != 1 or not bool(marked.any()):
            raise InputError(
                f"the Data object needs labels y and a mask '{mask}' of shape [nodes] with at least one "
                "node; of several splits choose one, e.g. data.train_mask = data.train_mask[:, 0]"
            )

    @property
    def nodes(self) -> Index:
        """Labelled nodes of this part."""
        found: Index = self.value[self.mask].cpu().numpy().nonzero()[0]
        return found

    def __len__(self) -> int:
        return len(self.nodes)

    def known_labels(self) -> Labels:
        return to_numpy(self.value.y)[self.nodes]

    def take(self, index: Index) -> Any:
        smaller = self.value.clone()
        smaller[self.mask] = torch.zeros_like(self.value[self.mask])
        smaller[self.mask][torch.from_numpy(self.nodes[index])] = True
        return smaller

    def like(self, part: LabelledSet, name: str, classes: Labels | None) -> Passed:
        graph, mask = part.to_pyg(name), f"{name}_mask"
        graph.y[graph[mask]] = _renamed(graph.y[graph[mask]], classes)
        return PassedGraph(graph, mask)

    def pieces(self) -> Iterator[Any]:
        for key in ("x", "edge_index", "y", self.mask):
            if self.value.get(key) is not None:
                yield from (key, self.value[key])

    def rows(self, outputs: NDArray[Any]) -> NDArray[Any]:
        return outputs[self.nodes] if len(outputs) == self.value.num_nodes else outputs


def passed(value: Any, part: str, target: str | None = None) -> Passed:
    """What a user passed as one part of the data.

    Args:
        value: See `ROADS`.
        part: ``"train"``, ``"val"`` or ``"test"``.
        target: Column to predict, for data frames only.
    """
    pandas = sys.modules.get("pandas")
    if pandas is not None and isinstance(value, pandas.DataFrame):
        return PassedFrame(value, target)
    if target is not None:
        raise InputError(
            f"target '{target}' names a column, but {part} is a {type(value).__name__}; leave it out"
        )
    if is_pyg(value) and hasattr(value, "edge_index"):
        return PassedGraph(value, f"{part}_mask")
    if isinstance(value, (tuple, list)) and len(value) == 2:
        return PassedArrays(value)
    others = isinstance(value, (str, dict, tuple, list)) or hasattr(value, "shape")
    if hasattr(value, "__getitem__") and hasattr(value, "__len__") and not others:
        return PassedDataset(value)
    raise InputError(f"{part} is a {type(value).__name__}; pass {ROADS}")


def digest(parts: list[Passed]) -> str:
    """A hash of the content; for a torch Dataset, of its length, known labels, first and last example."""
    found = hashlib.sha256()
    for part in parts:
        for piece in part.pieces():
            found.update(type(piece).__name__.encode())
            found.update(_bytes(piece))
    return found.hexdigest()[:32]


def to_numpy(value: Any) -> NDArray[Any]:
    """Arrays, tensors, series and lists as a numpy array."""
    if isinstance(value, torch.Tensor):
        plain = value.detach().cpu()
        plain = plain.float() if plain.dtype == torch.bfloat16 else plain  # numpy has no bfloat16
        return plain.numpy()
    return np.asarray(value)


def one_column(labels: Labels) -> Labels:
    """Labels ``[m]`` of classes from a single column ``[m, 1]``; others as they are."""
    return labels[:, 0] if labels.ndim == 2 and labels.shape[1] == 1 else labels


def _bytes(piece: Any) -> bytes:
    pandas = sys.modules.get("pandas")
    if isinstance(piece, str):
        return piece.encode()
    if pandas is not None and isinstance(piece, (pandas.DataFrame, pandas.Series)):
        names = [str(name) for name in (piece.columns if piece.ndim == 2 else [piece.name])]
        hashed = to_numpy(pandas.util.hash_pandas_object(piece, index=False))
        return "\x1f".join(names).encode() + hashed.tobytes()
    if hasattr(piece, "tocsr"):
        matrix = piece.tocsr()
        return b"".join(array.tobytes() for array in (matrix.data, matrix.indices, matrix.indptr))
    try:
        array = np.ascontiguousarray(to_numpy(piece))
    except (TypeError, ValueError):
        array = np.array(repr(piece))
    text = f"{array.dtype} {array.shape}"
    return text.encode() + (str(array.tolist()).encode() if array.dtype == object else array.tobytes())


def _rows(array: Any, index: Index) -> Any:
    if hasattr(array, "iloc"):
        return array.iloc[index]
    if hasattr(array, "tocsr"):  # not every sparse matrix can be indexed
        return array.tocsr()[index].asformat(array.format)
    return array[torch.from_numpy(index)] if isinstance(array, torch.Tensor) else array[index]


def _as_type(tensor: torch.Tensor, like: Any, classes: Labels | None = None) -> Any:
    """A tensor of a copy as a tensor, a numpy array, a data frame or a series; classes get their labels."""
    if isinstance(like, torch.Tensor):
        return _renamed(tensor.cpu(), classes)
    values = tensor.cpu().numpy()
    values = values if classes is None else classes[values]
    if not hasattr(like, "iloc"):
        return values
    columns = getattr(like, "columns", None)
    if columns is None:
        return type(like)(values, name=like.name)
    if len(columns) != values.shape[1]:
        raise InputError(
            f"the copy has {values.shape[1]} features and the data frame {len(columns)}; encode the table as "
            "numbers first, condense that, and pass the same table here"
        )
    return type(like)(values, columns=columns)


def _renamed(y: torch.Tensor, classes: Labels | None) -> torch.Tensor:
    """Class numbers as the user's labels."""
    return y if classes is None else torch.from_numpy(classes[y.numpy()])


def _numbers(array: Any) -> torch.Tensor:
    """Features as floating-point numbers."""
    if isinstance(array, torch.Tensor):
        return array
    values = to_numpy(array.toarray() if hasattr(array, "toarray") else array)
    try:
        return torch.from_numpy(values.astype(np.float32))
    except (TypeError, ValueError) as error:
        raise InputError(
            f"data.loader needs numbers, but the features hold {values.dtype}; encode them, or batch "
            "data.train yourself"
        ) from error


def _targets(y: Any, classes: Labels | None) -> torch.Tensor:
    """Labels as class numbers, or as floating-point values for regression."""
    if isinstance(y, torch.Tensor) and (classes is None or y.is_floating_point()):
        return y
    values = to_numpy(y)
    if classes is None:
        return torch.from_numpy(values.astype(np.float32))
    values = one_column(values)
    numbers = torch.from_numpy(np.searchsorted(classes, values).astype(np.int64))
    return numbers.to(y.device) if isinstance(y, torch.Tensor) else numbers


def _dataset_labels(dataset: Any) -> Labels | None:
    """Labels that a Dataset names itself."""
    if isinstance(dataset, Subset):
        whole = _dataset_labels(dataset.dataset)
        return None if whole is None else whole[np.asarray(dataset.indices)]
    tensors = getattr(dataset, "tensors", None)
    if isinstance(tensors, tuple) and len(tensors) == 2:
        return to_numpy(tensors[1])
    for name in ("targets", "labels", "y"):
        found = getattr(dataset, name, None)
        if found is not None and hasattr(found, "__len__") and len(found) == len(dataset):
            return to_numpy(found)
    return None
