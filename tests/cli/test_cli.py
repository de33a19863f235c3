"""The command: what it prints, writes and refuses. Everything runs on a graph of 120 nodes made here."""

import json
import subprocess
import sys

import numpy as np
import pytest
import torch
from command_line import assert_refused, files, hcdc_run
from scipy import sparse

import hcdc.cli
from hcdc import CondensedDataset, NumericalError, Recipe
from hcdc.cli._app import as_flags
from hcdc.condensers import Plan
from hcdc.core.records import version
from hcdc.reporting._evaluations import IDENTITY
from recipes import change_recipes

NODES, CLASSES = 120, 3


def graph_arrays():
    """A graph with three blocks in the gnn-benchmark layout."""
    rng = np.random.default_rng(0)
    y = np.arange(NODES) % CLASSES
    link = np.triu(rng.random((NODES, NODES)) < np.where(y[:, None] == y[None], 0.15, 0.02), 1)
    adj = sparse.csr_matrix((link | link.T).astype(np.float32))
    words = (rng.random((NODES, 9)) < np.where(np.arange(9)[None] % 3 == y[:, None], 0.6, 0.2)).astype(
        np.float32
    )
    words[:, 0] = 1.0
    return {
        "adj_data": adj.data,
        "adj_indices": adj.indices,
        "adj_indptr": adj.indptr,
        "adj_shape": np.asarray(adj.shape),
        "attr_matrix": words,
        "labels": y,
    }


@pytest.fixture(autouse=True)
def place(tmp_path, monkeypatch):
    """A folder of its own, with the graph in it and nothing from outside."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HCDC_CACHE", str(tmp_path / "cache"))
    np.savez(tmp_path / "graph.npz", **graph_arrays())
    return tmp_path


def condense(capsys, *arguments, out="a.hcdc", dataset="graph.npz", method="random", size=9):
    return hcdc_run(
        capsys, "condense", "--dataset", dataset, "--method", method, "--train-size", size, "--out", out,
        "--device", "cpu", *arguments,
    )  # fmt: skip


# --- the way through ----------------------------------------------------------------------------------------


@pytest.fixture
def short(monkeypatch):
    """Candidates train for 8 steps and not for 200."""
    change_recipes(monkeypatch, lambda **given: Recipe(**{"steps": 8, **given}))


@pytest.mark.usefixtures("short")
def test_from_a_graph_to_a_page(place, capsys):
    code, out, err = condense(capsys)
    assert code == 0, err
    for said in (
        "seeded stratified split, seed 0",
        "S_train 9, S_val",
        "full recipe",
        "calibrated recipe",
    ):
        assert said in out
    assert out.splitlines()[-1].startswith("wrote a.hcdc")
    assert out.splitlines()[-1].endswith("next: hcdc evaluate a.hcdc")
    assert files(place) == ["a.hcdc", "a.hcdc.json", "graph.npz"]
    record = json.loads((place / "a.hcdc.json").read_text())
    assert record["condense_seconds"] > 0
    assert record["environment"]["device"].startswith("cpu")

    code, out, err = hcdc_run(capsys, "inspect", "a.hcdc")
    assert code == 0, err
    assert "none beside the file" in out
    assert out.splitlines()[-1] == "nothing written; next: hcdc evaluate a.hcdc"

    code, out, err = hcdc_run(
        capsys,
        "evaluate",
        "a.hcdc",
        "--candidates",
        "6",
        "--seed",
        "3",
        "--json",
        "r.json",
        "--device",
        "cpu",
    )
    assert code == 0, err
    assert out.splitlines()[-1] == "wrote r.json; next: hcdc report r.json --out report.html"
    assert "random" in out
    assert "real-val" in out
    found = json.loads((place / "r.json").read_text())
    assert found["judge_seed"] == 3
    assert found["condense_seconds"] == record["condense_seconds"]
    assert len(found["truth"]) == len(found["proxy"]) == 6
    assert {rival["name"] for rival in found["rivals"]} >= {
        "random-val",
        "random-val-loss",
        "real-val",
        "real-val-loss",
    }

    code, out, err = hcdc_run(capsys, "inspect", "a.hcdc")
    assert code == 0, err
    assert "r.json" in out
    assert "whether it pays" in out
    assert "validation choice" in out
    assert out.splitlines()[-1] == "nothing written; next: hcdc report r.json --out report.html"

    (place / "my copies").mkdir()
    for name in ("a.hcdc", "r.json"):
        (place / "my copies" / name).write_bytes((place / name).read_bytes())
    out = hcdc_run(capsys, "inspect", "my copies/a.hcdc")[1]
    assert out.splitlines()[-1].endswith("next: hcdc report 'my copies/r.json' --out report.html")

    pytest.importorskip("matplotlib")
    code, out, err = hcdc_run(capsys, "report", "r.json", "--out", "page.html", "--json", "table.json")
    assert code == 0, err
    assert out.splitlines()[-1] == "wrote page.html; next: open page.html in a browser"
    assert "<table>" in (place / "page.html").read_text()
    assert json.loads((place / "table.json").read_text())["table"][0]["name"] == "random"


def test_a_table_brings_its_own_space(place, capsys):
    rng = np.random.default_rng(0)
    lines = [f"{a:.3f},{b:.3f},{'yes' if a + b > 0 else 'no'}" for a, b in rng.standard_normal((60, 2))]
    (place / "t.csv").write_text("\n".join(["a,b,label", *lines]))
    pytest.importorskip("pandas")
    code, _, err = condense(capsys, "--target", "label", dataset="t.csv")
    assert code == 0, err
    code, _, err = condense(capsys, "--target", "label", "--space", "gnn-zoo", dataset="t.csv", out="b.hcdc")
    assert (code, err.count("\n")) == (2, 1)
    assert "--space gnn-zoo" in err
    code, _, err = condense(capsys, "--target", "label", dataset="t.csv", out="b.hcdc", method="gcond")
    assert (code, err.count("\n")) == (2, 1)
    assert "method 'gcond' condenses graphs, but 't' has tables" in err
    assert CondensedDataset.load(place / "a.hcdc").kind == "table"


def test_equal_commands_give_equal_files_and_other_seeds_do_not(place, capsys):
    for name, seed in (("a", 5), ("b", 5), ("c", 6)):
        assert condense(capsys, "--seed", seed, "--quiet", out=f"{name}.hcdc")[0] == 0
    a, b, c = ((place / f"{name}.hcdc").read_bytes() for name in "abc")
    assert a == b
    assert a != c


def test_the_same_command_leaves_the_file_alone_and_another_is_refused(place, capsys):
    condense(capsys)
    before = (place / "a.hcdc").read_bytes()
    code, out, _ = condense(capsys)
    assert code == 0
    assert "made by this command" in out
    code, _, _ = condense(capsys, "--json", "told.json")
    assert (place / "told.json").read_text() == (place / "a.hcdc.json").read_text()
    (place / "a.hcdc.json").rename(place / "away")
    code, _, err = condense(capsys, "--json", "told.json")
    assert code == 2
    assert "the record a.hcdc.json is missing; --force makes it again" in err
    (place / "away").rename(place / "a.hcdc.json")
    code, _, err = condense(capsys, "--seed", "1")
    assert code == 2
    assert "--force" in err
    assert (place / "a.hcdc").read_bytes() == before
    assert condense(capsys, "--seed", "1", "--force")[0] == 0
    assert (place / "a.hcdc").read_bytes() != before
    (place / "notes.txt").write_text("mine")
    code, _, err = condense(capsys, out="notes.txt")
    assert code == 2
    assert "--force" in err
    assert (place / "notes.txt").read_text() == "mine"


def test_settings_reach_the_method(place, capsys):
    code, _, err = condense(
        capsys,
        "--set",
        "epochs=2",
        "--set",
        "outer=2",
        "--set",
        "lr-feat=1e-3",
        "--val-method",
        "real",
        method="gcond",
    )
    assert code == 0, err
    meta = CondensedDataset.load(place / "a.hcdc").meta
    assert meta["settings"]["train"]["epochs"] == 2
    assert meta["settings"]["train"]["lr_feat"] == 1e-3
    assert meta["val_method"] == "real"


def test_json_on_standard_output_is_json_alone(place, capsys):
    condense(capsys)
    code, out, err = hcdc_run(capsys, "inspect", "a.hcdc", "--json", "-")
    assert code == 0
    assert json.loads(out)["meta"]["method"] == "random"
    assert "next: hcdc evaluate" in err


@pytest.mark.parametrize("flag", ["--seed", "--split-seed"])
def test_a_seed_below_0_is_refused(place, capsys, flag):
    before = files(place)
    assert_refused(place, before, *condense(capsys, flag, "-1"), f"invalid value for '{flag}'")


def test_a_record_of_another_file_is_not_believed(place, capsys):
    condense(capsys)
    condense(capsys, "--seed", "1", out="b.hcdc")
    (place / "b.hcdc.json").write_bytes((place / "a.hcdc.json").read_bytes())
    assert "made in" in hcdc_run(capsys, "inspect", "a.hcdc")[1]
    assert "made in" not in hcdc_run(capsys, "inspect", "b.hcdc")[1]


@pytest.mark.parametrize("spearman", [0.5, None])
def test_what_has_no_ranking_is_not_said_to_pay(place, capsys, spearman):
    condense(capsys)
    meta = CondensedDataset.load(place / "a.hcdc").meta
    judged = {key: meta[key] for key in IDENTITY if key != "dataset"}
    judged |= {"dataset": meta["data"]["name"], "candidates": 2, "truth": [0.1, 0.2], "proxy": [1.0, 2.0]}
    judged |= {"spearman": spearman, "interval": [0.3, 0.7], "rivals": [], "condense_seconds": 60.0}
    judged |= {"proxy_seconds_per_candidate": 0.1, "full_seconds_per_candidate": 0.4}
    (place / "r.json").write_text(json.dumps({**judged, "break_even_trials": 200}))
    code, out, err = hcdc_run(capsys, "inspect", "a.hcdc")
    assert code == 0, err
    assert ("pays off from 200 trials on" in out) == ("pays" in out) == (spearman is not None)
    assert ("r.json: not defined" in out) == (spearman is None)


def test_nothing_in_a_file_steers_the_terminal_or_is_imported(place, capsys):
    condense(capsys)
    small = CondensedDataset.load(place / "a.hcdc")
    meta = {**small.meta, "method": "\x1b[2Jhcdc\n[red]", "task": {"name": "antigravity:fly"}}
    CondensedDataset(small.train, small.val, meta).save(place / "b.hcdc")
    code, out, _ = hcdc_run(capsys, "inspect", "b.hcdc")
    assert code == 0
    assert "\x1b" not in out
    assert "?[2Jhcdc?[red]" in out
    assert "antigravity" not in sys.modules


# --- refusals: one sentence, exit code 2, nothing written ---------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "arguments", "said"),
    [
        ({"dataset": "coraa"}, [], "did you mean 'cora'?"),
        ({"dataset": "missing.npz"}, [], "does not exist"),
        ({"method": "hcdcc"}, [], "did you mean 'hcdc'?"),
        ({}, ["--train-method", "gcon"], "--train-method 'gcon' is not known"),
        ({}, ["--val-method", "reel"], "--val-method 'reel' is not known"),
        ({}, ["--val-method", "aligned"], "--val-method 'aligned' learns S_val"),
        ({}, ["--preset", "dem"], "did you mean 'demo'?"),
        ({"method": "gcond"}, ["--set", "epoch=3"], "did you mean 'epochs'?"),
        ({"method": "gcond"}, ["--set", "epochs"], "key=value"),
        ({"method": "gcond"}, ["--set", "epochs=many"], "epochs"),
        ({}, ["--space", "gnn-zo"], "did you mean 'gnn-zoo'?"),
        ({}, ["--setting", "inductiv"], "did you mean 'inductive'?"),
        ({}, ["--target", "label"], "not a table; leave it out"),
        ({}, ["--device", "gpu"], "--device 'gpu' is not known"),
        ({}, ["--device", "cpu:1"], "--device 'cpu:1' is not known"),
        ({"size": 2}, [], "--train-size 2: there are 3 classes"),
        ({"size": 0}, [], "--train-size 0"),
        ({"size": 61}, [], "--train-size 61: the original has only 60"),
        ({}, ["--val-size", "2"], "--val-size 2: there are 3 classes"),
        ({}, ["--val-size", "61"], "--val-size 61"),
        ({"out": "no/such/folder/a.hcdc"}, [], "does not exist"),
        ({"out": "."}, [], "is a folder"),
        ({}, ["--json", "no/r.json"], "--json no/r.json"),
    ],
)
def test_condense_refuses(place, capsys, changes, arguments, said):
    before = files(place)
    assert_refused(place, before, *condense(capsys, *arguments, **changes), said)


def test_cuda_is_refused_where_there_is_none(place, capsys, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert_refused(place, files(place), *condense(capsys, "--device", "cuda"), "no CUDA device")


def bad_graph(name):
    arrays = graph_arrays()
    if name == "nan":
        arrays["attr_matrix"][3, 2] = np.nan
    elif name == "empty class":
        arrays["labels"] = np.where(arrays["labels"] == 1, 2, arrays["labels"])
    elif name == "missing arrays":
        del arrays["adj_indptr"], arrays["labels"]
    elif name == "objects":
        arrays["labels"] = np.asarray([{"a": 1}] * NODES, dtype=object)
    return arrays


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("nan", "NaN"),
        ("empty class", "class 1"),
        ("missing arrays", "lacks the arrays adj_indptr, labels"),
        ("objects", "cannot be read as an npz file of plain arrays"),
    ],
)
def test_graphs_that_cannot_be_used_are_refused(place, capsys, name, said):
    np.savez(place / "bad.npz", **bad_graph(name))
    assert_refused(place, files(place), *condense(capsys, dataset="bad.npz"), said)


@pytest.mark.parametrize("command", ["evaluate", "inspect"])
@pytest.mark.parametrize("kind", ["missing", "empty", "truncated", "damaged", "foreign", "text"])
def test_files_that_are_not_condensed_data_are_refused(place, capsys, command, kind):
    condense(capsys)
    content = (place / "a.hcdc").read_bytes()
    (place / "a.hcdc").unlink()
    middle = len(content) - 50
    wrong = {
        "empty": b"",
        "truncated": content[: len(content) // 2],
        "damaged": content[:middle] + bytes([content[middle] ^ 1]) + content[middle + 1 :],
        "foreign": (place / "graph.npz").read_bytes(),
        "text": b"not a condensed file",
    }
    if kind in wrong:
        (place / "a.hcdc").write_bytes(wrong[kind])
    assert_refused(place, files(place), *hcdc_run(capsys, command, "a.hcdc"), "a.hcdc")


def test_evaluate_refuses_too_few_candidates_and_changed_data(place, capsys):
    condense(capsys)
    before = files(place)
    code, _, err = hcdc_run(capsys, "evaluate", "a.hcdc", "--candidates", "1")
    assert_refused(place, before, code, "", err, "at least 2")
    arrays = graph_arrays()
    arrays["attr_matrix"][0, 1] += 1
    np.savez(place / "graph.npz", **arrays)
    assert_refused(place, before, *hcdc_run(capsys, "evaluate", "a.hcdc"), "has changed since")


def test_report_refuses_what_is_no_evaluation(place, capsys):
    condense(capsys)
    before = files(place)
    assert_refused(place, before, *hcdc_run(capsys, "report", "a.hcdc"), "not JSON")
    assert_refused(place, before, *hcdc_run(capsys, "report", "a.hcdc.json"), "not an evaluation")


@pytest.mark.parametrize(
    "arguments", [["condense"], ["evaluate"], ["nothing"], ["condense", "--train-size", "many"], ["report"]]
)
def test_usage_errors_exit_with_2(place, capsys, arguments):
    before = files(place)
    code, _, err = hcdc_run(capsys, *arguments)
    assert code == 2
    assert err
    assert files(place) == before


# --- when the work itself fails -----------------------------------------------------------------------------


def failing(error):
    def fail(*_, **__):
        raise error

    return fail


@pytest.mark.parametrize(
    ("error", "code", "said"),
    [
        (NumericalError("the loss is NaN"), 1, "hcdc: the loss is NaN"),
        (KeyboardInterrupt(), 130, "the same command continues"),
        (ZeroDivisionError("division by zero"), 1, "ZeroDivisionError: division by zero"),
    ],
)
def test_failures_are_one_sentence(place, capsys, monkeypatch, error, code, said):
    monkeypatch.setattr(Plan, "run", failing(error))
    before = files(place)
    found, _, err = condense(capsys)
    assert found == code
    assert said in err
    assert "Traceback" not in err
    assert files(place) == before


def test_debug_shows_the_traceback(monkeypatch):
    monkeypatch.setattr(Plan, "run", failing(NumericalError("the loss is NaN")))
    with pytest.raises(NumericalError):
        hcdc.cli.main(
            [
                "condense",
                "--dataset",
                "graph.npz",
                "--train-size",
                "9",
                "--method",
                "random",
                "--out",
                "a.hcdc",
                "--debug",
            ]
        )


def test_an_interrupted_command_continues(place, capsys, monkeypatch):
    """What the checkpoint holds is used, and the file is that of an uninterrupted run."""
    settings = ["--set", "epochs=4", "--set", "outer=2", "--val-method", "real"]
    assert condense(capsys, *settings, method="gcondx", out="whole.hcdc")[0] == 0
    monkeypatch.setattr("hcdc.core.checkpoint.SAVE_SECONDS", 0.0)
    real, calls = hcdc.condensers._gcond.GradientMatching._epoch, []

    def interrupted(self, *arguments):
        calls.append(1)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return real(self, *arguments)

    monkeypatch.setattr("hcdc.condensers._gcond.GradientMatching._epoch", interrupted)
    assert condense(capsys, *settings, method="gcondx", out="b.hcdc")[0] == 130
    assert not (place / "b.hcdc").exists()
    assert any(name.startswith(".b.hcdc.ckpt") for name in files(place))
    assert condense(capsys, *settings, method="gcondx", out="b.hcdc")[0] == 0
    assert len(calls) == 3 + 2  # two epochs came from the checkpoint
    assert (place / "b.hcdc").read_bytes() == (place / "whole.hcdc").read_bytes()
    assert not any(name.startswith(".b.hcdc") for name in files(place))


def test_version_and_module_entry():
    found = subprocess.run(
        [sys.executable, "-m", "hcdc", "--version"], capture_output=True, text=True, timeout=120
    )
    assert found.returncode == 0
    assert found.stdout.strip() == f"hcdc {version()}"


def test_arguments_are_told_as_flags_and_other_text_as_it_is():
    told = as_flags("val_size 3 is below 'train_size' (in 'a/val_size.npz', my_train_size, val_size.)")
    assert told == "--val-size 3 is below '--train-size' (in 'a/val_size.npz', my_train_size, --val-size.)"
    assert as_flags("val_size 3, train_size 4", ["train_size"]) == "val_size 3, --train-size 4"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["condense", "--train-size", "abc"], "invalid value for '--train-size'"),
        (["condense", "--bogus"], "no such option: --bogus"),
        (["nosuch"], "no such command 'nosuch'"),
        (["evaluate"], "missing argument 'file'"),
    ],
)
def test_a_wrong_command_line_gets_one_sentence(arguments, words, capsys):
    code, out, err = hcdc_run(capsys, *arguments)
    assert (code, out) == (2, "")
    assert err.lower().startswith(f"hcdc: {words}")
    assert err.count("\n") == 1
    assert "--help' shows what is allowed" in err


def test_no_file_takes_the_place_of_another(place, capsys):
    """--json and --out may not name one file, nor one that is read."""
    made = ["condense", "--dataset", "graph.npz", "--method", "random", "--train-size", "6"]
    before = files(place)
    run = hcdc_run(capsys, *made, "--out", "a.hcdc", "--json", "./a.hcdc")
    assert_refused(place, before, *run, "--json a.hcdc: this is the same file as --out; choose another")
    assert hcdc_run(capsys, *made, "--out", "a.hcdc")[0] == 0
    before, whole = files(place), (place / "a.hcdc").read_bytes()
    run = hcdc_run(capsys, *made, "--out", "b.hcdc", "--json", "graph.npz")
    assert_refused(place, before, *run, "--json graph.npz: this is the same file as --dataset")
    run = hcdc_run(capsys, *made, "--out", "graph.npz", "--force")
    assert_refused(place, before, *run, "--out graph.npz: this is the same file as --dataset")
    for command in ("inspect", "evaluate"):
        run = hcdc_run(capsys, command, "a.hcdc", "--json", "a.hcdc.json")
        assert_refused(place, before, *run, "--json a.hcdc.json: this is the same file as its record")
        run = hcdc_run(capsys, command, "a.hcdc", "--json", place / "a.hcdc")
        assert_refused(place, before, *run, "this is the same file as FILE; choose another")
    assert (place / "a.hcdc").read_bytes() == whole
    (place / "r.json").write_text("{}")
    before = files(place)
    for flag in ("--out", "--json"):
        run = hcdc_run(capsys, "report", "r.json", flag, "r.json")
        assert_refused(place, before, *run, f"{flag} r.json: this is the same file as FILE")
