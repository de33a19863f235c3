"""The paper's statements, executable: each returns its two sides; docs/theory.md says which of them hold."""

from hcdc.theory._adjacency import MatchingAdjacency, matching_adjacency, nonnegative_gap
from hcdc.theory._calibration import (
    OppositeOrder,
    PathOrder,
    ScaleBound,
    discordant_pairs,
    opposite_order,
    path_order,
    scale_bound,
    violating_path,
)
from hcdc.theory._complexity import Counts, Meter, complexity_counts, counting, jacobian_gradient
from hcdc.theory._filters import (
    FilterTransfer,
    TransferSupremum,
    Violations,
    filter_transfer,
    gin0,
    printed_violations,
    realisable_supremum,
    relative_error,
    shared_moment_supremum,
)
from hcdc.theory._kernels import (
    KernelMoments,
    KernelTransfer,
    kernel_gradient,
    kernel_moments,
    kernel_transfer,
    silent_pair,
)
from hcdc.theory._local import Bilevel, Order, difference_order, distance_order, newton, response_order
from hcdc.theory._matching import (
    LeastSquares,
    MatchingValidity,
    match_on_span,
    matched_copy,
    matching_validity,
)
from hcdc.theory._meeting import Meeting, meeting

__all__ = [
    "Bilevel",
    "Counts",
    "FilterTransfer",
    "KernelMoments",
    "KernelTransfer",
    "LeastSquares",
    "MatchingAdjacency",
    "MatchingValidity",
    "Meeting",
    "Meter",
    "OppositeOrder",
    "Order",
    "PathOrder",
    "ScaleBound",
    "TransferSupremum",
    "Violations",
    "complexity_counts",
    "counting",
    "difference_order",
    "discordant_pairs",
    "distance_order",
    "filter_transfer",
    "gin0",
    "jacobian_gradient",
    "kernel_gradient",
    "kernel_moments",
    "kernel_transfer",
    "match_on_span",
    "matched_copy",
    "matching_adjacency",
    "matching_validity",
    "meeting",
    "newton",
    "nonnegative_gap",
    "opposite_order",
    "path_order",
    "printed_violations",
    "realisable_supremum",
    "relative_error",
    "response_order",
    "scale_bound",
    "shared_moment_supremum",
    "silent_pair",
    "violating_path",
]
