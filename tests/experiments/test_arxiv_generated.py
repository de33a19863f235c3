"""ogbn-arxiv: ``graphs-rank`` on the benchmark's layout, and its real edges with generated features."""

import gzip

import numpy as np
import pytest
import torch

import hcdc
from hcdc.core.errors import InputError
from hcdc.experiments import arxiv_generated
from hcdc.experiments.reproductions import reproduce
from hcdc.experiments.reproductions._graphs import LARGE
from hcdc.experiments.reproductions.graphs_rank import GENERATED, GraphsRank, paper_order

NODES, CLASSES = 90, 4
PARTS = {"train": np.arange(40), "val": np.arange(40, 60), "test": np.arange(60, NODES)}
LABELS = np.arange(NODES) % CLASSES


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Both files of a small graph, in a folder of data."""
    rng = np.random.default_rng(1)
    edges = rng.integers(0, NODES, (300, 2))
    tables = {
        "raw/edge": edges, "raw/node-feat": rng.normal(3, 2, (NODES, 5)), "raw/node-label": LABELS[:, None],
        "raw/num-node-list": [[NODES]], "split/time/train": PARTS["train"][:, None],
        "split/time/valid": PARTS["val"][:, None], "split/time/test": PARTS["test"][:, None],
    }  # fmt: skip
    for name, table in tables.items():
        path = tmp_path / "ogbn_arxiv" / f"{name}.csv.gz"
        path.parent.mkdir(parents=True, exist_ok=True)
        with gzip.open(path, "wt") as handle:
            np.savetxt(handle, table, delimiter=",", fmt="%.8g")
    edges = edges[np.argsort(edges[:, 0], kind="stable")]
    indptr = np.searchsorted(edges[:, 0], np.arange(NODES + 1))
    parts = {f"{part}_idx": index.astype(np.int32) for part, index in PARTS.items()}
    stored = {"indptr": indptr.astype(np.int32), "indices": edges[:, 1].astype(np.int32)}
    np.savez(tmp_path / arxiv_generated.FILE, **stored, labels=LABELS.astype(np.int8), **parts)
    monkeypatch.setenv("HCDC_DATA", str(tmp_path))
    return tmp_path


@pytest.mark.parametrize("name", ["ogbn-arxiv", arxiv_generated.NAME])
def test_graphs_rank_runs_on_arxiv(name, folder, tmp_path):
    what = GraphsRank.at("smoke", {"graphs": f"{name}:8"})
    found = reproduce(what, [100], tmp_path / "out.jsonl")
    assert (found.done, found.notes) == (3, [])
    assert [row[:2] for row in found.table.rows] == [
        [f"{name}:8", "Random"], [f"{name}:8", "HCDC"], [name, "Whole graph"],
    ]  # fmt: skip
    assert (GENERATED in found.table.notes) == (name == arxiv_generated.NAME)


def test_rows_stand_as_in_the_paper():
    given = ["own:5", "citeseer:None", "cora:140", "reddit:233", "citeseer:30", "cora:None", "cora:35"]
    expected = ["cora:35", "cora:140", "cora:None", "citeseer:30", "citeseer:None", "reddit:233", "own:5"]
    assert sorted(given, key=paper_order) == expected


def test_only_the_features_are_generated(folder):
    real, made = hcdc.data("ogbn-arxiv"), hcdc.data(arxiv_generated.NAME)
    assert torch.equal(real.graph.adj.to_dense(), made.graph.adj.to_dense())
    assert torch.equal(real.y, made.y)
    assert all(torch.equal(getattr(real, part), getattr(made, part)) for part in PARTS)
    assert made.graph.x.shape == (NODES, arxiv_generated.FEATURES)
    means = torch.stack([made.graph.x[made.y == label].mean(0) for label in range(CLASSES)])
    assert 0.1 < float(means.std(0).mean()) < 0.5  # classes differ, by less than nodes of a class do
    assert hcdc.data(arxiv_generated.NAME).fingerprint() == made.fingerprint()
    assert hcdc.data(arxiv_generated.NAME, seed=1).fingerprint() != made.fingerprint()


def test_a_missing_file_is_named(tmp_path, monkeypatch):
    monkeypatch.setenv("HCDC_DATA", str(tmp_path))
    with pytest.raises(InputError, match=r"ogbn_arxiv_graph\.npz' does not exist"):
        hcdc.data(arxiv_generated.NAME)


def test_large_graphs_that_were_not_run_stand_beside_the_papers_numbers():
    rows = GraphsRank().table([]).rows
    assert [row[0] for row in rows] == list(LARGE)
    assert rows[0][2] == "features not available here"
    assert "HCDC 0.77 ± .04" in rows[0][3]
    assert "HCDC 71.9 ± 0.8" in rows[0][6]
    assert GraphsRank.at("small").table([]).rows == []
