"""Tables of the protocol ``search-replay``: the ladder beside its rivals at equal seconds."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hcdc.core.seeds import numpy_stream
from hcdc.experiments.markdown import table_text

Record = dict[str, Any]
Array = NDArray[np.float64]

WORDS: Mapping[str, str] = {
    "ladder": "**the ladder**",
    "random": "random search",
    "tpe": "TPE",
    "evolution": "regularised evolution",
    "local": "local search",
    "gp": "Gaussian process on free features",
    "hyperband": "Hyperband",
    "asha": "ASHA",
    "bohb": "BOHB",
    "dehb": "DEHB",
    "parameters-short-full": "parameters -> short -> full",
    "jacov-parameters-short-full": "jacov + parameters -> short -> full",
    "one-shot": "one-shot supernet (SPOS) -> short -> full",
    "random-subset": "random subset -> full",
    "summed-loss": "summed training loss (Ru et al.) -> full",
}
"""The methods in words, in the order of the tables."""
LEFT_OUT: Mapping[str, str] = {
    "ladder": "all rungs",
    "ladder-without-free": "without training-free scores",
    "ladder-without-copy": "without the copy",
    "ladder-without-free-copy": "without both",
    "ladder-without-short": "without short trainings",
}
FOUR = ("random", "tpe", "hyperband", "evolution")
"""Rivals whose best sets the bar for time."""
BUDGETS = (900, 1800)
"""Seconds of the tables of cells."""
SURROGATES: Mapping[str, str] = {"lcbench": "LCBench", "rbv2_xgboost": "xgboost"}
TRAINING = 60
"""Seconds of a full training on surrogates and graphs."""
SLACK = 1.25
"""A search is as fast as another if it takes at most this many times its time."""
MARGIN = 0.02
"""Non-inferior: the upper bound of the difference in normalised regret is at most this."""
RESAMPLES = 10_000
NOT_RUN = "not run"


def scored(r: Record, seconds: float) -> float | None:
    """The judged score of a run's pick after some seconds; None before its first pick."""
    found = None
    for at, score in r["curve"]:
        if at > seconds + 1e-9:
            break
        found = score
    return found


def regret(r: Record, seconds: float = math.inf) -> float:
    """Regret after some seconds; before the first pick, that of the median candidate."""
    score = scored(r, seconds)
    return float(r["best"] - (r["median"] if score is None else score))


def mean_error(values: Sequence[float], digits: int = 3) -> str:
    """The mean and its standard error."""
    if not len(values):
        return NOT_RUN
    if len(values) == 1:
        return f"{values[0]:.{digits}f}"
    error = float(np.std(values, ddof=1)) / math.sqrt(len(values))
    return f"{float(np.mean(values)):.{digits}f} ± {error:.{digits}f}"


def seconds_to(runs: Iterable[Record], target: float) -> float | None:
    """Seconds until the mean regret is at most ``target``, the least over budgets; None if never."""
    by_budget: dict[float, list[Record]] = {}
    for r in runs:
        by_budget.setdefault(r["budget"], []).append(r)
    reached = []
    for some in by_budget.values():
        times = np.array(sorted({at for r in some for at, _ in r["curve"]}))
        if not len(times):
            continue
        mean = np.mean([steps(r, times) for r in some], 0)
        reached += times[mean <= target + 1e-9][:1].tolist()
    return min(reached, default=None)


def steps(r: Record, times: Array) -> Array:
    """Regret of a run at sorted times ``[t]``."""
    levels = np.array([r["best"] - r["median"], *(r["best"] - score for _, score in r["curve"])])
    found: Array = levels[np.searchsorted([at for at, _ in r["curve"]], times, side="right")]
    return found


class Runs:
    """The records of one pool by method and budget."""

    def __init__(self, found: Iterable[Record], pool: str):
        self.all = [r for r in found if r["pool"] == pool]

    def of(self, method: str, budget: float | None = None) -> list[Record]:
        return [r for r in self.all if r["method"] == method and budget in (None, r["budget"])]

    def at(self, method: str, budget: float) -> list[float]:
        """Regrets of the picks; a method without runs at this budget is looked up in longer ones.

        Only methods that do not plan for a budget may be looked up.
        """
        if own := self.of(method, budget):
            return [regret(r) for r in own]
        if plans(method):
            return []
        longer = [r["budget"] for r in self.of(method) if r["budget"] > budget]
        return [regret(r, budget) for r in self.of(method, min(longer))] if longer else []

    def timed(self, method: str) -> list[Record]:
        """Runs that show how fast a method is: all, or the longest if shorter ones are parts of them."""
        longest = max((r["budget"] for r in self.of(method)), default=None)
        return self.of(method, None if plans(method) else longest)


def plans(method: str) -> bool:
    """Whether a method spends its seconds by a plan for the whole budget."""
    known = ("one-shot", "random-subset", "summed-loss")
    return method in known or method.startswith("ladder") or method.endswith("full")


def cells_table(pool: str) -> Callable[[Sequence[Record]], str]:
    """Mean regret on NAS-Bench-201 at each budget, and the time to two levels of it."""

    def write(found: Sequence[Record]) -> str:
        runs = Runs(found, pool)
        last = BUDGETS[-1]
        four = [float(np.mean(some)) for name in FOUR if (some := runs.at(name, last))]
        ours = runs.at("ladder", last)
        targets = [min(four, default=None), float(np.mean(ours)) if ours else None]
        rows = []
        for name, words in WORDS.items():
            if runs.all and not runs.of(name):
                continue
            rows.append(
                [
                    words,
                    str(max((len(runs.at(name, budget)) for budget in BUDGETS), default=0)),
                    *(mean_error(runs.at(name, budget)) for budget in BUDGETS),
                    *(_minutes(runs.timed(name), target) for target in targets),
                    _used(runs.of(name, last)),
                ]
            )
        levels = ["" if target is None else f" ({target:.3f})" for target in targets]
        head = ["searched by", "runs", *(f"regret after {budget / 60:g} minutes" for budget in BUDGETS)]
        head += [f"minutes to the regret{levels[0]} of the best of random, TPE, Hyperband and evolution"]
        head += [f"minutes to the regret{levels[1]} of the ladder", f"trainings in {last / 60:g} minutes"]
        return table_text(head, rows)

    return write


def _minutes(runs: Sequence[Record], target: float | None) -> str:
    if not runs or target is None:
        return NOT_RUN
    seconds = seconds_to(runs, target)
    longest = max(r["budget"] for r in runs)
    return f"not in {longest / 60:,.0f}" if seconds is None else f"{seconds / 60:,.1f}"


def _used(runs: Sequence[Record]) -> str:
    """Mean numbers of candidates by rung."""
    if not runs:
        return NOT_RUN
    means = {name: np.mean([r["trainings"].get(name, 0) for r in runs]) for name in runs[0]["trainings"]}
    return ", ".join(f"{name} {mean:,.0f}" for name, mean in means.items() if mean)


def rungs_table(pool: str) -> Callable[[Sequence[Record]], str]:
    """The ladder without one of its rungs: mean regret, and the difference from the whole ladder."""

    def write(found: Sequence[Record]) -> str:
        runs, rows = Runs(found, pool), []
        for name, words in LEFT_OUT.items():
            if runs.all and not runs.of(name):
                continue
            row = [words]
            for budget in BUDGETS:
                row.append(mean_error([regret(r) for r in runs.of(name, budget)]))
                if name != "ladder":
                    row.append(mean_error(_paired(runs.of(name, budget), runs.of("ladder", budget))))
                else:
                    row.append("")
            rows.append(row)
        head = ["the ladder"]
        for budget in BUDGETS:
            head += [f"regret after {budget / 60:g} minutes", "more than with all rungs"]
        return table_text(head, rows)

    return write


def _paired(runs: Sequence[Record], others: Sequence[Record]) -> list[float]:
    """Differences of regret in runs with the same table and seed."""
    other = {(r["table"], r["seed"]): regret(r) for r in others}
    return [regret(r) - other[r["table"], r["seed"]] for r in runs if (r["table"], r["seed"]) in other]


# --- surrogates ---------------------------------------------------------------------------------------------


def normalised(found: Iterable[Record]) -> list[Record]:
    """Records with ``normal``: regret of the pick over that of the median of the reference sample.

    ``best``, the best score of a table, is that of the reference sample and of every pick of any method.
    """
    found = list(found)
    best: dict[tuple[str, str], float] = {}
    for r in found:
        key = r["pool"], r["table"]
        best[key] = max([best.get(key, r["best"]), *(score for _, score in r["curve"])])
    scaled = []
    for r in found:
        top = best[r["pool"], r["table"]]
        score = r["median"] if r["score"] is None else r["score"]
        scaled.append({**r, "best": top, "normal": (top - score) / max(top - r["median"], 1e-9)})
    return scaled


def time_ratios(ours: Sequence[Record], theirs: Sequence[Record]) -> tuple[Array, Array]:
    """Time at which we reach another method's final score, over two times of its own, by table and seed.

    Returns:
        Ratios to the time at which it found that score, and to the whole time it took; infinite if we do not
        reach it within our budget.
    """
    own = {(r["table"], r["seed"]): r for r in ours}
    found, whole = [], []
    for r in theirs:
        mine = own.get((r["table"], r["seed"]))
        if mine is None or not r["curve"]:
            continue
        at = next((t for t, score in mine["curve"] if score >= r["score"] - 1e-9), math.inf)
        found.append(at / r["curve"][-1][0])
        whole.append(at / r["budget"])
    return np.array(found), np.array(whole)


def by_table(ours: Sequence[Record], theirs: Sequence[Record]) -> Array:
    """Differences of normalised regret, ours minus theirs: one mean per table."""
    other = {(r["table"], r["seed"]): r["normal"] for r in theirs}
    pairs: dict[str, list[float]] = {}
    for r in ours:
        if (r["table"], r["seed"]) in other:
            pairs.setdefault(r["table"], []).append(r["normal"] - other[r["table"], r["seed"]])
    return np.array([np.mean(some) for some in pairs.values()])


def bootstrap(values: Array) -> tuple[float, float]:
    """5 % and 95 % quantiles of the mean under resampling; the upper one is a one-sided 95 % bound."""
    draws = numpy_stream(0, "search-tables").integers(0, len(values), (RESAMPLES, len(values)))
    low, high = np.quantile(values[draws].mean(1), [0.05, 0.95])
    return float(low), float(high)


def difference(apart: Array) -> str:
    """The mean of differences and its 90 % interval."""
    if not len(apart):
        return NOT_RUN
    low, high = bootstrap(apart)
    return f"{apart.mean():+.3f} [{low:+.3f}, {high:+.3f}]"


def non_inferior(apart: Array) -> str:
    """Whether the upper bound of the mean difference is at most `MARGIN`."""
    if not len(apart):
        return NOT_RUN
    return "yes" if bootstrap(apart)[1] <= MARGIN else "no"


def surrogates_table(found: Sequence[Record]) -> str:
    """The ladder against Hyperband on the surrogates: time to its final score, and normalised regret."""
    scaled, rows = normalised(r for r in found if r["pool"] in SURROGATES), []
    for pool, words in SURROGATES.items():
        runs = Runs(scaled, pool)
        for budget in sorted({r["budget"] for r in runs.all}):
            ours, theirs = runs.of("ladder", budget), runs.of("hyperband", budget)
            own, whole = time_ratios(ours, theirs)
            apart = by_table(ours, theirs)
            row = [f"{words}, {budget / TRAINING:g} full trainings", f"{len(apart)} x {_seeds(ours)}"]
            if not len(apart):
                rows.append([*row, *[NOT_RUN] * 5])
                continue
            row += [f"{100 * float((ratio <= SLACK).mean()):.0f} %" for ratio in (own, whole)]
            row += [f"{float(np.median(own)):.2f}"]
            row += [" / ".join(f"{np.mean([r['normal'] for r in some]):.3f}" for some in (ours, theirs))]
            rows.append([*row, difference(apart)])
    head = [
        "",
        "tables x seeds",
        f"reaches Hyperband's final score within {SLACK:g} x the time it was found at",
        f"within {SLACK:g} x Hyperband's whole time",
        "median ratio of the times to that score",
        "normalised regret, ladder / Hyperband",
        "difference, mean over tables [90 % interval]",
    ]
    return table_text(head, rows or [[words, *[NOT_RUN] * 6] for words in SURROGATES.values()])


def _seeds(runs: Sequence[Record]) -> int:
    return len({r["seed"] for r in runs})


def surrogates_all_table(found: Sequence[Record]) -> str:
    """Normalised regret of all methods on the surrogates."""
    scaled = normalised(r for r in found if r["pool"] in SURROGATES)
    return _by_budget(scaled, SURROGATES, lambda r: float(r["normal"]), "normalised regret")


def graphs_table(found: Sequence[Record]) -> str:
    """Regret of all methods on NAS-Bench-Graph, in points of test accuracy, over its graphs."""
    return _by_budget(found, {"nasbench-graph": "NAS-Bench-Graph"}, regret, "points below the best")


def graphs_against_table(found: Sequence[Record]) -> str:
    """The ladder against each rival on NAS-Bench-Graph: normalised regret, with graphs as units.

    Seeds are averaged per graph, since the ladder need not have those of its rivals.
    """
    runs = Runs(normalised(r for r in found if r["pool"] == "nasbench-graph"), "nasbench-graph")
    rows = []
    for rival, words in WORDS.items():
        for budget in sorted({r["budget"] for r in runs.of(rival)}) if rival != "ladder" else ():
            ours, theirs = (_normal_by_table(runs.of(name, budget)) for name in ("ladder", rival))
            apart = np.array([ours[name] - theirs[name] for name in theirs if name in ours])
            seeds = " / ".join(str(_seeds(runs.of(name, budget))) for name in ("ladder", rival))
            levels = [f"{np.mean([*some.values()]):.3f}" if some else NOT_RUN for some in (ours, theirs)]
            rows.append(
                [
                    f"{words}, {budget / TRAINING:g} full trainings",
                    str(len(apart)),
                    seeds,
                    " / ".join(levels),
                    difference(apart),
                    non_inferior(apart),
                ]
            )
    head = [
        "the ladder against", "graphs", "seeds, ladder / rival", "normalised regret, ladder / rival",
        "difference, mean over graphs [90 % interval]", f"non-inferior (upper bound <= {MARGIN:g})",
    ]  # fmt: skip
    return table_text(head, rows or [[words, *[NOT_RUN] * 5] for words in WORDS.values()])


def _normal_by_table(runs: Sequence[Record]) -> dict[str, float]:
    """Mean normalised regret over seeds, by table."""
    found: dict[str, list[float]] = {}
    for r in runs:
        found.setdefault(r["table"], []).append(r["normal"])
    return {name: float(np.mean(some)) for name, some in found.items()}


def _by_budget(
    found: Sequence[Record], pools: Mapping[str, str], value: Callable[[Record], float], unit: str
) -> str:
    """Mean over tables of each method by pool and budget, with the standard error over tables."""
    runs = {pool: Runs(found, pool) for pool in pools}
    columns = [(p, b) for p in pools for b in sorted({r["budget"] for r in runs[p].all})]
    rows = []
    for name, words in WORDS.items():
        row = [words]
        for pool, budget in columns:
            tables: dict[str, list[float]] = {}
            for r in runs[pool].of(name, budget):
                tables.setdefault(r["table"], []).append(value(r))
            row.append(mean_error([float(np.mean(some)) for some in tables.values()]))
        if set(row[1:]) != {NOT_RUN}:
            rows.append(row)
    head = [f"searched by; {unit}", *(f"{pools[p]}, {b / TRAINING:g} full trainings" for p, b in columns)]
    return table_text(head, rows or [[words, *[NOT_RUN] * len(columns)] for words in WORDS.values()])


SEARCH_TABLES: Mapping[str, Callable[[Sequence[Record]], str]] = {
    "search-cifar10": cells_table("nas201-cifar10"),
    "search-cifar10-rungs": rungs_table("nas201-cifar10"),
    "search-part": cells_table("nas201-cifar10-part"),
    "search-part-rungs": rungs_table("nas201-cifar10-part"),
    "search-five-rungs": rungs_table("nas201-cifar10-five"),
    "search-cifar100": cells_table("nas201-cifar100"),
    "search-cifar100-rungs": rungs_table("nas201-cifar100"),
    "search-imagenet16": cells_table("nas201-imagenet16"),
    "search-surrogates": surrogates_table,
    "search-surrogates-all": surrogates_all_table,
    "search-graphs": graphs_table,
    "search-graphs-against": graphs_against_table,
}
"""The tables by name."""
