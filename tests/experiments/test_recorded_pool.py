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
from hcdc.experiments.search_pools import open_pool

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
