import numpy as np
import pytest
import torch
from torch.func import grad, hessian, vmap

from hcdc.condensers import plan
from hcdc.core.errors import InputError
from hcdc.datasets import Rows, TableData
from hcdc.hypergrad import exact, hypergradient
from hcdc.spaces import Box, Training, stack
from hcdc.tasks import TableTask
from hcdc.testing import TaskConformance

D = 3


def rows(count, classes, seed, weighted=False):
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(count, D, generator=generator, dtype=torch.float64)
    signal = x @ torch.tensor([1.0, -2.0, 0.3], dtype=torch.float64) + 0.5
    noise = 0.5 * torch.randn(count, generator=generator, dtype=torch.float64)
    y = (
        signal + noise
        if classes is None
        else (signal + noise > 0).long() + (signal > 2).long() * (classes > 2)
    )
    weight = torch.rand(count, generator=generator, dtype=torch.float64) + 0.1 if weighted else None
    return Rows(x, y, weight)


def table(classes, weighted=False):
    parts = [rows(count, classes, seed, weighted) for seed, count in enumerate((24, 15, 10))]
    return TableData("toy", "memory", *parts, num_classes=classes, feature_names=("a", "b", "c"))


CASES = [
    pytest.param(model, classes, penalty, weighted, id=f"{model}-{classes}-{penalty}-{weighted}")
    for model, classes in (("ridge", None), ("logistic", 2), ("logistic", 3), ("mlp", None), ("mlp", 3))
    for penalty, weighted in (("per-feature", False), ("single", True))
]


def make(model, classes, penalty="per-feature", weighted=False, **settings):
    return TableTask(table(classes, weighted), model, width=4, penalty=penalty, **settings)


class TestConformanceOfClasses(TaskConformance):
    def make(self):
        task = make("logistic", 3)
        return task, task.space()


class TestConformanceOfValues(TaskConformance):
    def make(self):
        task = make("mlp", None)
        return task, task.space()


def point(task, seed=0):
    generator = torch.Generator().manual_seed(seed)
    lam = -4 + 5 * torch.rand(task.dimension, generator=generator, dtype=torch.float64)
    return task.init(generator), lam


@pytest.mark.parametrize(("model", "classes", "penalty", "weighted"), CASES)
class TestEveryModel:
    def test_losses_against_numpy(self, model, classes, penalty, weighted):
        task = make(model, classes, penalty, weighted)
        params, lam = point(task)
        p = {name: value.numpy() for name, value in params.items()}
        x, y = task.train.x.numpy(), task.train.y.numpy()
        w = np.ones(len(y)) if task.train.weight is None else task.train.weight.numpy()
        out = x @ p["weight"] + p["bias"]
        if model == "mlp":
            out = np.tanh(out) @ p["out_weight"] + p["out_bias"]
        if classes is None:
            each = 0.5 * (out[:, 0] - y) ** 2
        else:
            each = np.log(np.exp(out).sum(1)) - out[np.arange(len(y)), y]
        penalties = np.broadcast_to(10 ** lam.numpy(), D)
        strength = sum(penalties[j] / 2 * (p["weight"][j] ** 2).sum() for j in range(D))
        strength += sum(task.weight_decay / 2 * (v**2).sum() for k, v in p.items() if k != "weight")
        expected = (w * each).sum() / w.sum()
        assert float(task.val_loss(params, lam, task.train)) == pytest.approx(expected, rel=1e-12)
        assert float(task.train_loss(params, lam, task.train)) == pytest.approx(
            expected + strength, rel=1e-12
        )

    def test_a_batch_is_its_members(self, model, classes, penalty, weighted):
        task = make(model, classes, penalty, weighted)
        points = [point(task, seed) for seed in range(4)]
        params = {name: torch.stack([p[name] for p, _ in points]) for name in points[0][0]}
        lams = torch.stack([lam for _, lam in points])
        batch = vmap(grad(task.train_loss), in_dims=(0, 0, None))(params, lams, task.train)
        for i, (p, lam) in enumerate(points):
            single = grad(task.train_loss)(p, lam, task.train)
            for name in p:
                torch.testing.assert_close(batch[name][i], single[name], rtol=1e-12, atol=1e-13)

    def test_predictions_and_scores(self, model, classes, penalty, weighted):
        task = make(model, classes, penalty, weighted)
        params, lam = point(task)
        outputs = task.predict(params, lam, task.val)
        assert outputs.shape == (15, classes or 1)
        y = task.val.y.numpy()
        w = np.ones(15) if task.val.weight is None else task.val.weight.numpy()
        each = -((outputs[:, 0].numpy() - y) ** 2) if classes is None else outputs.numpy().argmax(1) == y
        assert float(task.score(outputs, task.val)) == pytest.approx((w * each).sum() / w.sum(), rel=1e-12)

    def test_hypergradient_against_finite_differences_of_the_optimum(self, model, classes, penalty, weighted):
        task = make(model, classes, penalty, weighted, weight_decay=0.1)
        params, _ = point(task, seed=1)
        lam = torch.linspace(-1.5, -0.5, task.dimension, dtype=torch.float64)
        params = optimum(task, params, lam)
        found = hypergradient(task, params, lam, task.train, task.val, exact(), "hessian")
        assert float(found.direct.abs().max()) == 0
        h = 1e-4
        for j in range(task.dimension):
            ends = []
            for sign in (1, -1):
                moved = lam.clone()
                moved[j] += sign * h
                ends.append(float(task.val_loss(optimum(task, params, moved), moved, task.val)))
            assert float(found.total[j]) == pytest.approx((ends[0] - ends[1]) / (2 * h), rel=1e-5, abs=1e-8)

    def test_to_and_init(self, model, classes, penalty, weighted):
        task = make(model, classes, penalty, weighted).to("cpu")
        again = TableTask(task.data, **{k: v for k, v in task.spec().items() if k != "name"})
        params = again.init(torch.Generator().manual_seed(0))
        for name, value in task.init(torch.Generator().manual_seed(0)).items():
            assert torch.equal(params[name], value)
            assert value.dtype == torch.float64
        assert model != "mlp" or params["weight"].shape == (D, 4)


def optimum(task, params, lam):
    """Trust-region Newton to a gradient below 1e-10."""
    names = list(params)
    sizes = [params[name].numel() for name in names]

    def unpack(flat):
        parts = zip(names, flat.split(sizes))
        return {name: part.reshape(params[name].shape) for name, part in parts}

    def objective(flat):
        return task.train_loss(unpack(flat), lam, task.train)

    flat, damping = torch.cat([params[name].flatten() for name in names]), 1.0
    for _ in range(400):
        slope = grad(objective)(flat)
        if slope.norm() < 1e-10:
            break
        curvature = hessian(objective)(flat)
        least = float(torch.linalg.eigvalsh(curvature)[0])
        shift = max(0.0, -1.1 * least) + damping * float(slope.norm())
        step = torch.linalg.solve(curvature + shift * torch.eye(len(flat), dtype=flat.dtype), slope)
        better = bool(objective(flat - step) <= objective(flat) + 1e-15)
        flat, damping = (flat - step, damping / 3) if better else (flat, damping * 4)
    assert float(grad(objective)(flat).norm()) < 1e-10
    return unpack(flat)


@pytest.mark.parametrize("penalty", ["per-feature", "single"])
@pytest.mark.parametrize("weighted", [False, True])
def test_the_closed_form_of_ridge_is_the_optimum(penalty, weighted):
    task = make("ridge", None, penalty, weighted)
    _, lam = point(task)
    params = task.solve(lam, task.train)
    slope = grad(task.train_loss)(params, lam, task.train)
    assert all(float(value.abs().max()) < 1e-12 for value in slope.values())
    assert {name: value.shape for name, value in params.items()} == {
        name: value.shape for name, value in point(task)[0].items()
    }


def test_the_hypergradient_of_ridge_three_ways():
    task = make("ridge", None)
    lam = torch.tensor([-1.0, 0.5, -2.0], dtype=torch.float64)

    def outer(at):
        return task.val_loss(task.solve(at, task.train), at, task.val)

    through = grad(outer)(lam)
    step = 1e-5 * torch.eye(D, dtype=torch.float64)
    differences = torch.stack([(outer(lam + row) - outer(lam - row)) / 2e-5 for row in step])
    implicit = hypergradient(task, task.solve(lam, task.train), lam, task.train, task.val, exact()).total
    torch.testing.assert_close(through, differences, rtol=1e-6, atol=1e-9)
    torch.testing.assert_close(through, implicit, rtol=1e-9, atol=1e-12)


def test_a_weight_of_two_is_a_row_twice():
    task = make("logistic", 2)
    params, lam = point(task)
    twice = Rows(torch.cat([task.train.x, task.train.x[:1]]), torch.cat([task.train.y, task.train.y[:1]]))
    weight = torch.ones(len(task.train), dtype=torch.float64)
    weight[0] = 2
    weighted = task.replace(task.train, {"weight": weight})
    torch.testing.assert_close(task.val_loss(params, lam, twice), task.val_loss(params, lam, weighted))
    assert not torch.isclose(task.val_loss(params, lam, twice), task.val_loss(params, lam, task.train))


def test_lambda_is_log10_of_the_penalty():
    task = make("logistic", 2)
    space = task.space()
    assert isinstance(space, Box)
    assert space.names == ("penalty_a", "penalty_b", "penalty_c")
    lams = stack(space, space.sample(50, np.random.default_rng(0)))
    assert float(lams.min()) > -4
    assert float(lams.max()) < 1
    params, _ = point(task)
    lam = space.encode({"penalty_a": 0.01, "penalty_b": 10.0, "penalty_c": 1.0})
    free = task.penalty(params, torch.full((3,), -torch.inf, dtype=torch.float64))
    size = params["weight"].square().sum(1)
    expected = (0.01 * size[0] + 10 * size[1] + size[2]) / 2
    torch.testing.assert_close(task.penalty(params, lam) - free, expected)
    single = make("logistic", 2, "single").space()
    assert (single.names, single.dimension) == (("penalty",), 1)
    assert task.bind(space) is task


def test_samples_are_class_proportional_real_rows():
    task = make("logistic", 3)
    small = task.sample("train", 10, seed=5)
    assert len(small) == 10
    counts = torch.bincount(small.y, minlength=3) / 10
    shares = torch.bincount(task.train.y, minlength=3) / len(task.train)
    assert float((counts - shares).abs().max()) <= 0.1
    places = [(task.train.x == row).all(1).nonzero().item() for row in small.x]
    assert len(set(places)) == 10
    assert torch.equal(task.train.y[places], small.y)
    assert torch.equal(task.sample("train", 10, seed=5).x, small.x)
    assert not torch.equal(task.sample("train", 10, seed=6).x, small.x)
    assert len(task.sample("val", 15, seed=0)) == 15


def test_samples_for_values_are_distinct_real_rows_with_their_weights():
    task = make("ridge", None, weighted=True)
    small = task.sample("val", 6, seed=0)
    places = [(task.val.x == row).all(1).nonzero().item() for row in small.x]
    assert len(set(places)) == 6
    assert torch.equal(task.val.y[places], small.y)
    assert torch.equal(task.val.weight[places], small.weight)


def test_learnable_tensors():
    task = make("ridge", None)
    small = task.sample("train", 5, seed=0)
    assert list(task.tensors(small)) == ["x"]
    moved = task.replace(small, {"x": small.x + 1})
    assert torch.equal(moved.x, small.x + 1)
    assert moved.y is small.y
    _, lam = point(task)

    def outer(x):
        return task.val_loss(task.solve(lam, task.replace(small, {"x": x})), lam, task.val)

    assert torch.autograd.gradcheck(outer, (small.x.clone().requires_grad_(),))


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("ridge", 2), "'ridge' predicts values, but this table has classes"),
        (("logistic", None), "'logistic' predicts classes, but this table has values"),
        (("rigde", None), "did you mean 'ridge'"),
        (("mlp", None, "per_feature"), "did you mean 'per-feature'"),
    ],
)
def test_bad_settings_are_refused(arguments, words):
    with pytest.raises(InputError, match=words):
        make(*arguments)


@pytest.mark.parametrize(("classes", "model"), [(None, "ridge"), (3, "logistic")])
def test_the_default_model_is_linear_in_what_the_table_holds(classes, model):
    assert TableTask(table(classes)).model == make("linear", classes).model == model


@pytest.mark.parametrize("given", [None, "a.csv"], ids=str)
def test_what_is_no_table_is_refused(given):
    with pytest.raises(
        InputError, match=rf"data is {type(given).__name__}, not a table; pass what hcdc.data"
    ):
        TableTask(given)


def test_bad_numbers_are_refused():
    with pytest.raises(InputError, match="width must be at least 1"):
        TableTask(table(2), "mlp", width=0)
    with pytest.raises(InputError, match="weight_decay at least 0"):
        TableTask(table(2), weight_decay=float("nan"))
    broken = table(2)
    broken.val.x[3, 1] = float("nan")
    with pytest.raises(InputError, match="the val rows of 'toy' have NaN"):
        TableTask(broken)


def test_bad_requests_are_refused():
    task = make("logistic", 3)
    with pytest.raises(InputError, match="train_size 2: there are 3 classes"):
        task.sample("train", 2, seed=0)
    with pytest.raises(InputError, match="only 24 labelled"):
        task.sample("train", 25, seed=0)
    with pytest.raises(InputError, match="part 'training' is not known; did you mean 'train'"):
        task.sample("training", 5, seed=0)
    with pytest.raises(InputError, match="choose 1 to 24"):
        make("ridge", None).sample("train", 25, seed=0)
    with pytest.raises(InputError, match="no closed form"):
        task.solve(torch.zeros(3), task.train)
    with pytest.raises(InputError, match=r"lam has shape \(1,\); this TableTask needs \(3,\)"):
        task.penalty(point(task)[0], torch.zeros(1))
    with pytest.raises(InputError, match="has 1 dimensions, but this TableTask has 3 penalties"):
        task.bind(Box(["a"], 0, 1))
    with pytest.raises(InputError, match="'y' is not known"):
        task.replace(task.train, {"y": task.train.y})


def test_names_that_are_missing_or_doubled_are_numbered():
    data = TableData(
        "toy", "memory", *(rows(9, 2, s) for s in range(3)), num_classes=2, feature_names=("a", "a", "b")
    )
    assert TableTask(data).space().names == ("penalty_0", "penalty_1", "penalty_2")


def test_real_tables_are_learned():
    """Breast cancer by logistic regression; diabetes by ridge, against scikit-learn."""
    datasets = pytest.importorskip("sklearn.datasets")
    linear_model = pytest.importorskip("sklearn.linear_model")
    data = split(*datasets.load_breast_cancer(return_X_y=True), classes=2)
    task = TableTask(data, "logistic", penalty="single")
    lam = torch.tensor([-2.0], dtype=torch.float64)
    params = {name: p.requires_grad_() for name, p in task.init(torch.Generator().manual_seed(0)).items()}
    optimiser = torch.optim.LBFGS(params.values(), max_iter=100, line_search_fn="strong_wolfe")

    def closure():
        optimiser.zero_grad()
        loss = task.train_loss(params, lam, task.train)
        loss.backward()
        return loss

    optimiser.step(closure)
    assert float(task.score(task.predict(params, lam, task.test), task.test)) > 0.94

    data = split(*datasets.load_diabetes(return_X_y=True), classes=None)
    ridge = TableTask(data, "ridge", penalty="single", weight_decay=0.0)
    params = ridge.solve(lam, ridge.train)
    theirs = linear_model.Ridge(alpha=0.01 * len(ridge.train)).fit(
        ridge.train.x.numpy(), ridge.train.y.numpy()
    )
    torch.testing.assert_close(params["weight"][:, 0], torch.from_numpy(theirs.coef_), rtol=1e-8, atol=1e-8)
    assert float(params["bias"]) == pytest.approx(theirs.intercept_)


def split(x, y, classes):
    order = np.random.default_rng(0).permutation(len(y))
    x = torch.from_numpy((x - x.mean(0)) / x.std(0))[order]
    y = torch.from_numpy(y)[order] if classes else torch.from_numpy(y)[order].double()
    third = len(y) // 3
    parts = [Rows(x[i * third : (i + 1) * third], y[i * third : (i + 1) * third]) for i in range(3)]
    return TableData("real", "sklearn", *parts, num_classes=classes)


def test_small_tables_train_in_more_lanes():
    task = make("logistic", 3)
    assert task.lanes(task.train, "cpu") == 256
    large = Rows(torch.zeros(100_000, D), torch.zeros(100_000, dtype=torch.int64))
    assert task.lanes(large, "cpu") == 16


def test_alignment_refuses_hyperparameters_that_no_loss_depends_on():
    with pytest.raises(InputError, match="all hypergradients are 0; choose 'probes' or 'weighted'"):
        plan(make("mlp", 3), Training(["weight_decay", "width"]), train_size=6)
