"""The condensed data set and its file."""

import dataclasses
import hashlib
import json
import subprocess
import sys
import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors import safe_open
from safetensors.torch import load, save, save_file
from scipy import sparse

from hcdc.core.errors import InputError
from hcdc.core.sparse import SparseMatrix
from hcdc.datasets import CondensedDataset, Graph, Images, Nodes, Rows, _graph, data, record_path

CLASSES = 3
META = {
    "data": {"name": "toy", "num_classes": CLASSES, "class_names": ["a", "b", "c"], "fingerprint": "f"},
    "task": {"name": "graph"},
    "space": {"name": "filters", "order": 3},
    "method": "hcdc",
    "settings": {"steps": 5, "train": {"name": "gcond"}},
    "full_recipe": {"steps": 200},
    "calibrated_recipe": {"steps": 100},
    "metric": "loss",
    "seed": 0,
    "candidates": ["ab12", "cd34"],
}


def sparse_matrix(dense, symmetric=False):
    return SparseMatrix.from_scipy(sparse.csr_matrix(dense.numpy()), symmetric=symmetric)


def nodes(count=6, features=4, seed=0, adjacency=True, weight=False, labelled=None, dtype=torch.float32):
    draw = torch.Generator().manual_seed(seed)
    a = torch.rand(count, count, generator=draw, dtype=dtype)
    index = None if labelled is None else torch.randperm(count, generator=draw)[:labelled]
    m = count if labelled is None else labelled
    return Nodes(
        Graph(
            torch.randn(count, features, generator=draw, dtype=dtype), (a + a.T) / 2 if adjacency else None
        ),
        torch.arange(m) % CLASSES,
        index,
        torch.rand(m, generator=draw, dtype=dtype) if weight else None,
    )


def rows(count=6, features=4, seed=0, classes=True, weight=False):
    draw = torch.Generator().manual_seed(seed)
    y = torch.arange(count) % CLASSES if classes else torch.randn(count, generator=draw)
    return Rows(
        torch.randn(count, features, generator=draw), y, torch.rand(count, generator=draw) if weight else None
    )


def images(count=6, channels=3, side=4, seed=0, weight=False, dtype=torch.float32):
    draw = torch.Generator().manual_seed(seed)
    return Images(
        torch.randn(count, channels, side, side, generator=draw, dtype=dtype),
        torch.arange(count) % CLASSES,
        torch.rand(count, generator=draw, dtype=dtype) if weight else None,
    )


def small(val=True, **meta):
    return CondensedDataset(nodes(), nodes(9, weight=True, seed=1) if val else None, META | meta)


def same(a, b):
    one, two = a.tensors(), b.tensors()
    assert one.keys() == two.keys()
    for name in one:
        assert one[name].dtype == two[name].dtype
        assert torch.equal(one[name], two[name])
    assert a.meta == b.meta


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
parts = st.fixed_dictionaries(
    {"count": st.integers(1, 8), "features": st.just(3), "seed": st.integers(0, 9), "weight": st.booleans()}
)


@settings(max_examples=60, deadline=None)
@given(
    train=parts,
    val=st.none() | parts,
    adjacency=st.booleans(),
    index=st.booleans(),
    double=st.booleans(),
    free=st.dictionaries(
        st.text().filter(lambda key: key not in {"val_method", "data", "candidates"}), json_values, max_size=4
    ),
)
def test_graphs_survive_the_round_trip(train, val, adjacency, index, double, free):
    dtype = torch.float64 if double else torch.float32
    first = nodes(**train, adjacency=adjacency, labelled=1 if index else None, dtype=dtype)
    second = None if val is None else nodes(**val, dtype=dtype)
    given_set = CondensedDataset(first, second, META | free)
    content = given_set.to_bytes()
    again = CondensedDataset.from_bytes(content)
    same(given_set, again)
    assert again.to_bytes() == content
    assert (again.val is None) == (val is None)
    assert (again.train.graph.adj is None) == (not adjacency)


@settings(max_examples=30, deadline=None)
@given(train=parts, val=st.none() | parts, classes=st.booleans())
def test_tables_survive_the_round_trip(train, val, classes):
    meta = META | {"data": {"num_classes": CLASSES if classes else None}}
    second = None if val is None else rows(**val, classes=classes)
    given_set = CondensedDataset(rows(**train, classes=classes), second, meta)
    again = CondensedDataset.from_bytes(given_set.to_bytes())
    same(given_set, again)
    assert again.kind == "table"
    assert isinstance(again.train, Rows)


@settings(max_examples=20, deadline=None)
@given(
    train=st.fixed_dictionaries(
        {"count": st.integers(1, 5), "seed": st.integers(0, 9), "weight": st.booleans()}
    ),
    val=st.none()
    | st.fixed_dictionaries({"count": st.integers(1, 5), "seed": st.integers(0, 9), "weight": st.booleans()}),
    form=st.tuples(st.sampled_from([1, 3]), st.integers(1, 4)),
    double=st.booleans(),
)
def test_images_survive_the_round_trip(train, val, form, double):
    channels, side = form
    same_form = {"channels": channels, "side": side, "dtype": torch.float64 if double else torch.float32}
    second = None if val is None else images(**val, **same_form)
    given_set = CondensedDataset(images(**train, **same_form), second, META)
    content = given_set.to_bytes()
    again = CondensedDataset.from_bytes(content)
    same(given_set, again)
    assert again.to_bytes() == content
    assert again.kind == "image"
    assert isinstance(again.train, Images)
    assert (again.train.weight is not None) == train["weight"]


def test_images_in_another_order_of_memory_are_the_same_file():
    """Kernels like images channels last; a file does not show it."""
    one = images()
    two = Images(one.x.contiguous(memory_format=torch.channels_last), one.y)
    assert two.x.stride() != one.x.stride()
    assert CondensedDataset(one, None, META).to_bytes() == CondensedDataset(two, None, META).to_bytes()


def test_images_are_described():
    made = CondensedDataset(images(), images(9, weight=True), META)
    lines = dict(made.summary())
    assert lines["kind"].startswith("image")
    assert lines["features"].startswith("3 x 4 x 4")
    assert lines["train"] == "6 images"
    assert lines["val"] == "9 images, weighted"
    parts = made.to_torch()
    assert set(parts["train"]) == {"x", "y"}
    assert set(parts["val"]) == {"x", "y", "weight"}
    assert made.to_numpy()["val"]["x"].shape == (9, 3, 4, 4)
    assert torch.equal(made.to("cpu").val.weight, made.val.weight)


def test_description_is_filled_in_and_file_is_plain_safetensors(tmp_path):
    path = small().save(tmp_path / "toy.hcdc")
    with safe_open(path, framework="pt") as file:
        assert sorted(file.keys()) == [
            "train/adj",
            "train/x",
            "train/y",
            "val/adj",
            "val/weight",
            "val/x",
            "val/y",
        ]
        assert list(file.metadata()) == ["hcdc"]
        stored = json.loads(file.metadata()["hcdc"])
    assert stored["format_version"] == 1
    again = CondensedDataset.load(path)
    meta = again.meta
    assert (meta["kind"], meta["train_size"], meta["val_size"], meta["val_method"]) == (
        "graph",
        6,
        9,
        "synthetic",
    )
    assert meta["library_version"]
    assert again.num_classes == CLASSES
    assert [p.name for p in tmp_path.iterdir()] == ["toy.hcdc"]
    assert CondensedDataset(nodes(), None, META).meta["val_method"] == "real"


def test_equal_content_gives_equal_bytes_in_any_process_and_order():
    code = (
        "import sys; sys.path.insert(0, sys.argv[1]); import hashlib, test_condensed as t; "
        "v = t.nodes(9, weight=True, seed=1); "
        "m = dict(reversed(list(t.META.items()))); "
        "print(hashlib.sha256(t.CondensedDataset(t.nodes(), v, m).to_bytes()).hexdigest())"
    )
    here = hashlib.sha256(small().to_bytes()).hexdigest()
    done = subprocess.run(
        [sys.executable, "-c", code, str(Path(__file__).parent)], capture_output=True, text=True
    )
    assert done.stdout.strip() == here, done.stderr
    assert small(seed=1).to_bytes() != small().to_bytes()


def test_views_gradients_and_sparse_matrices_are_stored_as_plain_tensors():
    base = nodes(6, 4)
    adjacency = sparse_matrix(base.graph.adj, symmetric=True)
    odd = Nodes(Graph(base.graph.x.T.contiguous().T.requires_grad_(), adjacency), base.y)
    same(CondensedDataset(odd, None, META), CondensedDataset(base, None, META))
    shared = torch.arange(CLASSES * 2) % CLASSES
    twice = CondensedDataset(Rows(torch.ones(6, 2), shared), Rows(torch.ones(6, 2), shared), META)
    same(twice, CondensedDataset.from_bytes(twice.to_bytes()))


def test_sparse_matrices_of_a_file_are_dense_in_other_forms(monkeypatch):
    monkeypatch.setattr(_graph, "SPARSE_FROM", 1)
    base = nodes(6, 4, labelled=4, weight=True)
    graph = Graph(sparse_matrix(base.graph.x), sparse_matrix(base.graph.adj, symmetric=True))
    made = CondensedDataset(dataclasses.replace(base, graph=graph), None, META)
    assert {"train/x.values", "train/adj.places"} <= set(made.tensors())
    for found in (made, CondensedDataset.from_bytes(made.to_bytes())):
        tensors, arrays = found.to_torch()["train"], found.to_numpy()["train"]
        assert set(tensors) == set(arrays) == {"x", "y", "adj", "index", "weight"}
        assert torch.equal(tensors["x"], base.graph.x)
        assert torch.equal(tensors["adj"], base.graph.adj)
        assert np.array_equal(arrays["x"], base.graph.x.numpy())


class Elsewhere(torch.Tensor):
    """A tensor that says it is on another device, from which numpy cannot read."""

    device = torch.device("meta")

    def numpy(self):
        raise TypeError("copy the tensor to host memory first")

    def cpu(self):
        return self.as_subclass(torch.Tensor)


def test_sparse_matrices_are_read_on_their_device(monkeypatch):
    monkeypatch.setattr(_graph, "SPARSE_FROM", 1)
    base = nodes(6, 4)
    made = Nodes(Graph(sparse_matrix(base.graph.x), None), base.y)
    moved = {name: tensor.as_subclass(Elsewhere) for name, tensor in made.tensors().items()}
    assert Nodes.from_tensors(moved).graph.device.type == "meta"


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs CUDA")
def test_a_sparse_graph_on_cuda_is_rebuilt_there(monkeypatch):
    monkeypatch.setattr(_graph, "SPARSE_FROM", 1)
    base = nodes(6, 4)
    made = Nodes(Graph(sparse_matrix(base.graph.x), base.graph.adj), base.y).to("cuda")
    again = Nodes.from_tensors(made.tensors())
    assert again.graph.device.type == "cuda"
    assert torch.equal(again.graph.x.to_dense().cpu(), base.graph.x)


def test_other_forms():
    whole = small()
    tensors, arrays = whole.to_torch(), whole.to_numpy()
    assert set(tensors["val"]) == {"x", "y", "adj", "weight"}
    assert np.array_equal(arrays["train"]["x"], whole.train.graph.x.numpy())
    assert small(val=False).to_torch()["val"] is None
    pytest.importorskip("torch_geometric")
    part = CondensedDataset(nodes(6, labelled=4, weight=True), None, META)
    train, val = part.to_pyg()
    assert val is None
    assert train.validate()
    assert train.train_mask.sum() == 4
    assert not train.val_mask.any()
    assert torch.equal(train.y[part.train.index], part.train.y)
    assert (train.y[~train.train_mask] == -1).all()
    assert torch.equal(train.node_weight[part.train.index], part.train.weight)
    dense = torch.zeros(6, 6)
    dense[train.edge_index[0], train.edge_index[1]] = train.edge_weight
    assert torch.equal(dense, part.train.graph.adj)
    assert whole.to_pyg()[1].val_mask.all()
    plain = CondensedDataset(nodes(adjacency=False), None, META).to_pyg()[0]
    assert plain.edge_index.shape == (2, 0)
    for other, kind in ((rows(), "table"), (images(), "image")):
        with pytest.raises(InputError) as caught:
            CondensedDataset(other, None, META).to_pyg()
        assert str(caught.value) == (
            f"this condensed data set is of kind '{kind}', which PyG cannot represent; "
            "use to_torch() or to_numpy()"
        )


def test_summary_says_what_is_in_it():
    lines = dict(small().summary())
    assert lines["data"] == "toy (?), fingerprint f"
    assert lines["classes"] == "3: a, b, c"
    assert lines["rank by"] == "loss"
    assert lines["candidates used"] == "2"
    assert lines["train"].startswith("6 nodes, 36 directed")
    assert lines["val"].endswith("weighted")
    assert "steps=5" in lines["settings"]
    assert dict(small(val=False).summary())["val"] == "the real validation set"
    assert "no edges" in dict(CondensedDataset(nodes(adjacency=False), None, META).summary())["train"]
    assert dict(CondensedDataset(rows(classes=False), None, {}).summary())["classes"] == "regression"


def test_a_real_graph_is_described(tmp_path):
    graph = data("embedded")
    sample = Nodes(graph.graph.subgraph(graph.train), graph.y[graph.train])
    made = CondensedDataset(sample, None, {"data": graph.describe()})
    again = CondensedDataset.load(made.save(tmp_path / "c.hcdc"))
    assert again.meta["data"]["fingerprint"] == graph.fingerprint()
    assert again.meta["data"]["origin"] == {"source": "citeseer-embedded", "seed": 0}
    assert again.train.graph.x.shape == (120, 3703)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: CondensedDataset(nodes(), None, META | {"val_method": "random"}), "val is None"),
        (lambda: CondensedDataset(nodes(), rows(), META), "of one kind"),
        (lambda: CondensedDataset(nodes(features=4), nodes(features=5), META), "4 features and val 5"),
        (lambda: CondensedDataset(nodes(), None, META | {"x": object()}), "plain JSON"),
        (lambda: CondensedDataset(nodes(), None, META | {"candidates": 5}), "list of hashes"),
        (lambda: CondensedDataset(nodes(), None, META | {"data": 5}), "must be a dict"),
        (lambda: CondensedDataset(nodes(), None, META | {"data": {"num_classes": "3"}}), "whole number"),
        (lambda: CondensedDataset(nodes(), None, META | {"data": {"num_classes": 2}}), "labels 0 .. 2"),
        (lambda: CondensedDataset(rows(classes=False), None, META), "class numbers are needed"),
        (
            lambda: CondensedDataset(Rows(torch.ones(3, 2), torch.arange(2)), None, META),
            "3 rows and 2 labels",
        ),
        (lambda: CondensedDataset(Rows(torch.ones(0, 2), torch.ones(0)), None, {}), "are needed"),
        (lambda: CondensedDataset(Rows(torch.ones(2, 2) / 0, torch.arange(2)), None, {}), "x holds NaN"),
        (
            lambda: CondensedDataset(Rows(torch.ones(2, 2), torch.arange(2), -torch.ones(2)), None, {}),
            "non-negative",
        ),
        (
            lambda: CondensedDataset(Rows(torch.ones(2, 2), torch.arange(2), torch.zeros(2)), None, {}),
            "weight is 0 for each of 2 labels",
        ),
        (lambda: CondensedDataset(images(), rows(), META), "of one kind, got Images and Rows"),
        (lambda: CondensedDataset(images(), images(side=5), META), "3 x 4 x 4 features and val 3 x 5 x 5"),
        (
            lambda: CondensedDataset(Images(torch.ones(3, 4, 4), torch.arange(3)), None, META),
            r"\[n, c, h, w\]",
        ),
        (
            lambda: CondensedDataset(Images(torch.ones(3, 1, 4, 4), torch.arange(2)), None, META),
            "3 images and 2 labels",
        ),
        (
            lambda: CondensedDataset(Images(torch.ones(2, 1, 4, 4).byte(), torch.arange(2)), None, META),
            "numbers and class numbers",
        ),
        (
            lambda: CondensedDataset(Images(torch.ones(2, 1, 4, 4), torch.ones(2)), None, META),
            "class numbers are needed",
        ),
        (
            lambda: CondensedDataset(Images(torch.ones(2, 1, 4, 4) / 0, torch.arange(2)), None, META),
            "x holds NaN",
        ),
        (
            lambda: CondensedDataset(
                Nodes(Graph(torch.ones(2, 2), torch.ones(3, 3)), torch.arange(2)), None, {}
            ),
            "adj has shape",
        ),
        (
            lambda: CondensedDataset(
                Nodes(Graph(torch.ones(2, 2), None), torch.arange(1), torch.tensor([2])), None, {}
            ),
            "index does not name",
        ),
    ],
)
def test_what_does_not_fit_is_refused(make, words):
    with pytest.raises(InputError, match=words):
        make()


def test_not_a_number_in_the_description_becomes_none():
    assert small(note=float("nan")).meta["note"] is None


# --- files that are not what they should be --------------------------------------------------------------


def sentence(path):
    with pytest.raises(InputError) as error:
        CondensedDataset.load(path)
    text = str(error.value)
    assert "\n" not in text
    assert path.name in text
    return text


def test_missing_foreign_and_empty_files(tmp_path):
    path = tmp_path / "x.hcdc"
    assert "does not exist" in sentence(path)
    assert "cannot be read" in sentence(tmp_path)
    path.write_bytes(b"")
    assert "is empty" in sentence(path)
    save_file({"weight": torch.ones(2)}, path)
    assert "not a condensed file" in sentence(path)
    save_file({"weight": torch.ones(2)}, path, {"format": "pt"})
    assert "not a condensed file" in sentence(path)
    save_file({"weight": torch.ones(2)}, path, {"hcdc": "[]"})
    assert "damaged" in sentence(path)
    save_file({"weight": torch.ones(2)}, path, {"hcdc": "[" * 100_000})
    assert "damaged" in sentence(path)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("a.txt", "hello " * 100)
    assert "not a condensed file" in sentence(path)
    torch.save({"a": 1}, path)
    assert "not a condensed file" in sentence(path)
    path.write_text("x" * 500)
    assert "not a condensed file" in sentence(path)


def rewritten(content, **changes):
    """The file with other entries in its description and the digest left as it is."""
    size = int.from_bytes(content[:8], "little")
    entry = json.loads(json.loads(content[8 : 8 + size])["__metadata__"]["hcdc"]) | changes
    return save(load(content), {"hcdc": json.dumps(entry)})


def test_newer_and_altered_files(tmp_path):
    path = tmp_path / "x.hcdc"
    path.write_bytes(rewritten(small().to_bytes(), format_version=2))
    assert "has format version 2" in sentence(path)
    assert "update hcdc" in sentence(path)
    path.write_bytes(rewritten(small().to_bytes(), format_version="1"))
    assert "damaged" in sentence(path)
    path.write_bytes(rewritten(small().to_bytes(), seed=17))
    assert "damaged" in sentence(path)
    path.write_bytes(rewritten(small().to_bytes()))
    assert CondensedDataset.load(path).meta["seed"] == 0


def test_truncation_at_every_kind_of_place(tmp_path):
    content = small().to_bytes()
    for length in [*range(1, 40), *range(40, len(content), 37), len(content) - 1]:
        with pytest.raises(InputError):
            CondensedDataset.from_bytes(content[:length])
    path = tmp_path / "cut.hcdc"
    path.write_bytes(content[: len(content) // 2])
    assert "truncated or damaged" in sentence(path)
    path.write_bytes(content + b"more")
    assert "damaged" in sentence(path)


@settings(max_examples=400, deadline=None)
@given(st.data())
def test_no_changed_byte_goes_unnoticed(draw):
    content = bytearray(small().to_bytes())
    header = 8 + int.from_bytes(content[:8], "little")
    end = draw.draw(st.sampled_from([8, header, len(content)]))
    place = draw.draw(st.integers(0, end - 1))
    content[place] ^= draw.draw(st.integers(1, 255))
    try:
        loaded = CondensedDataset.from_bytes(bytes(content))
    except InputError:
        return
    same(loaded, small())  # white space of the header carries nothing


@settings(max_examples=100, deadline=None)
@given(st.binary(max_size=300))
def test_noise_is_refused(content):
    with pytest.raises(InputError):
        CondensedDataset.from_bytes(content)


def test_nothing_is_imported_on_loading(tmp_path):
    path = small(space={"name": "os:system", "code": "antigravity:fly"}).save(tmp_path / "x.hcdc")
    code = (
        "import sys; from hcdc.datasets import CondensedDataset; before = set(sys.modules); "
        "CondensedDataset.load(sys.argv[1]).summary(); "
        "new = {m.split('.')[0] for m in set(sys.modules) - before}; "
        "sys.exit(f'imported {new}' if new - {'safetensors', 'torch', 'numpy'} else 0)"
    )
    done = subprocess.run([sys.executable, "-c", code, str(path)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_the_record_lies_beside_the_file(tmp_path):
    made = CondensedDataset(nodes(), None, META, {"condense_seconds": 2.5, "history": [float("nan")]})
    path = made.save(tmp_path / "a.hcdc")
    assert path.read_bytes() == CondensedDataset(nodes(), None, META).to_bytes(), "never part of the file"
    beside = record_path(path)
    assert beside == tmp_path / "a.hcdc.json"
    told = json.loads(beside.read_text())
    assert told == {
        "condense_seconds": 2.5,
        "history": [None],
        "file": "a.hcdc",
        "sha256": hashlib.sha256(path.read_bytes()).hexdigest(),
        "dataset": "toy",
        "method": "hcdc",
        "train_size": 6,
        "val_size": None,
        "seed": 0,
    }
    again = CondensedDataset.load(path)
    assert again.record == told
    again.save(tmp_path / "b.hcdc")
    assert json.loads(record_path(tmp_path / "b.hcdc").read_text()) == told | {"file": "b.hcdc"}


def test_a_record_of_another_file_is_not_read(tmp_path):
    path = small().save(tmp_path / "a.hcdc")
    assert CondensedDataset.load(path).record == {}
    for content in ('{"sha256": "0"}', "[]", "{", "[" * 100_000):
        record_path(path).write_text(content)
        assert CondensedDataset.load(path).record == {}
    record_path(path).write_bytes(b"\xff")
    assert CondensedDataset.load(path).record == {}
    CondensedDataset(nodes(), None, META, {"condense_seconds": 1.0}).save(path)
    assert CondensedDataset.load(path).record["condense_seconds"] == 1.0
    small(seed=3).save(path)
    assert CondensedDataset.load(path).record == {}


def test_unwritable_places_are_refused(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="cannot be written"):
        small().save(tmp_path / "file" / "x.hcdc")
    target = tmp_path / "kept.hcdc"
    small().save(target)
    before = target.read_bytes()
    small(seed=3).save(target)
    assert target.read_bytes() != before
    assert sorted(p.name for p in tmp_path.iterdir()) == ["file", "kept.hcdc"]
