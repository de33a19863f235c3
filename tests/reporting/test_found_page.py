"""What a search found, in words and as a page."""

import dataclasses
import json
import re
import shutil
import subprocess
from html import escape

import pytest

from hcdc import InputError, report
from hcdc.core.found import Found, RungReport
from hcdc.reporting import found_lines, read_found

pytest.importorskip("matplotlib")

CONFIG = {"lr": 0.0123, "width": 64}
FOUND = Found(
    best=CONFIG,
    score=0.7162,
    interval=(0.7085, 0.7239),
    finalists=[{"config": CONFIG, "scores": [0.731, 0.712, 0.7162]}],
    parts={"test": 0.7048},
    seconds=1789.0,
    budget=1800.0,
    full_trainings=27,
    rungs=[
        RungReport(name="copy", candidates=812, failed=3, seconds=220.0, price=0.26, audits=16, spearman=0.11,
                   interval=(-0.33, 0.51), pays=False, note="did not earn its seconds"),
        RungReport(name="short:0.1", candidates=120, seconds=410.0, price=3.4, audits=6, spearman=0.88,
                   interval=(0.5, 0.98), pays=True),
        RungReport(name="full", candidates=24, seconds=1020.0, price=38.0),
    ],
    curve=[(150.0, 0.69), (420.0, 0.702), (1300.0, 0.731)],
    warnings=["something to know"],
    spec={"data": {"name": "citeseer"}},
    environment={"device": "cpu (2 threads)"},
)  # fmt: skip


def lines(**changes):
    return dict(found_lines(dataclasses.replace(FOUND, **changes)))


def test_the_first_box_says_what_to_use_how_sure_and_what_it_cost():
    told = lines()
    assert json.loads(told["use"]) == CONFIG
    assert told["score"] == (
        "0.7162 (90 % interval 0.7085 to 0.7239), from a fresh full training, test 0.7048"
    )
    assert told["verdict"].startswith("use it: ")
    assert "'short:0.1' ranked candidates like the next rung" in told["verdict"]
    assert "'copy'" not in told["verdict"]
    assert "all 812 candidates that were tried would take 30,856 s (8.6 h) in full" in told["cost"]
    assert "17.2 times as long" in told["cost"]
    assert told["warning"] == "something to know"


def test_a_verdict_names_what_is_missing():
    assert lines(score=None)["verdict"].startswith("do not rely on it yet")
    assert lines(best=None)["verdict"] == "do not use it"
    few = [dataclasses.replace(FOUND.rungs[-1], candidates=1)]
    assert "only candidate that was trained in full" in lines(rungs=few)["verdict"]
    unproven = [FOUND.rungs[0], FOUND.rungs[-1]]
    assert "no stand-in was shown to rank like the next rung" in lines(rungs=unproven)["verdict"]


def test_a_copy_alone_has_neither_score_nor_saving():
    told = lines(score=None, interval=(None, None), full_trainings=0, rungs=FOUND.rungs[:1])
    assert told["score"] == "none: no fresh full training was made"
    assert told["cost"] == "1,789 s for 812 candidates on the copy"


def test_no_saving_is_claimed_where_there_is_none():
    assert "in full" not in lines(seconds=40000.0)["cost"]


def test_the_page_is_self_contained_and_opens_with_the_answer(tmp_path):
    page = report(FOUND, tmp_path / "report.html").read_text()
    assert not re.search(r"""(src|href|url)\s*[=(]\s*["']?(https?:|//|file:)""", page)
    assert "<script" not in page
    assert page.count('src="data:image/svg+xml;base64,') == 3
    said = [
        f"<pre>{escape(json.dumps(CONFIG))}</pre>", "Expected full score", "Verdict", "Time spent and saved",
        "Something to know", "The ladder", "did not earn", "best-so-far", 'id="agreement"', "cpu (2 threads)",
    ]  # fmt: skip
    places = [page.index(text) for text in said]
    assert places == sorted(places)


def test_a_search_without_curve_or_stand_ins_has_a_page(tmp_path):
    bare = Found(best={"x": 1}, rungs=[RungReport(name="copy", candidates=3, seconds=1.0, price=0.3)])
    assert report(bare, tmp_path / "bare.html").read_text().count("<img") == 1


def test_every_text_is_escaped(tmp_path):
    bad = '<img src=x onerror="alert(1)">'
    found = dataclasses.replace(
        FOUND, best={bad: bad}, finalists=[{"config": {bad: bad}, "scores": [1.0]}], warnings=[bad],
        spec={"data": {"name": bad}}, environment={bad: bad},
        rungs=[dataclasses.replace(rung, name=f"{bad}{rung.name}", note=bad) for rung in FOUND.rungs[:1]]
        + [FOUND.rungs[-1]],
    )  # fmt: skip
    page = report(found, tmp_path / "report.html").read_text()
    assert "<img src=x" not in page
    assert 'onerror="' not in page


def test_what_a_search_wrote_is_read_back(tmp_path):
    path = tmp_path / "r.json"
    path.write_text(json.dumps(FOUND.to_json()))
    assert read_found(path).to_json() == FOUND.to_json()
    path.write_text(json.dumps({**FOUND.to_json(), "rungs": [{"candidates": 3}]}))
    with pytest.raises(InputError, match="is damaged"):
        read_found(path)
    path.write_text("{}")
    assert read_found(path) is None
    assert read_found(tmp_path / "none.json") is None


@pytest.mark.skipif(shutil.which("chromium") is None, reason="needs Chromium")
def test_chromium_shows_the_page(tmp_path):
    page = report(FOUND, tmp_path / "report.html")
    done = subprocess.run(
        ["chromium", "--headless", "--no-sandbox", "--disable-gpu", "--window-size=1100,1900",
         f"--screenshot={tmp_path / 'page.png'}", f"--user-data-dir={tmp_path / 'profile'}", page.as_uri()],
        capture_output=True, timeout=60,
    )  # fmt: skip
    assert done.returncode == 0
    assert (tmp_path / "page.png").stat().st_size > 30_000
