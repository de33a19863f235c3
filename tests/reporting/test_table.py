import pytest
from synthetic_evaluation import evaluation

from hcdc.reporting import COLUMNS, Row, summary_table
from hcdc.reporting._table import agreement, break_even, pays, score, seconds


def cells(row):
    return {column.heading: column.cell(row) for column in COLUMNS}


def test_rows_are_copies_with_rivals_and_the_full_data():
    rows = summary_table([evaluation("random"), evaluation("hcdc")])
    assert [(row.kind, row.name) for row in rows] == [
        ("copy", "random"),
        ("rival", "random-val"),
        ("rival", "real-val"),
        ("rival", "early-stopping"),
        ("rival", "parameter-count"),
        ("copy", "hcdc"),
        ("rival", "random-val"),
        ("rival", "real-val"),
        ("full", "full data"),
    ]


def test_each_data_set_has_its_own_full_row():
    rows = summary_table([evaluation("hcdc"), evaluation("hcdc", dataset="cora")])
    assert [r.name for r in rows if r.kind == "full"] == ["full data (citeseer-embedded)", "full data (cora)"]


def test_rivals_have_a_break_even_where_they_cost_something_before_the_first_trial():
    real, early = (r for r in summary_table([evaluation("hcdc")]) if r.name in ("real-val", "early-stopping"))
    assert (real.once, real.break_even, pays(real)) == (60.0, 188, "188")
    assert (early.once, early.break_even, pays(early)) == (None, None, "-")


def test_a_row_says_what_the_evaluation_says():
    e = evaluation("hcdc", spearman=0.934, interval=[0.9, 0.951], selected_test_accuracy=0.6812)
    found = cells(summary_table([e])[0])
    assert found["rank agreement"] == "0.93 [0.90, 0.95]"
    assert found["test accuracy of the pick"] == "68.1 %"
    assert found["condense (s)"] == "60"
    assert found["break-even (trials)"] == "172"


def test_what_never_pays_says_so():
    row = summary_table([evaluation("hcdc", proxy_seconds_per_candidate=0.5, break_even_trials=None)])[0]
    assert pays(row) == "it does not pay here"
    unknown = summary_table([evaluation("hcdc", condense_seconds=None, break_even_trials=None)])[0]
    assert pays(unknown) == "unknown"
    elsewhere = summary_table(
        [evaluation("hcdc", full_seconds_per_candidate=None, full_seconds=None, break_even_trials=None)]
    )
    assert [pays(row) for row in elsewhere if row.name in ("hcdc", "real-val")] == ["unknown"] * 2


def test_undefined_agreement_is_said():
    row = summary_table([evaluation("hcdc", spearman=None, interval=[None, None])])[0]
    assert agreement(row) == "not defined"
    assert pays(row) == "-"


def test_scores_that_are_no_accuracies_are_not_percent():
    row = summary_table([evaluation("hcdc", truth=[-1.5] * 40, selected_test_accuracy=-1.25)])[0]
    assert cells(row)["test accuracy of the pick"] == "-1.25"
    assert score(None, True) == "-"


def test_accuracies_of_images_may_be_percent():
    shares = evaluation("hcdc", kind="image")
    percent = {**shares, "truth": [100 * v for v in shares["truth"]]}
    for key in ("regret", "selected_test_accuracy", "best_test_accuracy"):
        percent[key] = 100 * shares[key]
    keys = ("regret", "selected_test_accuracy")
    percent["rivals"] = [
        {**rival, **{key: 100 * rival[key] for key in keys if rival[key] is not None}}
        for rival in shares["rivals"]
    ]
    told = [[cells(row) for row in summary_table([e])] for e in (shares, percent)]
    assert told[0] == told[1]
    plain = cells(summary_table([{**percent, "kind": "graph"}])[0])
    assert "%" not in plain["test accuracy of the pick"]  # scores of other tasks may be anything


def test_the_full_row_names_where_the_truth_is_from():
    notes = [summary_table([evaluation(**e)])[-1].note for e in ({}, {"truth_source": "a table"})]
    assert notes == [
        "every candidate trained on the full data: what the others are judged by",
        "a table: what the others are judged by",
    ]


@pytest.mark.parametrize(
    ("once", "each", "full", "trials"),
    [
        (60.0, 0.05, 0.4, 172),
        (0.0, 0.1, 0.4, 1),
        (3.0, 0.1, 0.4, 10),
        (60.0, 0.4, 0.4, None),
        (None, 0.1, 0.4, None),
    ],
)
def test_break_even_is_the_first_trial_count_that_costs_no_more(once, each, full, trials):
    found = break_even(once, each, full)
    assert found == trials
    if found is not None:
        assert once + found * each <= found * full + 1e-9
        assert found == 1 or once + (found - 1) * each > (found - 1) * full


@pytest.mark.parametrize(
    ("value", "text"),
    [(None, "-"), (0.0, "0"), (0.0004, "<0.001"), (0.0123, "0.0123"), (12.345, "12.3"), (12345.6, "12,346")],
)
def test_seconds_have_three_figures(value, text):
    assert seconds(value) == text


def test_every_column_can_show_an_empty_row():
    assert all(isinstance(column.cell(Row("nothing", "copy")), str) for column in COLUMNS)


def test_ten_of_ten_candidates_are_no_figure():
    row = summary_table([evaluation("hcdc", top_k_overlap=None)])[0]
    assert cells(row)["top 10"] == "-"
