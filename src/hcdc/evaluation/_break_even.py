"""From how many trials on a copy pays, against the strongest other way in the same table."""

from __future__ import annotations

from dataclasses import dataclass

from hcdc.core.records import device_name
from hcdc.core.results import Cost, Evaluation
from hcdc.evaluation._context import Context

CHANCE = "Indistinguishable from chance, so no break-even is reported"


@dataclass(frozen=True)
class BreakEven:
    """Fields of an `Evaluation`.

    Attributes:
        break_even_trials: Number of trials; None where there is none.
        break_even_against: The way that is hardest to beat.
        break_even_note: Why there is no number.
    """

    break_even_trials: int | None = None
    break_even_against: str | None = None
    break_even_note: str = ""


def break_even(found: Evaluation, context: Context) -> BreakEven:
    """The number of trials from which on no way that ranks at least as well, to two digits, is cheaper.

    Ways are the full data and the rivals. Nothing is said of a ranking that may be chance, of more trials
    than a finite space has, or of seconds by different clocks.
    """
    if found.spearman is None:
        return BreakEven()
    if not found.above_chance:
        return BreakEven(break_even_note=CHANCE)
    if clock := _mixed_clocks(context):
        return BreakEven(break_even_note=clock)
    own = round(found.spearman, 2)
    others = [r for r in found.rivals if r.spearman is not None and r.proxy != found.proxy]
    ways = [rival.cost for rival in others if round(rival.spearman or 0.0, 2) >= own]
    if not context.cached:
        ways.append(found.full_cost)
    if not ways:
        return BreakEven(
            break_even_note="full-data results come from the cache, whose seconds are of another time; "
            "an empty cache times them again"
        )
    return _hardest(found.cost, ways, context)


def _hardest(copy: Cost, ways: list[Cost], context: Context) -> BreakEven:
    """The break-even against the way that takes the most trials to beat."""
    trials, against = 0, ""
    for way in ways:
        some = copy.break_even(way)
        if some is None:
            note = f"{way.words} ranks at least as well and is never dearer"
            if way.once == 0 and not way.each:
                note = f"{way.words} is free and ranks at least as well"
            elif way.words == "the full data":
                note = "a trial on the copy takes as long as one on the full data"
            return BreakEven(None, way.words, note)
        trials, against = max((trials, against), (some, way.words))
    every = context.space.candidates()
    if every is not None and trials > len(every):
        note = f"it would take {trials:,} trials, and the space has {len(every):,} candidates"
        return BreakEven(None, against, note)
    return BreakEven(trials, against)


def _mixed_clocks(context: Context) -> str:
    """Why the seconds of condensing, of the copy and of the full data cannot be compared; else empty."""
    record = context.small.record
    if context.condense_seconds is None:
        return "the time to condense was not recorded"
    if context.truth is not None:
        return "the seconds of the full data are by the table's own clock"
    if not context.full_seconds > 0:
        return "the full-data results come from another device"
    if record.get("probe_seconds"):
        return "the probes' results come from a cache or a table, whose seconds were taken at another time"
    made_on = record.get("environment", {}).get("device")
    if made_on is not None and made_on != device_name(context.device):
        return f"the copy was made on another device ({made_on})"
    return ""
