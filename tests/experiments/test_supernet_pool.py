"""Protocol supernet-pool: cells train shared weights, and all are scored with them."""

import pytest
import torch

from hcdc.core import records
from hcdc.datasets import data
from hcdc.experiments import supernet_pool
from hcdc.experiments.supernet_pool import Supernet
from hcdc.spaces import NASBench201
from hcdc.tasks import ImageTask

CONV = {"cell": "|nor_conv_3x3~0|+|none~0|none~1|+|none~0|nor_conv_1x1~1|none~2|"}


@pytest.fixture
def task():
    return ImageTask(data("digits"))


@pytest.fixture
def net(task):
    return Supernet.start(task, NASBench201(1, 4), 0, "cpu")


def test_a_cell_with_the_supernets_weights_is_its_own_network(task, net):
    x = task.sample("val", 20, 0).x
    cell = NASBench201(1, 4).network(task.features, task.num_classes, CONV)
    alone = {name: net.params[name] for name in cell.shapes()}
    torch.testing.assert_close(net.outputs(CONV, x), cell.forward(alone, None, x))


def test_a_step_moves_only_the_weights_of_its_cell(task, net):
    before = {name: p.detach().clone() for name, p in net.params.items()}
    supernet_pool.train(net, task, task.train, [CONV], 20, 0)
    moved = {name for name, p in net.params.items() if not torch.equal(p, before[name])}
    cell = NASBench201(1, 4).network(task.features, task.num_classes, CONV)
    assert moved == set(cell.shapes())


def test_every_cell_is_scored_after_training(tmp_path, monkeypatch):
    every = NASBench201().candidates()[:6]
    monkeypatch.setattr(NASBench201, "candidates", lambda self: every)
    out = tmp_path / "pool.jsonl"
    losses = []
    for steps in (1, 150):
        given = (
            f"--dataset digits --steps {steps} --batch 50 --images 400 --channels 4 --val 100 --device cpu"
        )
        charge = ["--charge", "90"] if steps == 1 else []
        supernet_pool.main([*given.split(), *charge, "--out", str(out)])
        told, *found = records.read(out)
        assert [line["cell"] for line in found] == [config["cell"] for config in every]
        assert (told["steps"], told["images"], told["val"]) == (steps, 400, 100)
        assert told["train_seconds"] > 0 < told["score_seconds"]
        own = told["train_seconds"] + told["score_seconds"]
        assert told["charged_seconds"] == (90 if charge else pytest.approx(own, rel=1e-3))
        losses.append(sum(line["loss"] for line in found) / len(found))
    assert losses[1] < losses[0] - 0.3
    assert sum(line["score"] for line in found) / len(found) > 0.25  # chance: .1
