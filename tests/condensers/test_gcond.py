import os

import pytest
import torch
from plain_gcond import PlainPGE, plain_epoch
from reducer_conformance import GraphReducerConformance, reduce
from tiny_graph import tiny_task

from hcdc.condensers import REDUCERS
from hcdc.condensers._pge import init_pge
from hcdc.condensers._sgc import init_sgc
from hcdc.core.checkpoint import Checkpoint
from hcdc.core.errors import InputError, NumericalError
from hcdc.core.labels import draw_members, members
from hcdc.core.seeds import stream
from hcdc.testing import RecordingProgress, set_bytes

pytestmark = pytest.mark.usefixtures("save_always")
GCond, GCondX = REDUCERS["gcond"], REDUCERS["gcondx"]


class GradientMatchingConformance(GraphReducerConformance):
    def test_continues_where_it_was_interrupted(self, tmp_path):
        checkpoint, reducer = Checkpoint(tmp_path / "state", "key"), self.make()
        with pytest.raises(KeyboardInterrupt):
            reduce(reducer, progress=RecordingProgress(stop_in=1), checkpoint=checkpoint)
        rest = RecordingProgress()
        continued = reduce(reducer, progress=rest, checkpoint=checkpoint)
        assert [done for _, done, _ in rest.steps] == list(range(reducer.epochs // 2 + 1, reducer.epochs + 1))
        again = RecordingProgress()
        assert set_bytes(reduce(reducer, progress=again, checkpoint=checkpoint)) == set_bytes(continued)
        assert again.steps == []

    def test_starts_from_training_nodes_of_the_label(self):
        task = tiny_task()
        small = reduce(type(self.make())(epochs=1, outer=1, lr_feat=1e-9), task, size=9, seed=4)
        x = task.data.graph.x.to_dense()
        for c in range(3):
            nodes = task.data.train[task.data.y[task.data.train] == c]
            for row in small.graph.x[small.y == c]:
                assert float((x[nodes] - row).abs().amax(1).min()) < 1e-6
        assert len({tuple(row) for row in small.graph.x.round(decimals=5).tolist()}) > 3

    def test_lowers_the_distance(self):
        class Figures(RecordingProgress):
            def phase(self, name, total=1):
                phase = super().phase(name, total)
                phase.step = lambda done, figure="": self.steps.append(float(figure.split()[-1]))
                return phase

        progress = Figures()
        reduce(type(self.make())(epochs=40, outer=5, inner=2, lr_feat=0.01), progress=progress)
        assert sum(progress.steps[-5:]) < 0.7 * sum(progress.steps[:5])

    def test_divergence_is_a_diagnosis(self):
        task = tiny_task(dense=True)
        task.data.graph.x[int(task.data.train[0])] = float("nan")
        with pytest.raises(
            NumericalError, match=r"diverged by epoch 1 of .*learning rate .* network; try smaller"
        ):
            reduce(self.make(), task, size=20)

    @pytest.mark.parametrize(
        ("settings", "text"),
        [
            ({"epochs": 0}, "'epochs' of method .* must be at least 1, got 0"),
            ({"inner": -1}, "'inner' of method .* must be at least 0, got -1"),
            ({"lr_feat": 0.0}, "'lr_feat' of method .* must be more than 0, got 0.0"),
        ],
    )
    def test_refuses_senseless_settings(self, settings, text):
        with pytest.raises(InputError, match=text):
            type(self.make())(**settings)


class TestGCond(GradientMatchingConformance):
    def make(self):
        return GCond(epochs=12, outer=2, inner=2, pge_hidden=8, lr_feat=0.01, lr_adj=0.01)

    def test_refuses_a_senseless_adjacency(self):
        with pytest.raises(InputError, match=r"'lr_adj' of method 'gcond' must be more than 0, got 0.0"):
            GCond(lr_adj=0.0)

    def test_ten_epochs_of_fifty_step_the_adjacency(self):
        assert [e for e in range(100) if GCond().learns_structure(e)] == [*range(10), *range(50, 60)]

    def test_cut_removes_weak_edges_only(self):
        whole = reduce(GCond(epochs=1, outer=1, pge_hidden=8)).graph.adj
        cut = reduce(GCond(epochs=1, outer=1, pge_hidden=8, cut=0.5)).graph.adj
        assert torch.equal(cut, torch.where(whole < 0.5, 0.0, whole))
        assert 0 < int((cut > 0).sum()) < int((whole > 0).sum())

    def test_equals_the_plain_algorithm(self):
        """Twelve epochs in float64, ten on the adjacency and two on the features, against the plain form."""
        task, reducer, size, seed = tiny_task(dtype=torch.float64), self.make(), 7, 3
        small = reduce(reducer, task, size=size, seed=seed)
        start = stream(seed, "gcond", "train", "start")
        drawn = draw_members(members(task.train.y, 3), small.y.bincount(minlength=3).tolist(), start)
        picked = task.data.train[torch.cat(drawn)]
        x = task.data.graph.x.to_dense()[picked].requires_grad_()
        pge = PlainPGE(12, 8).double().take(init_pge(12, 8, start))
        feature_optimiser = torch.optim.Adam([x], lr=reducer.lr_feat)
        pge_optimiser = torch.optim.Adam(pge.parameters(), lr=reducer.lr_adj)
        graph = task.data.graph
        original = (graph.x.to_dense(), graph.propagation().to_dense(), task.train.y, task.data.train)
        for epoch in range(reducer.epochs):
            layer = init_sgc(12, 3, 0, stream(seed, "gcond", "train", epoch))[0].double()
            args = (x, pge, feature_optimiser, pge_optimiser, layer, small.y, original)
            plain_epoch(reducer, *args, step_structure=epoch < 10)
        torch.testing.assert_close(small.graph.x, x.detach(), rtol=0, atol=1e-10)
        torch.testing.assert_close(small.graph.adj, pge(x).detach(), rtol=0, atol=1e-10)
        assert float((small.graph.x - graph.x.to_dense()[picked]).abs().max()) > 0.01


class TestGCondX(GradientMatchingConformance):
    def make(self):
        return GCondX(epochs=4, outer=2, inner=2, lr_feat=0.01)

    def test_has_no_edges(self):
        assert reduce(self.make()).graph.adj is None


class TestGCondWithHiddenLayer(GradientMatchingConformance):
    def make(self):
        return GCond(epochs=4, outer=2, inner=2, hidden=6, pge_hidden=8, batch=5)


@pytest.mark.data
@pytest.mark.skipif(not os.environ.get("HCDC_DATA"), reason="HCDC_DATA is not set")
def test_short_run_on_cora_beats_random_nodes():
    import hcdc.datasets
    from hcdc.tasks import GraphTask
    from hcdc.training import GCNRecipe, gcn_accuracy

    data = hcdc.datasets.data("cora")
    small = reduce(GCond(epochs=25), GraphTask(data), size=35)
    accuracy = gcn_accuracy(small, data, seeds=1, recipe=GCNRecipe(steps=150))["test_accuracy"]
    assert accuracy > 0.72  # random nodes: about .62
