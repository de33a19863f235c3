"""What the figures say, in sentences: who ranks better, by how much, and whether it pays."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from hcdc.core.ranks import percentiles
from hcdc.core.seeds import numpy_stream
from hcdc.reporting._evaluations import (
    Evaluation,
    comparable,
    in_shares,
    is_fraction,
    rivals_once,
    short_names,
)
from hcdc.reporting._table import PAYS_NOT, number, points, score, seconds

DRAWS = 1000
VALIDATION = "-val"
"""Part of the names of rivals that share the copy's S_train and have another validation set."""


def gain(
    truth: Sequence[float], first: Sequence[float], second: Sequence[float], level: float = 0.9
) -> tuple[float, float, float]:
    """Spearman of ``first`` minus that of ``second``, and its bootstrap interval, resampled in pairs.

    Returns:
        ``(difference, low, high)``; NaN where a correlation is not defined, and the last two where
        `hcdc.core.ranks.bootstrap` has no interval.
    """
    scores = np.asarray([truth, first, second], np.float64)
    count = scores.shape[1]
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


def _rival(evaluation: Evaluation, kind: str) -> Mapping[str, Any] | None:
    """The best rival with a ``"real"`` or a ``"random"`` validation set (ranked by accuracy or by loss)."""
    found: list[Mapping[str, Any]] = [
        rival
        for rival in evaluation["rivals"]
        if VALIDATION in rival["name"]
        and rival["name"].startswith(kind)
        and rival.get("spearman") is not None
    ]
    return max(found, key=lambda rival: float(rival["spearman"]), default=None)


def _level(evaluation: Evaluation) -> str:
    return f"{100 * evaluation.get('level', 0.9):.0f} % interval"


def _gain_text(evaluation: Evaluation, first: Sequence[float] | None, second: Sequence[float] | None) -> str:
    if first is None or second is None:
        return "the scores were not kept, so without an interval"
    value, low, high = gain(evaluation["truth"], first, second, evaluation.get("level", 0.9))
    if math.isnan(low):
        return f"gain {value:+.2f}, without an interval: the scores of too few candidates differ"
    sure = "" if low > 0 or high < 0 else ", so the difference may be chance"
    return f"gain {value:+.2f}, {_level(evaluation)} {low:+.2f} to {high:+.2f}{sure}"


def _kind(evaluation: Evaluation) -> str:
    """What the file's own validation set is."""
    method = evaluation.get("val_method")
    if method in ("aligned", "both", "probes"):
        return "learned"
    if method == "weighted":  # real examples, learned weights
        return "weighted"
    drawn = method == "random" or evaluation.get("train_method") == "random"
    return "small random" if drawn else "condensed"


def validation_choice(evaluation: Evaluation) -> str:
    """Which validation set ranks better on this S_train: the file's own, the real or a random one.

    Empty where the evaluation has nothing to compare.
    """
    own, kind = evaluation.get("spearman"), _kind(evaluation)
    if own is None or evaluation.get("val_method") == "real":
        return ""
    sentences = []
    if real := _rival(evaluation, "real"):
        value = real["spearman"]
        if round(value, 2) == round(own, 2):
            sentences.append(
                f"the {kind} validation set ranked as well as the real one: Spearman {number(own)}"
            )
        elif value > own:
            text = _gain_text(evaluation, real.get("proxy"), evaluation["proxy"])
            sentences.append(
                f"the real validation set ranked better than the {kind} one: Spearman {number(value)} "
                f"against {number(own)} ({text}); --val-method real takes it"
            )
        else:
            text = _gain_text(evaluation, evaluation["proxy"], real.get("proxy"))
            sentences.append(
                f"the {kind} validation set ranked better than the real one: Spearman {number(own)} against "
                f"{number(value)} ({text})"
            )
    if kind != "small random" and (drawn := _rival(evaluation, "random")):
        text = _gain_text(evaluation, evaluation["proxy"], drawn.get("proxy"))
        size = drawn.get("val_size")  # older evaluations do not say
        many = "" if size is None else "as many " if size == evaluation["val_size"] else f"{size:,} "
        sentences.append(
            f"{many}random validation examples had {number(drawn['spearman'])} (the {kind} set: {text})"
        )
    return "; ".join(sentences)


def payment(evaluation: Evaluation) -> str:
    """Whether the copy saves time, and from how many trials on; of seconds alone where it does not rank."""
    once, copy, full = (
        evaluation.get(key)
        for key in ("condense_seconds", "proxy_seconds_per_candidate", "full_seconds_per_candidate")
    )
    trials, judged = evaluation.get("break_even_trials"), len(evaluation["truth"])
    if copy is None:
        return "it is not known whether it pays: no times were measured"
    if full is None:
        return "it is not known whether it pays: the times of the full data are of another device"
    each = f"a trial takes {seconds(copy)} s on the copy and {seconds(full)} s on the full data"
    spent = each if once is None else f"condensing took {seconds(once)} s, {each}"
    free = _free_rivals(evaluation)
    if copy >= full:
        return f"{PAYS_NOT}: {each}{free}"
    if doubt := _doubt(evaluation):
        return f"{doubt}, so whether it pays is not said; {spent}{free}"
    if once is None or trials is None:
        return f"whether it pays is not known, as the time to condense was not recorded; {each}{free}"
    start = "the first trial" if trials == 1 else f"{trials:,} trials"
    return f"it pays from {start} on ({judged} were judged here): {spent}{free}"


def _doubt(evaluation: Evaluation) -> str:
    """Why the copy's ranking is of no use to a search; empty where its interval is above 0."""
    low, high = (evaluation.get("interval") or [None, None])[:2]
    if low is None or high is None:
        return "its ranking has no interval"
    if high < 0:
        return "its ranking is upside down"
    return "" if low > 0 else "its ranking is not told from chance"


def _free_rivals(evaluation: Evaluation) -> str:
    """Rivals that take no seconds at all and rank better, as a clause."""
    return "".join(
        f"; {rival['name']} is free and ranks better, {number(rival['spearman'])}"
        for rival in _ranks_better(evaluation)
        if _is_free(rival)
    )


def _ranks_better(evaluation: Evaluation) -> list[dict[str, Any]]:
    """Rivals that rank better than the copy, to two digits."""
    own = evaluation.get("spearman")
    return [
        rival
        for rival in evaluation["rivals"]
        if own is not None
        and rival.get("spearman") is not None
        and round(rival["spearman"], 2) > round(own, 2)
    ]


def _is_free(rival: dict[str, Any]) -> bool:
    """Whether it takes no seconds, neither once nor for a candidate."""
    return rival.get("seconds_per_candidate") == 0 and not rival.get("extra_seconds")


def shortened(evaluation: Evaluation) -> str:
    """A warning where the copy was made with the demo's preset; else empty."""
    short = evaluation.get("preset") == "demo" and evaluation["method"] != "random"  # which has no schedule
    return "made with preset 'demo', a shortened run" if short else ""


def _copy_sentence(e: Evaluation) -> str:
    if e["spearman"] is None:
        why = e.get("note") or "its scores are constant or not finite"
        return f"the rank agreement is not defined ({why})"
    low, high = (e["interval"] or [None, None])[:2]
    picked, best = e.get("selected_test_accuracy"), e.get("best_test_accuracy")
    text = f"ranks {len(e['truth'])} candidates with Spearman {number(e['spearman'])}"
    if low is not None:
        text += f" ({_level(e)} {number(low)} to {number(high)})"
    if picked is not None and best is not None:
        worth = _pick_text(picked, best, is_fraction(e))
        text += f"; its pick has a test {worth} the pick of full-data validation"
    return text


def _pick_text(picked: float, best: float, fraction: bool) -> str:
    what = "accuracy" if fraction else "score"
    if points(picked - best, fraction) in ("0.0", "-0.0", "0"):
        return f"{what} of {score(picked, fraction)}, the same as"
    lost = points(abs(best - picked), fraction) + (" points" if fraction else "")
    return f"{what} of {score(picked, fraction)}, {lost} {'below' if picked < best else 'above'}"


def _best_sentence(names: Sequence[str], group: Sequence[Evaluation]) -> str:
    ranked = sorted(
        (k for k in range(len(group)) if group[k]["spearman"] is not None),
        key=lambda k: -group[k]["spearman"],
    )
    if len(ranked) < 2:
        return ""
    first, others = group[ranked[0]], ranked[1:]
    told = [
        f"{names[k]} {number(group[k]['spearman'])} ({_gain_text(first, first['proxy'], group[k]['proxy'])})"
        for k in others
    ]
    return f"{names[ranked[0]]} ranks best of the copies, {number(first['spearman'])}, before " + ", ".join(
        told
    )


def _better_rivals(e: Evaluation) -> str:
    """Rivals that rank better than the copy, beside those of the validation choice and of the payment."""
    better = [
        f"{rival['name']} {number(rival['spearman'])} ({seconds(rival.get('seconds_per_candidate'))} s each)"
        for rival in _ranks_better(e)
        if VALIDATION not in rival["name"]
        and not rival.get("whole")  # which is the full data itself
        and not _is_free(rival)
    ]
    return "better ranked without any copy: " + ", ".join(better) if better else ""


def _diverged(e: Evaluation) -> list[str]:
    """How many candidates have no loss on the copy, and which have none on the full data."""
    lost = e.get("diverged_on_full") or []
    found = (
        (e.get("diverged") or 0, "on the copy", ""),
        (len(lost), "on the full data", f" there: {', '.join(map(str, lost))}"),
    )
    return [
        f"1 candidate diverged {where} and is ranked last{named}"
        if count == 1
        else f"{count} candidates diverged {where} and are ranked last{named}"
        for count, where, named in found
        if count
    ]


def findings(evaluations: Sequence[Evaluation]) -> list[tuple[str, list[str]]]:
    """Sentences by copy: who wins, by how much, whether it pays, what was shortened; '' for all."""
    evaluations = [in_shares(e) for e in evaluations]
    names, rivals = short_names(evaluations), rivals_once(evaluations)
    found: list[tuple[str, list[str]]] = []
    for group in comparable(evaluations):
        best = _best_sentence([names[k] for k in group], [evaluations[k] for k in group])
        found.append(("", [best]))
        for k in group:
            e = evaluations[k]
            dropped = e.get("dropped")
            found.append(
                (
                    names[k],
                    [
                        shortened(e),
                        _copy_sentence(e),
                        validation_choice(e),
                        _better_rivals(e),
                        payment(e) if e["spearman"] is not None else "",
                        *_diverged(e),
                        f"{dropped} candidates were left out, as they had been used in making the copy"
                        if dropped
                        else "",
                        *(f"{rival['name']}: {rival['note']}" for rival in rivals[k] if rival.get("note")),
                    ],
                )
            )
    kept = [(name, [text for text in texts if text]) for name, texts in found]
    return [(name, texts) for name, texts in kept if texts]
