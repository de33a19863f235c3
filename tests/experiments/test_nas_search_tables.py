"""The table of architecture search from records made by hand."""

import pytest

from hcdc.experiments import nas_search_tables, tables


def darts(data, seed, accuracy, seconds=10.0, **changes):
    settings = {"cells": 1, "epochs": 100, "tune_epochs": 5, "batch": 64}
    return {
        "protocol": "nas-search", "searcher": "darts-pt-small", "data": data, "seed": seed,
        "search_seconds": seconds, "making_seconds": 40.0 if data == "hcdc" else 0.0,
        "probes": 20 if data == "hcdc" else 0, "test_accuracy": accuracy,
        "settings": {**settings, **changes},
    }  # fmt: skip


def reinforce(data, recipe, accuracies, cells=120, best=None):
    count = len(accuracies)
    return {
        "protocol": "nas-search", "searcher": "reinforce", "data": data, "recipe": recipe, "cells": cells,
        "asks": 100, "test_accuracy": accuracies, "search_seconds": [20.0] * count,
        "making_seconds": [40.0] * count, "probes": [20 if data == "hcdc" else 0] * count,
        "best_probe": [best] * count,
    }  # fmt: skip


def lines(found):
    text = tables.table("nas-search", found)
    return [[c.strip() for c in line.strip("|").split("|")] for line in text.splitlines() if "|" in line]


def test_runs_are_averaged_and_every_second_is_counted():
    found = [darts("hcdc", seed, value) for seed, value in enumerate((0.91, 0.92, 0.93))]
    found += [darts("random", 0, 0.90), darts("original", 0, 0.94, 300.0, batch=256)]
    head, _, paper, ours, other, reinforced = lines(found)
    assert len({len(line) for line in (head, paper, ours, other, reinforced)}) == 1
    assert paper[:3] == ["DARTS-PT, the paper's", "37.1", "89.4 ± 0.3"]
    assert ours == [
        "DARTS-PT: 1 cell per stage, 100 and 5 x 5 epochs in batches of 64", "10.0 / 10.0", "90.0 (1)",
        "not run", "not run", "10.0 / 1,576", "92.0 ± 1.0 (3)", "not run", "not run", "first",
    ]  # fmt: skip
    assert "batches of 256" in other[0]
    assert other[-3:] == ["300 / 300", "94.0 (1)", ""]
    assert reinforced[0] == "REINFORCE, the paper's"


def test_replays_have_an_interval_and_the_best_probe_is_told():
    values = [0.9 + 0.001 * k for k in range(21)]
    found = [
        reinforce("hcdc", "calibrated", values, best=0.94),
        reinforce("random", "calibrated", [v - 0.01 for v in values]),
        reinforce("original", "200 epochs", [0.95] * 21),
        reinforce("original", "12 epochs", [0.94] * 21),
    ]
    ours = {line[0]: line for line in lines(found)}
    whole = ours["REINFORCE: 100 of 120 cells, calibrated recipe (original: 200 epochs)"]
    assert whole[5:] == [
        "20.0 / 1,586",
        "91.0 [90.1, 91.9]",
        "20.0 / 60.0",
        "95.0 [95.0, 95.0]",
        "beaten by Original",
    ]
    short = ours["REINFORCE: 100 of 120 cells, published recipe (original: 12 epochs)"]
    assert short[1:7] == ["not run"] * 6
    assert tables.table("nas-search", found).endswith(
        "REINFORCE, 100 of 120 cells: a search on HCDC's copy takes 20.0 seconds, with making it and its 20 "
        "probes 1,586; on random images it takes 60.0 and finds a cell 1.00 points worse; on the original "
        "data (200 epochs) it takes 60.0 and finds a cell 4.00 points better; on the original data (12 "
        "epochs) it takes 60.0 and finds a cell 3.00 points better; the best of the probes is 3.00 points "
        "better."
    )


def test_nothing_is_said_of_a_searcher_that_did_not_run_on_hcdc():
    assert nas_search_tables.sentence([]) == ""
    text = tables.table("nas-search", [darts("random", 0, 0.9)])
    assert text.splitlines()[-1].startswith("| REINFORCE, the paper's")


@pytest.mark.parametrize("order", [1, -1])
def test_the_paper_comes_before_ours_in_any_order_of_records(order):
    found = [darts("hcdc", 0, 0.9), reinforce("hcdc", "calibrated", [0.9])][::order]
    names = [line[0].split(":")[0] for line in lines(found)[2:]]
    assert names == ["DARTS-PT, the paper's", "DARTS-PT", "REINFORCE, the paper's", "REINFORCE"]


def test_a_search_on_a_cpu_has_a_row_of_its_own_and_no_price_of_a_gpu_for_its_probes():
    cpu = {**darts("hcdc", 0, 0.9), "environment": {"device": "cpu (1 threads)"}}
    text = tables.table("nas-search", [darts("hcdc", 1, 0.9), cpu])
    one, other = (line for line in text.splitlines() if line.startswith("| DARTS-PT: "))
    assert "on a CPU" not in one
    assert "probes" not in one
    assert "on a CPU" in other
    assert f"+ {cpu['probes']} probes |" in other
