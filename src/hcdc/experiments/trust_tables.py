"""Tables of protocol ``trust-calibration``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hcdc.experiments.markdown import table_text

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
