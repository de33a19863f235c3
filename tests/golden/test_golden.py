"""Every method on every kind of data gives what it gave when the golden results were written."""

import dataclasses
import json
from pathlib import Path

import pytest
import torch
from cases import LEARNED, cases, describe, features, run, start
from safetensors import safe_open
from safetensors.torch import load_file

import hcdc

HERE = Path(__file__).parent
RESULTS = json.loads((HERE / "golden.json").read_text())
TENSORS = load_file(HERE / "golden.safetensors")
CASES = cases()
FILES = sorted((HERE / "format1").glob("*.hcdc"))
LOOSE = {"history": 2e-3, "beside": 1e-4, "lam": 1e-4, "judged": 2e-3}
"""How close numbers must be that other processors round otherwise, by entry; all others up to 1e-6."""
ENTRIES = (
    "kind", "data", "task", "space", "method", "train_method", "val_method", "train_size", "val_size",
    "full_recipe", "calibrated_recipe", "metric", "seed", "candidates", "probes",
)  # fmt: skip


def differences(found, wanted, place="", tolerance=1e-6):
    """Where two JSON values are not the same, in words; numbers up to a tolerance."""
    if isinstance(wanted, dict) and isinstance(found, dict):
        told = [f"{place}: {key} is in one only" for key in sorted(set(found) ^ set(wanted))]
        for key in sorted(set(found) & set(wanted)):
            allowed = LOOSE.get(key, tolerance)
            told += differences(found[key], wanted[key], f"{place}/{key}", allowed)
        return told
    if isinstance(wanted, list) and isinstance(found, list) and len(found) == len(wanted):
        pairs = enumerate(zip(found, wanted))
        return [told for k, (a, b) in pairs for told in differences(a, b, f"{place}[{k}]", tolerance)]
    if isinstance(wanted, float) and isinstance(found, float):
        return (
            []
            if found == pytest.approx(wanted, rel=tolerance, abs=tolerance)
            else [f"{place}: {found}, not {wanted}"]
        )
    return [] if found == wanted else [f"{place}: {found}, not {wanted}"]


def apart(found, wanted):
    """Norm of the difference over the norm."""
    return float((found - wanted).norm() / wanted.norm().clamp_min(1e-12))


@pytest.mark.parametrize("case", CASES, ids=[case.name for case in CASES])
def test_the_result_is_the_golden_one(case):
    torch.set_num_threads(1)
    small, judged = run(case)
    found, tensors = describe(case, small, judged)
    assert differences(found, RESULTS[case.name]) == []
    prefix = f"{case.name}/"
    wanted = {key.removeprefix(prefix): v for key, v in TENSORS.items() if key.startswith(prefix)}
    assert set(tensors) == set(wanted)
    for name, tensor in tensors.items():
        assert tensor.shape == wanted[name].shape, name
        assert apart(tensor, wanted[name]) < 1e-4, name
    way = small.meta["val_method"]
    if way in LEARNED:
        assert apart(features(small.val), start(case)) > 0.03, "S_val is where it started"
    if way == "weighted":
        assert float(small.val.weight.std()) > 0.1, "all weights are equal"
    else:
        assert way == "real" or small.val.weight is None


def test_every_case_has_a_result_and_no_other_has():
    names = {case.name for case in CASES}
    assert set(RESULTS) == names
    assert {key.partition("/")[0] for key in TENSORS} <= names


def test_learned_edges_are_not_those_at_the_start():
    case = next(case for case in CASES if case.name == "graph-adjacency")
    near = dataclasses.replace(case.task(), structure="reach")
    begun = near.sample("val", case.arguments["val_size"], case.arguments.get("seed", 0)).graph.adj
    assert apart(TENSORS["graph-adjacency/val/adj"], begun.flatten()) > 0.03


def test_every_way_is_taken_on_every_kind_that_allows_it():
    taken = {(result["ways"][2], name.split("-")[0]) for name, result in RESULTS.items()}
    ways = ("aligned", "both", "probes", "same", "random", "real")
    assert {(way, kind) for way in ways for kind in ("graph", "image", "classes", "values")} <= taken
    assert {("weighted", "image"), ("weighted", "classes")} <= taken
    made = {(result["ways"][0], name.split("-")[0]) for name, result in RESULTS.items()}
    for kind, methods in (
        ("graph", "random kcenter herding reach gcondx gcond"),
        ("image", "random kcenter herding dc dsa dm kip tm"),
        ("classes", "random"),
        ("values", "random"),
    ):
        assert {(method, kind) for method in methods.split()} <= made


# --- files of the first format ------------------------------------------------------------------------------


def stored(path):
    """Tensors and description of a file as they are there, by safetensors alone."""
    with safe_open(path, "pt") as file:
        meta = json.loads(file.metadata()["hcdc"])
        return {key: file.get_tensor(key) for key in file.keys()}, meta  # noqa: SIM118


def same(small, tensors, meta):
    found = small.tensors()
    assert set(found) == set(tensors)
    for name, tensor in tensors.items():
        assert found[name].dtype == tensor.dtype
        assert torch.equal(found[name], tensor), name
    for name in ENTRIES:
        assert small.meta.get(name) == meta.get(name), name


def test_there_is_a_file_of_each_kind():
    assert {path.stem for path in FILES} == {"graph", "image", "image-weighted", "table"}


@pytest.mark.parametrize("path", FILES, ids=[path.stem for path in FILES])
def test_a_file_of_the_first_format_is_read(path):
    tensors, meta = stored(path)
    assert meta["format_version"] == 1
    assert meta["kind"] == path.stem.partition("-")[0]
    small = hcdc.CondensedDataset.load(path)
    same(small, tensors, meta)
    assert ("val/weight" in tensors) == ("weighted" in path.stem)
    assert small.meta["candidates"]


@pytest.mark.parametrize("path", FILES, ids=[path.stem for path in FILES])
def test_a_file_of_the_first_format_is_written_and_read_again(path, tmp_path):
    tensors, meta = stored(path)
    small = hcdc.CondensedDataset.load(path)
    same(hcdc.CondensedDataset.from_bytes(small.to_bytes()), tensors, meta)
    again = hcdc.CondensedDataset.load(small.save(tmp_path / "again.hcdc"))
    same(again, tensors, meta)
    assert again.to_bytes() == small.to_bytes()
