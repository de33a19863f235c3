"""Learned copies as a rung, on a line of 60 options: full score ``x``, judged score ``x``."""

import math

import numpy as np
import pytest

from hcdc.core import records
from hcdc.core.configs import config_hash
from hcdc.experiments import learned_tables, search_learned
from hcdc.experiments.replay_problem import Pool, RecordedRung, Replay
from hcdc.experiments.search_learned import LearnedFilters, LearnedPool, Way
from hcdc.experiments.tables import table
from hcdc.spaces import Finite

SIZE, FULL = 60, 9.0


def rung(name, price, error=0.0):
    def scores(configs, seed):
        return [c["x"] + error * math.sin(7 * c["x"]) for c in configs]

    return RecordedRung(name, price, FULL, scores)


class Line(Pool):
    def problem(self, table, seed):
        space = Finite("x", range(SIZE))
        features = np.array([[math.sin(5 * c["x"])] for c in space.candidates()])  # these tell nothing
        rungs = [rung("copy", 0.5, 30.0), rung("short", 1.0, 6.0), rung("full", FULL)]
        return Replay(space, rungs, lambda c: c["x"], SIZE - 1, SIZE / 2, features)

    def validation(self, config):
        return config["x"] / 2


class Tiny(LearnedPool):
    """A perfect copy whose making takes 60 seconds and knows the best full score but five, or one of another
    test score."""

    name, ways, budgets = "tiny", ("learned", "none"), (90.0, 50.0)
    pool = Line("line", {"copy": 0.5, "short": 1.0, "full": FULL})
    known = SIZE - 6, SIZE - 6

    def way(self, name, seed):
        if name == "none":
            return Way()
        return Way([rung("copy", 0.3)], 60.0, self.known, {"condensation": seed % 5})


def test_a_ready_copy_costs_its_trials_alone():
    record = search_learned.replayed(Tiny(), "learned", False, "ladder", 90.0, 3)
    used = record["trainings"]
    assert used["copy"] > SIZE / 2
    assert record["making"] == 0
    assert record["seconds"] == pytest.approx(0.3 * used["copy"] + used["short"] + FULL * used["full"])
    assert record["condensation"] == 3
    assert record["regret"] == 0
    assert record["validation"][-1] == [record["curve"][-1][0], record["best_validation"]]


def test_a_copy_made_in_the_search_is_paid_first_and_brings_its_best_training():
    record = search_learned.replayed(Tiny(), "learned", True, "ladder", 90.0, 3)
    assert record["making"] == 60
    assert record["curve"][0] == [60, SIZE - 6]
    assert all(score > SIZE - 6 for _, score in record["curve"][1:])
    assert 60 < record["seconds"] <= 1.1 * 90


def test_a_known_training_that_validates_best_stays_the_pick():
    pool = Tiny()
    pool.known = SIZE + 1, 7
    record = search_learned.replayed(pool, "learned", True, "ladder", 90.0, 0)
    assert (record["curve"], record["validation"]) == ([[60, 7]], [[60, SIZE + 1]])
    assert record["regret"] == SIZE - 1 - 7


def test_a_copy_that_takes_the_whole_budget_is_not_replayed():
    assert search_learned.replayed(Tiny(), "learned", True, "ladder", 50.0, 0) is None


def test_without_a_copy_the_pools_own_is_left_out_too():
    record = search_learned.replayed(Tiny(), "none", False, "ladder", 50.0, 0)
    assert list(record["trainings"]) == ["short", "full"]


def test_rivals_and_the_ladder_see_the_same_problem():
    names = {unit[2] for unit in search_learned.units(Tiny(), [0])}
    assert names == {"ladder", "hyperband", "random"}  # no size to rank by
    assert search_learned.replayed(Tiny(), "none", False, "random", 90.0, 0)["trainings"]["full"] == 10


def test_a_second_run_adds_what_is_missing(tmp_path):
    out = tmp_path / "found.jsonl"
    search_learned.run(Tiny(), [0], out)
    first = list(records.read(out))
    search_learned.run(Tiny(), [0, 1], out)
    found = list(records.read(out))
    assert found[: len(first)] == first
    assert len(found) == 2 * len(first)
    keys = {(r["way"], r["made"], r["method"], r["budget"], r["seed"]) for r in found}
    assert len(keys) == len(found)


# --- filters ------------------------------------------------------------------------------------------------


def filters(folder, shorts=("short:0.111", "short:0.333")):
    """A pool of six filters and a copy that reverses their order, whose process does not."""
    pool, copy = folder / "pool.jsonl", folder / "copy.jsonl"
    configs = [
        {"lambda_0": k / 10, "lambda_1": 0.0, "lambda_2": 0.0, "lambda_3": 0.1, "lr": 0.01,
         "weight_decay": 0.01, "dropout": 0.1}
        for k in range(6)
    ]  # fmt: skip
    for k, config in enumerate(configs):
        val = {"copy:0": 0.5, **dict.fromkeys(("copy:1", *shorts, "full"), k / 10)}
        quick = {"short:0.037": 0.1, "short:0.111": 0.2}
        seconds = {rung: quick.get(rung, 1.0) for rung in val}
        line = {"number": k, "seed": 0, "config": config, "val": val, "seconds": seconds}
        records.append(pool, {**line, "test": k / 10})
    told = {"protocol": "physics-learned", "train_size": 25, "seed": 600}
    records.append(copy, {**told, "seconds": {"making": 50.0, "full": 20.0}})
    for k in range(6):
        records.append(
            copy, {**told, "number": k, "score": -float(k), "seconds": (1 + k) / 10, "expected": -k}
        )
    records.append(copy, {**told, "best_probe": {"val": 0.3, "test": 0.2}})
    return LearnedFilters(pool, [copy]), configs


def test_filters_are_looked_up_by_their_number(tmp_path):
    pool, configs = filters(tmp_path)
    assert pool.ways == ("learned-25", "process", "random", "none")
    learned, process = pool.way("learned-25", 0), pool.way("process", 0)
    assert (learned.making, process.making, learned.known) == (50, 20, (30, 20))
    assert [o.score for o in learned.rungs[0].run(configs, 0)] == [0, -1, -2, -3, -4, -5]
    assert [o.seconds for o in learned.rungs[0].run(configs, 0)] == [0.1, 0.2, 0.3, 0.4, 0.5, 0.6]
    assert [o.score for o in process.rungs[0].run(configs, 0)] == [0, 1, 2, 3, 4, 5]
    problem = pool.problem(learned, True, 0)
    assert [r.name for r in problem.rungs] == ["short:0.111", "copy", "short:0.333", "full"]  # by price
    assert problem.rungs[1].once == 50
    assert pool.problem(process, False, 0).rungs[0].name == "copy"


def test_the_ladder_climbs_the_two_longest_short_trainings(tmp_path):
    pool, _ = filters(tmp_path, ("short:0.037", "short:0.111", "short:0.333"))
    used = search_learned.replayed(pool, "random", False, "ladder", 12.0, 0)["trainings"]
    assert set(used) == {"copy", "short:0.111", "short:0.333", "full"}


def test_random_copies_come_in_turn(tmp_path):
    pool, configs = filters(tmp_path)
    first, second = (pool.way("random", seed).rungs[0] for seed in (0, 1))
    assert [o.score for o in first.run(configs, 0)] == [50] * 6
    assert [o.score for o in second.run(configs, 0)] == [0, 10, 20, 30, 40, 50]
    assert config_hash(configs[0]) != config_hash(configs[1])


# --- tables -------------------------------------------------------------------------------------------------


def run(way, made, seed, score, budget=450.0, method="ladder", pool="cells", **more):
    curve = [[10.0, score]]
    told = {"making": 300.0 if made else 0.0, "curve": curve, "score": score, "best": 4.0, "median": 0.0}
    return {
        "protocol": "search-learned", "pool": pool, "way": way, "made": made, "method": method,
        "budget": budget, "seed": seed, **told, **more,
    }  # fmt: skip


def body(text):
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines()][2:]


def test_differences_are_paired_by_seed():
    found = [run("probes", False, seed, 3.0 + seed) for seed in (0, 1)]
    found += [run("none", False, seed, 2.0) for seed in (0, 1, 2)]
    found += [run("real", False, 1, 4.0), run("aligned", True, 0, 1.0, budget=900.0)]
    rows = body(table("search-learned-cells", found))
    learned = rows[0]
    assert learned[1:4] == ["2", "0", "0.500 ± 0.500"]
    assert learned[4].startswith("-1.500 ")
    assert learned[5] == "+0.000 [+0.000, +0.000]"
    made = next(row for row in rows if row[2] == "300")
    assert made[3:6] == ["-", "-", "-"]  # making it takes the budget
    assert made[6] == "3.000"


def test_on_filters_a_pick_after_the_budget_does_not_count():
    both = {"best_validation": 90.0, "validation": [[10.0, 89.5], [31.0, 90.0]]}
    found = [run("none", False, 0, 3.0, 30.0, pool="filters", **both)]
    found += [
        run("none", False, 1, 3.0, 30.0, pool="filters", **{**both, "curve": [[10.0, 2.0], [31.0, 4.0]]})
    ]
    found += [run("random", False, 0, 3.0, 30.0, pool="filters", **{**both, "validation": []})]
    rows = {row[0]: row[3:] for row in body(learned_tables.learned_table("filters", found))}
    assert rows["no copy"] == ["0.375 ± 0.125", "", "0.500 ± 0.000", ""]
    random = rows["400 random nodes, real validation nodes"]
    assert random[:2] == ["0.250", "+0.000 [+0.000, +0.000]"]
    assert random[2:] == ["-", "-"]  # no pick within the budget


def test_a_table_without_records_says_so():
    assert {row[3] for row in body(table("search-learned-cells", []))} == {"not run"}
