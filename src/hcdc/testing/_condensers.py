"""The conformance suite for methods that make S_train."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from hcdc.condensers import REDUCERS, Reducer
from hcdc.core.checkpoint import Checkpoint
from hcdc.core.errors import InputError
from hcdc.core.progress import Phase, Progress
from hcdc.tasks import Task


def set_bytes(small: Any) -> bytes:
    """The bytes of all tensors in a labelled set, in field order."""
    if isinstance(small, Tensor):
        return np.ascontiguousarray(small.detach().cpu().numpy()).tobytes()
    if not dataclasses.is_dataclass(small):
        return b"-"
    public = [field.name for field in dataclasses.fields(small) if not field.name.startswith("_")]
    return b"|".join(set_bytes(getattr(small, name)) for name in public)


def set_tensors(small: Any) -> list[Tensor]:
    """All floating-point tensors in a labelled set."""
    if isinstance(small, Tensor):
        return [small] if small.is_floating_point() else []
    if not dataclasses.is_dataclass(small):
        return []
    return [t for field in dataclasses.fields(small) for t in set_tensors(getattr(small, field.name))]


class RecordingProgress(Progress):
    """Records every step as ``(phase, done, total)``.

    Args:
        stop_in: The phase, counted from 1, to interrupt halfway with `KeyboardInterrupt`.
    """

    def __init__(self, stop_in: int | None = None):
        super().__init__()
        self.stop_in = stop_in
        self.steps: list[tuple[str, int, int]] = []

    def phase(self, name: str, total: int = 1) -> Phase:
        begun = super().phase(name, total)
        stop = max(1, total // 2) if self.index == self.stop_in else None
        noted = self.steps

        class Recorded(Phase):
            def step(self, done: int, figure: str = "") -> None:
                noted.append((name, done, total))
                if done == stop:
                    raise KeyboardInterrupt

        return Recorded(begun.owner, name, total)


class ReducerConformance:
    """Inherit from it and define ``make`` and ``task``; pytest then runs every test.

    Attributes:
        size: Examples in a small set.

    Example:
        class TestFirst(ReducerConformance):
            def make(self):
                return First()

            def task(self):
                return hcdc.GraphTask(hcdc.data("embedded"))
    """

    size = 8

    def make(self) -> Reducer:
        """A registered reducer with quick settings; every call returns an equal one."""
        raise AssertionError("a conformance test defines make()")

    def task(self) -> Task:
        """A new small task that it condenses, with more than ``size`` examples per part."""
        raise AssertionError("a conformance test defines task()")

    def reduce(
        self, task: Task | None = None, part: str = "train", size: int | None = None, seed: int = 0, **at: Any
    ) -> Any:
        """A small set, by default from a new task; ``at`` is ``progress`` and ``checkpoint``."""
        at = {"progress": Progress(), "checkpoint": Checkpoint(None), **at}
        return self.make().reduce(task or self.task(), part, size or self.size, seed, **at)

    @pytest.mark.parametrize("part", ["train", "val"])
    def test_sizes_and_labels_are_those_of_a_random_choice(self, part: str) -> None:
        task = self.task()
        for size in {task.least, self.size, task.most(part)}:
            small = self.reduce(task, part, size)
            assert len(small) == size
            if task.num_classes is not None:
                assert torch.equal(small.y, task.sample(part, size, 0).y)

    def test_numbers_are_finite_and_carry_no_graph(self) -> None:
        for tensor in set_tensors(self.reduce()):
            assert bool(tensor.isfinite().all())
            assert not tensor.requires_grad

    def test_same_seed_same_bytes(self) -> None:
        assert set_bytes(self.reduce(seed=3)) == set_bytes(self.reduce(seed=3))

    def test_other_seed_or_part_other_bytes(self) -> None:
        assert len({set_bytes(self.reduce(seed=seed)) for seed in range(3)}) > 1
        assert set_bytes(self.reduce(part="val")) != set_bytes(self.reduce())

    def test_the_original_is_not_changed(self) -> None:
        task = self.task()
        before = [set_bytes(task.part(part)) for part in ("train", "val")]
        self.reduce(task)
        assert [set_bytes(task.part(part)) for part in ("train", "val")] == before

    def test_an_interrupted_run_continues_to_the_same_bytes(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("hcdc.core.checkpoint.SAVE_SECONDS", 0.0)
        whole, checkpoint = self.reduce(), Checkpoint(tmp_path / "state", "key")
        stopping = RecordingProgress(stop_in=1)
        try:
            self.reduce(progress=stopping, checkpoint=checkpoint)
        except KeyboardInterrupt:
            continued = self.reduce(checkpoint=checkpoint)
            assert set_bytes(continued) == set_bytes(whole)
        else:
            assert not stopping.steps, "an interruption was lost"

    def test_a_finished_run_is_read_back(self, tmp_path: Path) -> None:
        checkpoint = Checkpoint(tmp_path / "state", "key")
        first = self.reduce(checkpoint=checkpoint)
        assert set_bytes(self.reduce(checkpoint=checkpoint)) == set_bytes(first)

    @pytest.mark.parametrize("part", ["train", "val"])
    def test_refuses_impossible_sizes(self, part: str) -> None:
        task = self.task()
        for size in (task.least - 1, len(task.part(part)) + 1):
            if size > 0:
                with pytest.raises(InputError, match=f"{part}_size {size}"):
                    self.reduce(task, part, size)

    def test_refuses_other_kinds_of_data(self) -> None:
        if self.make().takes:
            other: Any = SimpleNamespace(kind="riddle", name="sphinx")
            with pytest.raises(InputError, match="but 'sphinx' has riddles; use method 'random'"):
                self.reduce(other)

    def test_settings_make_the_same_reducer(self) -> None:
        reducer = self.make()
        assert type(reducer)(**json.loads(json.dumps(reducer.settings()))) == reducer
        assert REDUCERS[reducer.name] is type(reducer)
