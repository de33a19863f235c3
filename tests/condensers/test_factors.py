"""Examples of S_val learned as a product of low rank: the chain rule, full rank, every way that learns."""

import pytest
import torch
from light_space import LightSpace
from quick_hcdc import PAPER, QUICK, SPACE, Interrupting, make, poor_start, short_recipes
from tiny_graph import tiny_task
from tiny_images import tiny_image_data

from hcdc.condensers.validation._factors import examples_form
from hcdc.tasks import ImageTask

pytestmark = pytest.mark.usefixtures("short_recipes")
__all__ = ["short_recipes"]

NODES, IMAGES = (7, 5), (7, 3, 2, 2)
LANDSCAPE = {
    "trainings": 6, "spread": 1, "companions": 32, "steps": 40, "check": 10, "batch": 16, "iterations": 2,
    "lr": 0.05,
}  # fmt: skip


def drawn(*shape, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def moved(form):
    """Learned numbers away from the start."""
    return {name: t + 0.3 * drawn(*t.shape, seed=k) for k, (name, t) in enumerate(form.start().items())}


@pytest.mark.parametrize("shape", [NODES, IMAGES])
@pytest.mark.parametrize("factors", [0, 1, 3, 7])
def test_the_chain_rule_is_autograd_and_a_finite_difference(shape, factors):
    """A nonlinear function of features and edge weights, in float64."""
    form = examples_form({"x": drawn(*shape), "adj": drawn(7, 7)}, factors, 0)
    learned, weight = moved(form), drawn(*shape, seed=9)

    def value(numbers):
        made = form.examples(numbers)
        return (torch.sin(made["x"]) * weight).sum() * made["adj"].square().sum()

    leaves = {name: tensor.clone().requires_grad_() for name, tensor in learned.items()}
    expected = dict(zip(leaves, torch.autograd.grad(value(leaves), list(leaves.values()))))
    tensors = {name: t.detach().requires_grad_() for name, t in form.examples(learned).items()}
    outer = (torch.sin(tensors["x"]) * weight).sum() * tensors["adj"].square().sum()
    gradient = dict(zip(tensors, torch.autograd.grad(outer, list(tensors.values()))))
    found = form.chained(learned, gradient)
    assert found.keys() == expected.keys() == form.start().keys()
    for name in found:
        torch.testing.assert_close(found[name], expected[name])
    move = {name: drawn(*t.shape, seed=5) for name, t in learned.items()}
    up, down = ({name: t + sign * 1e-6 * move[name] for name, t in learned.items()} for sign in (1, -1))
    slope = sum(float((found[name] * move[name]).sum()) for name in found)
    assert float(value(up) - value(down)) / 2e-6 == pytest.approx(slope, rel=1e-6)


def test_the_gradient_of_a_loss_is_a_finite_difference():
    """Of a filter's loss on synthetic validation nodes, in float64."""
    task = tiny_task(dtype=torch.float64, dense=True).bind(SPACE)
    s_val = task.sample("val", 9, 0)
    task.prepare(s_val)
    params = {k: t.double() for k, t in task.init(torch.Generator().manual_seed(0)).items()}
    lam = torch.tensor([0.4, -0.3, 0.8], dtype=torch.float64)
    form = examples_form(task.tensors(s_val), 2, 0)
    learned = moved(form)

    def value(tensors):
        return task.val_loss(params, lam, task.replace(s_val, tensors))

    made = {name: t.detach().requires_grad_() for name, t in form.examples(learned).items()}
    (slope,) = torch.autograd.grad(value(made), list(made.values()))
    found = form.chained(learned, {"x": slope})
    for name, gradient in found.items():
        move = drawn(*gradient.shape, seed=5)
        up, down = ({**learned, name: learned[name] + sign * 1e-5 * move} for sign in (1, -1))
        difference = float(value(form.examples(up)) - value(form.examples(down))) / 2e-5
        assert difference == pytest.approx(float((gradient * move).sum()), rel=1e-6)


@pytest.mark.parametrize("shape", [NODES, IMAGES])
def test_at_full_rank_the_first_step_is_that_of_plain_examples(shape):
    """A step of gradient descent: L is orthogonal and R is 0, so L stays and X moves by the gradient."""
    x, gradient = drawn(*shape), {"x": drawn(*shape, seed=1)}
    forms = [examples_form({"x": x}, factors, 0) for factors in (0, 7)]
    found = []
    for form in forms:
        learned = form.start()
        torch.testing.assert_close(form.examples(learned)["x"], x)
        chained = form.chained(learned, gradient)
        found.append(form.examples({name: t - 0.1 * chained[name] for name, t in learned.items()})["x"])
    torch.testing.assert_close(found[1], found[0])


def test_every_change_is_a_product_at_full_rank():
    form = examples_form({"x": drawn(*NODES)}, 9, 0)  # more factors than examples add nothing
    target, start = drawn(*NODES, seed=3), form.start()
    assert start["left"].shape == (7, 7)
    right = torch.linalg.solve(start["left"], target - form.x)
    torch.testing.assert_close(form.examples({"left": start["left"], "right": right})["x"], target)


@pytest.mark.parametrize("factors", [1, 3, 7])
def test_the_first_factor_is_orthogonal_and_of_unit_rows(factors):
    left = examples_form({"x": drawn(*NODES)}, factors, 0).start()["left"]
    torch.testing.assert_close(left.t() @ left, torch.eye(factors).double() * 7 / factors)
    assert float(left.square().sum(1).mean()) == pytest.approx(1)
    other = examples_form({"x": drawn(*NODES)}, factors, 1).start()["left"]
    assert not torch.allclose(left, other)


@pytest.mark.parametrize(
    ("way", "options"),
    [
        ("aligned", QUICK),
        ("both", PAPER),
        ("landscape", LANDSCAPE),
    ],
)
def test_nodes_change_by_a_matrix_of_low_rank(way, options, monkeypatch):
    poor_start(monkeypatch)
    small = make(val_method=way, options={**options, "factors": 2})
    start = make(val_method=way, options={**options, "factors": 2, "lr": 1e-12}).val.graph.x
    change = small.val.graph.x - start
    assert torch.linalg.matrix_rank(change, tol=1e-4 * float(change.abs().max())) == 2
    assert small.meta["settings"]["val"]["factors"] == 2


def test_images_change_by_a_matrix_of_low_rank(monkeypatch):
    poor_start(monkeypatch)
    task = ImageTask(tiny_image_data(1, 4))
    small = make(task, LightSpace(), val_method="aligned", options={**QUICK, "lr": 0.05, "factors": 2})
    change = (small.val.x - task.sample("val", 9, 0).x).flatten(1)
    assert torch.linalg.matrix_rank(change, tol=1e-4 * float(change.abs().max())) == 2


def test_examples_learned_from_probes_change_by_a_matrix_of_low_rank():
    task = tiny_task()
    options = {"probes": 4, "probe_steps": 5, "factors": 1}
    small = make(task, val_method="probes", options=options)
    change = small.val.graph.x - task.sample("val", 9, 0).graph.x
    assert torch.linalg.matrix_rank(change, tol=1e-4 * float(change.abs().max())) == 1


@pytest.mark.parametrize(("way", "options"), [("both", QUICK), ("probes", {"probes": 4, "probe_steps": 20})])
def test_an_interrupted_run_continues_to_the_same_bytes(way, options, tmp_path):
    given = {"val_method": way, "options": {**options, "factors": 2}}
    counting = Interrupting()
    whole = make(progress=counting, **given).to_bytes()
    file = tmp_path / "run.ckpt"
    with pytest.raises(KeyboardInterrupt):
        make(progress=Interrupting(counting.reports - 1), checkpoint=file, **given)
    assert make(checkpoint=file, **given).to_bytes() == whole
