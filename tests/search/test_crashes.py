"""A trial during which the process ends, again and again, does not end a search for ever."""

import pytest
from tests.search.problems import Square

from hcdc.search import Ladder, LadderSettings, LineStore, Outcome, Store, open_store

CONFIG = {"x": 0.5}


@pytest.fixture(params=["s.jsonl", "s.log"])
def reopened(request, tmp_path):
    """Opens the same storage, as a process that starts anew does."""
    if request.param == "s.log":
        pytest.importorskip("optuna")
    path = tmp_path / request.param
    open_store(path).note("problem", {})
    return lambda: open_store(path)


def dies(store, rung="full", config=CONFIG):
    """The process ends during a trial."""
    store.begun(rung, 0, config).__enter__()


def test_it_fails_once_the_process_has_ended_twice(reopened):
    assert reopened().continued
    for _ in range(2):
        store = reopened()
        assert store.known("full", 0, CONFIG) is None
        dies(store)
    found = reopened().known("full", 0, CONFIG)
    assert (found.state, found.complete) == ("failed", False)
    assert "the process ended during this trial 2 times" in found.note
    assert reopened().known("full", 1, CONFIG) is None
    assert reopened().known("full", 0, {"x": 0.6}) is None


def test_what_can_be_caught_is_no_crash(reopened):
    for _ in range(3):
        with pytest.raises(KeyboardInterrupt), reopened().begun("full", 0, CONFIG):
            raise KeyboardInterrupt
    assert reopened().known("full", 0, CONFIG) is None
    for _ in range(2):
        dies(reopened())
    assert not reopened().known("full", 0, CONFIG).complete


def test_an_outcome_counts_whatever_happened_before(reopened):
    dies(reopened())
    store = reopened()
    with store.begun("full", 0, CONFIG):
        pass
    store.tell("full", 0, Outcome(CONFIG, 1.0, 2.0, told={"params": CONFIG, "distributions": []}))
    assert reopened().known("full", 0, CONFIG).score == 1.0


def test_a_new_search_notes_nothing_before_a_trial(tmp_path):
    store = LineStore(tmp_path / "s.jsonl")
    with store.begun("full", 0, CONFIG):
        pass
    assert not (tmp_path / "s.jsonl").exists()
    assert not Store().continued


def test_a_search_goes_on_without_the_candidate(tmp_path):
    grid, settings = Square(grid=5), LadderSettings(waves=2, pool=25, draws=16)
    bad = grid.candidates()[7]
    LineStore(tmp_path / "s.jsonl").note("other", True)
    for rung in ("cheap", "full"):
        for _ in range(2):
            dies(LineStore(tmp_path / "s.jsonl"), rung, bad)
    found = Ladder(grid, 2000.0, 0, LineStore(tmp_path / "s.jsonl"), settings).climb()
    assert found.score is not None
    assert found.rung("cheap").failed == 1
    assert any("trials failed; most often the process ended" in text for text in found.warnings)
