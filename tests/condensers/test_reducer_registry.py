import dataclasses
import json
from dataclasses import dataclass
from importlib import resources

import pytest
from tiny_graph import tiny_task
from tiny_images import tiny_image_task

from hcdc.condensers import (
    REDUCERS,
    Reducer,
    condense,
    make_reducer,
    plan,
    reducer_for,
    reducer_presets,
    register_reducer,
)
from hcdc.core.errors import InputError
from hcdc.core.settings import setting
from hcdc.spaces import NASBench201, PolynomialFilter
from hcdc.testing import ReducerConformance


def test_names():
    assert set(REDUCERS) == {"random", "reach", "neighbours", "kcenter", "herding", "gcondx", "gcond"} | {
        "dc",
        "dsa",
        "dm",
        "kip",
        "tm",
    }


@pytest.mark.parametrize("name", sorted(REDUCERS))
def test_every_preset_makes_a_reducer_with_all_its_settings_written_out(name):
    for preset, content in reducer_presets(name).items():
        assert set(content) == {"note", "settings"}
        reducer = make_reducer(name, preset)
        assert reducer.settings() == content["settings"]
        assert ("shortened" in content["note"]) == (preset == "demo" and bool(content["settings"]))


@pytest.mark.parametrize("name", sorted(REDUCERS))
def test_the_default_preset_is_the_default(name):
    assert make_reducer(name, "default") == make_reducer(name) == REDUCERS[name]()


@pytest.mark.parametrize(
    ("preset", "reference"),
    [
        (
            "cora",
            {"lr_feat": 1e-4, "lr_adj": 1e-4, "outer": 20, "inner": 15, "epochs": 600, "pge_hidden": 128},
        ),
        (
            "citeseer",
            {"lr_feat": 1e-4, "lr_adj": 1e-4, "outer": 20, "inner": 15, "epochs": 600, "pge_hidden": 128},
        ),
        (
            "arxiv",
            {
                "lr_feat": 0.01,
                "lr_adj": 0.01,
                "outer": 20,
                "inner": 3,
                "epochs": 1000,
                "pge_hidden": 256,
                "hidden": 256,
            },
        ),
        (
            "reddit",
            {"lr_feat": 0.1, "lr_adj": 0.1, "outer": 10, "inner": 1, "epochs": 1000, "pge_hidden": 256},
        ),
    ],
)
def test_reference_settings_of_gcond(preset, reference):
    settings = make_reducer("gcond", preset).settings()
    assert {key: settings[key] for key in reference} == reference
    assert settings["lr_model"] == 0.01
    assert settings["hops"] == 2


def test_overrides():
    assert make_reducer("gcond", "arxiv", epochs=7).settings()["epochs"] == 7
    assert make_reducer("gcond", "arxiv", epochs=7).settings()["inner"] == 3


@pytest.mark.parametrize(
    ("arguments", "overrides", "text"),
    [
        (["gcnod"], {}, "method 'gcnod' is not known; did you mean 'gcond'"),
        (["gcond", "corra"], {}, "preset of method 'gcond' 'corra' is not known; did you mean 'cora'"),
        (["random", "cora"], {}, "preset of method 'random' 'cora' is not known"),
        (["gcond"], {"epoch": 3}, "setting of method 'gcond' 'epoch' is not known; did you mean 'epochs'"),
        (["gcondx"], {"lr_adj": 0.1}, "setting of method 'gcondx' 'lr_adj' is not known"),
        (["random"], {"epochs": 3}, "method 'random' has no settings, but 'epochs' was given"),
        (["gcond"], {"epochs": "many"}, "setting 'epochs' of method 'gcond' must be int, got 'many'"),
        (["gcond"], {"epochs": 2.5}, "setting 'epochs' of method 'gcond' must be int, got 2.5"),
        (["gcond"], {"lr_feat": True}, "setting 'lr_feat' of method 'gcond' must be float, got True"),
    ],
)
def test_errors_are_sentences(arguments, overrides, text):
    with pytest.raises(InputError, match=text):
        make_reducer(*arguments, **overrides)


def test_preset_files_are_those_of_the_registered_names():
    files = {file.name for file in resources.files("hcdc.condensers").joinpath("presets").iterdir()}
    assert {f"{name}.json" for name in REDUCERS} <= files
    for name in REDUCERS:
        json.loads(resources.files("hcdc.condensers").joinpath("presets", f"{name}.json").read_text())


@dataclass(frozen=True)
class Few(Reducer):
    """A condenser of somebody else: the first examples that the task samples."""

    name = "few"
    takes = ("table", "graph")

    skip: int = setting(0, least=0)

    def reduce(self, task, part, size, seed, *, progress, checkpoint):
        return self.check_task(task).sample(part, size, seed + self.skip)


@pytest.fixture
def few():
    presets = {"later": {"note": "ours", "settings": {"skip": 3}}}
    yield register_reducer(Few, presets)
    del REDUCERS["few"]


def test_a_condenser_of_somebody_else_is_known_by_name(few):
    assert make_reducer("few", "later") == Few(skip=3)
    assert make_reducer("few", "default") == make_reducer("few") == Few()
    assert register_reducer(Few) is Few  # again
    small = condense(tiny_task(), PolynomialFilter(), "few", train_size=6, options={"skip": 1})
    assert len(small.train) == 6
    assert small.meta["settings"]["train"] == {"skip": 1}


def test_a_condenser_of_somebody_else_is_held_to_what_it_says(few):
    with pytest.raises(
        InputError, match="'few' condenses tables and graphs, but 'tiny' has images; use method"
    ):
        plan(tiny_image_task(), NASBench201(), "few", train_size=6)
    with pytest.raises(InputError, match="setting 'skip' of method 'few' must be at least 0, got -1"):
        register_reducer(Few, {"bad": {"note": "", "settings": {"skip": -1}}})
    with pytest.raises(InputError, match=r"method 'random' is hcdc.condensers._random.RandomReducer already"):
        register_reducer(type("Other", (Few,), {"name": "random"}))


@pytest.mark.parametrize(
    ("name", "takes"),
    [
        ("random", ()),
        ("reach", ("graph",)),
        ("kcenter", ("graph", "image", "table", "fitted")),
        ("tm", ("image",)),
    ],
)
def test_methods_say_what_they_take(name, takes):
    assert REDUCERS[name].takes == takes


def test_a_task_chooses_presets_and_defaults():
    images, graph = tiny_image_task(), tiny_task()
    assert reducer_for("kcenter", graph) == (make_reducer("kcenter"), "default")
    assert reducer_for("kcenter", images)[0].settings() == {"steps": 240, "hidden": 128}
    assert reducer_for("kcenter", images, "digits", {"steps": 3})[0].settings() == {"steps": 3, "hidden": 32}
    named = dataclasses.replace(graph, data=dataclasses.replace(graph.data, name="citeseer-embedded"))
    assert reducer_for("gcond", named)[1] == "citeseer"
    assert reducer_for("gcond", named, "paper")[1] == "citeseer"  # a preset of another method


@pytest.mark.usefixtures("few")
class TestFew(ReducerConformance):
    def make(self):
        return Few(skip=2)

    def task(self):
        return tiny_task()
