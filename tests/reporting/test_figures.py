import numpy as np
import pytest
from synthetic_evaluation import evaluation

pytest.importorskip("matplotlib")

from hcdc.reporting import (
    draw_agreement,
    draw_cost,
    draw_rank_colours,
    draw_scatter,
    rank_colours,
    write_figures,
)
from hcdc.reporting._found_copies import draw_graph


def texts(figure):
    return " ".join(t.get_text() for t in figure.findobj(match=lambda a: hasattr(a, "get_text")))


def test_scatter_has_the_points_and_the_interval():
    e = evaluation("hcdc", spearman=0.934, interval=[0.9, 0.951])
    figure = draw_scatter([e, evaluation("random")])
    points = figure.axes[0].collections[0].get_offsets()
    np.testing.assert_allclose(points[:, 0], 100 * np.asarray(e.truth))
    np.testing.assert_allclose(points[:, 1], e.proxy)
    assert "Spearman 0.93 [0.90, 0.95]" in figure.axes[0].get_title()
    assert len(figure.axes) == 2


def test_agreement_puts_the_best_on_top_and_shows_intervals():
    low = evaluation("random", spearman=0.2, interval=[-0.35, 0.4], rivals=[])
    figure = draw_agreement([low, evaluation("hcdc", spearman=0.9, interval=[0.8, 0.95], rivals=[])])
    axes = figure.axes[0]
    assert [label.get_text() for label in axes.get_yticklabels()] == ["random", "hcdc"]
    assert axes.get_xlim()[0] <= -0.35


def test_a_rival_of_several_copies_says_beside_which():
    names = texts(draw_agreement([evaluation("random"), evaluation("hcdc")]))
    assert "real-val (beside hcdc)" in names
    assert "early-stopping (beside" not in names


def test_cost_marks_the_break_even_or_says_that_there_is_none():
    never = evaluation("gcond", proxy_seconds_per_candidate=0.5, break_even_trials=None)
    figure = draw_cost([evaluation("hcdc"), never])
    said = texts(figure)
    assert "faster from 172 trials on" in said
    assert "gcond (60 s + 0.5 s per trial): does not pay off" in said
    dots = [line for line in figure.axes[0].lines if len(line.get_xdata()) == 1]
    assert [list(dot.get_xdata()) for dot in dots] == [[172]]


def test_costs_are_not_drawn_where_they_were_not_measured(tmp_path):
    written = write_figures([evaluation("hcdc", full_seconds_per_candidate=None)], tmp_path)
    assert [path.name for path in written] == ["agreement.png", "ranks.png", "scatter.png"]


def test_figures_are_written_and_equal_for_equal_evaluations(tmp_path):
    evaluations = [evaluation("random"), evaluation("hcdc")]
    first = write_figures(evaluations, tmp_path / "a")
    second = write_figures(evaluations, tmp_path / "b")
    assert [path.name for path in first] == ["agreement.png", "ranks.png", "scatter.png", "cost.png"]
    assert [p.read_bytes() for p in first] == [p.read_bytes() for p in second]


def test_rank_colours_go_from_worst_to_best_by_spearman():
    rivals = [
        {"name": "low", "proxy": [3.0, 1.0, 2.0], "spearman": -1.0, "interval": [-1.0, -0.8]},
        {"name": "high", "proxy": [1.0, 3.0, 2.0], "spearman": 1.0, "interval": [0.9, 1.0]},
        {"name": "flat", "proxy": [1.0, 1.0, 1.0], "spearman": None, "interval": [None, None]},
        {"name": "lost", "spearman": 0.3, "interval": [0.2, 0.4]},
    ]
    e = evaluation(
        truth=[0.1, 0.3, 0.2], proxy=[1.0, 2.0, 3.0], spearman=0.5, interval=[0.25, 0.75], rivals=rivals
    )
    figure = draw_rank_colours([e])
    axes = figure.axes[0]
    assert [label.get_text() for label in axes.get_yticklabels()] == ["full data", "high", "hcdc", "low"]
    strips = axes.images[0].get_array()
    np.testing.assert_array_equal(strips, [[3, 2, 1], [3, 2, 1], [3, 1, 2], [1, 2, 3]])
    told = [text.get_text() for text in axes.texts]
    assert told[:4] == ["1 (by definition)", "1.00 [0.90, 1.00]", "0.50 [0.25, 0.75]", "-1.00 [-1.00, -0.80]"]
    assert axes.get_xlabel() == "without a ranking: flat, lost"
    assert [label.get_text() for label in axes.get_xticklabels()] == ["ranked worst", "ranked best"]
    bar = figure.axes[1]
    assert bar.get_xlabel() == "true rank"
    assert [label.get_text() for label in bar.get_xticklabels()] == ["1 (best)", "3 (worst)"]
    assert bar.get_xlim()[0] > bar.get_xlim()[1]  # as the rows: the worst at the left


def test_equal_scores_do_not_look_ranked():
    truth = np.linspace(0, 1, 60)
    proxy = (np.arange(60) >= 30).astype(float)  # candidates were judged in the order of truth
    e = evaluation(truth=truth.tolist(), proxy=proxy.tolist(), spearman=0.87, rivals=[])
    strip = np.asarray(draw_rank_colours([e]).axes[0].images[0].get_array())[1]
    assert sorted(strip[:30]) == list(range(31, 61))
    assert abs(np.corrcoef(np.arange(30), strip[:30])[0, 1]) < 0.5


def test_rank_colours_are_written(tmp_path):
    path = rank_colours(evaluation(method="cost $5"), tmp_path / "ranks.svg")
    assert path.read_text().count("<svg") == 1


def test_the_scatter_of_accuracies_is_in_percent():
    e = evaluation(metric="accuracy", truth_source="a table, 200 epochs")
    axes = draw_scatter([e]).axes[0]
    points = axes.collections[0].get_offsets()
    np.testing.assert_allclose(points[:, 0], 100 * np.asarray(e.truth))
    np.testing.assert_allclose(points[:, 1], 100 * np.asarray(e.proxy))
    assert axes.get_xlabel() == "validation accuracy, full data (%)\na table, 200 epochs"
    assert axes.get_ylabel() == "accuracy on the copy (%)"
    errors = evaluation(accuracy=False, truth=[-v for v in e.truth])
    assert draw_scatter([errors]).axes[0].get_xlabel() == "validation score, full data"


def test_the_cost_of_the_way_to_beat_is_drawn():
    e = evaluation(break_even_against="early-stopping")
    assert "early-stopping (0.2 s per trial)" in texts(draw_cost([e]))


def test_a_graph_without_edges_is_white():
    for weights in (np.zeros((4, 4)), 1.0 - np.eye(4)):
        (shown,) = draw_graph(weights, np.array([0, 0, 1, 1])).axes[0].images
        assert shown.norm(0.0) == 0
        assert shown.get_clim() == (0, 1)
