"""``graph-nas-curve``: incumbents, and the mean of their curves over seeds."""

import numpy as np
import pytest

from hcdc.experiments.reproductions.graph_nas_curve import (
    GraphNASCurve,
    at,
    curve,
    incumbents,
    mean_curve,
)

SETTINGS = {"recipe": {"seeds": 1, "steps": 60}}


def record(seed, place, seconds, scores, tests, condensing=0.0):
    found = [{"trial": trial, "test": test} for trial, test in zip(incumbents(scores), tests)]
    unit = {"dataset": "cora", "size": 35, "seed": seed, "place": place, "settings": SETTINGS}
    times = {"condense_seconds": condensing, "trial_seconds": seconds}
    told = {"label": "random", "place": place, "seed": seed, "unit": unit}
    return {**told, **times, "scores": scores, "incumbents": found}


def test_a_curve_steps_where_the_incumbent_changes():
    one = record(0, "copy", [1.0, 2.0, 3.0], [0.5, 0.4, 0.6], [0.3, 0.7], condensing=10.0)
    seconds, test = curve(one)
    assert seconds.tolist() == [11.0, 16.0, 16.0]
    assert test.tolist() == [0.3, 0.7, 0.7]
    assert np.isnan(at((seconds, test), 10.9))
    assert (at((seconds, test), 12.0), at((seconds, test), 16.0)) == (0.3, 0.7)


def test_the_mean_of_curves_spans_what_all_of_them_do():
    first = np.array([1.0, 4.0, 6.0]), np.array([0.2, 0.4, 0.4])
    second = np.array([2.0, 5.0, 8.0]), np.array([0.6, 0.8, 0.8])
    seconds, test = mean_curve([first, second])
    assert seconds.tolist() == [2.0, 4.0, 5.0, 6.0]
    assert test == pytest.approx([0.4, 0.5, 0.6, 0.6])
    assert [part.tolist() for part in mean_curve([first])] == [part.tolist() for part in first]


def test_a_panel_shows_means_and_says_of_how_many_seeds():
    found = [
        record(seed, place, [1.0 + seed, 1.0], [0.5, 0.6], [0.2, 0.4], condensing)
        for seed in (0, 1)
        for place, condensing in (("copy", 2.0), ("whole", 0.0))
    ]
    what = GraphNASCurve()
    (axes,) = what.draw(found).axes
    assert axes.get_title() == "cora, 35 nodes, mean of 2 seeds"
    copy, whole, made = axes.lines  # two curves, and where the copy is made
    assert (copy.get_xdata()[0], whole.get_xdata()[0]) == (4.0, 2.0)  # the mean starts with the later seed
    assert list(made.get_xdata()) == [2.0, 2.0]
    assert [text.get_text() for text in axes.get_legend().get_texts()][-1] == "copy made after 2 s"
    table = what.table(found)
    assert [row[4] for row in table.rows] == ["60", "60"]
    assert "one seed" in what.draw(found[:2]).axes[0].get_title()


def test_a_copy_that_is_made_too_late_has_no_incumbent_at_the_seconds_of_the_original():
    late = record(0, "copy", [1.0], [0.5], [0.2], condensing=60.0)
    rows = GraphNASCurve().table([late, record(0, "whole", [5.0], [0.5], [0.3])]).rows
    assert [row[-3] for row in rows] == ["none yet", "30.0 (1)"]
    assert [row[-2] for row in rows] == ["beaten by original", ""]
