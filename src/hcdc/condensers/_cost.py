"""What work will cost, as far as that is known before it is done."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Expense:
    """One piece of work.

    Attributes:
        words: What is done, for the terminal, with its seconds where they are known.
        seconds: Predicted seconds; None where there is no prediction.
        full_trainings: Trainings on the full data.
        copy_trainings: Trainings on the copy, each initialisation counted.
    """

    words: str
    seconds: float | None
    full_trainings: int = 0
    copy_trainings: int = 0


@dataclass(frozen=True)
class Cost:
    """All work of a plan."""

    expenses: tuple[Expense, ...]

    @property
    def seconds(self) -> float | None:
        """Predicted seconds in all; None where a piece has no prediction."""
        known = [expense.seconds for expense in self.expenses if expense.seconds is not None]
        return sum(known) if len(known) == len(self.expenses) else None

    @property
    def full_trainings(self) -> int:
        """Trainings on the full data in all."""
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
