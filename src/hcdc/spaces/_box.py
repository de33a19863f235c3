"""Boxes: continuous hyperparameters between bounds, on a linear or logarithmic scale."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from hcdc.core.configs import Config
from hcdc.core.errors import InputError, unknown_name
from hcdc.networks import check_lam
from hcdc.spaces._base import Space
from hcdc.spaces._dimension import Dimension, check_visibility, free
from hcdc.spaces._registry import register

SCALES = {"linear": "uniform", "log": "log-uniform"}


@register
class Box(Space):
    """The box ``low_j <= config[names_j] <= high_j``; compact and connected, so its own extended space.

    lambda_j is the value on a linear scale, its log10 on a logarithmic one; samples are uniform in lambda.
    Logarithmic values keep 12 significant digits, so decoding an encoded configuration returns it unchanged.

    Recipe settings (``lr``, ``weight_decay``, ``batch``, ``epochs``, ...) change how a candidate is trained;
    whole-number settings are rounded. The task or the user's model must read any other name.

    Args:
        names: One name per dimension.
        low, high: Bounds in configuration units, one for all or one per dimension.
        scale: ``"linear"`` or ``"log"``, one for all or one per dimension; ``"log"`` needs ``low > 0``.
        visibility: Overrides, by name, of where a dimension has an effect. Defaults: ``"alignment"`` for the
            model's hyperparameters; ``"copy"`` for recipe settings, which are not part of lambda's losses;
            ``"full"`` for ``steps``, ``epochs`` and ``batch``, which mean little on a copy that trains for a
            few steps in one batch.
    """

    name = "box"
    batched = True

    def __init__(
        self,
        names: Sequence[str],
        low: float | Sequence[float],
        high: float | Sequence[float],
        scale: str | Sequence[str] = "linear",
        visibility: Mapping[str, str] | None = None,
    ):
        if isinstance(names, str) or not names or len(set(names)) < len(names):
            raise InputError(f"names {names!r}: a box needs a list of one or more different names")
        self.names = tuple(names)
        self.low = tuple(float(v) for v in self._each("low", low))
        self.high = tuple(float(v) for v in self._each("high", high))
        self.scale: tuple[str, ...] = tuple(self._each("scale", scale))
        self.visibility = check_visibility(visibility, self.names)
        for name, kind in zip(self.names, self.scale):
            if kind not in SCALES:
                raise unknown_name(f"scale of {name}", str(kind), SCALES)
            if name in ("augment", "optimizer", "schedule"):
                raise InputError(f"{name}: a box has numbers between bounds; use Finite('{name}', [...])")
        self._dimensions = tuple(
            free(name, SCALES[kind], self.visibility, low=low, high=high)
            for name, kind, low, high in zip(self.names, self.scale, self.low, self.high)
        )
        self._low = torch.tensor([self._to_lam(j, v) for j, v in enumerate(self.low)], dtype=torch.float64)
        self._high = torch.tensor([self._to_lam(j, v) for j, v in enumerate(self.high)], dtype=torch.float64)

    def _each(self, what: str, value: Any) -> Sequence[Any]:
        """One value per dimension."""
        if isinstance(value, (str, int, float)):
            return [value] * len(self.names)
        if len(value) != len(self.names):
            raise InputError(
                f"{what}: {len(value)} values for {len(self.names)} names; give one for all or one per name"
            )
        return list(value)

    def _to_lam(self, j: int, value: float) -> float:
        return math.log10(value) if self.scale[j] == "log" else value

    def _to_value(self, j: int, lam: float) -> float:
        value = float(f"{10.0**lam:.12g}") if self.scale[j] == "log" else lam
        return min(max(value, self.low[j]), self.high[j])

    @property
    def dimension(self) -> int:
        return len(self.names)

    def dimensions(self) -> tuple[Dimension, ...]:
        return self._dimensions

    def sample(self, count: int, rng: np.random.Generator) -> list[Config]:
        """``count`` configurations, uniform in lambda (duplicates have probability 0)."""
        low, high = self._low.numpy(), self._high.numpy()
        return [self._decode(row) for row in rng.uniform(low, high, (count, self.dimension)).tolist()]

    def encode(self, config: Config) -> Tensor:
        self.check(config)
        values = [self._to_lam(j, float(config[name])) for j, name in enumerate(self.names)]
        return torch.tensor(values, dtype=torch.float64)

    def _decode(self, row: Sequence[float]) -> Config:
        return {name: self._to_value(j, float(v)) for j, (name, v) in enumerate(zip(self.names, row))}

    def decode(self, lam: Tensor) -> Config:
        """The configuration at the point of the box nearest to lambda."""
        return self._decode(self.project(lam.detach().cpu().double()).tolist())

    def project(self, lam: Tensor) -> Tensor:
        check_lam(lam, self.dimension)
        return torch.minimum(torch.maximum(lam, self._low.to(lam)), self._high.to(lam))

    def spec(self) -> dict[str, Any]:
        given = {"visibility": dict(self.visibility)} if self.visibility else {}
        return {
            "name": self.name,
            "names": list(self.names),
            "low": list(self.low),
            "high": list(self.high),
            "scale": list(self.scale),
            **given,
        }
