"""Protocol nas201 on digits with a made-up table: who judges, what is recorded, what the table says."""

import dataclasses
import json

import numpy as np
import pytest

from hcdc.condensers import make_probing
from hcdc.core import records
from hcdc.core.errors import InputError
from hcdc.core.seeds import numpy_stream
from hcdc.experiments import nas201
from hcdc.experiments.nas201 import Protocol, companion_cells, judging_cells, probe_cells
from hcdc.spaces import NASBench201


def made_up(cell, column):
    """Accuracies that differ from cell to cell, and from column to column."""
    return 50 + 40 * float(numpy_stream(0, cell, column).random())


class Table:
    def __init__(self, path):
        self.path = path

    def lookup(self, cell, column):
        return made_up(cell, column)


@pytest.fixture
def protocol(monkeypatch, tmp_path):
    monkeypatch.setattr(nas201, "NASBench201Table", Table)
    made = Protocol("digits", "none.csv", "cifar10", 2, 1, 6, 3, tmp_path / "out.jsonl", "cpu")
    made.calibrated = dataclasses.replace(made.calibrated, steps=2, seeds=1)
    made.probing = make_probing("images", probes=4, companions=4, probe_steps=2, pool=30)
    return made


def test_judges_probes_companions_and_tuning_cells_are_apart():
    tuning = {c["cell"] for c in NASBench201().candidates()[:1000]}
    judges = {c["cell"] for c in judging_cells(512)}
    probes = {c["cell"] for draw in range(20) for c in probe_cells(draw, 20, 512)}
    companions = {c["cell"] for seed in range(5) for c in companion_cells(seed, 60)}
    assert len(judges) == 512
    assert len(probes) > 300
    assert len(companions) > 200
    groups = (tuning, judges, probes, companions)
    assert not any(a & b for i, a in enumerate(groups) for b in groups[i + 1 :])
    assert probe_cells(3, 20, 512) == probe_cells(3, 20, 512) != probe_cells(4, 20, 512)


def test_records_of_hcdc_hold_every_judge_and_what_was_known(protocol):
    protocol.write_truth()
    protocol.hcdc(7, "random", range(2), ["probes", "weighted"], whole=True)
    truth, *found = records.read(protocol.out)
    labels = [(r["label"], r["draw"]) for r in found]
    assert labels == [
        ("random-val", None), ("real-val", None), ("hcdc-probes", 0), ("hcdc-weighted", 0),
        ("hcdc-probes", 1), ("hcdc-weighted", 1),
    ]  # fmt: skip
    assert truth["cells"] == [c["cell"] for c in judging_cells(6)]
    assert truth["val"] == [made_up(cell, "c10_valid_200") / 100 for cell in truth["cells"]]
    assert truth["test"] == [made_up(cell, "c10_test_200") / 100 for cell in truth["cells"]]
    for r in found:
        assert len(r["loss"]) == len(r["score"]) == 6
        assert np.isfinite(r["loss"]).all()
        assert r["recipe"]["steps"] == 2
        assert r["seed"] == 7
        assert r["judge_seconds"] > 0
        assert json.loads(json.dumps(r)) == r
    learned = [r for r in found if r["label"].startswith("hcdc")]
    for r in learned:
        assert r["probe_scores"] == [made_up(cell, "c10_valid_200") / 100 for cell in r["probes"]]
        assert {len(v) for v in r["probe_losses"].values()} == {4}
        assert not set(r["probes"]) & set(truth["cells"])
    assert learned[0]["probes"] == learned[1]["probes"] != learned[2]["probes"]
    assert len({tuple(r["loss"]) for r in found}) == 6  # every validation set judges in its own way


def test_copies_are_judged_on_some_cells_by_both_recipes(protocol, monkeypatch):
    monkeypatch.setattr(nas201, "PUBLISHED", dataclasses.replace(nas201.PUBLISHED, steps=3, batch=10))
    protocol.copy("herding", 1, ["calibrated", "published"])
    protocol.hcdc(8, "random", range(1), ["weighted"], whole=False)
    found = list(records.read(protocol.out))
    assert [(r["label"], r.get("recipe_name")) for r in found[:2]] == [
        ("herding", "calibrated"), ("herding", "published")
    ]  # fmt: skip
    assert [r["recipe"]["steps"] for r in found[:2]] == [2, 3]
    assert all(len(r["val.loss"]) == len(r["real.score"]) == 3 for r in found[:2])
    assert all(len(r["loss"]) == 3 for r in found[2:])


def test_what_is_not_known_is_refused_before_the_work(protocol):
    with pytest.raises(InputError, match=r"--modes.*'aligned'.*probes, weighted"):
        protocol.hcdc(0, "random", range(1), ["probes", "aligned"], whole=True)
    with pytest.raises(InputError, match=r"--recipes.*'best'.*calibrated, published"):
        protocol.copy("random", 0, ["best"])
    assert not protocol.out.exists()
