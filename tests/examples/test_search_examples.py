"""Each example of a search finds a good configuration, on a clock where a full training takes a second."""

import sys
import time
from pathlib import Path

import pytest

import hcdc
from hcdc.core.plugins import import_module_or_file

FOLDER = Path(__file__).parents[2] / "examples"

CASES = [
    ("search_torch", "digits", [], 0.8, {"width", "dropout", "lr"}),
    ("search_trees", "tumours", ["pandas"], 0.9, {"learning_rate", "max_leaf_nodes", "l2"}),
    ("search_graph", "papers", ["torch_geometric"], 0.45, {"width", "dropout", "lr", "decay"}),
    ("search_conditional", "digits", [], 0.85, {"model", "alpha"}),
    ("search_pruner", "digits", [], 0.8, {"width", "lr"}),
]


@pytest.mark.parametrize(("name", "data", "needs", "least", "keys"), CASES, ids=[case[0] for case in CASES])
def test_example(name, data, needs, least, keys, monkeypatch):
    for package in ["sklearn", *needs]:
        pytest.importorskip(package)
    monkeypatch.setattr(sys, "path", [str(FOLDER), *sys.path])
    example = import_module_or_file(str(FOLDER / f"{name}.py"))
    full, now = getattr(example, data)(), [0.0]

    def objective(trial, data):
        try:
            return example.objective(trial, data)
        finally:
            budget = next(iter(data.asked))  # "epochs" or "steps"
            size = len(data._parts["train"]) / len(full.parts["train"]) if budget == "epochs" else 1.0
            now[0] += size * getattr(data, budget)(1000) / 1000

    monkeypatch.setattr(time, "perf_counter", lambda: now[0])
    found = hcdc.search(objective, full, budget=12, seed=0)
    assert found.score >= least
    assert set(found.best) == keys or found.best["model"] == "trees"
    assert found.seconds <= 1.1 * 12
    assert found.warnings == []
    if name == "search_graph":
        assert found.parts["test"] > 0.4  # six classes
