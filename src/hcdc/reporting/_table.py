"""The table of copies, their rivals and the full data, for terminal and page."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from hcdc.core.results import Evaluation, Ranking, Rival
from hcdc.core.told import number
from hcdc.reporting._evaluations import comparable, is_fraction, rivals_once, short_names

PAYS_NOT = "does not pay off"


@dataclass(frozen=True)
class Row:
    """One row of the table; None means not measured or undefined.

    Attributes:
        name: The copy, the rival, or the full data.
        role: ``"copy"``, ``"rival"`` or ``"full"``.
        of: The copy that a rival was compared with; empty otherwise.
        spearman, interval, pairs, top_k, upper_half: Rank agreement with full-data validation scores.
        test_spearman: Rank agreement with full-data test scores.
        regret: Full-data validation score lost by taking the pick.
        test: Full-data test score of the pick.
        fraction: Scores are accuracies in 0 .. 1.
        once: Seconds before the first trial (condensing).
        per_trial: Seconds per candidate.
        search: Seconds for all candidates.
        break_even: Trials from which the copy is cheapest among what ranks as well; None if never.
        never: The copy is known never to be cheapest.
        note: Why a number is undefined, or what a rival is.
    """

    name: str
    role: str
    of: str = ""
    spearman: float | None = None
    interval: tuple[float | None, float | None] = (None, None)
    pairs: float | None = None
    top_k: float | None = None
    upper_half: float | None = None
    test_spearman: float | None = None
    regret: float | None = None
    test: float | None = None
    fraction: bool = True
    once: float | None = None
    per_trial: float | None = None
    search: float | None = None
    break_even: int | None = None
    never: bool = False
    note: str = ""


def summary_table(evaluations: Sequence[Evaluation]) -> list[Row]:
    """Rows for each copy and its rivals; each group with the same candidates ends with the full data."""
    names, rivals = short_names(evaluations), rivals_once(evaluations)
    rows = []
    groups = comparable(evaluations)
    for group in groups:
        for k in group:
            rows.append(_copy(names[k], evaluations[k]))
            rows += [_rival(rival, names[k], evaluations[k]) for rival in rivals[k]]
        rows.append(_full(evaluations[group[0]], alone=len(groups) == 1))
    return rows


def _agreed(ranking: Ranking, e: Evaluation) -> dict[str, Any]:
    """Fields that copies and rivals share."""
    return {
        "spearman": ranking.spearman,
        "interval": (ranking.interval[0], ranking.interval[1]),
        "pairs": ranking.calibration,
        "top_k": ranking.top_k_overlap,
        "upper_half": ranking.upper_half_spearman,
        "test_spearman": ranking.test_spearman,
        "regret": ranking.regret,
        "test": ranking.selected_test_accuracy,
        "fraction": is_fraction(e),
    }


def _copy(name: str, e: Evaluation) -> Row:
    copy, full = e.proxy_seconds_per_candidate, e.full_seconds_per_candidate
    never = e.break_even_trials is None and e.break_even_against is not None
    return Row(
        name=name,
        role="copy",
        once=e.condense_seconds,
        per_trial=copy,
        search=e.proxy_seconds,
        break_even=e.break_even_trials,
        never=never or (copy is not None and full is not None and copy >= full),
        note=e.note,
        **_agreed(e, e),
    )


def _rival(rival: Rival, of: str, e: Evaluation) -> Row:
    each = rival.seconds_per_candidate
    return Row(
        name=rival.name,
        role="rival",
        of=of,
        once=rival.extra_seconds or None,
        per_trial=each,
        search=None if each is None else each * len(e.truth),
        note=rival.note or rival.description,
        **_agreed(rival, e),
    )


def _full(e: Evaluation, alone: bool) -> Row:
    return Row(
        name="full data" if alone else f"full data ({e.dataset})",
        role="full",
        test=e.best_test_accuracy,
        regret=0.0,
        fraction=is_fraction(e),
        once=0.0,
        per_trial=e.full_seconds_per_candidate,
        search=e.full_seconds,
        note=f"{e.truth_source or 'every candidate trained on the full data'}: the reference",
    )


# --- text of the cells --------------------------------------------------------------------------------------


def seconds(value: float | None) -> str:
    """Three significant digits, thousands with a comma."""
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
    return f"{100 * value:.1f}" if fraction else f"{value:.2g}"


def agreement(row: Row) -> str:
    """Spearman's correlation with its interval."""
    if row.role == "full":
        return "1 (by definition)"
    if row.spearman is None:
        return "not defined"
    low, high = row.interval
    return number(row.spearman) + ("" if low is None else f" [{number(low)}, {number(high)}]")


def pays(row: Row) -> str:
    """The break-even in words."""
    if row.role != "copy" or row.spearman is None:
        return "-"
    if row.never:
        return PAYS_NOT
    if row.interval[0] is None or row.interval[0] <= 0:
        return "-"  # may be chance
    return "unknown" if row.break_even is None else f"{row.break_even:,}"


@dataclass(frozen=True)
class Column:
    """A column: its heading, its text for a row, and what it means.

    ``narrow`` is the heading on a terminal; a column without one appears only on the page.
    """

    heading: str
    cell: Callable[[Row], str]
    meaning: str
    narrow: str = ""


COLUMNS = (
    Column("copy or rival", lambda row: row.name, "What replaces the full data.", "copy or rival"),
    Column(
        "rank agreement",
        agreement,
        "Spearman's rank correlation of the candidates' scores with their full-data validation scores, and "
        "its 90 % interval; fewer than five candidates say nothing.",
        "rank\nagreement",
    ),
    Column(
        "with test scores",
        lambda row: number(row.test_spearman),
        "The same correlation with full-data test scores, to which nothing was fitted.",
        "with\ntest",
    ),
    Column(
        "pairs in order",
        lambda row: number(row.pairs),
        "Share of pairs of candidates in the order of the full data, the paper's calibration.",
        "pairs in\norder",
    ),
    Column(
        "top 10",
        lambda row: number(row.top_k),
        "Share of the ten truly best candidates among its first ten, if there are more than ten.",
    ),
    Column(
        "better half",
        lambda row: number(row.upper_half),
        "Spearman among the truly better half of the candidates, which matter most in a search.",
    ),
    Column(
        "regret",
        lambda row: points(row.regret, row.fraction),
        "Full-data validation score lost by taking its pick instead of the best candidate; points for "
        "accuracies.",
    ),
    Column(
        "test score of the pick",
        lambda row: score(row.test, row.fraction),
        "Full-data test score of its pick: accuracy for classes, minus the error for values. For the full "
        "data: of the candidate with the best validation score.",
        "test score\nof pick",
    ),
    Column(
        "condense (s)",
        lambda row: seconds(row.once),
        "Seconds spent once, before the first trial.",
        "condense\n(s)",
    ),
    Column("per trial (s)", lambda row: seconds(row.per_trial), "Seconds per candidate."),
    Column("search (s)", lambda row: seconds(row.search), "Seconds for all candidates.", "search\n(s)"),
    Column(
        "break-even (trials)",
        pays,
        "Number of trials from which condensing and searching take less time than anything in this table "
        "that ranks at least as well.",
        "break-even\n(trials)",
    ),
)
"""Columns in order."""
