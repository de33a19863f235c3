"""The recorder of graph networks on a small made-up graph."""

import dataclasses

import numpy as np
import pytest
import scipy.sparse
import torch

from hcdc.core import records
from hcdc.core.errors import InputError
from hcdc.core.sparse import SparseMatrix
from hcdc.datasets import Graph, GraphData
from hcdc.experiments import physics, physics_learned

GNNS = physics.SPACES["gnns"]
GOOD = {"filter": "gcn", "width": 128, "depth": 2, "lr": 0.02, "weight_decay": 0.01, "dropout": 0.1}


def blocks() -> GraphData:
    """300 nodes in 3 classes that share words and edges."""
    rng = np.random.default_rng(0)
    y = rng.integers(0, 3, 300)
    words = rng.random((300, 30)) < 0.05 + 0.4 * (np.arange(30) % 3 == y[:, None])
    edges = np.triu(rng.random((300, 300)) < 0.005 + 0.03 * (y == y[:, None]), 1)
    x = SparseMatrix.from_scipy(scipy.sparse.csr_matrix(words.astype(np.float32)))
    adj = SparseMatrix.from_scipy(
        scipy.sparse.csr_matrix((edges | edges.T).astype(np.float32)), symmetric=True
    )
    nothing = torch.arange(0)
    return GraphData("blocks", "memory", Graph(x, adj), torch.from_numpy(y), nothing, nothing, nothing, 3)


@pytest.fixture
def task(monkeypatch):
    monkeypatch.setattr(physics, "RECIPE", dataclasses.replace(physics.RECIPE, steps=27))
    return physics.split(blocks(), (120, 60), 8)


def test_configurations_lie_in_their_space_and_a_longer_list_begins_with_the_shorter():
    for space in physics.SPACES.values():
        configs = physics.configurations(space, 60)
        assert configs[:5] == physics.configurations(space, 5)
        for config in configs:
            space.check(config)
            assert config.get("filter") != physics.SLOW


def test_parts_share_no_node(task):
    parts = [task.data.train, task.data.val, task.data.test]
    assert [len(part) for part in parts] == [120, 60, 120]
    assert len(torch.cat(parts).unique()) == 300
    assert task.train.graph.num_nodes == 120
    assert task.train.graph.num_features == 8


def test_copies_are_different_training_nodes_with_their_own_edges(task):
    rungs, shares = physics.trials(task, 30)
    assert shares["copy:0"] == 0.25
    assert list(rungs)[5:] == ["short:0.037", "short:0.111", "short:0.333", "full"]
    copies = [rungs[f"copy:{draw}"].train for draw in range(physics.DRAWS)]
    assert not torch.equal(copies[0].graph.x, copies[1].graph.x)
    for copy in copies:
        assert copy.graph.num_nodes == len(copy.y) == 30
        assert (copy.y.bincount() - task.train.y.bincount() / 4).abs().max() <= 1
        assert torch.cdist(copy.graph.x, task.train.graph.x).min(1).values.max() < 0.01


def test_a_short_training_takes_its_share_of_the_steps(task):
    rungs, _ = physics.trials(task, 30)
    found = {name: physics.train(task, GNNS, GOOD, rung, 0) for name, rung in rungs.items()}
    assert found["full"]["val"] > 0.8
    first = physics.train(task, GNNS, GOOD, physics.Trial(task.train, 1 / 27), 0)
    assert found["short:0.037"] == {**first, "seconds": found["short:0.037"]["seconds"]}
    assert first["train_loss"] == pytest.approx(np.log(3), rel=0.3)
    sums = [found[f"short:{share}"]["train_loss"] for share in ("0.037", "0.111", "0.333")]
    assert sums[0] < sums[1] < sums[2] < 9 * sums[0]


def test_weight_decay_acts_though_it_is_not_in_the_loss(task):
    full = physics.Trial(task.train)
    light, heavy = (
        physics.train(task, GNNS, {**GOOD, "lr": 0.1, "weight_decay": decay, "dropout": 0.0}, full, 0)
        for decay in (0.001, 1.0)
    )
    assert heavy["train_loss"] > light["train_loss"] + 0.1


def test_the_recorder_keeps_every_rung_and_goes_on_where_it_stopped(task, tmp_path):
    out, configs = tmp_path / "pool.jsonl", dict(enumerate(physics.configurations(GNNS, 3)))
    list(physics.record(task, "gnns", {0: configs[0]}, 1, out, 30))
    list(physics.record(task, "gnns", configs, 2, out, 30))
    found = list(records.read(out))
    assert [(r["number"], r["seed"]) for r in found] == [(0, 0), (1, 0), (2, 0), (0, 1), (1, 1), (2, 1)]
    assert [r["config"] for r in found[:3]] == list(configs.values())
    assert len(found[0]["shares"]) == 9
    for key in ("val", "seconds", "train_loss"):
        assert set(found[0][key]) == set(found[0]["shares"])
        assert set(found[3][key]) == {"full"}
    assert all(0 < r["test"] <= 1 for r in found)


def test_shards_part_the_configurations(task, tmp_path, monkeypatch):
    monkeypatch.setattr(physics, "data", lambda name: blocks())
    monkeypatch.setattr(physics, "split", lambda whole: task)
    monkeypatch.setattr(
        physics, "trials", lambda task, size: ({"full": physics.Trial(task.train)}, {"full": 1})
    )
    numbers = []
    for shard in ("0/2", "1/2"):
        out = tmp_path / f"{shard[0]}.jsonl"
        command = ["--space", "filters", "--configs", "3", "--seeds", "1", "--shard", shard]
        physics.main([*command, "--out", str(out)])
        numbers.append([r["number"] for r in records.read(out)])
    assert numbers == [[0, 2], [1]]


@pytest.mark.parametrize("shard", ["2", "2/2", "a/2"])
def test_a_wrong_shard_is_refused(shard, tmp_path):
    with pytest.raises(InputError, match="NUMBER/COUNT"):
        physics.main(["--shard", shard, "--out", str(tmp_path / "pool.jsonl")])


def test_a_learned_copy_scores_filters_with_their_own_training(task, monkeypatch):
    monkeypatch.setattr(physics_learned, "HOW", {"steps": 27, "optimizer": "adamw"})
    some = physics.configurations(physics.SPACES["filters"], 2)
    idle = {**some[0], "lr": 1e-4}
    few = {"trainings": 4, "companions": 8, "steps": 2, "check": 1}
    made, *lines = physics_learned.record(task, {0: some[0], 1: idle, 5: some[1]}, 12, 7, few)
    assert [line["number"] for line in lines] == [0, 1, 5]
    assert made["full_trainings"] == len(made["probes"]["lam"]) == 4
    assert 0 < made["seconds"]["full"] < made["seconds"]["making"]
    assert (made["recipe"]["steps"], made["recipe"]["optimizer"]) == (27, "adamw")
    assert lines[0]["score"] != lines[1]["score"]  # another learning rate
    assert lines[0]["expected"] == pytest.approx(lines[1]["expected"])  # the process knows filters alone
    assert all(line["seconds"] > 0 for line in lines)
    best = physics_learned.best_probe(task, made["probes"])
    assert 0 < best["val"] <= 1
    assert 0 < best["test"] <= 1
