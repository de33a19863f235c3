"""The predicted cost of work."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Expense:
    """One piece of work.

    Attributes:
        words: What is done, for the terminal, with its seconds if known.
        seconds: Predicted seconds; None if unpredictable.
        full_trainings: Trainings on the full data.
        copy_trainings: Trainings on the copy, counting every initialisation.
    """

    words: str
    seconds: float | None
    full_trainings: int = 0
    copy_trainings: int = 0


@dataclass(frozen=True)
class Cost:
    """All the work of a plan."""

    expenses: tuple[Expense, ...]

    @property
    def seconds(self) -> float | None:
        """Total predicted seconds; None if a piece is unpredictable."""
        known = [expense.seconds for expense in self.expenses if expense.seconds is not None]
        return sum(known) if len(known) == len(self.expenses) else None

    @property
    def known_seconds(self) -> float:
        """Total of the pieces that can be predicted."""
        return sum(expense.seconds or 0.0 for expense in self.expenses)

    @property
    def full_trainings(self) -> int:
        """Total trainings on the full data."""
        return sum(expense.full_trainings for expense in self.expenses)

    def words(self) -> str:
        """The cost in one line."""
        return "; ".join(expense.words for expense in self.expenses) or "no full-data training"

    def to_json(self) -> dict[str, Any]:
        """The cost as plain JSON."""
        return {
            "seconds": self.seconds,
            "full_trainings": self.full_trainings,
            "expenses": [dataclasses.asdict(expense) for expense in self.expenses],
        }
