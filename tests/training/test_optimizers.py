"""Optimisers against torch.optim, step by step in float64, and schedules against torch's."""

import pytest
import torch

from hcdc.core.recipe import Recipe
from hcdc.training._optimizers import LaneOptimizer, VectorOptimizer, learning_rates

STEPS, LANES = 8, 3
OWN = {
    "lr": [0.1, 0.02, 0.3],
    "lr_end": [0.01, 0.01, 0.01],
    "momentum": [0.0, 0.5, 0.95],
    "weight_decay": [0.1, 0.0, 0.4],
}
RECIPES = [
    Recipe(steps=STEPS, lr=0.1, optimizer="sgd", lr_end=0.01),
    Recipe(steps=STEPS, lr=0.1, optimizer="nesterov", momentum=0.7, lr_end=0.01, schedule="linear"),
    Recipe(steps=STEPS, lr=0.1, optimizer="adam"),
    Recipe(steps=STEPS, lr=0.1, optimizer="adam", lr_end=0.01, schedule="cosine"),
    Recipe(steps=STEPS, lr=0.1, optimizer="adamw", weight_decay=0.3, lr_end=0.01, schedule="step"),
]
IDS = ["sgd", "nesterov", "adam", "adam-cosine", "adamw-step"]


def rates(lr, recipe):
    """The rate of each step, by torch's schedulers (linear and step: by hand)."""
    end = recipe.lr_end
    if recipe.schedule == "linear":
        return [lr + (end - lr) * k / STEPS for k in range(STEPS)]
    if recipe.schedule == "step":
        return [end + (lr - end) * (1 if k < 4 else 0.1 if k < 6 else 0.01) for k in range(STEPS)]
    if recipe.optimizer == "adam" and recipe.schedule == "auto":
        return [lr] * STEPS
    optimiser = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=lr)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, STEPS, end)
    found = []
    for _ in range(STEPS):
        found.append(schedule.get_last_lr()[0])
        optimiser.step()
        schedule.step()
    return found


def by_torch(start, gradients, recipe, lr, momentum, decay):
    """The parameters after each step."""
    p = start.clone().requires_grad_()
    if recipe.optimizer == "adam":
        optimiser = torch.optim.Adam([p], lr=lr)
    elif recipe.optimizer == "adamw":
        optimiser = torch.optim.AdamW([p], lr=lr, weight_decay=decay)
    else:
        nesterov = recipe.optimizer == "nesterov" and momentum > 0
        optimiser = torch.optim.SGD([p], lr=lr, momentum=momentum, nesterov=nesterov)
    path = []
    for rate, g in zip(rates(lr, recipe), gradients):
        optimiser.param_groups[0]["lr"] = rate
        p.grad = g.clone()
        optimiser.step()
        path.append(p.detach().clone())
    return path


def drawn(*shape):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


@pytest.mark.parametrize("recipe", RECIPES, ids=IDS)
def test_a_vector_moves_as_in_torch(recipe):
    theta, gradients = drawn(5), drawn(STEPS, 5)
    expected = by_torch(theta, gradients, recipe, recipe.lr, recipe.momentum, recipe.weight_decay)
    optimizer, start = VectorOptimizer(theta, recipe), theta.clone()
    for again in range(2):
        for k, g in enumerate(gradients):
            optimizer.step(g, torch.tensor([k]))
            torch.testing.assert_close(theta, expected[k], rtol=1e-6, atol=1e-7, msg=f"{again}, step {k}")
        theta.copy_(start)
        optimizer.reset()


@pytest.mark.parametrize("own", [(), ("lr", "lr_end"), ("momentum",), ("weight_decay",), tuple(OWN)])
@pytest.mark.parametrize("recipe", RECIPES, ids=IDS)
def test_each_lane_moves_as_in_torch_by_its_own_settings(recipe, own):
    theta = {"matrix": drawn(LANES, 2, 3), "bias": drawn(LANES)}
    gradients = {"matrix": drawn(STEPS, LANES, 2, 3), "bias": drawn(STEPS, LANES)}
    settings = {name: torch.tensor(OWN[name], dtype=torch.float64) for name in own}
    decay = settings.get("weight_decay", recipe.weight_decay)
    expected = {}
    for name, start in theta.items():
        for lane in range(LANES):
            lr, momentum, w = (
                OWN[key][lane] if key in own else getattr(recipe, key)
                for key in ("lr", "momentum", "weight_decay")
            )
            expected[name, lane] = by_torch(start[lane], gradients[name][:, lane], recipe, lr, momentum, w)
    optimizer = LaneOptimizer(theta, recipe, settings, decay)
    for k in range(STEPS):
        optimizer.step({name: g[k] for name, g in gradients.items()})
        for (name, lane), path in expected.items():
            torch.testing.assert_close(theta[name][lane], path[k], rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
def test_each_lane_is_clipped_by_its_own_norm(optimizer):
    recipe = Recipe(steps=1, lr=1.0, optimizer=optimizer, clip=1.0, schedule="constant")
    g = torch.tensor([[3.0, 4.0], [0.3, 0.4]], dtype=torch.float64)
    clipped = torch.tensor([[0.6, 0.8], [0.3, 0.4]], dtype=torch.float64)
    theta = {"w": torch.zeros(2, 2, dtype=torch.float64)}
    lanes = LaneOptimizer(theta, recipe, {}, 0.0)
    lanes.step({"w": g})
    first = lanes.first["w"] if optimizer == "sgd" else 10 * lanes.first["w"]
    torch.testing.assert_close(first, clipped, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("recipe", RECIPES, ids=IDS)
def test_the_rates_of_a_recipe(recipe):
    torch.testing.assert_close(learning_rates(recipe), torch.tensor(rates(recipe.lr, recipe)))
    constant = Recipe(steps=4, lr=0.5, optimizer="sgd", schedule="constant")
    assert learning_rates(constant).tolist() == [0.5] * 4
