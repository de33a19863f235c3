"""The figure of ``search-replay`` from records made by hand."""

import numpy as np
import pytest

from hcdc.experiments.search_figure import LINES, draw_search, mean_curve, write_search_figure


def made(method, curve, *, name="a", seed=0, pool="resnet", budget=38.0, median=0.0):
    return {
        "protocol": "search-replay", "pool": pool, "table": name, "method": method, "budget": budget,
        "seed": seed, "curve": curve, "score": curve[-1][1], "best": 1.0, "median": median,
        "prices": {"full": 0.95},
    }  # fmt: skip


def test_tables_count_alike():
    times = np.array([0.0, 10.0, 20.0])
    runs = [made("ladder", [[5.0, 0.5]]), made("ladder", [[15.0, 0.9]], seed=1)]
    np.testing.assert_allclose(mean_curve(runs, times), [1, 0.75, 0.3])
    other = made("ladder", [[5.0, 0.8]], name="b", median=0.5)
    np.testing.assert_allclose(mean_curve([*runs, other], times), [1, (0.75 + 0.4) / 2, (0.3 + 0.4) / 2])


def test_panels_have_the_methods_with_records_at_the_budget():
    runs = [
        made("ladder", [[19.0, 0.9]]),
        made("random", [[10.0, 0.5]]),
        made("tpe", [[9.0, 0.5]], budget=10.0),
    ]
    figure = draw_search([*runs, made("random", [[10.0, 0.5]], pool="physics", budget=1391)])
    (axes,) = figure.axes
    assert axes.get_title() == "small ResNet"
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["hcdc", "random search"]
    random, ladder = axes.lines
    assert ladder.get_color() == LINES["ladder"][1]
    assert ladder.get_xdata()[-1] == pytest.approx(40)
    assert ladder.get_ydata()[[0, 150, 250]].tolist() == pytest.approx([1, 1, 0.1])
    assert random.get_ydata()[-1] == pytest.approx(0.5)


def test_no_figure_without_a_ladder(tmp_path):
    write_search_figure([made("random", [[10.0, 0.5]])], tmp_path)
    assert not list(tmp_path.iterdir())
    write_search_figure([made("ladder", [[10.0, 0.5]])], tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["search.png"]
