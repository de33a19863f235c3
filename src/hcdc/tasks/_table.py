"""Tables: ridge and logistic regression and a small network; lambda holds the penalties of the features."""

from __future__ import annotations

import math
from collections.abc import Collection
from typing import Any

import torch
from torch import Tensor

from hcdc.core.configs import Config
from hcdc.core.errors import InputError, unknown_name
from hcdc.core.recipe import Recipe
from hcdc.datasets import Rows, TableData
from hcdc.networks import Dropout, Params
from hcdc.spaces import TRAINING, Box, Space
from hcdc.tasks._base import NETWORK_SETTINGS, PARTS, Task
from hcdc.tasks._registry import register_task

MODELS = ("linear", "ridge", "logistic", "mlp")
PENALTIES = ("per-feature", "single")
MOST_LANES, AT_ONCE = 256, 2**20
"""Most candidates trained at once, and the most numbers of rows and hidden units that all of them take up."""


@register_task
class TableTask(Task):
    """Rows of numbers; lambda holds log10 of the L2 penalties of the input features.

    With W ``[d, k]`` the weights of the d input features, the training loss is

        mean_i l(f(x_i), y_i) + sum_j 10^lambda_j / 2 ||W_j||^2 + w / 2 ||other parameters||^2,

    where l is the cross-entropy for classes and ``(f - y)^2 / 2`` for values. In a space without penalties
    (`hcdc.spaces.Training`), w is the penalty of all parameters.

    Args:
        data: The table.
        model: ``"linear"`` (``"ridge"`` for values, ``"logistic"`` for classes) or ``"mlp"`` (hidden tanh
            layers, with dropout after each in training; values or classes).
        width: Hidden units of each layer of the network.
        weight_decay: w, the penalty of parameters without a lambda (biases, later layers).
        penalty: ``"per-feature"`` (H = d) or ``"single"``: one penalty for all features (H = 1).
        depth: Hidden layers of the network.
    """

    kind = "table"
    data: TableData
    flags = ("model",)
    stands_alone = True
    recipe_settings = NETWORK_SETTINGS
    dropout: Dropout | None = None
    penalised = True
    """Whether the first numbers of lambda are penalties; set by `bind`."""

    def __init__(
        self,
        data: TableData,
        model: str = "linear",
        width: int = 16,
        weight_decay: float = 1e-4,
        penalty: str = "per-feature",
        depth: int = 1,
    ):
        if not isinstance(data, TableData):
            raise InputError(
                f"TableTask: data is {type(data).__name__}, not a table; pass what hcdc.data(...) gives for "
                "a table"
            )
        if model not in MODELS:
            raise unknown_name("model", model, MODELS)
        if penalty not in PENALTIES:
            raise unknown_name("penalty", penalty, PENALTIES)
        if model == "linear":
            model = "ridge" if data.num_classes is None else "logistic"
        if model == "ridge" and data.num_classes is not None:
            raise InputError(
                "model 'ridge' predicts values, but this table has classes; choose 'logistic' or 'mlp'"
            )
        if model == "logistic" and data.num_classes is None:
            raise InputError(
                "model 'logistic' predicts classes, but this table has values; choose 'ridge' or 'mlp'"
            )
        if min(width, depth) < 1 or not weight_decay >= 0:
            raise InputError(
                "depth and width must be at least 1 and weight_decay at least 0, got "
                f"{depth}, {width} and {weight_decay}"
            )
        for part in PARTS:
            if not bool(torch.isfinite(getattr(data, part).x).all()):
                raise InputError(
                    f"the {part} rows of '{data.name}' have NaN or infinite features; fill or drop them"
                )
        self.data, self.model, self.width, self.weight_decay = data, model, width, weight_decay
        self.penalty_kind, self.depth = penalty, depth

    @property
    def features(self) -> int:
        """d, the number of input features."""
        return int(self.train.x.shape[1])

    @property
    def outputs(self) -> int:
        """Columns of the predictions: one per class, or 1 for regression."""
        return self.num_classes or 1

    @property
    def dimension(self) -> int:
        """H, the number of penalties."""
        return self.features if self.penalty_kind == "per-feature" else 1

    @property
    def real_metric(self) -> str:  # type: ignore[override]
        return "loss" if self.num_classes is None else "accuracy"

    def space(self) -> Box:
        """Penalties from 1e-4 to 10 on a log scale, so lambda = log10(penalty) lies in ``[-4, 1]^H``."""
        if self.penalty_kind == "single":
            return Box(["penalty"], 1e-4, 10.0, "log")
        given = self.data.feature_names
        names = given if len(set(given)) == self.features else tuple(str(j) for j in range(self.features))
        return Box([f"penalty_{name}" for name in names], 1e-4, 10.0, "log")

    def bind(self, space: Space, config: Config | None = None) -> TableTask:
        """This task with the penalties, and the width and depth, that a space has.

        Penalties come first in lambda. A space of training settings alone has none.
        """
        if space.plain and not self._penalties(space):
            return self._with(penalised=False, **space.sizes(config))
        first = [d.name for d in space.dimensions()[: self.dimension] if d.distribution != "choice"]
        leading = len(first) == self.dimension and first == self._penalties(space)
        if not leading and space.dimension != self.dimension:
            raise InputError(
                f"space '{space.name}' has {space.dimension} dimensions, but this TableTask has "
                f"{self.dimension} penalties; use task.space()"
            )
        return self._with(**space.sizes(config)) if space.plain else self

    def _penalties(self, space: Space) -> list[str]:
        """Names of the penalties of features: what neither training nor the network reads."""
        known = {"width", "depth"} if space.plain else set()
        return [d.name for d in space.dimensions() if d.read_by == "model" and d.name not in known]

    def reads(self, space: Space) -> Collection[str]:
        sizes = ("width", "depth") if space.plain and self.model == "mlp" else ()
        return [*self._penalties(space), *sizes]

    @property
    def training(self) -> Collection[str]:
        unread = {"augment"}
        unread |= set() if self.model == "mlp" else {"dropout"}
        unread |= {"label_smoothing"} if self.num_classes is None else set()
        return [name for name in TRAINING if name not in unread]

    def check_recipe(self, argument: str, recipe: Recipe) -> None:
        for name in ("dropout", "label_smoothing"):
            if getattr(recipe, name) and name not in self.training:
                raise InputError(
                    f"{argument} setting {name} {getattr(recipe, name)}: this model has none; 0 is"
                )

    def by_recipe(self, recipe: Recipe, train: Any = None) -> TableTask:
        return self if self.penalised else self._with(weight_decay=recipe.weight_decay)

    def with_dropout(self, dropout: Dropout) -> TableTask:
        return self._with(dropout=dropout)

    @classmethod
    def from_flags(cls, data: TableData, model: str = "linear", **flags: Any) -> TableTask:
        """``model``: ``linear`` (ridge or logistic regression) or ``mlp``."""
        return cls(data, model, **flags)

    def lanes(self, data: Rows, device: torch.device | str) -> int:
        """More lanes for smaller tables, whose steps would otherwise be overhead."""
        usual = super().lanes(data, device)
        numbers = len(data) * (self.features + self.width if self.model == "mlp" else self.features)
        return max(usual, min(MOST_LANES, AT_ONCE // numbers))

    def init(self, generator: torch.Generator) -> Params:
        """Weights with variance 1 / inputs, biases 0; lambda penalises ``weight`` ``[d, k]``."""
        like = self.train.x

        def draw(rows: int, columns: int) -> Tensor:
            weight = torch.randn(rows, columns, generator=generator, dtype=like.dtype) / math.sqrt(rows)
            return weight.to(like.device)

        if self.model != "mlp":
            return {"weight": draw(self.features, self.outputs), "bias": like.new_zeros(self.outputs)}
        params = {"weight": draw(self.features, self.width), "bias": like.new_zeros(self.width)}
        for k in range(1, self.depth):
            params |= {f"weight{k}": draw(self.width, self.width), f"bias{k}": like.new_zeros(self.width)}
        return params | {
            "out_weight": draw(self.width, self.outputs),
            "out_bias": like.new_zeros(self.outputs),
        }

    def predict(self, params: Params, lam: Tensor, data: Rows) -> Tensor:
        """Logits ``[m, classes]`` or values ``[m, 1]``; lambda acts through the penalty only."""
        hidden = data.x @ params["weight"] + params["bias"]
        if self.model != "mlp":
            return hidden
        for k in range(1, self.depth + 1):
            weight, bias = ("out_weight", "out_bias") if k == self.depth else (f"weight{k}", f"bias{k}")
            hidden = torch.tanh(hidden)
            hidden = hidden if self.dropout is None else self.dropout(hidden, k)
            hidden = hidden @ params[weight] + params[bias]
        return hidden

    def penalty(self, params: Params, lam: Tensor) -> Tensor:
        if not self.penalised:
            return self.weight_decay * torch.stack([p.square().sum() for p in params.values()]).sum() / 2
        if lam.dim() != 1 or len(lam) < self.dimension:
            raise InputError(f"lam has shape {tuple(lam.shape)}; this TableTask needs ({self.dimension},)")
        total = (10.0 ** lam[: self.dimension] * params["weight"].square().sum(1)).sum()
        for name, value in params.items():
            if name != "weight":
                total = total + self.weight_decay * value.square().sum()
        return total / 2

    def score(self, outputs: Tensor, data: Rows) -> Tensor:
        """Accuracy for classes, minus the mean squared error for values (weighted as the loss is)."""
        score = super().score(outputs, data)
        return 2 * score if self.num_classes is None else score

    def solve(self, lam: Tensor, rows: Rows) -> Params:
        """theta*(lambda) of ridge regression in closed form, differentiable in lambda and in the rows.

        With Z = [x, 1] and mean weights S: ``(Z^T S Z + diag(10^lambda, w)) theta = Z^T S y``.
        """
        if self.model != "ridge":
            raise InputError(f"model '{self.model}' has no closed form; only 'ridge' can be solved")
        z = torch.cat([rows.x, torch.ones_like(rows.x[:, :1])], dim=1)
        weight = torch.ones_like(z[:, 0]) if rows.weight is None else rows.weight
        scaled = z * (weight / weight.sum())[:, None]
        penalties = torch.cat([(10.0**lam).expand(self.features), z.new_full((1,), self.weight_decay)])
        theta = torch.linalg.solve(scaled.t() @ z + torch.diag(penalties), scaled.t() @ rows.y)
        return {"weight": theta[:-1, None], "bias": theta[-1:]}

    def spec(self) -> dict[str, Any]:
        """JSON-able settings, stored in the condensed file."""
        return {
            "name": self.kind,
            "model": self.model,
            "width": self.width,
            "weight_decay": self.weight_decay,
            "penalty": self.penalty_kind,
            **({"depth": self.depth} if self.depth > 1 else {}),
        }
