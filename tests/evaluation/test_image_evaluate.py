"""Copies of images from condensing to judging: every way to learn S_val, tables of results, rivals."""

import dataclasses
import json
import math

import numpy as np
import pytest
import torch
from torch import nn

import hcdc.evaluation._evaluate as evaluating
from hcdc.condensers import companion_configs, condense, expectations, free_figures
from hcdc.core.configs import config_hash
from hcdc.core.errors import InputError
from hcdc.core.ranks import standard
from hcdc.core.recipe import Recipe
from hcdc.core.ridge import kernel_ridge
from hcdc.datasets import CondensedDataset, Images, data
from hcdc.evaluation import evaluate, reopen_task
from hcdc.evaluation._context import Trained, visits
from hcdc.reporting import validation_choice
from hcdc.search import plan, prepare, search
from hcdc.spaces import Finite, NASBench201, Training, halves
from hcdc.tasks import ImageTask
from hcdc.training import Result, _streams, predictors
from hcdc.truth import TableTruth, TrainedTruth, Truth
from recipes import change_recipes

SPACE = NASBench201(channels=2)
WEIGHING = {"probes": 6, "companions": 4}
PROBING = {**WEIGHING, "probe_steps": 3}
ALIGNING = {"trajectories": 1, "holdout": 2, "steps": 1, "check": 1, "batch": 1, "nodes": 3, "iterations": 1}
SHARED = ["random-val", "random-val-loss", "real-val", "real-val-loss"]
RIDGES = ["ridge-probes", "ridge-and-real-val", "model-and-real-val"]


def short_recipe(**settings):
    """Two steps, two initialisations on the copy and small batches, whatever is asked for."""
    few = {"steps": 2, "seeds": 2 if "seeds" in settings else 1, "batch": min(10, settings["batch"])}
    return Recipe(**{**settings, **few})


@pytest.fixture(scope="module", autouse=True)
def short_recipes():
    with pytest.MonkeyPatch.context() as patch:
        change_recipes(patch, short_recipe)
        yield


class FakeTable(Truth):
    """Results by formula; keeps what it was asked."""

    fidelities = {12: 12 / 200}  # noqa: RUF012

    def __init__(self):
        self.asked = []

    def score(self, config, part, fidelity=None):
        self.asked.append((config_hash(config), part, fidelity or 200))
        number = int(config_hash(config)[:6], 16) / 16**6
        return {"val": number, "test": 1 - number}[part] * (1 if fidelity is None else -1)

    def known(self, config):
        return True

    def seconds(self, config):
        return 100.0

    def words(self):
        return "a table"

    def spec(self):
        return {"name": "fake"}


@pytest.fixture(scope="module")
def digits():
    return ImageTask(data("digits"))


def tiny_task():
    """Three classes of 4 x 4 noise, for alignment."""
    draw = torch.Generator().manual_seed(0)
    whole = data("digits")
    parts = {
        name: Images(torch.randint(256, (count, 1, 4, 4), generator=draw).byte(), torch.arange(count) % 3)
        for name, count in (("train", 15), ("val", 9), ("test", 9))
    }
    names = ("a", "b", "c")
    return ImageTask(
        dataclasses.replace(
            whole, name="noise", source="memory", **parts, num_classes=3, class_names=names, origin={}
        )
    )


OPTIONS = {
    "probes": PROBING,
    "weighted": WEIGHING,
    "aligned": ALIGNING,
    "both": {**ALIGNING, **PROBING},
}


@pytest.fixture(scope="module", params=OPTIONS)
def copied(request, tmp_path_factory):
    """A copy by each way to learn S_val, its task, the table, and what it was judged to be."""
    method, table = request.param, FakeTable()
    aligns = method in ("aligned", "both")
    task = tiny_task() if aligns else ImageTask(data("digits"))
    small = condense(
        task, SPACE, "hcdc", train_size=6 if aligns else 20, val_size=3 if aligns else 10, val_method=method,
        truth=None if method == "aligned" else table,
        options=OPTIONS[method],
    )  # fmt: skip
    condensing_asked = list(table.asked)
    loaded = CondensedDataset.load(small.save(tmp_path_factory.mktemp("copy") / "copy.hcdc"))
    judged = evaluate(
        dataclasses.replace(loaded, record=small.record),
        candidates=6,
        task=task if aligns else None,  # digits are found again
        truth=table,
    )
    return method, task, small, loaded, judged, condensing_asked


def test_the_file_gives_back_what_was_made(copied):
    method, _, small, loaded, _, _ = copied
    assert loaded.to_bytes() == small.to_bytes()
    assert loaded.kind == "image"
    for part in ("train", "val"):
        one, two = getattr(small, part), getattr(loaded, part)
        assert torch.equal(one.x, two.x)
        assert torch.equal(one.y, two.y)
    assert (loaded.val.weight is not None) == (method == "weighted")
    if method == "weighted":
        assert torch.equal(loaded.val.weight, small.val.weight)
        assert float(loaded.val.weight.mean()) == pytest.approx(1, rel=1e-5)
        assert "weighted" in dict(loaded.summary())["val"]
    assert loaded.meta["val_method"] == method
    assert loaded.meta["metric"] == "loss"
    assert loaded.meta.get("truth") == (None if method == "aligned" else {"name": "fake"})


def test_what_made_the_copy_does_not_judge_it(copied):
    method, _, small, _, judged, asked = copied
    used = set(small.meta["candidates"])
    condensing_half = {config_hash(config) for config in halves(SPACE, 0)[0]}
    assert used <= condensing_half
    if method != "aligned":
        probes = {config_hash(config) for config in small.meta["probes"]["configs"]}
        assert len(probes) == 6
        assert probes <= used
        companions = {config_hash(config) for config in companion_configs(SPACE, 6, 4, 0)}
        assert len(companions) == 4
        assert companions <= used - probes
        assert (used == probes | companions) == (method in ("probes", "weighted"))
        assert set(asked) == {
            (config_hash(c), "val", 200) for c in small.meta["probes"]["configs"]
        }  # no test
    assert judged.dropped == 0
    assert judged.candidates == 6
    assert not used & {config_hash(config) for config in judged.configs}


def test_companions_are_ranked_beside_the_probes(copied):
    method, _, small, _, _, _ = copied
    last = small.record["history"][-1]
    assert ("probe_correlation" in last) == (method in ("probes", "both"))
    assert ("probe_spearman" in last) == (method == "weighted")
    assert ("companion_correlation" in last) == (method in ("probes", "both"))


def test_results_come_from_the_table(copied):
    _, _, _, _, judged, _ = copied
    table = FakeTable()
    assert judged.truth == [table.score(config, "val") for config in judged.configs]
    assert judged.test == [table.score(config, "test") for config in judged.configs]
    assert judged.truth_source == "a table"
    assert judged.full_seconds == 600.0
    assert judged.kind == "image"
    assert judged.best_test_accuracy == min(judged.test)
    assert len(judged.proxy) == 6
    assert all(math.isfinite(value) for value in judged.proxy)


def test_probes_are_known_by_validation_and_never_by_test(copied):
    method, _, small, _, _, _ = copied
    if method == "aligned":
        pytest.skip("an aligned copy has no probes of the table")
    table, known = FakeTable(), small.meta["probes"]
    by_val, by_test = ([table.score(c, part) for c in known["configs"]] for part in ("val", "test"))
    assert known["score"] == by_val
    assert np.argsort(by_val).tolist() != np.argsort(by_test).tolist()


def test_trained_probes_are_known_by_validation_and_never_by_test(monkeypatch, digits):
    """Whose order is the other way round here."""

    def trained(self, configs, parts=None):
        return [Result({"val.score": k / 10, "test.score": -k / 10}, 1.0) for k in range(len(configs))]

    monkeypatch.setattr(TrainedTruth, "results", trained)
    given = {"train_size": 20, "val_size": 10, "val_method": "weighted", "options": WEIGHING}
    small = condense(digits, SPACE, "hcdc", **given)
    assert small.meta["probes"]["score"] == [k / 10 for k in range(6)]


@pytest.mark.parametrize("copied", ["weighted"], indirect=True)
def test_rivals_are_charged_what_the_very_probes_took(copied):
    """The judging cells have other seconds in a table."""
    _, task, small, loaded, _, _ = copied
    spent = {**small.record, "probe_seconds": 432.0}
    judged = evaluate(dataclasses.replace(loaded, record=spent), candidates=6, task=task, truth=FakeTable())
    rivals = {rival.name: rival for rival in judged.rivals}
    assert rivals["ridge-probes"].extra_seconds == 432.0
    assert rivals["ridge-and-real-val"].extra_seconds == 432.0 + small.record["phases"]["train"]


def test_every_rival_is_there(copied):
    method, task, _, _, judged, _ = copied
    rivals = {rival.name: rival for rival in judged.rivals}
    expected = [*SHARED, "12-epochs", "parameter-count", *(RIDGES if method != "aligned" else [])]
    assert list(rivals) == expected  # an aligned copy has fewer than five full trainings here
    table, configs = FakeTable(), judged.configs
    assert rivals["12-epochs"].proxy == [table.score(config, "val", 12) for config in configs]
    assert rivals["12-epochs"].spearman == pytest.approx(-1)
    assert rivals["12-epochs"].seconds_per_candidate == pytest.approx(6.0)
    counts = [SPACE.parameter_count(config, 1, task.num_classes) for config in configs]
    assert rivals["parameter-count"].proxy == counts
    assert rivals["parameter-count"].seconds_per_candidate == 0.0
    if method != "aligned":
        assert rivals["ridge-probes"].extra_seconds == pytest.approx(600.0)  # six probes
        assert "6 full trainings" in rivals["ridge-probes"].description
        assert len(set(rivals["ridge-probes"].proxy)) > 1
    for name in SHARED:
        assert "same S_train" in rivals[name].description
        assert len(rivals[name].proxy) == 6


def test_looked_up_results_are_paid_for(copied):
    method, _, small, _, judged, _ = copied
    extra = 0.0 if method == "aligned" else 600.0
    assert small.record["probe_seconds"] == extra
    assert judged.condense_seconds == pytest.approx(small.record["condense_seconds"] + extra)


def test_the_ranking_is_that_of_networks_trained_on_the_copy(copied):
    """Minus the (weighted) loss on S_val of the judges, trained anew, by hand."""
    _, task, small, _, judged, _ = copied
    recipe = Recipe.from_dict(small.meta["calibrated_recipe"])
    networks = predictors(
        task, SPACE, judged.configs, small.train, recipe, seed=0, role="judge", device="cpu"
    )
    weight = torch.ones(len(small.val)) if small.val.weight is None else small.val.weight
    assert len(networks) == len(judged.proxy)
    for predict, found in zip(networks, judged.proxy):
        outputs = predict(small.val)
        assert len(outputs) == recipe.seeds == 2
        losses = [nn.functional.cross_entropy(one, small.val.y, reduction="none") for one in outputs]
        expected = -torch.stack([(each * weight).sum() / weight.sum() for each in losses]).mean()
        assert found == pytest.approx(float(expected), rel=1e-5)


def test_ridges_are_of_the_probes_ranks_alone_and_with_the_real_loss(copied):
    """By hand: a regression of ranks on features, and the loss of the judges on all validation images."""
    method, task, small, _, judged, _ = copied
    if method == "aligned":
        pytest.skip("an aligned copy has fewer than five full trainings here")
    rivals = {rival.name: rival for rival in judged.rivals}
    known = small.meta["probes"]
    at, fresh = ([SPACE.features(c) for c in some] for some in (known["configs"], judged.configs))
    order = np.argsort(np.argsort(known["score"])) + 1.0
    assert len(set(known["score"])) == 6
    plain = kernel_ridge(np.asarray(at), order, np.asarray(fresh))
    np.testing.assert_allclose(rivals["ridge-probes"].proxy, plain)
    recipe = Recipe.from_dict(small.meta["calibrated_recipe"])
    losses = [
        float(torch.stack([nn.functional.cross_entropy(one, task.val.y) for one in predict(task.val)]).mean())
        for predict in predictors(
            task, SPACE, judged.configs, small.train, recipe, seed=0, role="judge", device="cpu"
        )
    ]
    expected = standard(plain) - standard(np.asarray(losses))
    np.testing.assert_allclose(rivals["ridge-and-real-val"].proxy, expected, atol=1e-4)
    made = small.record["phases"]["train"]
    assert rivals["ridge-and-real-val"].extra_seconds == pytest.approx(600.0 + made)
    own = rivals["real-val"].seconds_per_candidate + rivals["ridge-probes"].seconds_per_candidate
    assert rivals["ridge-and-real-val"].seconds_per_candidate == pytest.approx(own)
    every = [*known["configs"], *judged.configs]
    figures = free_figures(task, SPACE, every)
    modelled = expectations(SPACE, known["configs"], known["score"], judged.configs, figures)
    assert np.abs(standard(modelled) - standard(plain)).max() > 0.1
    expected = standard(modelled) - standard(np.asarray(losses))
    np.testing.assert_allclose(rivals["model-and-real-val"].proxy, expected, atol=1e-4)
    assert rivals["model-and-real-val"].extra_seconds == pytest.approx(600.0 + made)


def test_with_a_table_real_images_are_weighted_where_nothing_else_is_said(digits):
    arguments = {"train_size": 20, "val_size": 10, "truth": FakeTable(), "options": WEIGHING}
    small = condense(digits, SPACE, "hcdc", **arguments)
    assert small.meta["val_method"] == "weighted"
    assert small.val.weight is not None
    assert small.record["full_trainings"] == 0
    named = condense(digits, SPACE, "hcdc", val_method="weighted", **arguments)
    assert named.to_bytes() == small.to_bytes()
    judged = evaluate(small, candidates=4, truth=FakeTable(), rivals=False)
    plain = CondensedDataset(small.train, dataclasses.replace(small.val, weight=None), small.meta)
    equal = evaluate(plain, candidates=4, truth=FakeTable(), rivals=False)
    assert all(abs(a - b) > 1e-6 for a, b in zip(judged.proxy, equal.proxy))  # weights are looked at


def test_a_weighted_set_may_be_larger_than_a_random_one(digits):
    """Which has equally many images a class, and is said to be as small as it is."""
    whole, most = len(digits.val), digits.most("val")
    assert most < whole
    small = condense(
        digits, SPACE, "hcdc", train_size=20, val_size=whole, val_method="weighted", truth=FakeTable(),
        options=WEIGHING,
    )  # fmt: skip
    judged = evaluate(small, candidates=4, truth=FakeTable())
    assert judged.val_size == whole
    random = [rival for rival in judged.rivals if rival.name.startswith("random-val")]
    assert [rival.val_size for rival in random] == [most, most]
    assert f"; {most} random validation examples reached" in validation_choice(judged)


# --- without a table ---------------------------------------


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    return tmp_path_factory.mktemp("truth")


def probes_copy(task, **arguments):
    return condense(
        task, SPACE, "hcdc", train_size=20, val_size=10, val_method="probes", options=PROBING,
        full_recipe={"steps": 2}, **arguments,
    )  # fmt: skip


def test_without_a_table_probes_and_judges_are_trained(digits, cache, monkeypatch):
    monkeypatch.setenv("HCDC_CACHE", str(cache))
    small = probes_copy(digits)
    assert small.record["full_trainings"] == 6
    judged = evaluate(small, candidates=5)
    rivals = [rival.name for rival in judged.rivals]
    assert rivals == [*SHARED, "one-seed-full", "equal-cost", "parameter-count", *RIDGES]
    assert judged.truth_source is None
    assert judged.full_seconds > 0
    # 2 x 2 x 10 visits of 2 x 10: early stopping would be the whole training
    assert judged.rival("one-seed-full").description == "full data, one seed, all 2 steps"
    # trained now: their seconds are in those of condensing, and are not counted again
    assert small.record["probe_seconds"] == 0.0
    spent = small.record["condense_seconds"]
    assert evaluate(small, candidates=5, truth=FakeTable(), rivals=False).condense_seconds == spent
    again = probes_copy(digits)
    assert again.to_bytes() == small.to_bytes()
    lines = [line for file in cache.glob("*.jsonl") for line in file.read_text().splitlines()]
    assert len(lines) == 11  # six probes and five judges, each once
    assert again.record["probe_seconds"] > 0  # known, and paid before


def test_a_visit_is_an_example_in_a_step():
    assert visits(Recipe(steps=10, seeds=3), 35) == 1050
    assert visits(Recipe(steps=10, seeds=1, optimizer="sgd", batch=64), 500) == 640
    assert visits(Recipe(steps=10, seeds=1, optimizer="sgd", batch=64), 20) == 200


def test_the_shorter_training_has_as_many_visits_as_the_copy(digits, monkeypatch):
    """78 steps of 64 images, 6 times, are 117 steps of 256."""
    full = Recipe(steps=500, optimizer="sgd", batch=256)
    copy = Recipe(steps=78, optimizer="sgd", batch=64, seeds=6)
    small = condense(digits, SPACE, "random", train_size=100)
    meta = {**small.meta, "full_recipe": full.as_dict(), "calibrated_recipe": copy.as_dict()}
    recipes = []

    class Results(evaluating.Context):
        def train_on_copy(self, parts):
            return [
                Result({f"{p}.{w}": 0.1 * k for p in parts for w in ("loss", "score")}, 1.0)
                for k in range(len(self.configs))
            ]

        def train_on_full(self, name, recipe, seed=0):
            recipes.append(recipe)
            return Trained(
                [0.1 * k for k in range(len(self.configs))], 1.0, {"loss": [[]] * len(self.configs)}
            )

    monkeypatch.setattr(evaluating, "Context", Results)
    known = [Result({"val.score": 0.1 * k, "test.score": 0.1 * k}, 1.0) for k in range(4)]
    monkeypatch.setattr(TrainedTruth, "results", lambda *_: known)
    evaluate(CondensedDataset(small.train, small.val, meta), candidates=4)
    assert [recipe.steps for recipe in recipes] == [117]
    assert recipes[0] == dataclasses.replace(full, steps=117)


def test_a_folder_that_cannot_be_written_is_no_obstacle(digits, tmp_path):
    """Where nothing has to be written: the results are in a table."""
    (tmp_path / "file").write_text("")
    small = condense(digits, SPACE, "random", train_size=10)
    judged = evaluate(small, candidates=3, truth=FakeTable(), rivals=False, cache=tmp_path / "file" / "cache")
    assert judged.proxy == evaluate(small, candidates=3, truth=FakeTable(), rivals=False).proxy


def test_the_real_validation_set_has_rivals_at_any_size(digits):
    """The rival has as many images as T_val, as far as these are equally many per class."""
    small = condense(digits, SPACE, "random", train_size=10, val_method="real")
    judged = evaluate(small, candidates=3, truth=FakeTable())
    names = [rival.name for rival in judged.rivals]
    assert names == [*SHARED, "12-epochs", "parameter-count"]
    assert f"{digits.most('val')} random validation examples" in judged.rivals[0].description
    real = next(rival for rival in judged.rivals if rival.name == "real-val-loss")
    assert judged.proxy == real.proxy


def without_a_class(digits):
    """Digits whose validation images have no 9."""
    kept = digits.data.val.y != 9
    val = Images(digits.data.val.x[kept], digits.data.val.y[kept])
    return ImageTask(dataclasses.replace(digits.data, name="few", source="memory", val=val, origin={}))


def test_validation_images_without_a_class_have_no_random_rival(digits):
    task = without_a_class(digits)
    small = condense(task, SPACE, "random", train_size=10, val_method="real")
    judged = evaluate(small, candidates=3, task=task, truth=FakeTable())
    names = [rival.name for rival in judged.rivals]
    assert names == ["real-val", "real-val-loss", "12-epochs", "parameter-count"]


def test_what_cannot_be_drawn_is_found_out_before_the_work(digits, monkeypatch):
    small = condense(digits, SPACE, "random", train_size=10)

    def nothing(*_):
        raise InputError("no such set")

    monkeypatch.setattr(ImageTask, "sample", nothing)
    monkeypatch.setattr(TrainedTruth, "results", lambda *_: pytest.fail("nothing may be trained"))
    with pytest.raises(InputError, match="no such set"):
        evaluate(small, candidates=3)


def test_scoring_the_rivals_sets_is_no_part_of_a_trial(digits, monkeypatch):
    """The seconds of a trial with rivals are those without; each rival has those of its own set."""
    now = [0.0]

    def timed(network, params, task, part, reference=None):
        now[0] += len(part)
        return torch.tensor([[float(params["stem.weight"].sum()), 0.5]])

    monkeypatch.setattr(torch, "get_num_threads", lambda: 1)
    monkeypatch.setattr("time.perf_counter", lambda: now[0])
    monkeypatch.setattr(_streams, "score_images", timed)
    small = condense(digits, SPACE, "random", train_size=10)
    alone, judged = (evaluate(small, candidates=3, truth=FakeTable(), rivals=some) for some in (False, True))
    assert judged.proxy_seconds == alone.proxy_seconds == 3 * 2 * len(small.val)
    rivals = {rival.name: rival for rival in judged.rivals}
    assert rivals["real-val"].seconds_per_candidate == 2 * len(digits.val)


@pytest.fixture
def slow_scores(monkeypatch):
    """A clock that stands but for scoring, a second an image."""
    now = [0.0]

    def timed(network, params, task, part, reference=None):
        now[0] += len(part)
        return torch.tensor([[1.0, 1 / now[0]]])

    monkeypatch.setattr(torch, "get_num_threads", lambda: 1)
    monkeypatch.setattr("time.perf_counter", lambda: now[0])
    monkeypatch.setattr(_streams, "score_images", timed)


@pytest.mark.usefixtures("slow_scores")
def test_scoring_the_test_images_is_no_part_of_a_trial_on_the_full_data(digits, tmp_path):
    small = condense(digits, SPACE, "random", train_size=10)
    for _ in range(2):  # trained, and from the cache
        judged = evaluate(small, candidates=3, rivals=False, cache=tmp_path)
        assert judged.full_seconds == 3 * len(digits.val)
        assert judged.full_seconds_per_candidate == len(digits.val)
    (file,) = tmp_path.glob("*.jsonl")
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    assert [line["seconds"] for line in lines] == 3 * [len(digits.val) + len(digits.test)]
    for line in lines:
        del line["part_seconds"]  # as an older version wrote it
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    judged = evaluate(small, candidates=3, rivals=False, cache=tmp_path)
    assert judged.full_seconds == 3 * (len(digits.val) + len(digits.test))


@pytest.mark.usefixtures("slow_scores")
def test_scoring_the_test_images_is_no_part_of_what_cached_probes_cost(digits):
    probes_copy(digits)
    assert probes_copy(digits).record["probe_seconds"] == PROBING["probes"] * len(digits.val)


def test_one_network_for_all_candidates_has_no_ranking(digits):
    task = ImageTask(digits.data, "convnet")
    small = condense(task, SPACE, "random", train_size=10)
    with pytest.raises(InputError, match="model 'convnet' is one network for all candidates of a space, so"):
        evaluate(small, candidates=3, task=task, truth=FakeTable())
    for judge in (plan, search):
        with pytest.raises(InputError, match=r"one network for all candidates .* choose space 'training', "):
            judge(task, SPACE, budget="1s")


def test_one_network_that_trains_differently_is_ranked_and_searched(digits):
    task, space = ImageTask(digits.data, "convnet"), Training(["lr"])
    quick = {"steps": 2, "seeds": 1}
    small = condense(task, space, "random", train_size=10, recipe=quick, full_recipe=quick)
    assert evaluate(small, candidates=3, task=task, rivals=False).candidates == 3
    assert [dimension.name for dimension in prepare(task, space).space.dimensions()] == ["lr"]


# --- a user's own module ---------------------------------------


def module(config):
    return nn.Sequential(
        nn.Flatten(), nn.Linear(64, config["width"]), nn.ReLU(), nn.Linear(config["width"], 10)
    )


def test_a_users_own_modules_are_condensed_for_and_judged(digits):
    task, space = ImageTask(digits.data, module), Finite("width", list(range(1, 13)))
    given = {"train_size": 20, "val_method": "probes", "options": PROBING, "full_recipe": {"steps": 2}}
    small = condense(task, space, "hcdc", **given)
    assert len(small.meta["candidates"]) == 6  # the probes are the whole half: no companion is left
    assert "companion_correlation" not in small.record["history"][-1]
    assert small.meta["task"]["model"] == f"{__name__}:module"
    judged = evaluate(small, candidates=6, task=task)
    assert judged.candidates == 6
    names = [rival.name for rival in judged.rivals]
    assert "ridge-probes" in names
    (counted,) = [rival for rival in judged.rivals if rival.name == "parameter-count"]
    assert counted.proxy == [75 * config["width"] + 10 for config in judged.configs]
    with pytest.raises(InputError, match=r"made with the model '.*:module', and a file holds no code; pass"):
        evaluate(dataclasses.replace(small, task=None))
    assert evaluate(small, candidates=6, rivals=False).proxy == judged.proxy  # it knows its task
    with pytest.raises(InputError, match="the copy was made for"):
        evaluate(small, task=digits)
    assert isinstance(reopen_task(condense(digits, SPACE, "random", train_size=10)), ImageTask)


# --- the benchmark's table ---------------------------------------


class Table:
    """What `TableTruth` asks of a table."""

    def lookup(self, cell, column):
        return {"c10_valid_200": 91.5, "c100_test_12": 30.0, "c10_train_seconds_200": 1234.0}[column]


def test_a_table_is_asked_by_data_set_part_and_epochs():
    config = SPACE.candidates()[0]
    truth = TableTruth(Table(), "cifar10")
    assert truth.score(config, "val") == pytest.approx(0.915)
    assert TableTruth(Table(), "cifar100").score(config, "test", 12) == pytest.approx(0.3)
    assert truth.seconds(config) == 1234.0
    assert "cifar10" in truth.words()
    assert truth.spec() == {"name": "nasbench201", "dataset": "cifar10", "epochs": 200}
    with pytest.raises(InputError, match="'imagenet' is not known"):
        TableTruth(Table(), "imagenet")
    for ask in (lambda: truth.score({"width": 3}, "val"), lambda: truth.seconds({"width": 3})):
        with pytest.raises(InputError, match=r"\{'width': 3\} is not a NAS-Bench-201 cell"):
            ask()


def test_what_is_free_to_know_of_a_cell():
    config = {
        "cell": "|nor_conv_3x3~0|+|nor_conv_3x3~0|avg_pool_3x3~1|+|skip_connect~0|nor_conv_3x3~1|none~2|"
    }
    found = SPACE.features(config)
    assert found[:5] == [1.0, 1.0, 0.0, 3.0, 1.0]  # none, skip, 1x1, 3x3, pool
    assert found[5] == pytest.approx(np.log(SPACE.parameter_count(config, 3, 10)))
    assert len(found) == 6


def test_a_table_about_other_images_is_refused(digits):
    small = condense(digits, SPACE, "random", train_size=10)
    with pytest.raises(InputError, match="cifar10 has 10 classes of 3 x 32 x 32"):
        evaluate(small, candidates=5, truth=TableTruth(None, "cifar10"))
    with pytest.raises(InputError, match="truth is str; give a table"):
        evaluate(small, candidates=5, truth="table.csv")
