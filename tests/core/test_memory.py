"""Peak memory of a block, whatever ran before it."""

import numpy as np
import pytest

from hcdc.core import memory as module
from hcdc.core.memory import PeakMemory, held_gib
from hcdc.core.progress import peak_memory_gib

GIB = 2**30


def allocate(gib):
    return np.ones(int(gib * GIB / 8))


def test_a_block_counts_what_it_holds_at_most():
    with PeakMemory() as peak:
        allocate(0.1)
        first = allocate(0.2)
    assert peak.rise == pytest.approx(0.2, abs=0.08)
    assert peak.gib == pytest.approx(held_gib()[0], abs=0.08)
    del first


def test_what_ran_before_does_not_count():
    allocate(max(0.5, peak_memory_gib() + 0.3 - held_gib()[0]))
    before = peak_memory_gib()
    with PeakMemory() as peak:
        held = allocate(0.1)
        held *= 2
    assert peak.gib < before - 0.1
    assert peak.rise == pytest.approx(0.1, abs=0.08)
    assert peak_memory_gib() == pytest.approx(before, abs=0.01)  # it was not reset
    del held


def test_a_system_that_does_not_tell_what_is_held_tells_its_peak(monkeypatch, tmp_path):
    monkeypatch.setattr(module, "STATM", tmp_path / "missing")
    with PeakMemory() as peak:
        pass
    assert peak.gib == pytest.approx(peak_memory_gib(), abs=0.01)
    assert peak.rise == pytest.approx(0.0, abs=0.01)
