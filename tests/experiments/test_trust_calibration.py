"""Protocol trust-calibration: controls do what they say, records hold what the tables read."""

import numpy as np
import pytest

from hcdc.core import records
from hcdc.core.errors import InputError
from hcdc.core.ranks import spearman
from hcdc.experiments import tables, trust_calibration
from hcdc.experiments.trust_calibration import Pool, controlled, measure, probed, run
from hcdc.spaces import Box


@pytest.fixture
def pool():
    rng = np.random.default_rng(0)
    x = rng.standard_normal(300)
    return Pool("one", x, x + 0.3 * rng.standard_normal(300))


def test_controls(pool):
    rng = np.random.default_rng(1)
    shuffled, shifted = (controlled(pool, name, rng) for name in ("shuffled", "shifted"))
    assert abs(spearman(shuffled.truth, shuffled.stand_in)) < 0.2
    assert spearman(shifted.truth, shifted.stand_in) < pool.agreement()[0] - 0.1
    np.testing.assert_array_equal(np.sort(shuffled.truth), np.sort(pool.truth))


def test_chosen_probes_are_different_and_top_heavy(pool):
    rng = np.random.default_rng(2)
    uniform, chosen = (probed(pool.stand_in, 24, kind, rng) for kind in (True, False))
    assert len(set(uniform.tolist())) == len(set(chosen.tolist())) == 24
    assert np.median(pool.stand_in[chosen]) > np.quantile(pool.stand_in, 0.75)


def test_measure_tells_good_from_shuffled(pool):
    good, bad = (measure([pool], 24, True, name, 60, 0) for name in ("none", "shuffled"))
    assert good["trust_if_high"] > 0.8
    assert good["trust_if_bad"] is None
    assert bad["trust_if_bad"] == 0
    assert 0.75 <= bad["spearman"]["coverage"] <= 1


def test_records(pool, tmp_path, monkeypatch):
    monkeypatch.setitem(trust_calibration.BENCHMARKS, "filters", lambda root: [pool])
    run(["filters"], tmp_path / "out.jsonl", probes=[8], resamples=3, root=tmp_path)
    found = list(records.read(tmp_path / "out.jsonl"))
    assert [(r["probes"], r["design"], r["control"]) for r in found[:3]] == [
        (8, "uniform", "none"),
        (8, "chosen", "none"),
        (24, "uniform", "shuffled"),
    ]
    assert {"coverage", "too_high", "width"} == set(found[0]["spearman"])
    with pytest.raises(InputError, match="filters"):
        run(["filter"], tmp_path / "out.jsonl", root=tmp_path)
    with pytest.raises(InputError, match="did you mean 'chosen'"):
        run(["filters"], tmp_path / "out.jsonl", designs=["chose"], root=tmp_path)


def test_dimensions_alone(pool, tmp_path, monkeypatch):
    """``a`` acts on the stand-in as on the truth, ``b`` the other way round."""
    asked = []

    class Made:
        space, tables = Box(["a", "b"], [0.0, 0.0], [1.0, 1.0]), ("one", "two")

        def __init__(self, folder):
            pass

        def score(self, table, configs, fidelity=None):
            asked.append((table, fidelity))
            sign = 1 if fidelity is None else -1
            return np.array([c["a"] + 0.5 * sign * c["b"] for c in configs])

    monkeypatch.setattr(trust_calibration, "Surrogate", Made)
    monkeypatch.setattr(trust_calibration, "SIZE", 80)
    monkeypatch.setitem(trust_calibration.BENCHMARKS, "rbv2_xgboost", lambda root: [pool])
    run(["rbv2_xgboost"], tmp_path / "out.jsonl", designs=["dimensions"], resamples=30, root=tmp_path)
    found = list(records.read(tmp_path / "out.jsonl"))
    assert [(r["probes"], r["design"], r["resamples"]) for r in found] == [
        (count, "dimensions", 30) for count in trust_calibration.AUDITS
    ]
    assert found[-1]["choose_here"] == pytest.approx(0.5)
    assert found[-1]["choose_here_wrong"] == 0
    assert found[-1]["keep_open"] == pytest.approx(0.5)
    assert len(asked) <= 3 * 2 * 2 * 4  # each table and fidelity once per number of audits


def test_table(pool, tmp_path, monkeypatch):
    monkeypatch.setitem(trust_calibration.BENCHMARKS, "filters", lambda root: [pool])
    run(["filters"], tmp_path / "out.jsonl", probes=[8], resamples=3, root=tmp_path)
    lines = tables.table("trust", list(records.read(tmp_path / "out.jsonl"))).splitlines()
    assert len(lines) == 2 + 6
    assert lines[2].startswith("| graph filters: copies | uniform | 8 |")
    assert "shifted" in lines[-1]
