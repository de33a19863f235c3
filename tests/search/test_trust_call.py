"""`hcdc.trust`: stand-ins of known worth, for an objective and for a copy."""

import numpy as np
import pytest

import hcdc
from hcdc import FullData, InputError
from hcdc.core.trusted import Trust
from hcdc.evaluation import checked_judges
from hcdc.search import trust_cost, trust_seconds
from hcdc.search._task_problem import TrainedRung
from hcdc.truth import CsvTruth

rng = np.random.default_rng(0)
X = rng.normal(size=(240, 3)).astype(np.float32)
Y = (X[:, 0] + 0.3 * X[:, 1] > 0).astype(np.int64)


def objective(noise, calls=None):
    """The score is ``x``; on anything smaller than the full data, noise of its own hides it."""

    def run(trial, data):
        x, kind = trial.suggest_float("x", 0.0, 1.0), trial.suggest_categorical("kind", ["a", "b"])
        whole = data.epochs(10) == 10 and len(data.train[1]) == len(X)
        if calls is not None:
            calls.append(whole)
        own = np.random.default_rng(data.seed % 2**32).standard_normal()
        return x + 0.1 * (kind == "a") + (0.0 if whole else noise * own)

    return run


def full():
    return FullData((X, Y), (X, Y))


def test_a_faithful_stand_in_is_trusted_and_a_blind_one_is_not():
    calls = []
    good = hcdc.trust(objective(0.01, calls), full(), rung="subset:0.1", probes=24)
    assert sum(calls) == 24  # full trainings
    assert len(calls) == 1 + 5 * 24 + 24
    assert (good.verdict, good.probes, good.candidates) == ("trust", 24, 120)
    assert good.dimension("x").verdict == "choose here"
    assert {d.name for d in good.dimensions} == {"x", "kind"}
    blind = hcdc.trust(objective(100.0), full(), rung="short:0.25", probes=24)
    assert blind.verdict in ("no", "unknown")
    assert blind.interval[0] < 0.3
    assert Trust.from_json(good.to_json()).to_json() == good.to_json()


def test_a_stand_in_is_measured_against_a_short_training_and_confirmed_in_full():
    calls = []
    found = hcdc.trust(
        objective(0.01, calls), full(), rung="subset:0.1", probes=60, against="short:0.25", confirm=12,
        groups={"both": "x + 2 * x"},
    )  # fmt: skip
    assert sum(calls) == 12  # full trainings
    assert len(calls) == 1 + 5 * 60 + 60 + 12
    assert (found.verdict, found.against, found.probes) == ("trust", "short:0.25", 60)
    assert (found.confirmed.against, found.confirmed.probes) == ("full", 12)
    assert found.confirmed.spearman > 0.9
    assert found.dimension("both").verdict == found.dimension("x").verdict == "choose here"
    assert "in full" in str(found)
    assert Trust.from_json(found.to_json()).to_json() == found.to_json()


def test_full_trainings_that_disagree_withdraw_trust():
    """Subset and short training agree about ``x``; the full training turns it round."""

    def turned(trial, data):
        x = trial.suggest_float("x", 0.0, 1.0)
        return -x if data.epochs(10) == 10 and len(data.train[1]) == len(X) else x

    found = hcdc.trust(turned, full(), probes=24, against="short:0.25", confirm=12)
    assert found.verdict == "keep open"
    assert found.why.startswith("it agrees with 'short:0.25', but from 12 probes")
    assert found.confirmed.verdict == "no"


def test_a_copy_is_measured_against_short_trainings():
    task = hcdc.TableTask(hcdc.data((X, X[:, 0] + 0.5 * X[:, 1])), "ridge")
    recipe = {"steps": 20, "lr": 0.1, "seeds": 1}
    copy = hcdc.condense(
        task, task.space(), "random", train_size=len(task.train), val_method="real", recipe=recipe,
        full_recipe=recipe, checkpoint=None,
    )  # fmt: skip
    found = hcdc.trust(copy, probes=12, against="short:0.5", confirm=4)
    assert (found.against, found.probes, found.confirmed.probes) == ("short:0.5", 12, 4)
    for call in (lambda: hcdc.trust(copy, against="short:3"), lambda: trust_cost(copy, task, 12, "short:3")):
        with pytest.raises(InputError, match="against 'short:3': for a copy, give a share of the steps"):
            call()


def test_the_cost_of_a_copy_counts_its_own_trials_too(monkeypatch):
    """A trial on the copy takes 2 s, a short one 5 s, a full one 10 s."""
    task = hcdc.TableTask(hcdc.data((X, X[:, 0])), "ridge")
    recipe = {"steps": 20, "seeds": 2}
    copy = hcdc.condense(
        task, task.space(), "random", train_size=20, recipe=recipe, full_recipe=recipe, checkpoint=None
    )
    monkeypatch.setattr("hcdc.search._trust.training_seconds", lambda *_: 10.0)
    price = {"copy": 2.0, "short:0.5": 5.0}
    monkeypatch.setattr(TrainedRung, "forecast", lambda self, configs, budget: price[self.name])
    found = trust_cost(copy, task, 16)
    assert (found.seconds, found.full_trainings) == (16 * 10 + 80 * 2, 16)
    assert found.words().startswith("16 full-data trainings, less those that the cache knows: about 160 s")
    assert found.words().endswith("; 80 trials on the copy: about 160 s")
    found = trust_cost(copy, task, 12, "short:0.5", 4)
    assert (found.seconds, found.full_trainings) == (4 * 10 + 60 * 2 + 12 * 5, 4)
    table = CsvTruth.__new__(CsvTruth)
    assert trust_cost(copy, task, 16, truth=table).words() == "80 trials on the copy: about 160 s"


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"confirm": 4}, "all probes are trained in full"),
        ({"against": "short:0.5", "confirm": 2}, "give 0, or 4 to 16"),
        ({"against": "short:0.5", "confirm": 17}, "give 0, or 4 to 16"),
        ({"against": "subset:0.5"}, "a short training such as"),
        ({"groups": {"step": "lr -"}}, "is no sum of hyperparameters"),
        ({"groups": {"step": "log lr - log batch"}}, "hyperparameter 'lr'"),
    ],
)
def test_designs_that_make_no_sense_are_refused(options, words):
    with pytest.raises(InputError, match=words):
        hcdc.trust(objective(0.1), full(), **options)


def test_a_real_stand_in_is_confirmed():
    """A tenth of the digits ranks linear classifiers: 60 probes with a quarter of the epochs, 12 in full."""
    datasets, linear = pytest.importorskip("sklearn.datasets"), pytest.importorskip("sklearn.linear_model")
    x, y = datasets.load_digits(return_X_y=True)
    x = x / 16

    def digits(trial, data):
        rate = trial.suggest_float("rate", 1e-4, 1.0, log=True)
        decay = trial.suggest_float("decay", 1e-6, 1.0, log=True)
        model = linear.SGDClassifier(
            learning_rate="constant", eta0=rate, alpha=decay, max_iter=data.epochs(12), tol=None,
            random_state=data.seed,
        )  # fmt: skip
        return data.score(values=model.fit(*data.train).predict(data.val[0]))

    data = FullData((x[:1200], y[:1200]), (x[1200:], y[1200:]))
    found = hcdc.trust(
        digits, data, rung="subset:0.1", probes=60, against="short:0.25", confirm=12,
        groups={"shrinkage": "log rate + log decay"},
    )  # fmt: skip
    assert (found.probes, found.confirmed.probes) == (60, 12)
    assert found.verdict in ("trust", "keep open")
    assert found.interval[0] > 0
    assert found.confirmed.spearman > 0
    names = {d.name: d for d in found.dimensions}
    assert set(names) == {"rate", "decay", "shrinkage"}
    assert max(d.importance for d in found.dimensions) > 0.1  # one of them matters


def test_trials_that_fail_rank_last():
    def half(trial, data):
        x = trial.suggest_float("x", 0.0, 1.0)
        if x < 0.5:
            raise ValueError("too small")
        return x

    found = hcdc.trust(half, full(), rung="subset:0.1", probes=16)
    assert found.spearman > 0.9


def test_probes_are_never_pruned():
    def pruned(trial, data):
        x = trial.suggest_float("x", 0.0, 1.0)
        trial.report(x, 1)
        if trial.should_prune():
            raise hcdc.search.TrialPruned
        return x

    assert hcdc.trust(pruned, full(), probes=24).spearman == pytest.approx(1.0)


def pruned_above(limit):
    """Noise, but trials above a limit are pruned on both rungs."""

    def run(trial, data):
        if trial.suggest_float("x", 0.0, 1.0) > limit:
            raise hcdc.search.TrialPruned
        return float(np.random.default_rng(data.seed % 2**32 + len(data.train[1])).standard_normal())

    return run


def test_pruned_trials_do_not_count():
    """Ranked last, they would agree by themselves."""
    found = hcdc.trust(pruned_above(0.5), full(), rung="subset:0.1", probes=40, seed=3)
    assert 10 <= found.probes <= 30
    assert found.spearman < 0.5
    with pytest.raises(InputError, match="probes are left, since pruned trials do not count"):
        hcdc.trust(pruned_above(0.3), full(), rung="subset:0.1", probes=5)


CALLS = {"made": 0, "stop": -1}


def stoppable(trial, data):
    """Counts its calls, and stops at one of them."""
    x = trial.suggest_float("x", 0.0, 1.0)
    if CALLS["made"] == CALLS["stop"]:
        raise KeyboardInterrupt
    CALLS["made"] += 1
    return x + 0.1 * float(np.random.default_rng(data.seed % 2**32).standard_normal())


@pytest.mark.parametrize("name", ["t.jsonl", "t.log"])
def test_a_stopped_measurement_continues(tmp_path, name):
    if name == "t.log":
        pytest.importorskip("optuna")
    CALLS.update(made=0, stop=-1)
    whole, made = hcdc.trust(stoppable, full(), probes=8).to_json(), CALLS["made"]
    CALLS.update(made=0, stop=30)
    with pytest.raises(KeyboardInterrupt):
        hcdc.trust(stoppable, full(), probes=8, storage=tmp_path / name)
    CALLS.update(made=30, stop=-1)
    assert hcdc.trust(stoppable, full(), probes=8, storage=tmp_path / name).to_json() == whole
    assert CALLS["made"] == made
    with pytest.raises(InputError, match="the storage holds a search with seed"):
        hcdc.trust(stoppable, full(), probes=8, seed=1, storage=tmp_path / name)


def test_a_copy_is_measured_against_full_trainings():
    """A copy that holds all rows ranks as the full data does."""
    task = hcdc.TableTask(hcdc.data((X, X[:, 0] + 0.5 * X[:, 1] + 0.1 * X[:, 2] ** 2)), "ridge")
    recipe = {"steps": 300, "lr": 0.1, "seeds": 1}  # until the initialisation no longer matters
    copy = hcdc.condense(
        task, task.space(), "random", train_size=len(task.train), val_method="real", recipe=recipe,
        full_recipe=recipe, checkpoint=None,
    )  # fmt: skip
    with pytest.raises(
        InputError, match="rung belongs to an objective; leave it out for a condensed data set"
    ):
        hcdc.trust(copy, rung="subset:0.3")
    found = hcdc.trust(copy, probes=16)
    assert (found.probes, found.candidates) == (16, 80)
    assert found.spearman > 0.99
    assert found.verdict == "trust"
    assert {d.name for d in found.dimensions} == {d.name for d in task.space().dimensions()}


def test_what_cannot_be_measured_is_refused():
    with pytest.raises(InputError, match="probes 3: at least 4"):
        hcdc.trust(objective(0.1), full(), probes=3)
    with pytest.raises(InputError, match="full is missing"):
        hcdc.trust(objective(0.1))
    with pytest.raises(InputError, match="rung 'subset:2' is not known"):
        hcdc.trust(objective(0.1), full(), rung="subset:2")
    with pytest.raises(InputError, match="calls neither data"):
        hcdc.trust(lambda trial, data: trial.suggest_float("x", 0, 1), full(), rung="short:0.5")
    with pytest.raises(InputError, match="all candidates failed"):
        hcdc.trust(fails_in_full, full(), rung="subset:0.1", probes=4)


def fails_in_full(trial, data):
    if len(data.train[1]) == len(X):
        raise ValueError("no")
    return trial.suggest_float("x", 0, 1)


class TestKnown:
    """Full results from before are the probes, and cost nothing."""

    @pytest.fixture
    def table(self, tmp_path):
        """100 results, chosen by something that prefers large ``x``."""
        path = tmp_path / "earlier.csv"
        xs = np.sqrt(np.random.default_rng(1).uniform(size=100))
        lines = [f"{x},{kind},{x + 0.1 * (kind == 'a')}" for x, kind in zip(xs, "ab" * 50)]
        path.write_text("\n".join(["x,kind,val", *lines]) + "\n")
        return path

    def test_only_the_stand_in_is_trained(self, table):
        calls, seen = [], []

        def run(trial, data):
            value = objective(0.01, calls)(trial, data)
            seen.append(trial.params["x"])
            return value

        found = hcdc.trust(run, full(), known=table, probes=24)
        assert sum(calls) == 0  # full trainings
        assert len(calls) == 1 + 24
        assert (found.probes, found.candidates, found.uniform) == (24, 24, False)
        assert found.spearman > 0.95
        xs = sorted(float(line.split(",")[0]) for line in table.read_text().splitlines()[1:])
        assert set(seen[1:]) < set(xs)
        assert min(seen[1:]) < xs[24]  # not the best 24
        assert max(seen[1:]) > xs[75]  # nor the worst
        again = hcdc.trust(run, full(), known=table, probes=24)
        assert again.to_json() == found.to_json()
        other = set(seen[1:25])
        hcdc.trust(run, full(), known=table, probes=24, seed=1)
        assert set(seen[-24:]) != other

    def test_they_never_say_trust_for_all_configurations(self, table):
        found = hcdc.trust(objective(0.0), full(), known=table, probes=60)
        assert found.spearman == pytest.approx(1)
        assert found.verdict == "keep open"
        assert found.why.endswith(
            "known results need not be a random sample, so this holds for configurations like these"
        )
        assert {d.name: d.verdict for d in found.dimensions} == {"x": "unknown", "kind": "unknown"}
        blind = hcdc.trust(objective(100.0), full(), known=table, probes=60)
        assert blind.verdict in ("no", "unknown")
        assert "configurations like these" in blind.why
        few = hcdc.trust(objective(0.1), full(), known=table, probes=12)
        assert "too few to say trust" not in few.why  # 16 of these would not do either
        assert "configurations like these" in few.why

    def test_a_study_is_taken_in_its_direction(self):
        optuna = pytest.importorskip("optuna")
        study = optuna.create_study(direction="minimize")
        study.optimize(lambda trial: -objective(0.0)(trial, full().trial(0)), n_trials=10)
        found = hcdc.trust(objective(0.0), full(), known=study)
        assert found.probes == 10
        assert found.spearman == pytest.approx(1)

    def test_a_stopped_measurement_continues_with_the_same_results(self, table, tmp_path):
        calls = []
        for _ in range(2):
            hcdc.trust(objective(0.1, calls), full(), known=table, storage=tmp_path / "t.jsonl")
        assert len(calls) == 1 + 16
        with pytest.raises(InputError, match="the storage holds a search with known"):
            hcdc.trust(objective(0.1), full(), storage=tmp_path / "t.jsonl")

    def test_what_they_cost_is_trials_on_the_stand_in(self, table):
        calls = []
        assert trust_seconds(objective(0.1, calls), full(), "subset:0.1", 16, known=table) > 0
        assert calls == [False]

    def test_what_cannot_be_compared_is_refused(self, table, tmp_path):
        few, part = tmp_path / "few.csv", tmp_path / "part.csv"
        few.write_text("\n".join(table.read_text().splitlines()[:4]))
        part.write_text("\n".join(["x,val", *(f"{k / 9},{k}" for k in range(9))]))
        calls = []
        run = objective(0.1, calls)
        with pytest.raises(InputError, match=r"few.csv' has 3 results; at least 4 are needed"):
            hcdc.trust(run, full(), known=few)
        with pytest.raises(InputError, match="known results are those of full trainings; leave it out"):
            hcdc.trust(run, full(), known=table, against="short:0.5")
        with pytest.raises(InputError, match="k 9: give a number from 1 to 8 of the 9 probes"):
            hcdc.trust(run, full(), known=part, k=9)
        assert calls == []
        with pytest.raises(InputError, match=r"does not say kind of \{'x': 0.\d+\}; the objective reads it"):
            hcdc.trust(run, full(), known=part)
        assert len(calls) == 2  # the first trial, and one whose ``kind`` is not known


def test_known_full_results_of_a_copy_are_its_truth(tmp_path):
    """Results of all candidates that may be drawn save every full training; others are refused at once."""
    task = hcdc.TableTask(hcdc.data((X, X[:, 0] + 0.5 * X[:, 1])), "ridge")
    recipe = {"steps": 2, "seeds": 1}
    copy = hcdc.condense(
        task, task.space(), "random", train_size=20, recipe=recipe, full_recipe=recipe, checkpoint=None
    )
    configs, _ = checked_judges(copy, task, 80, 0)
    names, path = list(configs[0]), tmp_path / "all.csv"
    lines = [",".join([*(repr(config[name]) for name in names), str(k)]) for k, config in enumerate(configs)]
    path.write_text("\n".join([",".join([*names, "val"]), *lines]))
    found = hcdc.trust(copy, truth=CsvTruth(path), cache=tmp_path / "cache")
    assert found.probes == 16
    assert not (tmp_path / "cache").exists()
    with pytest.raises(InputError, match=r"all.csv' does not list configuration"):
        hcdc.trust(copy, truth=CsvTruth(path), seed=1)
    with pytest.raises(
        InputError, match="known belongs to an objective; full results for a copy are its truth"
    ):
        hcdc.trust(copy, known=path)


def test_k_is_a_share_or_a_number_of_the_probes():
    found = hcdc.trust(objective(0.3), full(), k=4)
    same = hcdc.trust(objective(0.3), full(), k=0.25)
    assert same.to_json() == found.to_json()
    assert (found.k, found.at_k.kept, found.at_k.of, found.at_k.recall.probes) == (0.25, 2, 8, 4)
    assert 0 < found.at_k.recall.value < 1
    printed = str(found)
    assert "share of the truly best 25% that is kept" in printed
    assert "expected loss if it keeps the best 2 of 8" in printed
    assert "the same share among the best 50%" in printed
    assert "expected loss among the best 50% if it keeps 1 of " in printed
    assert hcdc.trust(objective(0.3), full()).k == 0.5


def test_the_confirmation_keeps_the_same_share():
    found = hcdc.trust(objective(0.01), full(), against="short:0.5", confirm=8, k=4)
    assert found.confirmed.k == found.k == 0.25


@pytest.mark.parametrize(
    ("k", "told"),
    [(0, "0"), (16, "16"), (1.5, "1.5"), (0.05, "0.05"), (-1, "-1"), (True, "True"), ("a", "'a'")],
)
def test_a_k_that_keeps_nothing_or_all_is_refused(k, told):
    with pytest.raises(
        InputError, match=f"k {told}: give a number from 1 to 15 of the 16 probes, or a share"
    ):
        hcdc.trust(objective(0.01), full(), k=k)


@pytest.mark.parametrize("probes", ["a", 5.5, True])
def test_probes_are_a_whole_number(probes):
    with pytest.raises(InputError, match=r"probes .*: give a whole number"):
        hcdc.trust(objective(0.01), full(), rung="subset:0.1", probes=probes)
