"""Results of NAS-Bench-Graph's architectures."""

from __future__ import annotations

import math
import os
from pathlib import Path

import numpy as np
import pytest

from hcdc.core.errors import InputError
from hcdc.spaces import NASBenchGraph
from hcdc.truth import GRAPH_COLUMNS, GRAPHS, NASBenchGraphTable, NASBenchGraphTruth

SPACE = NASBenchGraph()
CHAIN = SPACE.from_numbers((8, 8, 0, 1, 2))  # in the table
SAME = SPACE.from_numbers((8, 0, 8, 1, 2))  # computes the same
ABSENT = SPACE.from_numbers((0, 0, 0, 0, 1))


def written(path, leave_out=()):
    arrays = {"arch": np.array([88012, 0], dtype=np.int32)}
    for k, graph in enumerate(GRAPHS):
        for j, column in enumerate(GRAPH_COLUMNS):
            arrays[f"{graph}_{column}"] = np.array([k + j / 8, 0.5], dtype=np.float32)
    np.savez(path, **{name: array for name, array in arrays.items() if name not in leave_out})
    return path


def test_a_table_is_read_by_computation(tmp_path):
    table = NASBenchGraphTable(written(tmp_path / "t.npz"))
    assert len(table) == 2
    assert table.lookup(CHAIN, "citeseer", "perf") == table.lookup(SAME, "citeseer", "perf") == 1.125
    assert table.has(SAME)
    assert not table.has(ABSENT)


def test_truth_is_validation_and_test_accuracy(tmp_path):
    truth = NASBenchGraphTruth(NASBenchGraphTable(written(tmp_path / "t.npz")), "pubmed")
    assert (truth.score(CHAIN), truth.score(CHAIN, "test")) == (2.0, 2.125)
    assert truth.known(CHAIN)
    assert not truth.known(ABSENT)
    assert math.isnan(truth.seconds(CHAIN))
    with pytest.raises(InputError, match="is not in this NAS-Bench-Graph table of 2"):
        truth.ensure([ABSENT])
    with pytest.raises(InputError, match="none of length 12"):
        truth.score(CHAIN, fidelity=12)


def test_what_is_wrong_is_said(tmp_path):
    with pytest.raises(InputError, match="there is no NAS-Bench-Graph table"):
        NASBenchGraphTable(tmp_path / "none.npz")
    with pytest.raises(InputError, match="has no array"):
        NASBenchGraphTable(written(tmp_path / "t.npz", ("cora_perf",)))
    (tmp_path / "broken.npz").write_text("no zip")
    with pytest.raises(InputError, match="cannot be read"):
        NASBenchGraphTable(tmp_path / "broken.npz")
    with pytest.raises(InputError, match="did you mean 'cora'"):
        NASBenchGraphTruth(NASBenchGraphTable(written(tmp_path / "u.npz")), "coro")


@pytest.mark.data
def test_the_benchmark_itself():
    path = Path(os.environ.get("HCDC_DATA", "")) / "nasbench_graph.npz"
    if not path.is_file():
        pytest.skip("HCDC_DATA is not set or holds no nasbench_graph.npz")
    truth, raw = NASBenchGraphTruth(NASBenchGraphTable(path), "cora"), np.load(path)
    for row in range(0, len(raw["arch"]), 2_000):
        config = SPACE.from_numbers([int(digit) for digit in f"{raw['arch'][row]:05d}"])
        assert truth.score(config) == float(raw["cora_valid_perf"][row])
        assert truth.score(config, "test") == float(raw["cora_perf"][row])
