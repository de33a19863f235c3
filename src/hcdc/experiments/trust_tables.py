"""Tables of protocol ``trust-calibration``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from hcdc.evaluation.trust import LEVEL
from hcdc.experiments.markdown import table_text
from hcdc.experiments.trust_calibration import HIGH

Record = dict[str, Any]

CASES = {
    "nasbench201": "NAS-Bench-201: copy, 12 epochs",
    "nasbench-graph": "NAS-Bench-Graph: other graphs, size, latency",
    "filters": "graph filters: copies",
    "lcbench": "LCBench: fewer epochs",
    "rbv2_xgboost": "boosted trees: fewer rows",
}


def trust_table(found: Sequence[Record]) -> str:
    """Coverage and width of 90 % intervals, and how often "trust" is said, per benchmark and design."""
    rows = []
    for record in sorted((r for r in found if r["design"] != "dimensions"), key=_order):
        control = "" if record["control"] == "none" else f", {record['control']}"
        rows.append(
            [
                CASES[record["case"]] + control,
                record["design"],
                str(record["probes"]),
                *(_covered(record[name]) for name in ("spearman", "survivors", "fisher", "bootstrap")),
                *(_percent(record[name]) for name in ("trust_if_high", "trust_if_bad")),
                _share(record["trust_wrong"], record["cases"]["trusted"]),
            ]
        )
    head = ["stand-ins", "probes drawn", "probes", "coverage / width", "among survivors"]
    head += ["Fisher, Bonett-Wright", "bootstrap", "trusted if .9 or more", "trusted if below .7"]
    return table_text([*head, "trusted cases below .7"], rows)


def dimensions_table(found: Sequence[Record]) -> str:
    """Coverage of the intervals of tau, and how often a dimension is chosen on the stand-in."""
    rows = [
        [
            CASES[record["case"]],
            str(record["probes"]),
            _covered(record["tau"]),
            _covered(record["tau_of_importance_above_.02"]),
            *(_percent(record[n]) for n in ("choose_here", "choose_here_wrong", "choose_here_if_high")),
        ]
        for record in found
        if record["design"] == "dimensions"
    ]
    head = ["stand-ins", "audits", "coverage / width", "importance above .02", '"choose here"']
    return table_text([*head, "wrong (tau below .7)", "said if tau is .9 or more"], rows)


POOLS = {
    "nas201-cifar10": "CIFAR-10 cells",
    "lcbench": "LCBench",
    "rbv2_xgboost": "boosted trees",
    "flights": "flights",
    "physics": "graph networks, Physics",
    "physics-filters": "graph filters, Physics",
    "resnet": "small ResNet",
}
"""Pools of protocol ``search-trust`` in words."""


ENOUGH, MANY = 5, 13
"""Audits from which all searches are summed up: where an interval says something, and the upper end."""


def searches_table(found: Sequence[Record]) -> str:
    """Coverage of the intervals that searches report, by pool, budget and what they are measured against."""
    groups: dict[tuple[int, float, bool], list[Record]] = {}
    for record in found:
        for row in record["stand_ins"]:
            key = list(POOLS).index(record["pool"]), record["budget"], row["against"] == "full"
            groups.setdefault(key, []).append(row)
    rows = []
    for (pool, budget, last), some in sorted(groups.items()):
        words = f"{list(POOLS.values())[pool]}, {budget:g} s"
        rows.append(_line(words, "full trainings" if last else "the next stand-in", some))
    for least in (ENOUGH, MANY):
        if some := [r for each in groups.values() for r in each if r["probes"] >= least]:
            rows.append(_line(f"all of these with at least {least} audits", "either", some))
    head = ["search", "a stand-in against", "stand-ins", "audits, median", "coverage / width"]
    head += ["coverage if promoted candidates counted", "trusted if .9 or more", "trusted cases below .7"]
    return table_text(head, rows)


def _line(words: str, against: str, some: Sequence[Record]) -> list[str]:
    """The cells of a row about some stand-ins."""
    trusted, high = [r for r in some if _trusted(r)], [r for r in some if r["truth"] >= HIGH]
    wrong = [r for r in trusted if r["truth"] < LEVEL]
    width = np.median([r["interval"][1] - r["interval"][0] for r in some])
    return [
        words,
        against,
        f"{len(some):,}",
        f"{np.median([r['probes'] for r in some]):g}",
        f"{_held(some, 'interval')} / {width:.2f}",
        _held(some, "of_all_scored"),
        _percent(sum(map(_trusted, high)) / len(high) if high else None),
        _share(len(wrong) / len(trusted) if trusted else None, len(trusted)),
    ]


def _trusted(row: Record) -> bool:
    return bool(row["verdict"] == "trust")


def _held(rows: Sequence[Record], name: str) -> str:
    """The share of intervals that hold the truth."""
    held = [r[name][0] <= r["truth"] <= r[name][1] for r in rows if name in r]
    return _percent(sum(held) / len(held) if held else None)


def _order(record: Record) -> tuple[Any, ...]:
    controls = ("none", "shuffled", "shifted")
    kind = controls.index(record["control"]), list(CASES).index(record["case"])
    return (*kind, record["design"] == "chosen", record["probes"])


def _covered(part: Record) -> str:
    return f"{100 * part['coverage']:.0f} % / {part['width']:.2f}"


def _share(share: float | None, of: int) -> str:
    """A share and what it is a share of."""
    return "-" if share is None else f"{_percent(share)} of {of:,}"


def _percent(share: float | None) -> str:
    return "-" if share is None else f"{100 * share:.0f} %"
