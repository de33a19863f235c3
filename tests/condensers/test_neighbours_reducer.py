import pytest
import torch
from tiny_graph import tiny_task

from hcdc.condensers import make_reducer
from hcdc.core.errors import InputError
from hcdc.testing import ReducerConformance


class TestNeighbours(ReducerConformance):
    def make(self):
        return make_reducer("neighbours", fanout=2)

    def task(self):
        return tiny_task()

    def test_labelled_nodes_keep_real_neighbours(self):
        """Every edge is one of the original graph's, and a node has all its neighbours if few enough."""
        task = tiny_task(dense=True)
        task.data.graph.x[:, 0] = torch.arange(task.data.graph.num_nodes)  # tells who is who
        small = make_reducer("neighbours", fanout=99, hops=1).reduce(task, "train", 6, 0, **self.at())
        kept, found = small.graph.x[:, 0].long(), small.graph.adj.to_dense()
        whole, places = task.data.graph.adj.to_dense(), small.positions()
        assert 6 < len(kept) < len(whole)
        assert bool((found <= whole[kept][:, kept]).all())
        assert torch.equal(found[places].sum(1), whole[kept[places]].sum(1))
        assert torch.equal(small.y, task.data.y[kept[places]])
        assert set(kept[places].tolist()) <= set(task.data.train.tolist())

    def at(self):
        from hcdc.core.checkpoint import Checkpoint
        from hcdc.core.progress import Progress

        return {"progress": Progress(), "checkpoint": Checkpoint(None)}

    def test_refuses_no_neighbours(self):
        with pytest.raises(InputError, match="'fanout' of method 'neighbours' must be at least 1"):
            make_reducer("neighbours", fanout=0)
