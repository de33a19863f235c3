import pytest
import torch
from reducer_conformance import GraphReducerConformance, reduce
from tiny_graph import tiny_task

from hcdc.condensers import REDUCERS
from hcdc.condensers._embeddings import EMBEDDINGS
from hcdc.core.checkpoint import Checkpoint
from hcdc.core.errors import InputError
from hcdc.core.labels import members
from hcdc.core.progress import Progress
from hcdc.tasks import Task

Herding, KCenter = REDUCERS["herding"], REDUCERS["kcenter"]


class CoresetConformance(GraphReducerConformance):
    def test_chooses_by_the_embedding_of_the_trained_network(self):
        """The chosen nodes are those that `choose` finds among the embeddings of the class."""
        task, reducer = tiny_task(), self.make()
        small = reduce(reducer, task, size=8, seed=1)
        points = EMBEDDINGS["graph"].points(reducer, task, "train", 1, Progress(), Checkpoint(None))
        assert torch.allclose(points.exp().sum(1), torch.ones(20))
        for c, of_class in enumerate(members(task.train.y, 3)):
            count = int((small.y == c).sum())
            picked = task.data.train[of_class[reducer.choose(points[of_class], count)]]
            assert torch.equal(small.graph.x[small.y == c], task.data.graph.x.to_dense()[picked])

    def test_all_of_a_class_without_repeats(self):
        points = torch.tensor([[0.0, 0.0]] * 3 + [[1.0, 0.0]] * 2)
        assert sorted(self.make().choose(points, 5).tolist()) == [0, 1, 2, 3, 4]

    def test_refuses_other_data(self):
        class Riddle(Task):
            kind = "riddle"

        Riddle.__abstractmethods__ = frozenset()
        with pytest.raises(InputError, match="condenses graphs, images and tables, but 'memory' has riddles"):
            reduce(self.make(), Riddle())


class TestKCenter(CoresetConformance):
    def make(self):
        return KCenter(steps=20, hidden=8)

    def test_equals_the_plain_form(self):
        points = torch.randn(40, 5, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
        picked = [int(torch.cdist(points, points.mean(0, keepdim=True)).argmin())]
        while len(picked) < 15:
            picked.append(int(torch.cdist(points, points[picked]).min(1).values.argmax()))
        assert self.make().choose(points, 15).tolist() == picked

    def test_covers_a_line_from_its_middle(self):
        assert KCenter().choose(torch.arange(5.0)[:, None], 3).tolist() == [2, 0, 4]


class TestHerding(CoresetConformance):
    def make(self):
        return Herding(steps=20, hidden=8)

    def test_equals_the_plain_form(self):
        points = torch.randn(40, 5, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
        picked, left = [], list(range(40))
        for i in range(15):
            wish = (i + 1) * points.mean(0) - points[picked].sum(0)
            picked.append(min(left, key=lambda j, wish=wish: float((wish - points[j]).norm())))
            left.remove(picked[-1])
        assert self.make().choose(points, 15).tolist() == picked

    def test_follows_the_mean(self):
        """The mean of the chosen is nearer to the class mean than that of as many random points."""
        generator = torch.Generator().manual_seed(0)
        points = torch.randn(200, 3, generator=generator)
        own = (points[Herding().choose(points, 20)].mean(0) - points.mean(0)).norm()
        for _ in range(20):
            draw = points[torch.randperm(200, generator=generator)[:20]].mean(0)
            assert own < 0.5 * (draw - points.mean(0)).norm()


@pytest.mark.parametrize("reducer", [KCenter, Herding])
def test_refuses_senseless_settings(reducer):
    with pytest.raises(InputError, match=r"'steps' of method .* must be at least 1, got 0"):
        reducer(steps=0)
