"""Give up full trainings that look bad half way.

    python search_pruner.py 1m

`trial.report` tells the score so far; `trial.should_prune` compares it with earlier full trainings at the
same step (the median rule). An objective written for Optuna that raises `optuna.TrialPruned` works unchanged.
"""

from __future__ import annotations

import sys

from sklearn.datasets import load_digits
from sklearn.neural_network import MLPClassifier

import hcdc


def data() -> hcdc.FullData:
    """1,797 handwritten digits of 8 x 8 pixels, as arrays."""
    x, y = load_digits(return_X_y=True)
    return hcdc.FullData((x[:1200] / 16, y[:1200]), (x[1200:] / 16, y[1200:]))


def objective(trial, data) -> float:
    width, lr = trial.suggest_int("width", 4, 64, log=True), trial.suggest_float("lr", 1e-4, 1e-1, log=True)
    model = MLPClassifier((width,), learning_rate_init=lr, random_state=data.seed)
    for epoch in range(data.epochs(20)):
        model.partial_fit(*data.train, classes=range(data.num_classes))
        if epoch % 5 == 4:
            trial.report(data.score(model.predict_proba(data.val[0]), probabilities=True), epoch)
            if trial.should_prune():
                raise hcdc.search.TrialPruned
    return data.score(model.predict_proba(data.val[0]), probabilities=True)


if __name__ == "__main__":
    found = hcdc.search(objective, data(), budget=sys.argv[1] if len(sys.argv) > 1 else "1m")
    full = found.rung("full")
    print(f"use {found.best}: accuracy {found.score}, {full.pruned} of {full.candidates} trainings given up")
