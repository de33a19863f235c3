"""Speed compared with the usual way to write the same algorithm, from the benchmarks' records."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hcdc.experiments.markdown import table_text

Record = dict[str, Any]


def _speed(r: Record) -> list[str]:
    """One row of the speed table."""
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
        what, unit = "GCond, 600 epochs on Cora, 35 nodes (projected; processor time)", "s"
        ours, usual = r["cpu_seconds_of_600_epochs_projected"]
    else:
        what, unit = f"{r['configurations']} filters on {r['dataset']}, each", "s"
        ours, usual = r["batched_seconds_each"], r["naive_seconds_each"]
    ratio = f"{usual / ours:.1f}"
    return [what, f"{ours:.3g} {unit}", f"{usual:.3g} {unit}", ratio, str(r["environment"]["device"])]


def _copied(r: Record) -> str:
    """The sizes in a benchmark of DC, DSA or DM, in words."""
    return f"{r['classes']} x {r['per_class']} images, width {r['width']}"


def speed_table(found: Sequence[Record]) -> str:
    """Time of this library and of the usual way, both measured in one run on one machine; GPUs first."""
    known = ("batched", "gcond", "dc", "dm", "tm", "networks")
    rows = [_speed(r) for r in found if r.get("benchmark") in known]
    rows.sort(key=lambda row: row[-1].startswith("cpu"))
    return table_text(["", "hcdc", "usual way", "times faster", "device"], rows)


AGAINST = {
    "dc": "DC, short run",
    "dsa": "DSA, short run",
    "dm": "DM, short run",
    "tm": "TM, short run",
    "hypergradients": "hypergradients of graph filters",
    "filters": "graph filters trained in one batch",
    "cells": "48 cells x 8 initialisations on 500 images",
    "gcond": "GCond on Cora, 50 epochs of 600 (before: commit 7d7cb31)",
}
"""The cases of ``benchmarks/against.py`` in words."""


def against_table(found: Sequence[Record]) -> str:
    """This source beside the one before the restructuring; GPUs first."""
    rows = [
        [
            AGAINST[case["case"]],
            *(f"{case['seconds'][side]:.3g} s" for side in ("new", "old")),
            f"{case['ratio']:.2f}",
            f"{case['difference']:.1g}" if case["difference"] else "0",
            str(r["environment"]["device"]),
        ]
        for r in found
        if r.get("benchmark") == "against"
        for case in r["cases"]
    ]
    rows.sort(key=lambda row: row[-1].startswith("cpu"))
    return table_text(["", "now", "before", "ratio", "relative difference", "device"], rows)
