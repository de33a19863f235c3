"""Reproduction ``nas`` on a few images with a made-up table."""

import csv
import itertools

import pytest
from small_cifar import write_images

from hcdc.core import records
from hcdc.core.errors import InputError
from hcdc.experiments.reproductions import nas, reproduce
from hcdc.truth import COLUMNS, NASBench201Table

QUICK = {
    "searchers": "darts-pt-small", "data": nas.DATA, "per_class": 1, "val_per_class": 1, "epochs": 1,
    "tune_epochs": 0, "batch": 20,
    "options": {
        "dc": {"iterations": 1, "outer": 1, "width": 4},
        "hcdc": {"probes": 4, "companions": 0, "probe_steps": 2, "pool": 20},
    },
}  # fmt: skip


@pytest.fixture(scope="module")
def sources(tmp_path_factory):
    """Every cell has an entry, connected or not; accuracies tell cells and columns apart."""
    folder = tmp_path_factory.mktemp("cifar")
    with (table := folder / "table.csv").open("w") as file:
        rows = csv.writer(file)
        rows.writerow(["index", "ops", *COLUMNS])
        for index, numbers in enumerate(itertools.product(range(5), repeat=6)):
            values = [10 + index / 200 + column / 1000 for column in range(len(COLUMNS))]
            rows.writerow([index, "-".join(map(str, numbers)), *values])
    return {"dataset": str(write_images(folder / "images.npz")), "table_file": str(table)}


@pytest.fixture
def command(sources, tmp_path):
    """Runs the searches with some settings more; returns the records so far."""
    out = tmp_path / "out.jsonl"

    def run(**changes):
        reproduce(nas.NAS.at("smoke", {**QUICK, **sources, **changes}), [7], out)
        return list(records.read(out))

    return run


def test_each_data_set_is_searched_once_and_its_cell_looked_up(command, sources, tmp_path):
    found = command()
    assert [r["data"] for r in found] == ["random", "dc", "hcdc", "original"]
    table = NASBench201Table(sources["table_file"])
    for r in found:
        assert r["test_accuracy"] == pytest.approx(table.lookup(r["cell"], "c10_test_200") / 100, abs=1e-5)
        assert r["val_accuracy"] == pytest.approx(table.lookup(r["cell"], "c10_valid_200") / 100, abs=1e-5)
        assert r["search_seconds"] > 0
        assert (r["settings"]["epochs"], r["settings"]["batch"], r["settings"]["cells"]) == (1, 20, 1)
    plain, dc, hcdc, original = found
    assert (original["train_size"], original["val_size"], original["making_seconds"]) == (60, 40, 0)
    assert all((r["train_size"], r["val_size"]) == (10, 10) for r in (plain, dc, hcdc))
    assert all(r["making_seconds"] > 0 for r in (plain, dc, hcdc))
    assert dc["making"] == {"iterations": 1, "outer": 1, "width": 4}
    assert [r["probes"] for r in found] == [0, 0, 4, 0]
    assert hcdc["probe_seconds"] > 0
    assert [r["best_probe"] is None for r in found] == [True, True, False, True]
    again = command()
    assert len(again) == len(found)  # nothing is left to run
    assert len(command(batch=10, data="random")) == len(found) + 1  # other settings
    assert len(list((tmp_path / "out-copies").glob("*.hcdc"))) == 3


def test_unknown_data_is_refused(command):
    with pytest.raises(InputError, match="--set data 'herding' is not known"):
        command(data="random,herding")
