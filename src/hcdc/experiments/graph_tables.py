"""Tables of protocols ``filters-80`` and ``gnn-zoo``: graph candidates ranked on copies and by rivals."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Any

from hcdc.core.ranks import mean_interval, spearman
from hcdc.experiments.markdown import table_text

Record = dict[str, Any]
Key = tuple[str, int]

PAPER = {
    ("cora", 35): 0.80, ("cora", 70): 0.85, ("cora", 140): 0.90,
    ("citeseer", 30): 0.79, ("citeseer", 60): 0.83, ("citeseer", 120): 0.89,
}  # fmt: skip
COLUMNS = list(PAPER)

COPIES = {
    "hcdc": "**HCDC**, `both` (aligned and anchored, 192 trainings)",
    "hcdc-aligned": "HCDC, hypergradients alone",
    "random": "random",
    "reach": "random, joined by reach",
    "kcenter": "K-Center",
    "herding": "Herding",
    "gcondx": "GCond-X + random validation nodes",
    "gcond": "GCond + random validation nodes",
}
RIVALS = {
    "random-val": "same S_train, random validation nodes, by accuracy",
    "random-val-loss": "same S_train, random validation nodes, by loss",
    "random-reach-val-loss": "same S_train, S_val before learning, by loss",
    "real-val": "same S_train, the whole real validation set, by accuracy",
    "real-val-loss": "same S_train, the whole real validation set, by loss",
    "ridge-probes": "kernel ridge on the same full trainings",
    "ridge-and-real-val": "that ridge and the real validation loss, equal weights",
    "early-stopping": "full data, one seed, as many example visits as the copy",
    "one-seed-full": "full data, one-seed training",
    "parameter-count": "number of parameters",
}
SHOWN = ("real-val-loss",)
"""Rivals that have a row even if they were not run."""


def key(record: Record) -> Key:
    """Data set and size of a record."""
    return str(record["dataset"]), int(record["train_size"])


def head(columns: Sequence[Key]) -> list[str]:
    return [f"{dataset.capitalize()} {size}" for dataset, size in columns]


def rival_name(rival: Record) -> str:
    """The name of a recorded rival; ``equal-cost`` once stopped at one whole training with one seed."""
    older = rival["name"] == "equal-cost" and "whole seeds" not in str(rival.get("description", ""))
    return "one-seed-full" if older else str(rival["name"])


def scores(found: Sequence[Record], figure: str = "spearman") -> dict[str, dict[Key, dict[int, float]]]:
    """``{method or rival: {(data set, size): {seed: figure}}}``; the last record per seed counts."""
    table: dict[str, dict[Key, dict[int, float]]] = defaultdict(lambda: defaultdict(dict))
    for record in found:
        value = record.get(figure)
        table[record["label"]][key(record)][record["seed"]] = math.nan if value is None else value
        for rival in record["rivals"]:
            value = rival.get(figure)
            table[rival_name(rival)][key(record)][record["seed"]] = math.nan if value is None else value
    return table


def cell(values: Sequence[float], digits: int = 3) -> str:
    """Mean and half its 90 % interval over seeds."""
    if not values:
        return "not run"
    if any(math.isnan(v) for v in values):
        return "undefined"
    mean, interval = mean_interval(values)
    text = f"{mean:.{digits}f}"
    if not math.isnan(interval.low):
        text += f" ± {interval.high - mean:.{digits}f}"
    return text if len(values) >= 5 else f"{text} ({len(values)} of 5 seeds)"


def ours(found: Sequence[Record], column: Key) -> list[Record]:
    """HCDC's records for a column."""
    return [r for r in found if r["label"] == "hcdc" and key(r) == column]


def timed(found: Sequence[Record]) -> list[Record]:
    """The records whose seconds can be averaged: those of the version that most were timed with.

    Later versions break even against the one-seed training and name it; they ran on another, quicker day.
    """
    kinds = [r.get("break_even_against") for r in found]
    return [r for r, kind in zip(found, kinds) if kind == max(kinds, key=kinds.count)]


def _mean(found: Sequence[Record], figure: Callable[[Record], float]) -> float:
    return sum(figure(r) for r in found) / len(found)


def _spent(record: Record) -> float:
    """Seconds for condensing and for ranking all candidates on the copy."""
    return float(record["condense_seconds"] + record["proxy_seconds"])


def _rival_seconds(record: Record, name: str) -> float:
    """Seconds in which a rival ranks all candidates."""
    (each,) = (v["seconds_per_candidate"] for v in record["rivals"] if rival_name(v) == name)
    return float(each * record["candidates"])


def _percent(shares: Sequence[float]) -> str:
    """``10 - 13 %``, or one number if both round to it."""
    bounds = sorted({f"{100 * min(shares):.0f}", f"{100 * max(shares):.0f}"}, key=int)
    return f"{' - '.join(bounds)} % of HCDC's seconds"


def _with_share(name: str, found: Sequence[Record]) -> str:
    """A rival's description; full-data trainings add their share of HCDC's seconds."""
    if name not in ("early-stopping", "one-seed-full"):
        return RIVALS[name]
    groups = [timed(ours(found, column)) for column in dict.fromkeys(key(r) for r in found)]
    shares = [_mean(g, lambda r: _rival_seconds(r, name)) / _mean(g, _spent) for g in groups if g]
    return f"{RIVALS[name]} ({_percent(shares)})" if shares else RIVALS[name]


def _same_seconds(found: Sequence[Record]) -> tuple[str, dict[Key, str]]:
    """What HCDC's total seconds buy on the full data: a description, and the result per column.

    If they suffice for all candidates with as many seeds as the truth, the ranking is the truth itself.
    """
    groups = {column: timed(ours(found, column)) for column in dict.fromkeys(key(r) for r in found)}
    shares = {c: _mean(g, lambda r: r["full_seconds"]) / _mean(g, _spent) for c, g in groups.items() if g}
    fits = {c: "1 by definition" if share <= 1 else "not run" for c, share in shares.items()}
    words = "full data, the same total seconds"
    if shares and max(shares.values()) <= 1:
        words += f": the three-seed truth itself ({_percent(list(shares.values()))})"
    return words, fits


def agreement_table(found: Sequence[Record]) -> str:
    """Spearman's correlation with the full-data ranking: mean and half 90 % interval over seeds."""
    table = scores(found)
    rows = [["the paper's HCDC", *(f"{PAPER[c]:.2f}" for c in COLUMNS)]]
    for name in (*COPIES, *RIVALS):
        if name in table or name in SHOWN:
            words = COPIES.get(name) or _with_share(name, _in_columns(found))
            rows.append([words, *(cell(list(table[name].get(c, {}).values())) for c in COLUMNS)])
        if name == "one-seed-full" and name in table:
            words, fits = _same_seconds(_in_columns(found))
            rows.append([words, *(fits.get(c, "not run") for c in COLUMNS)])
    return table_text(["ranked by", *head(COLUMNS)], rows)


def _in_columns(found: Sequence[Record]) -> list[Record]:
    return [r for r in found if key(r) in PAPER]


def gain_table(found: Sequence[Record]) -> str:
    """How much higher HCDC's correlation is, paired over seeds: mean and 90 % interval."""
    table = scores(found)
    rows = []
    for name, words in {**COPIES, **RIVALS}.items():
        if name == "hcdc" or name not in table:
            continue
        row = [words]
        for column in COLUMNS:
            other, mine = table[name].get(column, {}), table["hcdc"].get(column, {})
            gains = [mine[seed] - other[seed] for seed in sorted(mine.keys() & other.keys())]
            if not gains or any(math.isnan(g) for g in gains):
                row.append("undefined" if gains else "not run")
                continue
            mean, interval = mean_interval(gains)
            bounds = f" [{interval.low:+.3f}, {interval.high:+.3f}]" if len(gains) > 1 else ""
            row.append(f"{mean:+.3f}{bounds}" + ("" if len(gains) >= 5 else f" ({len(gains)} of 5 seeds)"))
        rows.append(row)
    return table_text(["HCDC's gain over", *head(COLUMNS)], rows)


def by_test_table(found: Sequence[Record]) -> str:
    """Spearman's correlation with test accuracy instead of validation accuracy, over seeds.

    Every record holds the scores of its copy. Only later ones hold those of the rivals, so these have fewer
    seeds.
    """
    table: dict[str, dict[Key, dict[int, float]]] = defaultdict(lambda: defaultdict(dict))
    for r in found:
        table[r["label"]][key(r)][r["seed"]] = spearman(r["test"], r["proxy"])
        if r["label"] == "hcdc":
            table["truth"][key(r)][r["seed"]] = spearman(r["test"], r["truth"])
        for rival in r["rivals"]:
            if rival.get("test_spearman") is not None:
                table[rival_name(rival)][key(r)][r["seed"]] = rival["test_spearman"]
    own = "validation accuracy on the full data, three seeds"
    rows = [
        [words, *(cell(list(table[name].get(c, {}).values())) for c in COLUMNS)]
        for name, words in {"truth": own, **COPIES, **RIVALS}.items()
        if name in table
    ]
    return table_text(["ranked by", *head(COLUMNS)], rows)


def pick_table(found: Sequence[Record]) -> str:
    """Test accuracy of each copy's pick minus that of the full data's pick, in points."""
    table, best = scores(found, "selected_test_accuracy"), scores(found, "best_test_accuracy")
    rows = []
    for name, words in {**COPIES, **RIVALS}.items():
        if name not in table:
            continue
        row = [words]
        for column in COLUMNS:
            mine, full = table[name].get(column, {}), best["hcdc"].get(column, {})
            row.append(cell([100 * (mine[s] - full[s]) for s in sorted(mine.keys() & full.keys())], 2))
        rows.append(row)
    full_row = ["full data's own pick, test accuracy %"]
    full_row += [cell([100 * v for v in best["hcdc"].get(c, {}).values()], 2) for c in COLUMNS]
    return table_text(["test accuracy of the pick, points", *head(COLUMNS)], [full_row, *rows])


def cost_table(found: Sequence[Record]) -> str:
    """Seconds for HCDC and for three ways to train on the full data, and the trials from which HCDC pays off.

    Against three seeds this is the mean of the recorded numbers; otherwise it follows from mean seconds.
    """
    rows = []
    for column in COLUMNS:
        mine = timed(ours(found, column))
        if not mine:
            continue
        making = _mean(mine, lambda r: r["condense_seconds"])
        trial = _mean(mine, lambda r: r["proxy_seconds_per_candidate"])
        full = [_mean(mine, lambda r: r["full_seconds_per_candidate"])]
        full += [
            _mean(mine, lambda r, name=name: _rival_seconds(r, name) / r["candidates"])  # type: ignore[misc]
            for name in ("one-seed-full", "early-stopping")
        ]
        recorded = [r["break_even_trials"] for r in mine]
        pays = ["never" if None in recorded else f"{sum(recorded) / len(recorded):.0f}"]
        pays += [f"{making / (one - trial):,.0f}" if one > trial else "never" for one in full[1:]]
        seconds = [f"{making:.0f}", f"{trial:.3f}", *(f"{one:.3f}" for one in full)]
        rows.append([f"{column[0].capitalize()} {column[1]}", *seconds, *pays])
    ways = ("three seeds", "one seed", "one seed, as many visits as the copy")
    names = ["", "seconds to condense", "a trial on the copy", *(f"full training, {way}" for way in ways)]
    return table_text([*names, *(f"pays from trial, against {way}" for way in ways)], rows)


def others_table(found: Sequence[Record]) -> str:
    """Other graphs, with default settings and one seed: the result of every ranking."""
    rows = []
    for r in found:
        if (r["protocol"] == "filters-80" and key(r) in PAPER) or r["label"] == "hcdc-weighted":
            continue
        low, high = r["interval"]
        name = f"{r['dataset']}, {r['train_size']} nodes"
        copy = str(COPIES.get(r["label"], r["label"]))
        entries = [(copy, r["spearman"], f"[{low:.2f}, {high:.2f}]", r)]
        entries += [
            (_with_share(rival_name(v), [r]), v["spearman"], "", v)
            for v in r["rivals"]
            if rival_name(v) in RIVALS
        ]
        for words, value, interval, entry in entries:
            if value is None:
                continue
            pick = 100 * (entry["selected_test_accuracy"] - r["best_test_accuracy"])
            rows.append([name, words, f"{value:.3f} {interval}".strip(), f"{pick:+.1f}"])
        if r["label"] == "hcdc":
            words, fits = _same_seconds([r])
            rows.append([name, words, fits[key(r)], "+0.0" if fits[key(r)] != "not run" else ""])
    return table_text(
        ["graph", "ranked by", "Spearman (90 % interval over candidates)", "pick, points"], rows
    )


OBJECTIVES = {
    "landscape": "**HCDC**, `landscape`: S_val follows a Gaussian process",
    "process": "rival: that Gaussian process, no copy",
    "landscape-random": "HCDC, `landscape` with trainings at random lambdas",
    "process-random": "rival: that Gaussian process, no copy",
    "landscape-values": "HCDC, the same without hypergradients",
    "process-values": "rival: that Gaussian process, no copy",
    "both": "HCDC, `both`: hypergradients aligned, values as anchors",
    "values": "HCDC, values alone as anchors",
    "aligned": "HCDC, hypergradients alone aligned",
    "ridge": "rival: kernel ridge on the same trainings",
    "subset": "rival: as many of the candidates trained instead, the others tied",
}
TRUTHS = {"spearman": "validation", "test_spearman": "test"}
Found = dict[tuple[Key, str], dict[int, float]]


def trainings_table(found: Sequence[Record]) -> str:
    """Spearman's correlation of protocol ``graphs-cost``, per number and length of original trainings."""
    table: dict[tuple[int, float, str], Found] = defaultdict(lambda: defaultdict(dict))
    rivals: dict[str, Found] = defaultdict(lambda: defaultdict(dict))
    for r in found:
        spent = r["trainings"], r.get("length", 1.0)
        for name, entry in _ranked(r):
            for figure in TRUTHS:
                _put(table[*spent, name][key(r), figure], r["seed"], entry.get(figure))
        _put(table[*spent, r["objective"]][key(r), "cpu_seconds"], r["seed"], r["cpu_seconds"])
        for figure in TRUTHS:
            both = rivals["192 trainings: `both`, recorded"]
            _put(both[key(r), figure], r["judge_seed"], r["recorded"][figure])
            for name, rival in r["rivals"].items():
                words = str(rival["description"]).partition(":")[0]
                if rival_name({**rival, "name": name}) == "one-seed-full":
                    words = RIVALS["one-seed-full"]
                drawn = "seed" if name.startswith("real-val") else "judge_seed"  # others have no S_train
                _put(rivals[f"rival: {words}"][key(r), figure], r[drawn], rival[figure])
    columns = sorted(
        dict.fromkeys(key(r) for r in found), key=lambda c: COLUMNS.index(c) if c in PAPER else 99
    )
    order = sorted(table, key=lambda row: (row[0], -row[1], list(OBJECTIVES).index(row[2])))
    rows = [
        [f"{n:,}" if length == 1 else f"{n:,}, {100 * length:g} % of the steps", OBJECTIVES[name],
         *_cells(table[n, length, name], columns)]
        for n, length, name in order
    ]  # fmt: skip
    rows += [["", words, *_cells(by_column, columns)] for words, by_column in rivals.items()]
    names = [f"{graph}, {words}" for graph in head(columns) for words in (*TRUTHS.values(), "CPU s")]
    return table_text(["trainings", "ranked by", *names], rows or [["not run"]])


def _ranked(record: Record) -> list[tuple[str, Record]]:
    """The rankings that used the trainings of a record, by their key in `OBJECTIVES`."""
    objective = str(record["objective"])
    process = objective.replace("landscape", "process")
    some = {objective: record, process: record["process"], "ridge": record["ridge"]}
    some["subset"] = record["subset"]
    return [(name, entry) for name, entry in some.items() if entry is not None]


def _put(place: dict[int, float], seed: int, value: float | None) -> None:
    if value is not None and not math.isnan(value):
        place[seed] = value


def _cells(by_column: Found, columns: Sequence[Key]) -> list[str]:
    cells = []
    for c in columns:
        figures = [list(by_column[c, figure].values()) for figure in TRUTHS]
        cells += [cell(values) if values else "" for values in figures]
        seconds = list(by_column[c, "cpu_seconds"].values())
        cells.append(f"{sum(seconds) / len(seconds):.0f}" if seconds else "")
    return cells
