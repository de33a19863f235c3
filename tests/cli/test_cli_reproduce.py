"""``hcdc reproduce``: the table, the last line, refusals, the list."""

import json
import os
import subprocess
import sys

import pytest
from command_line import assert_refused, files, hcdc_run

from hcdc.core import records


@pytest.fixture(autouse=True)
def _here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HCDC_DATA", str(tmp_path / "nothing"))


def test_a_result_is_printed_beside_the_published_one(tmp_path, capsys):
    given = ("--scale", "smoke", "--set", "methods=gcondx", "--device", "cpu")
    code, out, err = hcdc_run(capsys, "reproduce", "gcn-accuracy", *given, "--json", "found.json")
    assert code == 0, err
    *_, row, last = out.splitlines()
    assert "published" in out.splitlines()[0]
    assert row.startswith("embedded:12  GCond-X")
    assert last == "gcn-accuracy.jsonl has 1 of 1 units; next: hcdc reproduce --list"
    (record,) = records.read("gcn-accuracy.jsonl")
    assert record["unit"]["seed"] == 100
    told = json.loads((tmp_path / "found.json").read_text())
    assert (told["name"], told["scale"], told["records"]) == ("gcn-accuracy", "smoke", "gcn-accuracy.jsonl")
    assert [len(row) for row in told["rows"]] == [len(told["head"])]
    half = hcdc_run(capsys, "reproduce", "gcn-accuracy", *given, "--seeds", "0:2", "--shard", "0/2")[1]
    assert half.splitlines()[-1] == (
        "gcn-accuracy.jsonl has 1 of 2 units; next: hcdc reproduce gcn-accuracy --scale smoke --set "
        "methods=gcondx --device cpu --seeds 0:2, for the rest"
    )
    assert sum(1 for _ in records.read("gcn-accuracy.jsonl")) == 2


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (["graph-rank"], "result 'graph-rank' is not known; did you mean 'graphs-rank'?"),
        ([], "Missing the name of a result; 'hcdc reproduce --list' shows them"),
        (["filters-80", "--scale", "smal"], "did you mean 'small'?"),
        (["filters-80", "--seeds", "none"], "--seeds none: give a number"),
        (["filters-80", "--shard", "2/2"], "--shard 2/2: give I/N"),
        (["filters-80", "--set", "candidate=3"], "did you mean 'candidates'?"),
        (["filters-80", "--set", "foo=1"], "candidates, full_recipe, graphs,"),
        (["filters-80", "--set", "full_recipe=steps=5"], "as --set full_recipe.steps=100"),
        (["filters-80", "--set", "options=3"], "--set options=3: set one of its settings, as --set options."),
        (["filters-80", "--set", "candidates.x=3"], "--set candidates: this is one value"),
        (
            ["graph-nas-curve", "--set", "full_recipe.steps=5"],
            "'full_recipe' is not known; did you mean 'recipe'",
        ),
        (["loss-landscape", "--set", "recipe.steps=5"], "'recipe' is not known; choose one of: points"),
        (["graphs-rank", "--set", "graphs=ogbn-arxiv:20"], "ogbn-arxiv: "),
        (["nas", "--set", "searchers=reinforce"], "--set nas201=FILE"),
        (["images-rank"], "cifar10"),
        (["filters-80", "--out", "no/where.jsonl"], "--out no/where.jsonl: the folder"),
    ],
)
def test_what_cannot_be_is_one_sentence(given, said, tmp_path, capsys):
    before = files(tmp_path)
    assert_refused(tmp_path, before, *hcdc_run(capsys, "reproduce", *given, "--quiet"), said)


def test_the_list(tmp_path, capsys):
    (tmp_path / "records").mkdir()
    (tmp_path / "records" / "filters-80.jsonl").write_text('{"protocol": "filters-80"}\n')
    lines = [{"protocol": "cross-validation", "unit": {"seed": seed}} for seed in (0, 0, 0, 1, 1, 1)]
    (tmp_path / "records" / "cross-validation.jsonl").write_text("\n".join(map(json.dumps, lines)) + "\n")
    code, out, _ = hcdc_run(capsys, "reproduce", "--list")
    assert code == 0
    assert "graphs-rank (tab:graphs): " in out
    assert "  smoke    3 units, " in out
    assert "  records  1 in records/filters-80.jsonl" in out
    assert "  records  6 of 2 units in records/cross-validation.jsonl" in out
    assert out.splitlines()[-1].endswith("results; next: hcdc reproduce NAME --scale smoke")
    code, out, _ = hcdc_run(capsys, "reproduce", "--list", "--json", "-")
    assert {"name", "label", "title", "scales", "records", "recorded_units"} == json.loads(out)[0].keys()


def test_the_help_says_which_seeds_count(capsys):
    _, out, _ = hcdc_run(capsys, "reproduce", "--help")
    assert "Ignored; use --seeds." in out
    assert "nothing here is random" not in out


def test_a_reader_that_has_gone_is_no_error():
    """As in ``hcdc reproduce --list | head -1``."""
    read, write = os.pipe()
    os.close(read)
    given = [sys.executable, "-m", "hcdc", "reproduce", "--list"]
    done = subprocess.run(given, stdout=write, stderr=subprocess.PIPE, text=True, timeout=120)
    os.close(write)
    assert done.returncode == 1
    assert done.stderr == ""
