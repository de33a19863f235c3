import json
import re
from html import escape

import pytest
from synthetic_evaluation import document, evaluation, image_copy, image_evaluation

from hcdc import Evaluation, InputError, report
from hcdc.reporting import COLUMNS, summary_table, write_report

pytest.importorskip("matplotlib")


def test_the_page_is_self_contained_and_tells_all(tmp_path):
    evaluations = [
        evaluation("random"),
        evaluation("gcond", proxy_seconds_per_candidate=0.5, break_even_trials=None),
        evaluation("hcdc", preset="demo"),
    ]
    page = write_report(evaluations, tmp_path / "report.html").read_text()
    assert not re.search(r"""(src|href|url)\s*[=(]\s*["']?(https?:|//|file:)""", page)
    assert "<script" not in page
    assert page.count('src="data:image/svg+xml;base64,') == 4
    assert "prefers-color-scheme: dark" in page
    assert "Shortened runs (preset 'demo'): hcdc." in page
    assert "Does not pay off" in page
    assert "cpu (2 threads)" in page
    assert "citeseer-embedded" in page
    for row in summary_table(evaluations):
        for column in COLUMNS:
            assert column.cell(row).replace("<", "&lt;") in page


def test_the_page_answers_first_which_configuration_to_take(tmp_path):
    e = evaluation("hcdc")
    page = report(e, tmp_path / "report.html").read_text()
    said = [
        f"<pre>{escape(json.dumps(e.pick.config))}</pre>",
        "in full-data validation, rank",
        "Ranks 40 candidates with Spearman",
        "Pays off from 172 trials on",
    ]
    places = [page.index(text) for text in said]
    assert places == sorted(places)
    assert places[-1] < page.index("Other findings")
    assert page.count("Pays off from") == 1


def test_every_text_is_escaped(tmp_path):
    bad = '<img src=x onerror="alert(1)">'
    e = document("hcdc")
    e |= {"dataset": bad, "method": bad, "environment": {bad: bad}, "note": bad, "space": {bad: bad}}
    e["configs"] = [{bad: bad}] * len(e["truth"])
    e["rivals"][0] = {**e["rivals"][0], "name": bad, "description": bad, "note": bad}
    page = write_report([Evaluation.from_json(e)], tmp_path / "report.html", title=bad).read_text()
    assert "<img src=x" not in page
    assert 'onerror="' not in page


def test_groups_that_cannot_be_compared_get_figures_of_their_own(tmp_path):
    other = evaluation("hcdc", dataset="cora", truth=[0.5 + v / 10 for v in evaluation().truth])
    page = write_report([evaluation("hcdc"), other], tmp_path / "report.html").read_text()
    assert page.count('src="data:image/svg+xml;base64,') == 8


def test_no_evaluation_and_no_place_are_refused(tmp_path):
    with pytest.raises(InputError, match="at least one evaluation"):
        write_report([], tmp_path / "report.html")
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="cannot be written"):
        write_report([evaluation()], tmp_path / "file" / "report.html")


def test_copies_that_hold_images_show_them(tmp_path):
    (small, start), (real, _) = image_copy(), image_copy(val=False, method="dm", train_method="dm")
    evaluations = [image_evaluation(small), image_evaluation(real)]
    page = write_report(evaluations, tmp_path / "r.html", copies=[small, real], before=[start, None])
    page = page.read_text()
    assert page.count('src="data:image/svg+xml;base64,') == 6
    assert "Images of the copies" in page
    assert "hcdc: images of S_val, one row per class" in page
    assert "dm: images of S_train, one row per class" in page
    assert page.count("mean absolute change per pixel: 0.25 standard deviations") == 2  # alt and caption
    assert "in one method&#x27;s order, from worst to best" in page  # the paper's figure


@pytest.mark.parametrize(
    ("train_method", "val_method", "shown"),
    [
        ("random", "random", ["S_val"]),
        ("kcenter", "weighted", ["S_val"]),
        ("dm", "random", ["S_train"]),
        ("dm", "probes", ["S_train", "S_val"]),
    ],
)
def test_learned_sets_are_shown_and_random_ones_where_nothing_is_learned(
    train_method, val_method, shown, tmp_path
):
    small, start = image_copy(train_method=train_method, val_method=val_method)
    given = {"copies": [small], "before": [start]}
    page = write_report([image_evaluation(small)], tmp_path / "r.html", **given).read_text()
    found = [part for part in ("S_train", "S_val") if f"hcdc: images of {part}, one row per class" in page]
    assert found == shown
    assert ("mean absolute change" in page) == ("S_val" in shown)  # the start is that of S_val


def test_a_page_without_images_has_no_word_of_them(tmp_path):
    page = write_report([evaluation()], tmp_path / "r.html").read_text()
    assert "mages" not in page


def test_class_names_are_escaped(tmp_path):
    bad = "<img src=x>"
    small, _ = image_copy()
    names = {**small.meta["data"], "name": bad, "class_names": [bad] * 3}
    small, _ = image_copy(data=names)
    page = write_report([image_evaluation(small)], tmp_path / "r.html", copies=[small]).read_text()
    assert "<img src=x" not in page


def test_copies_without_an_evaluation_and_uneven_starts_are_refused(tmp_path):
    small, start = image_copy()
    with pytest.raises(InputError, match="none of the evaluations judges the copy of 'shapes'"):
        write_report([evaluation()], tmp_path / "r.html", copies=[small])
    with pytest.raises(InputError, match="before has 2 entries for 1 copies"):
        write_report([image_evaluation(small)], tmp_path / "r.html", copies=[small], before=[start, start])
    assert not (tmp_path / "r.html").exists()
