"""Ways to make S_val: their registry, a way from outside, and what a plan says and costs."""

import json
from dataclasses import dataclass

import pytest
import torch
from quick_hcdc import QUICK, SPACE, make, short_recipes, tiny_table
from tiny_graph import tiny_task
from tiny_images import tiny_image_data

from hcdc.condensers import (
    VALIDATIONS,
    Cost,
    Expense,
    Made,
    Validation,
    condense,
    make_validation,
    plan,
    register_validation,
)
from hcdc.core.errors import InputError
from hcdc.core.settings import setting
from hcdc.datasets import CondensedDataset
from hcdc.spaces import NASBench201
from hcdc.tasks import ImageTask

pytestmark = pytest.mark.usefixtures("short_recipes")
__all__ = ["short_recipes"]
CELLS = NASBench201(channels=2)


@pytest.fixture
def outside(monkeypatch):
    """A way of which the package knows nothing: the first examples, some left out."""
    monkeypatch.setattr("hcdc.condensers.validation._base.VALIDATIONS", VALIDATIONS)
    known = dict(VALIDATIONS)

    @register_validation
    @dataclass(frozen=True)
    class First(Validation):
        name = "first"
        learned = False
        skipped: int = setting(0, least=0)

        def cost(self, plan, task, device):
            return [Expense("nothing to speak of", 0.0)]

        def make(self, plan, work):
            index = self.skipped + torch.arange(plan.val_size)
            return Made(work.task.subset(work.task.val, index), {"skipped": self.skipped}, {"seen": 1})

    yield First
    VALIDATIONS.clear()
    VALIDATIONS.update(known)


def test_a_way_from_outside_goes_all_the_way(outside, tmp_path):
    task = tiny_table()
    given = {"train_size": 6, "val_size": 9, "val_method": "first", "options": {"skipped": 2}}
    made = plan(task, task.space(), **given)
    assert made.way == outside(skipped=2)
    assert made.cost().words() == "nothing to speak of"
    small = condense(task, task.space(), **given)
    assert torch.equal(small.val.x, task.val.x[2:11])
    assert small.meta["settings"]["val"] == {"skipped": 2}
    assert (small.meta["skipped"], small.record["seen"]) == (2, 1)
    again = CondensedDataset.load(small.save(tmp_path / "a.hcdc"))
    assert again.meta["val_method"] == "first"
    with pytest.raises(InputError, match="'skipped' of val_method 'first' must be at least 0, got -1"):
        plan(task, task.space(), **{**given, "options": {"skipped": -1}})
    with pytest.raises(InputError, match="'skip' is not known; did you mean 'skipped'"):
        plan(task, task.space(), **{**given, "options": {"skip": 1}})
    with pytest.raises(InputError, match=r"val_method 'real' has no such .* choose val_method 'first'"):
        plan(task, task.space(), **{**given, "val_method": "real"})


def test_a_name_is_registered_once(outside):
    with pytest.raises(InputError, match="val_method 'real' is registered already"):

        @register_validation
        @dataclass(frozen=True)
        class Real(outside):
            name = "real"


def test_both_means_what_fits_the_task():
    images = ImageTask(tiny_image_data(1, 4))
    probed, anchored = make_validation("both", images, "images"), make_validation("both", tiny_task())
    assert len(probed.asked(CELLS, 0)) == 20
    assert probed.anchors == 0
    assert anchored.asked(SPACE, 0) == []
    assert anchored.anchors == 1
    assert "probes" not in anchored.names()
    assert "anchors" not in probed.names()


# --- before the work ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("val_method", ["both", "aligned", "probes", "weighted"])
def test_tables_and_graphs_have_seconds_too(val_method):
    table = tiny_table()
    for task, space in ((table, table.space()), (tiny_task(), SPACE)):
        cost = plan(task, space, train_size=6, val_method=val_method).cost()
        assert cost.seconds > 0
        assert cost.full_trainings == (192 if val_method in ("both", "aligned") else 20)
        assert "(estimate from a few" in cost.words()
        assert json.loads(json.dumps(cost.to_json()))["full_trainings"] == cost.full_trainings


def test_seconds_that_nobody_knows_are_not_added():
    some = Cost((Expense("a", 1.0, full_trainings=2), Expense("b", 2.0)))
    assert (some.seconds, some.full_trainings, some.words()) == (3.0, 2, "a; b")
    assert Cost((*some.expenses, Expense("c", None))).seconds is None
    assert Cost(()).seconds == 0
    assert Cost(()).words() == "no full-data training"


def test_a_plan_says_what_it_will_do():
    told = dict(plan(tiny_task(), SPACE, train_size=6, preset="demo").summary())
    assert told["data"].startswith("tiny, 20 / 40 / 30 for training / validation / test, split: ")
    assert told["method"] == "hcdc, preset demo: S_train by reach, S_val by both"
    assert told["sizes"] == "S_train 6, S_val 12"
    assert told["calibrated recipe"].startswith("steps 2, lr 0.05")
    assert "note" not in told
    images = ImageTask(tiny_image_data(1, 4))
    told = dict(plan(images, CELLS, train_size=6, val_method="aligned").summary())
    assert "1 x 4 x 4 pixels" in told["data"]
    assert told["sizes"] == "S_train 6 (2 per class), S_val 3 (1 per class)"
    assert "ranked cells of CIFAR-10 worse than random" in told["note"]
    told = dict(
        plan(images, CELLS, train_size=6, val_method="weighted", options={"calibrate": True}).summary()
    )
    assert told["sizes"].endswith("S_val 3, of any class")
    assert told["calibrated recipe"].endswith("or another that the probes choose")
    assert dict(plan(images, CELLS, "random", train_size=6, val_method="real").summary())["sizes"].endswith(
        "S_val 18 real validation examples"
    )


def test_the_data_is_hashed_once(monkeypatch):
    task, asked = tiny_task(), []
    fingerprint = type(task.data).fingerprint
    monkeypatch.setattr(type(task.data), "fingerprint", lambda data: asked.append(1) or fingerprint(data))
    plan(task, SPACE, "random", train_size=6).run()
    assert len(asked) == 1


def test_a_copy_knows_its_task_in_this_process_alone(tmp_path):
    task = tiny_task()
    small = make(task, method="random", options=None)
    assert small.task is task
    assert small.to("cpu").task is task
    assert "task" not in repr(small)
    assert CondensedDataset.load(small.save(tmp_path / "a.hcdc")).task is None


def test_a_run_is_the_plan_it_was_made_by():
    made = plan(tiny_task(), SPACE, train_size=6, val_size=9, val_method="both", options=QUICK)
    assert made.run().to_bytes() == make().to_bytes() == made.run().to_bytes()
