"""Distributions mean what Optuna's of the same name mean."""

import dataclasses
import json

import numpy as np
import pytest

from hcdc import InputError
from hcdc.search import (
    CategoricalDistribution,
    FloatDistribution,
    IntDistribution,
    distribution,
)

EVERY = [
    FloatDistribution(-1.0, 2.0),
    FloatDistribution(1e-5, 1e-1, log=True),
    FloatDistribution(0.0, 1.0, step=0.25),
    FloatDistribution(0.5, 0.5),
    IntDistribution(3, 9),
    IntDistribution(1, 1000, log=True),
    IntDistribution(10, 50, step=20),
    CategoricalDistribution(("relu", None, True, 1, 2.5)),
]


@pytest.mark.parametrize("dist", EVERY, ids=str)
def test_draws_steps_and_descriptions(dist):
    rng = np.random.default_rng(0)
    drawn = [dist.draw(rng) for _ in range(300)]
    close = [dist.near(value, rng) for value in drawn]
    assert all(dist.contains(value) for value in drawn + close)
    assert distribution(json.loads(json.dumps(dist.describe()))) == dist
    columns = dist.columns(drawn)
    assert columns.shape == (300, len(dist.blank))
    assert columns.min() >= 0
    assert columns.max() <= 1


@pytest.mark.parametrize("dist", EVERY, ids=str)
def test_optuna_reads_the_descriptions_and_agrees_on_what_is_inside(dist):
    optuna = pytest.importorskip("optuna.distributions")
    theirs = optuna.json_to_distribution(json.dumps(dist.describe()))
    assert distribution(json.loads(optuna.distribution_to_json(theirs))) == dist
    for value in [dist.draw(np.random.default_rng(seed)) for seed in range(20)]:
        assert theirs._contains(theirs.to_internal_repr(value))
    if not isinstance(dist, CategoricalDistribution):
        assert (theirs.low, theirs.high, theirs.log) == (dist.low, dist.high, dist.log)


def test_log_scales_draw_evenly_on_the_log_scale():
    rng = np.random.default_rng(0)
    logs = np.log10([FloatDistribution(1e-4, 1.0, log=True).draw(rng) for _ in range(4000)])
    assert np.histogram(logs, 4, (-4, 0))[0] == pytest.approx([1000] * 4, abs=100)
    whole = [IntDistribution(1, 3).draw(rng) for _ in range(3000)]
    assert np.bincount(whole)[1:] == pytest.approx([1000] * 3, abs=100)
    assert {FloatDistribution(0.0, 1.0, step=0.25).draw(rng) for _ in range(200)} == {0, 0.25, 0.5, 0.75, 1}
    assert {IntDistribution(10, 55, step=20).draw(rng) for _ in range(200)} == {10, 30, 50}


def test_near_values_are_closer_than_random_ones():
    rng, dist = np.random.default_rng(0), FloatDistribution(1e-4, 1.0, log=True)
    steps = np.abs(np.log([dist.near(1e-2, rng) / 1e-2 for _ in range(500)]))
    far = np.abs(np.log([dist.draw(rng) / 1e-2 for _ in range(500)]))
    assert 0.2 < steps.mean() < 0.6 * far.mean()
    assert {IntDistribution(1, 3).near(2, rng) for _ in range(50)} == {1, 3}


def test_choices_of_equal_value_and_other_type_differ():
    dist = CategoricalDistribution((1, True, 1.0))
    assert dist.columns([True]).tolist() == [[0, 1, 0]]
    assert not CategoricalDistribution((1, 2)).contains(True)
    assert not IntDistribution(1, 3).contains(1.5)
    assert not FloatDistribution(1.0, 3.0).contains(3.1)


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: FloatDistribution(2.0, 1.0), "low at most high"),
        (lambda: FloatDistribution(0.0, 1.0, log=True), "needs a low above 0"),
        (lambda: IntDistribution(0, 3, step=0), "step 0"),
        (lambda: CategoricalDistribution(()), "choices are empty"),
        (lambda: CategoricalDistribution(((64, 64),)), r"choice \(64, 64\) is a tuple"),
    ],
)
def test_refusals_are_sentences(make, text):
    with pytest.raises(InputError, match=text):
        make()


def test_distributions_are_values():
    assert dataclasses.replace(EVERY[0], high=3.0) != EVERY[0]
