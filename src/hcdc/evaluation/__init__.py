"""Rank agreement of a condensed set against the full data and against its rivals."""

from hcdc.evaluation._evaluate import (
    Evaluation,
    agreement,
    break_even,
    checked_judges,
    evaluate,
    judges,
    reopen_task,
)
from hcdc.evaluation._ridge import ridge_predictions

__all__ = [
    "Evaluation",
    "agreement",
    "break_even",
    "checked_judges",
    "evaluate",
    "judges",
    "reopen_task",
    "ridge_predictions",
]
