"""Budgets for hardly more than one full training, with decisions that take long."""

import pytest
from tests.search.clocks import full
from tests.search.problems import Square

from hcdc.core.told import found_lines
from hcdc.search import Ladder, LadderSettings, search
from hcdc.search._board import Posterior


@pytest.fixture
def climb(clock, monkeypatch):
    """Search with a budget, if a full training takes two seconds and a decision ``thinking``."""

    def made(budget, thinking):
        class Slow(Posterior):
            def __init__(self, *given):
                super().__init__(*given)
                clock.now += thinking

        for room in ("_ladder", "_hurry"):
            monkeypatch.setattr(f"hcdc.search.{room}.Posterior", Slow)
        problem = Square()
        problem.rungs[0].price, problem.rungs[1].price = 0.1, 2.0
        return Ladder(problem, budget, settings=LadderSettings(pool=240, draws=24)).climb()

    return made


@pytest.mark.parametrize(("budget", "thinking"), [(6.0, 0.7), (6.0, 1.0), (8.0, 1.0), (8.0, 1.4)])
def test_one_full_training_is_made_if_it_fits(climb, budget, thinking):
    found = climb(budget, thinking)
    assert found.full_trainings >= 1
    assert found.score is not None
    assert found.seconds <= 1.1 * budget


def test_the_score_of_an_only_full_training_is_reported(climb):
    found = climb(6.0, 1.0)
    assert (found.full_trainings, found.finalists) == (1, [])
    assert found.score == found.curve[0][1]
    told = dict(found_lines(found))
    assert told["score"].endswith("from its only full training")
    assert told["verdict"].startswith("use it with care: it is the only candidate")


@pytest.mark.parametrize("name", ["subset:0.1", "full"])
def test_nothing_is_begun_once_the_first_trial_took_the_whole_budget(clock, name):
    def objective(trial, data):
        clock.spend(3.0)
        return trial.suggest_float("a", 0, 1)

    found = search(objective, full(), budget=1, rungs=[name])
    assert found.seconds == 3.0
    assert found.best is None
    told = found_lines(found)
    assert told[0] == ("use", "nothing: no candidate was trained")
    assert [text for label, text in told if label == "warning"] == [
        "the budget did not allow one full training"
    ]
