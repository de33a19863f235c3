"""Tables from files, frames and arrays."""

import numpy as np
import pytest
import torch

from hcdc.core.errors import InputError
from hcdc.datasets import data, reopen

pandas = pytest.importorskip("pandas")


def frame(rows=60):
    rng = np.random.default_rng(0)
    return pandas.DataFrame(
        {
            "height": rng.normal(170, 10, rows),
            "age": rng.integers(20, 60, rows),
            "member": rng.random(rows) < 0.5,
            "city": np.array(["Rom", "Bern", "Oslo"])[np.arange(rows) % 3],
            "kind": np.array(["no", "yes"])[np.arange(rows) % 2],
        }
    )


def refused(*args, **kwargs):
    with pytest.raises(InputError) as error:
        data(*args, **kwargs)
    assert "\n" not in str(error.value)
    return str(error.value)


def test_frame_is_encoded_split_and_standardised():
    table = data(frame(), target="kind", seed=1)
    assert table.feature_names == ("height", "age", "member", "city=Bern", "city=Oslo", "city=Rom")
    assert table.class_names == ("no", "yes")
    assert table.num_classes == 2
    assert [len(table.train), len(table.val), len(table.test)] == [36, 12, 12]
    assert torch.bincount(table.train.y).tolist() == [18, 18]
    assert torch.allclose(table.train.x.mean(0), torch.zeros(6), atol=1e-5)
    assert torch.allclose(table.train.x.std(0, correction=0), torch.ones(6), atol=1e-5)
    assert table.train.y.dtype == torch.int64
    assert table.split.startswith("2 classes of 'kind' (texts")
    assert "seed 1" in table.split


def test_standardisation_uses_training_rows_only():
    x = np.arange(100.0)[:, None]
    table = data((x, np.arange(100) % 2), split=(range(50), range(50, 75), range(75, 100)))
    mean, deviation = x[:50].mean(), x[:50].std()
    assert np.allclose(table.test.x.numpy(), (x[75:] - mean) / deviation, atol=1e-5)


@pytest.mark.parametrize(
    ("y", "classes", "words"),
    [
        (np.arange(60) % 4, 4, "4 classes of y (integers"),
        (np.arange(60) % 4 * 10 - 20, 4, "4 classes of y (integers"),
        (np.arange(60) % 2 == 0, 2, "2 classes of y (Booleans"),
        (np.array(["a", "b", "c"] * 20), 3, "3 classes of y (texts"),
        (np.arange(60), None, "regression on y (60 different integers)"),
        (np.arange(60) % 2 + 0.0, None, "regression on y (floating-point"),
    ],
)
def test_classes_or_regression_is_inferred_and_said(y, classes, words):
    table = data((np.random.default_rng(0).normal(size=(60, 2)), y))
    assert table.num_classes == classes
    assert words in table.split
    assert table.train.y.dtype == (torch.float32 if classes is None else torch.int64)
    if classes is not None:
        assert table.train.y.max() == classes - 1
        assert len(table.class_names) == classes


def test_regression_keeps_pairs_together():
    x = np.arange(40.0)[:, None]
    table = data((x, 3 * x[:, 0] + 1.0))
    for rows in (table.train, table.val, table.test):
        slope = (rows.x[:, 0] - rows.x[0, 0]) / (rows.y - rows.y[0])
        assert torch.allclose(slope[1:], slope[1].expand(len(rows) - 1), atol=1e-5)


def test_values_are_standardised_by_the_training_rows():
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(100, 2)), rng.normal(1e4, 50, 100)
    table = data((x, y), split=(range(50), range(50, 75), range(75, 100)))
    assert (table.target_mean, table.target_scale) == (y[:50].mean(), y[:50].std())
    assert table.train.y.dtype == torch.float32
    assert np.allclose(table.test.y.numpy(), (y[75:] - y[:50].mean()) / y[:50].std(), atol=1e-5)
    assert abs(float(table.train.y.mean())) < 1e-6
    assert abs(float(table.train.y.std(correction=0)) - 1) < 1e-6
    assert f"standardised: mean {y[:50].mean():.4g}, scale {y[:50].std():.4g}" in table.split
    described = table.describe()
    assert (described["target_mean"], described["target_scale"]) == (table.target_mean, table.target_scale)
    classes = data((x, np.arange(100) % 2))
    assert (classes.target_mean, classes.target_scale) == (0.0, 1.0)
    assert "target_mean" not in classes.describe()


def test_a_target_that_is_constant_in_training_is_refused():
    y = np.repeat([3.5, 1.0, 2.0], [50, 25, 25])
    x = np.random.default_rng(0).normal(size=(100, 2))
    text = refused((x, y), split=(range(50), range(50, 75), range(75, 100)))
    assert "the target y is 3.5 in every training row; nothing can be learned from a constant" in text


def test_files_and_memory_agree(tmp_path):
    frame().to_csv(tmp_path / "a.csv", index=False)
    frame().to_csv(tmp_path / "b.csv.gz", index=False)
    expected = data(frame(), target="kind").fingerprint()
    paths = [tmp_path / "a.csv", tmp_path / "b.csv.gz"]
    try:
        frame().to_parquet(tmp_path / "c.parquet")
        paths.append(tmp_path / "c.parquet")
    except ImportError:
        pass
    for path in paths:
        table = data(path, target="kind")
        assert table.fingerprint() == expected
        assert table.name == path.name[0]
        assert reopen(table.describe()).fingerprint() == expected


@pytest.mark.parametrize("decimal", [".", ","])
@pytest.mark.parametrize("name", ["a.csv", "a.csv.gz"])
def test_semicolons_separate_columns_too(tmp_path, decimal, name):
    frame().to_csv(tmp_path / "plain.csv", index=False)
    frame().to_csv(tmp_path / name, index=False, sep=";", decimal=decimal)
    found, expected = (data(tmp_path / file, target="kind") for file in (name, "plain.csv"))
    assert found.feature_names == expected.feature_names
    assert found.fingerprint() == expected.fingerprint()
    assert reopen(found.describe()).fingerprint() == expected.fingerprint()


def test_a_semicolon_in_a_comma_separated_header_is_a_letter(tmp_path):
    frame().rename(columns={"age": "age;years"}).to_csv(tmp_path / "a.csv", index=False)
    assert "age;years" in data(tmp_path / "a.csv", target="kind").feature_names


def test_nullable_and_categorical_columns_are_as_plain_ones():
    plain = frame()
    other = plain.astype({"age": "Int64", "city": "category", "member": "boolean", "kind": "category"})
    assert data(other, target="kind").fingerprint() == data(plain, target="kind").fingerprint()
    assert data(other, target="age").fingerprint() == data(plain, target="age").fingerprint()


def test_frame_and_series_as_a_pair():
    table = data((frame().drop(columns="kind"), frame()["kind"]))
    assert table.fingerprint() == data(frame(), target="kind").fingerprint()


def test_missing_values_name_the_column(tmp_path):
    for column in ("height", "city"):
        bad = frame().astype({column: object})
        bad.loc[[3, 5], column] = None
        bad = bad.infer_objects()
        text = refused(bad, target="kind")
        assert f"column '{column}'" in text
        assert " 2 " in text
    bad = frame()
    bad.loc[2, "height"] = np.inf
    assert "column 'height' holds NaN or infinity in 1 rows" in refused(bad, target="kind")
    x = np.zeros((30, 3))
    x[4, 1] = np.nan
    assert "column 'x1'" in refused((x, np.arange(30) % 2))
    bad = frame()
    bad["kind"] = bad["kind"].where(bad.index != 7)
    assert "target column 'kind' has 1 missing" in refused(bad, target="kind")
    (tmp_path / "gap.csv").write_text("a,b\n1,0\n,1\n" + "2,0\n3,1\n" * 6)
    assert "column 'a'" in refused(tmp_path / "gap.csv", target="b")


def test_other_refusals(tmp_path):
    assert "pass target=, one of: height, age" in refused(frame())
    assert "did you mean 'kind'?" in refused(frame(), target="kin")
    assert "raw text is not supported" in refused(
        pandas.DataFrame({"t": [f"text {k}" for k in range(300)], "y": [0, 1] * 150}), target="y"
    )
    assert "holds dates" in refused(
        pandas.DataFrame({"t": pandas.date_range("2020", periods=30), "y": [0, 1] * 15}), target="y"
    )
    assert "more than 100 classes" in refused(
        pandas.DataFrame({"x": range(300), "y": [f"text {k}" for k in range(300)]}), target="y"
    )
    assert "no feature column" in refused(pandas.DataFrame({"y": [0, 1] * 15}), target="y")
    twice = frame()
    twice.columns = ["a", "a", "b", "c", "kind"]
    assert "'a' occurs more than once" in refused(twice, target="kind")
    x = np.zeros((30, 2))
    assert "at least 2 classes" in refused((x, np.zeros(30, int)))
    assert "at least 2 values" in refused((x, np.zeros(30)))
    assert "30 rows and 29 targets" in refused((x, np.arange(29) % 2))
    text = refused((np.zeros((30, 8, 8)).tolist(), np.arange(30) % 2))
    assert "x has shape (30, 8, 8); a table [rows, columns] is needed, or images as one array" in text
    assert "flatten" not in text
    assert "argmax" in refused((x, np.eye(30, 2)))
    assert "holds NaN" in refused((x, np.full(30, np.nan)))
    assert "encode it as numbers" in refused((np.array([["a"], ["b"]] * 15), np.arange(30) % 2))
    assert "not all of one length" in refused(([[1], [1, 2]], [0, 1]))
    assert "is empty in the training part" in refused((x, np.arange(30) // 10), split=([0], [10], [20]))
    (tmp_path / "empty.csv").write_text("")
    assert "cannot be read as a table" in refused(tmp_path / "empty.csv", target="y")
    pytest.importorskip("pyarrow")
    (tmp_path / "bad.parquet").write_text("hello")
    assert "cannot be read as a table" in refused(tmp_path / "bad.parquet", target="y")


def test_lists_of_rows_stay_tables():
    x, y = np.random.default_rng(0).normal(size=(30, 4)), np.arange(30) % 2
    expected = data((x, y)).fingerprint()
    for rows in (x.tolist(), list(x), tuple(x), [torch.from_numpy(row) for row in x]):
        found = data((rows, y))
        assert (found.kind, found.fingerprint()) == ("table", expected)
    assert "not all of one length" in refused(([x[0], x[1, :2]] * 15, y))
