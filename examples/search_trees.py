"""Search gradient-boosted trees on a table with scikit-learn.

    python search_trees.py 1m

`data.train` is a DataFrame because `FullData` was given one. `data.steps(200)` is the number of trees.
"""

from __future__ import annotations

import sys

from sklearn.datasets import load_breast_cancer
from sklearn.ensemble import HistGradientBoostingClassifier

import hcdc


def data() -> hcdc.FullData:
    """569 tumours with 30 measurements each, and whether they are benign."""
    table = load_breast_cancer(as_frame=True).frame.sample(frac=1, random_state=0)
    return hcdc.FullData(table[:380], table[380:], target="target")


def objective(trial, data) -> float:
    model = HistGradientBoostingClassifier(
        learning_rate=trial.suggest_float("learning_rate", 0.01, 1.0, log=True),
        max_leaf_nodes=trial.suggest_int("max_leaf_nodes", 2, 64, log=True),
        l2_regularization=trial.suggest_float("l2", 1e-6, 10.0, log=True),
        max_iter=data.steps(50),
        early_stopping=False,
        random_state=data.seed,
    )
    model.fit(data.train.drop(columns="target"), data.train["target"])
    return data.score(model.predict_proba(data.val.drop(columns="target")), probabilities=True)


if __name__ == "__main__":
    found = hcdc.search(objective, data(), budget=sys.argv[1] if len(sys.argv) > 1 else "1m")
    print(f"use {found.best}: accuracy {found.score}, found in {found.seconds:.0f} s")
