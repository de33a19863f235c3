"""SGD for many lanes at once: each lane is the plain loop."""

import numpy as np
import pytest
import torch
from torch import nn

from hcdc.core.recipe import Recipe
from hcdc.core.seeds import stream
from hcdc.datasets import Images, Rows, TableData, image_data
from hcdc.spaces import NASBench201
from hcdc.tasks import ImageTask, TableTask, draw_flip_crop, flip_crop
from hcdc.training import init_many, train_many
from hcdc.training._networks import batches
from hcdc.training._optimizers import sgd_step

RECIPE = Recipe(steps=7, lr=0.3, optimizer="sgd", batch=8, lr_end=0.01, clip=0.2)


def table_task():
    rng = np.random.default_rng(0)
    x = torch.from_numpy(rng.normal(size=(40, 3)))
    y = torch.from_numpy(rng.integers(0, 3, 40))
    rows = [Rows(x[a:b], y[a:b]) for a, b in ((0, 20), (20, 30), (30, 40))]
    return TableTask(TableData("rows", "memory", *rows, num_classes=3), "mlp", width=4)


def plain_loop(task, params, lam, data, recipe):
    leaves = {name: p.clone().requires_grad_() for name, p in params.items()}
    optimiser = torch.optim.SGD(leaves.values(), lr=recipe.lr, momentum=0.9)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, recipe.steps, recipe.lr_end)
    order = batches(len(data), recipe.batch, recipe.steps, stream(0, "many-batches"))
    clipped, chance = 0, stream(0, "many-augmentations")
    for index in order:
        optimiser.zero_grad()
        some = task.subset(data, index.sort().values if recipe.augment == "none" else index)
        if recipe.augment != "none":
            flip, shift = draw_flip_crop(chance, len(index), pad=1)
            flip = flip & (recipe.augment == "flip-crop")
            some = Images(flip_crop(some.x, flip, shift), some.y)
        task.train_loss(leaves, lam, some).backward()
        if recipe.clip:
            clipped += float(nn.utils.clip_grad_norm_(leaves.values(), recipe.clip)) > recipe.clip
        optimiser.step()
        schedule.step()
    assert clipped or not recipe.clip
    return {name: p.detach() for name, p in leaves.items()}


@pytest.mark.parametrize(
    "recipe",
    [RECIPE, Recipe(steps=5, lr=0.3, optimizer="sgd"), Recipe(steps=5, lr=0.3, optimizer="sgd", batch=99)],
)
def test_lanes_are_what_torch_trains_one_by_one(recipe):
    """Lanes share batches; each lane's gradient is clipped by its own norm."""
    task = table_task()
    space = task.space()
    lam = torch.stack([space.encode(config) for config in space.sample(3, np.random.default_rng(0))])
    params = init_many(task, [(k,) for k in range(3)], 0, "init", "cpu")
    params["weight"][1] *= 30  # a lane with a large gradient beside small ones
    before = {name: p.clone() for name, p in params.items()}
    found = train_many(task, params, lam, task.train, recipe)
    for lane in range(3):
        start = {name: p[lane] for name, p in params.items()}
        expected = plain_loop(task, start, lam[lane], task.train, recipe)
        for name, p in expected.items():
            torch.testing.assert_close(found[name][lane], p, rtol=1e-6, atol=1e-8)
            assert not torch.equal(p, start[name])
    assert all(torch.equal(params[name], p) for name, p in before.items())  # not changed


@pytest.mark.parametrize("augment", ["none", "crop", "flip-crop"])
def test_a_lane_of_the_relaxed_cell_is_the_plain_loop(augment):
    rng = np.random.default_rng(0)
    parts = {
        name: (torch.from_numpy(rng.integers(0, 256, (12, 1, 4, 4)).astype(np.uint8)), np.arange(12) % 3)
        for name in ("train", "val", "test")
    }
    space = NASBench201(channels=2)
    task = ImageTask(image_data("noise", "memory", parts), weight_decay=0.01).bind(space)
    train = Images(task.inputs(task.train.x).double(), task.train.y)
    params = {name: p.double() for name, p in init_many(task, [(0,)], 0, "init", "cpu").items()}
    lam = space.encode(space.candidates()[0])[None]
    lam = (lam + 0.1) / (lam + 0.1).view(6, 5).sum(1).repeat_interleave(5)
    recipe = Recipe(steps=4, lr=0.05, optimizer="sgd", batch=6, clip=0.5, augment=augment)
    found = train_many(task, params, lam, train, recipe)
    expected = plain_loop(task, {name: p[0] for name, p in params.items()}, lam[0], train, recipe)
    for name, p in expected.items():
        torch.testing.assert_close(found[name][0], p, rtol=1e-6, atol=1e-9)


def test_augmented_images_are_those_that_networks_see():
    x = torch.arange(2 * 64, dtype=torch.uint8).view(2, 1, 8, 8)
    parts = {name: (x, np.arange(2)) for name in ("train", "val", "test")}
    task = ImageTask(image_data("ramp", "memory", parts))
    found = task.augmented(task.train, Recipe(augment="flip-crop"), stream(3, "x"))
    expected = flip_crop(task.inputs(x), *draw_flip_crop(stream(3, "x"), 2, pad=1))
    assert torch.equal(found.x, expected)
    assert torch.equal(found.y, task.train.y)
    assert not torch.equal(found.x, task.inputs(x))
    assert task.augmented(task.train, Recipe(), stream(3, "x")) is task.train


def test_a_small_gradient_is_not_changed_by_the_limit():
    theta, momentum = {"w": torch.zeros(2, 3)}, {"w": torch.zeros(2, 3)}
    sgd_step(theta, {"w": torch.tensor([[3.0, 0.0, 4.0], [0.3, 0.0, 0.4]])}, momentum, lr=1.0, clip=1.0)
    torch.testing.assert_close(theta["w"], -torch.tensor([[0.6, 0.0, 0.8], [0.3, 0.0, 0.4]]))


def test_images_take_few_lanes():
    x = torch.zeros(2, 1, 8, 8)
    task = ImageTask(
        image_data("few", "memory", {name: (x, np.arange(2)) for name in ("train", "val", "test")})
    )
    assert task.lanes(task.train, "cpu") == 1
    assert task.lanes(task.train, "cuda") == 4
