"""Short trainings of so many epochs: the same epochs whichever way an objective counts, else a sentence."""

import re

import pytest
import torch
from tests.search.clocks import X, Y

import hcdc
from hcdc import FullData, InputError
from hcdc.search import ObjectiveProblem, search
from hcdc.search._store import Store


def full():
    return FullData((X, Y), (X, Y))


def trainer(asked, loader_first, batches=(20,)):
    """Trains for 100 steps, which are 20 epochs of 5; ``asked`` gets how many steps it was given."""

    def objective(trial, data):
        x = trial.suggest_float("x", 0.0, 1.0)
        batch = trial.suggest_categorical("batch", list(batches))
        if loader_first:
            data.loader("train", batch)
        asked.append((len(data.train[1]), batch, data.steps(100)))
        if not loader_first:
            data.loader("train", batch)
        data.loader("train", 100, shuffle=False)  # to look at it: not what an epoch is
        return x + 0.01 * float(torch.randn(()))

    return objective


@pytest.mark.parametrize("loader_first", [True, False])
def test_three_epochs_are_three_epochs_whenever_the_loader_is_made(loader_first):
    asked = []
    hcdc.trust(trainer(asked, loader_first), full(), rung="short:3", probes=4)
    assert asked[1:] == [(100, 20, 15)] * 20 + [(100, 20, 100)] * 4


@pytest.mark.parametrize("loader_first", [True, False])
def test_what_an_epoch_is_is_learned_on_any_rung_and_kept(loader_first, tmp_path):
    asked = []
    options = {"rung": "subset:0.1", "against": "short:3", "probes": 4, "storage": tmp_path / "s.jsonl"}
    hcdc.trust(trainer(asked, loader_first), full(), **options)
    assert asked[1:] == [(10, 20, 10)] * 20 + [(100, 20, 15)] * 4
    lines = (tmp_path / "s.jsonl").read_text().splitlines(True)
    (tmp_path / "s.jsonl").write_text("".join(lines[:-1]))
    asked.clear()
    hcdc.trust(trainer(asked, loader_first), full(), **options)
    assert asked == [(100, 20, 15)]


def test_an_epoch_of_another_length_in_each_trial_needs_the_loader_first():
    asked, sizes = [], (10, 20, 50)
    hcdc.trust(trainer(asked, True, sizes), full(), rung="short:3", probes=8)
    assert {(batch, steps) for _, batch, steps in asked[1:41]} == {(10, 30), (20, 15), (50, 6)}
    with pytest.raises(InputError, match=r"rung 'short:3': a trial calls data\.steps before data\.load"):
        hcdc.trust(trainer([], False, sizes), full(), rung="short:3", probes=8)


def forest(trial, data):
    x = trial.suggest_float("x", 0.0, 1.0)
    return x * data.steps(60)


def few(trial, data):
    return trial.suggest_float("x", 0.0, 1.0) * data.epochs(2)


def short_loops(trial, data):
    data.loader("train", 20)
    return trial.suggest_float("x", 0.0, 1.0) * data.steps(12)


NONSENSE = [
    (forest, r"a trial calls data\.steps, but neither data\.epochs nor data\.loader, .* as 'short:0\.25'"),
    (few, "the first trial asks for no more epochs, so this is a full training; give fewer epochs"),
    (short_loops, "the first trial asks for no more epochs, so this is a full training; give fewer epochs"),
]


@pytest.mark.parametrize(("objective", "words"), NONSENSE)
def test_epochs_that_mean_nothing_or_everything_are_refused(objective, words):
    with pytest.raises(InputError, match=f"rung 'short:3': {words}"):
        hcdc.trust(objective, full(), rung="short:3", probes=4)
    with pytest.raises(InputError, match=f"rung 'short:3': {words}"):
        hcdc.search.trust_seconds(objective, full(), "short:3", 4)
    if objective is not short_loops:  # on a subset it might have asked for fewer steps
        with pytest.raises(InputError, match=f"against 'short:3': {words}"):
            hcdc.trust(objective, full(), against="short:3", probes=4)
    assert hcdc.trust(objective, full(), rung="short:0.5", probes=4).probes == 4


@pytest.mark.parametrize("objective", [forest, few, short_loops])
def test_a_search_leaves_them_out_and_says_so(objective):
    found = search(objective, full(), budget=2, trials=20, rungs=["short:3", "short:0.25"])
    (left,) = [rung.note for rung in found.rungs if rung.name == "short:3"] or found.warnings[-1:]
    if objective is forest:
        assert re.match(f"rung 'short:3' is left out: {NONSENSE[0][1]}", left)
    else:
        assert left == "saves too little: costs 100% of a full training"


def test_where_epochs_are_counted_elsewhere_steps_are_their_share():
    """A network of 12 epochs beside a forest of 60 trees: 3 epochs stand for 15 trees. It comes first."""
    asked = []

    def either(trial, data):
        x = trial.suggest_float("x", 0.0, 1.0)
        if trial.suggest_categorical("kind", ["forest", "net"]) == "net":
            data.loader("train", 20)
            data.epochs(12)
        else:
            asked.append(data.steps(60))
        return x + 0.01 * float(torch.randn(()))

    hcdc.trust(either, full(), rung="short:3", probes=4)
    assert set(asked) == {15, 60}


def test_on_a_graph_an_epoch_is_one_step():
    geometric = pytest.importorskip("torch_geometric.data")
    marked, asked = torch.ones(6, dtype=torch.bool), []
    graph = geometric.Data(
        x=torch.randn(6, 2, generator=torch.Generator().manual_seed(0)), y=torch.arange(6) % 2,
        edge_index=torch.tensor([[0, 1], [1, 0]]), train_mask=marked, val_mask=marked,
    )  # fmt: skip

    def objective(trial, data):
        asked.append(data.steps(60))
        return trial.suggest_float("x", 0.0, 1.0) + 0.01 * float(torch.randn(()))

    hcdc.trust(objective, FullData(graph), rung="short:3", probes=4)
    assert asked[1:] == [3] * 20 + [60] * 4


@pytest.mark.parametrize(("epochs", "share"), [(1, 1.0), (2, 0.5), (5, 0.2), (10, 0.2), (40, 0.25)])
def test_a_share_of_few_epochs_is_priced_as_whole_epochs(epochs, share):
    def objective(trial, data):
        return trial.suggest_float("x", 0.0, 1.0) * data.epochs(epochs)

    problem = ObjectiveProblem(objective, full(), rungs=["short:0.25"])
    problem.scout(Store(), 0)
    assert problem.rungs[0].share == share
