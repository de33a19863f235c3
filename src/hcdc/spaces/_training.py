"""Hyperparameters of training: learning rate, regularisation, batches, optimiser, and the network's size."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from hcdc.core.configs import Config, config_hash
from hcdc.core.errors import InputError, unknown_name
from hcdc.networks import check_lam
from hcdc.spaces._base import Space
from hcdc.spaces._dimension import TRAINING, Dimension
from hcdc.spaces._finite import draw, project_simplex
from hcdc.spaces._registry import register

RANGES: dict[str, dict[str, Any]] = {
    "lr": {"low": 1e-3, "high": 1.0, "log": True},
    "weight_decay": {"low": 1e-6, "high": 1e-2, "log": True},
    "momentum": {"low": 0.5, "high": 0.99},
    "dropout": {"low": 0.0, "high": 0.5},
    "label_smoothing": {"low": 0.0, "high": 0.2},
    "augment": {"choices": ["none", "flip", "flip-crop"]},
    "batch": {"choices": [32, 64, 128, 256, 512]},
    "schedule": {"choices": ["constant", "cosine", "linear", "step"]},
    "width": {"choices": [8, 16, 32, 64]},
    "depth": {"choices": [1, 2, 3]},
    "optimizer": {"choices": ["sgd", "nesterov", "adam", "adamw"]},
    "epochs": {"low": 5, "high": 50, "log": True, "whole": True},
    "steps": {"low": 50, "high": 1000, "log": True, "whole": True},
}
"""The hyperparameters and their default ranges."""

NINE = tuple(RANGES)[:9]
"""The default: the nine hyperparameters of a small ResNet on images."""

OPEN = ("lr", "batch", "momentum", "epochs", "steps", "schedule")
"""Settings that only a full training can choose: the best of them depends on the number of steps."""


@register
class Training(Space):
    """Hyperparameters of training, alone or with an architecture.

    Alone, the task trains its own network, whose ``width`` and ``depth`` can be searched too: a small ResNet
    (images), an MLP (tables, model ``"mlp"``) or a GCN (graphs). In a product with a space that builds
    networks, it sets how they are trained: ``Product(NASBench201(), Training(["lr", "weight_decay"]))``.

    lambda has the value of each number (log10 on a log scale) and, for each choice, a point of the simplex.
    Whole numbers are rounded. Settings of `OPEN` have the visibility ``"full"``, the others ``"copy"``.

    Args:
        settings: Names, which take their ranges from `RANGES`; or a range by name: ``(low, high)``, a list of
            choices, ``{"low": 1e-3, "high": 0.3, "log": True, "whole": False}``, ``{"choices": [...]}``, or
            None for the one in `RANGES`. Whether a range is logarithmic or whole is taken from there if it is
            left out.

    Example:
        >>> Training({"lr": (0.01, 0.5), "batch": [64, 128], "dropout": None})
        Training(lr from 0.01 to 0.5 (log); batch: 64 or 128; dropout from 0 to 0.5)
    """

    name = "training"
    plain = True

    def __init__(self, settings: Sequence[str] | Mapping[str, Any] = NINE):
        if isinstance(settings, str) or not settings:
            raise InputError(f"settings {settings!r}: Training needs a list of names, or ranges by name")
        given = settings if isinstance(settings, Mapping) else dict.fromkeys(settings)
        self._dimensions = tuple(_dimension(name, value) for name, value in given.items())
        self.batched = not {"width", "depth"} & set(given)
        ends = np.cumsum([len(d.choices) or 1 for d in self._dimensions]).tolist()
        self._parts = [slice(end - (len(d.choices) or 1), end) for end, d in zip(ends, self._dimensions)]

    @property
    def dimension(self) -> int:
        return int(self._parts[-1].stop)

    def dimensions(self) -> tuple[Dimension, ...]:
        return self._dimensions

    def candidates(self) -> list[Config] | None:
        """All combinations, if every setting is a choice; the last varies fastest."""
        if any(d.distribution != "choice" for d in self._dimensions):
            return None
        found: list[Config] = [{}]
        for d in self._dimensions:
            found = [{**config, d.name: value} for config in found for value in d.choices]
        return found

    def sample(self, count: int, rng: np.random.Generator) -> list[Config]:
        """``count`` configurations, uniform in lambda; distinct if there are enough."""
        candidates = self.candidates()
        if candidates is not None:
            return [dict(candidates[i]) for i in draw(len(candidates), count, rng)]
        found: dict[str, Config] = {}
        for _ in range(100 * count):
            config = {d.name: _drawn(d, rng) for d in self._dimensions}
            found.setdefault(config_hash(config), config)
            if len(found) == count:
                break
        drawn = list(found.values())
        return [dict(drawn[k % len(drawn)]) for k in range(count)]

    def encode(self, config: Config) -> Tensor:
        self.check(config)
        lam = torch.zeros(self.dimension, dtype=torch.float64)
        for d, part in zip(self._dimensions, self._parts):
            value = config[d.name]
            if d.choices:
                lam[part.start + d.choices.index(value)] = 1
            else:
                lam[part.start] = _to_lam(d, value)
        return lam

    def decode(self, lam: Tensor) -> Config:
        """The nearest configuration."""
        check_lam(lam, self.dimension)
        return {
            d.name: d.choices[int(lam[part].argmax())] if d.choices else _to_value(d, float(lam[part.start]))
            for d, part in zip(self._dimensions, self._parts)
        }

    def project(self, lam: Tensor) -> Tensor:
        check_lam(lam, self.dimension)
        return torch.cat(
            [
                project_simplex(lam[..., part])
                if d.choices
                else lam[..., part].clamp(_to_lam(d, d.low), _to_lam(d, d.high))
                for d, part in zip(self._dimensions, self._parts)
            ],
            dim=-1,
        )

    def spec(self) -> dict[str, Any]:
        return {"name": self.name, "settings": {d.name: _described(d) for d in self._dimensions}}


def _dimension(name: str, given: Any) -> Dimension:
    """One setting with its range."""
    if name not in RANGES:
        raise unknown_name("training setting", str(name), RANGES)
    usual = RANGES[name]
    if given is None:
        given = usual
    elif isinstance(given, tuple) and len(given) == 2:
        given = {"low": given[0], "high": given[1]}
    elif isinstance(given, list):
        given = {"choices": given}
    known = ({"choices"}, {"low", "high"}, {"low", "high", "log"}, {"low", "high", "log", "whole"})
    words = isinstance(usual.get("choices", [0])[0], str)
    if not isinstance(given, Mapping) or set(given) not in known or (words and "low" in given):
        allowed = "a list of choices" if words else "(low, high) or a list of choices"
        raise InputError(f"{name}: {given!r} is not a range of this setting; give {allowed}")
    visibility = "full" if name in OPEN else "copy"
    read_by = "recipe" if name in TRAINING else "model"
    if "choices" in given:
        choices = tuple(given["choices"])
        return Dimension(name, "choice", choices=choices, visibility=visibility, read_by=read_by)
    sizes = "choices" in usual  # numbers such as a batch size or a width: whole, on a log scale
    log, whole = (bool(given.get(key, usual.get(key, sizes))) for key in ("log", "whole"))
    low, high = (int(given[end]) if whole else float(given[end]) for end in ("low", "high"))
    scale = "log-uniform" if log else "uniform"
    return Dimension(name, scale, low, high, visibility=visibility, read_by=read_by, whole=whole)


def _described(d: Dimension) -> dict[str, Any]:
    if d.choices:
        return {"choices": list(d.choices)}
    return {"low": d.low, "high": d.high, "log": d.distribution == "log-uniform", "whole": d.whole}


def _drawn(d: Dimension, rng: np.random.Generator) -> Any:
    if d.choices:
        return d.choices[int(rng.integers(len(d.choices)))]
    return _to_value(d, float(rng.uniform(_to_lam(d, d.low), _to_lam(d, d.high))))


def _to_lam(d: Dimension, value: float) -> float:
    return math.log10(value) if d.distribution == "log-uniform" else float(value)


def _to_value(d: Dimension, lam: float) -> float:
    """The value at lambda; on a log scale it keeps 12 digits, so that encoding and decoding return it."""
    value = float(f"{10.0**lam:.12g}") if d.distribution == "log-uniform" else lam
    return min(max(round(value) if d.whole else value, d.low), d.high)
