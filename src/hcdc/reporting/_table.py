"""The one table: copies, their rivals and the full data, with every figure; for terminal and page alike."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from hcdc.reporting._evaluations import (
    Evaluation,
    comparable,
    in_shares,
    is_fraction,
    rivals_once,
    short_names,
)

PAYS_NOT = "it does not pay here"


@dataclass(frozen=True)
class Row:
    """One line of the table; None is what was not measured or is not defined.

    Attributes:
        name: The copy, the rival, or the full data.
        kind: ``"copy"``, ``"rival"`` or ``"full"``.
        of: The copy a rival was measured beside; empty otherwise.
        spearman, interval, kendall, top_k, upper_half: Rank agreement with the full data.
        regret: Validation score on the full data lost by taking the pick.
        test: Test score, on the full data, of the configuration picked.
        fraction: Scores are accuracies in 0 .. 1.
        once: Seconds before the first trial (condensing).
        per_trial: Seconds a candidate.
        search: Seconds for all candidates.
        full_per_trial: Seconds a candidate on the full data.
        break_even: Trials from which on it is cheaper than the full data; None if it never is, and for
            rivals that cost nothing before the first trial.
        note: Why a figure is not defined, or what a rival is.
    """

    name: str
    kind: str
    of: str = ""
    spearman: float | None = None
    interval: tuple[float | None, float | None] = (None, None)
    kendall: float | None = None
    top_k: float | None = None
    upper_half: float | None = None
    regret: float | None = None
    test: float | None = None
    fraction: bool = True
    once: float | None = None
    per_trial: float | None = None
    search: float | None = None
    full_per_trial: float | None = None
    break_even: int | None = None
    note: str = ""


def break_even(once: float | None, per_trial: float | None, full: float | None) -> int | None:
    """The least n >= 1 with ``once + n * per_trial <= n * full``; None if there is none or it is unknown."""
    if once is None or per_trial is None or full is None or per_trial >= full:
        return None
    return max(1, math.ceil(once / (full - per_trial)))


def summary_table(evaluations: Sequence[Evaluation]) -> list[Row]:
    """Rows for copies, each before its rivals, and, after each group of equal candidates, the full data."""
    evaluations = [in_shares(e) for e in evaluations]
    names, rivals = short_names(evaluations), rivals_once(evaluations)
    rows = []
    groups = comparable(evaluations)
    for group in groups:
        for k in group:
            rows.append(_copy(names[k], evaluations[k]))
            rows += [_rival(rival, names[k], evaluations[k]) for rival in rivals[k]]
        rows.append(_full(evaluations[group[0]], alone=len(groups) == 1))
    return rows


def _interval(values: Sequence[float | None] | None) -> tuple[float | None, float | None]:
    return (None, None) if not values else (values[0], values[1])


def _copy(name: str, e: Evaluation) -> Row:
    return Row(
        name=name,
        kind="copy",
        spearman=e["spearman"],
        interval=_interval(e["interval"]),
        kendall=e.get("kendall"),
        top_k=e.get("top_k_overlap"),
        upper_half=e.get("upper_half_spearman"),
        regret=e.get("regret"),
        test=e.get("selected_test_accuracy"),
        fraction=is_fraction(e),
        once=e.get("condense_seconds"),
        per_trial=e.get("proxy_seconds_per_candidate"),
        search=e.get("proxy_seconds"),
        full_per_trial=e.get("full_seconds_per_candidate"),
        break_even=e.get("break_even_trials"),
        note=e.get("note") or "",
    )


def _rival(rival: Evaluation, of: str, e: Evaluation) -> Row:
    per_trial, once = rival.get("seconds_per_candidate"), rival.get("extra_seconds") or None
    return Row(
        name=rival["name"],
        kind="rival",
        of=of,
        spearman=rival.get("spearman"),
        interval=_interval(rival.get("interval")),
        kendall=rival.get("kendall"),
        top_k=rival.get("top_k_overlap"),
        upper_half=rival.get("upper_half_spearman"),
        regret=rival.get("regret"),
        test=rival.get("selected_test_accuracy"),
        fraction=is_fraction(e),
        once=once,
        per_trial=per_trial,
        search=None if per_trial is None else per_trial * len(e["truth"]),
        full_per_trial=e.get("full_seconds_per_candidate"),
        break_even=None if once is None else break_even(once, per_trial, e.get("full_seconds_per_candidate")),
        note=rival.get("note") or rival.get("description") or "",
    )


def _full(e: Evaluation, alone: bool) -> Row:
    return Row(
        name="full data" if alone else f"full data ({e['dataset']})",
        kind="full",
        test=e.get("best_test_accuracy"),
        regret=0.0,
        fraction=is_fraction(e),
        once=0.0,
        per_trial=e.get("full_seconds_per_candidate"),
        search=e.get("full_seconds"),
        note=f"{e.get('truth_source') or 'every candidate trained on the full data'}: what the others are "
        "judged by",
    )


# --- text of the cells --------------------------------------------------------------------------------------


def number(value: float | None, digits: int = 2) -> str:
    """A figure, or a dash where there is none."""
    return "-" if value is None else f"{value:.{digits}f}"


def seconds(value: float | None) -> str:
    """Three figures, thousands with a comma."""
    if value is None:
        return "-"
    if 0 < value < 0.001:
        return "<0.001"
    return f"{value:.3g}" if value < 1000 else f"{value:,.0f}"


def score(value: float | None, fraction: bool) -> str:
    """An accuracy in percent, or a plain score."""
    if value is None:
        return "-"
    return f"{100 * value:.1f} %" if fraction else f"{value:.4g}"


def points(value: float | None, fraction: bool) -> str:
    """A difference of accuracies in percentage points, or of plain scores."""
    if value is None:
        return "-"
    return f"{100 * value:.1f}" if fraction else f"{value:.4g}"


def agreement(row: Row) -> str:
    """Spearman's correlation with its interval."""
    if row.kind == "full":
        return "1 (by definition)"
    if row.spearman is None:
        return "not defined"
    low, high = row.interval
    return number(row.spearman) + ("" if low is None else f" [{number(low)}, {number(high)}]")


def pays(row: Row) -> str:
    """The break-even in words."""
    if row.kind == "full" or row.spearman is None or (row.kind == "rival" and row.once is None):
        return "-"
    if row.break_even is not None:
        return f"{row.break_even:,}"
    return "unknown" if None in (row.once, row.per_trial, row.full_per_trial) else PAYS_NOT


@dataclass(frozen=True)
class Column:
    """A column: heading, what a row shows in it, what the heading means.

    ``narrow`` is the heading on a terminal, in lines; a column without one is for the page only.
    """

    heading: str
    cell: Callable[[Row], str]
    meaning: str
    narrow: str = ""


COLUMNS = (
    Column("copy or rival", lambda row: row.name, "What stood in for the full data.", "copy or rival"),
    Column(
        "rank agreement",
        agreement,
        "Spearman's rank correlation of the candidates' scores with their validation accuracy on the full "
        "data, and its bootstrap interval over candidates.",
        "rank\nagreement",
    ),
    Column("Kendall", lambda row: number(row.kendall), "Kendall's tau-b of the same two lists."),
    Column(
        "top 10",
        lambda row: number(row.top_k),
        "Share of the ten truly best candidates among the ten that it puts first, of more than ten.",
    ),
    Column(
        "better half",
        lambda row: number(row.upper_half),
        "Spearman among the truly better half of the candidates, where a search decides.",
    ),
    Column(
        "regret (points)",
        lambda row: points(row.regret, row.fraction),
        "Full-data validation accuracy lost by taking its pick and not the best candidate.",
    ),
    Column(
        "test accuracy of the pick",
        lambda row: score(row.test, row.fraction),
        "The candidate it puts first, trained on the full data, on test data. "
        "For the full data: the candidate that full-data validation selects.",
        "test\naccuracy\nof pick",
    ),
    Column(
        "condense (s)",
        lambda row: seconds(row.once),
        "Seconds spent once, before the first trial.",
        "condense\n(s)",
    ),
    Column("per trial (s)", lambda row: seconds(row.per_trial), "Seconds a candidate."),
    Column("search (s)", lambda row: seconds(row.search), "Seconds for all candidates.", "search\n(s)"),
    Column(
        "break-even (trials)",
        pays,
        "Number of trials from which on condensing and searching take less time than the full data.",
        "break-even\n(trials)",
    ),
)
"""Columns in order."""
