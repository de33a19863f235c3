"""Search over two kinds of models, each with parameters of its own.

    python search_conditional.py 1m

The space is learned from what the objective asks for, so parameters may depend on one another.
"""

from __future__ import annotations

import sys

from sklearn.datasets import load_digits
from sklearn.ensemble import ExtraTreesClassifier
from sklearn.linear_model import SGDClassifier

import hcdc


def data() -> hcdc.FullData:
    """1,797 handwritten digits of 8 x 8 pixels, as arrays."""
    x, y = load_digits(return_X_y=True)
    return hcdc.FullData((x[:1200] / 16, y[:1200]), (x[1200:] / 16, y[1200:]))


def objective(trial, data) -> float:
    kind = trial.suggest_categorical("model", ["linear", "trees"])
    if kind == "linear":
        alpha = trial.suggest_float("alpha", 1e-6, 1e-1, log=True)
        model = SGDClassifier(alpha=alpha, max_iter=data.epochs(20), tol=None, random_state=data.seed)
    else:
        leaf, share = trial.suggest_int("leaf", 1, 20), trial.suggest_float("share", 0.05, 1.0)
        model = ExtraTreesClassifier(
            data.steps(40), min_samples_leaf=leaf, max_features=share, random_state=data.seed
        )
    model.fit(*data.train)
    return data.score(model.predict(data.val[0]), values=True)


if __name__ == "__main__":
    found = hcdc.search(objective, data(), budget=sys.argv[1] if len(sys.argv) > 1 else "1m")
    print(f"use {found.best}: accuracy {found.score}, found in {found.seconds:.0f} s")
