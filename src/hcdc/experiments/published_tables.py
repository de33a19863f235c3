"""Tables of test accuracy on condensed sets, beside the published numbers."""

from __future__ import annotations

from collections.abc import Sequence

from hcdc.experiments.graph_tables import COLUMNS, Record, head, key
from hcdc.experiments.markdown import table_text

PUBLISHED = {
    ("cora", 35): 79.8, ("cora", 70): 80.1, ("cora", 140): 79.3,
    ("citeseer", 30): 70.5, ("citeseer", 60): 70.6, ("citeseer", 120): 69.8,
}  # fmt: skip


PUBLISHED_X = {
    ("cora", 35): 75.9, ("cora", 70): 75.7, ("cora", 140): 76.0,
    ("citeseer", 30): 71.4, ("citeseer", 60): 69.8, ("citeseer", 120): 69.4,
}  # fmt: skip


def gcn_table(found: Sequence[Record]) -> str:
    """GCond and GCond-X by the published protocol: test accuracy in percent at the best and last step."""
    rows = []
    for method, name, published in (("gcond", "GCond", PUBLISHED), ("gcondx", "GCond-X", PUBLISHED_X)):
        rows.append([f"{name}, published", *(f"{published[c]:.1f}" for c in COLUMNS)])
        for words, figure in (("ours", "test_accuracy"), ("ours, last step", "last_step_test_accuracy")):
            row = [f"{name}, {words}"]
            for column in COLUMNS:
                mine = [r for r in found if r["method"] == method and r["preset"] != "reference"]
                if method == "gcondx":
                    mine = [r for r in mine if r["seed"] >= 100]  # seed 0 was used to tune its schedule
                values = [r[figure] for r in mine if key(r) == column]
                seeds = f"{len(values)} seed{'s' if len(values) > 1 else ''}"
                row.append(f"{sum(values) / len(values):.1f} ({seeds})" if values else "not run")
            rows.append(row)
    return table_text(["2-layer GCN", *head(COLUMNS)], rows)


PUBLISHED_CONVNET = {
    "random": 43.4, "kcenter": 27.0, "herding": 40.4, "dc": 53.9, "dsa": 60.6, "dm": 63.0, "kip": 46.5,
    "tm": 71.6,
}  # fmt: skip
"""CIFAR-10, 50 images per class; TM's number was chosen on the test set."""
CONVNET_ITERATIONS = {"dc": 1000, "dsa": 1000, "dm": 20_000, "tm": 5000}
"""Iterations of complete runs."""


def convnet_table(found: Sequence[Record]) -> str:
    """ConvNet-3 on copies of CIFAR-10 by the published protocol: test accuracy in percent, last epoch.

    Incomplete runs, with fewer iterations than published, have their own rows.
    """
    rows = []
    for method, published in PUBLISHED_CONVNET.items():
        mine = [r for r in found if r["method"] == method and r["per_class"] == 50]
        made: dict[int | None, list[Record]] = {}
        for r in (r for r in mine if r["dataset"] == "cifar10"):
            whole = CONVNET_ITERATIONS.get(method)
            last = r["settings"].get("iterations", whole)
            done = last if r["iteration"] is None else r["iteration"]
            if r["iteration"] is None or done < last:  # the last iterate is recorded twice
                made.setdefault(None if done == whole else done, []).append(r)
        for done, some in sorted(made.items(), key=lambda pair: -1 if pair[0] is None else pair[0]):
            scores = [100 * v for r in some for v in r["test_accuracies"]]
            ours = f"{sum(scores) / len(scores):.1f}"
            ours += f" ({min(scores):.1f} to {max(scores):.1f})" if len(scores) > 1 else ""
            device = ", ".join(sorted({str(r["environment"]["device"]) for r in some}))
            after = "" if done is None else f", {done} of {CONVNET_ITERATIONS[method]:,} iterations"
            sets = str(len({r["seed"] for r in some}))
            rows.append([method + after, f"{published:.1f}", ours, sets, str(len(scores)), device])
        if not made:
            rows.append([method, f"{published:.1f}", "not run", "", "", ""])
    names = "method", "published", "ours (least to most)", "condensations", "networks", "networks trained on"
    return table_text(names, rows)
