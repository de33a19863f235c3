"""A model without gradients: fitted by the user's function, on the full data and on copies."""

import numpy as np
import pytest
import torch

from hcdc.condensers import condense, plan
from hcdc.core.errors import InputError, NumericalError
from hcdc.core.recipe import Recipe
from hcdc.datasets import CondensedDataset, Rows, TableData
from hcdc.evaluation import evaluate
from hcdc.spaces import Box
from hcdc.tasks import FittedTask, task_from_spec
from hcdc.training import predictors, run_candidates

SPACE = Box(["power"], 0.1, 10.0, "log")
WEIGHTED = {"probes": 6, "pool": 30}


def table(classes=3):
    rng = np.random.default_rng(0)
    parts = []
    for count in (60, 30, 30):
        y = np.arange(count) % 3
        x = rng.normal(size=(count, 2)) + 2 * np.stack([y == 1, y == 2], 1)
        y = y if classes else x[:, 0]
        parts.append(Rows(torch.from_numpy(x).float(), torch.from_numpy(y if classes else y.astype("f4"))))
    return TableData("toy", "memory", *parts, num_classes=classes, feature_names=("a", "b"))


def centres(config, x, y, seed):
    """Distances to the mean row of each class, one feature scaled: a wrong scale ranks classes wrongly."""
    scale = np.array([config["power"], 1.0])
    means = np.stack([x[y == c].mean(0) for c in range(3)])
    return lambda rows: -((scale * (rows[:, None] - means)) ** 2).sum(2)


def shrunk(config, x, y, seed):
    slope = (x[:, 0] @ y) / (x[:, 0] @ x[:, 0] + 10 * config["power"])
    return lambda rows: slope * rows[:, 0]


def test_predictors_are_the_function_of_the_user():
    task = FittedTask(table(), centres)
    (predict,) = predictors(task, SPACE, [{"power": 2.0}], task.train, Recipe(steps=1, seeds=2))
    x, y = task.train.x.numpy(), task.train.y.numpy()
    expected = centres({"power": 2.0}, x, y, 0)(task.val.x.numpy())
    outputs = predict(task.val)
    assert outputs.shape == (2, 30, 3)
    np.testing.assert_allclose(outputs[1], expected, rtol=1e-5)


def test_results_are_loss_and_score_of_each_part_with_a_seed_for_each_repeat():
    seen = []

    def noting(config, x, y, seed):
        seen.append((config["power"], seed, len(x)))
        return centres(config, x, y, seed)

    task = FittedTask(table(), noting)
    configs = [{"power": 1.0}, {"power": 3.0}]
    recipe = Recipe(steps=1, seeds=2)
    found = run_candidates(task, SPACE, configs, task.train, {"val": task.val}, recipe, 0, "judge", "cpu")
    assert [power for power, _, _ in seen] == [1.0, 1.0, 3.0, 3.0]
    assert len({seed for _, seed, _ in seen}) == 4
    assert all(0 <= seed < 2**31 for _, seed, _ in seen)
    outputs = centres(configs[1], task.train.x.numpy(), task.train.y.numpy(), 0)(task.val.x.numpy())
    logs = outputs - np.log(np.exp(outputs).sum(1, keepdims=True))
    y = task.val.y.numpy()
    assert found[1].values["val.loss"] == pytest.approx(-logs[np.arange(30), y].mean(), rel=1e-5)
    assert found[1].values["val.score"] == pytest.approx((outputs.argmax(1) == y).mean())
    assert len(found[1].repeats["val.loss"]) == 2
    assert found[1].seconds >= found[1].part_seconds["val"] > 0


def test_a_fit_without_a_finite_loss_is_refused_or_kept():
    task = FittedTask(table(), lambda config, x, y, seed: lambda rows: np.full((len(rows), 3), np.nan))
    given = (task, SPACE, [{"power": 1.0}], task.train, {"val": task.val}, Recipe(steps=1), 0, "judge", "cpu")
    with pytest.raises(NumericalError, match="non-finite loss"):
        run_candidates(*given)
    assert not run_candidates(*given, keep_diverged=True)[0].finite


@pytest.mark.parametrize(("classes", "fit"), [(3, centres), (None, shrunk)])
def test_weighted_rows_rank_by_loss_and_come_back_from_a_file(classes, fit, tmp_path):
    task = FittedTask(table(classes), fit)
    small = condense(task, SPACE, train_size=12, val_size=9, seed=1, options=WEIGHTED)
    assert small.meta["val_method"] == "weighted"
    assert small.val.weight.min() >= 0
    assert float(small.val.weight.mean()) == pytest.approx(1)
    file = tmp_path / "small.hcdc"
    small.save(file)
    found = evaluate(CondensedDataset.load(file), candidates=12, task=task, rivals=["real-val", "random-val"])
    assert found.metric == "loss"
    x, y = small.train.x.numpy(), small.train.y.numpy()
    outputs = torch.from_numpy(fit(found.configs[3], x, y, 0)(small.val.x.numpy()))
    assert found.proxy[3] == pytest.approx(-float(task.loss(outputs.float(), small.val)), rel=1e-4)
    assert len(found.rivals) == 2
    with pytest.raises(InputError, match="a file holds no code"):
        task_from_spec(small.meta["task"], task.data)


def test_weighted_rows_of_values_follow_the_probes():
    """On some rows a large slope is right, on others wrong; the truth decides which of them count."""
    task = FittedTask(table(None), shrunk)
    small = condense(task, SPACE, train_size=12, val_size=9, seed=1, options=WEIGHTED)
    assert small.record["history"][0]["probe_spearman"] > 0.8


@pytest.mark.parametrize("way", ["aligned", "both", "probes"])
def test_ways_that_need_gradients_are_refused_before_any_work(way):
    with pytest.raises(InputError, match=f"val_method '{way}': the model is fitted without gradients"):
        plan(FittedTask(table(), centres), SPACE, train_size=12, val_method=way)


def test_the_cost_is_predicted_without_parameters():
    made = plan(FittedTask(table(), centres), SPACE, train_size=12, options=WEIGHTED)
    assert made.cost().full_trainings == 6


def test_changed_code_has_another_identity():
    one, other = (FittedTask(table(), fit) for fit in (centres, shrunk))
    assert one.identity(SPACE, {"power": 1.0}) == FittedTask(table(), centres).identity(SPACE, {"power": 1.0})
    assert one.identity(SPACE, {"power": 1.0}) != other.identity(SPACE, {"power": 1.0})


@pytest.mark.parametrize(
    ("data", "fit", "message"),
    [(None, centres, "not a table"), (table(), "trees", "fit 'trees': pass a function")],
)
def test_bad_arguments_are_refused(data, fit, message):
    with pytest.raises(InputError, match=message):
        FittedTask(data, fit)


def test_outputs_of_another_shape_are_refused():
    task = FittedTask(table(), lambda config, x, y, seed: lambda rows: np.zeros(len(rows)))
    with pytest.raises(InputError, match=r"shape \(30,\) for 30 rows; 3 for each row"):
        task.fitted({}, task.train, 0)(task.val)
