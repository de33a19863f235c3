"""Full data in every type a user may pass: the type stays, subsets are stratified, content is told apart."""

import numpy as np
import pytest
import torch
from torch.utils.data import Dataset, Subset, TensorDataset

from hcdc import FullData, InputError

RNG = np.random.default_rng(0)
X = RNG.normal(size=(120, 3)).astype(np.float32)
Y = np.repeat([0, 1, 2], [90, 20, 10])
MIXED = np.array([None, "a", "b"], object)[Y]


class Unlabelled(Dataset):
    """Pairs whose labels are only known by reading them."""

    def __len__(self):
        return len(Y)

    def __getitem__(self, i):
        return torch.from_numpy(X[i]), int(Y[i])


def frame(y=Y):
    pandas = pytest.importorskip("pandas")
    return pandas.DataFrame({"a": X[:, 0], "b": X[:, 1], "late": y})


def graph():
    data = pytest.importorskip("torch_geometric.data").Data(
        x=torch.from_numpy(X), edge_index=torch.tensor([[0, 1], [1, 0]]), y=torch.from_numpy(Y)
    )
    order = torch.from_numpy(np.random.default_rng(1).permutation(120))
    for part, nodes in zip(("train", "val", "test"), order.split([80, 20, 20])):
        data[f"{part}_mask"] = torch.zeros(120, dtype=torch.bool)
        data[f"{part}_mask"][nodes] = True
    return data


def test_subsets_of_arrays_are_arrays_with_the_same_share_of_every_class():
    full = FullData((X, Y), (X, Y))
    x, y = full.subset(0.1, seed=3)
    assert isinstance(x, np.ndarray)
    assert np.bincount(y).tolist() == [9, 2, 1]
    assert np.array_equal(x, X[full.subset_index(0.1, 3)])
    assert np.bincount(full.subset(0.01, seed=3)[1]).tolist() == [1, 1, 1]
    assert not np.array_equal(full.subset(0.1, seed=4)[0], x)
    assert np.array_equal(full.subset(0.1, seed=3)[0], x)


def test_subsets_keep_the_type_that_was_passed():
    tensors = FullData((torch.from_numpy(X), torch.from_numpy(Y)), (torch.from_numpy(X), torch.from_numpy(Y)))
    assert isinstance(tensors.subset(0.5)[0], torch.Tensor)
    dataset = TensorDataset(torch.from_numpy(X), torch.from_numpy(Y))
    part = FullData(dataset, dataset).subset(0.1)
    assert sorted(part.tensors[1].tolist()) == [0] * 9 + [1] * 2 + [2]
    read = FullData(Unlabelled(), Unlabelled()).subset(0.1)
    assert (type(read), len(read)) == (Subset, 12)
    rows = FullData(frame(), frame(), target="late").subset(0.1)
    assert list(rows.columns) == ["a", "b", "late"]
    assert rows["late"].value_counts().tolist() == [9, 2, 1]


def test_what_a_trial_does_to_its_table_stays_its_own():
    full = FullData(frame(), frame(), target="late")
    for seed in range(2):
        data = full.trial(seed)
        assert data.train.pop("late").tolist() == data.val.pop("late").tolist() == Y.tolist()
        data.train["a"] *= 2
        assert list(data.train.columns) == ["a", "b"]
        assert data.score(Y, values=True) == 1
    assert full.train.equals(frame())


def test_a_subset_of_a_graph_has_fewer_training_nodes():
    data = graph()
    full = FullData(data)
    smaller = full.subset(0.25)
    assert full.test is data
    assert smaller.num_nodes == 120
    assert bool((data.train_mask | ~smaller.train_mask).all())
    expected = [max(1, round(0.25 * count)) for count in data.y[data.train_mask].bincount().tolist()]
    assert smaller.y[smaller.train_mask].bincount().tolist() == expected
    assert int(data.train_mask.sum()) == 80  # the user's object is left alone


def test_labels_of_a_dataset_are_read_only_where_scores_need_them():
    full = FullData(Unlabelled(), Unlabelled())
    assert full.num_classes == 3
    assert np.array_equal(full.parts["val"].labels, Y)
    assert len(full.subset(0.1)) == 12  # plain: labels of the training part are not read


def test_regression_has_no_classes_and_plain_subsets():
    full = FullData((X, X[:, 0]), (X, X[:, 0]))
    assert full.num_classes is None
    assert len(full.subset(0.1)[1]) == 12


@pytest.mark.parametrize(
    ("labels", "num_classes", "expected"),
    [
        (Y, None, [0, 1, 2]),
        (Y, 5, [0, 1, 2, 3, 4]),
        (Y + 1, None, [1, 2, 3]),
        (Y == 0, None, [False, True]),
        (np.array(["late", "early", "never"])[Y], None, ["early", "late", "never"]),
        (Y.astype(np.float32), 3, [0, 1, 2]),
    ],
)
def test_classes_come_in_the_order_of_outputs(labels, num_classes, expected):
    assert FullData((X, labels), (X, labels), num_classes=num_classes).classes.tolist() == expected


def test_fingerprints_tell_content_apart():
    changed = X.copy()
    changed[7, 1] += 1
    kinds = [
        lambda x: FullData((x, Y), (X, Y)),
        lambda x: FullData(
            (torch.from_numpy(x), torch.from_numpy(Y)), (torch.from_numpy(X), torch.from_numpy(Y))
        ),
        lambda x: FullData(frame().assign(a=x[:, 1]), frame(), target="late"),
    ]
    for make in kinds:
        assert make(X).fingerprint == make(X.copy()).fingerprint
        assert make(X).fingerprint != make(changed).fingerprint
    assert (
        FullData(Unlabelled(), Unlabelled()).fingerprint == FullData(Unlabelled(), Unlabelled()).fingerprint
    )
    data = graph()
    before = FullData(data).fingerprint
    data.y[3] += 1
    assert FullData(data).fingerprint != before


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: FullData((X, Y)), "val is missing"),
        (lambda: FullData((X, Y[:5]), (X, Y)), "X has 120 rows and y 5"),
        (lambda: FullData("cora", (X, Y)), "train is a str; pass a map-style torch Dataset"),
        (lambda: FullData((X, Y), Unlabelled()), "train is a tuple and val a Unlabelled"),
        (lambda: FullData((X, Y), (X, Y), target="late"), "target 'late' names a column"),
        (lambda: FullData((X, Y), (X, Y), num_classes=2), "num_classes 2: the labels name 3 classes"),
        (lambda: FullData((X, Y), (X, Y), metric="f1"), "metric 'f1': pass a function"),
        (lambda: FullData((X, Y), (X[:0], Y[:0])), "val is empty"),
        (lambda: FullData((X, MIXED), (X, MIXED)), "labels are of different kinds: NoneType, str"),
        (lambda: FullData((X, Y), (X, Y)).subset(1.5), "subset 1.5: give a fraction"),
        (lambda: FullData(frame(), frame()), "target is missing"),
        (lambda: FullData(frame(), frame(), target="late?"), "'late\\?' is not a column"),
    ],
)
def test_refusals_are_sentences(make, text):
    with pytest.raises(InputError, match=text):
        make()


@pytest.mark.parametrize("count", ["x", 0, 2.0])
def test_a_number_of_classes_is_whole(count):
    with pytest.raises(InputError, match=r"num_classes .*: give a whole number, 1 or more"):
        FullData((np.eye(2), np.arange(2)), (np.eye(2), np.arange(2)), num_classes=count)


def test_labels_in_a_column_are_labels():
    flat, column = FullData((X, Y), (X, Y)), FullData((X, Y[:, None]), (X, Y[:, None]))
    assert column.classes.tolist() == flat.classes.tolist()
    guesses = np.roll(Y, 1)
    assert column.trial(0).score(values=guesses) == flat.trial(0).score(values=guesses)
    assert next(iter(column.trial(0).loader("val", 8)))[1].tolist() == Y[:8].tolist()
    assert len(column.subset(0.1)[1]) == len(flat.subset(0.1)[1])


def test_several_labels_per_example_need_a_metric():
    several = np.eye(3, dtype=int)[Y]
    full = FullData((X, several), (X, several))
    assert full.num_classes is None
    assert full.subset(0.1)[1].shape == (12, 3)
    with pytest.raises(InputError, match=r"labels of shape \(120, 3\) are several per example"):
        full.trial(0).score(several)
    own = FullData((X, several), (X, several), metric=lambda y, outputs: float((y == outputs).mean()))
    assert own.trial(0).score(several) == 1.0


def test_a_sparse_matrix_in_coordinates_has_subsets():
    sparse = pytest.importorskip("scipy.sparse")
    full = FullData((sparse.coo_matrix(X), Y), (sparse.coo_matrix(X), Y))
    part = full.subset(0.1, 0)[0]
    assert part.format == "coo"
    assert np.array_equal(part.toarray(), X[full.subset_index(0.1, 0)])


def test_whole_labels_in_floating_point_are_doubted():
    labels = Y.astype(np.float32)
    assert "minus the RMSE; if they are classes" in FullData((X, labels), (X, labels)).doubt
    assert not FullData((X, labels), (X, labels), num_classes=3).doubt
    assert not FullData((X, X[:, 0]), (X, X[:, 0])).doubt
    assert not FullData((X, Y), (X, Y)).doubt
