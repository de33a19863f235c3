import itertools

import numpy as np
import pytest
import torch

from hcdc.core.configs import config_hash
from hcdc.core.errors import InputError
from hcdc.spaces import Box, Finite, halves, project_simplex
from hcdc.testing import SpaceConformance

MODELS = [{"model": model, "width": width} for model in ("gcn", "gat", "sgc") for width in (64, 128)]


class TestConfigurations(SpaceConformance):
    def make(self):
        return Finite(MODELS)


class TestValues(SpaceConformance):
    def make(self):
        return Finite("depth", [2, 4, 8, None, "deep", [1, 2]])


class TestSomeKeys(SpaceConformance):
    def make(self):
        return Finite([{"model": "gcn"}, {"model": "gat", "heads": 2}, {"model": "gat", "heads": 4}])


class TestTraining(SpaceConformance):
    def make(self):
        return Finite("augment", ["none", "crop"], visibility={"augment": "full"})


class TestOneValue(SpaceConformance):
    def make(self):
        return Finite("depth", [2])


def simplex_oracle(point):
    """Projection onto the simplex by trying every support: for a support the optimum is a shift."""
    best, distance = None, np.inf
    for size in range(1, len(point) + 1):
        for support in map(list, itertools.combinations(range(len(point)), size)):
            trial = np.zeros(len(point))
            trial[support] = point[support] - (point[support].sum() - 1) / size
            if (trial >= 0).all() and np.linalg.norm(trial - point) < distance:
                best, distance = trial, np.linalg.norm(trial - point)
    return best


@pytest.mark.parametrize("dimension", [1, 2, 5, 7])
def test_simplex_projection_against_all_supports(dimension):
    points = 2 * torch.randn(20, dimension, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    expected = torch.stack([torch.from_numpy(simplex_oracle(row)) for row in points.numpy()])
    torch.testing.assert_close(project_simplex(points), expected, rtol=0, atol=1e-13)


def test_simplex_projection_of_large_numbers_stays_on_the_simplex():
    torch.testing.assert_close(
        project_simplex(torch.tensor([1e9, 1e9, -1e9])), torch.tensor([0.5, 0.5, 0.0]), rtol=0, atol=1e-6
    )


def test_simplex_projection_under_vmap():
    points = torch.randn(4, 3, 5, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(torch.func.vmap(project_simplex)(points), project_simplex(points))


def test_the_vertices_are_one_hot_and_the_largest_entry_decodes():
    space = Finite(MODELS)
    assert torch.equal(torch.stack([space.encode(c) for c in MODELS]), torch.eye(6, dtype=torch.float64))
    lam = torch.tensor([0.1, 0.1, 0.3, 0.2, 0.2, 0.1])
    assert space.decode(lam) == {"model": "gat", "width": 64}


def test_more_samples_than_candidates_repeat_evenly():
    drawn = Finite("depth", [1, 2, 3]).sample(9, np.random.default_rng(0))
    assert sorted(config["depth"] for config in drawn) == [1, 1, 1, 2, 2, 2, 3, 3, 3]


def test_the_callers_changes_do_not_reach_the_space():
    given = [dict(config) for config in MODELS]
    space = Finite(given)
    given[0]["model"] = "other"
    space.candidates()[1]["model"] = "other"
    assert space.candidates() == MODELS


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (([],), "at least one"),
        (("depth", []), "at least one"),
        (("depth",), "a name with its values"),
        ((MODELS, [1]), "a name with its values"),
        (("depth", [2, 2]), "2 configurations, 1 of them different"),
        (("depth", [{1, 2}]), "plain JSON"),
        (("depth", [float("nan")]), "plain JSON"),
        (([1, 2],), "must be a dict"),
    ],
)
def test_a_bad_set_is_refused(arguments, words):
    with pytest.raises(InputError, match=words):
        Finite(*arguments)


def test_a_configuration_outside_the_set_is_refused():
    with pytest.raises(
        InputError, match=r"\{'depth': 3\} is not one of the 2 of this space: \{\"depth\": 2\}"
    ):
        Finite("depth", [2, 4]).encode({"depth": 3})


@pytest.mark.parametrize("size", [2, 7, 40])
def test_halves_are_disjoint_seeded_and_together_everything(size):
    space = Finite("value", list(range(size)))
    condense, judge = halves(space, seed=3)
    assert (len(condense), len(judge)) == ((size + 1) // 2, size // 2)
    both = [config_hash(config) for config in condense + judge]
    assert sorted(both) == sorted(config_hash(config) for config in space.candidates())
    assert halves(space, seed=3) == (condense, judge)
    assert size < 7 or halves(space, seed=4) != (condense, judge)


def test_halves_of_what_has_none():
    with pytest.raises(InputError, match="'box' is not finite"):
        halves(Box(["a"], 0, 1), seed=0)
    with pytest.raises(InputError, match="1 candidate"):
        halves(Finite("a", [1]), seed=0)


def test_dimensions_have_every_value_once():
    space = Finite([{"model": "gcn"}, {"model": "gat", "heads": 2}, {"model": "gat", "heads": True}])
    assert [(d.name, d.choices) for d in space.dimensions()] == [
        ("model", ("gcn", "gat")),
        ("heads", (2, True)),
    ]
    assert space.words() == "model: gcn or gat; heads: 2 or True"
    assert Finite("depth", list(range(100))).words() == "depth: 100 choices"


def test_recipe_settings_of_a_finite_space():
    space = Finite([{"augment": "crop", "batch": 32}, {"augment": "none", "batch": 64}])
    assert [(d.read_by, d.visibility) for d in space.dimensions()] == [("recipe", "copy"), ("recipe", "full")]
    assert space.candidate({"batch": 64, "augment": "none"}, 3, 2).recipe == {"augment": "none", "batch": 64}
    assert "visibility" not in space.spec()
