"""Kernel ridge on the probes: smooth functions, the choice by leave-one-out, and degenerate probes."""

import numpy as np
import pytest

from hcdc.core.ridge import kernel_ridge, kernels


def probes(count=60, fresh=200, dimension=3, seed=0):
    rng = np.random.default_rng(seed)
    return rng.uniform(-1, 1, (count, dimension)), rng.uniform(-1, 1, (fresh, dimension))


@pytest.mark.parametrize(
    ("name", "function", "share"),
    [
        ("linear", lambda a: 2 * a[:, 0] - a[:, 1], 0.01),
        ("quadratic", lambda a: (a**2).sum(1) - a[:, 0] * a[:, 2], 0.01),
        ("smooth", lambda a: np.exp(-(a**2).sum(1)) + np.sin(2 * a[:, 0]), 0.25),
    ],
)
def test_it_beats_the_mean_on_functions_that_can_be_learned(name, function, share):
    lam, fresh = probes()
    error = kernel_ridge(lam, function(lam), fresh) - function(fresh)
    assert error.std() < share * function(fresh).std(), name


def test_kernel_and_penalty_are_those_with_the_least_leave_one_out_error():
    """Against leaving every probe out by hand."""
    rng = np.random.default_rng(1)
    lam, fresh = probes(12, 5)
    scores = lam[:, 0] ** 2 + 0.1 * rng.normal(size=12)
    centre, scale = lam.mean(0), lam.std(0) + 1e-12
    a, b = (lam - centre) / scale, (fresh - centre) / scale
    target = scores - scores.mean()
    found = []
    for kernel in kernels(a):
        for penalty in 10.0 ** np.arange(-6, 3):
            errors = []
            for i in range(12):
                keep = np.arange(12) != i
                gram = kernel(a[keep], a[keep]) + penalty * 12 * np.eye(11)
                errors.append(kernel(a[i : i + 1], a[keep]) @ np.linalg.solve(gram, target[keep]) - target[i])
            whole = np.linalg.solve(kernel(a, a) + penalty * 12 * np.eye(12), target)
            found.append((float(np.square(errors).mean()), kernel(b, a) @ whole + scores.mean()))
    best = min(found, key=lambda pair: pair[0])
    assert len({round(error, 6) for error, _ in found}) > 20
    np.testing.assert_allclose(kernel_ridge(lam, scores, fresh), best[1], rtol=1e-6)


def test_noise_is_not_followed():
    rng = np.random.default_rng(3)
    lam, fresh = probes(60, 200, 4, seed=2)
    predicted = kernel_ridge(lam, rng.normal(size=60), fresh)
    assert predicted.std() < 0.5


def test_probes_that_do_not_differ():
    lam = np.zeros((6, 2))
    predicted = kernel_ridge(lam, np.arange(6.0), np.ones((3, 2)))
    assert np.isfinite(predicted).all()
    np.testing.assert_allclose(kernel_ridge(probes(6)[0], np.full(6, 0.7), np.zeros((2, 3))), 0.7)
