"""What every reducer must do: inherit `ReducerConformance` and give `make` (settings that are quick)."""

import json

import numpy as np
import pytest
import torch
from tiny_graph import tiny_task
from torch import Tensor

from hcdc.condensers import REDUCERS, allocate_labels
from hcdc.core.checkpoint import Checkpoint
from hcdc.core.errors import InputError
from hcdc.core.progress import Phase, Progress


class RecordingProgress(Progress):
    """Notes every step; raises `KeyboardInterrupt` halfway through phase ``stop_in`` (counted from 1)."""

    def __init__(self, stop_in=None):
        super().__init__()
        self.stop_in, self.steps = stop_in, []

    def phase(self, name, total=1):
        begun = super().phase(name, total)
        owner, stop = self, max(1, total // 2) if self.index == self.stop_in else None

        class Recorded(Phase):
            def step(self, done, figure=""):
                owner.steps.append((name, done, total))
                if done == stop:
                    raise KeyboardInterrupt

        return Recorded(begun.owner, name, total)


def reduce(reducer, task=None, part="train", size=8, seed=0, progress=None, checkpoint=None):
    return reducer.reduce(
        task or tiny_task(),
        part,
        size,
        seed,
        progress=progress or Progress(),
        checkpoint=checkpoint or Checkpoint(None),
    )


def content(nodes):
    """The bytes of a small set."""
    tensors = [nodes.graph.x, nodes.graph.adj, nodes.y, nodes.index, nodes.weight]
    return b"|".join(b"-" if t is None else np.ascontiguousarray(t.numpy()).tobytes() for t in tensors)


class ReducerConformance:
    def make(self):
        raise AssertionError("give a reducer")

    @pytest.mark.parametrize(("part", "size"), [("train", 3), ("train", 8), ("train", 20), ("val", 11)])
    def test_sizes_and_labels(self, part, size):
        task = tiny_task()
        small = reduce(self.make(), task, part, size)
        assert len(small) == small.graph.num_nodes == size
        assert torch.equal(small.y, allocate_labels(task.part(part).y, size, 3))
        assert small.index is None
        assert small.graph.num_features == task.data.graph.num_features

    def test_is_a_dense_finite_symmetric_graph(self):
        small = reduce(self.make())
        assert isinstance(small.graph.x, Tensor)
        assert small.graph.x.dtype == torch.float32
        assert bool(small.graph.x.isfinite().all())
        assert not small.graph.x.requires_grad
        adj = small.graph.adj
        if adj is not None:
            assert isinstance(adj, Tensor)
            assert not adj.requires_grad
            assert torch.equal(adj, adj.t())
            assert bool((adj >= 0).all())
            assert not bool(adj.diagonal().any())

    def test_dense_features_and_the_inductive_setting(self):
        task = tiny_task("inductive", dense=True)
        for part, size in (("train", 7), ("val", 9)):
            assert len(reduce(self.make(), task, part, size)) == size

    def test_same_seed_same_bytes(self):
        assert content(reduce(self.make(), seed=3)) == content(reduce(self.make(), seed=3))

    def test_other_seed_other_bytes(self):
        assert len({content(reduce(self.make(), seed=seed)) for seed in range(3)}) > 1

    def test_the_original_is_not_changed(self):
        task = tiny_task(dense=True)
        before = task.data.fingerprint()
        reduce(self.make(), task)
        assert task.data.fingerprint() == before

    def test_an_interrupted_run_continues_to_the_same_bytes(self, tmp_path):
        whole = reduce(self.make())
        checkpoint = Checkpoint(tmp_path / "state", "key")
        with pytest.raises(KeyboardInterrupt):
            reduce(self.make(), progress=RecordingProgress(stop_in=1), checkpoint=checkpoint)
        continued = reduce(self.make(), checkpoint=checkpoint)
        assert content(continued) == content(whole)

    def test_a_finished_run_is_read_back(self, tmp_path):
        checkpoint = Checkpoint(tmp_path / "state", "key")
        first = reduce(self.make(), checkpoint=checkpoint)
        assert content(reduce(self.make(), checkpoint=checkpoint)) == content(first)

    @pytest.mark.parametrize(
        ("part", "size", "found"),
        [("train", 2, "3 classes"), ("train", 21, "only 20"), ("val", 41, "only 40")],
    )
    def test_refuses_impossible_sizes(self, part, size, found):
        with pytest.raises(InputError, match=f"{part}_size {size}.*{found}"):
            reduce(self.make(), part=part, size=size)

    def test_refuses_an_empty_class(self):
        with pytest.raises(InputError, match="class 3 has no labelled example"):
            reduce(self.make(), tiny_task(empty_class=True))

    def test_settings_make_the_same_reducer(self):
        reducer = self.make()
        assert type(reducer)(**json.loads(json.dumps(reducer.settings()))) == reducer
        assert REDUCERS[reducer.name] is type(reducer)
