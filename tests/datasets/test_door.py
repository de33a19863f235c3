"""`hcdc.data`: every road in, and every refusal in one sentence."""

import gzip
import json
import logging
import os

import numpy as np
import pytest
import torch
from scipy import sparse

from hcdc.core.errors import InputError
from hcdc.core.sparse import SparseMatrix
from hcdc.datasets import NAMES, GraphData, TableData, data, reopen

NODES, FEATURES, CLASSES = 90, 40, 3


def arrays(density=0.05, seed=0, classes=CLASSES):
    """A small random graph as arrays: features, directed edges with loops and repeats, labels."""
    rng = np.random.default_rng(seed)
    x = sparse.random(NODES, FEATURES, density, "csr", random_state=rng)
    x.data = np.ceil(4 * x.data)
    edges = rng.integers(0, NODES, (2, 300))
    return x, np.concatenate([edges, edges[:, :20], [[5, 5], [5, 5]]], 1), np.arange(NODES) % classes


def npz_content(dense=False, **changes):
    x, edges, y = arrays()
    adjacency = sparse.csr_matrix((np.ones(edges.shape[1]), edges), (NODES, NODES))
    content = {f"adj_{f}": getattr(adjacency, f) for f in ("data", "indices", "indptr")}
    content |= {"adj_shape": np.array(adjacency.shape), "labels": y}
    if dense:
        content["attr_matrix"] = x.toarray()
    else:
        content |= {f"attr_{f}": getattr(x, f) for f in ("data", "indices", "indptr")}
        content["attr_shape"] = np.array(x.shape)
    return {key: value for key, value in (content | changes).items() if value is not None}


def refused(*args, **kwargs):
    with pytest.raises(InputError) as error:
        data(*args, **kwargs)
    text = str(error.value)
    assert "\n" not in text
    return text


# --- npz ------------------------------------------------------------------------------------------------


def test_npz_equals_the_dense_oracle(tmp_path, caplog):
    np.savez(tmp_path / "toy.npz", **npz_content())
    with caplog.at_level(logging.INFO, "hcdc"):
        graph = data(tmp_path / "toy.npz", seed=7)
    x, edges, y = arrays()
    adjacency = torch.zeros(NODES, NODES)
    adjacency[edges[0], edges[1]] = 1
    adjacency = torch.maximum(adjacency, adjacency.T).fill_diagonal_(0)
    assert torch.equal(graph.graph.adj.to_dense(), adjacency)
    assert graph.graph.adj.symmetric
    dense = torch.from_numpy(x.toarray())
    rows = torch.where(dense.sum(1, keepdim=True) > 0, dense / dense.sum(1, keepdim=True), 0.0)
    assert (dense.sum(1) == 0).any(), "the oracle should have a row without features"
    assert isinstance(graph.graph.x, SparseMatrix)
    assert torch.allclose(graph.graph.x.to_dense(), rows.float(), atol=1e-7)
    assert graph.y.tolist() == y.tolist()
    assert (graph.name, graph.normalisation, graph.num_classes) == ("toy", "row", CLASSES)
    assert "seed 7" in graph.split
    assert graph.split in caplog.text


def test_npz_with_dense_features_and_its_own_split(tmp_path):
    parts = {"train_idx": np.arange(30), "val_idx": np.arange(30, 50), "test_idx": np.arange(50, NODES)}
    np.savez(tmp_path / "a.npz", **npz_content(), **parts)
    np.savez(tmp_path / "b.npz", **npz_content(dense=True), **parts)
    a, b = data(tmp_path / "a.npz"), data(tmp_path / "b.npz")
    assert a.fingerprint() == b.fingerprint()
    assert a.split == "the split of the file"
    assert a.test.tolist() == list(range(50, NODES))
    seeded = data(tmp_path / "a.npz", split="seeded")
    assert seeded.fingerprint() != a.fingerprint()
    assert "seeded" in seeded.split


def test_dense_features_stay_dense_and_negative_ones_stay_as_they_are(tmp_path):
    x = np.random.default_rng(0).random((NODES, 4))
    np.savez(tmp_path / "dense.npz", **npz_content(dense=True, attr_matrix=x))
    graph = data(tmp_path / "dense.npz")
    assert isinstance(graph.graph.x, torch.Tensor)
    assert torch.allclose(graph.graph.x.double(), torch.from_numpy(x / x.sum(1, keepdims=True)), atol=1e-7)
    np.savez(tmp_path / "signed.npz", **npz_content(dense=True, attr_matrix=x - 0.5))
    signed = data(tmp_path / "signed.npz")
    assert signed.normalisation == "none"
    assert torch.equal(signed.graph.x, torch.from_numpy((x - 0.5).astype(np.float32)))


def test_npz_reopens_and_notices_change(tmp_path):
    path = tmp_path / "toy.npz"
    np.savez(path, **npz_content())
    graph = data(path, seed=5)
    description = graph.describe()
    assert reopen(description).fingerprint() == graph.fingerprint()
    np.savez(path, **npz_content(labels=(np.arange(NODES) + 1) % CLASSES))
    with pytest.raises(InputError, match="has changed since the condensed file was made"):
        reopen(description)
    with pytest.raises(InputError, match=r"passed in memory.* copy\.score\(config, task=\.\.\.\)"):
        reopen(data(path, split=(range(30), range(30, 60), range(60, 90))).describe())


def test_a_relative_path_is_reopened_from_another_folder(tmp_path, monkeypatch):
    np.savez(tmp_path / "toy.npz", **npz_content())
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path)
    graph = data("toy.npz")
    assert graph.origin["source"] == graph.source == str(tmp_path / "toy.npz")
    assert graph.describe() == data(tmp_path / "toy.npz").describe(), "however it is spelled"
    description = graph.describe()
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert reopen(description).fingerprint() == graph.fingerprint()
    (tmp_path / "toy.npz").unlink()
    with pytest.raises(InputError) as error:
        reopen(description)
    text = str(error.value)
    assert f"'{tmp_path / 'toy.npz'}', from which the condensed file was made, does not exist" in text
    assert "task=" in text


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"adj_indptr": None, "labels": None}, "lacks the arrays adj_indptr, labels;"),
        ({"attr_shape": None}, "lacks the arrays attr_shape;"),
        ({"labels": np.zeros(NODES, int)}, "name 1 class"),
        ({"labels": np.arange(NODES) % 2 * 2}, "class 1 is empty"),
        ({"labels": np.arange(NODES) % 3 + 10**9}, "class 0 is empty"),
        ({"labels": np.arange(NODES) % 3 - 5}, "label -5 is out of range"),
        ({"labels": np.arange(NODES - 1) % 3}, "89 labels for 90 nodes"),
        ({"labels": np.linspace(0, 1, NODES)}, "regression on nodes is not supported"),
        ({"labels": np.array(["a", "b", "c"] * 30)}, "integers 0 .. classes - 1"),
        ({"labels": np.array([{}] * NODES)}, "plain arrays"),
        ({"labels": np.zeros((NODES, 5), int)}, "several labels per node are not supported"),
        ({"adj_indices": np.full(319, 500)}, "adj_* is not a sparse matrix"),
        ({"adj_shape": np.array([NODES, NODES + 1])}, "adjacency has shape (90, 91)"),
        (
            {"attr_data": np.full(180, np.nan)},
            "features hold NaN or infinity in 180 places, the first at node",
        ),
        ({"attr_data": np.full(180, 1e200)}, "features hold NaN or infinity"),
    ],
)
def test_bad_npz_is_refused(tmp_path, changes, words):
    np.savez(tmp_path / "bad.npz", **npz_content(**changes))
    assert words in refused(tmp_path / "bad.npz")


def test_nan_in_dense_features_is_located(tmp_path):
    x = np.ones((NODES, 4))
    x[17, 2] = np.inf
    np.savez(tmp_path / "bad.npz", **npz_content(dense=True, attr_matrix=x))
    assert "in 1 place, the first at node 17, column 2" in refused(tmp_path / "bad.npz")


def test_broken_files_are_refused(tmp_path):
    path = tmp_path / "broken.npz"
    np.savez(path, **npz_content())
    whole = path.read_bytes()
    for content in (b"PK\x03\x04 no archive", b"", b"a text,\nof lines", whole[:-100]):
        path.write_bytes(content)
        text = refused(path)
        assert "broken.npz' is not an .npz file, or is truncated" in text
        assert "pickle" not in text
    path.write_bytes(whole.replace(b"NUMPY", b"NUMPI", 1))
    assert "cannot be read as an npz file of plain arrays" in refused(path)


def test_nobody_is_told_to_load_objects(tmp_path):
    np.savez(tmp_path / "bad.npz", **npz_content(labels=np.array([{}] * NODES)))
    text = refused(tmp_path / "bad.npz")
    assert "something other than plain numbers" in text
    assert "pickle" not in text


@pytest.mark.parametrize(
    "content",
    [
        {},
        {"train_images": np.zeros((4, 2, 2)), "train_labels": np.zeros(4)},
        {"images": np.zeros((4, 2, 2)), "labels": np.zeros(4)},
    ],
)
def test_an_npz_that_is_neither_names_both_layouts(tmp_path, content):
    np.savez(tmp_path / "other.npz", **content)
    text = refused(tmp_path / "other.npz")
    assert (f"has the arrays {', '.join(content)};" if content else "has no array;") in text
    assert "images are x_train, y_train, x_test, y_test" in text
    assert "a graph in the gnn-benchmark layout has adj_data" in text


# --- names and paths ------------------------------------------------------------------------------------


def test_unknown_names_get_the_nearest():
    assert "did you mean 'cora'?" in refused("coraa")
    assert "did you mean 'ogbn-arxiv'?" in refused("ogbn-arxvi")
    assert all(name in refused("zzz") for name in NAMES)


def test_paths_and_texts_that_are_no_data(tmp_path):
    assert "does not exist" in refused(tmp_path / "absent.npz")
    assert "does not exist" in refused("absent.csv", target="y")
    assert "is a folder" in refused(tmp_path)
    for suffix, words in {
        ".txt": "raw text",
        ".pt": "open it yourself",
        ".hcdc": "condensed file",
        ".xyz": "pass a name",
    }.items():
        (tmp_path / f"file{suffix}").write_text("hello")
        assert words in refused(tmp_path / f"file{suffix}")
    assert "raw text is not supported" in refused("the cat sat on the mat")
    assert "raw text is not supported" in refused("a word " * 5000)
    assert "raw text is not supported" in refused(["first text", "second text"])
    assert "type dict" in refused({"x": 1})
    assert "tuple (x, y)" in refused([1, 2, 3])
    assert "names a column" in refused("embedded", target="y")


def test_absent_sets_name_the_roads(tmp_path):
    pytest.importorskip("torch_geometric")
    for name in ("cora", "amazon_photo", "reddit2"):
        text = refused(name, root=tmp_path / "new", download=False)
        assert "HCDC_DATA" in text
        assert "citeseer-embedded" in text
    assert "lacks raw/edge.csv.gz" in refused("ogbn-arxiv", root=tmp_path / "new")
    assert not (tmp_path / "new").exists()


def test_a_failed_download_is_one_sentence_and_leaves_nothing(tmp_path, monkeypatch):
    datasets = pytest.importorskip("torch_geometric.datasets")

    def offline(self):
        raise ConnectionError("no network")

    monkeypatch.setattr(datasets.Planetoid, "download", offline)
    text = refused("cora", root=tmp_path / "new")
    assert "could not be downloaded (ConnectionError: no network)" in text
    assert "citeseer-embedded" in text
    assert not (tmp_path / "new").exists()


def test_a_download_is_kept_and_read_again_without_network(tmp_path, monkeypatch):
    datasets = pytest.importorskip("torch_geometric.datasets")
    calls = []

    def download(self):
        calls.append(self.raw_dir)
        np.savez(self.raw_paths[0], **npz_content())

    monkeypatch.setattr(datasets.Amazon, "download", download)
    first = data("amazon_photo", root=tmp_path)
    second = data("Amazon-Photo", root=tmp_path, download=False)
    assert len(calls) == 1
    assert first.fingerprint() == second.fingerprint()
    assert [path.name for path in (tmp_path / "Amazon").iterdir()] == ["Photo"]
    x, _, _ = arrays()
    binary = (x > 0).toarray().astype(float)
    sums = binary.sum(1, keepdims=True)
    expected = np.divide(binary, sums, out=np.zeros_like(binary), where=sums > 0)
    assert np.allclose(first.graph.x.to_dense().numpy(), expected, atol=1e-7), "PyG has binary features"


def test_damaged_raw_files_are_refused(tmp_path):
    pytest.importorskip("torch_geometric")
    raw = tmp_path / "Planetoid" / "Cora" / "raw"
    raw.mkdir(parents=True)
    for part in ("x", "tx", "allx", "y", "ty", "ally", "graph", "test.index"):
        (raw / f"ind.cora.{part}").write_text("<html>not found</html>")
    assert "cannot be read" in refused("cora", root=tmp_path)


def write_arxiv(folder, **changes):
    rng = np.random.default_rng(1)
    x = rng.normal(3, 2, (NODES, 5))
    x[:, 4] = 1.0
    tables = {
        "raw/edge": rng.integers(0, NODES, (200, 2)),
        "raw/node-feat": x,
        "raw/node-label": (np.arange(NODES) % 4)[:, None],
        "raw/num-node-list": [[NODES]],
        "split/time/train": np.arange(40)[:, None],
        "split/time/valid": np.arange(40, 60)[:, None],
        "split/time/test": np.arange(60, NODES)[:, None],
    } | changes
    for name, table in tables.items():
        path = folder / "ogbn_arxiv" / f"{name}.csv.gz"
        path.parent.mkdir(parents=True, exist_ok=True)
        with gzip.open(path, "wt") as handle:
            np.savetxt(handle, table, delimiter=",", fmt="%.8g")
    return tables


def test_arxiv_in_the_raw_layout(tmp_path, monkeypatch):
    tables = write_arxiv(tmp_path)
    monkeypatch.setenv("HCDC_DATA", str(tmp_path))
    graph = data("ogbn-arxiv")
    assert (graph.name, graph.source, graph.normalisation) == ("ogbn-arxiv", "ogb", "standard")
    assert [len(graph.train), len(graph.val), len(graph.test)] == [40, 20, 30]
    train = graph.graph.x[:40, :4].double()
    assert torch.allclose(train.mean(0), torch.zeros(4, dtype=torch.float64), atol=1e-5)
    assert torch.allclose(train.std(0, correction=0), torch.ones(4, dtype=torch.float64), atol=1e-5)
    assert graph.graph.x[:, 4].abs().max() == 0, "a constant feature becomes 0, not NaN"
    adjacency = np.zeros((NODES, NODES))
    adjacency[tables["raw/edge"][:, 0], tables["raw/edge"][:, 1]] = 1
    adjacency = np.maximum(adjacency, adjacency.T)
    np.fill_diagonal(adjacency, 0)
    assert np.array_equal(graph.graph.adj.to_dense().numpy(), adjacency)


def test_damaged_arxiv_is_refused(tmp_path):
    write_arxiv(tmp_path, **{"raw/num-node-list": [[NODES + 1]]})
    assert "lists 91 nodes but features for 90" in refused("ogbn_arxiv", root=tmp_path)
    write_arxiv(tmp_path, **{"raw/edge": [[0, NODES]]})
    assert "an edge names node 90" in refused("ogbn_arxiv", root=tmp_path)
    (tmp_path / "ogbn_arxiv/raw/edge.csv.gz").write_bytes(b"no gzip")
    assert "cannot be read" in refused("ogbn_arxiv", root=tmp_path)


def test_reddit2_through_pyg(tmp_path):
    pytest.importorskip("torch_geometric")
    raw = tmp_path / "Reddit2" / "raw"
    raw.mkdir(parents=True)
    rng = np.random.default_rng(2)
    adjacency = sparse.random(NODES, NODES, 0.05, "csr", random_state=rng)
    np.savez(
        raw / "adj_full.npz", **{f: getattr(adjacency, f) for f in ("data", "indices", "indptr", "shape")}
    )
    np.save(raw / "feats.npy", rng.normal(5, 3, (NODES, 6)))
    (raw / "class_map.json").write_text(json.dumps({str(k): k % 3 for k in range(NODES)}))
    roles = {"tr": list(range(50)), "va": list(range(50, 70)), "te": list(range(70, NODES))}
    (raw / "role.json").write_text(json.dumps(roles))
    graph = data("Reddit2", root=tmp_path)
    assert (graph.source, graph.normalisation, graph.split) == ("reddit2", "standard", "public")
    assert graph.graph.x[:50].mean(0).abs().max() < 1e-5
    assert graph.val.tolist() == roles["va"]
    assert data("reddit2", root=tmp_path).fingerprint() == graph.fingerprint()


def test_reddit_through_pyg(tmp_path):
    pytest.importorskip("torch_geometric")
    raw = tmp_path / "Reddit" / "raw"
    raw.mkdir(parents=True)
    rng = np.random.default_rng(2)
    kinds = np.repeat([1, 2, 3], [50, 20, 20])
    np.savez(
        raw / "reddit_data.npz",
        feature=rng.normal(5, 3, (NODES, 6)),
        label=np.arange(NODES) % 3,
        node_types=kinds,
    )
    sparse.save_npz(raw / "reddit_graph.npz", sparse.random(NODES, NODES, 0.05, "coo", random_state=rng))
    graph = data("reddit", root=tmp_path)
    assert graph.normalisation == "standard"
    assert [len(graph.train), len(graph.val), len(graph.test)] == [50, 20, 20]


# --- PyG objects ----------------------------------------------------------------------------------------


def pyg_data(**changes):
    kinds = pytest.importorskip("torch_geometric.data")
    x, edges, y = arrays()
    content = {
        "x": torch.from_numpy(x.toarray()).float(),
        "edge_index": torch.from_numpy(edges),
        "y": torch.from_numpy(y),
    } | changes
    return kinds.Data(**{key: value for key, value in content.items() if value is not None})


def masks(*bounds):
    start, found = 0, {}
    for part, stop in zip(("train", "val", "test"), bounds):
        mask = torch.zeros(NODES, dtype=torch.bool)
        mask[start:stop] = True
        found[f"{part}_mask"], start = mask, stop
    return found


def test_pyg_data_with_and_without_masks():
    graph = data(pyg_data(**masks(30, 50, 90)))
    assert isinstance(graph, GraphData)
    assert graph.train.tolist() == list(range(30))
    assert graph.split == "the masks of the Data object"
    assert graph.normalisation == "none"
    x, _, _ = arrays()
    assert torch.equal(graph.graph.x.to_dense(), torch.from_numpy(x.toarray()).float())
    assert graph.origin == {}
    seeded = data(pyg_data(), seed=2)
    assert "seed 2" in seeded.split
    assert len(seeded.train) == 15 * CLASSES, "half of the 30 nodes of each class"
    assert data(pyg_data(**masks(30, 50, 90)), split="seeded", seed=2).fingerprint() == seeded.fingerprint()


def test_pyg_unlabelled_nodes_and_columns_of_masks():
    y = torch.arange(NODES) % CLASSES
    y[[3, 31, 77]] = -1
    two = {key: torch.stack([mask, ~mask], 1) for key, mask in masks(30, 50, 90).items()}
    graph = data(pyg_data(y=y, **two))
    assert "the first of 2" in graph.split
    together = torch.cat([graph.train, graph.val, graph.test])
    assert sorted(together.tolist()) == [k for k in range(NODES) if k not in (3, 31, 77)]


def test_pyg_sparse_features_and_column_labels():
    plain = data(pyg_data())
    other = pyg_data(y=(torch.arange(NODES) % CLASSES)[:, None])
    other.x = other.x.to_sparse()
    assert data(other).fingerprint() == plain.fingerprint()
    assert data([pyg_data()]).fingerprint() == plain.fingerprint()
    assert data(plain) is plain


def test_pyg_edge_weights_are_said_to_be_ignored(caplog):
    with caplog.at_level(logging.WARNING, "hcdc"):
        data(pyg_data(edge_attr=torch.ones(322, 1)))
    assert "not used" in caplog.text


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"y": None}, "edge task or has no labels y"),
        ({"edge_label": torch.ones(3)}, "edge task"),
        ({"x": None}, "no node features x"),
        ({"edge_index": None}, "no edge_index"),
        ({"y": torch.tensor([1])}, "1 labels for 90 nodes"),
        ({"y": torch.rand(NODES)}, "regression on nodes is not supported"),
        ({"edge_index": torch.tensor([[0], [NODES]])}, "an edge names node 90"),
        ({"x": torch.full((NODES, 2), torch.nan)}, "NaN or infinity in 180 places"),
        ({"train_mask": torch.ones(NODES, dtype=torch.bool)}, "has only train_mask"),
        (masks(30, 30, 90), "val part of the split is empty"),
        (masks(1, 30, 90), "class 1 is empty in the training part"),
        (
            {**masks(30, 60, 90), "test_mask": torch.ones(NODES, dtype=torch.bool)},
            "in both train and test",
        ),
    ],
)
def test_bad_pyg_data_is_refused(changes, words):
    assert words in refused(pyg_data(**changes))


def test_a_split_of_unlabelled_nodes_is_refused():
    y = torch.arange(NODES) % CLASSES
    y[30:50] = -1
    assert "val part of the split has no labelled node" in refused(pyg_data(y=y, **masks(30, 50, 90)))


def test_several_and_heterogeneous_graphs_are_refused():
    kinds = pytest.importorskip("torch_geometric.data")
    assert "2 graphs" in refused([pyg_data(), pyg_data()])
    assert "2 graphs" in refused(kinds.Batch.from_data_list([pyg_data(), pyg_data()]))
    assert "to_homogeneous" in refused(kinds.HeteroData())
    fake = pytest.importorskip("torch_geometric.datasets").FakeDataset(num_graphs=3)
    assert "3 graphs" in refused(fake)
    assert "pass one torch_geometric.data.Data" in refused(
        pytest.importorskip("torch_geometric.loader").DataLoader([pyg_data()])
    )


# --- tables (more in test_tabular.py) -------------------------------------------------------------------


def test_tuples_are_tables():
    x, y = np.random.default_rng(0).normal(size=(50, 3)), np.arange(50) % 2
    table = data((x, y))
    assert isinstance(table, TableData)
    assert data((torch.from_numpy(x), torch.from_numpy(y))).fingerprint() == table.fingerprint()
    assert "names a column" in refused((x, y), target="y")


# --- real data ------------------------------------------------------------------------------------------


@pytest.mark.data
@pytest.mark.skipif("HCDC_DATA" not in os.environ, reason="HCDC_DATA is not set")
@pytest.mark.parametrize(
    ("name", "nodes", "edges", "features", "classes", "sizes"),
    [
        ("cora", 2708, 5278, 1433, 7, [140, 500, 1000]),
        ("citeseer", 3327, 4552, 3703, 6, [120, 500, 1000]),
        ("pubmed", 19717, 44324, 500, 3, [60, 500, 1000]),
        ("amazon_computers", 13752, 245861, 767, 10, [200, 500, 13052]),
        ("coauthor_cs", 18333, 81894, 6805, 15, [300, 500, 17533]),
        ("coauthor_physics", 34493, 247962, 8415, 5, [100, 500, 33893]),
    ],
)
def test_real_graphs(name, nodes, edges, features, classes, sizes):
    pytest.importorskip("torch_geometric")
    graph = data(name, download=False)
    assert graph.graph.num_nodes == nodes
    assert graph.graph.adj.nnz == 2 * edges
    assert graph.graph.num_features == features
    assert graph.num_classes == classes
    assert [len(graph.train), len(graph.val), len(graph.test)] == sizes
    assert int((graph.y == -1).sum()) == (15 if name == "citeseer" else 0)
    assert graph.normalisation == "row"


@pytest.mark.data
@pytest.mark.skipif("HCDC_DATA" not in os.environ, reason="HCDC_DATA is not set")
def test_amazon_is_what_pyg_reads():
    io = pytest.importorskip("torch_geometric.io")
    graph = data("amazon_computers", download=False)
    path = os.path.join(os.environ["HCDC_DATA"], "Amazon/Computers/raw/amazon_electronics_computers.npz")
    other = io.read_npz(path, to_undirected=True)
    assert other.edge_index.shape[1] == graph.graph.adj.nnz
    expected = other.x.double() / other.x.double().sum(1, keepdim=True).clamp_min(1)
    assert torch.allclose(graph.graph.x.double(), expected, atol=1e-7)
    rows = torch.repeat_interleave(torch.arange(13752), graph.graph.adj.indptr.diff())
    ours = torch.stack([rows, graph.graph.adj.indices])
    order = torch.argsort(other.edge_index[0] * 13752 + other.edge_index[1])
    assert torch.equal(ours, other.edge_index[:, order])
    assert torch.equal(graph.y, other.y)


@pytest.mark.parametrize("seed", [-1, 1.5, True, "0"])
def test_a_seed_is_a_whole_number_from_0_on(seed):
    with pytest.raises(InputError, match=f"seed {seed!r}: give a whole number, 0 or more"):
        data("citeseer-embedded", seed=seed)
