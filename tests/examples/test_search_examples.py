"""Each example of a search finds a good configuration, on a clock where a full training takes a second."""

import ast
import time
from pathlib import Path

import pytest

import hcdc
from hcdc.core.plugins import import_module_or_file

FOLDER = Path(__file__).parents[2] / "examples"

CASES = [
    ("search_torch", [], 0.8, {"width", "dropout", "lr"}),
    ("search_trees", ["pandas"], 0.9, {"learning_rate", "max_leaf_nodes", "l2"}),
    ("search_graph", ["torch_geometric"], 0.45, {"width", "dropout", "lr", "decay"}),
    ("search_conditional", [], 0.85, {"model", "alpha"}),
    ("search_pruner", [], 0.8, {"width", "lr"}),
    ("search_known", ["optuna"], 0.8, {"width", "lr"}),
]


@pytest.mark.parametrize(("name", "needs", "least", "keys"), CASES, ids=[case[0] for case in CASES])
def test_example(name, needs, least, keys, monkeypatch):
    for package in ["sklearn", *needs]:
        pytest.importorskip(package)
    example = import_module_or_file(str(FOLDER / f"{name}.py"))
    full, now = example.data(), [0.0]  # the command line calls it too

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
    seedless = name == "search_trees"  # trees without subsampling do not depend on the seed
    assert ["too high on average" in text for text in found.warnings] == [True] * seedless
    if name == "search_graph":
        assert found.parts["test"] > 0.4  # six classes


@pytest.mark.parametrize("file", sorted(FOLDER.glob("*.py")), ids=lambda file: file.stem)
def test_an_example_can_be_copied_alone(file):
    nodes = list(ast.walk(ast.parse(file.read_text())))
    modules = {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    modules |= {node.module for node in nodes if isinstance(node, ast.ImportFrom)}
    assert not modules & {other.stem for other in FOLDER.glob("*.py")}


def test_known_results_are_probes(tmp_path, monkeypatch):
    """From the storage of a study or a CSV file; they cost nothing, and may win."""
    pytest.importorskip("sklearn")
    optuna = pytest.importorskip("optuna")
    example, now = import_module_or_file(str(FOLDER / "search_known.py")), [0.0]
    full, asked = example.data(), []

    def objective(trial, data):
        now[0] += 1.0
        asked.append(trial.suggest_int("width", 4, 64, log=True))
        return 0.5 - trial.suggest_float("lr", 1e-4, 1e-1, log=True)

    monkeypatch.setattr(time, "perf_counter", lambda: now[0])
    monkeypatch.setattr(example, "objective", objective)
    study = example.study_of_full_trainings(full, 6)
    assert (len(study.trials), len(asked)) == (6, 6)
    storage = f"sqlite:///{tmp_path}/study.db"
    optuna.copy_study(from_study_name=study.study_name, from_storage=study._storage, to_storage=storage)
    table = tmp_path / "results.csv"
    rows = [f"{t.params['width']},{t.params['lr']!r},{t.value!r}" for t in study.trials]
    table.write_text("\n".join(["width,lr,val", *rows]) + "\n")
    for source in (storage, str(table)):
        found = hcdc.search(objective, full, known=example.known_results(source), budget=60, seed=0)
        assert found.score >= study.best_value  # a known winner is trained once more
        assert found.seconds <= 1.1 * 60  # the six known results cost nothing
