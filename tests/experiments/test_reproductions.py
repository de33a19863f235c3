"""``hcdc reproduce`` behind the command: units are skipped, continued and split; every name runs at smoke."""

import copy
import itertools
import json
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest
from small_cifar import figures, write_images, write_table

from hcdc.core import records
from hcdc.core.errors import InputError
from hcdc.experiments.reproductions import (
    REPRODUCTIONS,
    SCALES,
    Reproduction,
    Scale,
    Table,
    listing,
    parse_seeds,
    parse_shard,
    reproduce,
)
from hcdc.experiments.reproductions._frame import SEEDS, mean_text
from hcdc.experiments.reproductions._run import key, read
from hcdc.experiments.standing import standing
from hcdc.spaces import NASBenchGraph, operations
from hcdc.truth import COLUMNS, GRAPH_COLUMNS, GRAPHS


@dataclass(frozen=True)
class Squares(Reproduction):
    """Each unit squares its number; ``broken`` stops there."""

    datasets: tuple[str, ...] = ("embedded",)
    numbers: tuple[int, ...] = (1, 2, 3)
    power: int = 2

    name, label, title = "squares", "tab:none", "squares of numbers"
    axes = ("datasets", "numbers")
    scales: ClassVar = dict.fromkeys(SCALES, Scale())
    broken: ClassVar[int | None] = None

    def units(self, seeds):
        every = itertools.product(seeds, self.datasets, self.numbers)
        return [self.unit(seed, dataset=dataset, number=number) for seed, dataset, number in every]

    def check(self, unit, work):
        if unit["number"] > 99:
            raise InputError("--set numbers: too large")

    def run(self, unit, work):
        if unit["number"] == self.broken:
            raise KeyboardInterrupt
        value = unit["number"] ** self.power
        return [{"value": value + part, "part": part} for part in range(1 + (unit["number"] == 3))]

    def table(self, found):
        return Table(["number", "value"], [[str(r["unit"]["number"]), str(r["value"])] for r in found])


def lasting(file):
    """The records without what differs from run to run."""
    return [{k: v for k, v in r.items() if k not in ("seconds", "environment")} for r in records.read(file)]


def test_a_record_says_what_was_run_and_where(tmp_path):
    found = reproduce(Squares(), [7], out := tmp_path / "a.jsonl")
    assert (found.done, found.units, found.notes) == (3, 3, [])
    assert found.table.rows == [["1", "1"], ["2", "4"], ["3", "9"], ["3", "10"]]
    *_, last = records.read(out)
    assert last["protocol"] == "squares"
    assert last["unit"] == {"dataset": "embedded", "number": 3, "seed": 7, "settings": {"power": 2}}
    assert (last["parts"], last["part"]) == (2, 1)
    assert last["seconds"] >= 0
    assert {"commit", "device", "time"} <= last["environment"].keys()


def test_a_run_that_was_stopped_continues_to_the_same_file(tmp_path, monkeypatch):
    whole, cut = tmp_path / "whole.jsonl", tmp_path / "cut.jsonl"
    reproduce(Squares(), [0, 1], whole)
    monkeypatch.setattr(Squares, "broken", 2)
    with pytest.raises(KeyboardInterrupt):
        reproduce(Squares(), [0, 1], cut)
    assert len(lasting(cut)) == 1
    monkeypatch.setattr(Squares, "broken", None)
    reproduce(Squares(), [0, 1], cut)
    assert lasting(cut) == lasting(whole)
    before = whole.read_bytes()
    reproduce(Squares(), [0, 1], whole)  # nothing is left to do
    assert whole.read_bytes() == before


def test_a_unit_whose_records_are_incomplete_is_run_again(tmp_path):
    out = tmp_path / "a.jsonl"
    reproduce(Squares(numbers=3), [0], out)
    out.write_text(out.read_text().splitlines(keepends=True)[0])
    assert reproduce(Squares(numbers=3), [0], out).done == 1
    assert [r["part"] for r in lasting(out)] == [0, 0, 1]


def test_other_settings_and_seeds_are_other_units(tmp_path):
    out = tmp_path / "a.jsonl"
    reproduce(Squares(), [0], out)
    cubes = reproduce(Squares.at("smoke", {"power": 3, "numbers": "2"}), [0], out)
    assert cubes.table.rows == [["2", "8"]]  # the squares in the file are left out
    assert reproduce(Squares(numbers=2), [0, 1], out).done == 2


def test_shards_join_to_the_same_records(tmp_path):
    whole = tmp_path / "whole.jsonl"
    reproduce(Squares(), [0, 1], whole)
    parts = []
    for index in range(4):
        part = reproduce(Squares(), [0, 1], file := tmp_path / f"{index}.jsonl", shard=(index, 4))
        assert part.done == len({json.dumps(r["unit"]) for r in lasting(file)}) < part.units == 6
        parts += lasting(file)
    assert sorted(map(json.dumps, parts)) == sorted(map(json.dumps, lasting(whole)))


def test_what_cannot_be_is_refused_before_anything_is_written(tmp_path):
    with pytest.raises(InputError, match="too large"):
        reproduce(Squares(numbers=(1, 100)), [0], tmp_path / "a.jsonl")
    assert list(tmp_path.iterdir()) == []


def test_data_that_cannot_be_had_is_left_out_with_the_loaders_sentence(tmp_path, monkeypatch):
    monkeypatch.setenv("HCDC_DATA", str(tmp_path))
    found = reproduce(Squares(datasets=("ogbn-arxiv", "embedded")), [0], tmp_path / "a.jsonl")
    assert (found.done, found.units) == (3, 6)
    assert found.notes[0].startswith("ogbn-arxiv: ")
    with pytest.raises(InputError, match="ogbn-arxiv: "):
        reproduce(Squares(datasets="ogbn-arxiv"), [0], tmp_path / "b.jsonl")


def test_settings_are_given_as_text_lists_or_one_value():
    assert Squares.at("smoke", {"numbers": "1, 2"}).numbers == (1, 2)
    assert Squares.at("smoke", {"numbers": [5]}) == Squares(numbers=5) == Squares(numbers=(5,))
    for wrong in ({"numbers": "one"}, {"numbers": ""}, {"datasets": [1]}):
        with pytest.raises(InputError, match="give one or more, with commas"):
            Squares.at("smoke", wrong)
    for wrong in ({"power": "two"}, {"powers": 3}, {"dc.steps": 3}):
        with pytest.raises(InputError, match="reproduction 'squares'"):
            Squares.at("smoke", wrong)
    with pytest.raises(InputError, match="--scale 'smal' is not known; did you mean 'small'"):
        Squares.at("smal")
    image = REPRODUCTIONS["nas201"].at("smoke", {"dc.iterations": 3, "hcdc.probes": 5})
    assert image.options["dc"] == {"iterations": 3}
    assert (image.options["hcdc"]["probes"], image.options["hcdc"]["companions"]) == (5, 0)
    assert REPRODUCTIONS["filters-80"].at("smoke", {"recipe.lr": 0.5}).recipe == {"steps": 5, "lr": 0.5}


def test_one_setting_of_a_group_is_changed_and_the_others_stay():
    """Those of the scale, or else the defaults of the class."""
    for name in ("recipe", "full_recipe"):
        what = REPRODUCTIONS["filters-80"].at("smoke", {f"{name}.lr": 0.5})
        assert getattr(what, name) == {
            **REPRODUCTIONS["filters-80"].scales["smoke"].settings[name],
            "lr": 0.5,
        }
    ablations = REPRODUCTIONS["ablations"]
    assert ablations.at("small", {"options.steps": 10}).options == {**ablations().options, "steps": 10}
    cells = REPRODUCTIONS["nas201"]
    usual, changed = (cells.at("small", more).options["dc"] for more in ({}, {"dc.outer": 2}))
    assert changed == {**usual, "outer": 2} != usual  # an option of a method


def test_seeds_and_shards_are_read():
    assert (parse_seeds("2"), parse_seeds("0:3")) == ([100, 101], [0, 1, 2])
    assert parse_shard("1/3") == (1, 3)
    for text in ("0", "x", "3:3", "-1", "1,2"):
        with pytest.raises(InputError, match=f"--seeds {text}: give a number such as 5"):
            parse_seeds(text)
    for text in ("2/2", "1", "a/b", "0/0"):
        with pytest.raises(InputError, match=f"--shard {text}: give I/N"):
            parse_shard(text)


def test_a_row_says_who_is_first():
    ours, near, far = [0.90, 0.92, 0.91], [0.90, 0.93, 0.89], [0.5, 0.52, 0.51]
    assert standing({"hcdc": ours, "random": far}, "hcdc") == "first"
    assert standing({"hcdc": ours, "random": far, "dm": near}, "hcdc") == "tied with dm"
    assert standing({"hcdc": far, "dm": near}, "hcdc") == "beaten by dm"
    assert standing({"hcdc": [0.5], "dm": [0.6]}, "hcdc") == "beaten by dm"
    assert standing({"hcdc": ours, "dm": []}, "hcdc") == ""
    assert [mean_text([0.5]), mean_text([]), mean_text([float("nan")])] == [
        "0.50 (1)",
        "not run",
        "undefined",
    ]


def test_the_list_has_every_name_and_the_records_that_exist(tmp_path, monkeypatch):
    monkeypatch.setitem(REPRODUCTIONS, "squares", Squares)
    reproduce(Squares(), [0], tmp_path / "squares.jsonl")
    rows = {row["name"]: row for row in listing(tmp_path)}
    assert list(rows) == sorted(REPRODUCTIONS)
    assert rows["squares"]["records"] == {"squares.jsonl": 4}
    assert rows["squares"]["scales"]["smoke"] == {"units": 3, "takes": "seconds"}
    assert rows["filters-80"]["records"] == {}
    for row in rows.values():
        assert tuple(row["scales"]) == SCALES
        assert row["scales"]["smoke"]["units"] <= row["scales"]["paper"]["units"]


def test_what_small_takes_is_what_its_records_took():
    """Recorded on shared cores, so up to half as much again."""
    folder = Path(__file__).parents[2] / "records"
    for name, kind in REPRODUCTIONS.items():
        small, file = kind.scales["small"], folder / f"{name}.jsonl"
        seconds = {key(r["unit"]): r["seconds"] for r in read(file, kind) if "unit" in r}
        units = map(key, kind.at("small").units(range(SEEDS, SEEDS + small.seeds)))
        assert sum(seconds.get(unit, 0.0) for unit in units) <= 1.5 * small.seconds, name


def test_hypergradients_are_the_slopes_of_the_drawn_curve(tmp_path):
    found = reproduce(REPRODUCTIONS["loss-landscape"].at("smoke"), [100], out := tmp_path / "a.jsonl")
    (record,) = records.read(out)
    assert record["hypergradient"] == pytest.approx(record["difference"], rel=1e-5, abs=1e-8)
    assert max(map(abs, record["hypergradient"])) > 1e-3
    theta = record["theta"]
    for optimum, losses in zip(record["optimum"], record["train_loss"]):  # the curve lies in the valley
        assert abs(theta[losses.index(min(losses))] - optimum) <= abs(theta[1] - theta[0])
    assert found.figure == tmp_path / "a.png"
    assert found.figure.read_bytes().startswith(b"\x89PNG")


@pytest.fixture(scope="module")
def cifar(tmp_path_factory):
    """Few images, and a table with every cell, connected or not."""
    folder = tmp_path_factory.mktemp("cifar")
    table = write_table(folder / "table.csv")
    there = {tuple(operations(cell)) for cell in figures()}
    with table.open("a") as file:
        for index, numbers in enumerate(itertools.product(range(5), repeat=6)):
            if numbers not in there:
                values = [50 + column for column in range(len(COLUMNS))]
                file.write(",".join(map(str, [90_000 + index, "-".join(map(str, numbers)), *values])) + "\n")
    images = str(write_images(folder / "images.npz"))
    return {
        "nas201": {"datasets": f"{images}:cifar10", "table_file": str(table)},
        "images-rank": {"datasets": f"{images}:cifar10", "table_file": str(table)},
        "nas": {"dataset": images, "table_file": str(table)},
        "nasbench-graph": {"table_file": str(graph_table(folder / "graphs.npz"))},
    }


def graph_table(path):
    """A table of NAS-Bench-Graph with made-up results."""
    space, rng = NASBenchGraph(), np.random.default_rng(0)
    codes = [int("".join(map(str, space.to_numbers(config)))) for config in space.candidates()]
    columns = {f"{graph}_{column}": rng.random(len(codes)) for graph in GRAPHS for column in GRAPH_COLUMNS}
    np.savez(path, arch=np.asarray(codes), **columns)
    return path


@pytest.mark.parametrize("name", sorted(REPRODUCTIONS))
def test_every_name_runs_at_smoke(name, cifar, tmp_path):
    what = REPRODUCTIONS[name].at("smoke", cifar.get(name))
    found = reproduce(what, [100], out := tmp_path / "a.jsonl")
    assert found.done == found.units > 0
    assert found.table.rows
    assert {len(row) for row in found.table.rows} == {len(found.table.head)}
    assert any("paper" in text or "published" in text for text in found.table.head)
    every = list(records.read(out))
    assert all(r["seconds"] > 0 and r["environment"]["device"] for r in every)
    again = copy.deepcopy(every)
    assert reproduce(what, [100], out).table == found.table
    assert list(records.read(out)) == again
