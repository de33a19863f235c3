"""S_val as weighted validation nodes of the whole graph, ranked by weighted accuracy."""

import numpy as np
import pytest
import torch
from quick_hcdc import short_recipes  # noqa: F401
from tiny_graph import tiny_task

from hcdc.condensers import condense
from hcdc.condensers.validation._weights import example_losses
from hcdc.datasets import CondensedDataset, _graph
from hcdc.evaluation import evaluate
from hcdc.spaces import GNNZoo

OPTIONS = {"probes": 6, "companions": 5}


def made(task, **more):
    return condense(
        task, GNNZoo(), train_size=6, val_size=20, train_method="neighbours", val_method="weighted",
        options=OPTIONS, full_recipe={"steps": 3, "seeds": 1}, **more,
    )  # fmt: skip


@pytest.mark.usefixtures("short_recipes")
def test_the_graph_stays_and_accuracy_ranks(tmp_path, monkeypatch):
    pytest.importorskip("torch_geometric")
    monkeypatch.setenv("HCDC_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(_graph, "SPARSE_FROM", 1)  # as for a large graph
    task = tiny_task()
    small = made(task)
    assert small.meta["metric"] == "accuracy"
    assert small.val.graph.num_nodes == task.val.graph.num_nodes
    assert set(small.val.index.tolist()) <= set(task.val.positions().tolist())
    assert float(small.val.weight.mean()) == pytest.approx(1, abs=1e-5)
    assert len(small.meta["candidates"]) == 11
    again = CondensedDataset.load(small.save(tmp_path / "a.hcdc"))
    for name, tensor in small.tensors().items():
        assert torch.equal(again.tensors()[name], tensor), name
    assert "val/adj.places" in small.tensors()
    rivals = ["real-val", "ridge-and-real-val", "ridge-and-real-accuracy"]
    here, there = (evaluate(one, candidates=4, task=task, rivals=rivals) for one in (small, again))
    np.testing.assert_allclose(here.proxy, there.proxy)
    assert [rival.name for rival in here.rivals] == rivals


def test_errors_replace_losses_where_accuracy_ranks():
    task = tiny_task()
    outputs = torch.randn(2, len(task.val), 3, generator=torch.Generator().manual_seed(0))
    found = example_losses(task, [lambda data: outputs], task.val, "accuracy")
    wanted = (outputs.argmax(-1) != task.val.y).double().mean(0)
    np.testing.assert_allclose(found[0], wanted)
    assert 0 < wanted.mean() < 1
    weight = torch.rand(len(task.val), generator=torch.Generator().manual_seed(1))
    weighted = task.replace(task.val, {"weight": weight})
    right = (outputs[0].argmax(-1) == task.val.y).float()
    assert float(task.score(outputs[0], weighted)) == pytest.approx(
        float((right * weight).sum() / weight.sum())
    )
