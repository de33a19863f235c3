"""Resume a study: earlier full results become probes that cost nothing.

    python search_known.py 1m                       # makes a small study first, and resumes it
    python search_known.py 1m results.csv           # one column per parameter, and val: higher is better
    python search_known.py 1m sqlite:///study.db    # any storage of Optuna, with one study in it

Known results cost none of the budget, teach the model of the search, and may win. A known winner is trained
once more before its score is reported. Parameters must lie in the ranges of the objective.
"""

from __future__ import annotations

import sys

import optuna
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
    for _ in range(data.epochs(10)):
        model.partial_fit(*data.train, classes=range(data.num_classes))
    return data.score(model.predict_proba(data.val[0]), probabilities=True)


def study_of_full_trainings(full: hcdc.FullData, trials: int) -> optuna.Study:
    """A study such as you may have already: every trial is a full training."""
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    study = optuna.create_study(direction="maximize", sampler=optuna.samplers.RandomSampler(seed=0))
    study.optimize(lambda trial: objective(trial, full.trial(seed=trial.number)), n_trials=trials)
    return study


def known_results(source: str):
    """What ``known=`` takes: a CSV file as it is, or the study in a storage."""
    return source if source.endswith(".csv") else optuna.load_study(study_name=None, storage=source)


if __name__ == "__main__":
    full, budget = data(), sys.argv[1] if len(sys.argv) > 1 else "1m"
    known = known_results(sys.argv[2]) if len(sys.argv) > 2 else study_of_full_trainings(full, 12)
    found = hcdc.search(objective, full, known=known, budget=budget)
    print(f"use {found.best}: accuracy {found.score}, {found.full_trainings} full trainings of its own")
