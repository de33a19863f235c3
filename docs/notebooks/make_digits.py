"""Writes digits.ipynb with its outputs: ``python docs/notebooks/make_digits.py``; takes a minute."""

from __future__ import annotations

import base64
import contextlib
import io
import json
import sys
import time
from pathlib import Path
from typing import Any

FILE = Path(__file__).with_name("digits.ipynb")

CELLS = [
    ("markdown", """\
# Digits: a search, and whether to believe it

1,797 handwritten digits, a small network, half a minute on one core. You need
`pip install '.[learn,plot]'`."""),
    ("code", """\
import warnings

from matplotlib import pyplot as plt
from sklearn.datasets import load_digits
from sklearn.neural_network import MLPClassifier

import hcdc

warnings.filterwarnings("ignore")  # short trainings do not converge, and are not meant to

x, y = load_digits(return_X_y=True)
x = x / 16
full = hcdc.FullData((x[:1000], y[:1000]), (x[1000:1400], y[1000:1400]), (x[1400:], y[1400:]))
print(full)"""),
    ("markdown", """\
## One training

`data` says what to train on, for how long, and how to score. The rest is scikit-learn."""),
    ("code", """\
def objective(trial, data):
    width = trial.suggest_int("width", 4, 128, log=True)
    lr = trial.suggest_float("lr", 1e-4, 1e-1, log=True)
    alpha = trial.suggest_float("alpha", 1e-6, 1.0, log=True)
    model = MLPClassifier(
        (width, width), learning_rate_init=lr, alpha=alpha, max_iter=data.epochs(60), n_iter_no_change=60,
        random_state=data.seed,
    )
    model.fit(*data.train)
    return data.score(model.predict_proba(data.val[0]), probabilities=True)"""),
    ("markdown", "## Does a ladder pay?"),
    ("code", """\
plan = hcdc.plan(objective, full, rungs=["short:0.1"], budget="30s")
print(plan.pays, "-", plan.why)
for rung in plan.rungs:
    print(f"{rung.name:10} {rung.price:.2f} s each, {rung.candidates} candidates")"""),
    ("markdown", "## Search"),
    ("code", """\
found = hcdc.search(objective, full, rungs=["short:0.1"], budget="30s")
print({name: round(value, 5) for name, value in found.best.items()})
print("score", found.score, "90 % interval", found.interval)
for rung in found.rungs:
    print(f"{rung.name:10} {rung.candidates} candidates, {rung.seconds:.0f} s {rung.note}")"""),
    ("code", """\
seconds, scores = zip(*found.curve)
plt.figure(figsize=(5, 2.5))
plt.step(seconds, scores, where="post")
plt.xlabel("seconds")
plt.ylabel("best full score so far")
plt.tight_layout()"""),
    ("markdown", """\
## Believe the stand-in?

Its audit sample was drawn at random before anything was scored. It is trained in full, whatever its score."""),
    ("code", """\
for name, trust in found.trust.items():
    print(f"{name}: {trust.verdict}; {trust.why}")
    for dimension in trust.dimensions:
        print(f"  {dimension.name}: {dimension.verdict}, importance {dimension.importance:.0%}")"""),
    ("markdown", """\
Half a minute buys few audits, so expect "unknown" or "keep open": the stand-in may discard candidates, and
should not pick the winner. The winner above was picked by full trainings. For a firmer answer, ask
`hcdc.trust(objective, full, rung="short:0.1", probes=24)`."""),
]  # fmt: skip


def figures() -> list[dict[str, Any]]:
    """The open figures as outputs; closes them."""
    plt: Any = sys.modules.get("matplotlib.pyplot")
    found = []
    for number in plt.get_fignums() if plt else ():
        image = io.BytesIO()
        plt.figure(number).savefig(image, format="png", dpi=80)
        data = {"image/png": base64.b64encode(image.getvalue()).decode()}
        found.append({"output_type": "display_data", "data": data, "metadata": {}})
    if plt:
        plt.close("all")
    return found


def lines(text: str) -> list[str]:
    return text.splitlines(keepends=True)


def notebook() -> dict[str, Any]:
    """The notebook, with the outputs of running its cells here."""
    names: dict[str, Any] = {"__name__": "__main__"}
    cells: list[dict[str, Any]] = []
    count = 0
    for number, (kind, source) in enumerate(CELLS):
        cell = {"cell_type": kind, "id": f"cell-{number}", "metadata": {}, "source": lines(source)}
        if kind == "code":
            count += 1
            with contextlib.redirect_stdout(io.StringIO()) as told:
                exec(compile(source, FILE.name, "exec"), names)
            outputs: list[dict[str, Any]] = []
            if text := told.getvalue():
                outputs.append({"output_type": "stream", "name": "stdout", "text": lines(text)})
            cell |= {"execution_count": count, "outputs": outputs + figures()}
        cells.append(cell)
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    return {
        "cells": cells,
        "metadata": {"kernelspec": kernel, "language_info": {"name": "python"}},
        "nbformat": 4,
        "nbformat_minor": 5,
    }


if __name__ == "__main__":
    import matplotlib

    matplotlib.use("Agg")
    time.perf_counter = time.process_time  # other programs on this machine must not change the outputs
    FILE.write_text(json.dumps(notebook(), indent=1) + "\n")
