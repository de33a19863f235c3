"""Rules of the house that no linter knows: what source files may not do, and what a plain import may load."""

from __future__ import annotations

import ast
import fnmatch
import functools
import importlib
import pkgutil
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import hcdc

SOURCE = Path(hcdc.__file__).parent
ROOT = Path(__file__).parent.parent
FILES = sorted(SOURCE.rglob("*.py"))
TALKERS = ("cli", "experiments/", "core/progress.py")  # progress prints where a command asks for it
OPTIONAL = [
    "torch_geometric",
    "optuna",
    "ray",
    "matplotlib",
    "pandas",
    "pyarrow",
    "sklearn",
    "PIL",
    "torchopt",
    "ogb",
    "pytest",
]


def project():
    return tomllib.loads((ROOT / "pyproject.toml").read_text())


def calls(tree: ast.AST):
    """``(dotted name, node)`` of every call."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            yield ast.unparse(node.func), node


def keywords(node: ast.Call) -> dict[str, str]:
    return {word.arg: ast.unparse(word.value) for word in node.keywords if word.arg}


@functools.cache
def sources():
    """``(name, tree, text)`` of every source file."""
    texts = {str(path.relative_to(SOURCE)): path.read_text() for path in FILES}
    return [(name, ast.parse(text), text) for name, text in texts.items()]


def found(rule):
    """What a rule objects to, over all source files: one line each."""
    return [f"{name}:{line}" for name, tree, text in sources() for line in rule(name, tree, text)]


def body_lines(function):
    """Lines of a function's body, its docstring apart."""
    first = function.body[0]
    told = isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant)
    rest = function.body[1:] if told else function.body
    return rest[-1].end_lineno - rest[0].lineno + 1 if rest else 0


def test_every_module_says_what_it_is():
    assert not found(lambda name, tree, text: [] if ast.get_docstring(tree) else ["no docstring"])


def test_no_code_is_unpickled_or_evaluated():
    def rule(name, tree, text):
        for function, node in calls(tree):
            given = keywords(node)
            if (
                function in ("eval", "exec", "compile", "__import__")
                or "pickle" in function
                or given.get("allow_pickle") == "True"
                or (function == "torch.load" and given.get("weights_only") != "True")
            ):
                yield node.lineno

    assert not found(rule)


def test_random_numbers_come_from_named_streams():
    drawing = {
        f"torch.{f}" for f in ("rand", "randn", "randint", "randperm", "normal", "bernoulli", "multinomial")
    }

    def rule(name, tree, text):
        for function, node in calls(tree):
            foreign = function.startswith(("random.", "np.random.", "numpy.random."))
            if (
                function in ("torch.manual_seed", "torch.seed")
                or (foreign and name != "core/seeds.py")
                or (function in drawing and "generator" not in keywords(node))
            ):
                yield node.lineno

    assert not found(rule)


def test_the_library_does_not_print():
    def rule(name, tree, text):
        if not name.startswith(TALKERS):
            yield from (node.lineno for function, node in calls(tree) if function == "print")

    assert not found(rule)


def test_nothing_is_left_unfinished():
    words = ("TODO", "FIXME", "XXX", "NotImplementedError")
    assert not found(lambda name, tree, text: [word for word in words if word in text])


def test_no_bare_except():
    def rule(name, tree, text):
        for node in ast.walk(tree):
            if isinstance(node, ast.ExceptHandler) and node.type is None:
                yield node.lineno

    assert not found(rule)


def test_no_star_import():
    def rule(name, tree, text):
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom) and node.names[0].name == "*":
                yield node.lineno

    assert not found(rule)


def test_functions_have_at_most_80_lines():
    def rule(name, tree, text):
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef) and body_lines(node) > 80:
                yield f"{node.lineno} {node.name}"

    assert not found(rule)


def test_files_have_at_most_500_lines():
    assert not found(lambda name, tree, text: [len(text.splitlines())] if text.count("\n") > 500 else [])


def test_rooms_import_only_public_names_of_one_another():
    def rule(name, tree, text):
        for node in ast.walk(tree):
            module = (isinstance(node, ast.ImportFrom) and node.module) or ""
            if re.match(r"hcdc\.\w+\._", module) and module.split(".")[1] != name.split("/")[0]:
                yield f"{node.lineno} {module}"

    assert not found(rule)


def test_only_tasks_data_and_networks_ask_for_the_kind():
    asks = re.compile(
        r"isinstance\([^)]*(?:Task|Images|Nodes|Rows|Graph|Table)(?:Data)?\b|\.kind\s*[!=]=|\.kind\s+in\b"
    )

    def rule(name, tree, text):
        if name.split("/")[0] not in ("tasks", "datasets", "networks"):
            yield from asks.findall(text)

    assert len(found(rule)) <= 10


def test_public_names_exist():
    for room in [
        hcdc,
        *(importlib.import_module(f"hcdc.{m.name}") for m in pkgutil.iter_modules(hcdc.__path__)),
    ]:
        listed = getattr(room, "__all__", [])
        assert sorted(set(listed)) == sorted(listed), room.__name__
        assert not [name for name in listed if not hasattr(room, name)], room.__name__


def test_optional_packages_are_loaded_only_when_needed():
    """All public names, in a fresh process, load what the core install has and nothing of the extras."""
    code = f"import sys; from hcdc import *; print([m for m in {OPTIONAL!r} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_every_file_of_the_package_is_shipped():
    patterns = project()["tool"]["setuptools"]["package-data"]["hcdc"]
    others = [
        p.relative_to(SOURCE) for p in SOURCE.rglob("*") if p.is_file() and p.suffix not in (".py", ".pyc")
    ]
    others = [p for p in others if not any(part.startswith(".") for part in p.parts)]
    assert "py.typed" in map(str, others)
    assert not [str(p) for p in others if not any(fnmatch.fnmatch(str(p), pattern) for pattern in patterns)]


def test_the_command_exists():
    module, attribute = project()["project"]["scripts"]["hcdc"].split(":")
    assert callable(getattr(importlib.import_module(module), attribute))


def test_constraints_pin_every_dependency_exactly_and_nothing_of_cuda():
    lines = [line for line in (ROOT / "constraints.txt").read_text().splitlines() if not line.startswith("#")]
    pins = dict(line.split("==") for line in lines)
    names = {name.lower().replace("_", "-") for name in pins}
    assert pins["torch"] == "2.13.0"
    assert not [name for name in names if name.startswith(("nvidia", "cuda", "triton", "hcdc"))]
    described = project()["project"]
    groups = [described["dependencies"], *described["optional-dependencies"].values()]
    needed = {
        item.split(">=")[0].lower() for group in groups for item in group if not item.startswith("hcdc[")
    }
    assert needed <= names
