"""Tables of ``graphs-pay`` and ``graphs-pay-picks``: what copies of a graph cost, and what they pick."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hcdc.experiments.graph_pays import break_even
from hcdc.experiments.markdown import table_text

Record = dict[str, Any]

SPACES = {"filters": "filters", "gcn": "GCN"}
SPLITS = {"own": "20 a class", "60": "60 / 20 / 20"}
SEARCHED = {"filters": "filters", "gnns": "graph networks"}
COPIES = {"landscape": "learned (`landscape`)", "random": "random 5 %"}


def pays_table(found: Sequence[Record]) -> str:
    """A row for each graph, split, space and copy; the last record counts."""
    last = {(r["dataset"], r["split"], r["space"], copy): r for r in found for copy in r["copies"]}
    rows = []
    for (dataset, split, space, copy), r in last.items():
        price = r["copies"][copy]
        where = f"generated, {r['fraction']:.0%} of Reddit2's size" if r["fraction"] else dataset
        parts = f"{SPLITS[split]}, {r['train']:,}" if not r["fraction"] else f"{r['train']:,}"
        even = [break_even(price["condense"], price["trial"], r[other]) for other in ("full", "short")]
        rows.append(
            [
                where, parts, SPACES[space], f"{r['full']:,.1f}", f"{r['short']:,.1f}",
                f"{COPIES[copy]}, {price['nodes']:,} nodes", f"{price['condense']:,.0f}",
                f"{price['trial']:,.2f}",
                *("never" if some is None else f"{some:,}" for some in even),
            ]
        )  # fmt: skip
    head = ["graph", "training nodes", "space", "full training, s", "a tenth of its steps, s", "copy"]
    head += ["making it, s", "a trial on it, s", "pays from trial, against full", "against a tenth"]
    return table_text(head, rows or [["not run"]])


def picks_table(found: Sequence[Record]) -> str:
    """What the same seconds pick on copies and elsewhere, mean over seeds."""
    searches: dict[tuple[str, ...], dict[int, Record]] = {}
    for r in found:
        key = r["dataset"], r.get("split", ""), r["space"], r["copy"]
        searches.setdefault(key, {})[r.get("seed", 0)] = r  # the last record of a seed counts
    rows = []
    for (dataset, split, space, copy), seeds in searches.items():
        some = list(seeds.values())
        where = ", ".join(filter(None, [dataset, SPLITS.get(split, ""), SEARCHED[space]]))
        spent = sum(r["seconds"] for r in some) / len(some)
        for name in some[0]["ways"]:
            kind, _, share = name.partition(":")
            words = {"copy": COPIES[copy], "full": "full training", "short": f"{share} of the steps"}[kind]
            ways = [r["ways"][name] for r in some]
            trials, test = (sum(way[key] for way in ways) / len(ways) for key in ("trials", "test"))
            low, high = min(way["low"] for way in ways), max(way["high"] for way in ways)
            reached = f"{100 * test:.2f} [{100 * low:.2f}, {100 * high:.2f}]"
            rows.append([where, f"{spent:,.0f}", words, f"{trials:.0f} of {some[0]['trials']}", reached])
    head = ["search", "CPU seconds in all", "tried by", "trials", "test accuracy of the pick, %"]
    return table_text(head, rows or [["not run"]])
