"""The table of ``ranks``: the paper's numbers beside the rankings that they are of."""

from hcdc.experiments.reproductions import REPRODUCTIONS


def record(**share):
    rivals = [("HCDC (a): images learned from hypergradients alone", 0.6), ("HCDC (b) + ridge", 0.9),
              ("DM copy, calibrated recipe, by loss", 0.5)]  # fmt: skip
    ranked = {
        "method": "HCDC (b): images learned from 20 probes", "spearman": 0.8, **share,
        "truth": [1.0, 2.0], "proxy": [1.0, 2.0],
        "rivals": [{"name": name, "spearman": value, **share} for name, value in rivals],
    }  # fmt: skip
    return {"title": "cells", "ranked": ranked}


def test_the_papers_hcdc_is_the_one_without_probes():
    made = REPRODUCTIONS["ranks"]().table([record(calibration=0.75)])
    beside = {row[1].split(":")[0]: row[3] for row in made.rows}
    assert beside == {
        "HCDC (b) + ridge": "", "HCDC (b)": "", "HCDC (a)": "0.74",
        "DM copy, calibrated recipe, by loss": "-0.10",
    }  # fmt: skip


def test_shares_of_pairs_are_shown_if_a_record_has_them():
    of = REPRODUCTIONS["ranks"]()
    old, new = of.table([record()]), of.table([record(), record(calibration=0.75)])
    assert old.head[-1] == "paper"
    assert {len(row) for row in old.rows} == {4}
    assert new.head[-1] == "pairs in order"
    assert {row[-1] for row in new.rows} == {"undefined", "0.75"}
