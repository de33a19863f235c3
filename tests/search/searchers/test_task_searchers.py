"""Searchers that train on a task: ridge regression in closed form, supernets with one needed operation."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from statistics import mean

import numpy as np
import pytest
import torch
from torch import Tensor

from hcdc.core.errors import InputError
from hcdc.core.seeds import numpy_stream, stream
from hcdc.datasets import Images, Rows, TableData, image_data
from hcdc.networks import CellNetwork, split_edges
from hcdc.search.searchers import DartsPTSmall, searcher
from hcdc.spaces import Box, NASBench201, connected, operations
from hcdc.tasks import ImageTask, TableTask

CUDA = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs CUDA")

# --- hypergradient descent on ridge regression ------------------------------------------------------------


class Quick(TableTask):
    """Trains in few steps."""

    def recipes(self, train_size, epochs, metric):
        return tuple(dataclasses.replace(r, lr=0.1) for r in super().recipes(train_size, epochs, metric))


def ridge(penalty, seed=0, features=8):
    """Two features matter, the others are noise; few rows, so penalties matter."""
    rng = np.random.default_rng(seed)
    truth = np.r_[2.0, -1.5, np.zeros(features - 2)]

    def rows(count):
        x = rng.normal(size=(count, features))
        y = x @ truth + rng.normal(size=count)
        return Rows(torch.from_numpy(x), torch.from_numpy(y))

    parts = rows(14), rows(200), rows(50)
    return Quick(TableData("ridge", "memory", *parts, None), "ridge", penalty=penalty)


def optimised(task, config):
    """L^val(theta*(lambda)) in closed form."""
    lam = task.space().encode(config)
    return float(task.val_loss(task.solve(lam, task.train), lam, task.val))


def found(task, seed=0, asks=14, **settings):
    made = searcher("hypergradient", task.space(), seed, task=task, steps=25, **settings)
    return [made.ask() for _ in range(asks)]


def test_one_penalty_reaches_the_closed_form_optimum():
    task = ridge("single")
    every = [optimised(task, {"penalty": float(v)}) for v in np.geomspace(1e-4, 10, 200)]
    best, worst = min(every), max(every)
    reached = optimised(task, found(task)[-1])
    assert reached - best < 0.02 * (worst - best)


def test_many_penalties_beat_random_at_equal_asks():
    """Both are scored by the closed form; 14 asks in 8 dimensions."""
    task = ridge("per-feature")
    descent = min(optimised(task, config) for config in found(task))
    chance = mean(
        min(optimised(task, config) for config in task.space().sample(14, numpy_stream(seed, "rival")))
        for seed in range(20)
    )
    nothing = optimised(task, {f"penalty_{j}": 1e-4 for j in range(8)})
    assert descent < chance < nothing


def test_every_solver_steps_downhill():
    task = ridge("single")
    for solver in ("neumann", "exact"):
        first, *_, last = found(task, 1, 5, solver=solver, curvature="hessian")
        assert optimised(task, last) < optimised(task, first)


def test_a_descent_is_replayed_from_what_was_told():
    task = ridge("per-feature")
    settings = {"task": task, "steps": 10, "restart": 4}
    made = searcher("hypergradient", task.space(), 3, **settings)
    for _ in range(6):
        again = searcher("hypergradient", task.space(), 3, **settings)
        for config, score in made.history:
            again.tell(config, score)
        config = made.ask()
        assert again.ask() == config
        made.tell(config, None)
    starts = [config for config, _ in made.history]
    assert starts[0] != starts[4]
    assert len({str(config) for config in starts}) == 6


def test_a_descent_on_other_data_descends_there():
    """A validation set with other labels has another optimum: here heavy penalties on everything."""
    task = ridge("single")
    noise = dataclasses.replace(task.val, y=torch.zeros_like(task.val.y))
    made = searcher("hypergradient", task.space(), 0, task=task, val=noise, train=task.train, steps=25)
    assert [made.ask() for _ in range(14)][-1]["penalty"] > 9


# --- supernets --------------------------------------------------------------------------------------------


def pictures(count=48, seed=0):
    """Bright or dark 4 x 4 images."""
    rng = np.random.default_rng(seed)
    parts = {}
    for name, size in (("train", count), ("val", count), ("test", 8)):
        y = rng.permutation(np.arange(size) % 2)
        x = rng.normal(size=(size, 1, 4, 4)) + np.where(y, 1.0, -1.0)[:, None, None, None]
        parts[name] = torch.from_numpy(x.astype(np.float32)), y
    return image_data("pictures", "memory", parts, class_names=("dark", "bright"))


@dataclass(frozen=True)
class OneNeeded(CellNetwork):
    """Only the operation ``3 - (edge % 3)`` of an edge tells the classes apart."""

    def init(self, generator):
        return {"weight": torch.full((1,), 0.5)}

    def forward(self, params, lam, images: Tensor) -> Tensor:
        if self.cell is not None:
            lam = torch.nn.functional.one_hot(torch.tensor(self.cell), 5).float().flatten()
        weights = split_edges(lam)
        useful = sum(weights[edge, 3 - edge % 3] for edge in range(6))
        score = images.mean((1, 2, 3)) * params["weight"] * useful
        return torch.stack([-score, score], 1)


NEEDED = tuple(3 - edge % 3 for edge in range(6))


@dataclass(frozen=True)
class OneNeededCells(NASBench201):
    def network(self, features, classes, config=None):
        cell = None if config is None else self._operations(config)
        return OneNeeded(cell, self.cells, self.channels, features, classes, affine=False)


QUICK = {"epochs": 40, "batch": 16, "arch_lr": 0.05}


@pytest.mark.parametrize("name", ["gdas", "darts-pt", "darts-pt-small"])
@pytest.mark.parametrize("seed", [0, 1])
def test_the_needed_operations_are_found(name, seed):
    """Chance finds all six edges in one of 15,625 cells."""
    more = {} if name == "gdas" else {"tune_epochs": 1}
    made = searcher(name, OneNeededCells(), seed, task=ImageTask(pictures()), **QUICK, **more)
    assert operations(made.ask()["cell"]) == NEEDED


def test_gdas_pays_for_weights_only_where_it_draws(monkeypatch):
    """Weight steps run a cell, alpha steps the whole mixture."""
    drawn = []
    plain = CellNetwork.forward

    def forward(self, params, lam, images):
        drawn.append(self.cell)
        return plain(self, params, lam, images)

    monkeypatch.setattr(CellNetwork, "forward", forward)
    task, space = ImageTask(pictures(16)), NASBench201(channels=2)
    searcher("gdas", space, task=task, epochs=1, batch=8, cells=1).ask()
    assert [cell is None for cell in drawn] == [False, True] * 2


@pytest.mark.parametrize("name", ["gdas", "darts-pt-small"])
def test_a_real_supernet_finds_a_cell_that_lets_images_through(name):
    task, space = ImageTask(pictures()), NASBench201(channels=2)
    settings = {"epochs": 3, "batch": 24, "cells": 1, "arch_lr": 0.1, "lr": 0.1}
    made = searcher(name, space, 0, task=task, **settings, **({} if name == "gdas" else {"tune_epochs": 1}))
    config = made.ask()
    space.check(config)
    assert connected(config["cell"])
    made.tell(config, 0.5)
    assert made.ask() == config == made.run()


def test_equal_seeds_find_equal_cells_on_a_copy():
    """And on other images than the task's own."""
    task, space = ImageTask(pictures()), NASBench201(channels=2)
    small = task.sample("train", 8, 0), task.sample("val", 8, 0)
    assert isinstance(small[0], Images)
    settings = {"epochs": 2, "batch": 4, "cells": 1, "train": small[0], "val": small[1]}
    made = [searcher("gdas", space, seed, task=task, **settings) for seed in (4, 4)]
    assert made[0].ask() == made[1].ask()
    torch.testing.assert_close(made[0].alpha, made[1].alpha, rtol=0, atol=0)
    other = searcher("gdas", space, 4, task=task, **{**settings, "val": task.val})
    other.ask()
    assert not torch.equal(other.alpha, made[0].alpha)


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=CUDA)])
@pytest.mark.parametrize("kind", ["own images", "a weighted copy"])
def test_recorded_gradients_train_as_others_do(device, kind, monkeypatch):
    """Weights and logits after all epochs; on a GPU the recorded steps are replayed."""
    task, space = ImageTask(pictures()).to(device), NASBench201(channels=2)
    settings = {"epochs": 3, "batch": 8, "tune_epochs": 1, "arch_lr": 0.1}
    if kind == "a weighted copy":
        train, val = task.sample("train", 16, 0), task.sample("val", 16, 0)
        weight = torch.linspace(0.5, 1.5, 16, device=val.y.device)
        settings |= {"train": train, "val": dataclasses.replace(val, weight=weight)}
    made = []
    for recordable in (True, False):
        monkeypatch.setattr(DartsPTSmall, "recordable", recordable)
        made.append(searcher("darts-pt-small", space, 3, task=task, **settings))
        made[-1].ask()
    recorded, plain = made
    assert recorded.ask() == plain.ask()
    torch.testing.assert_close(recorded.alpha, plain.alpha, rtol=1e-4, atol=1e-5)
    for name, p in plain.params.items():
        torch.testing.assert_close(recorded.params[name], p, rtol=1e-3, atol=1e-4)
    start = recorded.net.init(stream(3, "search", "darts-pt-small"))
    assert any(not torch.allclose(p.cpu(), start[name]) for name, p in recorded.params.items())


def test_removal_is_measured_without_renormalising():
    """DARTS-PT keeps the operation without which the loss is largest, by brute force."""
    task, space = ImageTask(pictures()), OneNeededCells()
    made = searcher("darts-pt", space, task=task, **QUICK, tune_epochs=0)
    made.run()
    made._kept.zero_()
    for edge in range(6):
        losses = []
        for operation in range(5):
            lam = made.mixture(1.0).detach().clone()
            lam[5 * edge + operation] = 0
            losses.append(made._validate(lam)[1])
        assert made._needed(edge) == int(np.argmax(losses)) == NEEDED[edge]


def test_what_does_not_fit_is_said():
    table, task = ridge("single"), ImageTask(pictures())
    with pytest.raises(InputError, match="not space 'box' on table data"):
        searcher("gdas", table.space(), task=table)
    with pytest.raises(InputError, match="not space 'box' on image data"):
        searcher("darts-pt", Box(["x"], 0, 1), task=task)
    with pytest.raises(InputError, match="the task has another model"):
        searcher("gdas", NASBench201(), task=ImageTask(pictures(), lambda config: torch.nn.Flatten()))
    with pytest.raises(InputError, match="setting 'cells' of searcher 'darts-pt-small' must be at least 1"):
        searcher("darts-pt-small", NASBench201(), task=task, cells=5)
