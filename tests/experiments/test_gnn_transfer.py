"""``gnn-transfer``: a way to condense whose networks are never trained."""

from hcdc.experiments.reproductions._frame import Work
from hcdc.experiments.reproductions._matching import NetworkMatching
from hcdc.experiments.reproductions.gnn_transfer import GNNTransfer


def test_fresh_networks_take_as_many_steps_and_are_never_trained(monkeypatch):
    seen = []

    def reduce(loops, task, size, seed, progress):
        seen.append((loops.epochs, loops.outer, loops.inner, task.net.filters))
        return task.sample("train", size, seed)

    monkeypatch.setattr(NetworkMatching, "reduce", reduce)
    monkeypatch.setattr(GNNTransfer, "judged", lambda *given: {"val": 0.0})
    what = GNNTransfer(graphs="embedded:12", methods="gin-0,gin-fresh", networks="gin-0")
    for unit in what.units([100]):
        (record,) = what.run(unit, Work())
        assert record["judged"] == {"gin-0": {"val": 0.0}}
    assert seen == [(30, 10, 5, ("gin-0",)), (300, 1, 0, ("gin-0",))]
