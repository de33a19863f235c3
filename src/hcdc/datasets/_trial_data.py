"""What a user's objective receives: data of one rung, its budget of steps, and the score to return."""

from __future__ import annotations

import inspect
import logging
import math
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import log_softmax
from torch.utils.data import DataLoader

from hcdc.core.errors import InputError
from hcdc.core.ranks import share_error
from hcdc.core.seeds import stream
from hcdc.datasets._budget import Budget, Effort
from hcdc.datasets._labelled import LabelledSet
from hcdc.datasets._passed import Labels, Passed, PassedGraph, one_column, passed, to_numpy

if TYPE_CHECKING:
    from hcdc.datasets._condensed import CondensedDataset
    from hcdc.datasets._full_data import FullData

log = logging.getLogger("hcdc")
Array = NDArray[np.float64]


class TrialData:
    """Data for one call of a user's objective.

    Args:
        parts: The parts in the type that the user passed: ``"train"``, ``"val"``, perhaps ``"test"``.
        seed: Seed of this trial.
        classes: Class labels in the order of the outputs; None for regression.
        metric: The user's own metric, see `FullData`.
        effort: How a budget of steps is translated.
        is_condensed: Whether the training part is a copy.
        weight: Weights of the validation examples ``[m]``.
        by_loss: Score classes by minus the cross-entropy instead of the accuracy.

    Attributes:
        train, val, test: The parts, in the type that was passed; ``test`` may be None.
        seed: Seed of this trial, below 2^31; global streams are seeded with it already.
        parts_scored: Scores so far by part.
        errors: Standard errors of scores on the validation part, by score: how far they would differ with
            other validation rows. Those of a user's metric are not known.
    """

    def __init__(
        self,
        parts: Mapping[str, Passed],
        *,
        seed: int,
        classes: Labels | None = None,
        metric: Callable[..., float] | None = None,
        effort: Effort | None = None,
        is_condensed: bool = False,
        weight: Array | None = None,
        by_loss: bool = False,
    ):
        if weight is not None and metric is not None and not takes_weight(metric):
            raise InputError(
                "the validation set of this copy is weighted, and the metric takes no sample_weight; write "
                "metric(y, outputs, sample_weight=None), or use a copy without weights"
            )
        self._parts, self._classes, self._metric = parts, classes, metric
        self._weight, self._by_loss, train = weight, by_loss, parts["train"]
        self._budget = Budget(effort or Effort(), len(train), at_once=not train.divisible)
        self.seed, self.is_condensed = seed % 2**31, is_condensed
        self.parts_scored: dict[str, float] = {}
        self.errors: dict[float, float] = {}

    @classmethod
    def of_copy(cls, small: CondensedDataset, seed: int, full: FullData | None = None) -> TrialData:
        """A copy for one trial, in the type of ``full``.

        Without it a table is a pair of numpy arrays, images are a Dataset of tensors, a graph a PyG ``Data``.

        Args:
            small: The copy.
            seed: Seed of the trial.
            full: The full data: its type, its metric, and its validation part if the copy keeps the real one.
        """
        if full is not None and full.num_classes != small.num_classes:
            raise InputError(
                f"the copy has {small.num_classes} classes and the full data {full.num_classes}; pass a copy "
                "of the same data"
            )
        labels = None if full is None else _labels(small, full.classes)
        parts = {"train": _like(full, small.train, "train", labels)}
        if small.val is not None:
            parts["val"] = _like(full, small.val, "val", labels)
        elif full is not None:
            parts["val"] = full.parts["val"].own()
        else:
            raise InputError(
                "this copy is scored on the real validation set, which its file does not hold; pass "
                "full=hcdc.FullData(train, val)"
            )
        recipe = small.meta.get("calibrated_recipe") or {}
        classes = None if small.num_classes is None else np.arange(small.num_classes)
        return cls(
            parts, seed=seed, classes=classes if full is None else full.classes,
            metric=None if full is None else full.metric,
            effort=Effort(fixed=int(recipe.get("steps", 1)), batch=int(recipe.get("batch", 0))),
            is_condensed=True, weight=_weight(small.val, parts["val"]),
            by_loss=small.meta.get("metric") == "loss",
        )  # fmt: skip

    @property
    def train(self) -> Any:
        return self._parts["train"].value

    @property
    def val(self) -> Any:
        return self._parts["val"].value

    @property
    def test(self) -> Any:
        return self._parts["test"].value if "test" in self._parts else None

    @property
    def num_classes(self) -> int | None:
        """Number of classes; None for regression."""
        return None if self._classes is None else len(self._classes)

    @property
    def weighted(self) -> bool:
        """Whether validation examples have weights, which only `score` knows."""
        return self._weight is not None

    def loader(
        self, split: str = "train", batch_size: int = 128, shuffle: bool | None = None
    ) -> DataLoader[Any]:
        """Mini-batches ``(x, y)`` of a part; ``"train"`` is shuffled unless told otherwise.

        The labels of arrays and data frames are class numbers 0, 1, ... in sorted order.
        """
        if split not in self._parts:
            raise InputError(f"split '{split}' is not known; choose one of: {', '.join(self._parts)}")
        if split == "train":
            self._budget.batches.append(batch_size)
        return DataLoader(
            self._parts[split].batches(self._classes),
            batch_size=batch_size,
            shuffle=split == "train" if shuffle is None else shuffle,
            generator=stream(self.seed, "loader", split),
        )

    # --- the budget ---------------------------------------------------------------------------------------

    @property
    def asked(self) -> dict[str, int]:
        """The largest budget that the objective asked `steps` or `epochs` for, by name."""
        return self._budget.asked

    @property
    def batch(self) -> int:
        """Mini-batch size of the first ``loader("train", ...)``; 0 if there is none."""
        return self._budget.batches[0] if self._budget.batches else 0

    @property
    def doubt(self) -> str:
        """At the end of a trial, why its steps may not be the epochs that they stand for, see `steps`."""
        return self._budget.doubt

    def steps(self, n: int) -> int:
        """How many of ``n`` full-data steps to take here, at least 1.

        On the full data that is all of them, on a subset or in a short training their share, and on a copy
        the calibrated number, whatever ``n`` is.

        In a short training that is given in epochs (``"short:3"``), it is the steps of these epochs with the
        batch size of the last ``loader("train", ...)``, so make the loader first. Without a loader, the first
        trial decides: if it called `epochs`, the share is that of the epochs; if it made a loader, the batch
        size is expected to be the same; if it did neither, there is no such short training. On a graph an
        epoch is one step.
        """
        return self._budget.steps(n)

    def epochs(self, n: int) -> int:
        """As `steps`, for passes over ``data.train``.

        On a subset all ``n``: its epochs are shorter already. A copy's calibrated steps are divided by the
        steps per epoch of the last ``loader("train", ...)``, else of the calibrated batch size.
        """
        return self._budget.epochs(n)

    # --- the score ----------------------------------------------------------------------------------------

    def score(
        self, outputs: Any = None, *, probabilities: Any = False, values: Any = False, split: str = "val"
    ) -> float:
        """The number to return; higher is better.

        Accuracy for classes, or minus the cross-entropy on copies that rank by loss; minus the RMSE for
        values; the user's metric if there is one. Weights of the validation examples are taken into account.

        Args:
            outputs: Outputs for ``data.val``, in its order: logits ``[m, classes]``, or ``[m]`` for two
                classes; values ``[m]`` for regression. For a graph, one row per node or per validation node.
            probabilities: The outputs are probabilities; or the probabilities, in place of ``outputs``.
            values: The outputs are predicted labels (regression: values, which is the default there); or the
                labels, in place of ``outputs``.
            split: ``"test"`` scores ``data.test``: it is shown with the result and never used to choose.
        """
        part = self._parts.get(split)
        if part is None:
            raise InputError(f"split '{split}' is not known; choose one of: {', '.join(self._parts)}")
        y = part.labels
        if y is None:
            raise InputError(
                "data.score needs labels, but the examples are not pairs (x, y); return a value of your own"
            )
        outputs, probabilities, values = _outputs(outputs, probabilities, values)
        found = part.rows(to_numpy(outputs))
        if len(found) != len(y):
            raise InputError(f"data.score got {len(found)} outputs for {len(y)} examples of data.{split}")
        weight = self._weight if split == "val" else None
        error = math.nan
        if self._metric is not None:
            weighted = {"sample_weight": weight} if takes_weight(self._metric) else {}
            score = float(self._metric(y, found, **weighted))
        elif self._classes is None and y.dtype.kind not in "fc" and y.ndim > 1 and y.shape[1] > 1:
            raise InputError(
                f"labels of shape {y.shape} are several per example; pass metric=, or for one-hot labels the "
                "number of the class, e.g. y.argmax(1)"
            )
        elif self._classes is None:
            score, error = _minus_rmse(y, found, weight)
        else:
            score, error = self._of_classes(y, found, weight, probabilities, values)
        self.parts_scored[split] = score
        if split == "val" and math.isfinite(error):
            self.errors[score] = error
        return score

    def _of_classes(
        self, y: Labels, outputs: NDArray[Any], weight: Array | None, probabilities: bool, values: bool
    ) -> tuple[float, float]:
        """The score and its standard error."""
        classes = self._classes
        assert classes is not None
        if values:
            if self._by_loss:
                raise InputError("this copy ranks by loss; give data.score logits or probabilities")
            return _share(outputs.reshape(len(y)) == one_column(y), weight)
        if outputs.dtype.kind in "OSU":
            raise InputError("data.score got texts as outputs; pass values=True for predicted labels")
        table = outputs.astype(np.float64)
        if table.size == len(y) and len(classes) == 2:
            column = table.reshape(-1, 1)
            if not probabilities and _are_no_logits(column, classes):
                raise InputError(
                    f"data.score got one column from {column.min():.3g} to {column.max():.3g}, which does "
                    "not look like logits; pass probabilities=True for probabilities of the second class, or "
                    "values=True for predicted labels"
                )
            table = np.concatenate([1 - column if probabilities else np.zeros_like(column), column], 1)
        if table.ndim != 2 or table.shape[1] != len(classes):
            raise InputError(
                f"data.score got outputs of shape {outputs.shape} for {len(y)} examples and {len(classes)} "
                f"classes; give one column per class, or values=True for predicted labels"
            )
        if np.isnan(table).any():
            return math.nan, math.nan
        index = np.searchsorted(classes, y.reshape(-1))
        if self._by_loss:
            logs = np.log(np.maximum(table, 1e-12)) if probabilities else log_softmax(table, axis=1)
            return _mean(logs[np.arange(len(y)), index], weight)
        return _share(table.argmax(1) == index, weight)


def _outputs(outputs: Any, probabilities: Any, values: Any) -> tuple[Any, bool, bool]:
    """The outputs, and whether they are probabilities or values; either may be given in place of its flag."""
    is_probable, is_value = (given is not None and given is not False for given in (probabilities, values))
    found = [given for given in (outputs, probabilities, values) if not isinstance(given, bool | None)]
    if (is_probable and is_value) or len(found) != 1:
        raise InputError(
            "data.score needs the outputs once, as data.score(logits), data.score(p, probabilities=True) or "
            "data.score(labels, values=True)"
        )
    return found[0], is_probable, is_value


def _are_no_logits(column: Array, classes: Labels) -> bool:
    """Whether outputs for two classes are probabilities or labels: as logits, all name the second class."""
    inside = bool(((column > 0) & (column < 1)).any() and ((column >= 0) & (column <= 1)).all())
    if inside and column.min() < 0.5 < column.max():
        return True
    return classes.dtype.kind in "iu" and classes[0] > 0 and bool(np.isin(column, classes).all())


def takes_weight(metric: Callable[..., float]) -> bool:
    """Whether a metric has the argument ``sample_weight``."""
    try:
        found = inspect.signature(metric).parameters
    except (TypeError, ValueError):  # a function that is not written in Python
        return True
    return "sample_weight" in found or any(p.kind is p.VAR_KEYWORD for p in found.values())


def _mean(values: Array, weight: Array | None) -> tuple[float, float]:
    """The mean of ``values [m]`` and its standard error."""
    mean = float(np.average(values, weights=weight))
    weights = np.ones(len(values)) if weight is None else weight
    return mean, math.sqrt(float((weights**2 * (values - mean) ** 2).sum())) / float(weights.sum())


def _share(right: NDArray[np.bool_], weight: Array | None) -> tuple[float, float]:
    """The share of ``right [m]`` and its standard error."""
    share = float(np.average(right, weights=weight))
    count = len(right) if weight is None else float(weight.sum()) ** 2 / float((weight**2).sum())
    return share, share_error(share, count)


def _minus_rmse(y: Labels, outputs: NDArray[Any], weight: Array | None) -> tuple[float, float]:
    """Minus the root of the mean squared error, and its standard error."""
    if outputs.size != y.size:
        raise InputError(f"data.score got outputs of shape {outputs.shape} for values of shape {y.shape}")
    errors = (outputs.reshape(y.shape).astype(np.float64) - y) ** 2
    mean, error = _mean(errors.reshape(len(y), -1).mean(1), weight)
    return -math.sqrt(mean), error / (2 * math.sqrt(mean)) if mean else 0.0


def _like(full: FullData | None, part: LabelledSet, name: str, labels: Labels | None) -> Passed:
    """A set of a copy, in the type of the full data."""
    if full is not None:
        return full.parts[name].like(part, name, labels)
    return passed(part.as_passed(name), name)


def _labels(small: CondensedDataset, classes: Labels | None) -> Labels | None:
    """The user's labels of a copy's classes 0, 1, ...; None if they are these numbers.

    Classes are matched by name if both sides have the same names, else by position.
    """
    if classes is None or np.array_equal(classes, np.arange(len(classes))):
        return None
    called = {str(label): k for k, label in enumerate(classes)}
    names = (small.meta.get("data") or {}).get("class_names") or ()
    return classes[[called[name] for name in names]] if sorted(names) == sorted(called) else classes


def _weight(val: LabelledSet | None, given: Passed) -> Array | None:
    """Weights of the validation examples, in the order of their labels."""
    if val is None or val.weight is None:
        return None
    if isinstance(given, PassedGraph):
        return to_numpy(given.value.node_weight)[given.nodes]
    return to_numpy(val.weight)
