"""Tables of ``search-replay`` from records made by hand."""

import math

import numpy as np
import pytest

from hcdc.experiments import search_tables as tables
from hcdc.experiments.tables import table


def made(method="ladder", seed=0, curve=((10.0, 0.9),), *, pool="lcbench", name="a", budget=600.0, **fields):
    """A run on a table with best score 1 and median 0."""
    return {
        "protocol": "search-replay", "pool": pool, "table": name, "method": method, "budget": budget,
        "seed": seed, "curve": [list(point) for point in curve], "score": curve[-1][1] if curve else None,
        "best": 1.0, "median": 0.0, "trainings": {"short": 4, "full": 2}, **fields,
    }  # fmt: skip


def body(text):
    """The rows under the head by their first cell."""
    lines = [[cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines()]
    assert len({len(line) for line in lines}) == 1
    return {row[0]: row[1:] for row in lines[2:]}


def test_regret_follows_the_pick():
    r = made(curve=[(10, 0.5), (30, 0.25), (50, 0.75)])
    assert [tables.regret(r, t) for t in (9.9, 10, 29, 30, 60)] == [1, 0.5, 0.5, 0.75, 0.25]
    assert tables.regret(r) == 0.25
    assert tables.regret(made(curve=[])) == 1


def test_time_to_a_mean_regret():
    # means: 1 before 10, (.5 + 1) / 2 at 10, (.5 + .4) / 2 at 20, (.1 + .4) / 2 at 40
    runs = [made(curve=[(10, 0.5), (40, 0.9)]), made(seed=1, curve=[(20, 0.6)])]
    assert tables.seconds_to(runs, 0.75) == 10
    assert tables.seconds_to(runs, 0.5) == 20
    assert tables.seconds_to(runs, 0.25) == 40
    assert tables.seconds_to(runs, 0.2) is None
    faster = made(curve=[(15, 0.8)], budget=300.0)
    assert tables.seconds_to([*runs, faster], 0.25) == 15


def test_times_to_another_methods_score_have_two_meanings():
    theirs = [made("hyperband", seed, [(50, 0.5), (100, 0.8)]) for seed in range(3)]
    ours = [
        made(seed=0, curve=[(60, 0.7), (125, 0.8)]),
        made(seed=1, curve=[(60, 0.7), (300, 0.9)]),
        made(seed=2, curve=[(60, 0.7)]),
    ]
    own, whole = tables.time_ratios(ours, theirs)
    np.testing.assert_allclose(own, [1.25, 3, math.inf])
    np.testing.assert_allclose(whole, [125 / 600, 0.5, math.inf])
    cells = body(tables.surrogates_table([*ours, *theirs]))["LCBench, 10 full trainings"]
    assert cells[:4] == ["1 x 3", "33 %", "67 %", "3.00"]


def test_normalised_regret_counts_what_any_method_found():
    found = [made(curve=[(10, 1.5)]), made("hyperband", curve=[(10, 0.75)]), made(name="b")]
    assert [r["normal"] for r in tables.normalised(found)] == pytest.approx([0, 0.5, 0.1])


def test_the_difference_is_a_mean_over_tables_with_an_interval():
    names = [str(k) for k in range(30)]
    apart = np.linspace(-0.1, 0.1, 30)
    found = [made(name=n, curve=[(10, 0.5 - d)]) for n, d in zip(names, apart)]
    found += [made("hyperband", seed, [(10, 0.5)], name=n) for n in names for seed in (0, 1)]
    scaled = tables.normalised(found)
    by_table = tables.by_table(scaled[:30], scaled[30:])
    np.testing.assert_allclose(by_table, apart)
    low, high = tables.bootstrap(by_table)
    error = by_table.std() / math.sqrt(30)
    assert high == pytest.approx(1.645 * error, rel=0.05)
    assert low == pytest.approx(-1.645 * error, rel=0.05)
    cells = body(tables.surrogates_table(found))["LCBench, 10 full trainings"]
    assert cells[-2] == "0.500 / 0.500"
    assert cells[-1].startswith(f"{by_table.mean():+.3f} [-0.01")


def test_cells_by_minutes_and_by_rungs():
    def cell(method, seed, regret, budget, at=60.0):
        return made(method, seed, [(at, 1 - regret)], pool="nas201-cifar10", budget=budget, name="")

    found = [cell("ladder", s, 0.1 * s, b) for s in (0, 1, 2) for b in (900.0, 1800.0)]
    found += [cell("random", s, 0.3, 18000.0, at=1200.0) for s in (0, 1)]
    found += [cell("random", s, 0.3, 1800.0, at=1200.0 - 60 * s) for s in (0, 1)]
    found += [cell("tpe", 0, 0.4, 1800.0), cell("ladder-without-copy", 1, 0.3, 900.0)]
    rows = body(table("search-cifar10", found))
    assert rows["**the ladder**"] == [
        "3", "0.100 ± 0.058", "0.100 ± 0.058", "1.0", "1.0", "short 4, full 2",
    ]  # fmt: skip
    # anytime methods are looked up in longer runs (nothing yet after 900 s) and timed in the longest
    assert rows["random search"] == [
        "2", "1.000 ± 0.000", "0.300 ± 0.000", "20.0", "not in 300", "short 4, full 2",
    ]  # fmt: skip
    assert rows["TPE"][2:5] == ["0.400", "not in 30", "not in 30"]
    assert "BOHB" not in rows  # it has no run
    rows = body(table("search-cifar10-rungs", found))
    assert rows["without the copy"] == ["0.300", "0.200", "not run", "not run"]
    assert set(body(table("search-cifar100", found))["BOHB"][1:]) == {"not run"}


def test_graphs_are_averaged_by_graph():
    found = [
        made("random", seed, [(10, 1 - lost)], pool="nasbench-graph", name=name)
        for name, losses in {"cora": (0.1, 0.3), "arxiv": (0.4, 0.4)}.items()
        for seed, lost in enumerate(losses)
    ]
    assert body(table("search-graphs", found)) == {"random search": ["0.300 ± 0.100"]}


def test_graphs_are_the_units_of_differences():
    def run(method, seed, name, lost, budget=600.0):
        return made(method, seed, [(10, 1 - lost)], pool="nasbench-graph", name=name, budget=budget)

    found = [run("random", seed, name, 0.3) for name in "abcd" for seed in (20, 21)]
    found += [run("tpe", 20, name, 0.1, budget) for name in "abcd" for budget in (600.0, 1800.0)]
    rows = body(table("search-graphs-against", found))
    assert rows["TPE, 30 full trainings"] == ["0", "0 / 1", "not run / 0.100", "not run", "not run"]
    found += [run("ladder", 30 + k, name, 0.1 * k) for name in "abcd" for k in (1, 2, 3)]
    rows = body(table("search-graphs-against", found))
    assert rows["random search, 10 full trainings"] == [
        "4", "3 / 2", "0.200 / 0.300", "-0.100 [-0.100, -0.100]", "yes",
    ]  # fmt: skip
    assert rows["TPE, 10 full trainings"][-2:] == ["+0.100 [+0.100, +0.100]", "no"]
    assert rows["TPE, 30 full trainings"][0] == "0"
    assert set(body(table("search-graphs-against", []))["BOHB"]) == {"not run"}


def flight(method, seed, regret, budget, at=10.0):
    prices = {"subset:0.037": 0.2, "subset:0.111": 0.5, "full": 2.0}
    return made(method, seed, [(at, 1 - regret)], pool="flights", budget=budget, name="", prices=prices,
                trainings={"subset:0.111": 4, "full": 2}, seconds=18.0)  # fmt: skip


def test_flights_beside_the_rivals_and_without_rungs():
    found = [flight("ladder", s, 0.1, b, at=5.0) for s in range(4) for b in (20.0, 60.0)]
    found += [flight("bohb", s, 0.1 + 0.1 * (s % 2), 20.0) for s in range(4)]
    found += [flight("hyperband", s, 0.05, 20.0) for s in range(4)]
    found += [flight("ladder-without-subset", s, 0.3, 20.0) for s in range(4)]
    found += [flight("ladder", 9, 0.0, 20.0)]  # seeds without a partner do not count
    rows = body(table("search-flights", found))
    assert rows["BOHB"] == ["4", "0.150 ± 0.029", "not run", "90% (90%)", "not run"]
    assert rows["**the ladder**"][2:] == ["0.100 ± 0.000", "63% (90%)", "subset:0.111 4, full 2"]
    assert "DEHB" not in rows
    rows = body(table("search-flights-against", found))
    assert rows["BOHB, 20 s (10 full trainings)"][0] == "4"
    difference, verdict, times = rows["BOHB, 20 s (10 full trainings)"][2:]
    assert difference.startswith("-0.050 [-0.1")
    assert (verdict, times) == ("yes", "5 s / 10 s = 0.50")
    assert rows["Hyperband, 20 s (10 full trainings)"][3:] == ["no", "not reached"]
    assert rows["BOHB, 60 s (30 full trainings)"][3:] == ["not run", "not run"]
    rows = body(table("search-flights-rungs", found))
    assert rows["full trainings only"][:2] == ["0.300 ± 0.000", "+0.200 [+0.200, +0.200]"]
    late = {**flight("ladder", 0, 0.1, 20.0), "curve": [[10.0, 0.9], [21.0, 1.0]], "score": 1.0}
    assert body(table("search-flights", [late]))["**the ladder**"][1] == "0.100"


def test_tables_of_flights_without_records():
    assert body(table("search-flights-against", []))["BOHB"] == ["not run"] * 5
    assert "**the ladder**" in body(table("search-flights", []))


def copied(method, seed, regret, budget, pool, **used):
    prices = {"copy": 0.1, "short:0.111": 0.5, "full": 2.0}
    return made(method, seed, [(10.0, 1 - regret)], pool=pool, budget=budget, name="", prices=prices,
                trainings={"copy": 0, "short:0.111": 4, "full": 2, **used}, seconds=18.0)  # fmt: skip


@pytest.mark.parametrize("pool", ["physics", "resnet"])
def test_pools_with_a_copy_beside_all_rivals_and_without_the_copy(pool):
    found = [copied("ladder", s, 0.1, 20.0, pool, copy=30) for s in range(4)]
    found += [copied("summed-loss", s, 0.3, 20.0, pool) for s in range(4)]
    found += [copied("tpe", s, 0.1 - 0.1 * (s % 2), 20.0, pool) for s in range(4)]
    found += [copied("ladder-without-copy", s, 0.2, 20.0, pool) for s in range(4)]
    found += [copied("bohb", s, 0.9, 20.0, "flights") for s in range(4)]  # of another pool
    rows = body(table(f"search-{pool}", found))
    assert list(rows) == ["**the ladder**", "TPE", "summed training loss (Ru et al.) -> full"]
    assert rows["**the ladder**"][-1] == "copy 30, short:0.111 4, full 2"
    rows = body(table(f"search-{pool}-against", found))
    assert list(rows) == [
        "TPE, 20 s (10 full trainings)", "summed training loss (Ru et al.) -> full, 20 s (10 full trainings)",
    ]  # fmt: skip
    assert [row[3] for row in rows.values()] == ["no", "yes"]
    assert rows["TPE, 20 s (10 full trainings)"][2].startswith("+0.050 [")
    rows = body(table(f"search-{pool}-rungs", found))
    assert rows["without the copy"] == ["0.200 ± 0.000", "+0.100 [+0.100, +0.100]"]
    assert rows["without short trainings"] == ["not run", "not run"]
