"""Results of NAS-Bench-201's cells: the flat table, and the files of ``nats_bench``."""

from __future__ import annotations

import csv
import gzip
import itertools
import os

import pytest

from hcdc.core.errors import InputError
from hcdc.spaces import NASBench201, cell_string, computation, connected, operations
from hcdc.truth import COLUMNS, NASBench201Table, NATSBench

CELL = "|nor_conv_3x3~0|+|nor_conv_3x3~0|avg_pool_3x3~1|+|skip_connect~0|nor_conv_3x3~1|skip_connect~2|"
EVERY = list(itertools.product(range(5), repeat=6))

KNOWN = [  # index, operation numbers, parameters, CIFAR-10 validation accuracy after 200 epochs
    (0, (4, 2, 1, 2, 1, 1), 129306, 81.9827),
    (1, (3, 3, 4, 1, 3, 1), 802426, 90.7693),
    (2, (4, 3, 3, 4, 4, 4), 559386, 81.9107),
    (3, (4, 1, 0, 0, 0, 1), 73306, 84.3773),
    (5, (2, 1, 2, 3, 0, 4), 372346, 87.812),
]


def write_table(path, rows, columns=("index", "ops", "runs", *COLUMNS)):
    with gzip.open(path, "wt", newline="") if path.suffix == ".gz" else path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(columns)
        writer.writerows([[row.get(name, 1.5) for name in columns] for row in rows])
    return path


def known_rows():
    return [
        {"index": i, "ops": "-".join(map(str, n)), "runs": 3, "params_m": c / 1e6, "c10_valid_200": v}
        for i, n, c, v in KNOWN
    ]


@pytest.mark.parametrize("name", ["table.csv", "table.csv.gz"])
def test_a_table_is_read_by_cell_and_by_index(tmp_path, name):
    table = NASBench201Table(write_table(tmp_path / name, known_rows()))
    assert len(table) == len(KNOWN)
    for index, numbers, count, valid in KNOWN:
        cell = cell_string(numbers)
        assert table.index(cell) == table.index(numbers) == index
        assert table.cell(index) == cell
        assert table.lookup(cell, "c10_valid_200") == valid
        assert table.lookup(cell, "params_m") == count / 1e6
        assert table.lookup(cell, "c10_train_seconds_200") == 1.5


def test_what_a_table_does_not_have_is_said(tmp_path):
    table = NASBench201Table(write_table(tmp_path / "t.csv", known_rows()))
    with pytest.raises(InputError, match="did you mean 'c10_valid_200'"):
        table.lookup(CELL, "c10_valid_20")
    with pytest.raises(InputError, match="is not in this NAS-Bench-201 table of 5"):
        table.lookup((0,) * 6, "c10_valid_200")
    with pytest.raises(InputError, match="index 4 is not in this"):
        table.cell(4)


def test_a_bad_table_is_refused(tmp_path):
    with pytest.raises(InputError, match=r"NAS-Bench-201 table at .* the columns index, ops, c10_valid_12"):
        NASBench201Table(tmp_path / "none.csv.gz")
    (tmp_path / "text.csv.gz").write_text("not gzip")
    with pytest.raises(InputError, match="cannot be read"):
        NASBench201Table(tmp_path / "text.csv.gz")
    with pytest.raises(InputError, match="has no column c100_test_12, "):
        NASBench201Table(write_table(tmp_path / "a.csv", known_rows(), ("index", "ops", "c10_valid_12")))
    for change, words in (
        ({"ops": "3-3-4-1-3-5"}, "line 3 .* are not six numbers 0 to 4"),
        ({"ops": "3-3-4"}, "line 3 .* are not six"),
        ({"c10_test_12": "good"}, "line 3 .* not a number"),
        ({"c10_test_12": "nan"}, r"line 3 .*: c10_test_12 is nan; 0 to 100 % is needed"),
        ({"c10_valid_200": "950"}, r"line 3 .*: c10_valid_200 is 950.0; 0 to 100"),
        ({"index": 0}, "line 3 .* repeats cell"),
        ({"ops": "4-2-1-2-1-1"}, "line 3 .* repeats cell"),
    ):
        rows = known_rows()
        rows[1] |= change
        with pytest.raises(InputError, match=words):
            NASBench201Table(write_table(tmp_path / "b.csv", rows))


class Api:
    """Answers as the objects of ``nats_bench`` do, and keeps what it was asked."""

    def __init__(self):
        self.asked = []

    def query_index_by_arch(self, arch):
        return 1 if arch == CELL else -1

    def get_more_info(self, index, dataset, iepoch=None, hp="12", is_random=True):
        self.asked.append((index, dataset, hp, is_random))
        return {"valid-accuracy": 80.0, "test-accuracy": 90.0, "train-all-time": 2000.0}

    def get_cost_info(self, index, dataset, hp="12"):
        return {"flops": 100.0, "params": 0.802426, "latency": 0.01}


@pytest.mark.parametrize(
    ("column", "dataset", "epochs", "value"),
    [
        ("c10_valid_200", "cifar10-valid", "200", 80.0),
        ("c10_test_12", "cifar10", "12", 90.0),
        ("c100_valid_12", "cifar100", "12", 80.0),
        ("in16_test_200", "ImageNet16-120", "200", 90.0),
        ("c10_train_seconds_200", "cifar10-valid", "200", 2000.0),
    ],
)
def test_nats_bench_answers_by_the_same_columns(column, dataset, epochs, value):
    api = Api()
    assert NATSBench(api).lookup(CELL, column) == value
    assert api.asked == [(1, dataset, epochs, False)]


def test_nats_bench_parameters_and_refusals(tmp_path, monkeypatch):
    bench = NATSBench(Api())
    assert bench.index(operations(CELL)) == 1
    assert bench.lookup(CELL, "params_m") == 0.802426
    with pytest.raises(InputError, match="is not in these nats_bench files"):
        bench.lookup((0,) * 6, "params_m")
    with pytest.raises(InputError, match="column 'accuracy' is not known"):
        bench.lookup(CELL, "accuracy")
    monkeypatch.setitem(__import__("sys").modules, "nats_bench", None)
    with pytest.raises(InputError, match="needs the package 'nats_bench'"):
        NATSBench(tmp_path)


def test_what_is_no_nats_bench_file_is_refused(tmp_path, monkeypatch):
    class Package:
        def create(self, *given, **options):
            raise OSError("Invalid data stream")

    monkeypatch.setitem(__import__("sys").modules, "nats_bench", Package())
    with pytest.raises(InputError, match="cannot be read as a nats_bench file or folder: Invalid data"):
        NATSBench(tmp_path)


def test_nats_bench_files_are_opened_by_the_package(tmp_path, monkeypatch):
    class Package:
        def create(self, path, space, fast_mode, verbose):
            self.opened = (path, space, fast_mode, verbose)
            return Api()

    package = Package()
    monkeypatch.setitem(__import__("sys").modules, "nats_bench", package)
    assert NATSBench(tmp_path).index(CELL) == 1
    assert package.opened == (str(tmp_path), "topology", True, False)
    with pytest.raises(InputError, match="there is no nats_bench file or folder"):
        NATSBench(tmp_path / "missing")


@pytest.mark.data
def test_the_real_table():
    root = os.environ.get("HCDC_DATA")
    if not root or not os.path.exists(f"{root}/nasbench201.csv.gz"):
        pytest.skip("HCDC_DATA is not set or holds no nasbench201.csv.gz")
    table = NASBench201Table(f"{root}/nasbench201.csv.gz")
    assert len(table) == 15_625
    assert {operations(table.cell(i)) for i in range(15_625)} == set(EVERY)
    assert all(table.index(table.cell(i)) == i for i in range(0, 15_625, 100))
    # 1 in 100 rows gives the size of another cell of its class (its seconds are those of its own string)
    counts, mates, other = {}, {}, 0
    for numbers in EVERY:
        kinds = numbers.count(2), numbers.count(3)
        if kinds not in counts:
            counts[kinds] = NASBench201(cells=5).parameter_count({"cell": cell_string(numbers)}, 3, 10)
        mates.setdefault(computation(numbers), set()).add(counts[kinds])
    for numbers in EVERY:
        given = round(table.lookup(numbers, "params_m") * 1e6)
        if counts[numbers.count(2), numbers.count(3)] != given:
            other += 1
            assert given in mates[computation(numbers)]
    assert other == 150
    for index, numbers, _, valid in KNOWN:
        assert table.index(numbers) == index
        assert table.lookup(numbers, "c10_valid_200") == valid
    best = max(range(15_625), key=lambda i: table.lookup(table.cell(i), "c10_valid_200"))
    assert best == 6111
    assert round(table.lookup(table.cell(best), "c10_valid_200"), 2) == 91.61
    dead = [table.lookup(n, "c10_valid_200") for n in EVERY if not connected(n)]
    assert max(dead) < 11
