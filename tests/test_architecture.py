"""Rules of the house that no linter knows: what source files may not do, and what a plain import may load."""

from __future__ import annotations

import ast
import fnmatch
import importlib
import pkgutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import hcdc

SOURCE = Path(hcdc.__file__).parent
ROOT = Path(__file__).parent.parent
FILES = sorted(SOURCE.rglob("*.py"))
NAMES = [str(path.relative_to(SOURCE)) for path in FILES]
TALKERS = {
    "cli/_show.py",
    "core/progress.py",
}  # the command line prints; progress does where a command asks for it
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


@pytest.fixture(params=FILES, ids=NAMES)
def parsed(request):
    return str(request.param.relative_to(SOURCE)), ast.parse(request.param.read_text())


def test_every_module_says_what_it_is(parsed):
    name, tree = parsed
    assert ast.get_docstring(tree), f"{name} has no docstring"


def test_no_code_is_unpickled_or_evaluated(parsed):
    name, tree = parsed
    for function, node in calls(tree):
        given = keywords(node)
        assert function not in ("eval", "exec", "compile", "__import__"), f"{name}:{node.lineno}"
        assert "pickle" not in function, f"{name}:{node.lineno}"
        assert given.get("allow_pickle") != "True", f"{name}:{node.lineno}"
        assert function != "torch.load" or given.get("weights_only") == "True", f"{name}:{node.lineno}"


def test_random_numbers_come_from_named_streams(parsed):
    name, tree = parsed
    drawing = {
        f"torch.{f}" for f in ("rand", "randn", "randint", "randperm", "normal", "bernoulli", "multinomial")
    }
    for function, node in calls(tree):
        where = f"{name}:{node.lineno}: {function}"
        assert function not in ("torch.manual_seed", "torch.seed"), where
        if name != "core/seeds.py":
            assert not function.startswith(("random.", "np.random.", "numpy.random.")), where
        assert function not in drawing or "generator" in keywords(node), where


def test_the_library_does_not_print(parsed):
    name, tree = parsed
    if name in TALKERS or name.startswith("experiments/"):
        return
    assert not [node.lineno for function, node in calls(tree) if function == "print"]


def test_nothing_is_left_unfinished(parsed):
    name, tree = parsed
    text = (SOURCE / name).read_text()
    assert not [word for word in ("TODO", "FIXME", "XXX", "NotImplementedError") if word in text]
    for node in ast.walk(tree):
        assert not isinstance(node, ast.ExceptHandler) or node.type is not None, f"{name}:{node.lineno}"
        assert not isinstance(node, ast.ImportFrom) or node.names[0].name != "*", f"{name}:{node.lineno}"


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
