import pytest
from synthetic_evaluation import evaluation

from hcdc.reporting import COLUMNS, Row, summary_table
from hcdc.reporting._table import agreement, pays, points, score, seconds


def cells(row):
    return {column.heading: column.cell(row) for column in COLUMNS}


def test_rows_are_copies_with_rivals_and_the_full_data():
    rows = summary_table([evaluation("random"), evaluation("hcdc")])
    assert [(row.role, row.name) for row in rows] == [
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
    assert [r.name for r in rows if r.role == "full"] == ["full data (citeseer-embedded)", "full data (cora)"]


def test_only_copies_have_a_break_even():
    rows = summary_table([evaluation("hcdc")])
    assert [pays(row) for row in rows] == ["172", "-", "-", "-", "-", "-"]


def test_a_row_says_what_the_evaluation_says():
    e = evaluation("hcdc", spearman=0.934, interval=[0.9, 0.951], selected_test_accuracy=0.6812)
    found = cells(summary_table([e])[0])
    assert found["rank agreement"] == "0.93 [0.90, 0.95]"
    assert found["test score of the pick"] == "68.1 %"
    assert found["condense (s)"] == "60"
    assert cells(summary_table([evaluation(test_spearman=0.876)])[0])["with test scores"] == "0.88"
    assert found["break-even (trials)"] == "172"


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"proxy_seconds_per_candidate": 0.5}, "does not pay off"),
        ({"break_even_against": "parameter-count"}, "does not pay off"),
        ({"condense_seconds": None}, "unknown"),
        ({"full_seconds_per_candidate": None, "full_seconds": None}, "unknown"),
        ({"interval": [-0.1, 0.9]}, "-"),
    ],
)
def test_a_copy_without_a_break_even_says_why(changes, said):
    assert pays(summary_table([evaluation("hcdc", break_even_trials=None, **changes)])[0]) == said


def test_undefined_agreement_is_said():
    row = summary_table([evaluation("hcdc", spearman=None, interval=[None, None])])[0]
    assert agreement(row) == "not defined"
    assert pays(row) == "-"


def test_scores_that_are_no_accuracies_are_not_percent():
    row = summary_table([evaluation("hcdc", truth=[-1.5] * 40, selected_test_accuracy=-1.25)])[0]
    assert cells(row)["test score of the pick"] == "-1.25"
    assert score(None, True) == "-"
    assert (points(0.01234, True), points(0.01234, False), points(None, True)) == ("1.2", "0.012", "-")
    assert not any("accuracy" in column.heading for column in COLUMNS)


def test_the_full_row_names_where_the_truth_is_from():
    notes = [summary_table([evaluation(**e)])[-1].note for e in ({}, {"truth_source": "a table"})]
    assert notes == [
        "every candidate trained on the full data: the reference",
        "a table: the reference",
    ]


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
