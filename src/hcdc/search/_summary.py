"""What a climb found, as the typed result of a search."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from hcdc.core.found import Found, Interval, RungReport
from hcdc.core.progress import duration
from hcdc.core.records import environment
from hcdc.search._audits import free_trust, rung_trust
from hcdc.search._intervals import mean_interval
from hcdc.search._problem import Outcome, Rung

if TYPE_CHECKING:
    from hcdc.search._ladder import Ladder


def summary(ladder: Ladder) -> Found:
    """The result of a climb."""
    outcomes, warnings = ladder.board.outcomes[ladder.full.name], [*ladder.warnings]
    warnings += failure_warnings(ladder.failures, ladder.trials)
    if any(outcome.complete for outcome in outcomes.values()):
        best: int | None = ladder.winner()
    else:
        best = next(iter(ladder.leaders(1)), None)
        lower = "" if best is None else "; this is the best on a cheaper rung"
        warnings.append(f"{_no_full(ladder)}{lower}")
    last = ladder.repeats.get(best, {}).get(2) if best is not None else None
    if last is None and len(only := [o for o in outcomes.values() if o.complete]) == 1 and not only[0].known:
        (last,) = only  # it chose nothing
    if last is None and best is not None:
        warnings.append("the budget left no room to train the winner again, so it has no fresh score")
    runs = {i: [outcomes[i].score, *(o.score for o in some.values())] for i, some in ladder.repeats.items()}
    noise = [a - b for some in runs.values() for a, b in itertools.pairwise(some)]
    interval: Interval = (None, None)
    if last is not None:
        interval = mean_interval(last.score, noise, ladder.problem.bounds, error=last.error)
    found = Found(
        best=None if best is None else ladder.board.configs[best],
        score=None if last is None else last.score,
        interval=interval,
        parts={} if last is None else dict(last.parts),
        finalists=[{"config": ladder.board.configs[i], "scores": some} for i, some in runs.items()],
        seconds=ladder.seconds,
        budget=ladder.budget,
        full_trainings=sum(_trained(o) for o in outcomes.values()) + sum(map(len, ladder.repeats.values())),
        rungs=[_report(ladder, rung) for rung in ladder.problem.rungs],
        curve=ladder.curve,
        uniform=[(o.seconds, o.score if o.complete else None) for o in _entered(ladder, ladder.full)],
        spec=ladder.problem.spec(),
        environment=environment(),
    )
    return replace(found, warnings=[*warnings, *([found.flattered] if found.flattered else [])])


def _trained(outcome: Outcome) -> bool:
    """Whether a candidate got its score in this search."""
    return outcome.complete and not outcome.known


def _no_full(ladder: Ladder) -> str:
    """Why no candidate has a full score."""
    if begun := len(ladder.board.outcomes[ladder.full.name]):
        return f"no full training was completed ({begun:,} failed or pruned)"
    price = ladder.prices.of(ladder.full)
    seemed = (
        "" if math.isnan(price) else f": by its price on cheaper rungs it should take about {duration(price)}"
    )
    return f"the budget did not allow one full training{seemed}"


def failure_warnings(notes: Sequence[str], trials: int) -> list[str]:
    """How many of ``trials`` failed, and the commonest of the reasons ``notes``; nothing if none did."""
    if not notes:
        return []
    kind = Counter(note.partition(":")[0] for note in notes).most_common(1)[0][0]
    often = Counter(note for note in notes if note.partition(":")[0] == kind).most_common(1)[0][0]
    why = f"; most often {often}" if often else ""
    return [f"{len(notes):,} of {trials:,} trials failed{why}"]


def _entered(ladder: Ladder, rung: Rung) -> list[Outcome]:
    """Outcomes on a rung of the audit sample of the rung below."""
    outcomes, place = ladder.board.outcomes[rung.name], ladder.paid.index(rung)
    sample = ladder.audits[ladder.paid[place - 1].name] if place else []
    return [outcomes[i] for i in sample if i in outcomes]


def _report(ladder: Ladder, rung: Rung) -> RungReport:
    outcomes = ladder.board.outcomes[rung.name]
    fresh = [o for o in outcomes.values() if not o.known]
    report = RungReport(
        name=rung.name,
        candidates=len(fresh),
        failed=sum(not o.complete for o in fresh),
        pruned=sum(o.state == "pruned" for o in fresh),
        seconds=ladder.spent.get(rung.name, 0.0),
        once=rung.once if rung in ladder.paid else 0.0,
        audit_seconds=sum(o.seconds for o in _entered(ladder, rung)) if rung in ladder.paid else 0.0,
        price=ladder.prices.of(rung) if outcomes else None,
        note=ladder.dropped.get(rung.name, ""),
        file=rung.file,
    )
    if rung.name in ladder.free:
        first = ladder.paid[0].name
        trust = free_trust(ladder.board, rung.name, first, ladder.sample, ladder.seed)
    elif rung in ladder.paid[:-1] and outcomes:
        report = replace(report, pays=rung in ladder.kept and ladder.pays(rung))
        trust = rung_trust(ladder.board, rung.name, *ladder.audited(rung), _sample(ladder, rung), ladder.seed)
    else:
        return report
    rho, interval = trust.spearman, trust.interval
    return replace(report, audits=trust.probes, spearman=rho, interval=interval, trust=trust)


def _sample(ladder: Ladder, rung: Rung) -> Sequence[int]:
    """The uniform sample that was scored on a rung."""
    place = ladder.paid.index(rung)
    return ladder.audits[ladder.paid[place - 1].name] if place else ladder.sample
