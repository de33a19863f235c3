"""What a search logs and notes while it runs: no figure that cannot be known."""

import logging
import re

from tests.search.problems import Three

from hcdc.core.progress import Progress
from hcdc.search import Ladder, LadderSettings
from hcdc.search._pilot import thin

QUICK = LadderSettings(waves=4, pool=120, draws=24)


def test_the_time_left_is_that_of_the_budget(caplog):
    caplog.set_level(logging.INFO, "hcdc")
    ladder = Ladder(Three(), 600.0, settings=QUICK, progress=Progress(every=0.0))
    ladder.climb()
    lines = [line for line in caplog.messages if "seconds of search" in line]
    figures = [re.search(r": (\d+)/600, .*, (\d+) s left", line).groups() for line in lines]
    assert len(figures) > 20
    for done, left in figures:
        assert abs(int(done) + int(left) - 600) <= 1 or (int(done), int(left)) == (599, 0)


def test_a_plan_for_the_rest_states_no_expected_score(caplog):
    caplog.set_level(logging.INFO, "hcdc")
    Ladder(Three(), 600.0, settings=QUICK).climb()
    plans = [line for line in caplog.messages if line.startswith("plan for the rest of the budget: ")]
    assert plans
    assert all(re.fullmatch(r"[^:]*: (\d+ on \w+(, )?)+", line) for line in plans)


def test_a_rung_whose_price_is_only_guessed_is_expected_to_be_too_expensive():
    ladder = Ladder(Three(), 300.0, settings=QUICK)
    rung = ladder.climb().rung("short")
    assert (rung.candidates, rung.note) == (0, "expected to be too expensive for this budget")
    ladder = Ladder(Three(), 600.0, settings=QUICK)
    ladder.climb()
    assert ladder.board.outcomes["short"]
    ladder.dropped.clear()
    ladder.budget = 300.0
    thin(ladder)
    assert ladder.dropped["short"] == "too expensive for this budget"
