"""Every code block of the documents and every example of a docstring runs, each in at most ten seconds."""

from __future__ import annotations

import doctest
import importlib
import pkgutil
import re
import shlex
import time
from pathlib import Path

import pytest

import hcdc
from hcdc.cli import main

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```", re.M | re.S)
LIMIT = 20.0
"""Seconds of one core: ten on a free machine, twice that beside other tests."""
NOT_RUN = ("pip install", "git clone", "make ", "python -m venv", "cd ")
"""Commands that set up a machine."""


def blocks(language):
    """``(page and number, code)`` of every block in a language."""
    for page in PAGES:
        for number, (found, code) in enumerate(BLOCK.findall(page.read_text()), 1):
            if found == language:
                yield pytest.param(page, code, id=f"{page.name}-{number}")


def modules():
    for module in pkgutil.walk_packages(hcdc.__path__, "hcdc."):
        if module.name.endswith(("__main__", "_cuda", "_gnn_layers")):
            continue
        if doctest.DocTestFinder().find(loaded := importlib.import_module(module.name)):
            yield loaded


@pytest.mark.parametrize(("page", "code"), blocks("python"))
def test_python_of_a_page_runs(page, code, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    begun = time.process_time()
    exec(compile(code, str(page), "exec"), {"__name__": "__main__"})
    assert time.process_time() - begun < LIMIT


@pytest.mark.parametrize(("page", "code"), [*blocks("bash"), *blocks("sh"), *blocks("console")])
def test_commands_of_a_page_run(page, code, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    for line in code.replace("\\\n", " ").splitlines():
        line = line.removeprefix("$ ").strip()
        if not line or line.startswith("#") or line.startswith(NOT_RUN):
            continue
        words = shlex.split(line, comments=True)
        assert words[0] == "hcdc", f"a command of another program in {page.name}: {line}"
        begun = time.process_time()
        with pytest.raises(SystemExit) as stopped:
            main(words[1:])
        assert not stopped.value.code, capsys.readouterr().err
        assert time.process_time() - begun < LIMIT


def test_examples_of_docstrings_run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    attempted = 0
    for module in modules():
        begun = time.process_time()
        done = doctest.testmod(
            module, extraglobs={"hcdc": hcdc}, optionflags=doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
        )
        assert not done.failed, module.__name__
        attempted += done.attempted
        assert time.process_time() - begun < LIMIT * max(1, done.attempted)
    assert attempted >= 15
