"""Recorded steps: plain calls on the CPU; on CUDA (here a stand-in) recorded once, warm-up undone."""

import contextlib
import gc

import pytest
import torch

from hcdc.training import Captured, CapturedMany
from hcdc.training import _captured as module


def test_on_the_cpu_a_step_is_called_when_it_is_called():
    value = torch.zeros(3)
    step = Captured(lambda: value.add_(1), "cpu", [value])
    assert step.graph is None
    assert not value.any()  # nothing has run yet
    step()
    step()
    assert torch.equal(value, torch.full((3,), 2.0))


def test_on_the_cpu_many_steps_run_in_turn():
    order = []
    many = CapturedMany([lambda k=k: order.append(k) for k in range(5)], torch.device("cpu"), streams=2)
    assert order == []
    many()
    many()
    assert order == [0, 1, 2, 3, 4] * 2
    order.clear()
    many([3, 0, 3])
    many(k for k in (4, 1))
    many([])
    assert order == [3, 0, 3, 4, 1]
    CapturedMany([], "cpu")()


def test_nothing_is_collected_while_recording():
    assert gc.isenabled()
    with module._no_collection():
        assert not gc.isenabled()
    assert gc.isenabled()
    with contextlib.suppress(ValueError), module._no_collection():
        raise ValueError
    assert gc.isenabled()
    gc.disable()
    try:
        with module._no_collection():
            pass
        assert not gc.isenabled()  # as it was
    finally:
        gc.enable()


# --- CUDA, by a stand-in that says what it was asked ---------------------------------------


class Stream:
    def __init__(self):
        self.waits = 0

    def wait_stream(self, other):
        assert isinstance(other, Stream)
        self.waits += 1


class Graph:
    """Runs what it recorded: while recording, the step runs here, which on a device it would not."""

    recording = None

    def __init__(self):
        self.replays, self.pool, self.streams = 0, None, []

    def capture_begin(self, pool=None, capture_error_mode="global"):
        assert Graph.recording is None
        assert capture_error_mode == "thread_local"
        assert not gc.isenabled()
        Graph.recording, self.pool = self, pool

    def capture_end(self):
        assert Graph.recording is self
        Graph.recording = None

    def replay(self):
        self.replays += 1
        self.streams.append(torch.cuda.current_stream())


@pytest.fixture
def device(monkeypatch):
    main = Stream()
    now = [main]

    @contextlib.contextmanager
    def stream(chosen):
        now.append(chosen)
        yield
        now.pop()

    for name, stand_in in {
        "Stream": Stream,
        "CUDAGraph": Graph,
        "stream": stream,
        "current_stream": lambda: now[-1],
        "graph_pool_handle": object,
    }.items():
        monkeypatch.setattr(torch.cuda, name, stand_in)
    return now


def test_on_a_device_a_step_is_recorded_once_and_warm_up_is_undone(device):
    value, steps = torch.ones(2), []

    def step():
        steps.append("recorded" if Graph.recording else "warm")
        assert device[-1] is not device[0]  # a graph is not recorded on the default stream
        value.mul_(2)

    captured = Captured(step, "cuda", [value], warmup=3)
    assert steps == ["warm"] * 3 + ["recorded"]
    assert torch.equal(value, torch.ones(2))
    captured()
    captured()
    assert captured.graph.replays == 2
    assert len(steps) == 4
    assert device[0].waits == 1


def test_on_a_device_many_steps_are_dealt_to_streams_that_share_memory(device):
    where, warm = [], []

    def make(k):
        def step():
            (where if Graph.recording else warm).append((k, device[-1]))

        return step

    many = CapturedMany([make(k) for k in range(5)], "cuda", streams=2)
    assert [k for k, _ in warm] == [k for k, _ in where] == [0, 1, 2, 3, 4]
    assert [stream for _, stream in where] == [many.streams[k % 2] for k in range(5)]
    pools = [graph.pool for graph in many.graphs]
    assert pools[0] is pools[2] is pools[4]
    assert pools[1] is pools[3]
    assert pools[0] is not pools[1]
    before = [stream.waits for stream in many.streams], device[0].waits
    many()
    assert [graph.replays for graph in many.graphs] == [1] * 5
    assert [stream.waits for stream in many.streams] == [count + 1 for count in before[0]]
    assert device[0].waits == before[1] + 2  # the caller's stream waits for all
    many(k for k in (4, 1, 3))
    assert [graph.replays for graph in many.graphs] == [1, 2, 1, 2, 2]
    assert [set(graph.streams) for graph in many.graphs] == [{many.streams[k % 2]} for k in range(5)]
    assert [stream.waits for stream in many.streams] == [count + 2 for count in before[0]]
    assert device[0].waits == before[1] + 4
    assert len(where) == len(warm) == 5
