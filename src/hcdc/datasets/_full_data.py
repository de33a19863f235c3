"""The full data of a user's own objective: parts as they were passed, subsets, and what it is scored by."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Any

import numpy as np

from hcdc.core.errors import InputError
from hcdc.core.seeds import check_whole, derive, numpy_stream
from hcdc.datasets._budget import Effort
from hcdc.datasets._passed import Index, Labels, Passed, digest, one_column, passed
from hcdc.datasets._trial_data import TrialData

Metric = Callable[..., float]
MOST_CLASSES = 10
"""Floating-point labels may be meant as classes if they have at most so many values, all whole."""


class FullData:
    """The data that a user's objective is trained and scored on.

    Args:
        train: Training part: a map-style torch Dataset, a pair ``(X, y)`` of arrays or tensors, a pandas
            DataFrame (with ``target``), or a PyG ``Data`` with ``train_mask`` and ``val_mask``.
        val: Validation part, of the same type; leave it out for a PyG ``Data``.
        test: Test part: only shown, never used to choose.
        metric: ``metric(y, outputs)``, higher is better. For copies with weighted validation sets it must
            also take ``sample_weight``, which is None elsewhere. By default accuracy for classes and minus
            the RMSE for values.
        num_classes: Number of classes, if the labels do not tell.
        target: Column to predict in a DataFrame.

    Example:
        >>> x, y = np.random.default_rng(0).normal(size=(100, 3)), np.arange(100) % 4
        >>> full = hcdc.FullData((x[:80], y[:80]), (x[80:], y[80:]))
        >>> full.num_classes, len(full.subset(0.1, seed=0)[1])
        (4, 8)
    """

    def __init__(
        self,
        train: Any,
        val: Any = None,
        test: Any = None,
        *,
        metric: Metric | None = None,
        num_classes: int | None = None,
        target: str | None = None,
    ):
        if metric is not None and not callable(metric):
            raise InputError(f"metric {metric!r}: pass a function metric(y, outputs)")
        first = passed(train, "train", target)
        if val is None and hasattr(train, "edge_index"):
            val, test = train, train if test is None and train.get("test_mask") is not None else test
        if val is None:
            raise InputError("val is missing: pass the part of the data that models are scored on")
        self.parts: dict[str, Passed] = {"train": first, "val": passed(val, "val", target)}
        if test is not None:
            self.parts["test"] = passed(test, "test", target)
        for name, part in self.parts.items():
            if type(part) is not type(first):
                raise InputError(
                    f"train is a {type(train).__name__} and {name} a {type(part.value).__name__}; "
                    "all parts must have one type"
                )
            if not len(part):
                raise InputError(f"{name} is empty; each part needs at least one example")
        self.metric, self.target = metric, target
        if num_classes is not None:
            check_whole("num_classes", num_classes, 1)
        self.classes = self._classes(num_classes)

    @property
    def train(self) -> Any:
        """The training part, as passed."""
        return self.parts["train"].value

    @property
    def val(self) -> Any:
        """The validation part, as passed."""
        return self.parts["val"].value

    @property
    def test(self) -> Any:
        """The test part, as passed, or None."""
        return self.parts["test"].value if "test" in self.parts else None

    @property
    def num_classes(self) -> int | None:
        """Number of classes; None for regression or without labels."""
        return None if self.classes is None else len(self.classes)

    def __repr__(self) -> str:
        sizes = ", ".join(f"{name} {len(part):,}" for name, part in self.parts.items())
        kind = "values" if self.classes is None else f"{len(self.classes)} classes"
        return f"<FullData: {type(self.train).__name__}, {sizes}, {kind}>"

    @property
    def doubt(self) -> str:
        """That the labels may be classes although they are taken as values to predict; else empty."""
        labels = self.parts["train"].known_labels()
        if self.classes is not None or self.metric is not None or labels is None or labels.dtype.kind != "f":
            return ""
        found = np.unique(labels)
        if len(found) > MOST_CLASSES or (found % 1 != 0).any():
            return ""
        return (
            f"the {len(found)} different labels are floating-point numbers, so data.score takes them as "
            "values to predict and returns minus the RMSE; if they are classes, make them integers"
        )

    def _classes(self, num_classes: int | None) -> Labels | None:
        """Class labels in the order of a model's outputs: 0, 1, ... for class numbers, else sorted."""
        known = [part.known_labels() for part in self.parts.values()]
        labels = [some for some in [*known, self.parts["val"].labels] if some is not None]
        if not labels:
            return None if num_classes is None else np.arange(num_classes)
        if num_classes is None and np.issubdtype(labels[0].dtype, np.floating):
            return None
        if any(one_column(some).ndim > 1 for some in labels):  # several per example: values to predict
            return None
        try:
            found = np.unique(np.concatenate([np.ravel(some) for some in labels]))
        except TypeError as error:  # None or NaN among texts
            kinds = sorted({type(label).__name__ for some in labels for label in some.ravel().tolist()})
            raise InputError(
                f"labels are of different kinds: {', '.join(kinds)}; fill or drop missing labels, and give "
                "the others one type"
            ) from error
        if num_classes is None and np.issubdtype(found.dtype, np.integer) and found[0] == 0:
            num_classes = int(found[-1]) + 1
        if num_classes is None:
            return found
        whole = np.issubdtype(found.dtype, np.number) and bool((found == found.astype(np.int64)).all())
        if whole and found[0] >= 0 and found[-1] < num_classes:
            return np.arange(num_classes)
        if len(found) != num_classes:
            raise InputError(
                f"num_classes {num_classes}: the labels name {len(found)} classes, {found[0]} .. {found[-1]}"
            )
        return found

    @cached_property
    def fingerprint(self) -> str:
        """A hash of the content; see `digest`."""
        return digest(list(self.parts.values()))

    def subset_index(self, fraction: float, seed: int) -> Index:
        """Positions of a random part of the training examples, in their order.

        For classes the same fraction of each class, at least one example.
        """
        if not 0 < fraction <= 1:
            raise InputError(f"subset {fraction:g}: give a fraction above 0 and at most 1")
        part = self.parts["train"]
        rng = numpy_stream(seed, "subset", fraction)
        labels = part.known_labels() if self.classes is not None else None
        groups = [np.arange(len(part))]
        if labels is not None:
            groups = [np.flatnonzero(labels == label) for label in np.unique(labels)]
        picks = [rng.permutation(group)[: max(1, round(fraction * len(group)))] for group in groups]
        return np.sort(np.concatenate(picks)).astype(np.int64)

    def subset(self, fraction: float, seed: int = 0) -> Any:
        """A random part of the training examples, in the type that was passed; see `subset_index`."""
        return self.parts["train"].take(self.subset_index(fraction, seed))

    def trial(
        self, seed: int, *, fraction: float = 1.0, effort: Effort | None = None, draw: int = 0
    ) -> TrialData:
        """What an objective receives on this data.

        Args:
            seed: Seed of the trial.
            fraction: Share of the training examples; the same examples for equal ``draw``.
            effort: How a budget of steps is translated; the whole budget by default. The test part is left
                out wherever less than the whole is trained.
            draw: Decides which examples.
        """
        parts = {name: part.own() for name, part in self.parts.items()}
        if fraction < 1 or effort is not None:
            parts.pop("test", None)
        if fraction < 1:
            chosen = self.subset(fraction, derive(draw, "subset"))
            parts["train"] = passed(chosen, "train", self.target)
        return TrialData(
            parts, seed=seed, classes=self.classes, metric=self.metric, effort=effort or Effort()
        )
