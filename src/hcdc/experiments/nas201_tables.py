"""The tables of protocol ``nas201``, from its records: resampled draws of 100 cells, intervals, costs.

    python -m hcdc.experiments.nas201_tables records/nas201-cifar10.jsonl docs/results.md README.md

A table is written between ``<!-- nas201-cifar10 -->`` and its end. ``nas201-cifar10-short`` has fewer
columns, ``nas201-cifar10-some`` every row on the cells that judged all of them, ``nas201-cifar10-copies`` the
copies of other methods by recipe and metric. These are of the recipe's 16 initialisations; after
``nas201-cifar10`` may stand ``-eight`` (8 of them), ``-total`` (the paper's split, in which S_train and S_val
have 50 images a class together) or ``-steps`` (a recipe whose steps were given). ``--figures FOLDER`` draws
one draw of 100 cells in the order of each row.

All rows of a table are judged on the same draws of 100 cells. What costs nothing beyond the probes
(regressions on them, the best of them) is made here from what the records say.
"""

from __future__ import annotations

import argparse
import functools
import itertools
import math
import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from hcdc.condensers import rank_targets
from hcdc.core import records
from hcdc.core.errors import InputError
from hcdc.core.files import write_atomic
from hcdc.core.ranks import spearman, standard
from hcdc.core.results import Evaluation
from hcdc.core.ridge import ridge
from hcdc.core.seeds import numpy_stream
from hcdc.experiments._command import as_command
from hcdc.experiments.nas201 import PROTOCOL
from hcdc.experiments.tables import table_text
from hcdc.reporting import rank_colours
from hcdc.spaces import NASBench201

Array = NDArray[np.float64]
Record = dict[str, Any]
DRAWS, CELLS, TOP, PROMOTED, PROBES = 1000, 100, 30, 5, 20

LEARNED = {
    "hcdc-probes": "**HCDC (b)**: 200 images learned from 20 probes",
    "hcdc-both": "**HCDC (c)**: hypergradients, then 20 probes",
    "hcdc-weighted": "**HCDC (d)**: 200 weighted real images, 20 probes",
}
SHARED = {
    "hcdc-aligned": "**HCDC (a)**: 200 images learned from hypergradients alone",
    "real-val": "same S_train, real validation images (2,000 at most), by loss",
    "random-val": "random copy, 200 random validation images, by loss",
}
METRICS = {"published": "score", "calibrated": "loss"}
"""What each recipe ranks by; the other metric is in the table of copies."""
PAPER = {
    "random": -0.12, "kcenter": 0.19, "herding": -0.05, "dc": -0.21, "dsa": -0.33, "dm": -0.10, "kip": -0.27,
    "tm": -0.07,
}  # fmt: skip
"""Spearman's correlations of HCDC's paper, 100 cells of CIFAR-10."""
NAMES = {"kcenter": "K-Center", "herding": "Herding"} | {
    m: m.upper() for m in ("dc", "dsa", "dm", "kip", "tm")
}
WORDS = {"score": "accuracy", "loss": "loss"}
RIDGE = "ridge on operation counts and parameters, 20 probes"
SUM, ONE = "(sum of two scores)", "(one regression)"
"""How a row uses two things: their standard scores are added, or the ridge has the loss as a feature."""
INITIALISATIONS = {16: "", 8: "-eight"}
KINDS = (*INITIALISATIONS.values(), "-total", "-steps")
"""Of the usual recipe, of 8 initialisations, of the paper's split, of a recipe with other steps."""
EARLY = "12 epochs on the full data (table)"
ALL = "all trained for 200 epochs on the full data (table)"


@dataclass(frozen=True)
class Ranking:
    """One ranking of the (first) judging cells.

    Attributes:
        scores: Higher is better ``[n]``.
        search: Seconds of a search over 100 cells on the copy, its making included.
        full: Seconds of trainings on the full data by the benchmark's clock: of the probes, or of 12 epochs.
        known: Validation and test accuracy of the best probe, where there are probes.
        seed, draw: Of the condensation and of its probes; None where there are none.
    """

    scores: Array
    search: float
    full: float = 0.0
    known: tuple[float, float] | None = None
    seed: int | None = None
    draw: int | None = None


def rankings(found: Sequence[Record]) -> tuple[Record, dict[str, list[Ranking]]]:
    """The truth's record, and the rankings of each row.

    Where no copy was judged by all cells, those that judged none are left out of both.
    """
    truths = [r for r in found if r["label"] == "truth"]
    if not truths:
        raise InputError("the records do not say what the table has of the judging cells (label 'truth')")
    if any(r["cells"] != truths[0]["cells"] for r in truths):
        raise InputError("the records have more than one set of judging cells; give those of one protocol")
    sizes = {(r["train_size"], r["val_size"]) for r in found}
    if len(sizes) > 1:
        raise InputError(
            f"the records are of copies of more than one size: {sorted(sizes)}; give those of one"
        )
    base = truths[0]
    judged = max((len(_losses(r)) for r in found if r["label"] != "truth"), default=len(base["val"]))
    base = {key: value[:judged] if isinstance(value, list) else value for key, value in base.items()}
    rows: dict[str, list[Ranking]] = {}

    def add(
        name: str,
        scores: Array,
        search: float,
        full: float = 0.0,
        known: tuple[float, float] | None = None,
        of: Record | None = None,
    ) -> None:
        run = of or {}
        one = Ranking(scores, search, full, known, run.get("seed"), run.get("draw"))
        rows.setdefault(name, []).append(one)

    trial = float(np.mean(base["seconds"]))
    add("number of parameters", np.asarray(base["parameters"], float), 0.0)
    early, early_seconds = np.asarray(base["val12"]), CELLS * trial * 12 / 200
    add(EARLY, early, 0.0, early_seconds)
    add(ALL, np.asarray(base["val"]), 0.0, CELLS * trial)
    features = np.asarray(base["features"], float)
    shared = {
        (r["label"], r["seed"], r.get("train_method", "random")): r for r in found if r["label"] in SHARED
    }
    for r in found:
        if r["label"] == "truth":
            continue
        cells, search = len(_losses(r)), _search(r)
        made = r.get("train_method", "random")
        by = "" if made == "random" else f" (S_train by {made})"
        if r["label"] in SHARED:
            loss = -np.asarray(r["loss"])
            add(_sized(SHARED[r["label"]], r) + by, loss, search, of=r)
            if r["label"] == "real-val":
                name = f"12 epochs + real validation loss {SUM}{by}"
                add(name, standard(early[:cells]) + standard(loss), search, early_seconds, of=r)
        elif r["label"] not in LEARNED:
            metric = METRICS[r["recipe_name"]]
            name = f"{NAMES.get(r['label'], r['label'])} copy, {r['recipe_name']} recipe, by {WORDS[metric]}"
            add(name, _scores(r, metric), search, of=r)
        else:
            best = max(range(len(r["probes"])), key=lambda i: r["probe_scores"][i])
            known = (r["probe_scores"][best], r["probe_tests"][best])
            proxy = -np.asarray(r["loss"])
            add(_sized(LEARNED[r["label"]], r) + by, proxy, search, r["probe_seconds"], known, of=r)
            if r["label"] != "hcdc-probes":
                continue
            at = np.asarray([NASBench201().features({"cell": cell}) for cell in r["probes"]])
            target = rank_targets(r["probe_scores"]).numpy()
            here = features[:cells]
            plain = ridge(at, target, here)
            full = r["probe_seconds"]
            if not by:
                add(RIDGE, plain, 0.0, full, known, of=r)
                both = standard(plain) + standard(early[:cells])
                name = f"ridge + 12 epochs {SUM}"
                add(name, both, 0.0, full + early_seconds, known, of=r)
            for label, words in (("random-val", "the random copy's"), ("real-val", "real validation")):
                joined = np.column_stack([at, -np.asarray(r["probe_losses"][label.split("-")[0]])])
                copy = shared[label, r["seed"], made]
                loss = -np.asarray(copy["loss"])[:cells]
                fresh = np.column_stack([here, loss])
                spent = _search(copy, len(r["probes"]))  # its features of the probes are losses on the copy
                told = ridge(joined, target, fresh)
                name = f"ridge on operation counts, parameters and {words} loss {ONE}{by}"
                add(name, told, spent, full, known, of=r)
                name = f"ridge + {words} loss {SUM}{by}"
                add(name, standard(plain) + standard(loss), _search(copy), full, known, of=r)
            name = f"**HCDC (b)** + ridge {SUM}{by}"
            add(name, standard(plain) + standard(proxy), search, full, known, of=r)
            both = standard(proxy) + standard(early[:cells])
            name = f"**HCDC (b)** + 12 epochs {SUM}{by}"
            add(name, both, search, full + early_seconds, known, of=r)
    return base, rows


def _sized(name: str, r: Record) -> str:
    """A row's name with the number of validation images."""
    return name.replace("200", f"{r['val_size']:,}")


def kind_of(r: Record) -> str:
    """Which tables a record belongs to, one of `KINDS`; the first records do not say that they have 8."""
    if r.get("total"):
        return "-total"
    if r.get("steps"):
        return "-steps"
    number = r.get("initialisations") or 8
    if number not in INITIALISATIONS:
        raise InputError(f"a record has {number} initialisations; tables are of {sorted(INITIALISATIONS)}")
    return INITIALISATIONS[number]


def _scores(r: Record, metric: str, part: str = "val") -> Array:
    """What a copy says of cells, higher is better; ``part`` "real" is the real validation set."""
    values = np.asarray(r[f"{part}.{metric}"], float)
    return values if metric == "score" else -values


def _losses(r: Record) -> list[float]:
    found: list[float] = r["loss"] if "loss" in r else r["val.loss"]
    return found


def _search(r: Record, more: int = 0) -> float:
    """Seconds of making a copy and of training and scoring 100 cells and ``more`` on it."""
    making = r.get("condense_seconds", (r.get("making") or {}).get("condense_seconds", 0.0))
    cells = len(_losses(r))
    return float(making + r["judge_seconds"] * (CELLS + more) / cells)


def draws(cells: int) -> NDArray[np.int64]:
    """The draws of 100 cells ``[DRAWS, 100]``, the same for all rows that were judged on as many."""
    rng = numpy_stream(0, "nas201-draws")
    return np.stack([rng.permutation(cells)[: min(CELLS, cells)] for _ in range(DRAWS)])


def correlations(truth: Array, scores: Array) -> Array:
    """Spearman's correlations ``[...]`` of two arrays ``[..., n]``, row by row."""
    found: Array = (_ranks(truth) * _ranks(scores)).sum(-1)
    return found


def _ranks(values: Array) -> Array:
    """Ranks with mean 0 and length 1 along the last axis."""
    ranked = stats.rankdata(values, axis=-1)
    ranked -= ranked.mean(-1, keepdims=True)
    with np.errstate(invalid="ignore"):  # constant values have no correlation, which NaN says
        found: Array = ranked / np.sqrt((ranked * ranked).sum(-1, keepdims=True))
    return found


def figures(truth: Array, test: Array, ranking: Ranking) -> dict[str, Array]:
    """Figures of one ranking over the draws, ``[DRAWS]`` each.

    ``promoted``: the best by full-data validation of the first 5 of the ranking. ``equal``: of 25 that are
    trained on the full data in all, the probes and 5 promoted ones or, without probes, 25 promoted ones;
    ``random``: the same of the probes and 5 random cells; ``probes``: of the probes alone. A probe may be
    better than all cells of a draw, so regrets may be negative.
    """
    some = draws(len(ranking.scores))
    t, s, p = truth[some], test[some], ranking.scores[some]
    best = np.argsort(-t, axis=1, kind="stable")[:, :TOP]
    order = np.argsort(-p, axis=1, kind="stable")
    anyone = np.tile(np.arange(min(PROMOTED, some.shape[1])), (len(some), 1))
    probes = ranking.known is not None
    more = order[:, : PROMOTED if probes else PROMOTED + PROBES]

    def regret(chosen: NDArray[np.int64], known: tuple[float, float] | None = None) -> Array:
        """Points of test accuracy that the best by validation of some is below the best by test of all."""
        val, reached = (np.take_along_axis(values, chosen, 1) for values in (t, s))
        if known is not None:
            every = np.tile(known, (len(some), 1))
            val, reached = np.column_stack([val, every[:, 0]]), np.column_stack([reached, every[:, 1]])
        picked = np.take_along_axis(reached, val.argmax(1, keepdims=True), 1)[:, 0]
        lost: Array = 100 * (s.max(1) - picked)
        return lost

    return {
        "spearman": correlations(t, p),
        "top": correlations(np.take_along_axis(t, best, 1), np.take_along_axis(p, best, 1)),
        "regret": regret(order[:, :1]),
        "promoted": regret(order[:, :PROMOTED]),
        "equal": regret(more, ranking.known),
        "random": regret(anyone, ranking.known),
        "probes": regret(anyone[:, :0], ranking.known) if probes else np.full(len(some), np.nan),
    }


def pooled(ranked: Sequence[Ranking], values: Sequence[Any]) -> Array:
    """Values of every run in one vector, in which condensations weigh equally however many draws of probes
    each had."""
    runs = Counter(one.seed for one in ranked)
    times = math.lcm(*runs.values())
    return np.concatenate([np.tile(v, times // runs[one.seed]) for one, v in zip(ranked, values)])


def on_same_cells(
    base: Record, rows: dict[str, list[Ranking]], all_rows: bool
) -> tuple[Record, dict[str, list[Ranking]]]:
    """Runs that were judged on all cells; or all runs, on the first cells that judged every one of them."""
    counts = [len(one.scores) for ranked in rows.values() for one in ranked]
    cells = min(counts) if all_rows else max(counts)
    cut = {
        name: [replace(one, scores=one.scores[:cells]) for one in ranked if len(one.scores) >= cells]
        for name, ranked in rows.items()
    }
    cut = {name: ranked for name, ranked in cut.items() if ranked}
    return {key: value[:cells] if isinstance(value, list) else value for key, value in base.items()}, cut


def agreement(found: Sequence[Record], short: bool = False, some: bool = False) -> str:
    """One row a method: rank agreement, top 30, regret of the pick alone and after promotion, cost.

    Args:
        found: The records of one benchmark.
        short: Agreement, regrets and cost alone.
        some: All rows, on the cells that judged them all; else those that all cells judged.
    """
    base, rows = on_same_cells(*rankings(found), some)
    truth, test = np.asarray(base["val"]), np.asarray(base["test"])
    mine = _sized(LEARNED["hcdc-probes"], base)
    ours = rows.get(mine, [])
    resampled = Resampled(truth, ours)
    lines = []
    for name, ranked in rows.items():
        each = [figures(truth, test, one) for one in ranked]
        joined = {k: pooled(ranked, [e[k] for e in each]) for k in each[0]}
        mean = {k: float(v.mean()) for k, v in joined.items()}
        low, high = np.quantile(joined["spearman"], [0.05, 0.95])
        whole = pooled(ranked, [correlations(truth, one.scores) for one in ranked])
        least, most = np.quantile(joined["regret"], [0.05, 0.95])
        line = [
            name,
            _runs(ranked),
            f"{mean['spearman']:.3f} [{low:.2f}, {high:.2f}]",
            f"{float(whole.mean()):.3f}",
            "" if name == mine else resampled.gain(ranked),
            f"{mean['top']:.2f}",
            f"{mean['regret']:.2f} [{least:.2f}, {most:.2f}]",
            f"{mean['promoted']:.2f}",
            f"{mean['equal']:.2f}",
            _hours(base, ranked),
            f"{float(pooled(ranked, [r.search for r in ranked]).mean()):,.0f}",
        ]
        lines.append((mean["spearman"], line))
    text = [line for _, line in sorted(lines, key=lambda pair: -pair[0])]
    if ours:
        each = [figures(truth, test, one) for one in ours]
        own, after = (pooled(ours, [e[key] for e in each]) for key in ("probes", "random"))
        least, most = np.quantile(own, [0.05, 0.95])
        reached = f"{float(own.mean()):.2f} [{least:.2f}, {most:.2f}]"
        first, hours = f"none: the best of {PROBES} probes", _hours(base, ours)
        text.append([first, _runs(ours), "", "", "", "", reached, "", "", hours, "0"])
        words = f"{first} and {PROMOTED} random cells"
        text.append([words, _runs(ours), "", "", "", "", "", "", f"{float(after.mean()):.2f}", hours, "0"])
    head = [
        "ranked by",
        "runs",
        f"Spearman, {DRAWS:,} draws of {CELLS}: mean [5 %, 95 %]",
        f"all {len(truth)}",
        f"HCDC (b) minus it, all {len(truth)}: mean, 90 % interval of the mean",
        f"top {TOP}",
        "regret of the pick, points: mean [5 %, 95 %]",
        f"after {PROMOTED} promotions",
        f"of {PROBES + PROMOTED} full trainings, probes among them",
        "GPU hours on the full data, promotions apart",
        f"seconds of {CELLS} trials on the copy, its making included",
    ]
    columns = (0, 2, 6, 7, 8, 9, 10) if short else range(len(head))
    return table_text([head[k] for k in columns], [[line[k] for k in columns] for line in text])


def copies(found: Sequence[Record]) -> str:
    """Copies of CIFAR-10 by other methods: Spearman's correlation by recipe and metric on the copy's own
    validation images / on the real ones, the paper's beside.

    Other rankings are there for the same cells, the first ones.
    """
    base, rows = on_same_cells(*rankings(found), all_rows=True)
    truth = np.asarray(base["val"])
    mine = [r for r in found if r["label"] in PAPER]
    mine += _random_copies(found, {r["seed"] for r in mine if r["label"] == "random"})

    def own(method: str, recipe: str) -> list[Record]:
        return [r for r in mine if r["label"] == method and r["recipe_name"] == recipe]

    def cell(some: list[Record], metric: str) -> str:
        reached = [
            _mean_and_spread([correlations(truth, _scores(r, metric, part)[: len(truth)]) for r in some])
            for part in ("val", "real")
            if some
        ]
        return " / ".join(reached) or "not run"

    kinds = [(recipe, metric) for recipe in METRICS for metric in WORDS]
    lines = []
    for method, published in PAPER.items():
        seeds = [str(len({r["seed"] for r in own(method, recipe)})) for recipe in METRICS]
        shown = [cell(own(method, recipe), metric) for recipe, metric in kinds]
        lines.append([NAMES.get(method, method), " / ".join(seeds), f"{published:.2f}", *shown])
    others = (
        _sized(LEARNED["hcdc-probes"], base),
        _sized(LEARNED["hcdc-weighted"], base),
        SHARED["real-val"],
    )
    for name in (*others, RIDGE, "number of parameters", EARLY):
        if name in rows:
            whole = pooled(rows[name], [correlations(truth, one.scores) for one in rows[name]])
            ours = "0.74" if name == others[0] else ""
            lines.append([name, "", ours, "", "", "", f"{float(whole.mean()):.2f}"])
    head = ["copy", f"condensations, {' / '.join(METRICS)}", "the paper's"]
    head += [f"{recipe} recipe, {WORDS[metric]}" for recipe, metric in kinds]
    return table_text([*head[:-1], f"{head[-1]}, or as it says"], lines)


def _random_copies(found: Sequence[Record], known: set[int]) -> list[Record]:
    """Random copies of other seeds: HCDC's S_train, where it is random, with random validation images."""
    made = {
        (r["label"], r["seed"]): r
        for r in found
        if r["label"] in ("random-val", "real-val")
        and r.get("train_method", "random") == "random"
        and r["seed"] not in known
    }
    return [
        {
            "label": "random", "recipe_name": "calibrated", "seed": seed,
            **{f"val.{what}": r[what] for what in WORDS},
            **{f"real.{what}": made["real-val", seed][what] for what in WORDS},
        }
        for (label, seed), r in made.items()
        if label == "random-val"
    ]  # fmt: skip


def _mean_and_spread(values: Sequence[Any]) -> str:
    """The mean, with the standard deviation of several."""
    spread = f" ± {np.std(values, ddof=1):.2f}" if len(values) > 1 else ""
    return f"{np.mean(values):.2f}{spread}"


def _runs(ranked: Sequence[Ranking]) -> str:
    """How many rankings there are, and of how many condensations where these are fewer."""
    seeds = len({one.seed for one in ranked})
    return f"{len(ranked)}" if seeds in (1, len(ranked)) else f"{len(ranked)} of {seeds} condensations"


def _hours(base: Record, ranked: Sequence[Ranking]) -> str:
    """Mean hours on the full data; the table's clock is that of CIFAR-10 alone."""
    seconds = pooled(ranked, [one.full for one in ranked])
    known = base["dataset"] == "cifar10" or not seconds.any()
    return f"{float(seconds.mean()) / 3600:.1f}" if known else "not known"


def _in_short(name: str) -> str:
    """A row's name where there is little room."""
    for long, short in (("*", ""), (RIDGE, "ridge, 20 probes")):
        name = name.replace(long, short)
    name = re.sub(r"[\d,]+ images learned", "images learned", name)
    name = name.replace(" (2,000 at most)", "").replace(" validation images, by loss", " validation images")
    return name.replace("ridge on operation counts, parameters and", "ridge with")


def _random_joined(rows: dict[str, list[Ranking]], other: str) -> dict[str, list[Ranking]]:
    """Rows in which the random copy has the condensations of row ``other`` too, as in the table of copies."""
    name = "random copy, calibrated recipe, by loss"
    mine = rows.get(name, [])
    more = [one for one in rows.get(other, []) if one.seed not in {own.seed for own in mine}]
    return {**rows, name: [*mine, *more]} if more else rows


def _typical(truth: Array, rows: dict[str, list[Ranking]]) -> tuple[dict[str, Ranking], NDArray[np.int64]]:
    """The run of each row whose mean over the draws is nearest to the row's, and the draw in which these runs
    are nearest to the rows' means, by the sum of squares."""
    every = draws(len(truth))
    chosen, away = {}, np.zeros(len(every))
    for name, ranked in rows.items():
        reached = [correlations(truth[every], one.scores[every]) for one in ranked]
        mean = pooled(ranked, reached).mean()
        run = int(np.argmin([abs(values.mean() - mean) for values in reached]))
        chosen[name] = ranked[run]
        away += np.nan_to_num(reached[run] - mean) ** 2
    return chosen, every[away.argmin()]


def figure(found: Sequence[Record], path: str | Path, of_copies: bool = False) -> Path:
    """One draw of 100 cells in the order of one run of each row, coloured by true rank.

    Run and draw are those that stand for the means of the table best, see `_typical`.

    Args:
        of_copies: Copies of other methods beside HCDC, on the cells that judged them.
    """
    base, rows = on_same_cells(*rankings(found), all_rows=of_copies)
    left_out = [ALL]
    if of_copies:  # random images are there once, and of the sums two are enough
        name = _sized(SHARED["random-val"], base)
        rows = _random_joined(rows, name)
        left_out += [name, ONE, "the random copy's", "12 epochs +", "+ 12 epochs"]
    rows = {name: ranked for name, ranked in rows.items() if not any(part in name for part in left_out)}
    if not any(name.startswith(_sized(LEARNED["hcdc-probes"], base)) for name in rows):
        raise InputError("the figure shows HCDC (b) beside the others, and the records have no run of it")
    every = np.asarray(base["val"])
    chosen, some = _typical(every, rows)
    truth = every[some]
    named = {_in_short(name): one.scores[some] for name, one in chosen.items()}
    ours = next(name for name in named if name.startswith("HCDC (b):"))
    contenders = [
        {"name": name, "proxy": scores.tolist(), "spearman": spearman(truth, scores), "interval": None}
        for name, scores in named.items()
    ]
    mine = next(one for one in contenders if one["name"] == ours)
    others = [one for one in contenders if one is not mine]
    drawn = {**mine, "method": ours, "truth": truth.tolist(), "rivals": others}
    classes = base["dataset"].removeprefix("cifar")
    of = f"NAS-Bench-201, CIFAR-{classes}, {base['train_size'] // int(classes)} images a class"
    return rank_colours(Evaluation.from_json(drawn), path, of)


def _beside(mine: Ranking, theirs: Sequence[Ranking]) -> Sequence[Ranking]:
    """Whom a run is compared with: the same probes, or else the same condensation, or else all."""
    same = [one for one in theirs if one.seed == mine.seed]
    return [one for one in same if one.draw == mine.draw] or same or theirs


class Resampled:
    """Gains of rankings over others: Spearman's correlation on all cells, and on resampled ones.

    Args:
        truth: Full-data scores of the cells ``[n]``.
        ours: The rankings that gain.
    """

    def __init__(self, truth: Array, ours: Sequence[Ranking]):
        self.rng, count = numpy_stream(0, "nas201-resampled"), len(truth)
        self.cells = np.vstack([np.arange(count), self.rng.integers(count, size=(DRAWS, count))])
        self.truth, self.ours = _ranks(truth[self.cells]), ours
        self.reached = [self.correlations(one) for one in ours]
        by_seed: dict[int | None, list[int]] = {}
        for run, one in enumerate(ours):
            by_seed.setdefault(one.seed, []).append(run)
        self.condensations = list(by_seed.values())
        self.weight = self._mean_of(self.condensations)
        self.weights = np.stack([self._mean_of(self._drawn()) for _ in range(DRAWS)])

    def _drawn(self) -> list[list[int]]:
        """As many condensations, and of each as many of its runs, drawn with repeats."""
        count = len(self.condensations)
        lots = [self.condensations[k] for k in self.rng.integers(count, size=count)] if count else []
        return [[lot[k] for k in self.rng.integers(len(lot), size=len(lot))] for lot in lots]

    def _mean_of(self, lots: Sequence[Sequence[int]]) -> Array:
        """Weights of the runs ``[runs]`` in the mean over condensations of the means over their runs."""
        weight = np.zeros(len(self.ours))
        for lot in lots:
            np.add.at(weight, lot, 1 / (len(lot) * len(lots)))
        return weight

    def correlations(self, one: Ranking) -> Array:
        """On all cells, then on each resampled lot, ``[1 + DRAWS]``."""
        found: Array = (self.truth * _ranks(one.scores[self.cells])).sum(-1)
        return found

    def gain(self, theirs: Sequence[Ranking]) -> str:
        """Mean of the gains, pair by pair (see `_beside`), and a 90 % interval of that mean: cells,
        condensations and their draws of probes are resampled."""
        if not self.ours:
            return ""
        known = {id(one): self.correlations(one) for one in theirs}
        gains = np.stack(
            [
                mine - np.mean([known[id(other)] for other in _beside(one, theirs)], 0)
                for one, mine in zip(self.ours, self.reached)
            ]
        )
        means = (self.weights * gains[:, 1:].T).sum(1)
        low, high = np.quantile(means, [0.05, 0.95])
        return f"{float(self.weight @ gains[:, 0]):+.3f} [{low:+.3f}, {high:+.3f}]"


def written(text: str, found: Sequence[Record]) -> str:
    """A document with its tables."""
    tables: dict[str, Callable[[Sequence[Record]], str]] = {
        "": agreement,
        "-short": functools.partial(agreement, short=True),
        "-some": functools.partial(agreement, some=True),
        "-copies": copies,
    }
    for benchmark, kind, form in itertools.product(("cifar10", "cifar100"), KINDS, tables):
        mine = [r for r in found if r["dataset"] == benchmark and kind_of(r) == kind]
        name = f"nas201-{benchmark}{kind}{form}"
        start, end = f"<!-- {name} -->\n", f"<!-- /{name} -->"
        if start in text and mine:
            before, _, rest = text.partition(start)
            text = f"{before}{start}{tables[form](mine)}\n{end}{rest.partition(end)[2]}"
    return text


def main() -> None:
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=raw)
    parser.add_argument("files", nargs="+", help="records (.jsonl) and documents (.md)")
    parser.add_argument("--figures", type=Path, help="folder")
    given = parser.parse_args()
    read = [r for file in given.files if file.endswith(".jsonl") for r in records.read(file)]
    found = [r for r in read if r.get("protocol") == PROTOCOL]
    for file in given.files:
        if file.endswith(".md"):
            write_atomic(file, written(Path(file).read_text(), found))
    if given.figures is not None:
        kinds = {(r["dataset"], kind_of(r)) for r in found if kind_of(r) != "-total"}
        for benchmark, kind in sorted(kinds):
            mine = [r for r in found if (r["dataset"], kind_of(r)) == (benchmark, kind)]
            figure(mine, given.figures / f"nas201-{benchmark}{kind}.png")
            if benchmark == "cifar10" and any(r["label"] in PAPER for r in mine):
                figure(mine, given.figures / f"nas201-{benchmark}{kind}-copies.png", of_copies=True)


if __name__ == "__main__":
    as_command(main)
