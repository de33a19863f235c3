"""Pools that are a file of records: real seconds per training, single runs, and the nearest candidate."""

import numpy as np
import pytest

from hcdc.core import records
from hcdc.core.configs import config_hash
from hcdc.core.errors import InputError
from hcdc.experiments import rival_searches as rivals
from hcdc.experiments import search_replay
from hcdc.experiments.flights import SPACE, configurations
from hcdc.experiments.recorded_pool import Listed
from hcdc.experiments.search_pools import RECORDED, open_pool
from hcdc.spaces import NASBench201, Training

SIZE = 60
SHARES = {"subset:0.037": 1 / 27, "subset:0.111": 1 / 9, "subset:0.333": 1 / 3, "full": 1.0}


def quality(config):
    """Between .7 and .8; the greater learning rate and number of leaves, the better."""
    at = ((SPACE.encode(config) - SPACE._low) / (SPACE._high - SPACE._low)).numpy()
    return 0.7 + 0.05 * at[0] + 0.05 * at[2]


def lines(size=SIZE, seeds=2):
    found = []
    for seed in range(seeds):
        for number, config in enumerate(configurations(size)):
            shares = SHARES if seed == 0 else {"full": 1.0}
            true = quality(config)
            found.append(
                {
                    "protocol": "flights-pool", "number": number, "seed": seed, "config": config,
                    "shares": shares, "test": true, "val": dict.fromkeys(shares, true + 0.001 * seed),
                    "seconds": {rung: (1 + number % 5) * (0.1 + share) for rung, share in shares.items()},
                }
            )  # fmt: skip
    return found


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    path = tmp_path_factory.mktemp("pool") / "flights.jsonl"
    for line in lines():
        records.append(path, line)
    return path


@pytest.fixture(scope="module")
def pool(file):
    return open_pool("flights", file)


def test_a_pool_has_the_recorded_runs_prices_and_scores(pool):
    problem = pool.problem("", 0)
    assert pool.prices == pytest.approx({rung: 3 * (0.1 + share) for rung, share in SHARES.items()}, abs=1e-4)
    assert [rung.name for rung in problem.rungs] == list(SHARES)
    assert problem.subset is problem.rungs[0]  # the smallest share of the rows
    assert [rung.share for rung in problem.rungs] == pytest.approx(
        [(0.1 + share) / 1.1 for share in SHARES.values()], abs=1e-4
    )
    config = problem.candidates()[3]
    full = problem.rung("full")
    one, two, again = (next(iter(full.run([config], seed))) for seed in (5, 6, 5))
    assert one.seconds == pytest.approx(4 * 1.1)
    assert abs(one.score - two.score) == pytest.approx(0.1)  # one of the two runs each, in percent
    assert again == one
    assert problem.judge(config) == pytest.approx(100 * quality(config))
    assert problem.best == pytest.approx(max(map(problem.judge, problem.candidates())))
    firsts = {next(iter(pool.problem("", s).rung("full").run([config], 5))).score for s in range(12)}
    assert len(firsts) == 2


def test_a_budget_is_cut_by_the_seconds_of_the_very_candidates(pool):
    problem = pool.problem("", 0)
    session = rivals.Session(problem, 10.0, 0)
    full, configs = problem.rung("full"), problem.candidates()[:5]  # 1.1, 2.2, 3.3, 4.4 and 5.5 s
    with pytest.raises(rivals.Spent):
        session.train(full, configs)
    assert session.trace.trainings["full"] == 3
    assert session.trace.seconds == pytest.approx(6.6)
    session.train(full, configs[:3])
    assert session.left == pytest.approx(3.4)


@pytest.mark.parametrize("name", ["random", "tpe", "evolution", "gp", "hyperband", "asha", "bohb", "dehb"])
def test_every_rival_pays_recorded_seconds_and_picks_a_candidate(pool, name):
    problem = pool.problem("", 1)
    budget = 15 * pool.prices["full"]
    trace = search_replay.methods(problem)[name](problem, budget, 1)
    assert trace.seconds <= budget
    assert trace.trainings["full"] >= 2
    assert all(problem.known(config) for _, config in trace.curve)
    assert trace.curve[-1][0] <= trace.seconds


def test_the_ladder_and_its_rungs_are_methods(pool):
    problem = pool.problem("", 0)
    known = search_replay.methods(problem)
    assert [name for name in known if name.startswith("ladder")] == [
        "ladder", "ladder-without-subset:0.111", "ladder-without-subset:0.333", "ladder-without-subset",
    ]  # fmt: skip
    trace = known["ladder-without-subset:0.111"](problem, 25 * pool.prices["full"], 0)
    used = {name for name, count in trace.trainings.items() if count}
    assert used == {"subset:0.333", "full"}
    assert trace.seconds <= 1.1 * 25 * pool.prices["full"]
    assert "ladder-without-short" not in known
    assert "local" not in known


def test_a_replay_measures_agreement_per_dimension(pool):
    problem = pool.problem("", 0)
    configs = problem.candidates()[:5]
    found = problem.described(configs)
    assert tuple(found) == SPACE.names
    np.testing.assert_allclose(found["learning_rate"], np.log([c["learning_rate"] for c in configs]))


def test_proposals_settle_on_the_nearest_candidate_that_was_not_trained():
    space = Listed(SPACE, configurations(SIZE))
    first, second = space.candidates()[:2]
    near = {**first, "max_features": min(1.0, first["max_features"] + 1e-3)}
    assert space.nearest(near) == space.counterpart(near) == first
    assert space.decode(space.encode(second)) == second
    assert space.nearest(near, {config_hash(first)}) != first
    everything = [config_hash(config) for config in space.candidates()]
    assert space.nearest(near, everything) == first
    rng = np.random.default_rng(0)
    for _ in range(20):
        moved = space.mutate(first, rng)
        assert moved != first
        assert config_hash(moved) in everything
    assert len({config_hash(config) for config in space.sample(SIZE, rng)}) == SIZE
    assert len(space.sample(SIZE + 5, rng)) == SIZE + 5


@pytest.mark.parametrize("name", RECORDED)
def test_every_recorded_space_can_be_listed(name):
    whole, rng = RECORDED[name], np.random.default_rng(0)
    space = Listed(whole, whole.sample(SIZE, rng))
    everything = {config_hash(config) for config in space.candidates()}
    for config in space.candidates()[:5]:
        assert space.decode(space.encode(config)) == space.counterpart(config) == config
        assert space.features(config) == whole.features(config)
        assert config_hash(space.mutate(config, rng)) in everything - {config_hash(config)}
    for config in whole.sample(5, rng):
        assert config_hash(space.nearest(config)) in everything


def test_the_nearest_point_weighs_options_and_ranges_alike():
    at = {"lr": 0.01, "dropout": 0.25, "depth": 1}
    points = [
        {"lr": 1.0, "dropout": 0.0, "depth": 1},  # 2/3 and 1/2 of the ranges
        {**at, "depth": 2},  # another option: 1
        {**at, "depth": 3, "dropout": 0.2},
        {"lr": 0.001, "dropout": 0.5, "depth": 1},  # 1/3 and 1/2
    ]
    space = Listed(Training(["lr", "dropout", "depth"]), points)
    met = set()
    for expected in (3, 0, 1, 2):
        assert space.nearest(at, met) == points[expected]
        met.add(config_hash(points[expected]))


def test_a_discrete_space_keeps_its_decisions():
    whole = NASBench201()
    space = Listed(whole, whole.sample(SIZE, np.random.default_rng(0)))
    config = space.candidates()[0]
    assert space.decisions() == whole.decisions()
    assert space.from_numbers(space.to_numbers(config)) == whole.from_numbers(whole.to_numbers(config))


def test_tpe_never_trains_a_candidate_twice(pool):
    problem = pool.problem("", 0)
    trace = search_replay.methods(problem)["tpe"](problem, 1e6, 0)
    assert trace.trainings["full"] == SIZE


def test_a_replay_is_recorded_and_other_files_are_refused(file, tmp_path):
    out = tmp_path / "out.jsonl"
    search_replay.run("flights", ["random", "bohb"], [30.0], [0, 1], out, data=file)
    found = list(records.read(out))
    assert {(r["method"], r["seed"]) for r in found} == {(m, s) for m in ("random", "bohb") for s in (0, 1)}
    assert all(r["candidates"] == SIZE and r["prices"]["full"] == pytest.approx(3.3) for r in found)
    other = tmp_path / "other.jsonl"
    for line in lines(size=7):
        records.append(other, line)
    with pytest.raises(InputError, match=r"with prices .* name another file"):
        search_replay.run("flights", ["random"], [30.0], [0], out, data=other)


def test_what_cannot_be_read_is_named(tmp_path):
    with pytest.raises(InputError, match="does not exist; run this in the repository"):
        open_pool("flights", tmp_path / "none.jsonl")
    file = tmp_path / "some.jsonl"
    records.append(file, {key: value for key, value in lines(1)[0].items() if key != "test"})
    with pytest.raises(InputError, match=r"line 1 of .* has no 'test'"):
        open_pool("flights", file)
    file.unlink()
    records.append(file, lines(1)[1])
    with pytest.raises(InputError, match="no line with seed 0"):
        open_pool("flights", file)
    with pytest.raises(InputError, match="leave --price out"):
        open_pool("flights", file, prices={"full": 1.0})
    with pytest.raises(InputError, match="leave --copies out"):
        open_pool("flights", file, ["copy.csv"])


COPY_SHARES = {
    **{f"copy:{k}": 0.02 for k in range(5)},
    "short:0.111": 1 / 9,
    "short:0.333": 1 / 3,
    "full": 1.0,
}


def copied(name, changed=lambda number, line: line):
    """Lines of a pool with five draws of a copy; the first candidates are the worst."""
    rng, found = np.random.default_rng(1), []
    for number, config in enumerate(RECORDED[name].sample(SIZE, rng)):
        true = 0.5 + 0.4 * number / SIZE
        for seed, shares in enumerate((COPY_SHARES, {"full": 1.0})):
            val = dict.fromkeys(shares, true)
            val.update({rung: true - 0.01 * int(rung[-1]) for rung in shares if rung.startswith("copy")})
            line = {
                "protocol": f"{name}-pool", "number": number, "seed": seed, "config": config,
                "shares": shares, "val": val, "seconds": {rung: 3 * share for rung, share in shares.items()},
                "test": true, "train_loss": {rung: share * (2 - true) for rung, share in shares.items()},
            }  # fmt: skip
            found.append(changed(number, line))
    return found


def opened(name, given, folder):
    file = folder / f"{name}.jsonl"
    for line in given:
        records.append(file, line)
    return open_pool(name, file)


@pytest.mark.parametrize("name", ["physics", "resnet"])
def test_every_method_runs_on_a_pool_with_a_copy(name, tmp_path):
    pool = opened(name, copied(name), tmp_path)
    assert pool.prices == pytest.approx(
        {"copy": 0.06, "short:0.111": 1 / 3, "short:0.333": 1, "full": 3}, abs=1e-4
    )
    known = search_replay.methods(pool.problem("", 0))
    assert {"random-subset", "summed-loss", "bohb", "dehb", "gp", "evolution"} < set(known)
    assert [method for method in known if method.startswith("ladder")] == [
        "ladder", "ladder-without-copy", "ladder-without-short",
    ]  # fmt: skip
    budget = 12 * pool.prices["full"]
    for method, run in known.items():
        problem = pool.problem("", 1)
        trace = run(problem, budget, 1)
        assert trace.seconds <= 1.1 * budget, method
        assert trace.trainings["full"] >= 2, method
        assert all(problem.known(config) for _, config in trace.curve), method
        climbs = method.startswith(("ladder", "random-subset")) and method != "ladder-without-copy"
        assert (trace.trainings.get("copy", 0) > 0) == climbs, method
        if method == "ladder-without-short":
            assert {rung for rung, count in trace.trainings.items() if count} == {"copy", "full"}


def test_a_replay_sees_one_draw_of_the_copy(tmp_path):
    pool = opened("physics", copied("physics"), tmp_path)
    config = pool.problem("", 0).candidates()[30]
    for seed in (0, 1, 4, 5, 8):
        rungs = [rung for rung in pool.problem("", seed).rungs if rung.name.startswith("copy")]
        assert [rung.name for rung in rungs] == ["copy"]
        seen = [next(iter(rungs[0].run([config], again))).score for again in (3, 9)]
        assert seen == pytest.approx([100 * (0.7 - 0.01 * (seed % 5))] * 2)


def test_summed_losses_choose_what_is_trained_in_full(tmp_path):
    def misled(number, line):
        """Short trainings score the other way round, and one of them has diverged."""
        val = {rung: v if rung == "full" else 1 - v for rung, v in line["val"].items()}
        losses = {rung: None if number == SIZE - 1 else v for rung, v in line["train_loss"].items()}
        return {**line, "val": val, "train_loss": losses}

    pool = opened("physics", copied("physics", misled), tmp_path)
    problem = pool.problem("", 0)
    trace = search_replay.methods(problem)["summed-loss"](problem, 30.0, 0)
    assert trace.trainings == {"copy": 0, "short:0.111": 0, "short:0.333": 15, "full": 5}
    assert len(trace.curve) == 1  # the first training is the best of all
    every = [config_hash(config) for config in problem.candidates()]
    drawn = problem.propose(15, rivals.Session(problem, 30.0, 0).stream("summed-loss"))
    places = sorted(every.index(config_hash(config)) for config in drawn)
    best = max(place for place in places if place != SIZE - 1)
    assert config_hash(trace.curve[0][1]) == every[best]
    long = search_replay.methods(problem)["summed-loss"](problem, 1e4, 0)
    assert long.trainings["full"] == SIZE
    assert config_hash(long.curve[-1][1]) == every[-1]  # what diverged is trained last


def test_losses_count_only_if_every_candidate_has_them(tmp_path):
    def partly(number, line):
        return line if number else {key: value for key, value in line.items() if key != "train_loss"}

    pool = opened("physics", copied("physics", partly), tmp_path)
    assert "summed-loss" not in search_replay.methods(pool.problem("", 0))


def test_a_training_that_diverged_scores_nothing(tmp_path):
    def diverged(number, line):
        return {**line, "val": dict.fromkeys(line["val"]), "test": None} if number == 3 else line

    problem = opened("resnet", copied("resnet", diverged), tmp_path).problem("", 0)
    config = problem.candidates()[3]
    assert problem.judge(config) == 0
    for rung in problem.rungs:
        assert next(iter(rung.run([config], 0))).score == 0
