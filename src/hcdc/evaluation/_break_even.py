"""The number of trials after which a copy pays off, against the strongest alternative in the table."""

from __future__ import annotations

from dataclasses import dataclass

from hcdc.core.records import device_name
from hcdc.core.results import Cost, Evaluation
from hcdc.evaluation._context import Context

CHANCE = "Indistinguishable from chance, so no break-even is reported"


@dataclass(frozen=True)
class BreakEven:
    """Fields of an `Evaluation`: the number of trials, the alternative that is hardest to beat, and why there
    is no number if there is none."""

    break_even_trials: int | None = None
    break_even_against: str | None = None
    break_even_note: str = ""


def break_even(found: Evaluation, context: Context) -> BreakEven:
    """The number of trials from which the copy is cheaper than anything that ranks at least as well.

    Compares with the full data and the rivals; correlations are rounded to two digits. There is no number if
    the ranking may be chance, if it exceeds the size of a finite space, or if clocks differ.
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
            break_even_note="full-data results come from the cache and were timed in another run; use an "
            "empty cache to time them again"
        )
    return _hardest(found.cost, ways, context)


def _hardest(copy: Cost, ways: list[Cost], context: Context) -> BreakEven:
    """The break-even against the alternative that takes the most trials to beat."""
    trials, against = 0, ""
    for way in ways:
        some = copy.break_even(way)
        if some is None:
            note = f"{way.words} ranks at least as well and never costs more"
            if way.once == 0 and not way.each:
                note = f"{way.words} is free and ranks at least as well"
            elif way.words == "the full data":
                note = "a trial on the copy takes at least as long as one on the full data"
            return BreakEven(None, way.words, note)
        trials, against = max((trials, against), (some, way.words))
    every = context.space.candidates()
    if every is not None and trials > len(every):
        note = f"it would take {trials:,} trials, but the space has {len(every):,} candidates"
        return BreakEven(None, against, note)
    return BreakEven(trials, against)


def _mixed_clocks(context: Context) -> str:
    """Why seconds for condensing, the copy and the full data are not comparable; empty if they are."""
    record = context.small.record
    if context.condense_seconds is None:
        return "the condensing time was not recorded"
    if context.truth is not None:
        return "full-data seconds come from the table's own clock"
    if not context.full_seconds > 0:
        return "full-data results come from another device"
    if record.get("probe_seconds"):
        return "the probes' results come from a cache or a table and were timed in another run"
    made_on = record.get("environment", {}).get("device")
    if made_on is not None and made_on != device_name(context.device):
        return f"the copy was made on another device ({made_on})"
    return ""
