"""A lock that a killed process left in an Optuna journal: removed, told, and paid from the budget."""

import os
import threading
import time

import numpy as np
import pytest

import hcdc
from hcdc.search import OptunaStore, Outcome, open_store
from hcdc.search import _lock as module
from hcdc.search._lock import JournalLock
from hcdc.search._overhead import Overhead

pytest.importorskip("optuna")

ROWS = np.eye(2), np.arange(2)


@pytest.fixture
def patience(monkeypatch):
    monkeypatch.setattr(module, "PATIENCE", 1.0)
    return 1.0


def left_behind(path):
    """What Optuna leaves if its process is killed while it appends."""
    os.symlink(path, f"{path}.lock")


def objective(trial, data):
    time.sleep(0.01 * data.epochs(10))
    return -((trial.suggest_float("x", -1, 1) - 0.3) ** 2)


def test_a_lock_that_stays_is_removed_and_told_at_once(tmp_path, caplog, patience):
    path = tmp_path / "s.log"
    path.write_text("")
    left_behind(path)
    lock, begun = JournalLock(str(path)), time.monotonic()
    assert lock.acquire()
    assert patience <= lock.waited <= time.monotonic() - begun < 10  # Optuna waits 30 seconds
    (told,) = caplog.messages
    assert told.startswith(f"the storage is locked by '{path}.lock'; if that does not change within 1 s, ")
    assert os.path.lexists(f"{path}.lock")
    lock.release()
    assert not os.path.lexists(f"{path}.lock")


def test_a_lock_that_is_released_is_waited_for(tmp_path, caplog, patience):
    first, second = (JournalLock(str(tmp_path / "s.log")) for _ in range(2))
    first.acquire()
    later = threading.Timer(0.1, first.release)
    later.start()
    second.acquire()
    later.join()
    assert 0.05 < second.waited < patience
    assert caplog.messages == []
    first.release()  # not its own any more
    assert os.path.lexists(tmp_path / "s.log.lock")
    second.release()


def test_other_optuna_processes_keep_out(tmp_path):
    from optuna.storages.journal import JournalFileSymlinkLock

    theirs, ours = JournalFileSymlinkLock(str(tmp_path / "s.log")), JournalLock(str(tmp_path / "s.log"))
    theirs.acquire()
    threading.Timer(0.1, theirs.release).start()
    ours.acquire()
    assert ours.waited > 0.05
    threading.Timer(0.1, ours.release).start()
    theirs.acquire()
    theirs.release()


@pytest.mark.parametrize("half", [b"", b'{"op_code": 1, "wor'])
def test_a_killed_search_continues_at_once_and_the_wait_is_paid(tmp_path, monkeypatch, patience, half):
    """The kill came amid a record, or before it."""
    path, full = tmp_path / "s.log", hcdc.FullData(ROWS, ROWS)
    tell, told = OptunaStore.tell, []

    def killed(self, *given):
        tell(self, *given)
        told.append(1)
        if len(told) == 8:
            raise KeyboardInterrupt

    monkeypatch.setattr(OptunaStore, "tell", killed)
    with pytest.raises(KeyboardInterrupt):
        hcdc.search(objective, full, budget=3, storage=path)
    with open(path, "ab") as handle:
        handle.write(half)
    left_behind(path)
    begun = time.monotonic()
    found = hcdc.search(objective, full, budget=3, storage=path)
    passed = time.monotonic() - begun
    assert passed < 20
    assert found.cost.overhead >= patience
    assert found.seconds <= 1.1 * 3 + 0.1


def test_waits_before_the_first_decision_are_kept(tmp_path, patience):
    path = tmp_path / "s.log"
    open_store(path).tell("full", 0, Outcome({"x": 1}, 0.5, 1.0))
    left_behind(path)
    store = OptunaStore(path)
    store.note("something", 1)
    assert Overhead(store).seconds > patience
    left_behind(path)
    again = OptunaStore(path)
    again.note("something else", 1)
    assert Overhead(again).seconds > 2 * patience
    assert 2 * patience < Overhead(OptunaStore(path)).seconds < 3 * patience
