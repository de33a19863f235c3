"""Coresets of tables: rows are chosen by their standardised features, class by class."""

import numpy as np
import pytest
import torch
from reducer_conformance import reduce

from hcdc import datasets
from hcdc.condensers import make_reducer, plan
from hcdc.core.errors import InputError
from hcdc.core.labels import members
from hcdc.spaces import Box
from hcdc.tasks import FittedTask, TableTask


def rows(classes=True):
    rng = np.random.default_rng(0)
    x = rng.standard_normal((120, 3)) * [1, 10, 100]
    y = (x[:, 0] > 0.5).astype(int) if classes else x[:, 0] + rng.standard_normal(120)
    return datasets.data((x, y))


@pytest.mark.parametrize("name", ["kcenter", "herding"])
def test_rows_are_chosen_class_by_class(name):
    task, reducer = TableTask(rows()), make_reducer(name)
    small = reduce(reducer, task, "train", 9, seed=3)
    whole = task.train
    assert len(small) == 9
    assert reducer.trains(task) == ""
    for c, of in enumerate(members(whole.y, 2)):
        mine = small.x[small.y == c]
        assert torch.equal(mine, whole.x[of[reducer.choose(whole.x[of], len(mine))]])
    share = (small.y == 1).float().mean()
    assert abs(share - (whole.y == 1).float().mean()) < 0.1
    again = reduce(reducer, FittedTask(rows(), lambda *_: None), "train", 9, seed=4)
    assert torch.equal(again.x, small.x)  # no chance, no network


def test_values_are_one_more_feature():
    task, reducer = TableTask(rows(classes=False), "ridge"), make_reducer("kcenter")
    small = reduce(reducer, task, "train", 7, seed=0)
    points = torch.cat([task.train.x, task.train.y[:, None].to(task.train.x)], 1)
    picked = reducer.choose(points, 7)
    assert torch.equal(small.x, task.train.x[picked])
    assert torch.equal(small.y, task.train.y[picked])
    with pytest.raises(InputError, match="train_size 500"):
        reduce(reducer, task, "train", 500)


def test_a_copy_may_have_such_an_s_train():
    task = FittedTask(rows(), lambda config, x, y, seed: lambda some: np.zeros((len(some), 2)))
    planned = plan(
        task, Box(["a"], 0.1, 1.0), train_size=9, val_size=6, train_method="kcenter", val_method="random"
    )
    small = planned.run(checkpoint=None)
    assert small.meta["train_method"] == "kcenter"
    assert len(small.train) == 9
