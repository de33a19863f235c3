"""The one check that every relaxed point goes through."""

from __future__ import annotations

from torch import Tensor

from hcdc.core.errors import InputError


def check_lam(lam: Tensor, dimension: int) -> None:
    """Refuse a lambda whose last dimension is not H (broadcasting would hide it)."""
    if lam.dim() == 0 or lam.shape[-1] != dimension:
        raise InputError(f"lam has shape {tuple(lam.shape)}; its last dimension must be {dimension}")
