"""Reducers of graphs: what they must do beside what `hcdc.testing.ReducerConformance` asks of all."""

import pytest
import torch
from tiny_graph import tiny_task
from torch import Tensor

from hcdc.core.checkpoint import Checkpoint
from hcdc.core.errors import InputError
from hcdc.core.progress import Progress
from hcdc.testing import ReducerConformance


def reduce(reducer, task=None, part="train", size=8, seed=0, progress=None, checkpoint=None):
    return reducer.reduce(
        task or tiny_task(),
        part,
        size,
        seed,
        progress=progress or Progress(),
        checkpoint=checkpoint or Checkpoint(None),
    )


class GraphReducerConformance(ReducerConformance):
    def task(self):
        return tiny_task()

    def test_is_a_dense_finite_symmetric_graph(self):
        small = self.reduce()
        assert small.index is None
        assert isinstance(small.graph.x, Tensor)
        assert small.graph.x.dtype == torch.float32
        assert small.graph.x.shape == (8, 12)
        adj = small.graph.adj
        if adj is not None:
            assert isinstance(adj, Tensor)
            assert torch.equal(adj, adj.t())
            assert bool((adj >= 0).all())
            assert not bool(adj.diagonal().any())

    def test_dense_features_and_the_inductive_setting(self):
        task = tiny_task("inductive", dense=True)
        for part, size in (("train", 7), ("val", 9)):
            assert len(self.reduce(task, part, size)) == size

    def test_refuses_an_empty_class(self):
        with pytest.raises(InputError, match="class 3 has no labelled example"):
            self.reduce(tiny_task(empty_class=True))
