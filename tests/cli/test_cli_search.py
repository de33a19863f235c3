"""`hcdc search`, `plan` and `trust`: what they print, write, refuse, and how they stop."""

import json

import numpy as np
import pytest
from command_line import OBJECTIVE, assert_refused, files, hcdc_run

import hcdc
from hcdc.cli import _show
from hcdc.core import records
from hcdc.search import Ladder
from search_prices import priced

TWO_MINUTES = ("--budget", "2m", "--rungs", "short:0.1")


@pytest.fixture
def place(tmp_path, monkeypatch):
    """A folder with a table; a full training counts as ten seconds."""
    monkeypatch.chdir(tmp_path)
    priced(monkeypatch)
    rng = np.random.default_rng(0)
    x = rng.normal(size=(120, 2))
    rows = [f"{a:.3f},{b:.3f},{int(a + b > 0)}" for a, b in x]
    (tmp_path / "rows.csv").write_text("\n".join(["a,b,label", *rows]) + "\n")
    return tmp_path


@pytest.fixture
def copy(place):
    task = hcdc.TableTask(hcdc.data("rows.csv", target="label"), "logistic")
    small = hcdc.condense(
        task, task.space(), "random", train_size=30, val_method="real", recipe={"steps": 20, "seeds": 1},
        full_recipe={"steps": 20, "seeds": 1}, checkpoint=None,
    )  # fmt: skip
    small.save("a.hcdc")
    return small


def search(capsys, *arguments, target=("--dataset", "rows.csv", "--target", "label")):
    return hcdc_run(capsys, "search", *target, "--device", "cpu", *arguments)


def test_a_search_ends_with_the_box_and_its_json(place, capsys):
    code, out, err = search(capsys, *TWO_MINUTES, "--storage", "s.jsonl", "--json", "r.json")
    assert code == 0, err
    document = json.loads((place / "r.json").read_text())
    assert {"best", "score", "interval", "seconds", "full_trainings", "rungs"} <= set(document)
    for rung in document["rungs"]:
        assert {"name", "candidates", "seconds", "spearman", "interval"} <= set(rung)
    assert document["seconds"] <= 132
    printed = dict(line.split(maxsplit=1) for line in out.splitlines())
    assert json.loads(printed["use"]) == document["best"]
    assert "short:0.1 -> full" in printed["rungs"]
    assert {"verdict", "cost", "score", "budget"} <= set(printed)
    assert out.splitlines()[-1] == "wrote r.json; next: hcdc report r.json --out report.html"
    outcomes = len((place / "s.jsonl").read_text().splitlines())
    code, _, err = search(capsys, *TWO_MINUTES, "--storage", "s.jsonl", "--json", "again.json")
    assert code == 0, err
    assert json.loads((place / "again.json").read_text())["best"] == document["best"]
    assert len((place / "s.jsonl").read_text().splitlines()) <= outcomes + 2
    pytest.importorskip("matplotlib")
    code, out, err = hcdc_run(capsys, "report", "r.json", "--out", "page.html")
    assert code == 0, err
    assert "What the search found" in (place / "page.html").read_text()


def test_a_copy_is_searched_alone(copy, place, capsys):
    code, out, err = hcdc_run(
        capsys, "search", "a.hcdc", "--trials", "12", "--storage", "s.jsonl", "--json", "-", "--device", "cpu"
    )
    assert code == 0, err
    document = json.loads(out)
    assert document["score"] is None
    assert document["rungs"][0]["candidates"] == 12
    assert "next: save it as FILE.json, then hcdc report FILE.json" in err


def test_an_objective_brings_its_data(place, capsys):
    (place / "mine.py").write_text(OBJECTIVE)
    code, out, err = hcdc_run(
        capsys, "search", "--objective", "mine.py:objective", "--budget", "1s", "--json", "r.json"
    )
    assert code == 0, err
    assert json.loads((place / "r.json").read_text())["best"]["x"] > 0.8
    assert "<FullData: tuple, train 40, val 40, 2 classes>" in out
    code, out, err = hcdc_run(
        capsys, "plan", "--objective", "mine.py:objective", "--budget", "1h", "--json", "p.json"
    )
    assert code == 0, err
    assert "do not search with a ladder here: full trainings are so cheap" in out


@pytest.mark.parametrize("command", ["search", "plan"])
def test_json_on_stdout_is_all_that_is_there(place, capsys, command):
    prints = OBJECTIVE.replace("    return trial", '    print("training")\n    return trial')
    (place / f"{command}_prints.py").write_text(f"print('loading')\n{prints}")
    mine = ("--objective", f"{command}_prints.py:objective")
    code, out, err = hcdc_run(capsys, command, *mine, "--budget", "1s", "--json", "-")
    assert code == 0, err
    assert json.loads(out)["rungs"]
    assert "loading" in err
    assert "training" in err
    assert "hcdc report FILE.json --out" in err or command == "plan"


def test_an_objective_takes_a_data_set_by_name(place, capsys):
    (place / "without_data.py").write_text(OBJECTIVE.replace("def data(", "def other("))
    mine = ("--objective", "without_data.py:objective")
    rows = ("--dataset", "rows.csv", "--target", "label")
    code, out, err = hcdc_run(capsys, "search", *mine, *rows, "--budget", "1s", "--json", "r.json")
    assert code == 0, err
    assert "<FullData: tuple, train 72, val 24, test 24, 2 classes>" in out
    code, _, err = hcdc_run(capsys, "trust", *mine, *rows, "--rung", "short:0.5", "--probes", "4")
    assert code == 0, err
    code, _, err = hcdc_run(capsys, "plan", *mine)
    assert code == 2
    assert "define a function data() in without_data.py" in err
    assert "or name the data with --dataset" in err
    code, _, err = hcdc_run(capsys, "trust", "a.hcdc", *rows)
    assert (code, "go with --objective" in err) == (2, True)


def test_earlier_results_cost_nothing_and_a_sampler_has_a_name(place, capsys):
    pytest.importorskip("optuna")
    (place / "known_to_me.py").write_text(OBJECTIVE)
    (place / "known.csv").write_text("x,val\n0.99,0.99\n")
    mine = ("search", "--objective", "known_to_me.py:objective", "--budget", "1s", "--json", "r.json")
    code, _, err = hcdc_run(capsys, *mine, "--known", "known.csv", "--sampler", "tpe")
    assert code == 0, err
    found = json.loads((place / "r.json").read_text())
    assert found["best"]["x"] >= 0.99 - 1e-9


def test_known_results_are_the_probes_of_trust(place, capsys):
    (place / "probed.py").write_text(OBJECTIVE)
    (place / "known.csv").write_text("\n".join(["x,val", *(f"{k / 20},{k / 20}" for k in range(20))]))
    given = ("trust", "--objective", "probed.py:objective", "--known", "known.csv", "--probes", "12")
    code, out, err = hcdc_run(capsys, *given, "--json", "t.json")
    assert code == 0, err
    assert "by a timed trial; no full training" in out
    assert "so this holds for configurations like these" in out
    document = json.loads((place / "t.json").read_text())
    assert (document["probes"], document["uniform"], document["verdict"]) == (12, False, "keep open")
    before = files(place)
    done = hcdc_run(capsys, *given, "--json", "known.csv", "--quiet")
    assert_refused(place, before, *done, "--json known.csv: this is the same file as --known")
    (place / "few.csv").write_text("x,val\n0.5,0.5\n")
    code, _, err = hcdc_run(capsys, *given[:3], "--known", "few.csv", "--quiet")
    assert (code, "hcdc: --known: 'few.csv' has 1 result; at least 4 are needed" in err) == (2, True)


def test_a_plan_says_seconds_memory_and_whether_it_pays(place, capsys):
    code, out, err = hcdc_run(
        capsys, "plan", "--dataset", "rows.csv", "--target", "label", "--budget", "3s", "--json", "p.json",
        "--device", "cpu",
    )  # fmt: skip
    assert code == 0, err
    document = json.loads((place / "p.json").read_text())
    assert set(document["seconds"]) == {"short:0.1", "full"}
    assert document["memory_gib"] > 0.01
    assert isinstance(document["pays"], bool)
    assert document["why"] in out


def test_trust_writes_agreement_verdict_and_dimensions(copy, place, capsys):
    code, out, err = hcdc_run(
        capsys, "trust", "a.hcdc", "--probes", "8", "--json", "t.json", "--device", "cpu"
    )
    assert code == 0, err
    document = json.loads((place / "t.json").read_text())
    assert {"spearman", "interval", "verdict", "dimensions"} <= set(document)
    assert [d["name"] for d in document["dimensions"]] == ["penalty_a", "penalty_b"]
    assert document["why"] in out
    assert "dimension penalty_a" in out


@pytest.mark.parametrize("storage", [True, False])
def test_ctrl_c_says_what_was_kept(place, capsys, monkeypatch, storage):
    calls, evaluate = [], Ladder.evaluate

    def interrupted(*given, **options):
        calls.append(given)
        if len(calls) == 4:
            raise KeyboardInterrupt
        return evaluate(*given, **options)

    monkeypatch.setattr(Ladder, "evaluate", interrupted)
    given = ("--storage", "s.jsonl") if storage else ()
    code, _, err = search(capsys, *TWO_MINUTES, *given, "--quiet")
    assert code == 130
    if storage:
        assert err == "hcdc: interrupted; finished trials are in s.jsonl, and the same command continues\n"
        assert len((place / "s.jsonl").read_text().splitlines()) > 4
    else:
        assert err == "hcdc: interrupted; nothing was kept; --storage FILE keeps finished trials\n"


def test_a_full_disk_stops_with_a_sentence(place, capsys, monkeypatch):
    written = []
    real = records.append

    def append(path, record):
        if len(written) == 6:
            raise OSError(28, "No space left on device")
        written.append(record)
        real(path, record)

    monkeypatch.setattr(records, "append", append)
    code, _, err = search(capsys, *TWO_MINUTES, "--storage", "s.jsonl", "--quiet")
    assert code == 1
    assert "cannot be written (No space left on device); finished trials are kept" in err
    assert len(err.splitlines()) == 1


def test_training_is_searched_on_any_data(place, capsys):
    """By default the settings that this data reads; a table has no augmentation and its model no width."""
    table = ("plan", "--dataset", "rows.csv", "--target", "label", "--budget", "3s", "--space")
    code, out, err = hcdc_run(capsys, *table, "training")
    assert code == 0, err
    assert "lr from" in out
    assert "augment" not in out
    code, out, err = hcdc_run(capsys, *table, "training,settings=lr+batch")
    assert code == 0, err
    assert "lr from 0.001 to 1 (log); batch" in out
    code, _, err = hcdc_run(capsys, *table, "training,settings=lr+foo")
    assert (code, "training setting 'foo' is not known" in err) == (2, True)
    code, _, err = hcdc_run(capsys, *table, "training,lr=2")
    assert (code, "--space training: setting 'lr' is not known" in err) == (2, True)


def test_a_result_that_cannot_be_written_is_shown(copy, capsys, monkeypatch):
    def full(path, content):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("hcdc.cli._show.write_atomic", full)
    for command, few in (("search", "--trials"), ("trust", "--probes")):
        code, out, err = hcdc_run(capsys, command, "a.hcdc", few, "4", "--json", "r.json", "--yes")
        assert (code, err.splitlines()[-1]) == (
            2,
            "hcdc: 'r.json' cannot be written: No space left on device",
        )
        assert "verdict" in out


REFUSED = [
    (("--budget", "soon"), "budget 'soon'"),
    (("--rungs", "medium:3"), "rung 'medium:3'"),
    (("--storage", "nowhere/s.jsonl"), "the folder"),
    (("--storage", "rows.csv"), "--storage rows.csv: this is the same file as --dataset"),
    (("--copy", "none.hcdc"), "none.hcdc"),
    (("--known", "none.csv"), "the file 'none.csv' cannot be read as CSV: No such file"),
    (("--known", "noval.csv"), "hcdc: --known: 'noval.csv' has the columns x, score; it needs 'val'"),
    (("--storage", "sqlite:///a.db"), "hcdc: --storage 'sqlite:///a.db' is an address; name a file"),
    (("--trials", "1"), "hcdc: --trials 1: at least 2 configurations"),
    (("--rungs", "subset:0.1,subset:2"), "hcdc: --rungs: rung 'subset:2': the share must be below 1"),
    (
        ("--rungs", "subset:0.1,subset:0.1"),
        "hcdc: --rungs subset:0.1, subset:0.1, full: each may appear once",
    ),
    (("--sampler", "grid"), "--sampler 'grid': choose 'tpe'"),
    (("--backend", "slurm"), "--backend 'slurm' is not known; choose 'ray'"),
    (("--address", "head:1"), "--address 'head:1' is that of a Ray cluster; add --backend ray"),
    (
        ("--objective", "brings.py:objective"),
        "--dataset rows.csv: the file of --objective brings its own data",
    ),
]


@pytest.mark.parametrize(("arguments", "said"), REFUSED)
def test_refusals_come_before_the_work(place, capsys, arguments, said):
    (place / "brings.py").write_text(OBJECTIVE)
    (place / "noval.csv").write_text("x,score\n1,2\n")
    before = files(place)
    assert_refused(place, before, *search(capsys, "--quiet", *arguments), said)


FOR_OBJECTIVES = [
    ("trust", "--rung", "subset:0.3", "it goes with --objective; a copy is the stand-in itself"),
    ("trust", "--split-seed", "3", "it goes with --objective; a copy names its split itself"),
    ("trust", "--storage", "t.log", "it goes with --objective; a copy has --cache"),
    ("trust", "--known", "rows.csv", "it goes with --objective; a copy has --truth"),
    ("search", "--setting", "inductive", "a condensed file is searched without it; leave it out"),
    ("search", "--target", "label", "a condensed file is searched without it; leave it out"),
    ("search", "--split-seed", "3", "a condensed file is searched without it; leave it out"),
]


@pytest.mark.parametrize(("command", "flag", "value", "words"), FOR_OBJECTIVES)
def test_flags_that_a_copy_would_ignore_are_refused(copy, place, capsys, command, flag, value, words):
    before = files(place)
    done = hcdc_run(capsys, command, "a.hcdc", flag, value, "--quiet")
    assert_refused(place, before, *done, f"{flag} {value}: {words}")


def test_flags_that_an_objective_would_ignore_are_refused(place, capsys):
    (place / "ignoring.py").write_text(OBJECTIVE)
    before, trust = files(place), ("trust", "--objective", "ignoring.py:objective", "--quiet")
    done = hcdc_run(capsys, *trust, "--truth-dataset", "cifar10")
    assert_refused(place, before, *done, "--truth-dataset cifar10: it does not go with --objective")
    done = hcdc_run(capsys, *trust, "--rung", "subset:2")
    assert_refused(place, before, *done, "hcdc: --rung 'subset:2' is not known; write 'subset:0.1'")
    done = hcdc_run(capsys, *trust, "--storage", "sqlite:///a.db")
    assert_refused(place, before, *done, "hcdc: --storage 'sqlite:///a.db' is an address; name a file")


def test_missing_parts_are_named(place, capsys):
    (place / "bare.py").write_text("def objective(trial, data): return 0.0\n")
    code, _, err = hcdc_run(capsys, "search")
    assert (code, err) == (2, "hcdc: Missing --dataset NAME, --objective FILE.py:NAME or a condensed file\n")
    code, _, err = hcdc_run(capsys, "search", "--objective", "bare.py:objective")
    assert code == 2
    assert "define a function data() in bare.py" in err


def test_trust_in_an_objective_says_its_cost_asks_and_continues(place, capsys, monkeypatch):
    (place / "trusting.py").write_text(OBJECTIVE)
    asked = []
    monkeypatch.setattr("hcdc.cli.trust.ask_first", lambda seconds, yes, quiet: asked.append((seconds, yes)))
    trust = ("trust", "--objective", "trusting.py:objective", "--probes", "4", "--json", "t.json")
    code, out, err = hcdc_run(capsys, *trust, "--storage", "t.jsonl")
    assert code == 0, err
    assert "cost             about" in out
    assert "finished trials  t.jsonl" in out
    code, out, err = hcdc_run(capsys, *trust, "--storage", "t.jsonl", "--yes")
    assert code == 0, err
    assert [yes for _, yes in asked] == [False, True]
    assert asked[0][0] > 0
    code, _, err = hcdc_run(capsys, "trust", "a.hcdc", "--storage", "t.jsonl")
    assert (code, "it goes with --objective" in err) == (2, True)


def test_long_work_asks_on_a_terminal(monkeypatch):
    asked = []

    def confirm(text):
        asked.append(text)
        return False

    monkeypatch.setattr("sys.stdin.isatty", lambda: True, raising=False)
    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    monkeypatch.setattr(_show.typer, "confirm", confirm)
    with pytest.raises(hcdc.InputError, match="nothing was done"):
        _show.ask_first(601.0, False, False)
    assert asked == ["this will train for about 601 s; go on?"]
    _show.ask_first(599.0, False, False)
    _show.ask_first(601.0, True, False)
    monkeypatch.setattr("sys.stdin.isatty", lambda: False, raising=False)
    _show.ask_first(601.0, False, False)
    assert len(asked) == 1
