import torch
from reducer_conformance import GraphReducerConformance, reduce
from tiny_graph import tiny_task

from hcdc.condensers import make_reducer


class TestRandom(GraphReducerConformance):
    def make(self):
        return make_reducer("random")

    def test_nodes_are_real_and_keep_their_edges(self):
        task = tiny_task()
        small = reduce(self.make(), task, size=20)  # every training node, in some order
        x = task.data.graph.x.to_dense()[task.data.train]
        adj = task.data.graph.adj.to_dense()[task.data.train][:, task.data.train]
        assert sorted(small.graph.x.tolist()) == sorted(x.tolist())
        assert small.graph.adj.sum() == adj.sum() > 0
        assert torch.equal(small.graph.adj.sum(0).sort().values, adj.sum(0).sort().values)

    def test_does_not_draw_what_the_task_samples_at_that_seed(self):
        task = tiny_task()
        own, other = reduce(self.make(), task, size=6, seed=5), task.sample("train", 6, 5)
        assert not torch.equal(own.graph.x, other.graph.x)
