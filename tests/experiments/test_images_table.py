"""The paper's table of cells on copies of CIFAR, from records."""

import numpy as np
import pytest

from hcdc.experiments.images_table import images_table
from hcdc.spaces import NASBench201

COUNT = 104


@pytest.fixture(scope="module")
def found():
    """Records of 50 images per class in all: a perfect copy by DM, a reversed one by TM, and HCDC's."""
    cells = [c["cell"] for c in NASBench201().candidates()[:COUNT]]
    truth = np.linspace(0.5, 0.9, COUNT)
    shared = {"protocol": "nas201", "dataset": "cifar10", "train_size": 400, "val_size": 100, "total": True}
    features = [NASBench201().features({"cell": cell}) for cell in cells]
    base = {
        **shared, "label": "truth", "cells": cells, "val": truth.tolist(), "test": truth.tolist(),
        "val12": truth.tolist(), "parameters": list(range(COUNT)), "features": features,
    }  # fmt: skip

    def copy(label, scores, seed=100, recipe="calibrated"):
        values = {"val.loss": (-scores).tolist(), "val.score": scores.tolist()}
        return {
            **shared, "label": label, "recipe_name": recipe, "seed": seed, "judge_seconds": 1.0,
            "making": {"condense_seconds": 1.0}, **values,
        }  # fmt: skip

    return [base, copy("dm", truth), copy("dm", truth, 101), copy("tm", -truth)]


def rows(found):
    return {line.split(" | ")[1]: line.split(" | ") for line in images_table(found).splitlines()[2:]}


def test_a_perfect_copy_finds_the_best_cell_and_a_reversed_one_the_worst(found):
    table = rows(found)
    assert table["DM"][2] == "1.00 (2)"
    assert table["DM"][4] == table["the best cell"][4]
    assert (table["TM"][2], table["DM"][3], table["TM"][3]) == ("-1.00 (1)", "1.00", "0.00")
    assert float(table["TM"][4]) < 51
    assert table["DM"][-3] == "-0.10 ± 0.15"


def test_what_was_not_run_is_empty_or_left_out(found):
    table = rows(found)
    assert set(table) == {"DM", "TM", "the best cell"}
    assert table["DM"][5:11] == [""] * 6


def test_further_random_copies_are_those_of_hcdc(found):
    base, dm = found[:2]
    own = {**dm, "label": "random"}
    rest = ("label", "recipe_name", "val.loss", "val.score")
    shared = {k: v for k, v in dm.items() if k not in rest}
    more = [{**shared, "label": "random-val", "seed": seed, "loss": dm["val.loss"]} for seed in (100, 101)]
    assert rows([base, own, *more])["random"][2] == "1.00 (2)"
