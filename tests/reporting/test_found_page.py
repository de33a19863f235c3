"""What a search found, in words and as a page."""

import dataclasses
import hashlib
import json
import re
import shutil
import subprocess
from html import escape
from itertools import combinations
from pathlib import Path

import pytest

import hcdc
from hcdc import InputError, report
from hcdc.core.found import Found, RungReport
from hcdc.core.planned import RungPlan, SearchPlan
from hcdc.core.told import found_lines
from hcdc.core.trusted import Cut, DimensionTrust, Estimate, Trust
from hcdc.reporting import random_curve, read_found, rung_cells, write_search_report
from hcdc.reporting._found_figures import draw_ladder

pytest.importorskip("matplotlib")

GOLDEN = Path(__file__).parents[1] / "golden" / "format1"
CONFIG = {"lr": 0.0123, "width": 64}
FOUND = Found(
    best=CONFIG,
    score=0.7162,
    interval=(0.7085, 0.7239),
    finalists=[{"config": CONFIG, "scores": [0.731, 0.712, 0.7162]}],
    parts={"test": 0.7121},
    seconds=1789.0,
    budget=1800.0,
    full_trainings=27,
    rungs=[
        RungReport(name="copy", candidates=812, failed=3, seconds=220.0, price=0.26, audits=16, spearman=0.11,
                   interval=(-0.33, 0.51), pays=False, note="did not earn its seconds", once=20.0,
                   trust=Trust(spearman=0.11, interval=(-0.33, 0.51), against="short:0.1", probes=16,
                               dimensions=[DimensionTrust(name="width", tau=0.9, interval=(0.2, 1.0)),
                                           DimensionTrust(name="lr", tau=-0.6, interval=(-0.9, 0.1),
                                                          importance=0.42, verdict="keep open")])),
        RungReport(name="short:0.1", candidates=120, seconds=410.0, price=3.4, audits=6, spearman=0.88,
                   interval=(0.5, 0.98), pays=True, audit_seconds=54.0,
                   trust=Trust(spearman=0.88, interval=(0.5, 0.98), verdict="keep open", probes=6,
                               dimensions=[DimensionTrust(name="lr", tau=0.8, interval=(-0.5, 1.0))])),
        RungReport(name="full", candidates=24, seconds=1020.0, price=38.0, audit_seconds=228.0),
    ],
    curve=[(150.0, 0.69), (420.0, 0.702), (1300.0, 0.731)],
    uniform=[(38.0, score) for score in (0.61, 0.69, None, 0.66, 0.55, 0.702, 0.64)],
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
        "0.7162 (90 % interval 0.7085 to 0.7239), from a fresh full training, test 0.7121"
    )
    assert told["verdict"].startswith("use it: ")
    assert "'short:0.1' agrees with 'full' (rank correlation 0.88, 0.50 to 0.98)" in told["verdict"]
    assert "'copy'" not in told["verdict"]
    assert "training all 812 candidates in full would take 30,856 s (8.6 h), " in told["cost"]
    assert "17.2 times as long" in told["cost"]
    warned = [text for label, text in found_lines(FOUND) if label == "warning"]
    assert warned == [
        "something to know",
        "'copy' and 'short:0.1' disagree on 'lr': do not choose by 'copy' there",
    ]


def test_what_the_verdict_says_is_no_warning_too():
    same = dataclasses.replace(FOUND, finalists=[{"config": CONFIG, "scores": [0.7162] * 3}])
    assert same.flattered
    twice = dataclasses.replace(same, warnings=["something to know", same.flattered])
    assert [text for label, text in found_lines(twice) if label == "warning"][:1] == ["something to know"]
    assert str(twice).count(same.flattered) == 1


def test_a_verdict_names_what_is_missing():
    assert lines(score=None)["verdict"].startswith("do not rely on it yet")
    assert lines(best=None)["verdict"] == "do not use it"
    few = [dataclasses.replace(FOUND.rungs[-1], candidates=1)]
    assert "only candidate that was trained in full" in lines(rungs=few)["verdict"]
    shaky = [dataclasses.replace(FOUND.rungs[0], pays=True, note=""), *FOUND.rungs[1:]]
    verdict = lines(rungs=shaky)["verdict"]
    assert "'copy' may have left out better candidates" in verdict
    assert "is uncertain (rank correlation 0.11" in verdict
    poor = lines(parts={"test": 0.7048})["verdict"]
    assert poor.startswith("do not expect its score: the test score 0.7048 lies below the interval of the")
    same = [{"config": CONFIG, "scores": [0.7162] * 3}, {"config": {}, "scores": [0.71, 0.71]}]
    assert "use it with care: seeds do not matter here" in lines(finalists=same)["verdict"]
    assert "too high on average; believe the test score" in lines(finalists=same)["verdict"]
    assert "too high on average; keep a test part" in lines(finalists=same, parts={})["verdict"]
    unproven = [dataclasses.replace(FOUND.rungs[0], note=""), FOUND.rungs[-1]]
    assert lines(rungs=unproven)["verdict"].endswith("so better candidates may have been left out")


def test_a_verdict_speaks_of_every_stand_in_that_left_somebody_out_and_of_no_other():
    copy, short, full = FOUND.rungs
    sure = dataclasses.replace(copy, pays=True, note="", interval=(0.5, 0.9))
    few = dataclasses.replace(short, pays=False, spearman=0.8, interval=(-1.0, 1.0))
    verdict = lines(rungs=[sure, few, full])["verdict"]
    assert "'copy' agrees with 'short:0.1'" in verdict
    assert verdict.endswith("its agreement with 'full' is unknown, because of too few audits")
    unmeasured = dataclasses.replace(short, pays=False, spearman=None, interval=(None, None), trust=None)
    assert "better candidates may have been left out" in lines(rungs=[unmeasured, full])["verdict"]
    dropped = [dataclasses.replace(rung, pays=False, note="saves too little") for rung in (copy, short)]
    assert "left out" not in lines(rungs=[*dropped, full])["verdict"]
    everybody = dataclasses.replace(full, candidates=120)
    assert "left out" not in lines(rungs=[unmeasured, everybody])["verdict"]


def test_a_rung_that_is_kept_is_not_said_to_agree(tmp_path):
    """Its audits may show nothing while the slope of all its pairs is above zero."""
    copy, short, full = FOUND.rungs
    kept = dataclasses.replace(copy, pays=True, note="")
    dropped = dataclasses.replace(short, pays=False, note="not worth its cost")
    trial = dataclasses.replace(short, pays=False)
    words = [rung_cells(rung)[-1] for rung in (kept, dropped, trial, full)]
    higher = "higher scores here went with higher scores on the next rung"
    doubtful = f"kept on trial: not shown that {higher}"
    assert words == [f"kept: {higher}", "dropped: not worth its cost", doubtful, ""]
    verdict = lines(rungs=[kept, full])["verdict"]
    assert "No audit shows that a stand-in agrees with the next rung, so better candidates may" in verdict
    page = report(dataclasses.replace(FOUND, rungs=[kept, short, full]), tmp_path / "kept.html").read_text()
    assert "Ranking judges the order of a rung by its audits alone; result says whether the search" in page
    assert "<td>pays" not in page


def test_pruned_candidates_are_shown_apart():
    shown = [
        rung_cells(RungReport(name="full", candidates=9, failed=failed, pruned=pruned))[2]
        for failed, pruned in ((0, 0), (3, 0), (2, 2), (5, 2))
    ]
    assert shown == ["-", "3", "2 pruned", "3, 2 pruned"]


def test_a_copy_alone_has_neither_score_nor_saving():
    told = lines(score=None, interval=(None, None), full_trainings=0, rungs=FOUND.rungs[:1])
    assert told["score"] == "none: no fresh full training was made"
    cost = "1,789 s for 812 candidates on the copy"
    assert told["cost"] == f"{cost}, 1,569 s of it starting and deciding"
    copy = dataclasses.replace(FOUND.rungs[0], seconds=1789.0)
    assert lines(score=None, full_trainings=0, rungs=[copy])["cost"] == cost
    few = lines(score=None, full_trainings=0, rungs=FOUND.rungs[1:])
    assert few["cost"] == "1,789 s for 120 candidates on 'short:0.1', 359 s of it starting and deciding"


def test_results_print_their_conclusions():
    assert [line.split("  ")[0] for line in str(FOUND).splitlines()] == [
        "use", "score", "verdict", "cost", "warning", "warning",
    ]  # fmt: skip
    plan = SearchPlan(budget=60.0, rungs=[RungPlan(name="full", price=2.0, candidates=9)], why="so it is")
    assert str(plan).splitlines()[0] == "rung full  9 candidates of 2 s: 18 s"
    assert str(plan).splitlines()[-1] == "verdict    do not search with a ladder here: so it is"
    trust = FOUND.trust["copy"]
    assert str(trust).splitlines()[0].split("  ")[0] == "verdict"
    assert "dimension lr" in str(trust)
    assert "Trust(spearman=" in repr(trust)


def test_the_page_says_what_a_cut_keeps(tmp_path):
    assert "What a cut keeps" not in report(FOUND, tmp_path / "none.html").read_text()
    recall = Estimate(value=0.75, interval=(0.31, 0.96), probes=4)
    first = Cut(recall=recall, regret=Estimate(value=0.012, interval=(0.0, 0.05), probes=16), kept=2, of=8)
    again = Cut(recall=recall, kept=1, of=1)  # too few audits for a regret
    trust = dataclasses.replace(FOUND.rungs[0].trust, k=0.25, at_k=first, survivors_at_k=again)
    rungs = [dataclasses.replace(FOUND.rungs[0], trust=trust), *FOUND.rungs[1:]]
    page = report(dataclasses.replace(FOUND, rungs=rungs), tmp_path / "cuts.html").read_text()
    row = "".join(
        f"<td>{cell}</td>"
        for cell in (
            "25%", "0.75 (0.31 to 0.96)", "0.012 (0 to 0.05), 2 of 8 kept", "0.75 (0.31 to 0.96)", "-",
        )
    )  # fmt: skip
    assert f'<tr><th scope="row">copy against short:0.1</th>{row}</tr>' in page


def test_no_saving_is_claimed_where_there_is_none():
    assert "in full" not in lines(seconds=40000.0)["cost"]


def test_the_page_is_self_contained_and_opens_with_the_answer(tmp_path):
    page = report(FOUND, tmp_path / "report.html").read_text()
    assert not re.search(r"""(src|href|url)\s*[=(]\s*["']?(https?:|//|file:)""", page)
    assert "<script" not in page
    assert page.count('src="data:image/svg+xml;base64,') == 3
    said = [
        f"<pre>{escape(json.dumps(CONFIG))}</pre>", "Expected full score", "Verdict", "Time spent and saved",
        "Something to know", "The ladder", "did not earn",
        "How far &#x27;copy&#x27; agrees with full trainings was not measured",
        "139 s the search itself; of these, audits took 282 s and making copies and first trials 20 s",
        "best-so-far", "estimate from the 7 full trainings", 'id="agreement"', "Agreement by dimension",
        "&#x27;copy&#x27; against &#x27;short:0.1&#x27;, 16 audits", "-0.60 [-0.90, 0.10]", "42 %",
        "&#x27;short:0.1&#x27; against &#x27;full&#x27;, 6 audits: too few to tell", "cpu (2 threads)",
    ]  # fmt: skip
    places = [page.index(text) for text in said]
    assert places == sorted(places)


def test_an_interval_that_says_nothing_is_not_shown_as_agreement(tmp_path):
    """Two audits that happen to agree."""
    few = dataclasses.replace(FOUND.rungs[1], spearman=1.0, interval=(-1.0, 1.0), audits=2, trust=None)
    page = report(dataclasses.replace(FOUND, rungs=[few, FOUND.rungs[-1]]), tmp_path / "few.html").read_text()
    assert "unknown, too few audits" in page
    assert "1.00 [-1.00, 1.00]" not in page
    assert page.count('src="data:image/svg+xml;base64,') == 2


def test_random_search_is_estimated_from_the_uniform_sample():
    """The mean best of all groups of k; the failed training counts as the worst of the others."""
    scores = [0.61, 0.69, 0.55, 0.66, 0.55, 0.702, 0.64]
    for k, (seconds, best) in enumerate(random_curve(FOUND), 1):
        groups = list(combinations(scores, k))
        assert seconds == pytest.approx(38.0 * k)
        assert best == pytest.approx(sum(map(max, groups)) / len(groups))
    assert k == 7
    assert random_curve(dataclasses.replace(FOUND, uniform=FOUND.uniform[:6])) == []


def with_copy(file, **changes):
    first = dataclasses.replace(FOUND.rungs[0], file=str(file))
    return dataclasses.replace(FOUND, rungs=[first, *FOUND.rungs[1:]], **changes)


def test_a_quick_search_of_a_copy_is_not_said_to_take_no_time(tmp_path):
    copy = RungReport(name="copy", candidates=5, seconds=0.2)
    quick = dataclasses.replace(
        FOUND, rungs=[copy], seconds=0.2, budget=None, curve=[], uniform=[], finalists=[], score=None
    )
    (axes,) = draw_ladder(quick).axes
    assert [text.get_text() for text in axes.texts] == [" 5 in 0.2 s"]
    assert all(tick == round(tick) for tick in axes.get_xticks())
    page = write_search_report(quick, tmp_path / "page.html").read_text()
    assert "searched for 1 s" in page


@pytest.mark.parametrize("name", ["image", "graph", "table"])
def test_the_page_shows_the_copy_that_the_search_used(tmp_path, name):
    small = hcdc.CondensedDataset.load(GOLDEN / f"{name}.hcdc")
    assert small.file == str(GOLDEN / f"{name}.hcdc")
    found = with_copy(small.file, spec={"copies": [small.meta]})
    page = report(found, tmp_path / "report.html").read_text()
    assert ("What the copies look like" in page) == (name != "table")
    assert page.count("<img") == 3 + (name != "table")
    gone = with_copy(tmp_path / "gone" / f"{name}.hcdc", spec=found.spec)
    assert "What the copies" not in report(gone, tmp_path / "report.html").read_text()
    page = write_search_report(gone, tmp_path / "report.html", folder=GOLDEN).read_text()
    assert page.count("<img") == 3 + (name != "table")


def test_a_copy_that_changed_is_not_shown(tmp_path):
    small = hcdc.CondensedDataset.load(GOLDEN / "image.hcdc")
    sha = hashlib.sha256(small.to_bytes()).hexdigest()[:32]
    for spec, shown in (
        ({"copies": {"copy": sha}}, True),
        ({"copies": {"copy": "0" * 32}}, False),
        ({}, False),
    ):
        page = report(with_copy(small.file, spec=spec), tmp_path / "report.html").read_text()
        assert ("What the copies look like" in page) == shown


def test_a_search_without_curve_or_stand_ins_has_a_page(tmp_path):
    bare = Found(best={"x": 1}, rungs=[RungReport(name="copy", candidates=3, seconds=1.0, price=0.3)])
    assert report(bare, tmp_path / "bare.html").read_text().count("<img") == 1


def test_every_text_is_escaped(tmp_path):
    bad = '<img src=x onerror="alert(1)">'
    trust = Trust(
        spearman=0.1, against=bad, verdict=bad, dimensions=[DimensionTrust(name=bad, tau=0.1, verdict=bad)]
    )
    first = dataclasses.replace(FOUND.rungs[0], name=f"{bad}copy", note=bad, file=bad, trust=trust)
    found = dataclasses.replace(
        FOUND, best={bad: bad}, finalists=[{"config": {bad: bad}, "scores": [1.0]}], warnings=[bad],
        spec={"data": {"name": bad}}, environment={bad: bad}, rungs=[first, FOUND.rungs[-1]],
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
