"""Elementwise operations and reductions, compiled into few kernels on CUDA and plain elsewhere."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import torch
from torch import Tensor

log = logging.getLogger("hcdc")

RECOMPUTE: dict[str, Any] = {"realize_reads_threshold": 64, "realize_opcount_threshold": 1000}
"""Compiler options: recompute values where they are used instead of storing them."""


def plain(function: Callable[..., Any], *given: Any, any_size: bool = False) -> Any:
    """Call a function as it is; takes the arguments of `fused`."""
    return function(*given)


def fused(function: Callable[..., Any], *given: Any, any_size: bool = False) -> Any:
    """Call a function, compiled for any number of images if its first tensor is on CUDA, plain otherwise.

    Args:
        function: Elementwise operations and reductions.
        given: Its arguments.
        any_size: Compile it once for all even image sizes. This does not slow sums over pixels, but it does
            slow functions that write pixels, whose addresses then need divisions by unknown numbers.
    """
    return _called_compiled(function, given, any_size) if given[0].is_cuda else function(*given)


@cache
def _compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    options = RECOMPUTE | {"realize_acc_reads_threshold": 64}
    return torch.compile(function, dynamic=False, fullgraph=True, options=options)


def _called_compiled(function: Callable[..., Any], given: Sequence[Any], any_size: bool) -> Any:
    """Call the function, compiled once for any number of images.

    Only the leading dimensions of ``[n, h, w, c]`` and ``[groups, n, c, h, w]`` vary; the compiler treats the
    others as constants.
    """
    from torch import _dynamo

    even = not any(side % 2 for side in given[0].shape[1:3])

    def marked(value: Any) -> Any:
        if not isinstance(value, Tensor) or value.dim() < 4:
            return value
        value = value.detach()  # marks stick to their tensor
        for dimension in range(value.dim() - 3 + 2 * (any_size and even)):
            _dynamo.maybe_mark_dynamic(value, dimension)
        return value

    with _dynamo.config.patch(recompile_limit=64):
        return _compiled(function)(*map(marked, given))


class Fused:
    """A function of tensors, compiled on CUDA as a whole and once per shape.

    It suits work whose shapes never change. Derivatives inside the function are resolved before compiling. If
    compiling fails, the plain function is used, with a warning.
    """

    def __init__(self, function: Callable[..., Any]):
        self.function = function
        self.compiled: dict[object, Callable[..., Any]] = {}

    def __call__(self, *tensors: Tensor) -> Any:
        if not tensors[0].is_cuda:
            return self.function(*tensors)
        key = tuple((t.shape, t.stride(), t.dtype) for t in tensors)
        if key not in self.compiled:
            self.compiled[key] = self._compile(tensors)
        return self.compiled[key](*tensors)

    def _compile(self, tensors: tuple[Tensor, ...]) -> Callable[..., Any]:
        from torch.fx.experimental.proxy_tensor import make_fx

        try:
            graph = make_fx(self.function, tracing_mode="fake")(*tensors)
            compiled: Callable[..., Any] = torch.compile(graph, dynamic=False, options=RECOMPUTE)
            compiled(*tensors)
        except Exception as error:  # the plain function gives the same result
            log.warning("kernels are not fused, this run is slower: %s", error)
            return self.function
        return compiled
