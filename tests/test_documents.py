"""Every code block of the documents and every example of a docstring runs, each in at most ten seconds."""

from __future__ import annotations

import ast
import doctest
import importlib
import json
import pkgutil
import re
import shlex
import time
from pathlib import Path

import pytest

import hcdc
from hcdc.cli import main
from hcdc.core.plugins import import_module_or_file
from hcdc.search import Executor

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
RECORDS = sorted((ROOT / "records").rglob("*.md"))
CONFLICT = re.compile(r"^(?:<{7}|>{7})", re.M)
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```", re.M | re.S)
LIMIT = 20.0
"""Seconds of one core: ten on a free machine, twice that beside other tests."""
NOT_RUN = ("pip install", "git clone", "make ", "python -m venv", "cd ")
"""Commands that set up a machine."""
BUDGET = re.compile(r"""(budget=['"]|--budget )\w+""")
"""Budgets of the pages are for people; tests give every search a second or two."""
NEEDS = {"my-graph.md": "torch_geometric", "my-objective.md": "optuna"}
"""Packages that a page needs beyond scikit-learn."""
NOTEBOOK = ROOT / "docs" / "notebooks" / "digits.ipynb"
FIGURE = re.compile(r"(?<![\d\w])\.\d{3}\b")


def blocks(page):
    """``(language, code)`` of every block, budgets cut."""
    return [(language, BUDGET.sub(r"\g<1>1s", code)) for language, code in BLOCK.findall(page.read_text())]


def with_blocks(*languages):
    """Pages that have a block in one of the languages."""
    for page in PAGES:
        if {language for language, _ in blocks(page)} & set(languages):
            yield pytest.param(page, id=str(page.relative_to(ROOT).with_suffix("")))


class Here(Executor):
    """Stands in for a Ray cluster, which tests/search/test_ray.py starts."""

    def __init__(self, address=None, batch=8, cpus=1, gpus=None):
        self.batch = batch


@pytest.fixture
def alone(tmp_path, monkeypatch):
    """A folder of its own, no cluster, and a clock that other processes do not slow down."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(time, "perf_counter", time.process_time)
    for place in ("hcdc.search", "hcdc.search._ray"):
        monkeypatch.setattr(f"{place}.RayExecutor", Here)


def commands(code):
    """The words of every command of hcdc in a block."""
    for line in code.replace("\\\n", " ").splitlines():
        line = line.removeprefix("$ ").strip()
        if line and not line.startswith(("#", *NOT_RUN)):
            words = shlex.split(line, comments=True)
            assert words[0] == "hcdc", f"a command of another program: {line}"
            yield words[1:]


def called(words, capsys):
    """Run a command, which must succeed; its output."""
    with pytest.raises(SystemExit) as stopped:
        main(words)
    told = capsys.readouterr()
    assert not stopped.value.code, told.err
    return told.out


def modules():
    for module in pkgutil.walk_packages(hcdc.__path__, "hcdc."):
        if module.name.endswith(("__main__", "_cuda", "_gnn_layers")):
            continue
        if doctest.DocTestFinder().find(loaded := importlib.import_module(module.name)):
            yield loaded


@pytest.mark.parametrize("page", with_blocks("python", "bash", "sh", "console"))
@pytest.mark.usefixtures("alone")
def test_code_of_a_page_runs(page, capsys):
    """From top to bottom: Python in one namespace, commands in the same folder."""
    pytest.importorskip("sklearn")
    pytest.importorskip(NEEDS.get(page.name, "numpy"))
    names = {"__name__": "__main__"}
    for number, (language, code) in enumerate(blocks(page), 1):
        begun = time.process_time()
        if language == "python":
            exec(compile(code, f"{page.name}, block {number}", "exec"), names)
        elif language in ("bash", "sh", "console"):
            for words in commands(code):
                called(words, capsys)
        assert time.process_time() - begun < LIMIT


@pytest.mark.parametrize("page", with_blocks("shell"))
def test_commands_that_take_long_exist(page, capsys):
    """Blocks in ``shell`` need data or hours: their commands and flags must exist."""
    for language, code in blocks(page):
        for words in commands(code) if language == "shell" else ():
            told = called([words[0], "--help"], capsys)
            flags = [word for word in words if word.startswith("--")]
            assert not [flag for flag in flags if not re.search(rf"{flag}\b", told)], words


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


def test_figures_of_the_pages_are_those_of_the_results():
    """What a guide quotes stands in the results, whose tables are written from the records."""
    results = [ROOT / "docs" / "results.md", *(ROOT / "docs" / "results").glob("*.md")]
    known = "".join(page.read_text() for page in results)
    for page in {*(ROOT / "docs").glob("*/*.md")} - {*results}:
        text = BLOCK.sub("", page.read_text())
        assert not [figure for figure in FIGURE.findall(text) if figure not in known], page.name


@pytest.mark.parametrize(
    "page", [*PAGES, ROOT / "CHANGELOG.md", *RECORDS], ids=lambda page: str(page.relative_to(ROOT))
)
def test_a_document_holds_no_marks_of_a_conflict(page):
    assert not CONFLICT.findall(page.read_text())


def test_marks_of_a_conflict_are_found():
    text = "a\n<<<<<<< HEAD\nb\n=======\nc\n>>>>>>> other\nd <<<<<<< e"
    assert CONFLICT.findall(text) == ["<<<<<<<", ">>>>>>>"]


# --- the notebook -----------------------------------------------------------------------------------------


@pytest.mark.usefixtures("alone")
def test_cells_of_the_notebook_run():
    pytest.importorskip("sklearn")
    pytest.importorskip("matplotlib").use("Agg")
    names = {"__name__": "__main__"}
    for cell in json.loads(NOTEBOOK.read_text())["cells"]:
        if cell["cell_type"] == "code":
            code = BUDGET.sub(r"\g<1>2s", "".join(cell["source"]))
            exec(compile(code, cell["id"], "exec"), names)
    assert set(names["found"].best) == {"width", "lr", "alpha"}


def test_the_notebook_is_what_its_script_writes():
    made = import_module_or_file(str(NOTEBOOK.with_name("make_digits.py")))
    stored = json.loads(NOTEBOOK.read_text())
    assert [(cell["cell_type"], "".join(cell["source"])) for cell in stored["cells"]] == made.CELLS
    outputs = [output for cell in stored["cells"] for output in cell.get("outputs", ())]
    assert any("image/png" in output.get("data", {}) for output in outputs)
    assert not [output for output in outputs if output["output_type"] == "error"]
    assert NOTEBOOK.stat().st_size < 100_000


# --- the site ---------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def hooks():
    return import_module_or_file(str(ROOT / "docs" / "site_hooks.py"))


def test_links_out_of_the_docs_lead_to_pages(hooks):
    text = "[a](../../examples/own_task.py) [b](../results.md#search) [c](../../records/tuning) [d](no.md)"
    assert hooks.rewritten(text, "docs/guides/my-table.md") == (
        "[a](../examples/own_task.md) [b](../results.md#search) c (`records/tuning`) [d](no.md)"
    )


def test_tables_with_short_first_cells_are_marked(hooks):
    """A head does not count, nor do tags; tables with a class are not the site's own."""

    def table(cell, start="<table>"):
        head = f"<thead>\n<tr>\n<th>{'h' * 99}</th>\n</tr>\n</thead>"
        return f"{start}\n{head}<tbody>\n<tr>\n<td>{cell}</td>\n<td>{'x' * 99}</td>\n</tr>\n</tbody></table>"

    short, long = table("<strong>tab:images</strong>"), table("a description " * 3)
    own = table("tab:images", '<table class="own">')
    marked = short.replace("<table>", '<table data-first="short">')
    assert hooks.marked(f"{short}<p>text</p>{long}{own}") == f"{marked}<p>text</p>{long}{own}"


def test_an_example_becomes_a_page(hooks):
    page = hooks.example_page('"""Do it.\n\nHow.\n"""\n\nprint(1)\n')
    assert page == "# Do it\n\nHow.\n\n```python\nprint(1)\n```\n"


def test_the_notebook_becomes_a_page(hooks):
    page = hooks.notebook_page(NOTEBOOK.read_text())
    assert page.startswith("# Digits")
    codes = [cell for cell in json.loads(NOTEBOOK.read_text())["cells"] if cell["cell_type"] == "code"]
    assert page.count("```python") == len(codes)
    assert "data:image/png;base64," in page


@pytest.mark.parametrize(
    ("body", "fault"),
    [
        ('<script src="https://cdn.example/x.js"></script>', "loads https://cdn.example/x.js"),
        ('<link rel="stylesheet" href="//fonts.example/css">', "loads //fonts.example/css"),
        ("<style>@import 'https://a.example/b.css'</style>", "loads https://a.example/b.css"),
        ('<img src="missing.png">', "links to missing.png, which is not there"),
        ('<a href="other.html#nowhere">x</a>', "links to other.html#nowhere, which has no such anchor"),
        ('<a href="https://example.org">x</a> <a href="other.html#here">y</a>', None),
    ],
)
def test_a_site_with_remote_references_or_dead_links_is_refused(body, fault, hooks, tmp_path):
    (tmp_path / "index.html").write_text(body)
    (tmp_path / "other.html").write_text('<h1 id="here">there</h1>')
    assert hooks.faults(tmp_path) == ([f"index.html {fault}"] if fault else [])


def test_a_page_is_built_without_remote_references(hooks, tmp_path):
    """The theme itself, with one page: fonts, search and scripts are local; the whole site is 'make docs'."""
    pytest.importorskip("material")
    from mkdocs.commands.build import build
    from mkdocs.config import load_config

    (tmp_path / "docs").mkdir()
    for name in ("site.css", "iframe-worker.js"):
        (tmp_path / "docs" / name).write_bytes((ROOT / "docs" / name).read_bytes())
    (tmp_path / "docs" / "index.md").write_text("# One page\n\n```python\nprint(1)\n```\n")
    config = load_config(
        str(ROOT / "mkdocs.yml"), docs_dir=str(tmp_path / "docs"), site_dir=str(tmp_path / "site"),
        nav=["index.md"], hooks=[], plugins=["search", "offline"], strict=True,
    )  # fmt: skip
    build(config)
    assert hooks.faults(tmp_path / "site") == []
    assert "iframe-worker.js" in (tmp_path / "site" / "index.html").read_text()


def test_every_page_is_in_the_navigation():
    text = (ROOT / "mkdocs.yml").read_text()
    pages = [str(page.relative_to(ROOT / "docs")) for page in PAGES[1:]]
    pages += [f"examples/{path.stem}.md" for path in (ROOT / "examples").glob("*.py")]
    assert not [page for page in pages if f" {page}\n" not in text]


def test_examples_to_copy_are_short():
    for path in (ROOT / "examples").glob("search_*.py"):
        assert len(path.read_text().splitlines()) < 60, path.name
        assert ast.get_docstring(ast.parse(path.read_text())), path.name
