import pytest
import torch

from hcdc.core import checkpoint as checkpointing
from hcdc.core.checkpoint import Checkpoint, Loop, Resumable, content_key
from hcdc.core.errors import NumericalError
from hcdc.core.progress import Progress


@pytest.fixture
def saved(tmp_path):
    checkpoint = Checkpoint(tmp_path / "run.ckpt", "key")
    checkpoint.save({"x": torch.arange(6.0).reshape(2, 3)}, {"step": 3})
    return checkpoint


def test_round_trip(tmp_path):
    tensors = {
        "half": torch.randn(2, 3).half(),
        "ints": torch.tensor([2**40, -1]),
        "flag": torch.tensor(True),
        "empty": torch.zeros(0, 4),
        "double": torch.tensor([0.1, float("nan")], dtype=torch.float64),
    }
    state = {"step": 7, "best": 0.1, "history": [1.5, None], "name": "größe"}
    Checkpoint(tmp_path / "run.ckpt", "key").save(tensors, state)
    again, kept = Checkpoint(tmp_path / "run.ckpt", "key").load()
    assert kept == state
    assert set(again) == set(tensors)
    for name, tensor in tensors.items():
        assert again[name].dtype == tensor.dtype
        torch.testing.assert_close(again[name], tensor, rtol=0, atol=0, equal_nan=True)


def test_views_of_one_storage_and_learned_tensors_can_be_saved(tmp_path):
    base = torch.arange(12.0).reshape(3, 4).requires_grad_()
    tensors = {"base": base, "rows": base[1:], "turned": base.t(), "wide": base[:, :1].expand(3, 5)}
    Checkpoint(tmp_path / "c", "k").save(tensors, {})
    again, _ = Checkpoint(tmp_path / "c", "k").load()
    for name, tensor in tensors.items():
        assert torch.equal(again[name], tensor.detach())


def test_another_key_is_ignored(saved):
    assert Checkpoint(saved.path, "another").load() is None
    assert saved.load() is not None


def test_a_truncated_file_is_ignored_at_every_length(saved):
    whole = saved.path.read_bytes()
    for length in range(0, len(whole), 5):
        saved.path.write_bytes(whole[:length])
        assert saved.load() is None
    saved.path.write_bytes(whole)
    assert saved.load()[1] == {"step": 3}


@pytest.mark.parametrize("content", [b"", b"{}", b"not a checkpoint at all" * 9])
def test_a_foreign_file_is_ignored(saved, content):
    saved.path.write_bytes(content)
    assert saved.load() is None


def test_a_folder_in_its_place_is_ignored(tmp_path):
    assert Checkpoint(tmp_path, "key").load() is None


def test_nothing_saved_is_none(tmp_path):
    assert Checkpoint(tmp_path / "absent", "key").load() is None


def test_a_failing_save_keeps_the_last_state(saved):
    with pytest.raises(TypeError):
        saved.save({"x": torch.zeros(1)}, {"step": object()})
    assert saved.load()[1] == {"step": 3}
    assert list(saved.path.parent.iterdir()) == [saved.path]


def test_children_have_files_and_keys_of_their_own(saved):
    child = saved.child("train")
    assert child.load() is None
    child.save({}, {"step": 1})
    assert saved.load()[1] == {"step": 3}
    assert child.load()[1] == {"step": 1}
    assert Checkpoint(saved.path, "another").child("train").load() is None


def test_remove(saved):
    saved.remove()
    saved.remove()
    assert saved.load() is None


def test_without_a_path_nothing_is_kept():
    off = Checkpoint(None)
    off.save({"x": torch.ones(1)}, {})
    off.child("train").save({"x": torch.ones(1)}, {})
    off.remove()
    assert off.load() is None


def test_content_key_depends_on_values_not_on_their_order():
    key = content_key({"a": 1, "b": [1, 2]})
    assert key == content_key({"b": [1, 2], "a": 1})
    assert key != content_key({"a": 1, "b": [2, 1]})
    assert len(key) == 32


def test_seconds_of_earlier_runs_are_added(tmp_path, monkeypatch):
    """Up to the last state that was saved: what came after it is done again, and counted again."""
    now = [100.0]
    monkeypatch.setattr(checkpointing.time, "perf_counter", lambda: now[0])
    first = Checkpoint(tmp_path / "run.ckpt", "key")
    now[0] += 7
    first.child("phase").save({}, {"step": 1})
    now[0] += 1000  # lost
    second = Checkpoint(tmp_path / "run.ckpt", "key")
    phase = second.child("phase")
    assert second.clock.earlier == 0
    now[0] += 2
    phase.load()
    assert (second.clock.earlier, second.clock.seconds()) == (7, 9)
    now[0] += 3
    phase.save({}, {"step": 2})
    third = Checkpoint(tmp_path / "run.ckpt", "key").timed_anew()
    third.child("phase").load()
    assert third.clock.earlier == 12
    assert second.timed_anew().clock.earlier == 0
    Checkpoint(tmp_path / "run.ckpt", "other").child("phase").load()  # of another run: nothing is known


def test_phases_of_a_run_share_what_lies_beside_them(tmp_path):
    run = Checkpoint(tmp_path / "run", "key")
    run.child("train").beside("network").save({}, {"done": 3})
    assert run.child("val").beside("network").load() == ({}, {"done": 3})
    assert run.child("network").load() == ({}, {"done": 3})
    assert run.beside("network").load() == ({}, {"done": 3})
    assert Checkpoint(None).child("train").beside("network").load() is None


def test_a_run_has_begun_where_a_state_of_its_own_lies(tmp_path):
    run = Checkpoint(tmp_path / "run", "key")
    assert not run.begun()
    (tmp_path / "run.train").write_bytes(b"not a checkpoint")
    Checkpoint(tmp_path / "run", "other").child("val").save({}, {})
    Checkpoint(tmp_path / "runner", "key").save({}, {})
    assert not run.begun()
    run.child("scores").child("deep").save({}, {})
    assert run.begun()
    assert not Checkpoint(None).begun()
    assert not Checkpoint(tmp_path / "nowhere" / "run", "key").begun()


class Walk(Resumable):
    """A number that grows by the number of each step, and how often it did."""

    def __init__(self):
        self.x, self.calls = torch.zeros(2), 0

    def tensors(self):
        return {"x": self.x}

    def values(self):
        return {"calls": self.calls}

    def restore(self, tensors, values):
        self.calls = values["calls"]
        return super().restore(tensors, values)

    def run(self, loop, stop=None, phase=None, count=1):
        for step in loop.steps(phase):
            if step == stop:
                raise KeyboardInterrupt
            self.x += step
            self.calls += 1
            loop.made(f"now {step}", min(count, loop.total - step))
        return self


class TestLoop:
    @pytest.fixture(autouse=True)
    def _save_every_step(self, monkeypatch):
        monkeypatch.setattr("hcdc.core.checkpoint.SAVE_SECONDS", 0.0)

    def test_continues_where_it_was_interrupted(self, tmp_path):
        place = Checkpoint(tmp_path / "state", "key")
        walk = Walk()
        with pytest.raises(KeyboardInterrupt):
            walk.run(Loop(walk, place, 5), stop=3)
        again = Walk()
        loop = Loop(again, place, 5)
        assert (loop.done, again.calls, again.x.tolist()) == (3, 3, [3.0, 3.0])
        assert again.run(loop).x.tolist() == [10.0, 10.0]
        finished = Loop(Walk(), place, 5)
        assert finished.done == 5
        assert list(finished.steps()) == []

    def test_saves_at_multiples_and_at_the_end_only(self, tmp_path):
        place = Checkpoint(tmp_path / "state", "key")
        walk = Walk()
        with pytest.raises(KeyboardInterrupt):
            walk.run(Loop(walk, place, 5, every=2), stop=3)
        assert Loop(Walk(), place, 5, every=2).done == 2
        walk.run(Loop(walk, place, 5, every=2))
        assert Loop(Walk(), place, 5, every=2).done == 5

    def test_saves_when_it_is_time(self, tmp_path, monkeypatch):
        monkeypatch.setattr("hcdc.core.checkpoint.SAVE_SECONDS", 3600.0)
        place, walk = Checkpoint(tmp_path / "state", "key"), Walk()
        with pytest.raises(KeyboardInterrupt):
            walk.run(Loop(walk, place, 5), stop=3)
        assert place.load() is None
        walk.run(Loop(walk, place, 5))
        assert place.load()[1] == {"calls": walk.calls, "done": 5}

    def test_reports_steps_and_begins_to_count_where_it_continues(self, tmp_path):
        place, walk, seen = Checkpoint(tmp_path / "state", "key"), Walk(), []
        with pytest.raises(KeyboardInterrupt):
            walk.run(Loop(walk, place, 5), stop=2)
        phase = Progress().phase("walk", 5)
        phase.step = lambda done, figure: seen.append((done, figure))
        walk.run(Loop(walk, place, 5), phase=phase, count=2)
        assert seen == [(4, "now 2"), (5, "now 4")]
        assert phase.first_step == 2

    def test_a_state_of_elsewhere_is_not_taken_up(self, tmp_path):
        class Elsewhere(Walk):
            def restore(self, tensors, values):
                return False

        place, walk = Checkpoint(tmp_path / "state", "key"), Walk()
        walk.run(Loop(walk, place, 2))
        assert Loop(Elsewhere(), place, 2).done == 0

    @pytest.mark.parametrize("value", [float("nan"), torch.tensor([0.0, float("inf")])])
    def test_stops_with_a_diagnosis(self, value):
        loop = Loop(Walk(), Checkpoint(None), 9, "DM", "iteration")
        loop.check("all is well", 1.0, torch.zeros(3))
        with pytest.raises(NumericalError, match="DM diverged by iteration 4 of 9: try a smaller lr"):
            loop.check("try a smaller lr", 1.0, value, count=4)
