import json
import math
import multiprocessing
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
import torch

from hcdc.core import records
from hcdc.core.errors import InputError


def test_append_and_read(tmp_path):
    path = tmp_path / "folder" / "runs.jsonl"
    for k in range(3):
        records.append(path, {"seed": k, "name": "größe"})
    assert list(records.read(path)) == [{"seed": k, "name": "größe"} for k in range(3)]
    assert len(path.read_text().splitlines()) == 3


def test_a_half_written_last_line_is_passed_over(tmp_path):
    path = tmp_path / "runs.jsonl"
    records.append(path, {"seed": 0})
    with open(path, "a") as handle:
        handle.write('{"seed": 1, "spea')
    assert list(records.read(path)) == [{"seed": 0}]


@pytest.mark.parametrize("left", ['{"seed": 0}\n{"seed": 1, "spea', '{"se'])
def test_appending_after_a_half_written_line_loses_no_record(tmp_path, left):
    path = tmp_path / "runs.jsonl"
    path.write_text(left)
    records.append(path, {"seed": 2})
    assert list(records.read(path))[-1] == {"seed": 2}
    assert len(list(records.read(path))) == left.count("\n") + 1


def test_a_broken_line_in_the_middle_is_an_error(tmp_path):
    path = tmp_path / "runs.jsonl"
    path.write_text('{"seed": 0}\n{"se\n{"seed": 2}\n')
    for bad in (b'{"se', b"\xff\xfe"):
        path.write_bytes(b'{"seed": 0}\n' + bad + b'\n{"seed": 2}\n')
        with pytest.raises(InputError, match=r"line 2 of '.*runs.jsonl' is not a record in JSON; remove it"):
            list(records.read(path))


@pytest.mark.parametrize("nothing", ["\0" * 300, '{"seed": 1, "sp' + "\0" * 9])
@pytest.mark.parametrize("before", ['{"seed": 0}\n', ""])
def test_bytes_of_zero_after_a_loss_of_power_are_passed_over_and_cut(tmp_path, nothing, before):
    path = tmp_path / "runs.jsonl"
    path.write_text(before + nothing)
    assert list(records.read(path)) == ([{"seed": 0}] if before else [])
    records.append(path, {"seed": 2})
    assert path.read_text() == before + '{"seed": 2}\n'


@pytest.mark.parametrize("end", ["", "\0\0"])
def test_a_record_that_lacks_only_its_end_of_line_is_kept(tmp_path, end):
    path = tmp_path / "runs.jsonl"
    path.write_text('{"seed": 0}\n{"seed": 1}' + end)
    records.append(path, {"seed": 2})
    assert list(records.read(path)) == [{"seed": k} for k in range(3)]


@pytest.mark.parametrize("content", ["my precious notes", "[1, 2", "12", "notes\non two lines"])
def test_a_foreign_file_is_refused_and_left_as_it_is(tmp_path, content):
    path = tmp_path / "notes.jsonl"
    path.write_text(content)
    with pytest.raises(
        InputError, match=r"notes.jsonl' is not a file of records, and is left as it is; name"
    ):
        records.append(path, {"seed": 2})
    with pytest.raises(InputError, match=r"notes.jsonl' is not a (file of records|record in JSON)"):
        list(records.read(path))
    assert path.read_text() == content


@pytest.mark.parametrize("line", ["[1, 2]", "12", '"text"', "null"])
def test_json_that_is_no_record_is_an_error(tmp_path, line):
    path = tmp_path / "runs.jsonl"
    path.write_text(f'{{"seed": 0}}\n{line}\n')
    with pytest.raises(InputError, match=r"line 2 of '.*runs.jsonl' is not a record in JSON; remove it"):
        list(records.read(path))


def _append(path, worker) -> None:
    for k in range(20):
        records.append(path, {"worker": worker, "k": k, "padding": "x" * 5000})


def test_processes_append_whole_lines(tmp_path):
    path = tmp_path / "runs.jsonl"
    context = multiprocessing.get_context("fork")
    workers = [context.Process(target=_append, args=(path, w)) for w in range(3)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    found = sorted((r["worker"], r["k"]) for r in records.read(path))
    assert found == [(w, k) for w in range(3) for k in range(20)]


def test_jsonable():
    value = {
        1: math.nan,
        "inf": [math.inf, -math.inf, 1.5],
        "tensor": torch.tensor([[1.0, math.nan]]),
        "scalar": torch.tensor(2),
        "array": np.array([1, 2]),
        "numpy": (np.float64(0.5), np.float32(math.nan), np.int64(3), np.bool_(True)),
        "plain": ("text", None, True, {"deep": (1, 2)}),
    }
    expected = {
        "1": None,
        "inf": [None, None, 1.5],
        "tensor": [[1.0, None]],
        "scalar": 2,
        "array": [1, 2],
        "numpy": [0.5, None, 3, True],
        "plain": ["text", None, True, {"deep": [1, 2]}],
    }
    assert records.jsonable(value) == expected
    assert json.loads(json.dumps(records.jsonable(value), allow_nan=False)) == expected


def test_environment_says_where_a_record_was_made(monkeypatch):
    monkeypatch.setenv("HCDC_COMMIT", "abc")
    made = records.environment()
    assert made["commit"] == "abc"
    assert made["torch"] == torch.__version__
    assert made["device"] == f"cpu ({torch.get_num_threads()} threads)"
    assert made["time"].endswith("+00:00")
    assert json.loads(json.dumps(made)) == made


def git(folder, *command) -> str:
    identity = ["-c", "user.name=n", "-c", "user.email=e@example.org"]
    done = subprocess.run(
        ["git", "-C", str(folder), *identity, *command], capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


@pytest.fixture
def repository(tmp_path, monkeypatch):
    """A repository with a copy of the module in it, which `commit` then takes for the source tree."""
    if shutil.which("git") is None:
        pytest.skip("git is not installed")
    monkeypatch.delenv("HCDC_COMMIT", raising=False)
    package = tmp_path / "src"
    package.mkdir()
    module = Path(shutil.copy(records.__file__, package / "records.py"))
    monkeypatch.setattr(records, "__file__", str(module))
    git(tmp_path, "init", "--quiet")
    (tmp_path / "other").write_text("text")
    git(tmp_path, "add", "other")
    git(tmp_path, "commit", "--quiet", "-m", "first")
    return tmp_path


def test_commit_of_the_source_tree_with_a_mark_where_it_has_changes(repository):
    git(repository, "add", ".")
    git(repository, "commit", "--quiet", "-m", "second")
    head = git(repository, "rev-parse", "HEAD")
    assert records.commit() == head
    (repository / "other").write_text("changed")
    assert records.commit() == head + "+"


def test_a_record_names_the_commit_that_was_loaded(repository):
    git(repository, "add", ".")
    git(repository, "commit", "--quiet", "-m", "second")
    head = git(repository, "rev-parse", "HEAD")
    records.loaded_commit.cache_clear()
    try:
        assert records.loaded_commit() == head
        (repository / "other").write_text("changed while the work runs")
        assert records.environment("cpu")["commit"] == head
    finally:
        records.loaded_commit.cache_clear()


def test_a_package_installed_inside_somebodys_repository_has_no_commit(repository):
    assert records.commit() is None


def test_outside_any_repository_there_is_no_commit(tmp_path, monkeypatch):
    monkeypatch.delenv("HCDC_COMMIT", raising=False)
    monkeypatch.setattr(records, "__file__", str(tmp_path / "records.py"))
    assert records.commit() is None
