"""Tables with a model of the user's own that is fitted without gradients, such as boosted trees."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from hcdc.core.checkpoint import content_key
from hcdc.core.configs import Config
from hcdc.core.errors import InputError
from hcdc.core.recipe import Recipe
from hcdc.datasets import Rows, TableData
from hcdc.networks import Params
from hcdc.spaces import Space
from hcdc.tasks._base import Task
from hcdc.tasks._registry import register_task

Array = NDArray[Any]
Fit = Callable[[Config, Array, Array, int], Callable[[Array], Array]]
"""``fit(config, x, y, seed)`` trains on rows ``x`` ``[m, d]`` with targets ``y`` ``[m]`` and returns a
function from rows to outputs: logits ``[m, classes]``, or values ``[m]`` for regression."""


@register_task
class FittedTask(Task):
    """Rows of numbers, and a model that the user's own function fits.

    Nothing is differentiated, so S_val is made of real rows: ``weighted`` (the default), ``random``,
    ``same`` or ``real``. The space may have any names; ``fit`` reads them from the configuration.

    Args:
        data: The table.
        fit: Trains one candidate, see `Fit`. The rows are those of the table: standardised.

    Example:
        >>> def fit(config, x, y, seed):
        ...     centres = np.stack([x[y == c].mean(0) for c in range(3)])
        ...     return lambda rows: -config["scale"] * ((rows[:, None] - centres) ** 2).sum(2)
        >>> from sklearn.datasets import load_iris
        >>> task = hcdc.tasks.FittedTask(hcdc.data(load_iris(return_X_y=True)), fit)
    """

    kind = "fitted"
    data: TableData
    engine = "fits"
    stands_alone = True
    anchored = False
    recipe_settings = ("seeds", "metric")

    def __init__(self, data: TableData, fit: Fit):
        if not isinstance(data, TableData):
            raise InputError(
                f"FittedTask: data is {type(data).__name__}, not a table; pass what hcdc.data(...) gives for "
                "a table"
            )
        if not callable(fit):
            raise InputError(
                f"fit {fit!r}: pass a function fit(config, x, y, seed) that returns a function of rows"
            )
        self.data, self.fitting = data, fit

    @property
    def features(self) -> int:
        return int(self.train.x.shape[1])

    @property
    def real_metric(self) -> str:  # type: ignore[override]
        return "loss" if self.num_classes is None else "accuracy"

    def without_gradients(self) -> str:
        return (
            "the model is fitted without gradients, so examples cannot be learned; choose 'weighted', "
            "'random', 'same' or 'real'"
        )

    def val_method(self, truth: bool, space: Space) -> str:
        return "weighted"

    def score(self, outputs: Tensor, data: Rows) -> Tensor:
        """Accuracy for classes, minus the mean squared error for values."""
        score = super().score(outputs, data)
        return 2 * score if self.num_classes is None else score

    def fitted(self, config: Config, train: Rows, seed: int) -> Callable[[Rows], Tensor]:
        """Train one candidate; returns the function from rows to outputs ``[m, classes]`` or ``[m, 1]``."""
        found = self.fitting(config, train.x.cpu().numpy(), train.y.cpu().numpy(), seed)
        columns = self.num_classes or 1

        def outputs(rows: Rows) -> Tensor:
            made = np.asarray(found(rows.x.cpu().numpy()), np.float64)
            if made.size != len(rows) * columns:
                raise InputError(
                    f"fit returned a function that gives outputs of shape {made.shape} for {len(rows)} rows; "
                    f"{columns} for each row are needed"
                )
            return torch.from_numpy(made.reshape(len(rows), columns)).to(rows.x)

        return outputs

    def init(self, generator: torch.Generator) -> Params:
        raise InputError(f"FittedTask has no parameters: {self.without_gradients()}")

    def predict(self, params: Params, lam: Tensor, data: Rows) -> Tensor:
        raise InputError(f"FittedTask has no parameters: {self.without_gradients()}")

    def recipes(self, train_size: int, epochs: int, metric: str) -> tuple[Recipe, Recipe]:
        """One fit each; what else there is to say is in the configuration."""
        scored = "loss" if self.num_classes is None else "accuracy"
        return Recipe(steps=1, seeds=1, metric=scored), Recipe(steps=1, seeds=1, metric=metric)

    # --- description --------------------------------------------------------------------------------------

    def identity(self, space: Any, config: Config) -> str:
        """The configuration and the source of ``fit``, so that results of changed code are not reused."""
        made = getattr(self.fitting, "func", self.fitting)
        try:
            source = inspect.getsource(made)
        except (OSError, TypeError):
            source = self._fit_name()
        return content_key({"config": dict(config), "fit": source})

    def _fit_name(self) -> str:
        made = getattr(self.fitting, "func", self.fitting)
        return f"{made.__module__}:{getattr(made, '__qualname__', type(made).__qualname__)}"

    def spec(self) -> dict[str, Any]:
        """The kind and the name of the function; a file holds no code."""
        return {"name": self.kind, "fit": self._fit_name()}

    @classmethod
    def from_spec(cls, spec: Mapping[str, Any], data: Any) -> FittedTask:
        raise InputError(
            f"the copy was made with the function '{spec.get('fit')}', and a file holds no code; pass the "
            "task, hcdc.evaluate(copy, task=...)"
        )
