"""The conclusions in sentences: what ranks better, by how much, and whether it pays off."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from hcdc.core.ranks import percentiles
from hcdc.core.results import Evaluation, Rival, Scores
from hcdc.core.seeds import numpy_stream
from hcdc.core.told import config_text, number
from hcdc.reporting._evaluations import comparable, is_fraction, rivals_once, short_names
from hcdc.reporting._table import PAYS_NOT, points, score, seconds

DRAWS = 10_000
FEWEST = 10
"""Candidates below which a bootstrap interval would be far too narrow."""
VALIDATION = "-val"
"""In the names of rivals with the copy's S_train and another validation set."""


def gain(truth: Scores, first: Scores, second: Scores, level: float = 0.9) -> tuple[float, float, float]:
    """Spearman of ``first`` minus Spearman of ``second``, with a paired bootstrap interval.

    Returns:
        ``(difference, low, high)``; NaN if undefined, and no interval for fewer than `FEWEST` candidates.
    """
    scores = np.asarray([truth, first, second], np.float64)
    count = scores.shape[1]
    if count < FEWEST:
        return float(_differences(scores[:, None, :])[0]), math.nan, math.nan
    draws = numpy_stream(0, "gain").integers(0, count, (DRAWS, count))
    value = float(_differences(scores[:, None, :])[0])
    return value, *percentiles(value, _differences(scores[:, draws]), level)


def _differences(scores: NDArray[np.float64]) -> NDArray[np.float64]:
    """Spearman(truth, first) - Spearman(truth, second), for ``scores`` ``[3, draws, candidates]``."""
    ranks = stats.rankdata(scores, axis=2)
    ranks -= ranks.mean(2, keepdims=True)
    with np.errstate(invalid="ignore", divide="ignore"):  # constant scores have no correlation
        unit = ranks / np.sqrt((ranks**2).sum(2, keepdims=True))
    correlation: NDArray[np.float64] = (unit[:1] * unit[1:]).sum(2)
    difference: NDArray[np.float64] = correlation[0] - correlation[1]
    return difference


def _rival(evaluation: Evaluation, kind: str) -> Rival | None:
    """The best rival with a ``"real"`` or ``"random"`` validation set, by accuracy or loss."""
    found = [
        rival
        for rival in evaluation.rivals
        if VALIDATION in rival.name and rival.name.startswith(kind) and rival.spearman is not None
    ]
    return max(found, key=lambda rival: rival.spearman or 0.0, default=None)


def _level(evaluation: Evaluation) -> str:
    return f"{100 * evaluation.level:.0f} % interval"


def _gain_text(evaluation: Evaluation, first: Scores, second: Scores) -> str:
    if not first or not second:
        return "no interval: the scores were not kept"
    value, low, high = gain(evaluation.truth, first, second, evaluation.level)
    if math.isnan(low):
        return f"gain {value:+.2f}, no interval: too few candidates, or too few different scores"
    sure = "" if low > 0 or high < 0 else ", so the difference may be chance"
    return f"gain {value:+.2f}, {_level(evaluation)} {low:+.2f} to {high:+.2f}{sure}"


def _kind(evaluation: Evaluation) -> str:
    """What kind of validation set the file has."""
    method = evaluation.val_method
    if method in ("aligned", "both", "landscape", "probes"):
        return "learned"
    if method == "weighted":  # real examples, learned weights
        return "weighted"
    drawn = method == "random" or (method, evaluation.train_method) == ("same", "random")
    return "small random" if drawn else "condensed"


def validation_choice(evaluation: Evaluation) -> str:
    """Which validation set ranks better with this S_train: the file's, the real one or a random one.

    Empty if there is nothing to compare.
    """
    own, kind = evaluation.spearman, _kind(evaluation)
    if own is None or evaluation.val_method == "real":
        return ""
    sentences = []
    if real := _rival(evaluation, "real"):
        value = real.spearman or 0.0
        if round(value, 2) == round(own, 2):
            sentences.append(
                f"the {kind} validation set ranked as well as the real one: Spearman {number(own)}"
            )
        elif value > own:
            text = _gain_text(evaluation, real.proxy, evaluation.proxy)
            sentences.append(
                f"the real validation set ranked better than the {kind} one: Spearman {number(value)} "
                f"against {number(own)} ({text}); --val-method real uses it"
            )
        else:
            text = _gain_text(evaluation, evaluation.proxy, real.proxy)
            sentences.append(
                f"the {kind} validation set ranked better than the real one: Spearman {number(own)} against "
                f"{number(value)} ({text})"
            )
    if kind != "small random" and (drawn := _rival(evaluation, "random")):
        text = _gain_text(evaluation, evaluation.proxy, drawn.proxy)
        size = drawn.val_size  # missing in older evaluations
        many = "" if size is None else "as many " if size == evaluation.val_size else f"{size:,} "
        sentences.append(
            f"{many}random validation examples reached {number(drawn.spearman)} (the {kind} set: {text})"
        )
    return "; ".join(sentences)


def payment(evaluation: Evaluation) -> str:
    """What the copy cost, and after how many trials it pays off."""
    once, copy = evaluation.condense_seconds, evaluation.proxy_seconds_per_candidate
    full = evaluation.full_seconds_per_candidate
    if copy is None:
        return "no break-even is reported: no times were measured"
    on_full = "" if full is None else f" and {seconds(full)} s on the full data"
    each = f"a trial takes {seconds(copy)} s on the copy{on_full}"
    spent = each if once is None else f"condensing took {seconds(once)} s, {each}"
    if evaluation.break_even_trials is None and full is not None and copy >= full:
        return f"{PAYS_NOT}: {each}"
    if doubt := _doubt(evaluation):
        return f"{doubt}, so no break-even is reported; {spent}"
    trials, against = evaluation.break_even_trials, evaluation.break_even_against
    if trials is None:
        never = f"{PAYS_NOT}: " if against else "no break-even is reported: "
        return f"{never}{evaluation.break_even_note or 'the condensing time was not recorded'}; {spent}"
    start = "the first trial" if trials == 1 else f"{trials:,} trials"
    judged = f"{len(evaluation.truth)} were judged here"
    return f"pays off from {start} on, against {against or 'the full data'} ({judged}): {spent}"


def _doubt(evaluation: Evaluation) -> str:
    """Why the copy's ranking cannot be used; empty if its interval is above 0."""
    low, high = evaluation.interval[:2]
    if low is None or high is None:
        return "its ranking has no interval"
    if high < 0:
        return "its ranking is reversed"
    return "" if low > 0 else "Indistinguishable from chance"


def _ranks_better(evaluation: Evaluation) -> list[Rival]:
    """Rivals that rank better than the copy, to two digits."""
    own = evaluation.spearman
    return [
        rival
        for rival in evaluation.rivals
        if own is not None and rival.spearman is not None and round(rival.spearman, 2) > round(own, 2)
    ]


def shortened(evaluation: Evaluation) -> str:
    """A warning if the copy was made with the demo's preset."""
    short = evaluation.preset == "demo" and evaluation.method != "random"  # random has no schedule
    return "made with preset 'demo', a shortened run" if short else ""


def pick_text(e: Evaluation) -> str:
    """How good the copy's pick is; empty if there is none."""
    pick, fraction = e.pick, is_fraction(e)
    if pick is None:
        return ""
    text = f"{score(pick.score, fraction)} in full-data validation, rank {pick.rank} of {pick.judged}"
    if pick.rank == 1:
        return f"{text}, the best"
    return f"{text}; the best scores {score(pick.best_score, fraction)}: {config_text(pick.best)}"


def _pick_sentence(e: Evaluation) -> str:
    return "" if e.pick is None else f"picks {config_text(e.pick.config)}: {pick_text(e)}"


def agreement_text(e: Evaluation) -> str:
    """How well the copy ranks, and the test score of its pick."""
    if e.spearman is None:
        return f"the rank agreement is undefined ({e.note or 'its scores are constant or not finite'})"
    low, high = e.interval[:2]
    text = f"ranks {len(e.truth)} candidates with Spearman {number(e.spearman)}"
    if low is not None:
        text += f" ({_level(e)} {number(low)} to {number(high)})"
    if e.test_spearman is not None:
        text += f", {number(e.test_spearman)} against test scores"
    if e.selected_test_accuracy is not None and e.best_test_accuracy is not None:
        worth = _worth(e.selected_test_accuracy, e.best_test_accuracy, is_fraction(e))
        text += f"; its pick has a test {worth} the pick of full-data validation"
    return text


def _worth(picked: float, best: float, fraction: bool) -> str:
    what = "accuracy" if fraction else "score"
    if points(picked - best, fraction) in ("0.0", "-0.0", "0"):
        return f"{what} of {score(picked, fraction)}, the same as"
    lost = points(abs(best - picked), fraction) + (" points" if fraction else "")
    return f"{what} of {score(picked, fraction)}, {lost} {'below' if picked < best else 'above'}"


def _best_sentence(names: Sequence[str], group: Sequence[Evaluation]) -> str:
    ranked = sorted(
        ((e, name) for name, e in zip(names, group) if e.spearman is not None),
        key=lambda pair: -(pair[0].spearman or 0.0),
    )
    if len(ranked) < 2:
        return ""
    (first, name), *others = ranked
    told = ", ".join(
        f"{other} {number(e.spearman)} ({_gain_text(first, first.proxy, e.proxy)})" for e, other in others
    )
    return f"{name} ranks best of the copies, {number(first.spearman)}, before {told}"


def _better_rivals(e: Evaluation) -> str:
    """Better rivals that use no copy; `validation_choice` covers the others."""
    better = [
        f"{rival.name} {number(rival.spearman)} ({_price(rival)})"
        for rival in _ranks_better(e)
        if VALIDATION not in rival.name
    ]
    return "ranked better without a copy: " + ", ".join(better) if better else ""


def _price(rival: Rival) -> str:
    free = rival.seconds_per_candidate == 0 and not rival.extra_seconds
    return "free" if free else f"{seconds(rival.seconds_per_candidate)} s each"


def _constant(e: Evaluation) -> str:
    """A warning if full-data results do not beat a constant predictor."""
    if e.constant is None:
        return ""
    beaten = sum(value is None or value <= e.constant for value in e.truth)
    if not beaten:
        return ""
    which = "none" if beaten == len(e.truth) else f"{beaten} of {len(e.truth)}"
    verb = "of the full-data results beats" if which == "none" else "full-data results do not beat"
    return f"warning: {which} {verb} a constant predictor ({score(e.constant, is_fraction(e))})"


def _diverged(e: Evaluation) -> list[str]:
    """How many candidates diverged on the copy, and which on the full data."""
    lost = e.diverged_on_full
    found = (
        (e.diverged, "on the copy", ""),
        (len(lost), "on the full data", f" there: {', '.join(map(str, lost))}"),
    )
    return [
        f"1 candidate diverged {where} and is ranked last{named}"
        if count == 1
        else f"{count} candidates diverged {where} and are ranked last{named}"
        for count, where, named in found
        if count
    ]


def findings(evaluations: Sequence[Evaluation], answers: bool = True) -> list[tuple[str, list[str]]]:
    """Sentences per copy: pick, agreement, whether it pays off (only with ``answers``), and the rest.

    The name is '' for sentences about all copies.
    """
    names, rivals = short_names(evaluations), rivals_once(evaluations)
    found: list[tuple[str, list[str]]] = []
    for group in comparable(evaluations):
        best = _best_sentence([names[k] for k in group], [evaluations[k] for k in group])
        found.append(("", [best]))
        for k in group:
            e = evaluations[k]
            first = [_pick_sentence(e), agreement_text(e), payment(e) if e.spearman is not None else ""]
            texts = [
                *(first if answers else []),
                *remarks(e),
                *(f"{rival.name}: {rival.note}" for rival in rivals[k] if rival.note),
            ]
            found.append((names[k], texts))
    kept = [(name, [text for text in texts if text]) for name, texts in found]
    return [(name, texts) for name, texts in kept if texts]


def remarks(e: Evaluation) -> list[str]:
    """Further findings and warnings about one evaluation."""
    some = "1 candidate was" if e.dropped == 1 else f"{e.dropped} candidates were"
    dropped = f"{some} left out because {'it was' if e.dropped == 1 else 'they were'} used to make the copy"
    texts = [shortened(e), _constant(e), validation_choice(e), _better_rivals(e), *_diverged(e)]
    return [text for text in [*texts, dropped if e.dropped else ""] if text]
