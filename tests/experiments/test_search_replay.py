"""Searches replayed on recorded pools: what each costs, what it finds on a space with a known optimum, and
that a replay is the same every time.

The problem: 60 options ``x``, full score ``x``, short score ``x`` up to a small error, judged score ``x``.
"""

import gzip
import json
import math

import numpy as np
import pytest

from hcdc.core import records
from hcdc.core.errors import InputError
from hcdc.experiments import rival_searches as rivals
from hcdc.experiments import search_learned, search_pools, search_replay
from hcdc.experiments.replay_problem import Pool, SupernetRanking
from hcdc.experiments.rival_dehb import Cube, dehb
from hcdc.experiments.search_pools import RecordedRung, Replay
from hcdc.search import Ladder
from hcdc.spaces import Box, Finite, NASBench201, operations

SIZE, FULL = 60, 9.0
OPTIMUM = {"x": SIZE - 1}


def rung(name, price, error=0.0):
    def scores(configs, seed):
        return [c["x"] + error * math.sin(7 * c["x"]) for c in configs]

    return RecordedRung(name, price, FULL, scores)


def finite(shorts=((1.0, 3.0), (3.0, 1.0)), supernet=None):
    """Short trainings as pairs of price and error."""
    rungs = [rung(f"short:{price:g}", price, error) for price, error in shorts]
    space = Finite("x", range(SIZE))
    every = space.candidates()
    return Replay(
        space, [*rungs, rung("full", FULL)], lambda c: c["x"], SIZE - 1, SIZE / 2,
        np.array([[c["x"] / SIZE] for c in every]), lambda c: c["x"] % 10, supernet=supernet,
    )  # fmt: skip


def box():
    """Score ``-(x - 3)^2`` on [0, 10], short trainings with a small bias."""

    def at(bias):
        return lambda configs, seed: [-((c["x"] - 3 - bias) ** 2) for c in configs]

    rungs = [RecordedRung(n, p, FULL, at(b)) for n, p, b in (("short", 1.0, 0.01), ("full", FULL, 0.0))]
    return Replay(Box(["x"], [0.0], [10.0]), rungs, lambda c: -((c["x"] - 3) ** 2), 0.0, -10.0)


FULL_ONLY = {name: rivals.asked(name) for name in ("random", "evolution", "local")}
FULL_ONLY |= {"tpe": rivals.tpe, "gp": rivals.gaussian_process}
FIDELITIES = {"hyperband": rivals.hyperband, "asha": rivals.asha, "bohb": rivals.bohb, "dehb": dehb}


def test_the_brackets_of_hyperband_are_those_of_the_paper():
    # Li et al. (2018), table 1: R = 81, eta = 3; each bracket costs about 5 full trainings.
    table = rivals.brackets([1 / 81, 1 / 27, 1 / 9, 1 / 3, 1])
    assert [[n for _, n in rounds] for rounds in table] == [
        [81, 27, 9, 3, 1], [34, 11, 3, 1], [15, 5, 1], [8, 2], [5],
    ]  # fmt: skip
    assert [rounds[0][0] for rounds in table] == [0, 1, 2, 3, 4]
    assert rivals.brackets([4.7 / 76.3, 1]) == [[(0, 17), (1, 1)], [(1, 2)]]


def test_the_first_round_of_hyperband_costs_what_its_brackets_say():
    # 9 x 1 + 3 x 3 + 9, then 5 x 3 + 9, then 3 x 9.
    cost = 27 + 24 + 27
    trace = rivals.replay(rivals.hyperband, finite(), cost, 0)
    assert trace.trainings == {"short:1": 9, "short:3": 8, "full": 5}
    assert trace.seconds == cost
    cut = rivals.replay(rivals.hyperband, finite(), 20, 0)
    assert cut.trainings == {"short:1": 9, "short:3": 3, "full": 0}
    assert (cut.seconds, cut.curve) == (18, [])


def test_asha_promotes_a_third_at_each_fidelity():
    trace = rivals.replay(rivals.asha, finite(), 27 * 1 + 9 * 3 + 3 * 9, 1)
    counts = trace.trainings
    assert counts["short:3"] == counts["short:1"] // 3
    assert counts["full"] == counts["short:3"] // 3
    assert counts["full"] >= 2


@pytest.mark.parametrize("name", FULL_ONLY)
def test_full_trainings_alone_cost_their_price_and_find_the_best_of_all(name):
    for budget, most in ((10 * FULL + 1, 10), (10_000, SIZE)):
        trace = rivals.replay(FULL_ONLY[name], finite(), budget, 0)
        assert trace.trainings == {"short:1": 0, "short:3": 0, "full": most}
        assert trace.seconds == most * FULL
    assert trace.curve[-1][1] == OPTIMUM


@pytest.mark.parametrize("name", [*FIDELITIES, "gp", "evolution", "tpe"])
def test_the_optimum_of_a_small_space_is_found(name):
    trace = rivals.replay({**FULL_ONLY, **FIDELITIES}[name], finite(), 40 * FULL, 0)
    assert trace.seconds <= 40 * FULL
    assert trace.curve[-1][1]["x"] >= SIZE - 3
    scores = [config["x"] for _, config in trace.curve]
    assert scores == sorted(scores)
    assert all(a < b for (a, _), (b, _) in zip(trace.curve, trace.curve[1:]))


def errors(method, runs):
    """Mean distance from the best on a line over runs."""
    found = [rivals.replay(method, box(), 25 * FULL, seed).curve[-1][1]["x"] for seed in range(runs)]
    return np.mean(np.abs(np.array(found) - 3))


@pytest.fixture(scope="module")
def random_error():
    return errors(FULL_ONLY["random"], 48)


@pytest.mark.parametrize(
    ("name", "runs"), {"hyperband": 48, "asha": 48, "dehb": 48, "bohb": 24, "tpe": 24, "gp": 6}.items()
)
def test_models_beat_random_search_on_a_line(name, runs, random_error):
    """So many runs that other seeds give much the same ratio: .24 to .6, for the process .1 to .25."""
    assert errors({**FULL_ONLY, **FIDELITIES}[name], runs) < 0.75 * random_error


def test_the_posterior_of_the_process_is_that_of_the_dense_formula():
    rng = np.random.default_rng(0)
    at, new, values = rng.normal(size=(6, 2)), rng.normal(size=(4, 2)), rng.normal(size=6)
    mean, deviation = rivals.posterior(at, values, new)

    def kernel(a, b, length):
        r = math.sqrt(5) * np.sqrt(((a[:, None] - b[None]) ** 2).mean(-1)) / length
        return (1 + r + r**2 / 3) * np.exp(-r)

    def evidence(length, noise):
        k = kernel(at, at, length) + noise * np.eye(6)
        return -0.5 * values @ np.linalg.solve(k, values) - 0.5 * np.linalg.slogdet(k)[1]

    length, noise = max(
        ((l, n) for l in (0.5, 1.0, 2.0, 4.0) for n in (0.01, 0.05, 0.2)), key=lambda pair: evidence(*pair)
    )
    gain = kernel(new, at, length) @ np.linalg.inv(kernel(at, at, length) + noise * np.eye(6))
    np.testing.assert_allclose(mean, gain @ values, atol=1e-9)
    variance = 1 - np.einsum("ij,ij->i", gain, kernel(new, at, length))
    np.testing.assert_allclose(deviation, np.sqrt(variance), atol=1e-9)


def test_a_filter_trains_the_largest_briefly_and_the_best_of_them_in_full():
    # size is x % 10: the six largest are 9, 19, ..., 59; half of 36 s pays 6 short trainings of 3 s.
    trace = rivals.replay(rivals.filtered(free=False), finite(), 36, 0)
    assert trace.trainings == {"short:1": 0, "short:3": 6, "full": 2}
    assert trace.seconds == 36
    assert trace.curve == [(27.0, OPTIMUM)]


def test_one_shot_pays_for_its_supernet_before_it_trains():
    # 10 s for the supernet, then as above: 50, ..., 59 are ranked first, and 18 s pay 6 of them.
    supernet = SupernetRanking(10.0, lambda c: c["x"] // 10 + (c["x"] % 10) / 100)
    trace = rivals.replay(rivals.one_shot, finite(supernet=supernet), 46, 0)
    assert trace.trainings == {"short:1": 0, "short:3": 6, "full": 2}
    assert trace.seconds == 46
    assert trace.curve[-1] == (37.0, OPTIMUM)
    poor = rivals.replay(rivals.one_shot, finite(supernet=supernet), 9, 0)
    assert (poor.seconds, poor.curve) == (0, [])
    assert "one-shot" in search_replay.methods(finite(supernet=supernet))
    assert "one-shot" not in search_replay.methods(finite())


def test_a_random_subset_takes_half_of_the_seconds_and_its_best_are_trained_in_full():
    # half of 54 s pays 27 candidates at 1 s, the other half 3 full trainings.
    problem = finite()
    with pytest.raises(InputError, match="random subset"):
        rivals.random_subset(rivals.Session(problem, 54, 0))
    assert "random-subset" not in search_replay.methods(problem)
    for rung in problem.rungs[:2]:
        rung.subset = True
    trace = rivals.replay(rivals.random_subset, problem, 54, 0)
    assert trace.trainings == {"short:1": 27, "short:3": 0, "full": 3}
    assert trace.seconds == 54
    drawn = problem.propose(27, rivals.Session(problem, 54, 0).stream("random-subset"))
    best = max(drawn, key=lambda c: c["x"] + 3 * math.sin(7 * c["x"]))
    assert trace.curve[0] == (36, best)
    problem.rungs[0].once = 20.0
    made = search_replay.methods(problem)["random-subset"](problem, 54, 0)
    assert made.trainings == {"short:1": 17, "short:3": 0, "full": 1}
    assert made.seconds == 20 + 17 + 9


def test_what_is_known_costs_nothing_and_what_is_no_candidate_is_not_trained():
    session = rivals.Session(finite(), 100, 0)
    assert session.full([{"x": 4}, {"x": 4}, {"x": 99}]).tolist()[:2] == [4, 4]
    assert math.isnan(session.full([{"x": 99}])[0])
    assert session.trace.seconds == FULL
    for _ in range(rivals.PATIENCE - 1):
        session.full([{"x": 4}])
    with pytest.raises(rivals.Spent):
        session.full([{"x": 4}])


def test_the_cube_reaches_every_option_and_both_bounds():
    cube = Cube(Finite("x", range(4)))
    assert [cube.config(np.array([u]))["x"] for u in (0, 0.26, 0.5, 0.99, 1.0)] == [0, 1, 2, 3, 3]
    line = Cube(Box(["a", "b"], [1.0, -1.0], [100.0, 1.0], ["log", "linear"]))
    assert line.config(np.array([0.5, 0.25])) == pytest.approx({"a": 10.0, "b": -0.5})
    assert line.config(np.array([1.0, 1.0])) == {"a": 100.0, "b": 1.0}


def test_the_ladder_pays_for_trainings_and_copies_alone():
    problem = finite()
    problem.rungs[0].once = 5.0
    trace = search_replay.climb(problem, 30 * FULL, 0)
    paid = 5 + sum(r.price * trace.trainings[r.name] for r in problem.rungs)
    assert trace.seconds == pytest.approx(paid)
    assert trace.curve[-1][1]["x"] >= SIZE - 3
    own = finite()
    own.rungs[0].once = 5.0
    found = Ladder(own, 30 * FULL, 0, search_replay.Untimed()).climb()
    assert found.seconds == pytest.approx(paid)
    assert found.best == trace.curve[-1][1]


# --- the pool of cells ------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def cells(tmp_path_factory):
    """Tables of the whole space with made-up results: the fewer parameters, the worse."""
    folder = tmp_path_factory.mktemp("data")
    (folder / "nasbench201_free").mkdir()
    space = NASBench201()
    rng = np.random.default_rng(0)
    ops = ["-".join(map(str, operations(c["cell"]))) for c in space.candidates()]
    true = np.array([50 + 6 * text.count("3") + 2 * text.count("2") for text in ops]) + rng.random(len(ops))
    names = [f"{d}_{p}_{e}" for e in (12, 200) for d in ("c10", "c100", "in16") for p in ("valid", "test")]
    lines = [",".join(["index", "ops", *names, "params_m", "c10_train_seconds_200"])]
    for i, text in enumerate(ops):
        scores = [f"{true[i] - 10 * name.startswith('in16'):.4f}" for name in names]
        lines.append(",".join([str(i), text, *scores, "1", "1"]))
    with gzip.open(folder / "nasbench201.csv.gz", "wt") as file:
        file.write("\n".join(lines))
    index = np.repeat(np.arange(len(ops)), 2)
    runs = np.repeat(true, 2) + np.tile([0.0, 0.25], len(ops))
    np.savez(folder / "nasbench201_free/runs_c10_valid_200.npz", index=index, c10_valid=runs)
    free = ["ops,jacov,nwot,synflow", *(f"{text},{true[i]},1,{i}" for i, text in enumerate(ops))]
    with gzip.open(folder / "nasbench201_free/zero_cost_cifar10.csv.gz", "wt") as file:
        file.write("\n".join(free))
    np.savez(folder / "copy.npz", ops=np.array(ops), loss=-true)
    rows = [f"{text},{value}" for text, value in zip(ops, rng.random(len(ops)))]
    (folder / f"{search_pools.DEVELOPMENT}.csv").write_text("\n".join(["ops,loss", *rows]))
    return folder


@pytest.mark.parametrize(
    ("pool", "sizes"),
    [
        (search_learned.LearnedCells, {"train_size": 500, "val_size": 200, "initialisations": 16}),
        (search_learned.LearnedCells100, {"train_size": 5000, "val_size": 1000, "steps": 390}),
    ],
)
def test_learned_copies_score_the_cells_that_judged_them(cells, tmp_path, pool, sizes):
    space = NASBench201()
    judging = [c["cell"] for c in space.candidates()[:8]]
    probes = [c["cell"] for c in space.candidates()[8:11]]
    records.append(tmp_path / "F", {"label": "truth", "cells": judging, **sizes})
    for label, seed, draw in (("real-val", 100, None), ("hcdc-probes", 100, 1), ("hcdc-probes", 100, 0)):
        line = {"label": label, "seed": seed, "draw": draw, "condense_seconds": 40.0, "judge_seconds": 4.0}
        if draw is not None:
            line |= {"probes": probes, "probe_scores": [0.5, 0.75, 0.25], "probe_tests": [0.9, 0.5, 0.1]}
        records.append(tmp_path / "F", {**line, **sizes, "loss": [k + 10 * (draw or 0) for k in range(8)]})
    pool = pool(cells, tmp_path / "F")
    real, first, second = pool.way("real", 0), pool.way("probes", 0), pool.way("probes", 1)
    assert (real.making, real.known) == (40, None)
    assert first.making == 40 + 3 * search_pools.PRICES[pool.of]["full"]
    assert first.known == (75, 50)
    problem = pool.problem(second, True, 1)
    assert [r.name for r in problem.rungs] == ["free", "copy", "short", "full"]
    assert problem.subset is None  # learned examples are not real ones
    found = list(problem.rung("copy").run(problem.candidates(), 0))
    assert [c["cell"] for c in problem.candidates()] == judging
    assert [outcome.score for outcome in found] == [-10 - k for k in range(8)]
    assert {outcome.seconds for outcome in found} == {0.5}


def test_a_fresh_seed_sees_another_run_of_the_same_cell(cells):
    problem = search_pools.open_pool("nas201-cifar10", cells).problem("", 0)
    full = problem.rung("full")
    some = problem.candidates()[:40]

    def scores(seed):
        return np.array([outcome.score for outcome in full.run(some, seed)])

    one, two = scores(5), scores(6)
    np.testing.assert_allclose(np.abs(one - two), 0.25, atol=1e-6)
    np.testing.assert_array_equal(scores(5), one)
    assert 0 < (one > two).sum() < 40
    other = search_pools.open_pool("nas201-cifar100", cells).problem("", 0)
    assert other.rung("full").price == pytest.approx(2 * full.price, rel=0.01)
    third = search_pools.open_pool("nas201-imagenet16", cells).problem("", 0)
    found, means = ([o.score for o in problem.rung("full").run(some, 5)] for problem in (third, other))
    np.testing.assert_allclose(np.array(means) - found, 10)


def test_copies_take_turns_and_files_for_development_are_marked(cells):
    files = [cells / "copy.npz", cells / f"{search_pools.DEVELOPMENT}.csv"]
    pool = search_pools.open_pool("nas201-cifar10", cells, files, {"making": 7.0})
    assert pool.notes == {"copies": [file.name for file in files], "development": True}
    clean = search_pools.open_pool("nas201-cifar10", cells, files[:1])
    assert "development" not in clean.notes
    config = pool.problem("", 0).candidates()[0]
    first, second, third = (
        next(iter(pool.problem("", seed).rung("copy").run([config], 0))).score for seed in range(3)
    )
    assert first == third != second
    assert pool.problem("", 0).rung("copy").once == 7
    assert pool.problem("", 0).subset.name == "copy"
    assert pool.problem("", 0).without("copy").rung("copy") is None


def test_records_of_every_cell_on_a_copy_are_read(cells, tmp_path):
    every, file = NASBench201().candidates(), tmp_path / "draw.jsonl"
    lines = [{"cell": c["cell"], "loss": [i, i + 1]} for i, c in enumerate(every)]
    lines[1]["loss"] = [None, 1.0]
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    rung = search_pools.open_pool("nas201-cifar10", cells, [file]).problem("", 0).rung("copy")
    found = list(rung.run(every[:3], 0))
    assert [outcome.complete for outcome in found] == [True, False, True]
    assert (found[0].score, found[2].score) == (-0.5, -2.5)
    file.write_text(json.dumps(lines[0]) + "\n")
    with pytest.raises(InputError, match="no cell"):
        search_pools.open_pool("nas201-cifar10", cells, [file])


def test_supernets_take_turns_and_a_cell_that_diverged_ranks_last(cells, tmp_path):
    every, files = NASBench201().candidates(), [tmp_path / "a.jsonl", tmp_path / "b.jsonl"]
    for k, file in enumerate(files):
        lines = [{"train_seconds": 80.0, "score_seconds": 30.0, "charged_seconds": 100.0 + k}]
        lines += [{"cell": c["cell"], "loss": 1.0, "score": i / 5000} for i, c in enumerate(every)]
        lines[-1] |= {"loss": None}
        file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    pool = search_pools.open_pool("nas201-cifar10", cells, supernets=files)
    assert pool.notes["supernets"] == ["a.jsonl", "b.jsonl"]
    assert [pool.problem("", seed).supernet.seconds for seed in (0, 1, 2)] == [100, 101, 100]
    ranked = sorted(every, key=pool.problem("", 0).supernet.score)
    assert ranked == [every[-1], *every[:-1]]
    files[0].write_text(json.dumps({"cell": "x", "loss": 1.0, "score": 1.0}) + "\n")
    with pytest.raises(InputError, match="has no 'charged_seconds'"):
        search_pools.open_pool("nas201-cifar10", cells, supernets=files)
    with pytest.raises(InputError, match="leave --supernet out"):
        search_pools.open_pool("lcbench", cells, supernets=files)


def test_a_part_of_the_cells_is_a_pool_of_its_own(cells, tmp_path):
    with np.load(cells / "copy.npz") as file:
        np.savez(tmp_path / "part.npz", ops=file["ops"][:50], loss=file["loss"][:50])
    with pytest.raises(InputError, match="has no cell"):
        search_pools.open_pool("nas201-cifar10", cells, [tmp_path / "part.npz"])
    with pytest.raises(InputError, match="give --copies"):
        search_pools.open_pool("nas201-cifar10-part", cells)
    problem = search_pools.open_pool("nas201-cifar10-part", cells, [tmp_path / "part.npz"]).problem("", 0)
    assert len(problem.candidates()) == 50
    every = {config["cell"] for config in problem.candidates()}
    assert {config["cell"] for config in problem.propose(20, np.random.default_rng(0))} <= every
    assert problem.best == max(map(problem.judge, problem.candidates()))
    trace = search_replay.methods(problem)["ladder"](problem, 900.0, 0)
    assert trace.curve[-1][1]["cell"] in every


def run(cells, out, **changes):
    given = {"names": ["random", "ladder"], "budgets": [400], "seeds": [0, 1]}
    search_replay.run(
        "nas201-cifar10", out=out, data=cells, copies=[str(cells / "copy.npz")], **{**given, **changes}
    )
    return list(records.read(out))


def same(record):
    return {k: v for k, v in record.items() if k not in ("thinking_seconds", "environment")}


def test_tables_have_random_candidates_of_their_own(cells):
    inner, seeds = search_pools.open_pool("nas201-cifar10", cells), []

    class Tables(Pool):
        tables = ("a", "b")

        def problem(self, table, seed):
            seeds.append(seed)
            return inner.problem("", seed)

    pool = Tables("nas201-cifar10", inner.prices)
    first, second, again = (
        search_replay.replayed(pool, (table, "random", 400.0, 0))["curve"] for table in ("a", "b", "a")
    )
    assert seeds[0] == seeds[2] != seeds[1]
    assert first == again != second


def test_a_replay_is_the_same_every_time_and_goes_on_where_it_stopped(cells, tmp_path):
    found = run(cells, tmp_path / "a.jsonl")
    assert [(r["method"], r["seed"]) for r in found] == [(n, s) for s in (0, 1) for n in ("random", "ladder")]
    for r in found:
        assert r["curve"][-1][1] == r["score"]
        assert r["regret"] == pytest.approx(r["best"] - r["score"])
        assert r["seconds"] <= 1.1 * r["budget"]
        assert r["environment"]["torch"]
    kept = tmp_path / "b.jsonl"
    for r in found[:1] + found[3:]:
        records.append(kept, r)
    again = run(cells, kept)
    assert [(r["method"], r["seed"]) for r in again[2:]] == [("ladder", 0), ("random", 1)]
    assert [same(r) for r in again[2:]] == [same(r) for r in found[1:3]]


def test_other_prices_or_unknown_names_are_refused(cells, tmp_path):
    out = tmp_path / "a.jsonl"
    run(cells, out, names=["random"], seeds=[0])
    with pytest.raises(InputError, match=r"with prices .* name another file"):
        run(cells, out, names=["random"], prices={"full": 80.0})
    with pytest.raises(InputError, match="--methods 'tpee' is not known; did you mean 'tpe'"):
        run(cells, out, names=["tpee"])
    with pytest.raises(InputError, match="price of pool 'nas201-cifar10' 'ful'"):
        run(cells, out, prices={"ful": 1.0})
    with pytest.raises(InputError, match="has no copy rung"):
        search_pools.open_pool("lcbench", cells, ["x.csv"])
