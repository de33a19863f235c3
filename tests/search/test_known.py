"""Earlier full results are used and cost nothing."""

import math

import pytest
from tests.search.clocks import X, Y, bowl, full, told
from tests.search.problems import Square

from hcdc import FullData, InputError
from hcdc.search import Ladder, Outcome, search
from hcdc.truth import CsvTruth, StudyTruth


def value(x, y):
    return 1 - (x - 0.3) ** 2 - 0.1 * math.log10(y / 1e-2) ** 2


GRID = [(x / 10, y) for x in range(-10, 11, 2) for y in (1e-3, 1e-2, 1e-1)]


@pytest.fixture
def table(tmp_path):
    lines = ["x,y,val,seconds", *(f"{x},{y},{value(x, y)},4" for x, y in GRID)]
    path = tmp_path / "earlier.csv"
    path.write_text("\n".join(lines) + "\n")
    return path


def test_a_csv_file_saves_full_trainings(clock, table, tmp_path):
    calls = []
    found = search(bowl(clock, calls), full(), budget=30, known=table, storage=tmp_path / "s.jsonl")
    assert clock.now <= 33
    assert found.curve[0] == (found.curve[0][0], max(value(x, y) for x, y in GRID))
    trained = [params for epochs, size, params in calls if (epochs, size) == (40, 100)]
    assert found.full_trainings == len(trained)
    assert found.rung("full").candidates < len(GRID)
    assert found.rung("full").price == pytest.approx(4.0, rel=0.01)  # what is known has no price
    listed = {(params["x"], params["y"]) for _, _, params in calls} & set(GRID)
    assert listed  # some are scored on cheaper rungs, which are then better understood
    assert found.score > 0.94  # the best that is known: .99, with noise of .01
    again = search(bowl(clock, calls), full(), budget=30, known=CsvTruth(table), storage=tmp_path / "s.jsonl")
    assert told(again) == told(found)
    with pytest.raises(InputError, match="the storage holds a search with known"):
        search(bowl(clock), full(), budget=30, storage=tmp_path / "s.jsonl")


@pytest.mark.usefixtures("quick")
def test_columns_that_are_no_parameters_are_told(clock, tmp_path):
    other, partly = tmp_path / "other.csv", tmp_path / "partly.csv"
    other.write_text("xx,val\n0.3,100\n")
    partly.write_text("x,y,z,val\n0.3,0.01,5,0.9\n")
    with pytest.raises(InputError, match=r"none of the parameters that the objective reads \(x, y\), but xx"):
        search(bowl(clock), full(), budget=20, known=other)
    found = search(bowl(clock), full(), budget=20, known=partly)
    assert any("has z, which the first trial did not read; it read x, y" in text for text in found.warnings)


@pytest.mark.usefixtures("quick")
def test_a_study_from_an_earlier_search(clock):
    optuna = pytest.importorskip("optuna")
    first = search(bowl(clock), full(), budget=60, seed=5)
    for known in (first.study, StudyTruth(first.study)):
        found = search(bowl(clock), full(), budget=20, known=known)
        firsts = [t.value for t in first.study.trials if t.user_attrs["repeat"] == 0]
        assert found.curve[0][1] == max(firsts)  # not the best of several trainings of one configuration
    with pytest.raises(InputError, match=r"study 'search/subset:0.1' of rung subset:0.1 on data"):
        search(bowl(clock), full(), budget=20, known=first.studies["subset:0.1"])
    with pytest.raises(InputError, match="pass the study of rung full on the same data"):
        search(bowl(clock), FullData((X + 1, Y), (X, Y)), budget=20, known=first.study)
    down = optuna.create_study()
    down.add_trials(
        [
            optuna.create_trial(
                value=-value(x, y),
                params={"x": x, "y": y},
                distributions={
                    "x": optuna.distributions.FloatDistribution(-1, 1),
                    "y": optuna.distributions.FloatDistribution(1e-4, 1, log=True),
                },
            )
            for x, y in GRID
        ]
    )
    found = search(bowl(clock), full(), budget=20, known=down)
    assert found.curve[0][1] == pytest.approx(max(value(x, y) for x, y in GRID))


@pytest.mark.usefixtures("quick")
def test_a_storage_of_an_earlier_search_or_study(clock, tmp_path):
    optuna = pytest.importorskip("optuna")
    journal, database = tmp_path / "first.log", f"sqlite:///{tmp_path / 'study.db'}"
    first = search(bowl(clock), full(), budget=60, seed=5, storage=journal)
    study = optuna.create_study(study_name="mine", storage=database, direction="maximize")
    study.add_trials([t for t in first.study.trials if t.user_attrs["repeat"] == 0])
    for known in (journal, str(journal), database):
        found = search(bowl(clock), full(), budget=20, known=known)
        assert found.curve[0][1] == study.best_value
    optuna.create_study(study_name="other", storage=database)
    with pytest.raises(InputError, match=r"holds 2 studies \(mine, other\); pass one"):
        search(bowl(clock), full(), budget=20, known=database)
    with pytest.raises(InputError, match="the storage 'nosql://x' cannot be read"):
        search(bowl(clock), full(), budget=20, known="nosql://x")


@pytest.mark.usefixtures("quick")
def test_texts_become_the_parameters_that_are_read(clock, tmp_path):
    path = tmp_path / "e.csv"
    path.write_text("n,kind,flag,z,val\n3,b,True,,0.9\n1,a,False,0.5,0.1\n")
    seen = []

    def objective(trial, data):
        clock.spend(data.epochs(10) * len(data.train[1]) / 1000)
        n, flag = trial.suggest_int("n", 1, 40), trial.suggest_categorical("flag", [True, False])
        kind = trial.suggest_categorical("kind", ["a", "b"])
        z = trial.suggest_float("z", 0, 1) if kind == "a" else 0.0
        seen.append(trial.params)
        return 0.3 * (n == 3) + 0.3 * (kind == "b") + 0.3 * flag - 0.1 * z

    found = search(objective, full(), budget=30, known=path)
    assert {"n": 3, "kind": "b", "flag": True} in seen
    assert {"n": 1, "kind": "a", "flag": False, "z": 0.5} in seen
    assert found.best == {"n": 3, "flag": True, "kind": "b"}
    assert type(found.best["n"]) is int


def test_what_cannot_be_known_is_refused(clock, tmp_path):
    path = tmp_path / "e.csv"
    path.write_text("x,y,val\n7,0.1,0.9\n")
    with pytest.raises(InputError, match=r"has x = '7', which float.* does not contain"):
        search(bowl(clock), full(), known=path)
    with pytest.raises(InputError, match="known is a int; pass a CSV file"):
        search(bowl(clock), full(), known=3)


def test_a_known_optimum_is_confirmed_and_not_paid_twice():
    problem = Square(full_noise=0.0)
    best = Outcome({"x": 0.3, "y": 0.7}, 0.0, 0.0, told={"known": True})
    ladder = Ladder(problem, 300.0, known=[best])
    found = ladder.climb()
    assert found.best == best.config
    assert found.score == 0.0
    assert 0 not in {i for some in ladder.audits.values() for i in some}  # audits stay a uniform sample
    assert found.full_trainings == problem.rungs[-1].calls
