"""A user's own torch modules as pure functions."""

from __future__ import annotations

import copy
import functools
import itertools
import logging
import math
from collections.abc import Callable
from typing import Any, Self

import torch
from torch import Tensor, nn
from torch.func import functional_call, replace_all_batch_norm_modules_

from hcdc.core.configs import Config
from hcdc.core.errors import InputError
from hcdc.core.seeds import global_streams
from hcdc.networks._base import Network, Params
from hcdc.networks._dropout import Dropout

log = logging.getLogger("hcdc")

Factory = Callable[[Config], nn.Module]

DROPOUTS = (nn.Dropout, nn.Dropout1d, nn.Dropout2d, nn.Dropout3d)
"""Dropout layers that training switches on; the last three drop whole channels."""


def factory_name(factory: Factory) -> str:
    """``module:name`` of a factory."""
    made = getattr(factory, "func", factory)  # unwrap functools.partial
    return f"{made.__module__}:{getattr(made, '__qualname__', type(made).__qualname__)}"


@functools.cache
def _warn_of_dropout(model: str, layer: str) -> None:
    log.warning("model %s: its dropout, e.g. %s, is off in training, on the full data too", model, layer)


class _Masks:
    """What the dropout layers of a module read in the current forward pass."""

    def __init__(self) -> None:
        self.begin(None)

    def begin(self, dropout: Dropout | None) -> None:
        self.dropout, self.layer = dropout, itertools.count()

    def drop(self, part: Any, given: Any, x: Tensor) -> Tensor:
        """The output of a dropout layer: ``x`` with units dropped in a training step, else ``x``."""
        if self.dropout is None:
            return x
        masks = Dropout(part.p, self.dropout.key.reshape(()))
        return masks(x, next(self.layer), whole_channels=not isinstance(part, nn.Dropout))


class ModuleNetwork(Network):
    """A user's own model as pure functions.

    BatchNorm layers use the statistics of the given batch, in training and in scoring, because a pure
    function cannot keep running statistics. All else is as in ``eval()``, except that the dropout layers of
    `DROPOUTS` are on in training, at their own rates. Other dropout (``AlphaDropout``) stays off, and a
    warning says so once per factory.

    Args:
        factory: ``factory(config) -> nn.Module`` from images ``[n, c, h, w]`` to logits ``[n, classes]``.
        config: The candidate.
        classes: Number of logits per image; None skips the check.
    """

    takes = "image"

    def __init__(self, factory: Factory, config: Config, classes: int | None = None):
        self.factory, self.config, self.classes = factory, config, classes
        self.module = self._fresh(torch.Generator().manual_seed(0))
        for part in self.module.modules():
            part.training = isinstance(part, nn.modules.batchnorm._NormBase)
        self.dropout: Dropout | None = None
        self.masks = _Masks()
        for name, part in self.module.named_modules():
            if not isinstance(part, nn.modules.dropout._DropoutNd) or part.p == 0:
                continue
            if isinstance(part, DROPOUTS):
                self.drops = True
                part.register_forward_hook(self.masks.drop)
            else:
                _warn_of_dropout(factory_name(factory), f"'{name}' ({type(part).__name__})")
        self.buffers: dict[torch.device, Params] = {}

    def _fresh(self, generator: torch.Generator) -> nn.Module:
        """A module initialised from ``generator`` only; other random streams are untouched."""
        with global_streams(int(torch.randint(2**62, (1,), generator=generator))):
            module = self.factory(copy.deepcopy(self.config))
        if not isinstance(module, nn.Module):
            raise InputError(
                f"model: the factory returned {type(module).__name__} for {self.config}, not a Module"
            )
        return replace_all_batch_norm_modules_(copy.deepcopy(module))  # the user may hold parts of it

    def with_dropout(self, dropout: Dropout) -> Self:
        """Its dropout layers are on, each at its own rate; the rate of ``dropout`` is not read."""
        training = copy.copy(self)
        training.dropout = dropout
        return training

    def init(self, generator: torch.Generator) -> Params:
        """Parameters as the module initialises them; only those that require a gradient."""
        named = self._fresh(generator).named_parameters()
        return {name: p.detach().clone() for name, p in named if p.requires_grad}

    def forward(self, params: Params, lam: Tensor | None, images: Tensor) -> Tensor:
        """Logits ``[n, classes]``; lambda is not read."""
        self.masks.begin(self.dropout)
        first = images.device not in self.buffers
        if first:  # move once: a recorded step cannot copy from the host
            fixed = [(name, p.detach()) for name, p in self.module.named_parameters() if not p.requires_grad]
            moved = {name: b.to(images.device) for name, b in [*self.module.named_buffers(), *fixed]}
            self.buffers[images.device] = moved
        try:
            logits: Tensor = functional_call(self.module, (params, self.buffers[images.device]), (images,))
        except (RuntimeError, TypeError, ValueError) as error:
            if not first or isinstance(error, torch.OutOfMemoryError):
                raise  # it has accepted such images before
            said = (str(error).strip() or type(error).__name__).splitlines()[0]
            raise InputError(
                f"model: the module for {self.config} does not take images of shape {tuple(images.shape)}: "
                f"{said}"
            ) from error
        if self.classes is not None:
            self._check(logits, (len(images), self.classes))
        return logits

    def _check(self, logits: Any, needed: tuple[int, int]) -> None:
        shape = tuple(logits.shape) if isinstance(logits, Tensor) else ()
        if shape[:2] != needed or math.prod(shape[2:]) != 1:
            found = f"shape {shape}" if isinstance(logits, Tensor) else type(logits).__name__
            raise InputError(
                f"model: the module for {self.config} gave {found} for {needed[0]} images; logits of shape "
                f"{needed}, one per class, are needed"
            )
