"""The extended search space: starts, projected steps, and how many points it has."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from hcdc.core.errors import InputError, NumericalError
from hcdc.hypergrad import (
    Trajectories,
    naive_paths,
    naive_point_count,
    trajectory_point_count,
    trajectory_starts,
)
from hcdc.spaces import Dimension, Space


class UnitBox(Space):
    """[0, 1]^2."""

    name = "unit-box"
    dimension = 2

    def dimensions(self):
        return Dimension("a", "uniform"), Dimension("b", "uniform")

    def sample(self, count, rng):
        return [{"a": float(a), "b": float(b)} for a, b in rng.random((count, 2))]

    def encode(self, config):
        return torch.tensor([config["a"], config["b"]], dtype=torch.float64)

    def decode(self, lam: Tensor):
        return {"a": lam[0].item(), "b": lam[1].item()}

    def project(self, lam: Tensor) -> Tensor:
        return lam.clamp(0, 1)

    def spec(self):
        return {}


class Corners(UnitBox):
    """Its four corners."""

    def candidates(self):
        return [{"a": a, "b": b} for a in (0.0, 1.0) for b in (0.0, 1.0)]

    def sample(self, count, rng):
        every = self.candidates()
        return [every[i] for i in rng.choice(len(every), count, replace=False)]


def test_starts_of_a_finite_space_are_its_candidates():
    starts = trajectory_starts(Corners(), count=10, seed=3)
    assert starts.tolist() == [[0, 0], [0, 1], [1, 0], [1, 1]]
    assert len({tuple(row) for row in trajectory_starts(Corners(), count=3, seed=3).tolist()}) == 3


def test_starts_of_a_continuous_space_are_random_and_keyed_by_the_seed():
    starts = trajectory_starts(UnitBox(), count=6, seed=3)
    assert starts.shape == (6, 2)
    assert starts.dtype == torch.float32
    assert torch.equal(starts, trajectory_starts(UnitBox(), count=6, seed=3))
    assert not torch.equal(starts, trajectory_starts(UnitBox(), count=6, seed=4))


def test_steps_are_projected_gradient_steps():
    walk = Trajectories(UnitBox(), torch.tensor([[0.5, 0.5], [0.1, 0.9]]))
    moved = walk.step(torch.tensor([[1.0, -1.0], [4.0, -4.0]]), lr=0.1)
    torch.testing.assert_close(moved, torch.tensor([[0.4, 0.6], [0.0, 1.0]]))
    assert moved is walk.lam
    assert walk.steps == 1


def test_trajectories_meet_at_the_optimum_of_a_convex_function():
    """The paper's assumption: trajectories that end in one optimum make a connected set."""
    best = torch.tensor([0.3, 0.7])
    walk = Trajectories(Corners(), trajectory_starts(Corners(), 4, 0))
    for _ in range(60):
        walk.step(walk.lam - best, lr=0.2)
    torch.testing.assert_close(walk.lam, best.expand(4, 2), rtol=0, atol=1e-4)


def test_naive_paths_join_every_pair():
    starts = trajectory_starts(Corners(), 4, 0)
    paths = list(naive_paths(starts, 5))
    assert len(paths) == 6
    ends = {(tuple(p[0].tolist()), tuple(p[-1].tolist())) for p in paths}
    assert len(ends) == 6
    torch.testing.assert_close(paths[0], torch.tensor([[0, 0], [0, 0.25], [0, 0.5], [0, 0.75], [0, 1]]))
    assert sum(len(p) for p in paths) == naive_point_count(4, 5)


def test_counts_grow_linearly_and_quadratically():
    assert [trajectory_point_count(p, 5) for p in (10, 20, 40)] == [50, 100, 200]
    assert [naive_point_count(p, 5) for p in (10, 20, 40)] == [225, 950, 3900]


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda w: w.step(torch.ones(2, 3), 0.1), InputError, r"shape \(2, 2\) is needed"),
        (lambda w: w.step(torch.tensor([[0.0, 1.0], [torch.nan, 0.0]]), 0.1), NumericalError, "trajectory 1"),
        (lambda w: Trajectories(UnitBox(), torch.ones(3)), InputError, r"got shape \(3,\)"),
        (lambda w: trajectory_starts(UnitBox(), 0, 0), InputError, "count 0"),
        (lambda w: list(naive_paths(torch.ones(2, 2), 1)), InputError, "points 1"),
    ],
)
def test_bad_input_is_a_sentence(call, error, message):
    walk = Trajectories(UnitBox(), torch.full((2, 2), 0.5))
    before = walk.lam.clone()
    with pytest.raises(error, match=message):
        call(walk)
    assert torch.equal(walk.lam, before)
