import numpy as np
import pytest

pytest.importorskip("matplotlib")

from hcdc.core.errors import InputError
from hcdc.reporting import counts_figure, draw_counts

PANELS = [
    {
        "title": "Time",
        "across": "size n",
        "up": "steps",
        "x": (1, 2, 4),
        "lines": {"ours": (3, 6, 12), "a $": (1, 1, 1)},
    },
    {"title": "Memory", "across": "size n", "up": "bytes", "x": (1, 2), "lines": {"ours": (8, 1_000_000)}},
]


def test_every_line_is_drawn_with_its_name_and_units():
    figure = draw_counts(PANELS)
    first, second = figure.axes
    assert [line.get_label() for line in first.lines] == ["ours", r"a \$"]
    np.testing.assert_array_equal(first.lines[0].get_xydata(), [[1, 3], [2, 6], [4, 12]])
    assert (first.get_title(), first.get_xlabel(), second.get_ylabel()) == ("Time", "size n", "bytes")
    assert first.get_ylim()[0] == first.get_xlim()[0] == 0
    assert first.get_ylim()[1] > 12
    assert second.yaxis.get_major_formatter()(1_000_000, 0) == "1,000,000"
    assert first.get_xticks().tolist() == [0, 1, 2, 4]


def test_the_figure_is_written(tmp_path):
    assert counts_figure(PANELS, tmp_path / "counts.png").read_bytes()[:4] == b"\x89PNG"
    with pytest.raises(InputError, match="file type"):
        counts_figure(PANELS, tmp_path / "counts.jpg")
