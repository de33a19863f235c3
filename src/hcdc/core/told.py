"""Results in a few lines: what to use, how good it is, whether to believe it, and what it cost."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from hcdc.core.progress import duration

if TYPE_CHECKING:
    from hcdc.core.found import Found, RungReport
    from hcdc.core.planned import SearchPlan
    from hcdc.core.trusted import Estimate, Trust

Lines = list[tuple[str, str]]
FEW = 0.05
"""Share of its seconds that a search may take for itself without a word."""


def in_columns(lines: Sequence[tuple[str, object]]) -> str:
    """Labelled lines as text, the labels in a column of their own."""
    width = max(len(label) for label, _ in lines)
    return "\n".join(f"{label:<{width}}  {text}" for label, text in lines)


def number(value: float | None) -> str:
    """Two decimals, or a dash for None."""
    return "-" if value is None else f"{value:.2f}"


def figure(value: float | None) -> str:
    """A score with four digits."""
    return "-" if value is None else f"{value:.4g}"


def seconds_text(seconds: float) -> str:
    """Seconds, with a tenth if they are few."""
    return f"{seconds:.1f} s" if seconds < 10 else duration(seconds)


def config_text(config: Mapping[str, Any]) -> str:
    """A configuration as text to copy."""
    return json.dumps(config, ensure_ascii=False)


def listed(names: Sequence[str]) -> str:
    """Names joined by "and"."""
    return " and ".join(names)


def counted(count: int, noun: str) -> str:
    """A count with its noun: "1 candidate", "1,200 candidates"."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def every(count: int, noun: str) -> str:
    """All of ``count``: "the candidate", "both candidates", "all 12 candidates"."""
    return {1: f"the {noun}", 2: f"both {noun}s"}.get(count, f"all {counted(count, noun)}")


# --- a search -----------------------------------------------------------------------------------------------


def found_lines(found: Found) -> Lines:
    """The first box: configuration, score, verdict, cost, warnings."""
    best = "nothing: no candidate was trained" if found.best is None else config_text(found.best)
    told = verdict(found)
    lines = [("use", best), ("score", score_text(found)), ("verdict", told), ("cost", cost(found))]
    return [*lines, *(("warning", text) for text in [*found.warnings, *misjudged(found)] if text not in told)]


def score_text(found: Found) -> str:
    """The expected full score, its interval and the scores on other parts."""
    if found.score is None:
        return "none: no fresh full training was made"
    low, high = found.interval
    between = "" if low is None else f" (90 % interval {figure(low)} to {figure(high)})"
    parts = "".join(f", {name} {figure(value)}" for name, value in found.parts.items())
    which = "a fresh full training" if found.finalists else "its only full training"
    return f"{figure(found.score)}{between}, from {which}{parts}"


def free(rung: RungReport) -> bool:
    """Whether a rung trains nothing."""
    return rung.name.partition(":")[0] == "free"


def stand_ins(found: Found) -> list[RungReport]:
    """Rungs below the full training that were measured against the next one, free ones too."""
    return [rung for rung in found.rungs if rung.name != "full" and rung.spearman is not None]


def verdict(found: Found) -> str:
    """Whether to believe the result, and why."""
    if found.best is None:
        return "do not use it"
    if found.score is None:
        return "do not rely on it yet: the winner was not trained in full with a fresh seed"
    sentences = [*_winner(found), *_left_out(found)]
    return ". ".join(sentences)


def _winner(found: Found) -> list[str]:
    """Whether the winner and its score can be relied on."""
    full = found.rung("full").complete
    if found.disappointing:
        alone = "It is the only candidate that was trained in full"
        best = f"It is the best of {full} full trainings" if full > 1 else alone
        return [f"do not expect its score: {found.disappointing}", best]
    if found.flattered:
        return [f"use it with care: {found.flattered}"]
    if full < 2:
        return ["use it with care: it is the only candidate that was trained in full"]
    best = f"use it: it is the best of {full} full trainings"
    return [f"{best}, and its score comes from a new training with a fresh seed"]


def filters(found: Found) -> list[tuple[RungReport, str]]:
    """Stand-ins in use that scored more candidates than the next rung in use, and the name of that rung.

    Nobody was left out by a stand-in that was dropped: all could go on to the rung above it.
    """
    used = [rung for rung in found.rungs if rung.name == "full" or (rung.pays is not None and not rung.note)]
    return [(low, high.name) for low, high in pairwise(used) if low.candidates > high.candidates]


def _left_out(found: Found) -> list[str]:
    """Whether stand-ins may have left better candidates out; nothing if they left out none."""
    every = filters(found)
    sure = [rung for rung, _ in every if rung.pays and (rung.interval[0] or 0.0) > 0]
    if every and not sure:
        none = "No audit shows that a stand-in agrees with the next rung"
        return [f"{none}, so better candidates may have been left out"]
    agree = [f"'{rung.name}' agrees with {_against(rung)} ({_correlation(rung)})" for rung in sure]
    doubts = [
        f"'{rung.name}' may have left out better candidates: its agreement with '{above}' is "
        + (f"uncertain ({_correlation(rung)})" if rung.measured else "unknown, because of too few audits")
        for rung, above in every
        if rung not in sure
    ]
    if not agree or doubts:
        return [*([listed(agree)] if agree else []), *doubts]
    trusted = all(rung.trust is not None and rung.trust.verdict == "trust" for rung in sure)
    rest = "those left out are probably worse" if trusted else "most of those left out should be worse"
    return [f"{listed(agree)}, so {rest}"]


def _against(rung: RungReport) -> str:
    return "a more expensive rung" if rung.trust is None else f"'{rung.trust.against}'"


def _correlation(rung: RungReport) -> str:
    low, high = rung.interval
    between = "" if low is None else f", {number(low)} to {number(high)}"
    return f"rank correlation {number(rung.spearman)}{between}"


def misjudged(found: Found) -> list[str]:
    """Dimensions that a stand-in was shown to get wrong."""
    told = []
    for name, trust in found.trust.items():
        wrong = [f"'{d.name}'" for d in trust.dimensions if d.verdict == "keep open"]
        if wrong:
            told.append(
                f"'{name}' and '{trust.against}' disagree on {listed(wrong)}: do not choose by '{name}' there"
            )
    return told


def cost(found: Found) -> str:
    """Time spent against what the same candidates would take in full; free scores are no trials."""
    trained = [rung for rung in found.rungs if not free(rung)]
    spent = f"{duration(found.seconds)} for {counted(found.full_trainings, 'full training')}"
    spent += _unfinished(found) + _deciding(found)
    most = max(trained, key=lambda rung: rung.candidates, default=None)
    tried = 0 if most is None else most.candidates
    price = next((rung.price for rung in found.rungs if rung.name == "full"), None)
    if not found.full_trainings:
        where = "" if most is None else " on the copy" if most.name == "copy" else f" on '{most.name}'"
        tells = _unfinished(found) + _deciding(found)
        return f"{duration(found.seconds)} for {counted(tried, 'candidate')}{where}{tells}"
    if price is None or tried * price <= 1.1 * found.seconds:
        return f"{spent}; {counted(tried, 'candidate')} {'was' if tried == 1 else 'were'} tried"
    whole = tried * price
    saved = f"{duration(whole)}, {whole / max(found.seconds, 1e-9):.1f} times as long"
    return f"{spent}; training {every(tried, 'candidate')} in full would take {saved}"


def _unfinished(found: Found) -> str:
    """Full trainings that gave no score: their seconds are in the cost, and they are in no count."""
    full = next((rung for rung in found.rungs if rung.name == "full"), None)
    if full is None:
        return ""
    kinds = [(full.pruned, "pruned"), (full.failed - full.pruned, "failed")]
    some = [f"{count:,} {what}" for count, what in kinds if count > 0]
    return f" (and {', '.join(some)})" if some else ""


def _deciding(found: Found) -> str:
    """The seconds of the search itself, if they are more than a few per cent."""
    overhead = found.cost.overhead
    return f", {seconds_text(overhead)} of it starting and deciding" if overhead > FEW * found.seconds else ""


# --- a plan and a measured stand-in -------------------------------------------------------------------------


def plan_lines(plan: SearchPlan) -> Lines:
    """A plan: candidates and seconds by rung, seconds of the search itself, memory, verdict."""
    lines = [
        (
            f"rung {rung.name}",
            f"{counted(rung.candidates, 'candidate')} of {rung.price:.3g} s: {duration(rung.seconds)}",
        )
        for rung in plan.rungs
        if rung.candidates
    ]
    if plan.pays and plan.overhead:
        lines.append(("deciding", f"{seconds_text(plan.overhead)}, starting included"))
    if plan.pays and plan.chance is not None:
        lines.append(("chance", f"{plan.chance:.0%} to beat random search with full trainings"))
    verdict = "a ladder should pay here" if plan.pays else "do not search with a ladder here"
    return [*lines, ("memory", f"{plan.memory_gib:.1f} GiB"), ("verdict", f"{verdict}: {plan.why}")]


def trust_lines(trust: Trust) -> Lines:
    """How far to believe a stand-in: verdict, agreement, loss, dimensions."""
    lines = [("verdict", f"{trust.verdict}: {trust.why}")]
    if trust.confirmed is not None:
        lines.append(("in full", f"{trust.confirmed.verdict}: {trust.confirmed.why}"))
    lines += [(label, estimate_text(some)) for label, some in _figures(trust) if some.value is not None]
    for d in trust.dimensions:
        low, high = d.interval
        tau = "undefined" if d.tau is None else f"{d.tau:.2f} ({low:.2f} to {high:.2f})"
        lines.append((f"dimension {d.name}", f"{d.verdict}: agreement {tau}, importance {d.importance:.2f}"))
    return lines


def _figures(trust: Trust) -> list[tuple[str, Estimate]]:
    """What is measured of a stand-in beside its rank correlation."""
    among, cut, again = f"among the best {trust.keep:.0%}", trust.at_k, trust.survivors_at_k
    found = [
        (f"agreement {among}", trust.survivors),
        (f"share of the truly best {trust.k:.0%} that is kept", cut.recall),
        (f"the same share {among}", again.recall),
        (f"expected loss if it picks the best of {trust.of} candidates", trust.regret),
    ]
    if cut.kept > 1:
        found.append((f"expected loss if it keeps the best {cut.kept} of {cut.of}", cut.regret))
    return [*found, (f"expected loss {among} if it keeps {again.kept} of {again.of}", again.regret)]


def estimate_text(some: Estimate) -> str:
    """An estimate with its interval."""
    low, high = some.interval
    between = "" if low is None else f" ({low:.2g} to {high:.2g})"
    return "-" if some.value is None else f"{some.value:.2g}{between}"
