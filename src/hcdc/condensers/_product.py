"""Matrix products by oneDNN where it has them: on AMD's processors it takes half the time of torch's own.

Torch offers oneDNN's product of plain float32 matrices only under a name of its own, without a derivative.
Where that name or oneDNN is missing, this is the usual product.
"""

from __future__ import annotations

import torch
from torch import Tensor

ONEDNN = hasattr(torch.ops.mkldnn, "_linear_pointwise")


def product(a: Tensor, b: Tensor, plus: Tensor | None = None) -> Tensor:
    """``a @ b``, or ``a @ b + plus``, for ``[m, k]``, ``[k, n]`` and ``[n]``; no gradient."""
    if ONEDNN and a.device.type == "cpu" and a.dtype == b.dtype == torch.float32:
        found: Tensor = torch.ops.mkldnn._linear_pointwise(a, b.t(), plus, "none", [], "")
        return found
    return a @ b if plus is None else torch.addmm(plus, a, b)
