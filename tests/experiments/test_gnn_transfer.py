"""``gnn-transfer``: a way to condense whose networks are never trained."""

from hcdc.experiments.reproductions._frame import Work
from hcdc.experiments.reproductions._matching import NetworkMatching
from hcdc.experiments.reproductions.gnn_transfer import GNNTransfer, on_its_own


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


def test_a_graph_stands_among_all_for_its_own_network():
    def record(label, gcn, gin):
        return {"label": label, "judged": {"gcn": {"test": gcn}, "gin-0": {"test": gin}}}

    found = [record("gcn", 0.8, 0.7), record("gin-0", 0.2, 0.3), record("gin-fresh", 0.7, 0.6)]
    found.append(record("whole", 0.9, 0.9))  # no condensed graph
    assert on_its_own("gcn", found) == "first"
    assert on_its_own("gin-0", found) == on_its_own("gin-fresh", found) == "beaten by GCN's"
    assert on_its_own("sgc-2", found) == on_its_own("whole", found) == ""
