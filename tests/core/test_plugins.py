"""Modules of other people: installed, by name, by file."""

import logging
import sys

import pytest

from hcdc import InputError
from hcdc.core.plugins import import_module_or_file, load_attribute, load_plugins


@pytest.fixture(autouse=True)
def place(tmp_path, monkeypatch):
    """A folder to work in; what is imported from it is forgotten afterwards."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", sys.path[:])
    before = set(sys.modules)
    load_plugins.cache_clear()
    yield tmp_path
    for name in set(sys.modules) - before:
        del sys.modules[name]
    load_plugins.cache_clear()


def write(place, name, text):
    (place / name).parent.mkdir(parents=True, exist_ok=True)
    (place / name).write_text(text)


def test_a_module_in_the_current_folder(place):
    write(place, "plugged_here.py", "VALUE = 3")
    assert import_module_or_file("plugged_here").VALUE == 3


def test_a_file_is_imported_once_and_finds_its_neighbours(place):
    write(place, "far/plugged_neighbour.py", "VALUE = 4")
    write(place, "far/plugged_file.py", "from plugged_neighbour import VALUE\nMADE = object()")
    first = import_module_or_file("far/plugged_file.py")
    assert first.VALUE == 4
    assert first.__name__ == "plugged_file"
    assert import_module_or_file(str(place / "far" / "plugged_file.py")).MADE is first.MADE
    assert import_module_or_file("plugged_file").MADE is first.MADE


def test_an_object_by_name(place):
    write(place, "plugged_object.py", "class Nets:\n    @staticmethod\n    def small(config): return 5")
    assert load_attribute("plugged_object.py:Nets.small")({}) == 5
    assert load_attribute("plugged_object:Nets.small")({}) == 5


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("plugged_nowhere", "'plugged_nowhere' cannot be imported: ModuleNotFoundError: No module named"),
        ("plugged_nowhere.py", "plugged_nowhere.py' does not exist"),
        ("plugged_broken.py", "'plugged_broken.py' cannot be imported: ZeroDivisionError: division by zero"),
        ("json.py", "another module is named 'json' already; rename the file"),
        ("", "cannot be imported: ValueError"),
    ],
)
def test_what_cannot_be_imported_is_refused(place, text, said):
    write(place, "plugged_broken.py", "1 / 0")
    write(place, "json.py", "")
    for _ in range(2):  # nothing is left of a module that failed
        with pytest.raises(InputError) as refused:
            import_module_or_file(text)
        assert said in str(refused.value)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("plugged.py", "'plugged.py' must be FILE.py:NAME or MODULE:NAME"),
        ("plugged.py:", "must be FILE.py:NAME"),
        (":net", "must be FILE.py:NAME"),
        ("plugged.py:net", "'plugged.py' has no 'net'"),
    ],
)
def test_what_is_no_object_is_refused(place, text, said):
    write(place, "plugged.py", "")
    with pytest.raises(InputError) as refused:
        load_attribute(text)
    assert said in str(refused.value)


def test_installed_plugins_are_imported_once(place, monkeypatch, caplog):
    """A package is installed by its metadata alone."""
    write(place, "site/plugged_in.py", "import sys\nsys.plugged = getattr(sys, 'plugged', 0) + 1")
    write(place, "site/own-1.dist-info/METADATA", "Metadata-Version: 2.1\nName: own\nVersion: 1\n")
    listed = "[hcdc.plugins]\ngood = plugged_in\nbad = plugged_nowhere\n"
    write(place, "site/own-1.dist-info/entry_points.txt", listed)
    monkeypatch.syspath_prepend(str(place / "site"))
    monkeypatch.setattr(sys, "plugged", 0, raising=False)
    with caplog.at_level(logging.WARNING, logger="hcdc"):
        load_plugins()
        load_plugins()
    assert sys.plugged == 1
    assert [record.getMessage() for record in caplog.records] == [
        "plugin 'bad' (plugged_nowhere) cannot be loaded: ModuleNotFoundError: No module named "
        "'plugged_nowhere'"
    ]
