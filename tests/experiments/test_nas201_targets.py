"""The table of targets and objectives, from made-up records."""

import numpy as np
import pytest

from hcdc.core.ranks import spearman
from hcdc.experiments import nas201_draws
from hcdc.experiments.nas201_rankings import KINDS, kind_of
from hcdc.experiments.nas201_targets import HEAD, MODEL, NOT_RUN, Compared, targets_table
from hcdc.experiments.reproductions.nas201 import judging_cells
from hcdc.spaces import NASBench201

BEFORE = "**HCDC (b)**: 200 images learned from 20 probes"
CHANGED = f"{BEFORE}, follows the model, pairs weighted toward the top"


def record(label, **found):
    shared = {
        "dataset": "cifar10", "train_size": 500, "val_size": 200, "judge_seconds": 4.0, "initialisations": 8,
        "changes": ["probes+model+top"],
    }  # fmt: skip
    return {**shared, "label": label, **found}


@pytest.fixture
def made(monkeypatch):
    """Forty cells; two condensations; the model ranks best, then what follows it, then the usual S_val."""
    monkeypatch.setattr(nas201_draws, "REGRET_DRAWS", 200)
    cells = [c["cell"] for c in judging_cells(44)]
    rng = np.random.default_rng(0)
    val = rng.random(40)
    base = record(
        "truth", cells=cells[:40], val=val.tolist(), test=val.tolist(), val12=val.tolist(),
        parameters=list(range(40)), features=[NASBench201().features({"cell": c}) for c in cells[:40]],
    )  # fmt: skip
    found = [base]

    def noisy(scale):
        return (-val + scale * rng.normal(size=40)).tolist()

    for seed in (1, 2):
        for label in ("random-val", "real-val"):
            found.append(record(label, seed=seed, loss=noisy(0.3), draw=None, condense_seconds=1.0))
        known = {
            "probes": cells[40:], "probe_scores": [0.1, 0.3, 0.2, 0.4], "probe_tests": [0.1, 0.3, 0.2, 0.4],
            "probe_losses": {"random": [4, 3, 2, 1], "real": [1, 2, 3, 4]}, "draw": 0,
        }  # fmt: skip
        for label, scale, followed in (
            ("hcdc-probes", 0.3, 0.7), ("hcdc-probes+model+top", 0.15, 0.8), ("model", 0.05, None),
        ):  # fmt: skip
            told = {} if followed is None else {"history": [{"step": 20, "companion_correlation": followed}]}
            found.append(record(label, seed=seed, loss=noisy(scale), condense_seconds=2.0, **known, **told))
    return found


def lines(table):
    head, _, *rows = ([c.strip() for c in line.split("|")[1:-1]] for line in table.splitlines())
    return {row[0]: dict(zip(head, row)) for row in rows}


def test_rows_stand_beside_what_they_change_and_the_model(made):
    table = lines(targets_table(made))
    ours, before, model = table[CHANGED], table[BEFORE], table[MODEL]
    assert list(table)[:2] == [MODEL, CHANGED]  # the best first
    compared = Compared(made)
    truth = compared.truth

    def whole(name):
        return [spearman(truth, one.scores) for one in compared.rows[name]]

    for name, row in ((CHANGED, ours), (BEFORE, before), (MODEL, model)):
        assert row["all cells"] == f"{np.mean(whole(name)):.3f}"
        assert row["runs"] == "2"
    gain = np.mean(np.subtract(whole(CHANGED), whole(BEFORE)))
    assert ours["all cells, minus as before"].startswith(f"{gain:+.3f} [")
    assert ours["all cells, minus the model"].startswith("-")
    assert before["all cells, minus as before"] == model["all cells, minus the model"] == ""
    assert ours["companions, with their target"] == "0.80"
    assert model["companions, with their target"] == ""
    top = [
        np.mean([compared.top.correlations(one.scores).mean() for one in compared.rows[name]])
        for name in (CHANGED, BEFORE)
    ]
    assert ours["top 30"] == f"{top[0]:.2f}"
    assert ours["top 30, minus as before"].startswith(f"{top[0] - top[1]:+.2f} ± ")
    assert ours[HEAD[-1]] == "12"  # two seconds and a hundred times four by forty
    assert not any("12 epochs" in name or "200 epochs" in name for name in table)
    assert any(name.startswith("ridge") for name in table)


def test_records_of_other_tables_are_left_out_and_none_are_not_run(made):
    assert all(kind_of(r) not in KINDS for r in made)
    plain = [{k: v for k, v in r.items() if k != "changes"} for r in made]
    for some in ([], made[:1], plain):
        assert list(lines(targets_table(some))) == [NOT_RUN]
