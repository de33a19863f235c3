"""Labelled sets and data sets of every kind, and a kind that comes from outside."""

import dataclasses
import subprocess
import sys
from dataclasses import dataclass

import numpy as np
import pytest
import torch
from test_condensed import META, images, nodes, rows

from hcdc.core.errors import InputError
from hcdc.core.sparse import SparseMatrix
from hcdc.datasets import CondensedDataset, Examples, Graph, Nodes, data, register_kind

SIGNAL = """
from dataclasses import dataclass
from hcdc.datasets import Examples, register_kind

@register_kind
@dataclass(frozen=True, eq=False, repr=False)
class Signals(Examples):
    kind = "sound"
    noun = "signals"
    axes = ("n", "channels", "steps")
"""
ALL = {
    "nodes": nodes(),
    "some nodes": nodes(labelled=4, weight=True),
    "rows": rows(weight=True),
    "values": rows(classes=False),
    "images": images(weight=True),
}
each = pytest.mark.parametrize("some", ALL.values(), ids=ALL)


@each
def test_tensors_and_back(some):
    again = type(some).from_tensors(some.tensors())
    assert again.tensors().keys() == some.tensors().keys()
    assert all(torch.equal(again.tensors()[key], value) for key, value in some.tensors().items())
    assert (again.describe(), again.form, repr(again)) == (some.describe(), some.form, repr(some))
    with pytest.raises(KeyError):
        type(some).from_tensors({"x": some.tensors()["x"]})
    assert {value.device.type for value in some.to("meta").tensors().values()} == {"meta"}


@each
def test_a_subset_keeps_labels_weights_and_inputs_together(some):
    index = torch.tensor([3, 1])
    part = some.subset(index)
    assert type(part) is type(some)
    assert torch.equal(part.y, some.y[index])
    assert (part.weight is None) == (some.weight is None)
    if some.weight is not None:
        assert torch.equal(part.weight, some.weight[index])
    if isinstance(some, Nodes):
        assert part.graph is some.graph
        assert torch.equal(part.positions(), some.positions()[index])
    else:
        assert torch.equal(part.x, some.x[index])
    part.check("train", 3 if not some.y.is_floating_point() else None)


@each
def test_a_set_is_told_in_one_line(some):
    for text in (repr(some), some.describe()):
        assert "\n" not in text
        assert len(text) < 80
        assert ("weighted" in text) == (some.weight is not None)


def test_pools_are_the_members_of_each_class():
    assert [pool.tolist() for pool in rows(7).pools(4)] == [[0, 3, 6], [1, 4], [2, 5], []]


def test_only_images_can_be_drawn_and_have_details():
    some = images(weight=True)
    assert torch.equal(some.pictures(), some.x)
    ((label, text),) = some.details("S_val", 3)
    assert label == "S_val"
    assert text.startswith("2 per class, 3 x 4 x 4 pixels of -")
    assert "weights up to" in text
    assert images(5).details("S_val", 3)[0][1].startswith("1 to 2 per class")
    for other in (nodes(), rows()):
        assert other.pictures() is None
        assert other.details("S_val", 3) == []
    made = CondensedDataset(images(), some, META | {"probes": {"configs": [{}, {}]}, "truth": {"a_b": 1}})
    assert [label for label, _ in made.details()] == ["S_train", "S_val", "probes"]
    assert made.details()[-1] == ("probes", "2 candidates, results: a b 1")


def test_sparse_graphs_are_checked_without_being_made_dense(monkeypatch):
    from scipy import sparse

    x = SparseMatrix.from_scipy(sparse.csr_matrix(np.eye(4, 3, dtype=np.float32)))
    some = Nodes(Graph(x, None), torch.arange(4) % 3)
    monkeypatch.setattr(SparseMatrix, "to_dense", None)
    some.check("train", 3)
    x.values[1] = float("nan")
    with pytest.raises(InputError, match="train/x holds NaN"):
        some.check("train", 3)


# --- a kind from outside ----------------------------------------------------------------------------------


@register_kind
@dataclass(frozen=True, eq=False, repr=False)
class Waves(Examples):
    kind = "wave"
    noun = "waves"
    axes = ("n", "steps")


def waves(count=6):
    return Waves(torch.linspace(0, 1, 5 * count).view(count, 5), torch.arange(count) % 3)


def test_a_kind_of_ones_own_goes_through_the_file(tmp_path):
    made = CondensedDataset(waves(), waves(9), META)
    assert (made.kind, made.meta["kind_module"]) == ("wave", "test_labelled")
    again = CondensedDataset.load(made.save(tmp_path / "a.hcdc"))
    assert isinstance(again.val, Waves)
    assert torch.equal(again.val.x, made.val.x)
    assert dict(again.summary())["val"] == "9 waves"
    assert "kind_module" not in CondensedDataset(rows(), None, again.meta | {"val_method": "real"}).meta
    with pytest.raises(InputError, match="of one kind, got Waves and Rows"):
        CondensedDataset(waves(), rows(features=5), META)
    with pytest.raises(InputError, match="3 waves and 2 labels"):
        CondensedDataset(Waves(torch.ones(3, 2), torch.arange(2)), None, META)


def test_a_file_of_an_unknown_kind_names_the_module(tmp_path):
    save = "CondensedDataset(Signals(torch.ones(2, 1, 4), torch.arange(2)), None, {}).save(sys.argv[1])"
    imports = "import sys, torch; from hcdc.datasets import CondensedDataset; "
    (tmp_path / "own_task.py").write_text(f"{SIGNAL}\nif __name__ == '__main__':\n    {imports}{save}\n")
    code = f"{imports}from own_task import Signals; {save}"
    subprocess.run([sys.executable, "-c", code, "a.hcdc"], cwd=tmp_path, check=True)
    subprocess.run([sys.executable, "own_task.py", "b.hcdc"], cwd=tmp_path, check=True)
    assert (tmp_path / "a.hcdc").read_bytes() == (tmp_path / "b.hcdc").read_bytes(), "a module or a script"
    with pytest.raises(InputError) as caught:
        CondensedDataset.load(tmp_path / "a.hcdc")
    assert str(caught.value) == (
        f"'{tmp_path / 'a.hcdc'}' cannot be opened: kind 'sound' is defined in module 'own_task'; "
        "import it first, or pass --import own_task"
    )


def test_names_of_kinds_are_taken_once():
    assert register_kind(Waves) is Waves
    other = dataclasses.make_dataclass("Other", [], bases=(Waves,), frozen=True, eq=False)
    with pytest.raises(InputError, match=r"kind 'wave' is taken by test_labelled\.Waves; choose another"):
        register_kind(other)
    with pytest.raises(InputError, match="train is Other, which is not a registered kind"):
        CondensedDataset(other(waves().x, waves().y), None, META)
    with pytest.raises(InputError, match="train is list, which is not a registered kind"):
        CondensedDataset([1], None, META)


# --- data sets --------------------------------------------------------------------------------------------


def sources():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(60, 4))
    return {
        "graph": data("embedded"),
        "image": data((rng.integers(0, 256, (60, 1, 4, 4), np.uint8), np.arange(60) % 3)),
        "classes": data((x, np.arange(60) % 3)),
        "values": data((x, x[:, 0])),
    }


@pytest.mark.parametrize("name", ["graph", "image", "classes", "values"])
def test_every_data_set_speaks_for_itself(name, monkeypatch):
    found = sources()[name]
    assert "\n" not in repr(found)
    assert len(repr(found)) < 120
    assert list(found.sizes()) == ["train", "val", "test"]
    assert all(f"{size:,}" in repr(found) for size in found.sizes().values())
    assert found.words in ("a graph", "a table", "images")
    described = found.describe()
    assert described["fingerprint"] == found.fingerprint()
    assert described["num_classes"] == found.num_classes
    moved = found.to("cpu")
    monkeypatch.setattr(type(found), "pieces", None)
    assert found.fingerprint() == moved.fingerprint() == described["fingerprint"], "hashed once"


def test_reprs():
    found = sources()
    assert repr(found["graph"]) == (
        "<graph 'citeseer-embedded': 120 / 500 / 1,000 of 3,327 nodes with 3,703 features in 6 classes>"
    )
    assert repr(found["classes"]) == "<table 'table': 36 / 12 / 12 rows of 4 features in 3 classes>"
    assert repr(found["values"]) == "<table 'table': 36 / 12 / 12 rows of 4 features, regression>"
    assert repr(found["classes"].train) == "<36 rows of 4, float32>"
    assert repr(nodes(labelled=4)) == "<4 of 6 nodes, 4 features>"
