"""What an objective receives: translated budgets, scores with closed forms, copies in the passed type."""

import math

import numpy as np
import pytest
import torch

from hcdc import CondensedDataset, FullData, InputError
from hcdc.datasets import Effort, Graph, Nodes, Rows, TrialData

X = np.random.default_rng(0).normal(size=(50, 2)).astype(np.float32)
Y = np.arange(50) % 2
LOGITS = np.stack([np.zeros(50), np.linspace(-2, 2, 50)], 1)


def table(weight=None, metric="accuracy", classes=2, val=True, steps=7, batch=0):
    """A copy of ten training and fifty validation rows."""
    y = torch.from_numpy(Y if classes else X[:, 0].astype(np.float64))
    x = torch.from_numpy(X)
    recipe = {"steps": steps, "batch": batch}
    return CondensedDataset(
        Rows(x[:10], y[:10]),
        Rows(x, y, None if weight is None else torch.as_tensor(weight)) if val else None,
        {"data": {"num_classes": classes}, "metric": metric, "calibrated_recipe": recipe},
    )


def full(**options):
    return FullData((X, Y), (X, Y), **options)


@pytest.mark.parametrize(
    ("effort", "steps", "epochs"),
    [
        (Effort(), 200, 40),
        (Effort(steps=0.1), 20, 40),
        (Effort(steps=0.25, epochs=0.25), 50, 10),
        (Effort(steps=0.001, epochs=0.001), 1, 1),
        (Effort(most=3), 3, 3),
        (Effort(fixed=7), 7, 7),
    ],
)
def test_budgets_are_translated(effort, steps, epochs):
    data = full().trial(0, effort=effort)
    assert data.asked == {}
    assert (data.steps(200), data.epochs(40)) == (steps, epochs)
    assert data.asked == {"steps": 200, "epochs": 40}


def test_steps_and_epochs_agree_through_the_batch_size():
    short = full().trial(0, effort=Effort(most=3))
    short.loader("train", batch_size=20)  # three steps per epoch
    assert short.steps(200) == 9
    copy = TrialData.of_copy(table(steps=60), 0)
    copy.loader("train", batch_size=5)  # two steps per epoch
    assert (copy.steps(999), copy.epochs(999)) == (60, 30)
    assert TrialData.of_copy(table(steps=60, batch=4), 0).epochs(999) == 20


@pytest.mark.parametrize(
    ("effort", "batch", "steps", "doubt"),
    [
        (Effort(most=3), None, 3, "neither data.epochs nor data.loader"),
        (Effort(most=3), 50, 3, ""),  # all examples at once
        (Effort(most=3), 20, 3, "before data.loader"),
        (Effort(most=3, batch=20), 20, 9, ""),
        (Effort(most=3, batch=20), 10, 9, "before data.loader"),
        (Effort(most=3, batch=20), None, 9, "neither"),
        (Effort(most=3, whole=12), None, 50, ""),
        (Effort(most=3, whole=12), 20, 50, "before data.loader"),
        (Effort(steps=0.25, epochs=0.25), None, 50, ""),
        (Effort(fixed=7), 10, 7, ""),
    ],
)
def test_steps_asked_for_before_the_loader_are_checked_at_the_end(effort, batch, steps, doubt):
    data = full().trial(0, effort=effort)
    assert data.steps(200) == steps
    if batch is not None:
        data.loader("train", batch)
        data.loader("train", 7)
    assert data.batch == (batch or 0)
    assert doubt in data.doubt
    assert bool(data.doubt) == bool(doubt)


def test_loaders_shuffle_training_examples_only_and_repeat_with_the_seed():
    def labels(seed, split, **options):
        return torch.cat([x for x, _ in full().trial(seed).loader(split, 8, **options)])

    assert torch.equal(labels(1, "val"), torch.from_numpy(X))
    assert torch.equal(labels(1, "train", shuffle=False), torch.from_numpy(X))
    assert not torch.equal(labels(1, "train"), torch.from_numpy(X))
    assert torch.equal(labels(1, "train"), labels(1, "train"))
    assert not torch.equal(labels(1, "train"), labels(2, "train"))


def test_loaders_number_named_classes():
    named = FullData((X, np.array(["b", "a"])[Y]), (X, np.array(["b", "a"])[Y]))
    assert torch.cat([y for _, y in named.trial(0).loader("val", 8)]).tolist() == (1 - Y).tolist()
    x, y = torch.from_numpy(X), torch.from_numpy(Y.astype(np.int32)) + 3
    from_three = FullData((x, y), (x, y)).trial(0)
    assert torch.cat([y for _, y in from_three.loader("val", 8)]).tolist() == Y.tolist()
    values = FullData((x, x[:, 0].double()), (x, x[:, 0].double())).trial(0)
    assert next(iter(values.loader("val", 8)))[1].dtype == torch.float64


def test_accuracy_from_logits_probabilities_labels_and_one_column():
    data = full().trial(0)
    expected = float(((LOGITS[:, 1] > 0) == Y).mean())
    chances = 1 / (1 + np.exp(-LOGITS[:, 1]))
    assert data.score(LOGITS) == expected
    assert data.score(torch.from_numpy(LOGITS)) == expected
    assert data.score(torch.from_numpy(LOGITS).bfloat16()) == expected
    assert data.score(LOGITS[:, 1]) == expected
    assert data.score(chances, probabilities=True) == expected
    assert data.score(np.stack([1 - chances, chances], 1), probabilities=True) == expected
    assert data.score(LOGITS[:, 1] > 0, values=True) == expected
    assert data.score(LOGITS, probabilities=None, values=None) == expected
    assert data.score(probabilities=chances) == data.score(values=LOGITS[:, 1] > 0) == expected
    assert math.isnan(data.score(np.full_like(LOGITS, np.nan)))


def test_weighted_accuracy_and_loss_on_a_copy():
    weight = np.linspace(0, 3, 50)
    hits = (LOGITS[:, 1] > 0) == Y
    data = TrialData.of_copy(table(weight), 0)
    assert data.is_condensed
    assert data.weighted
    assert data.score(LOGITS) == pytest.approx((weight * hits).sum() / weight.sum(), abs=1e-12)
    each = np.log1p(np.exp(np.where(Y == 1, -LOGITS[:, 1], LOGITS[:, 1])))
    loss = TrialData.of_copy(table(weight, metric="loss"), 0)
    assert loss.score(LOGITS) == pytest.approx(-(weight * each).sum() / weight.sum(), abs=1e-12)
    chances = 1 / (1 + np.exp(-LOGITS[:, 1]))
    assert loss.score(chances, probabilities=True) == pytest.approx(loss.score(LOGITS), abs=1e-9)
    with pytest.raises(InputError, match="ranks by loss"):
        loss.score(Y, values=True)


def test_regression_scores_minus_the_rmse():
    data = FullData((X, X[:, 0]), (X, X[:, 0])).trial(0)
    assert data.num_classes is None
    assert data.score(X[:, :1] + 2.0) == pytest.approx(-2.0, abs=1e-6)
    weight = np.r_[np.ones(10), np.zeros(40)]
    copy = TrialData.of_copy(table(weight, classes=None), 0)
    error = np.r_[np.full(10, 3.0), np.full(40, 100.0)]
    assert copy.score(X[:, 0] + error) == pytest.approx(-3.0, abs=1e-6)


def test_a_metric_of_ones_own_gets_the_weights():
    def metric(y, outputs, sample_weight):
        return float(np.average(outputs[:, 1] * y, weights=sample_weight))

    weight = np.linspace(0, 3, 50)
    own = full(metric=metric)
    assert own.trial(0).score(LOGITS) == pytest.approx((LOGITS[:, 1] * Y).mean())
    weighted = TrialData.of_copy(table(weight), 0, own).score(LOGITS)
    assert weighted == pytest.approx((weight * LOGITS[:, 1] * Y).sum() / weight.sum())


def test_the_test_part_is_scored_apart_and_only_there_in_full():
    whole = FullData((X, Y), (X, Y), (X[:5], Y[:5]))
    data = whole.trial(0)
    assert data.score(1 - 2 * LOGITS[:5], split="test") != data.score(LOGITS)
    assert set(data.parts_scored) == {"test", "val"}
    assert whole.trial(0, fraction=0.5).test is None


def test_a_copy_takes_the_type_that_was_passed():
    pandas = pytest.importorskip("pandas")
    small = table()
    arrays = TrialData.of_copy(small, 0, full())
    assert all(isinstance(array, np.ndarray) for array in arrays.train)
    assert np.array_equal(arrays.train[0], X[:10])
    rows = pandas.DataFrame({"late": np.array(["no", "yes"])[Y], "a": X[:, 0], "b": X[:, 1]})
    frame = TrialData.of_copy(small, 0, FullData(rows, rows, target="late"))
    assert frame.train.to_dict("list") == rows[:10].to_dict("list")
    assert frame.score(LOGITS) == full().trial(0).score(LOGITS)
    wide = rows.assign(c=1.0)
    with pytest.raises(InputError, match="the copy has 2 features and the data frame 3"):
        TrialData.of_copy(small, 0, FullData(wide, wide, target="late"))


LABELS = [np.array([1, 2]), np.array([3, 8], np.int32), np.array([False, True]), np.array(["no", "yes"])]


@pytest.mark.parametrize("names", LABELS, ids=str)
@pytest.mark.parametrize("kind", ["arrays", "tensors", "dataset", "frame"])
@pytest.mark.parametrize("val", [True, False])
def test_a_copy_has_the_labels_of_the_full_data(names, kind, val):
    """Else a model learns class 0 where the validation part, or the score, has class 1."""
    if names.dtype.kind == "U" and kind in ("tensors", "dataset"):
        pytest.skip("tensors hold no text")
    y = names[Y]
    if kind == "arrays":
        whole = FullData((X, y), (X, y))
    elif kind == "frame":
        pandas = pytest.importorskip("pandas")
        rows = pandas.DataFrame({"a": X[:, 0], "b": X[:, 1], "late": y})
        whole = FullData(rows, rows, target="late")
    else:
        pair = torch.from_numpy(X), torch.from_numpy(y)
        given = torch.utils.data.TensorDataset(*pair) if kind == "dataset" else pair
        whole = FullData(given, given)
    data = TrialData.of_copy(table(val=val), 0, whole)

    def labels(part):
        if kind == "frame":
            return part["late"].tolist()
        return (part.tensors if kind == "dataset" else part)[1].tolist()

    assert labels(data.train) == y[:10].tolist()
    assert labels(data.val) == y.tolist()
    assert data.score(values=y) == 1.0
    assert data.score(np.eye(2)[Y]) == 1.0
    assert data.score(LOGITS) == whole.trial(0).score(LOGITS)


def test_a_copy_matches_classes_by_name():
    """Texts are sorted differently from the numbers they spell."""
    names = np.array([2, 10], object)
    y = names[Y]
    small = table()
    small.meta["data"]["class_names"] = ["10", "2"]
    data = TrialData.of_copy(small, 0, FullData((X, y), (X, y)))
    assert data.val[1].tolist() == names[1 - Y].tolist()


def test_a_torch_dataset_with_text_labels_has_no_copy():
    class Texts(torch.utils.data.Dataset):
        targets = np.array(["no", "yes"])[Y]

        def __len__(self):
            return len(X)

        def __getitem__(self, index):
            return X[index], self.targets[index]

    with pytest.raises(InputError, match="cannot hold labels such as 'no'; number the classes"):
        TrialData.of_copy(table(), 0, FullData(Texts(), Texts()))


def test_a_copy_of_a_graph_is_a_pyg_graph_and_weights_follow_their_nodes():
    torch_geometric = pytest.importorskip("torch_geometric")
    draw = torch.Generator().manual_seed(0)
    graph = Graph(torch.randn(6, 2, generator=draw), torch.eye(6))
    val = Nodes(graph, torch.tensor([1, 0, 1]), torch.tensor([5, 0, 2]), torch.tensor([3.0, 1.0, 4.0]))
    meta = {"data": {"num_classes": 2}, "metric": "accuracy", "calibrated_recipe": {"steps": 9}}
    small = CondensedDataset(Nodes(graph, torch.arange(6) % 2), val, meta)
    data = TrialData.of_copy(small, 0)
    assert data.train.train_mask.tolist() == [True] * 6
    assert data.val.val_mask.nonzero().ravel().tolist() == [0, 2, 5]
    outputs = torch.zeros(6, 2)
    outputs[5, 1] = outputs[0, 1] = 1.0  # node 5 is right; nodes 0 and 2 are wrong
    assert data.score(outputs) == pytest.approx(3 / 8)
    assert data.score(outputs[[0, 2, 5]]) == pytest.approx(3 / 8)
    with pytest.raises(InputError, match="trained on as a whole"):
        data.loader("train")
    whole = torch_geometric.data.Data(
        x=graph.x, edge_index=torch.tensor([[0, 1], [1, 0]]), y=torch.arange(6) % 2 + 1,
        train_mask=torch.ones(6, dtype=torch.bool), val_mask=torch.ones(6, dtype=torch.bool),
    )  # fmt: skip
    data = TrialData.of_copy(small, 0, FullData(whole))
    assert data.train.y.tolist() == [1, 2] * 3
    assert data.val.y.tolist() == [1, -1, 2, -1, -1, 2]  # nodes without a label keep -1
    assert data.score(outputs) == pytest.approx(3 / 8)


def test_a_copy_with_the_real_validation_set_needs_it():
    with pytest.raises(InputError, match="pass full="):
        table(val=False).objective(lambda trial, data: 0.0)
    data = TrialData.of_copy(table(val=False), 0, full())
    assert data.val[0] is X


def test_a_copy_in_a_study_of_ones_own():
    """`small.objective` seeds each trial by its number and leaves the global streams as they were."""
    optuna = pytest.importorskip("optuna")
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    seen = []

    def objective(trial, data):
        cut = trial.suggest_float("cut", -1, 1)
        seen.append((data.seed, float(torch.rand(())), data.steps(1000)))
        return data.score(data.val[0][:, 0] - cut)

    def run():
        study = optuna.create_study(direction="maximize", sampler=optuna.samplers.RandomSampler(seed=0))
        study.optimize(table().objective(objective), n_trials=4)
        return study

    before = torch.random.get_rng_state()
    first, again = run(), run()
    assert torch.equal(before, torch.random.get_rng_state())
    assert len(set(seen)) == 4
    assert seen[:4] == seen[4:]
    assert {steps for _, _, steps in seen} == {7}
    assert first.best_value == again.best_value
    expected = ((X[:, 0] > first.best_params["cut"]) == Y).mean()
    assert first.best_value == pytest.approx(expected)


def test_a_copy_of_a_table_alone_is_a_pair_of_arrays():
    data = TrialData.of_copy(table(), 0)
    assert [type(array) for pair in (data.train, data.val) for array in pair] == [np.ndarray] * 4
    x, y = next(iter(data.loader("train", batch_size=4)))
    assert (x.dtype, y.dtype) == (torch.float32, torch.int64)


def test_a_study_that_minimises_is_refused():
    optuna = pytest.importorskip("optuna")
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    run = table().objective(lambda trial, data: trial.suggest_float("x", 0, 1))
    for directions in (["minimize"], ["maximize", "minimize"]):
        with pytest.raises(InputError, match=r"the study minimises, but a higher data\.score is better"):
            optuna.create_study(directions=directions).optimize(run, n_trials=1)
    assert run(optuna.trial.FixedTrial({"x": 0.5})) == 0.5  # it belongs to no study


def test_outputs_that_do_not_fit_are_refused():
    data = full().trial(0)
    with pytest.raises(InputError, match="49 outputs for 50 examples"):
        data.score(LOGITS[1:])
    with pytest.raises(InputError, match="one column per class"):
        data.score(np.zeros((50, 3)))
    for given in ({}, {"probabilities": True, "values": True}, {"probabilities": True}, {"values": Y}):
        with pytest.raises(InputError, match="needs the outputs once"):
            data.score(*([LOGITS] if "values" in given else []), **given)
    with pytest.raises(InputError, match="split 'tset' is not known"):
        data.loader("tset")
    with pytest.raises(InputError, match="has 2 classes and the full data 3"):
        TrialData.of_copy(table(), 0, full(num_classes=3))


def test_a_metric_without_weights_is_enough():
    x, y = np.zeros((8, 1)), np.arange(8) % 2
    full = FullData((x, y), (x, y), metric=lambda y, outputs: -abs(y - outputs).mean())
    assert full.trial(0).score(np.ones(8)) == -0.5
    weighted = {"seed": 0, "metric": full.metric, "weight": np.ones(8)}
    with pytest.raises(InputError, match="the metric takes no sample_weight"):
        TrialData(full.parts, **weighted)
    weighted["metric"] = lambda y, outputs, sample_weight=None: float(sample_weight.sum())
    assert TrialData(full.parts, **weighted).score(np.ones(8)) == 8


def test_one_column_of_probabilities_or_labels_is_no_logit():
    data, chances = full().trial(0), 1 / (1 + np.exp(-LOGITS[:, 1]))
    with pytest.raises(InputError, match="does not look like logits; pass probabilities=True"):
        data.score(chances)
    assert data.score((LOGITS[:, 1] > 0).astype(int)) == data.score(LOGITS)  # labels 0 and 1 do as logits
    later = FullData((X, Y + 1), (X, Y + 1)).trial(0)
    with pytest.raises(InputError, match="or values=True for predicted labels"):
        later.score(Y + 1)
    named = FullData((X, np.array(["a", "b"])[Y]), (X, np.array(["a", "b"])[Y])).trial(0)
    with pytest.raises(InputError, match="got texts as outputs; pass values=True"):
        named.score(np.array(["a", "b"])[Y])
