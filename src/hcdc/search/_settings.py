"""How a ladder spends its budget."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class LadderSettings:
    """How a ladder spends its budget.

    Attributes:
        trial: Share of the budget for rungs below the full training until audits show that they pay.
        audits: Audit sample of a rung.
        full_audits: Audit sample of the last rung before the full training. It grows to ``audits`` where full
            trainings take little of the budget.
        waves: Waves in which the budget is spent; after each the model is fitted again.
        finalists: The best candidates to train again with a fresh seed; the winner once more for its score.
        pool: Proposals per wave in an infinite space; a third of them are random.
        draws: Posterior draws.
        candidates: Most candidates to score on the lowest paid rung; None means no limit.
    """

    trial: float = 0.2
    audits: int = 16
    full_audits: int = 6
    waves: int = 8
    finalists: int = 2
    pool: int = 1200
    draws: int = 48
    candidates: int | None = None
