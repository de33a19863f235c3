"""Protocol cells-hypergradients: changes of edges, images of two estimates, a whole small run, its table."""

from __future__ import annotations

import pytest
import torch
from small_cifar import write_images, write_table

from hcdc.core import records
from hcdc.datasets import data
from hcdc.experiments import cell_hypergradients, tables
from hcdc.experiments.cell_hypergradient_table import WORDS, hypergradients_table
from hcdc.experiments.cell_hypergradients import Sizes, changes, halves, promised, relaxations
from hcdc.spaces import NASBench201, operations
from hcdc.tasks import ImageTask
from hcdc.truth import NASBench201Table, TableTruth

SMALL = Sizes(points=2, initialisations=2, channels=1, images=10, shrink=4, steps=1, iterations=1)


@pytest.fixture(scope="module")
def given(tmp_path_factory):
    folder = tmp_path_factory.mktemp("hypergradients")
    task = ImageTask(data(str(write_images(folder / "images.npz"))))
    return task, TableTruth(NASBench201Table(write_table(folder / "table.csv")), "cifar10")


def test_changes_are_of_one_edge_and_of_the_function(given):
    space, (_, truth) = NASBench201(), given
    for cell in space.candidates()[:20]:
        found = changes(space, truth, cell)
        own = space.encode(cell)
        assert {other["cell"] for *_, other in found} == {near["cell"] for near in space.neighbours(cell)}
        for new, old, other in found:
            lam = own.clone()
            assert lam[old] == 1
            lam[old], lam[new] = 0, 1
            assert space.counterpart(space.decode(lam)) == other


def test_a_promise_is_a_fall_of_the_loss():
    gradient = torch.arange(30.0).flip(0)
    new, old = torch.tensor([3, 5]), torch.tensor([0, 9])
    assert promised(gradient, new, old).tolist() == [3, -4]


def test_the_two_estimates_share_no_image(given):
    (first, val), (second, other) = halves(given[0], SMALL, 0)
    assert first.x.shape == (10, 3, 8, 8)
    assert first.y.tolist() == second.y.tolist() == val.y.tolist() == list(range(10))
    assert not torch.isclose(first.x.mean((1, 2, 3)), second.x.mean((1, 2, 3))).any()
    assert not torch.equal(val.x, other.x)


def test_relaxations_are_at_the_cell():
    space = NASBench201()
    cell = space.candidates()[0]
    found = relaxations(space, cell, SMALL, 0)
    for name in ("cell", "mixed"):
        relaxation, lam = found[name]
        assert relaxation == "softmax"
        assert lam.shape == (2, 30)
        assert space.decode(lam[1])["cell"] == cell["cell"]
    assert found["mixed"][1].sum(1).tolist() == pytest.approx([6, 6])
    assert not torch.equal(*found["gdas"][1])


def test_a_run_records_every_estimate_and_its_table(given, tmp_path):
    out = tmp_path / "records.jsonl"
    cell_hypergradients.run(*given, SMALL, 0, out)
    found = list(records.read(out))
    assert len({operations(r["cell"]) for r in found}) == 2
    for r in found:
        assert set(r["promised"]) == set(WORDS)
        for estimates in r["promised"].values():
            assert [[len(row) for row in half] for half in estimates] == [[len(r["changes"])] * 2] * 2
            assert estimates[0] != estimates[1]
        assert r["truth"]["val"][0] == pytest.approx(
            given[1].score({"cell": r["changes"][0]}) - given[1].score({"cell": r["cell"]}), abs=1e-4
        )
    again = tmp_path / "again.jsonl"
    records.append(again, found[1])
    cell_hypergradients.run(*given, SMALL, 0, again)
    known, other = records.read(again)
    assert known == found[1]
    assert (other["cell"], other["promised"]) == (found[0]["cell"], found[0]["promised"])
    text = tables.table("cells-hypergradients", found)
    assert text == hypergradients_table(found)
    assert text.count("\n") == 1 + len(WORDS) + 4
    assert "of 2 networks each" in text


def test_the_table_knows_agreement_from_noise():
    same = [[[1.0, -2.0, 3.0], [2.0, -4.0, 6.0]], [[1.0, -2.0, 3.0], [1.0, -2.0, 3.0]]]
    against = [[[-x for x in row] for row in half] for half in same]
    values = [[0.5, 0.25], [0.5, 0.25]]
    record = {
        "promised": dict.fromkeys(WORDS, same) | {"gdas total": [same[0], against[1]]},
        "parameters": [3, 1, 2],
        "truth": {"val": [0.1, -0.1, 0.2], "test": [0.2, 0.1, 0.0]},
        "values": dict.fromkeys(("cell", "mixed", "gdas"), values), "accuracy": {"val": 0.5, "test": 0.5},
    }  # fmt: skip
    better = {**record, "accuracy": {"val": 0.9, "test": 0.4}}
    better["values"] = {name: [[0.75, 0.5], [1.0, 0.5]] for name in ("cell", "mixed", "gdas")}
    rows = {
        line.split("|")[1].strip(): [part.strip() for part in line.split("|")[2:-1]]
        for line in hypergradients_table([record, better]).split("\n")[2:]
    }
    agreed = rows[WORDS["cell total"]]
    assert agreed[:4] == ["1.00 [1.00, 1.00]"] * 4
    assert agreed[4].startswith("-0.50")
    assert agreed[-1] == "100 % of 6"
    assert rows[WORDS["gdas total"]][0] == "-1.00 [-1.00, -1.00]"
    assert rows["values, `gdas`"] == ["1.00", "1.00", "1.00", "1.00", "-1.00", "1.00", "100 % of 1"]
