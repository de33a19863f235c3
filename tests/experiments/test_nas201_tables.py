"""Tables and figures of protocol nas201 from made-up records, and the documents from the real ones."""

import copy

import numpy as np
import pytest
from scipy import stats

from hcdc.core import records
from hcdc.core.errors import InputError
from hcdc.core.ranks import spearman, standard
from hcdc.experiments import nas201_draws, nas201_figures, tables
from hcdc.experiments.markdown import filled
from hcdc.experiments.nas201_draws import Regrets, Resampled, Samples, draws, mean_text
from hcdc.experiments.nas201_figures import figure
from hcdc.experiments.nas201_rankings import ALL, EARLY, RIDGE, SUM, Ranking, rankings
from hcdc.experiments.nas201_tables import Clock, agreement, copies
from hcdc.experiments.reproductions.nas201 import judging_cells
from hcdc.spaces import NASBench201

CLOCK = Clock(short=6.0, long=100.0)
FULL = "seconds on the full data, promotions apart"


def record(label, **found):
    shared = {
        "dataset": "cifar10",
        "train_size": 500,
        "val_size": 200,
        "seed": 1,
        "judge_seconds": 5.0,
        "initialisations": 16,
    }
    return {**shared, "label": label, **found}


@pytest.fixture
def judged(made, monkeypatch):
    """A copy of `made`; fewer draws are enough for ten cells."""
    monkeypatch.setattr(nas201_draws, "REGRET_DRAWS", 200)
    return copy.deepcopy(made)


@pytest.fixture
def undrawn(monkeypatch):
    """Figures give what they would draw."""
    monkeypatch.setattr(nas201_figures, "rank_colours", lambda drawn, path, of: {**drawn.to_json(), "of": of})


@pytest.fixture(scope="module")
def made():
    """Ten cells and four probes; HCDC ranks as the truth does, the random copy the other way round."""
    cells = [c["cell"] for c in judging_cells(10)]
    probes = [c["cell"] for c in judging_cells(14)[10:]]
    space = NASBench201()
    val = [0.5 + 0.04 * k for k in range(10)]
    test = [v + 0.01 for v in val]
    test[8] = 0.95  # the best by test is not the best by validation
    base = record(
        "truth", cells=cells, val=val, test=test, val12=val[::-1], seconds=[100.0] * 10,
        parameters=list(range(10)), features=[space.features({"cell": c}) for c in cells],
    )  # fmt: skip
    losses = {"random": [1.0, 2.0, 3.0, 4.0], "real": [4.0, 3.0, 2.0, 1.0]}
    known = {
        "probes": probes, "probe_scores": [0.6, 0.7, 0.8, 0.92], "probe_tests": [0.61, 0.71, 0.81, 0.93],
        "probe_seconds": 7200.0, "probe_losses": losses, "condense_seconds": 30.0, "draw": 0,
    }  # fmt: skip
    best = [1 - v for v in val]
    return [
        base,
        record("random-val", loss=val, score=val, draw=None, condense_seconds=1.0),
        record("real-val", loss=best, score=best, draw=None, condense_seconds=1.0),
        record("hcdc-probes", loss=best, **known),
        record("hcdc-weighted", loss=[*best[:8], best[9], best[8]], **known),
        record(
            "dm", recipe_name="published", making={"condense_seconds": 70.0}, **{
                "val.loss": val[:5], "val.score": val[:5], "real.loss": [1, 2, 3, 5, 4][::-1],
                "real.score": val[4::-1],
            },
        ),
    ]  # fmt: skip


def written(text, found):
    """A document with its tables."""
    return filled(text, lambda name: tables.table(name, [{"protocol": "nas201", **r} for r in found]))


def cells_of(table, name):
    (line,) = [row for row in table.splitlines() if row.startswith(f"| {name}")]
    return [cell.strip() for cell in line.split("|")[1:-1]]


def test_a_row_has_agreement_regrets_and_cost(judged):
    table = agreement(judged, CLOCK)
    head = [cell.strip() for cell in table.splitlines()[0].split("|")[1:-1]]
    ours = dict(zip(head, cells_of(table, "**HCDC (b)**: ")))
    assert ours["Spearman, 1,000 draws of 100: mean [5 %, 95 %]"] == "1.000 [1.00, 1.00]"
    regret = "regret of the pick, points, 10,000 draws: mean [5 %, 95 %]"
    assert ours[regret] == "8.00 [8.00, 8.00]"  # the pick has .87 by test, the best .95
    assert ours["after 5 promotions"] == "8.00"  # the best of these by validation is the pick again
    assert ours["of 25 full trainings, probes among them"] == "2.00"  # the best probe has .93
    assert ours[FULL] == "400"  # four probes
    assert ours["all 10, test accuracy as truth"] == "0.988"  # the best two by test are the other way round
    assert ours[head[-1]] == "80"  # 30 of condensing and ten times five of judging ten cells
    weighted = dict(zip(head, cells_of(table, "**HCDC (d)**")))
    assert weighted[regret] == "0.00 [0.00, 0.00]"
    gain = "HCDC (b) minus it, all 10: mean, 90 % interval of the mean"
    assert weighted[gain].startswith("+0.012 ")
    worst = dict(zip(head, cells_of(table, "random copy, 200")))
    assert worst["Spearman, 1,000 draws of 100: mean [5 %, 95 %]"] == "-1.000 [-1.00, -1.00]"
    assert worst[gain] == "+2.000 [+2.000, +2.000]"
    assert worst[head[-1]] == "51"
    twelve = dict(zip(head, cells_of(table, EARLY)))
    assert twelve[FULL] == "600"  # 100 cells, 6 s each
    assert twelve[head[-1]] == "0"
    assert twelve["of 25 full trainings, probes among them"] == "8.00"  # all cells, the best by validation
    for name, seconds in (
        ("12 epochs + real validation loss (sum of two scores)", "600"),
        ("ridge + 12 epochs (sum of two scores)", "1,000"),
        ("**HCDC (b)** + 12 epochs (sum of two scores)", "1,000"),
    ):
        assert dict(zip(head, cells_of(table, name)))[FULL] == seconds
    trained = dict(zip(head, cells_of(table, ALL)))
    assert trained[regret] == "8.00 [8.00, 8.00]"
    assert trained[FULL] == "10,000"
    joined = dict(zip(head, cells_of(table, "ridge on operation counts, parameters and real")))
    assert joined[head[-1]] == "53"  # four probes more than the copy's 51
    bare = dict(zip(head, cells_of(table, "none: the best of 20 probes |")))
    assert bare[regret] == "2.00 [2.00, 2.00]"  # .93 by test
    assert bare["of 25 full trainings, probes among them"] == ""


def test_rankings_with_12_epochs_are_sums_of_standard_values(judged):
    judged[0]["val12"] = [0.1, 0.5, 0.2, 0.9, 0.3, 0.3, 0.8, 0.7, 0.6, 0.4]
    judged[3]["loss"] = [0.3, 0.9, 0.1, 0.8, 0.5, 0.2, 0.7, 0.4, 0.6, 0.0]
    _, rows = rankings(judged)
    early = standard(np.asarray(judged[0]["val12"]))
    real, ours = (-standard(np.asarray(judged[k]["loss"])) for k in (2, 3))
    ridge = standard(rows[RIDGE][0].scores)
    for name, other in (
        ("12 epochs + real validation loss", real),
        ("ridge + 12 epochs", ridge),
        ("**HCDC (b)** + 12 epochs", ours),
    ):
        (one,) = rows[f"{name} {SUM}"]
        np.testing.assert_allclose(one.scores, early + other)
        assert (one.known is None) == name.startswith("12 epochs")


def test_correlations_on_samples_are_spearmans():
    """With ties in both, cells that a sample has more than once, and scores that do not differ."""
    rng = np.random.default_rng(0)
    truth, scores = rng.integers(4, size=(2, 12)).astype(float)
    scores[:3] = 7.0
    cells = rng.integers(12, size=(50, 9))
    cells[2] = rng.integers(3, size=9)
    found = Samples(truth, cells).correlations(scores)
    np.testing.assert_allclose(found, [spearman(truth[c], scores[c]) for c in cells], rtol=1e-6)
    assert np.isnan(found[2])


def test_regrets_are_those_of_each_draw():
    """By hand, draw by draw; of equal scores the first in the draw comes first."""
    rng = np.random.default_rng(0)
    truth, test, scores = rng.random(130), rng.random(130), rng.integers(40, size=130).astype(float)
    regrets = Regrets(truth, test)
    for known in (None, (0.9, 0.5)):
        found = regrets.figures(Ranking(scores, known=known))
        for k, draw in enumerate(draws(130, nas201_draws.REGRET_DRAWS)[:200]):
            order = draw[np.argsort(-scores[draw], kind="stable")]
            picks = {"regret": order[:1], "promoted": order[:5], "equal": order[: 5 if known else 25]}
            for name, some in picks.items():
                val, reached = truth[some], test[some]
                if known and name == "equal":
                    val, reached = np.append(val, known[0]), np.append(reached, known[1])
                lost = 100 * (test[draw].max() - reached[val.argmax()])
                assert found[name][k] == pytest.approx(lost)
    lost = regrets.of_probes((2.0, 0.5))
    np.testing.assert_allclose(lost["probes"], lost["random"])  # no cell is better by validation
    best = test[draws(130, nas201_draws.REGRET_DRAWS)].max(1)
    np.testing.assert_allclose(lost["probes"], 100 * (best - 0.5))


def test_means_have_the_digits_that_their_draws_support():
    values = np.tile([-1.0, 1.0], 5000)
    assert mean_text(0.456 + 0.4 * values[None]) == "0.46"  # twice the standard error is .008
    assert mean_text(0.456 + 4 * values[None]) == "0.5"
    assert mean_text(4.56 + 40 * values[None]) == "5"
    assert (
        mean_text(np.stack([4.56 + 40 * values, 4.56 - 40 * values]), spread=True) == "4.56 [-35.44, 44.56]"
    )


def test_intervals_of_gains_come_from_resampled_cells_condensations_and_probes(judged):
    """By hand, with the same draws; runs of a condensation share its weight and come and go together."""
    rng = np.random.default_rng(1)
    again = [{**judged[3], "draw": k, "loss": rng.random(10).tolist()} for k in (1, 2)]
    other = [{**r, "seed": 2, "loss": rng.random(10).tolist()} for r in judged[1:4]]
    _, rows = rankings([*judged, *again, *other])
    truth = np.asarray(judged[0]["val"])
    ours, theirs = rows["**HCDC (b)**: 200 images learned from 20 probes"], rows["number of parameters"]
    resampled = Resampled(truth, ours)
    np.testing.assert_allclose(resampled.weight, [1 / 6, 1 / 6, 1 / 6, 1 / 2])
    np.testing.assert_allclose(resampled.weights.sum(1), 1)
    np.testing.assert_allclose(resampled.weights.mean(0), resampled.weight, atol=0.03)
    alone = resampled.weights[:, 3].round(9)  # two condensations are drawn of two, this one 0, 1 or 2 times
    assert [float(np.mean(alone == w)) for w in (0, 0.5, 1)] == pytest.approx([0.25, 0.5, 0.25], abs=0.05)
    shares = set((6 * resampled.weights[:, 0]).round(9))
    assert {0, 1, 2, 3, 4} <= shares <= set(range(7))  # of three draws of probes, with repeats, once or twice

    def reached(one):
        lots = resampled.cells[1:]
        ranks = [stats.rankdata(values[lots], axis=1) for values in (truth, one.scores)]
        a, b = (each - each.mean(1, keepdims=True) for each in ranks)
        return (a * b).sum(1) / np.sqrt((a * a).sum(1) * (b * b).sum(1))

    gains = np.stack([reached(one) - reached(theirs[0]) for one in ours], 1)
    means = (resampled.weights * gains).sum(1)
    low, high = np.quantile(means, [0.05, 0.95])
    mean = resampled.weight @ [spearman(truth, one.scores) - 1 for one in ours]  # parameters rank as truth
    assert resampled.gain(theirs) == f"{mean:+.3f} [{low:+.3f}, {high:+.3f}]"


def test_rows_of_a_table_are_judged_on_the_same_cells(judged):
    """Five of ten cells judged the copy: it is in the table of all rows on these five alone."""
    whole, some = agreement(judged), agreement(judged, some=True)
    assert "DM copy" not in whole
    assert "| all 10 |" in whole
    assert "| all 5 |" in some
    row = cells_of(some, "DM copy, published recipe, by accuracy")
    assert row[2:4] == ["1.000 [1.00, 1.00]", "1.000"]
    assert row[-1] == "170"
    base = judged[0]
    for key in ("cells", "val", "test", "val12", "seconds", "parameters", "features"):
        base = {**base, key: base[key][:5]}
    short = [r | {"loss": r["loss"][:5], "judge_seconds": r["judge_seconds"] / 2} for r in judged[1:5]]
    ours = cells_of(agreement([base, *short]), "**HCDC (b)**: ")
    assert cells_of(some, "**HCDC (b)**: ") == ours
    assert ours[7] == "0.00 [0.00, 0.00]"  # of ten it is 8


def test_a_run_on_fewer_cells_leaves_the_others_in_the_table(judged, undrawn):
    """Another condensation was judged on five cells: it is in the table of all rows alone."""
    table = agreement(judged)
    short = [{**r, "seed": 2, "loss": r["loss"][:5]} for r in judged[1:5]]
    assert agreement([*judged, *short]) == table
    assert cells_of(agreement([*judged, *short], some=True), "**HCDC (b)**: ")[1] == "2"
    assert len(figure([*judged, *short], "none.png")["truth"]) == 10


def test_condensations_weigh_equally_however_many_probes_were_drawn(judged):
    """Three draws of probes for one condensation, one draw for another, which ranks the other way round."""
    again = [{**judged[3], "draw": k} for k in (1, 2)]
    other = [{**r, "seed": 2} for r in judged[1:4]]
    other[2] = {**other[2], "loss": judged[3]["loss"][::-1], "condense_seconds": 90.0}
    table = agreement([*judged, *again, *other])
    ours = cells_of(table, "**HCDC (b)**: ")
    assert ours[1] == "4 of 2 condensations"
    assert [float(cell.split()[0]) for cell in ours[2:4]] == [0.0, 0.0]
    assert ours[-1] == "110"  # 80 and 140
    assert ours[7] == "26.00 [8.00, 44.00]"  # 8 and 44 points: the second picks the worst cell, .51 by test
    shown = cells_of(copies([*judged, *again, *other]), "**HCDC (b)**: ")
    assert float(shown[-1]) == 0.0


def test_gains_are_over_the_same_probes_or_the_same_condensation(judged):
    """Condensation 2 turns every ranking round, so that nothing is gained within one; across them 2 is."""
    turned = [{**r, "seed": 2, "loss": r["loss"][::-1]} for r in judged[1:4]]
    again = [{**judged[3], "draw": 1}]
    table = agreement([*judged, *turned, *again])
    assert cells_of(table, "same S_train, real validation images")[5] == "+0.000 [+0.000, +0.000]"
    assert cells_of(table, "random copy, 200")[5] == "+0.000 [-2.000, +2.000]"
    assert cells_of(table, "number of parameters")[5] == "-1.000 [-2.000, +0.000]"


def test_copies_of_other_sizes_are_not_mixed(judged, undrawn):
    other = [{**r, "val_size": 100} for r in judged]
    with pytest.raises(InputError, match=r"different sizes: \[\(500, 100\), \(500, 200\)\]"):
        agreement([*judged, *other])
    assert cells_of(copies(other), "**HCDC (b)**: 100 images")
    assert len(figure(other, "none.png")["truth"]) == 10


@pytest.mark.parametrize(
    ("given", "kind"),
    [
        ({"total": True}, "total"), ({"steps": 33}, "steps"), ({"steps": 33, "initialisations": 8}, "steps"),
        ({"initialisations": 8}, "eight"), ({"initialisations": None}, "eight"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("some", [False, True])
def test_records_of_other_recipes_or_of_a_total_have_a_table_of_their_own(given, kind, some, judged):
    worse = [{**r, **given} for r in judged]
    worse[3] = {**worse[3], "loss": worse[3]["loss"][::-1]}
    own = f"nas201-cifar10-{kind}" + some * "-some"
    text = "".join(f"<!-- {n} -->\nold\n<!-- /{n} -->\n" for n in ("nas201-cifar10", own))
    first, second = written(text, [*judged, *worse]).split("<!-- /nas201-cifar10 -->")
    assert agreement(judged) in first
    assert agreement(worse, some=some) in second


def test_records_of_another_number_of_initialisations_have_no_table(judged):
    other = [{**r, "initialisations": 4} for r in judged]
    with pytest.raises(InputError, match=r"a record has 4 initialisations; tables exist for \[8, 16\]"):
        tables.table("nas201-cifar10", [{"protocol": "nas201", **r} for r in other])


def test_the_papers_split_has_a_table_of_its_own(judged):
    """Its rows say how many validation images they have, and are in no other table."""
    worse = [{**r, "train_size": 400, "val_size": 100, "total": True} for r in judged]
    worse[3] = {**worse[3], "loss": worse[3]["loss"][::-1]}
    text = "".join(
        f"<!-- {n} -->\nold\n<!-- /{n} -->\n" for n in ("nas201-cifar10", "nas201-cifar10-total-some")
    )
    first, second = written(text, [*judged, *worse]).split("<!-- /nas201-cifar10 -->")
    assert agreement(judged) in first
    assert agreement(worse, some=True) in second
    assert cells_of(second, "**HCDC (b)**: 100 images learned")[2].startswith("-1.000")
    assert cells_of(second, "random copy, 100 random validation images")
    assert cells_of(second, "**HCDC (b)**: 100")[5] == ""
    assert cells_of(second, "number of parameters")[5].startswith("-2.000")


def test_copies_are_shown_by_recipe_and_metric(judged):
    better = record("dm", recipe_name="calibrated", **{"val.loss": [1, 2, 3, 5, 4], "val.score": [0.0] * 5})
    better |= {"val.score": judged[-1]["val.score"][::-1], "seed": 2, "real.loss": [5, 4, 3, 2, 1]}
    better |= {"real.score": [1, 2, 3, 5, 4]}
    table = copies([*judged, better])
    dm = cells_of(table, "DM ")
    assert dm[:3] == ["DM", "1 / 1", "-0.10"]
    assert dm[3:] == ["1.00 / -1.00", "-1.00 / 0.90", "-1.00 / 0.90", "-0.90 / 1.00"]
    assert cells_of(table, "TM ")[1:] == ["0 / 0", "-0.07", *["not run"] * 4]
    assert cells_of(table, "**HCDC (b)**")[2:] == ["0.74", "", "", "", "1.00"]
    assert cells_of(table, "12 epochs")[-1].startswith("-1.00")


def test_random_copies_of_other_seeds_are_those_beside_hcdc(judged):
    """HCDC's S_train is a random copy too: with random validation images and with the real ones."""
    row = cells_of(copies(judged), "random ")
    assert row[1:] == ["0 / 1", "-0.12", "not run", "not run", "1.00 / -1.00", "-1.00 / 1.00"]
    own = {f"{part}.{what}": [1, 2, 3, 5, 4] for part in ("val", "real") for what in ("loss", "score")}
    same = record("random", recipe_name="calibrated", **own)
    assert cells_of(copies([*judged, same]), "random ")[5:] == ["0.90 / 0.90", "-0.90 / -0.90"]
    both = cells_of(copies([*judged, {**same, "seed": 2}]), "random ")
    assert both[1] == "0 / 2"
    assert both[5].startswith("0.95 ± 0.07 / ")  # of 1 and .9
    other = [{**r, "train_method": "tm"} for r in judged]
    assert cells_of(copies(other), "random ")[1] == "0 / 0"


def test_cells_that_judged_nothing_are_left_out(judged):
    """The first eight of ten judged all copies: the table is that of a truth of eight."""
    for r in judged[1:5]:
        r["loss"] = r["loss"][:8]
    whole = agreement(judged)
    base = judged[0]
    for key in ("cells", "val", "test", "val12", "seconds", "parameters", "features"):
        base = {**base, key: base[key][:8]}
    assert agreement([base, *judged[1:]]) == whole
    head = [cell.strip() for cell in whole.splitlines()[0].split("|")[1:-1]]
    ours = dict(zip(head, cells_of(whole, "**HCDC (b)**: ")))
    assert (
        ours["regret of the pick, points, 10,000 draws: mean [5 %, 95 %]"] == "0.00 [0.00, 0.00]"
    )  # of ten it is 8


def test_records_with_other_judging_cells_are_refused(judged):
    """The same truth may be there more than once, as after a run that was continued."""
    table = agreement(judged)
    assert agreement([*judged, judged[0]]) == table
    cells = judged[0]["cells"]
    for other in (cells[::-1], cells[:9], [*cells[:9], "another"]):
        mixed = [*judged, {**judged[0], "cells": other}]
        for made_of in (agreement, rankings):
            with pytest.raises(InputError, match="different judging cells; give the records of one"):
                made_of(mixed)


def test_records_without_a_truth_or_without_hcdc_are_refused(judged, tmp_path):
    with pytest.raises(InputError, match="no record holds the table's results for the judging cells"):
        agreement([r for r in judged if r["label"] != "truth"])
    with pytest.raises(InputError, match=r"the figure needs a run of HCDC \(b\)"):
        figure([r for r in judged if r["label"] != "hcdc-probes"], tmp_path / "none.png")


def test_every_benchmark_has_judging_cells_of_its_own(judged):
    other = [{**r, "dataset": "cifar100"} for r in judged]
    other[0] = {**other[0], "cells": other[0]["cells"][::-1]}
    names = ("nas201-cifar10", "nas201-cifar100-copies")
    text = "".join(f"<!-- {name} -->\nold\n<!-- /{name} -->\n" for name in names)
    each = (agreement(judged), copies(other))
    expected = "".join(f"<!-- {name} -->\n{t}\n<!-- /{name} -->\n" for name, t in zip(names, each))
    assert written(text, [*judged, *other]) == expected


def test_seconds_of_trainings_on_other_data_than_the_clocks_are_not_known(judged):
    """The clock is that of CIFAR-10; without one, no training on the full data is priced."""
    each = [agreement([{**r, "dataset": name} for r in judged], CLOCK) for name in ("cifar10", "cifar100")]
    each.append(agreement(judged))
    head = [cell.strip() for cell in each[0].splitlines()[0].split("|")[1:-1]]
    bare = "none: the best of 20 probes |"
    for row, seconds in (("**HCDC (b)**: ", "400"), (EARLY, "600"), (bare, "400"), ("number of", "0")):
        known, *others = (dict(zip(head, cells_of(table, row))) for table in each)
        assert known.pop(FULL) == seconds
        for other in others:
            assert other.pop(FULL) == ("0" if seconds == "0" else "not timed")
            assert other == known


def test_the_clock_is_that_of_the_benchmark_of_epochs():
    timed = {"benchmark": "epochs", "seconds_12": 6.0, "seconds_200": 100.0}
    assert Clock.read([{"benchmark": "dm"}, {"protocol": "nas201"}, timed]) == CLOCK
    assert Clock.read([{"benchmark": "dm"}]) is None


def test_rows_are_sorted(judged):
    table = agreement(judged)
    means = [float(row.split("|")[3].split()[0]) for row in table.splitlines()[2:-2]]
    assert means == sorted(means, reverse=True)
    assert "none: the best of 20 probes and 5 random cells" in table.splitlines()[-1]


@pytest.mark.parametrize("name", ["nas201-cifar10-short", "nas201-cifar1000", "nas201-cifar10-steps"])
def test_a_table_that_is_not_there_is_refused(judged, name):
    with pytest.raises(InputError, match=f"table '{name}' does not exist or has no records"):
        written(f"<!-- {name} -->\n<!-- /{name} -->", judged)


def test_a_figure_is_drawn_of_a_draw(judged, tmp_path):
    pytest.importorskip("matplotlib")
    path = figure(judged, tmp_path / "ranks.png")
    assert path.read_bytes().startswith(b"\x89PNG")


def test_a_figure_of_copies_has_them_on_their_cells_and_random_images_once(judged, undrawn):
    plain, drawn = (figure(judged, "none.png", of_copies=v) for v in (False, True))
    names = [{one["name"] for one in each["rivals"]} for each in (plain, drawn)]
    assert not any("copy, published" in name for name in names[0])
    assert any(name.startswith("DM copy, published recipe") for name in names[1])
    assert all(any("ridge" in name for name in each) for each in names)
    assert [any(name.startswith("random copy, 200") for name in each) for each in names] == [True, False]
    assert not any(ALL in each for each in names)
    sums = ("ridge + 12 epochs", "HCDC (b) + 12 epochs", "12 epochs + real validation loss")
    assert all(any(name.startswith(one) for name in each) for each in names for one in sums)
    assert sorted(drawn["truth"]) == judged[0]["val"][:5]


def test_run_and_draw_of_a_figure_are_those_nearest_to_the_means(judged, undrawn, monkeypatch, request):
    """By hand: the run of each row first, then the draw in which all these are nearest to the rows' means."""
    monkeypatch.setattr(nas201_draws, "CELLS", 5)
    draws.cache_clear()
    request.addfinalizer(draws.cache_clear)
    rng = np.random.default_rng(0)
    judged[0]["val12"] = rng.random(10).tolist()
    judged[3]["loss"] = judged[0]["val"]  # the first run ranks the other way round
    again = [{**judged[3], "draw": k, "loss": rng.random(10).tolist()} for k in (1, 2, 3)]
    found = [*judged[:5], *again]
    drawn = figure(found, "none.png")
    truth, every = np.asarray(judged[0]["val"]), draws(10)
    samples = Samples(truth, every)
    _, rows = rankings(found)
    rows.pop(ALL)
    chosen, means, reached = {}, {}, {}
    for name, ranked in rows.items():
        values = np.array([samples.correlations(one.scores) for one in ranked])
        means[name] = values.mean()
        run = min(range(len(ranked)), key=lambda k: abs(values[k].mean() - means[name]))
        chosen[name], reached[name] = ranked[run], values[run]
    away = sum((reached[name] - means[name]) ** 2 for name in rows)
    some = every[int(away.argmin())]
    assert away.min() < np.median(away)
    assert drawn["truth"] == truth[some].tolist()
    ours = "**HCDC (b)**: 200 images learned from 20 probes"
    assert chosen[ours] is not rows[ours][0]
    assert drawn["proxy"] == chosen[ours].scores[some].tolist()
    assert drawn["method"].startswith("HCDC (b):")
    real = next(one for one in drawn["rivals"] if one["name"].startswith("same S_train, real"))
    assert real["proxy"] == (-np.asarray(judged[2]["loss"])[some]).tolist()  # all rows on the same cells
    assert drawn["of"] == "NAS-Bench-201, CIFAR-10, 50 images per class"


def test_labels_of_a_figure_tell_a_sum_from_a_regression(judged, undrawn):
    names = {one["name"] for one in figure(judged, "none.png")["rivals"]}
    assert "ridge + real validation loss (sum of two scores)" in names
    assert "ridge with real validation loss (one regression)" in names
    assert len(names) == len(rankings(judged[:5])[1]) - 2  # without HCDC (b) and all trained


def test_the_random_row_of_a_figure_of_copies_has_all_condensations(judged, undrawn, monkeypatch):
    """Three of HCDC's random copies; the one of seed 1 was judged beside the other copies as well."""
    shown = []
    typical = nas201_figures._typical
    monkeypatch.setattr(nas201_figures, "_typical", lambda t, rows: shown.append(rows) or typical(t, rows))
    more = [{**judged[1], "seed": seed} for seed in (2, 3)]
    same = {
        **judged[-1], "label": "random", "recipe_name": "calibrated",
        **{f"{part}.{what}": judged[1][what][:5] for part in ("val", "real") for what in ("loss", "score")},
    }  # fmt: skip
    name = "random copy, calibrated recipe, by loss"
    for first in (judged, [*judged, same]):
        figure([*first, *more], "none.png", of_copies=True)
        assert sorted(one.seed for one in shown[-1][name]) == [1, 2, 3]
        assert not any(row.startswith("random copy, 200") for row in shown[-1])


def test_records_of_other_protocols_are_passed_over(judged, tmp_path):
    file, document = tmp_path / "all.jsonl", tmp_path / "page.md"
    for r in [{"protocol": "convnet-accuracy", "dataset": "cifar10"}, *judged]:
        records.append(file, {"protocol": "nas201", **r})
    document.write_text("<!-- nas201-cifar10 -->\nold\n<!-- /nas201-cifar10 -->\nthe end\n")
    tables.main([str(file), str(document)])
    table = agreement(judged)
    expected = f"<!-- nas201-cifar10 -->\n{table}\n<!-- /nas201-cifar10 -->\nthe end\n"
    assert document.read_text() == expected
