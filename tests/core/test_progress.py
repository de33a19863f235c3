import logging
import re
import subprocess
import sys

import pytest

from hcdc.core import progress as module
from hcdc.core.progress import Progress, peak_memory_gib, timed


@pytest.fixture
def clock(monkeypatch):
    """A clock that the test moves: ``clock[0]`` is now."""
    now = [1000.0]
    monkeypatch.setattr(module.time, "monotonic", lambda: now[0])
    return now


@pytest.fixture
def lines(caplog):
    caplog.set_level(logging.INFO, "hcdc")
    return lambda: [record.getMessage() for record in caplog.records]


def test_a_report_has_phase_step_figure_time_left_and_memory(clock, lines):
    run = Progress(count=3)
    run.phase("first").step(1)
    phase = run.phase("alignment", 40)
    clock[0] += 8
    phase.step(10, "D = 0.31 (best 0.30)")
    first, second = lines()
    assert first.startswith("[1/3] first: 1/1, 0 s left, peak ")
    # one step is known to be new (a continued run begins late), so 8 seconds a step and 30 to go
    assert re.fullmatch(
        r"\[2/3\] alignment: 10/40, D = 0\.31 \(best 0\.30\), 240 s left, peak \d+\.\d GiB", second
    )


def test_time_left_is_that_of_the_pace_so_far(clock, lines):
    phase = Progress().phase("train", 100)
    for step in range(1, 41):
        clock[0] += 0.5
        phase.step(step)
    assert ", 30 s left" in lines()[-1]  # the 40th step at 20 s, 60 more at half a second


def test_a_continued_run_counts_only_its_own_steps(clock, lines):
    phase = Progress().phase("train", 100)
    for step in range(81, 91):  # steps 1 to 80 were made by an earlier process
        clock[0] += 1.0
        phase.step(step)
    assert ": 90/100, 10 s left" in lines()[-1]


def test_what_is_known_to_be_left_is_not_estimated(clock, lines):
    phase = Progress().phase("seconds of search", 60)
    clock[0] += 6
    phase.left = 56.0
    phase.step(4)
    assert ", 56 s left" in lines()[-1]


def test_step_zero_is_no_work(clock, lines):
    phase = Progress().phase("train", 10)
    phase.step(0)
    clock[0] += 6
    phase.step(2)
    assert ", 24 s left" in lines()[-1]


def test_reports_are_rare_but_the_last_step_always_comes(clock, lines):
    phase = Progress(every=5.0).phase("train", 50)
    for step in range(1, 51):
        clock[0] += 0.25
        phase.step(step)
    assert [re.search(r": (\d+)/", line).group(1) for line in lines()] == ["20", "40", "50"]


def test_more_phases_than_announced_are_counted(lines):
    run = Progress(count=1)
    for name in ("a", "b"):
        run.phase(name).step(1)
    assert [line[:5] for line in lines()] == ["[1/1]", "[2] b"]


def test_nothing_is_printed_unless_live(clock, capsys):
    phase = Progress().phase("train", 2)
    clock[0] += 60
    phase.step(1)
    phase.step(2)
    assert capsys.readouterr() == ("", "")


def test_live_rewrites_one_line_and_ends_it(clock, capsys, lines, monkeypatch):
    monkeypatch.setenv("COLUMNS", "40")
    phase = Progress(live=True).phase("train", 2)
    for step in (1, 2):
        clock[0] += 1
        phase.step(step, "a long figure " * 5)
    out, err = capsys.readouterr()
    assert out == ""
    assert lines() == []
    first, second = err.removesuffix("\n").split("\r\x1b[2K")[1:]
    assert first.startswith("[1] train: 1/2, a long figure")
    assert second.startswith("[1] train: 2/2, a long figure")
    assert len(first) == len(second) == 39  # a wrapped line could not be rewritten
    assert err.count("\n") == 1
    assert err.endswith("\n")


def test_peak_memory_grows_with_what_is_held():
    before = peak_memory_gib()
    held = bytearray(int((before + 0.2) * 2**30))
    held[::4096] = b"x" * len(held[::4096])
    assert before > 0.01
    assert peak_memory_gib() >= before + 0.2


def test_peak_memory_is_not_inherited():
    """A process that a large one starts has a peak of its own."""
    held = bytearray(2**30)
    held[::4096] = b"x" * len(held[::4096])
    code = "from hcdc.core.progress import resident_peak_gib; print(resident_peak_gib())"
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert 0.01 < float(told) < 1


def test_peak_memory_is_told_where_the_system_has_no_status(monkeypatch, tmp_path):
    monkeypatch.setattr(module, "STATUS", tmp_path / "missing")
    assert module.resident_peak_gib() > 0.01


def test_timed(monkeypatch):
    ticks = iter([10.0, 12.5])
    monkeypatch.setattr(module.time, "perf_counter", lambda: next(ticks))
    with timed() as seconds:
        assert seconds == []
    assert seconds == [2.5]
