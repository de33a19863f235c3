"""A hyperparameter that nothing reads is refused by name; one of the recipe changes the training."""

import numpy as np
import pytest
from tiny_graph import tiny_task
from tiny_images import tiny_image_data

from hcdc.condensers import condense, plan
from hcdc.core.errors import InputError
from hcdc.core.recipe import Recipe
from hcdc.spaces import Box, NASBench201, PolynomialFilter, Product
from hcdc.tasks import ImageTask
from hcdc.training import Job, score

CELLS = Product(NASBench201(channels=2), Box(["lr"], 1e-4, 1.0, "log"))


@pytest.mark.parametrize(
    ("task", "network"),
    [(tiny_task(), PolynomialFilter(width=4)), (ImageTask(tiny_image_data(1, 4)), NASBench201(channels=2))],
    ids=["graph", "image"],
)
def test_what_nothing_reads_is_refused(task, network):
    with pytest.raises(InputError, match="hyperparameter 'momentun': nothing reads it"):
        plan(task, Product(network, Box(["momentun"], 0, 1)), train_size=6, val_method="random")
    plan(task, Product(network, Box(["lr"], 1e-3, 0.1, "log")), train_size=6, val_method="random")


def test_a_model_of_ones_own_may_read_anything():
    task = ImageTask(tiny_image_data(1, 4), model=lambda config: NotImplemented)
    assert task.reads(Box(["dropout"], 0, 1)) == ["dropout"]


def test_the_learning_rate_of_a_candidate_trains_it():
    task = ImageTask(tiny_image_data(1, 4))
    cell = CELLS.sample(1, np.random.default_rng(0))[0]
    configs = [{**cell, "lr": 1e-4}, {**cell, "lr": 0.5}, {**cell, "lr": 1e-4}]
    recipe = Recipe(steps=4, lr=0.05, optimizer="sgd", batch=4)
    job = Job(task, CELLS, configs, [task.train], recipe, {"val": task.val})
    slow, fast, again = (result.values["val.loss"] for result in score(job)[0])
    assert slow == again
    assert abs(slow - fast) > 1e-3


def test_a_product_of_cells_and_a_learning_rate_is_condensed_for():
    task = ImageTask(tiny_image_data(1, 4))
    options = {"probes": 4, "companions": 0, "probe_steps": 2}
    small = condense(
        task, CELLS, train_size=6, val_method="probes", options=options,
        recipe={"steps": 2, "seeds": 1}, full_recipe={"steps": 2},
    )  # fmt: skip
    assert all("lr" in config for config in small.meta["probes"]["configs"])
