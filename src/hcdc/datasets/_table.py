"""Tables: rows of numbers with a class or a value to predict."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from hcdc.datasets._dataset import Dataset
from hcdc.datasets._labelled import Examples, register_kind


@register_kind
@dataclass(frozen=True, eq=False, repr=False)
class Rows(Examples):
    """Labelled rows: one of T_train, T_val, S_train, S_val.

    Attributes:
        x: Features ``[m, d]``.
        y: Class numbers ``[m]`` (int64) or values ``[m]`` (floating point).
        weight: Non-negative loss weight of each row; None means equal weights.
    """

    kind = "table"
    regression = True
    noun = "rows"
    axes = ("n", "d")

    def as_passed(self, part: str) -> Any:
        """Numpy arrays ``(x, y)``."""
        return self.x.detach().cpu().numpy(), self.y.cpu().numpy()


@dataclass(frozen=True, eq=False, repr=False)
class TableData(Dataset):
    """A table with a split.

    Attributes:
        name, source, class_names, split, origin: As in `Dataset`.
        train, val, test: The rows of the split; features and regression targets are standardised on the
            training rows.
        num_classes: Number of classes, or None for regression.
        feature_names: Names for reports.
        target_mean, target_scale: Mean subtracted from regression targets and scale they were divided by;
            0 and 1 for classes.
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
    target_mean: float = 0.0
    target_scale: float = 1.0
    origin: dict[str, Any] = field(default_factory=dict)

    kind = "table"
    words = "a table"

    def contents(self) -> str:
        return f"rows of {self.train.form} features"

    def describe(self) -> dict[str, Any]:
        described = super().describe()
        if self.num_classes is None:
            described |= {"target_mean": self.target_mean, "target_scale": self.target_scale}
        return described
