"""Hypergradients against closed forms, dense inverses, re-trained optima, unrolling and TorchOpt."""

from __future__ import annotations

import pytest
import torch
from hypergrad_cases import F64, MAKERS, case, dense_hessian, dense_mixed, flatten, newton
from torch.func import grad, vmap

from hcdc.core.errors import InputError
from hcdc.core.recipe import Recipe
from hcdc.hypergrad import (
    adam_response,
    batched_adam_response,
    batched_best_response,
    batched_hypergradient,
    batched_response_hypergradient,
    batched_solve_response,
    best_response,
    conjugate_gradient,
    exact,
    hypergradient,
    identity,
    neumann,
    response_alignment_gradient,
    response_hypergradient,
    solve_response,
    unrolled_response,
)

CASES = list(MAKERS)
CONVERGED_SOLVERS = {"exact": exact(), "cg": conjugate_gradient(80, tolerance=1e-13)}


def close(actual, expected, tolerance):
    torch.testing.assert_close(actual, expected, rtol=tolerance, atol=tolerance)


def rows(tree, index):
    return {k: v[index] for k, v in tree.items()}


def test_closed_form_of_ridge():
    """w* = (X^T X / n + diag(e^lam))^-1 X^T y / n, so d w* / d lam_i = -A^-1 e_i e^lam_i w*_i."""
    c = case("ridge")
    for b in range(len(c.lam)):
        params, lam = c.one(b)
        x, y = c.task.train.x, c.task.train.y
        curved = x.T @ x / len(y) + torch.diag(lam.exp())
        w = torch.linalg.solve(curved, x.T @ y / len(y))
        close(params["w"][:, 0], w, 1e-12)
        jacobian = -torch.linalg.solve(curved, torch.diag(lam.exp() * w))
        xv, yv = c.task.val.x, c.task.val.y
        expected = (xv.T @ (xv @ w - yv) / len(yv)) @ jacobian
        for curvature in ("hessian", "gauss_newton"):
            result = hypergradient(c.task, params, lam, c.task.train, c.task.val, exact(), curvature)
            close(result.total, expected, 1e-12)
            assert (result.direct == 0).all()
            response = best_response(c.task, params, lam, c.task.train, exact(), curvature)
            close(response["w"][..., 0].T, jacobian, 1e-12)


@pytest.mark.parametrize("solver", CONVERGED_SOLVERS)
@pytest.mark.parametrize("name", CASES)
def test_dense_inverse_hessian(name, solver):
    c = case(name)
    params, lam = c.one()
    of_params, direct = grad(c.task.val_loss, argnums=(0, 1))(params, lam, c.task.val)
    inverse = torch.linalg.inv(dense_hessian(c.task, params, lam, c.task.train))
    implicit = -dense_mixed(c.task, params, lam, c.task.train).T @ inverse @ flatten(of_params)
    result = hypergradient(
        c.task, params, lam, c.task.train, c.task.val, CONVERGED_SOLVERS[solver], "hessian"
    )
    close(result.direct, direct, 1e-13)
    close(result.implicit, implicit, 1e-10)
    close(result.total, direct + implicit, 1e-10)
    assert result.diagnostics.stopped == 0
    assert result.diagnostics.residual < 1e-12


@pytest.mark.parametrize("name", CASES)
def test_finite_differences_of_a_retrained_optimum(name):
    c = case(name)
    params, lam = c.one()
    result = hypergradient(c.task, params, lam, c.task.train, c.task.val, exact(), "hessian")
    step = 1e-4
    slopes = []
    for h in range(len(lam)):
        losses = []
        for sign in (1, -1):
            moved = lam.clone()
            moved[h] += sign * step
            trained = newton(c.task, params, moved, c.task.train)  # asserts a gradient norm below 1e-10
            losses.append(c.task.val_loss(trained, moved, c.task.val))
        slopes.append((losses[0] - losses[1]) / (2 * step))
    close(result.total, torch.stack(slopes), 2e-6)


@pytest.mark.parametrize("curvature", ["hessian", "gauss_newton"])
@pytest.mark.parametrize("name", CASES)
def test_best_response_form_equals_adjoint_form(name, curvature):
    c = case(name)
    params, lam = c.one()
    adjoint = hypergradient(c.task, params, lam, c.task.train, c.task.val, exact(), curvature).total
    response = best_response(c.task, params, lam, c.task.train, exact(), curvature)
    assert {k: tuple(v.shape) for k, v in response.items()} == {
        k: (len(lam), *v.shape) for k, v in params.items()
    }
    close(response_hypergradient(c.task, params, lam, response, c.task.val), adjoint, 1e-11)


@pytest.mark.parametrize("name", CASES)
def test_neumann_terms_are_linear_in_the_right_hand_side(name):
    """Truncated or not, the series is one polynomial of A, so both forms agree at every number of terms."""
    c = case(name)
    params, lam = c.one()
    adjoint = hypergradient(c.task, params, lam, c.task.train, c.task.val, neumann(7), "hessian").total
    response = best_response(c.task, params, lam, c.task.train, neumann(7), "hessian")
    close(response_hypergradient(c.task, params, lam, response, c.task.val), adjoint, 1e-12)


@pytest.mark.parametrize("steps", [1, 3, 12])
@pytest.mark.parametrize("name", CASES)
def test_k_unrolled_steps_are_k_neumann_terms(name, steps):
    c = case(name)
    params, lam = c.one()
    lr = 0.4
    final, response = unrolled_response(c.task, params, lam, c.task.train, steps, lr)
    close(final, params, 1e-10)  # the optimum stays
    series = best_response(c.task, params, lam, c.task.train, neumann(steps, alpha=lr), "hessian")
    close(response, series, 1e-9)
    truncated = hypergradient(
        c.task, params, lam, c.task.train, c.task.val, neumann(steps, alpha=lr), "hessian"
    )
    close(response_hypergradient(c.task, params, lam, response, c.task.val), truncated.total, 1e-9)


@pytest.mark.parametrize("name", ["logistic", "mlp", "filter-sparse"])
def test_unrolled_response_away_from_the_optimum(name):
    c = case(name)
    start = c.task.init(torch.Generator().manual_seed(4))
    lam = c.lam[0]

    def run(at):
        return unrolled_response(c.task, start, at, c.task.train, 9, 0.3)

    check_by_differences(run, lam, 1e-7)


@pytest.mark.parametrize("name", CASES)
def test_adam_response_is_that_of_the_recipe(name):
    c = case(name)
    start = c.task.init(torch.Generator().manual_seed(4))
    lam, recipe = c.lam[0], Recipe(steps=8, lr=0.02)

    def run(at):
        return adam_response(c.task, start, at, c.task.train, recipe)

    check_by_differences(run, lam, 1e-6)
    # the same steps as torch's own Adam
    params = {k: v.clone().requires_grad_() for k, v in start.items()}
    adam = torch.optim.Adam(list(params.values()), lr=0.02)
    for _ in range(8):
        adam.zero_grad()
        c.task.train_loss(params, lam, c.task.train).backward()
        adam.step()
    close(run(lam)[0], {k: v.detach() for k, v in params.items()}, 1e-10)


def check_by_differences(run, lam, tolerance):
    _, response = run(lam)
    step = 1e-6
    for h in (0, len(lam) - 1):
        moved = torch.zeros_like(lam)
        moved[h] = step
        above, below = run(lam + moved)[0], run(lam - moved)[0]
        slope = {k: (above[k] - below[k]) / (2 * step) for k in above}
        close(rows(response, h), slope, tolerance)


def test_adam_response_of_a_parameter_without_gradient_is_zero():
    """A column of zeros gives a weight no gradient: Adam's square root is not differentiable there."""
    c = case("logistic")
    x = c.task.train.x.clone()
    x[:, 1] = 0
    data = c.task.replace(c.task.train, {"x": x})

    class Free(type(c.task)):
        def penalty(self, params, lam):
            return lam[0].exp() * (params["b"] ** 2).sum()

    task = Free(data, c.task.val, c.task.s_train, c.task.s_val, c.task.shapes)
    start = task.init(torch.Generator().manual_seed(4))
    final, response = adam_response(task, start, c.lam[0], data, Recipe(steps=10))
    assert torch.equal(final["w"][1], start["w"][1])
    assert (response["w"][:, 1] == 0).all()
    assert all(torch.isfinite(v).all() for v in response.values())
    assert (response["w"][2, 0] != 0).all()


# Relative error of the implicit part with Gauss-Newton instead of the Hessian at the optimum, measured.
BIAS = {"ridge": 0.0, "logistic": 0.0, "mlp": 0.26, "filter-dense": 0.155, "filter-sparse": 0.155}


@pytest.mark.parametrize("name", CASES)
def test_bias_of_gauss_newton_in_the_hypergradient(name, record_property):
    c = case(name)
    params, lam = c.one()
    args = (c.task, params, lam, c.task.train, c.task.val, exact())
    full, short = hypergradient(*args, "hessian").implicit, hypergradient(*args, "gauss_newton").implicit
    bias = ((full - short).norm() / full.norm()).item()
    record_property("bias", bias)
    assert bias == pytest.approx(BIAS[name], abs=0.03 if BIAS[name] else 1e-11)


@pytest.mark.parametrize("name", ["ridge", "logistic"])
def test_torchopt_custom_root(name):
    torchopt = pytest.importorskip("torchopt")
    c = case(name)
    params, lam = c.one()
    names = list(params)

    def optimality(p, at, data):
        gradient = grad(c.task.train_loss)(dict(zip(names, p)), at, data)
        return tuple(gradient[k] for k in names)

    solve = torchopt.linear_solve.solve_normal_cg(maxiter=200, atol=1e-14, rtol=1e-14)

    @torchopt.diff.implicit.custom_root(optimality, argnums=1, solve=solve)
    def optimum(p, at, data):
        return tuple(params[k].clone() for k in names)

    at = lam.clone().requires_grad_()
    found = optimum(tuple(params[k] for k in names), at, c.task.train)
    expected = torch.autograd.grad(c.task.val_loss(dict(zip(names, found)), at, c.task.val), at)[0]
    close(
        hypergradient(c.task, params, lam, c.task.train, c.task.val, exact(), "hessian").total, expected, 1e-9
    )


@pytest.mark.parametrize("curvature", ["hessian", "gauss_newton"])
@pytest.mark.parametrize("name", CASES)
def test_batches_equal_loops(name, curvature):
    c = case(name)
    data = c.task.train, c.task.val
    for solver in (neumann(3), conjugate_gradient(3), exact()):
        batch = batched_hypergradient(c.task, c.params, c.lam, *data, solver, curvature, chunk_size=3)
        assert batch.total.shape == c.lam.shape
        for b in (0, 3):
            alone = hypergradient(c.task, *c.one(b), *data, solver, curvature)
            close(batch.direct[b], alone.direct, 1e-12)
            close(batch.implicit[b], alone.implicit, 1e-10)
            assert batch.diagnostics.stopped[b] == alone.diagnostics.stopped
            close(batch.diagnostics.residual[b], alone.diagnostics.residual, 1e-8)


@pytest.mark.parametrize("name", CASES)
def test_batched_responses_equal_loops(name):
    c = case(name)
    batch = batched_solve_response(c.task, c.params, c.lam, c.task.train, neumann(3), chunk_size=2)
    total = batched_response_hypergradient(c.task, c.params, c.lam, batch.x, c.task.val, chunk_size=3)
    assert batch.residual.shape == c.lam.shape
    start = c.task.init(torch.Generator().manual_seed(4))
    starts = {k: v.expand(len(c.lam), *v.shape) for k, v in start.items()}
    finals, adams = batched_adam_response(c.task, starts, c.lam, c.task.train, Recipe(steps=4), chunk_size=3)
    for b in (1, 3):
        params, lam = c.one(b)
        alone = solve_response(c.task, params, lam, c.task.train, neumann(3))
        close(rows(batch.x, b), alone.x, 1e-10)
        close(batch.residual[b], alone.residual, 1e-10)
        close(total[b], response_hypergradient(c.task, params, lam, alone.x, c.task.val), 1e-10)
        final, adam = adam_response(c.task, start, lam, c.task.train, Recipe(steps=4))
        close(rows(finals, b), final, 1e-12)
        close(rows(adams, b), adam, 1e-10)
    close(batched_best_response(c.task, c.params, c.lam, c.task.train, neumann(3)), batch.x, 1e-12)


def test_a_diverging_lane_is_flagged_and_leaves_the_others_alone():
    c = case("mlp")
    away = {k: v.clone() for k, v in c.params.items()}
    generator = torch.Generator().manual_seed(0)
    for v in away.values():
        v[1] += torch.randn(v[1].shape, generator=generator, dtype=F64)  # not a minimum: indefinite Hessian
    assert torch.linalg.eigvalsh(dense_hessian(c.task, rows(away, 1), c.lam[1], c.task.train))[0] < 0
    args = (c.lam, c.task.train, c.task.val)
    result = batched_hypergradient(c.task, away, *args, neumann(300), "hessian")
    good = batched_hypergradient(c.task, c.params, *args, neumann(300), "hessian")
    assert result.diagnostics.stopped[1] == 3
    assert torch.isfinite(result.total).all()
    for b in (0, 2, 3):
        assert result.diagnostics.stopped[b] != 3
        close(result.total[b], good.total[b], 1e-10)


@pytest.mark.parametrize("name", CASES)
def test_float32(name):
    c = case(name)
    task, lam = single(c.task), c.lam.float()
    params = {k: v.float() for k, v in c.params.items()}
    result = batched_hypergradient(
        task, params, lam, task.train, task.val, conjugate_gradient(20), "gauss_newton"
    )
    expected = batched_hypergradient(
        c.task, c.params, c.lam, c.task.train, c.task.val, exact(), "gauss_newton"
    )
    assert result.total.dtype == torch.float32
    torch.testing.assert_close(result.total.double(), expected.total, rtol=1e-3, atol=1e-4)


def single(task):
    """The task with its data in float32."""

    def cast(data):
        fields = {
            k: v.float() if v.is_floating_point() else v for k, v in vars(data).items() if torch.is_tensor(v)
        }
        if not torch.is_tensor(getattr(data, "matrix", None)) and hasattr(data, "matrix"):
            fields["matrix"] = data.matrix.to(dtype=torch.float32)
        return type(data)(**fields)

    return type(task)(*(cast(d) for d in (task.train, task.val, task.s_train, task.s_val)), task.shapes)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("name", CASES)
def test_cuda_equals_cpu(name):
    c = case(name)
    task = on_cuda(c.task)
    params, lam = {k: v.cuda() for k, v in c.params.items()}, c.lam.cuda()
    for solver in (neumann(5), conjugate_gradient(5), identity(), exact()):
        there = batched_hypergradient(task, params, lam, task.train, task.val, solver)
        here = batched_hypergradient(c.task, c.params, c.lam, c.task.train, c.task.val, solver)
        close(there.total.cpu(), here.total, 1e-8)
        assert there.diagnostics.stopped.tolist() == here.diagnostics.stopped.tolist()
    away = {k: v + 0.3 for k, v in c.params.items()}  # at the optimum Adam would divide rounding by rounding
    moved = {k: v.cuda() for k, v in away.items()}
    _, there = batched_adam_response(task, moved, lam, task.train, Recipe(steps=3))
    _, here = batched_adam_response(c.task, away, c.lam, c.task.train, Recipe(steps=3))
    close({k: v.cpu() for k, v in there.items()}, here, 1e-9)
    response = batched_best_response(task, params, lam, task.train, neumann(5))
    _, there = response_alignment_gradient(task, params, lam, response, lam, task.val, "scaled_l2")
    response = batched_best_response(c.task, c.params, c.lam, c.task.train, neumann(5))
    _, here = response_alignment_gradient(c.task, c.params, c.lam, response, c.lam, c.task.val, "scaled_l2")
    close(there["x"].cpu(), here["x"], 1e-8)


def on_cuda(task):
    """The task with its data on the GPU."""

    def move(data):
        return type(data)(**{k: v if v is None else v.to("cuda") for k, v in vars(data).items()})

    return type(task)(*(move(d) for d in (task.train, task.val, task.s_train, task.s_val)), task.shapes)


def test_nothing_is_recorded_where_parameters_require_gradients():
    c = case("mlp")
    params, lam = c.one()
    learned = {k: v.clone().requires_grad_() for k, v in params.items()}
    result = hypergradient(c.task, learned, lam, c.task.train, c.task.val, neumann(5))
    assert not result.total.requires_grad
    close(result.total, hypergradient(c.task, params, lam, c.task.train, c.task.val, neumann(5)).total, 1e-14)


def test_usable_inside_vmap_of_the_caller():
    c = case("filter-sparse")

    def scaled(p, l, factor):
        return factor * hypergradient(c.task, p, l, c.task.train, c.task.val, neumann(3)).total

    factors = torch.arange(1, 5, dtype=F64)
    batch = batched_hypergradient(c.task, c.params, c.lam, c.task.train, c.task.val, neumann(3)).total
    close(vmap(scaled)(c.params, c.lam, factors), factors[:, None] * batch, 1e-12)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda p, l: (p, l[0]), r"lam: a batch \[B, H\] is needed, got shape \(3,\)"),
        (lambda p, l: (p, l[:2]), "lam is a batch of 2"),
    ],
)
def test_batches_that_do_not_fit_are_refused(change, message):
    c = case("mlp")
    params, lam = change(c.params, c.lam)
    with pytest.raises(InputError, match=message):
        batched_hypergradient(c.task, params, lam, c.task.train, c.task.val, identity())


def test_unknown_curvature_is_a_sentence():
    c = case("ridge")
    with pytest.raises(InputError, match="choose one of: gauss_newton, hessian"):
        hypergradient(c.task, *c.one(), c.task.train, c.task.val, identity(), "fisher")
