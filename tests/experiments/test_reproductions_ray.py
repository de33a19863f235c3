"""Units of a reproduction on a real Ray cluster of two nodes."""

import pytest
from tests.two_nodes import cluster

from hcdc import InputError
from hcdc.core import records
from hcdc.experiments.reproductions import REPRODUCTIONS, reproduce

__all__ = ["cluster"]


def test_units_on_a_cluster_give_the_records_of_one_process(cluster, tmp_path):
    what = REPRODUCTIONS["loss-landscape"].at("smoke")
    one = reproduce(what, [100, 101], tmp_path / "one.jsonl")
    many = reproduce(what, [100, 101], tmp_path / "many.jsonl", backend="ray", address=cluster.address)
    assert (many.done, many.table.rows) == (one.done, one.table.rows)
    both = [
        {r["seed"]: {k: v for k, v in r.items() if k not in ("seconds", "environment")} for r in found}
        for found in map(records.read, (tmp_path / "one.jsonl", tmp_path / "many.jsonl"))
    ]
    assert both[0] == both[1]


def test_a_worker_says_what_is_wrong_as_one_process_would(cluster, tmp_path):
    what = REPRODUCTIONS["nas"].at("small", {"nas201": str(tmp_path / "none.jsonl")})
    with pytest.raises((InputError, FileNotFoundError)) as one:
        reproduce(what, [100], tmp_path / "one.jsonl")
    with pytest.raises((InputError, FileNotFoundError)) as many:
        reproduce(what, [100], tmp_path / "many.jsonl", backend="ray", address=cluster.address)
    assert str(many.value) == str(one.value)
    assert "none.jsonl" in str(many.value)


def test_tables_follow_the_units_whatever_order_they_ended_in(tmp_path):
    what = REPRODUCTIONS["loss-landscape"].at("smoke")
    one = reproduce(what, [100, 101], tmp_path / "one.jsonl")
    records.append(tmp_path / "turned.jsonl", *reversed(list(records.read(tmp_path / "one.jsonl"))))
    assert reproduce(what, [100, 101], tmp_path / "turned.jsonl").table.rows[0] == one.table.rows[0]


@pytest.mark.parametrize(
    ("given", "said"), [({"backend": "slurm"}, "not known"), ({"address": "a:1"}, "Ray")]
)
def test_a_backend_is_named_in_full(tmp_path, given, said):
    with pytest.raises(InputError, match=said):
        reproduce(REPRODUCTIONS["loss-landscape"].at("smoke"), [100], tmp_path / "a.jsonl", **given)
