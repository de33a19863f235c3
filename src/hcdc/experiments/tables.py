"""Tables in the documents, written from the records in the repository. Nobody types a result.

    python -m hcdc.experiments.tables records/*.jsonl benchmarks/records/* docs/results.md README.md

In each document the text between ``<!-- NAME -->`` and ``<!-- /NAME -->`` is replaced by table NAME.
"""

from __future__ import annotations

import json
import math
import re
import sys
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from hcdc.core import records
from hcdc.core.errors import InputError
from hcdc.core.files import write_atomic
from hcdc.core.ranks import mean_interval
from hcdc.experiments._command import as_command

Record = dict[str, Any]
Key = tuple[str, int]

PAPER = {
    ("cora", 35): 0.80, ("cora", 70): 0.85, ("cora", 140): 0.90,
    ("citeseer", 30): 0.79, ("citeseer", 60): 0.83, ("citeseer", 120): 0.89,
}  # fmt: skip
PROTOCOL_COLUMNS = list(PAPER)

COPIES = {
    "hcdc": "**HCDC** (aligned and anchored, the default)",
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
    "real-val": "same S_train, the whole real validation set",
    "real-val-loss": "same S_train, the whole real validation set, by loss",
    "ridge-probes": "kernel ridge on the same full trainings",
    "ridge-and-real-val": "that ridge and the real validation loss, equal weights",
    "early-stopping": "full data, as many example visits as the copy",
    "equal-cost": "full data, the same total seconds",
    "parameter-count": "number of parameters",
}


def load(path: str | Path) -> list[Record]:
    """The records of one protocol file."""
    return list(records.read(path))


def _key(record: Record) -> Key:
    return str(record["dataset"]), int(record["train_size"])


def scores(found: Sequence[Record], figure: str = "spearman") -> dict[str, dict[Key, dict[int, float]]]:
    """``{method or rival: {(data set, size): {seed: figure}}}``; the last record of a seed counts."""
    table: dict[str, dict[Key, dict[int, float]]] = defaultdict(lambda: defaultdict(dict))
    for record in found:
        value = record.get(figure)
        table[record["label"]][_key(record)][record["seed"]] = math.nan if value is None else value
        for rival in record["rivals"]:
            value = rival.get(figure)
            table[rival["name"]][_key(record)][record["seed"]] = math.nan if value is None else value
    return table


def _cell(values: Sequence[float], digits: int = 3) -> str:
    if not values:
        return "not run"
    if any(math.isnan(v) for v in values):
        return "undefined"
    mean, interval = mean_interval(values)
    text = f"{mean:.{digits}f}"
    if not math.isnan(interval.low):
        text += f" ± {interval.high - mean:.{digits}f}"
    return text if len(values) >= 5 else f"{text} ({len(values)} of 5 seeds)"


def table_text(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    return "\n".join([*lines, *("| " + " | ".join(row) + " |" for row in rows)])


def _head(columns: Sequence[Key]) -> list[str]:
    return [f"{dataset.capitalize()} {size}" for dataset, size in columns]


def agreement_table(found: Sequence[Record]) -> str:
    """Spearman's correlation with the full-data ranking: mean and half 90 % interval over seeds."""
    table = scores(found)
    rows = [["the paper's HCDC", *(f"{PAPER[c]:.2f}" for c in PROTOCOL_COLUMNS)]]
    for name, words in {**COPIES, **RIVALS}.items():
        if name in table:
            rows.append([words, *(_cell(list(table[name].get(c, {}).values())) for c in PROTOCOL_COLUMNS)])
    return table_text(["ranked by", *_head(PROTOCOL_COLUMNS)], rows)


def gain_table(found: Sequence[Record]) -> str:
    """How much higher HCDC's correlation is, paired over seeds: mean and 90 % interval."""
    table = scores(found)
    rows = []
    for name, words in {**COPIES, **RIVALS}.items():
        if name == "hcdc" or name not in table:
            continue
        row = [words]
        for column in PROTOCOL_COLUMNS:
            other, ours = table[name].get(column, {}), table["hcdc"].get(column, {})
            gains = [ours[seed] - other[seed] for seed in sorted(ours.keys() & other.keys())]
            if not gains or any(math.isnan(g) for g in gains):
                row.append("undefined" if gains else "not run")
                continue
            mean, interval = mean_interval(gains)
            bounds = f"[{interval.low:+.3f}, {interval.high:+.3f}]" if len(gains) > 1 else "(1 of 5 seeds)"
            row.append(f"{mean:+.3f} {bounds}")
        rows.append(row)
    return table_text(["HCDC's gain over", *_head(PROTOCOL_COLUMNS)], rows)


def pick_table(found: Sequence[Record]) -> str:
    """Test accuracy, in points, of each copy's pick minus that of the full data's own pick."""
    table, best = scores(found, "selected_test_accuracy"), scores(found, "best_test_accuracy")
    rows = []
    for name, words in {**COPIES, **RIVALS}.items():
        if name not in table:
            continue
        row = [words]
        for column in PROTOCOL_COLUMNS:
            ours, full = table[name].get(column, {}), best["hcdc"].get(column, {})
            row.append(_cell([100 * (ours[s] - full[s]) for s in sorted(ours.keys() & full.keys())], 2))
        rows.append(row)
    full_row = ["full data's own pick, test accuracy %"]
    full_row += [_cell([100 * v for v in best["hcdc"].get(c, {}).values()], 2) for c in PROTOCOL_COLUMNS]
    return table_text(["test accuracy of the pick, points", *_head(PROTOCOL_COLUMNS)], [full_row, *rows])


def cost_table(found: Sequence[Record]) -> str:
    """Seconds of HCDC and of the full data, as recorded (ten runs shared the device, see the text)."""
    rows = []
    for column in PROTOCOL_COLUMNS:
        chosen = [r for r in found if r["label"] == "hcdc" and _key(r) == column]
        if not chosen:
            continue

        def mean(name: str, among: list[Record] = chosen) -> float:
            return float(sum(r[name] for r in among)) / len(among)

        trials = [r["break_even_trials"] for r in chosen]
        pays = "never" if any(t is None for t in trials) else f"{sum(trials) / len(trials):.0f}"
        rows.append(
            [
                f"{column[0].capitalize()} {column[1]}",
                f"{mean('condense_seconds'):.0f}",
                f"{mean('proxy_seconds_per_candidate'):.3f}",
                f"{mean('full_seconds_per_candidate'):.3f}",
                pays,
            ]
        )
    head = [
        "",
        "seconds to condense",
        "a trial on the copy",
        "a trial on the full data",
        "trials from which it pays",
    ]
    return table_text(head, rows)


PUBLISHED = {
    ("cora", 35): 79.8, ("cora", 70): 80.1, ("cora", 140): 79.3,
    ("citeseer", 30): 70.5, ("citeseer", 60): 70.6, ("citeseer", 120): 69.8,
}  # fmt: skip


PUBLISHED_X = {
    ("cora", 35): 75.9, ("cora", 70): 75.7, ("cora", 140): 76.0,
    ("citeseer", 30): 71.4, ("citeseer", 60): 69.8, ("citeseer", 120): 69.4,
}  # fmt: skip


def gcn_table(found: Sequence[Record]) -> str:
    """GCond and GCond-X copies by the published protocol: test accuracy in percent, best and last step."""
    rows = []
    for method, name, published in (("gcond", "GCond", PUBLISHED), ("gcondx", "GCond-X", PUBLISHED_X)):
        rows.append([f"{name}, published", *(f"{published[c]:.1f}" for c in PROTOCOL_COLUMNS)])
        for words, figure in (("ours", "test_accuracy"), ("ours, last step", "last_step_test_accuracy")):
            row = [f"{name}, {words}"]
            for column in PROTOCOL_COLUMNS:
                mine = [r for r in found if r["method"] == method and r["preset"] != "reference"]
                if method == "gcondx":
                    mine = [r for r in mine if r["seed"] >= 100]  # its schedule was found on seed 0
                values = [r[figure] for r in mine if _key(r) == column]
                seeds = f"{len(values)} seed{'s' if len(values) > 1 else ''}"
                row.append(f"{sum(values) / len(values):.1f} ({seeds})" if values else "not run")
            rows.append(row)
    return table_text(["2-layer GCN", *_head(PROTOCOL_COLUMNS)], rows)


PUBLISHED_CONVNET = {
    "random": 43.4, "kcenter": 27.0, "herding": 40.4, "dc": 53.9, "dsa": 60.6, "dm": 63.0, "kip": 46.5,
    "tm": 71.6,
}  # fmt: skip
"""CIFAR-10, 50 images a class; that of TM was chosen on the test set."""
CONVNET_ITERATIONS = {"dc": 1000, "dsa": 1000, "dm": 20_000, "tm": 5000}
"""Of whole runs."""


def convnet_table(found: Sequence[Record]) -> str:
    """ConvNet-3 on copies of CIFAR-10 by the published protocol: test accuracy in percent, last epoch.

    What was measured before a run's last iteration, or after fewer than published, has a row of its own.
    """
    rows = []
    for method, published in PUBLISHED_CONVNET.items():
        mine = [r for r in found if r["method"] == method and r["per_class"] == 50]
        made: dict[int | None, list[Record]] = {}
        for r in (r for r in mine if r["dataset"] == "cifar10"):
            whole = CONVNET_ITERATIONS.get(method)
            last = r["settings"].get("iterations", whole)
            done = last if r["iteration"] is None else r["iteration"]
            if r["iteration"] is None or done < last:  # the last iterate is there twice
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
    head = ["method", "published", "ours (least to most)", "condensations", "networks", "networks trained on"]
    return table_text(head, rows)


def others_table(found: Sequence[Record]) -> str:
    """Graphs beyond the protocol's two, default settings, one seed: what every ranking reached."""
    rows = []
    for r in found:
        if r["protocol"] == "filters-80" and _key(r) in PAPER:
            continue
        low, high = r["interval"]
        name = f"{r['dataset']}, {r['train_size']} nodes"
        copy = str(COPIES.get(r["label"], r["label"]))
        entries = [(copy, r["spearman"], f"[{low:.2f}, {high:.2f}]", r)]
        entries += [(RIVALS[v["name"]], v["spearman"], "", v) for v in r["rivals"] if v["name"] in RIVALS]
        for words, value, interval, entry in entries:
            if value is None:
                continue
            pick = 100 * (entry["selected_test_accuracy"] - r["best_test_accuracy"])
            rows.append([name, words, f"{value:.3f} {interval}".strip(), f"{pick:+.1f}"])
    return table_text(
        ["graph", "ranked by", "Spearman (90 % interval over candidates)", "pick, points"], rows
    )


def _speed(r: Record) -> list[str]:
    """One line of the speed table."""
    name = r["benchmark"]
    if name == "dc":
        what, unit = f"{r['method'].upper()}, outer step with {r['inner']} inner epochs, {_copied(r)}", "ms"
        ours, usual = (1e3 * v for v in r["seconds_both"])
    elif name == "dm":
        what, unit = f"DM, one iteration, {_copied(r)}", "ms"
        ours, usual = r["milliseconds_per_iteration"]
    elif name == "tm":
        forms = dict(r["iteration"])
        plain = forms.pop("plain")
        precision, best = min(forms.items(), key=lambda pair: float(pair[1]["seconds"]))
        what, unit = f"TM, one iteration of {r['student_steps']} student steps, {r['size']} images", "s"
        what += f", width {r['width']}"
        peaks = [form.get("peak_gib") for form in (best, plain)]
        if None not in peaks:
            what += f", {precision} (at most {peaks[0]:.3g} GiB, usual way {peaks[1]:.3g} GiB)"
        ours, usual = (form["seconds"] for form in (best, plain))
    elif name == "networks":
        what, unit = f"{r['cells']} cells, {r['steps']} steps of batch {r['batch']}", "s"
        if r.get("usual_timed_cells", r["cells"]) < r["cells"]:
            what += f" (usual way projected from {r['usual_timed_cells']} of them)"
        ours, usual = r["seconds"], r["usual_seconds"]
    elif name == "gcond":
        what, unit = "GCond, 600 epochs on Cora, 35 nodes (projected)", "s"
        ours, usual = r["seconds_of_600_epochs_projected"]
    else:
        what, unit = f"{r['configurations']} filters on {r['dataset']}, each", "s"
        ours, usual = r["batched_seconds_each"], r["naive_seconds_each"]
    ratio = f"{usual / ours:.1f}"
    return [what, f"{ours:.3g} {unit}", f"{usual:.3g} {unit}", ratio, str(r["environment"]["device"])]


def _copied(r: Record) -> str:
    """The sizes of a benchmark of DC, DSA or DM in words."""
    return f"{r['classes']} x {r['per_class']} images, width {r['width']}"


def speed_table(found: Sequence[Record]) -> str:
    """What the library takes and what the usual way takes, both in one run on one machine; GPUs first."""
    known = ("batched", "gcond", "dc", "dm", "tm", "networks")
    rows = [_speed(r) for r in found if r.get("benchmark") in known]
    rows.sort(key=lambda row: row[-1].startswith("cpu"))
    return table_text(["", "hcdc", "usual way", "times faster", "device"], rows)


TABLES = {
    "agreement": agreement_table,
    "gain": gain_table,
    "pick": pick_table,
    "cost": cost_table,
    "gcn": gcn_table,
    "convnet": convnet_table,
    "others": others_table,
    "zoo": others_table,
    "speed": speed_table,
}
PROTOCOLS = {"gcn": "gcn-accuracy", "zoo": "gnn-zoo", "convnet": "convnet-accuracy"}
"""Protocols of tables whose protocol is not filters-80."""


def fill(text: str, found: Sequence[Record]) -> str:
    """The document with every marked table written anew."""

    def replace(match: re.Match[str]) -> str:
        name = match.group(1)
        if name not in TABLES:
            raise InputError(f"there is no table '{name}'; choose one of: {', '.join(TABLES)}")
        protocol = PROTOCOLS.get(name, "filters-80")
        mine = [r for r in found if "benchmark" in r or r.get("protocol") == protocol]
        chosen = [r for r in mine if ("benchmark" in r) == (name == "speed")]
        table = TABLES[name](chosen)
        return f"<!-- {name} -->\n{table}\n<!-- /{name} -->"

    return re.sub(r"<!-- (\w+) -->\n.*?<!-- /\1 -->", replace, text, flags=re.DOTALL)


def main(arguments: Sequence[str]) -> None:
    found = [r for path in arguments if path.endswith(".jsonl") for r in load(path)]
    found += [json.loads(Path(path).read_text()) for path in arguments if path.endswith(".json")]
    for document in (path for path in arguments if path.endswith(".md")):
        write_atomic(document, fill(Path(document).read_text(), found))


if __name__ == "__main__":
    as_command(lambda: main(sys.argv[1:]))
