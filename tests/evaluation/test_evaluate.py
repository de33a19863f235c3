"""Judging a copy: the document, what is dropped, what is cached, what pays, and what must not matter."""

import dataclasses
import functools
import json
import math

import numpy as np
import pytest
import torch
from judged_copies import FULL, SPACE, copy_of, graph_data
from scipy import stats

import hcdc.evaluation._context as contexts
import hcdc.evaluation._evaluate as judging
from hcdc.condensers import condense
from hcdc.core import records
from hcdc.core.configs import config_hash
from hcdc.core.errors import InputError, NumericalError
from hcdc.core.progress import Progress
from hcdc.core.recipe import Recipe
from hcdc.core.results import Cost, Evaluation, Rival
from hcdc.core.seeds import numpy_stream
from hcdc.datasets import Rows, TableData
from hcdc.evaluation import (
    RivalMethod,
    agreement,
    cost,
    evaluate,
    judges,
    proxy_scores,
    register_rival,
    score,
)
from hcdc.reporting import findings
from hcdc.spaces import Finite, GNNZoo, PolynomialFilter, halves
from hcdc.tasks import GraphTask, TableTask
from hcdc.training import Result, _lanes
from hcdc.truth import TrainedTruth, _trained
from recipes import change_recipes

TASK = GraphTask(graph_data())


FIELDS = {
    "dataset", "method", "train_method", "val_method", "train_size", "val_size", "seed", "judge_seed",
    "space", "metric", "candidates", "dropped", "spearman", "kendall", "interval", "level", "top_k_overlap",
    "calibration",
    "upper_half_spearman", "regret", "selected_test_accuracy", "best_test_accuracy", "condense_seconds",
    "proxy_seconds", "full_seconds", "proxy_seconds_per_candidate", "full_seconds_per_candidate",
    "break_even_trials", "configs", "truth", "test", "proxy", "rivals", "environment", "note", "diverged",
    "diverged_on_full",
}  # fmt: skip
RIVAL_FIELDS = {
    "name", "description", "spearman", "kendall", "interval", "top_k_overlap", "upper_half_spearman",
    "regret", "selected_test_accuracy", "seconds_per_candidate", "extra_seconds", "proxy", "note",
}  # fmt: skip


def judge(small=None, candidates=6, task=TASK, **arguments):
    return evaluate(small or copy_of(), candidates=candidates, task=task, **arguments)


@functools.cache
def judged():
    """One evaluation that several tests read."""
    probes = {"lam": [SPACE.encode(c).tolist() for c in SPACE.sample(9, numpy_stream(0, "probes"))]}
    probes["score"] = [sum(lam) for lam in probes["lam"]]
    return judge(copy_of(record={"condense_seconds": 2.0}, probes=probes))


# --- the document -------------------------------------------------------------------------------------------


def test_the_document_has_every_field():
    found = judged()
    document = found.to_json()
    assert set(document) >= FIELDS
    assert Evaluation.from_json(json.loads(json.dumps(document, allow_nan=False))) == found
    for key in ("configs", "truth", "test", "proxy"):
        assert len(vars(found)[key]) == found.candidates == 6
    assert (found.dataset, found.train_size, found.val_size) == ("blocks", 6, 9)
    assert (found.seed, found.judge_seed, found.level) == (0, 0, 0.9)
    assert found.space == SPACE.spec()
    assert found.environment["device"] == records.device_name("cpu")
    assert found.interval[0] <= found.spearman <= found.interval[1]
    assert found.condense_seconds == 2.0


def test_figures_are_those_of_the_scores():
    found = judged()
    truth, test, proxy = (np.asarray(vars(found)[key]) for key in ("truth", "test", "proxy"))
    assert found.spearman == pytest.approx(stats.spearmanr(truth, proxy).statistic)
    assert found.kendall == pytest.approx(stats.kendalltau(truth, proxy).statistic)
    pairs = [(i, j) for i in range(6) for j in range(i) if truth[i] != truth[j]]
    alike = [(truth[i] - truth[j]) * (proxy[i] - proxy[j]) > 0 for i, j in pairs]
    assert found.calibration == pytest.approx(np.mean(alike))
    assert found.regret == pytest.approx(truth.max() - truth[proxy.argmax()])
    assert found.selected_test_accuracy == test[proxy.argmax()]
    assert found.best_test_accuracy == test[truth.argmax()]
    assert found.proxy_seconds == pytest.approx(6 * found.proxy_seconds_per_candidate)
    assert found.full_seconds == pytest.approx(6 * found.full_seconds_per_candidate)


def test_every_rival_is_there():
    found = judged()
    rivals = {rival.name: rival for rival in found.rivals}
    expected = ["random-val-loss", "random-reach-val-loss", "real-val", "real-val-loss", "early-stopping"]
    expected += ["one-seed-full", "equal-cost", "parameter-count", "ridge-probes", "ridge-and-real-val"]
    expected += ["ridge-and-real-accuracy"]  # this copy ranks by accuracy
    assert list(rivals) == expected
    for rival in rivals.values():
        assert set(rival.to_json()) >= RIVAL_FIELDS
        assert len(rival.proxy) == 6
        assert rival.description
        assert rival.seconds_per_candidate >= 0
    assert "2 of 6 steps" in rivals["early-stopping"].description  # 6 of 18 training nodes
    assert rivals["parameter-count"].spearman is None  # every filter has as many
    assert "no ranking" in rivals["parameter-count"].note
    assert judge(rivals=False).rivals == []


def test_a_random_set_is_no_rival_of_a_random_set():
    """By the same metric; the copy is ranked by accuracy where nothing else is said."""
    for change, there in (
        ({}, ["random-val-loss"]),
        ({"metric": "loss"}, ["random-val"]),
        ({"val_method": "same"}, ["random-val", "random-val-loss"]),  # other draws
        ({"val_method": "aligned"}, ["random-val", "random-val-loss"]),
    ):
        names = [rival.name for rival in judge(copy_of(**change)).rivals]
        assert [name for name in names if name.startswith("random-val")] == there


def test_the_real_set_ranks_by_loss_too(monkeypatch):
    seen, on_copy = [], contexts.Context.train_on_copy
    monkeypatch.setattr(contexts.Context, "train_on_copy", lambda *a: seen.append(on_copy(*a)) or seen[-1])
    rivals = {rival.name: rival for rival in judge().rivals}
    (results,) = seen
    assert rivals["real-val-loss"].proxy == [-r.values["real.loss"] for r in results]
    assert rivals["real-val-loss"].description == "same S_train, the whole real validation set, by loss"
    for key in ("seconds_per_candidate", "extra_seconds"):
        assert vars(rivals["real-val-loss"])[key] == vars(rivals["real-val"])[key]


def test_a_training_that_is_the_whole_one_is_called_so_and_done_once(lanes):
    small = copy_of(full=Recipe(steps=4, lr=0.05))
    small.meta["calibrated_recipe"]["steps"] = 400  # more visits than the full training has
    found = judge(small)
    assert found.rival("early-stopping") is None
    whole = found.rival("one-seed-full")
    assert whole.description == "full data, one seed, all 4 steps"
    assert len(lanes) == 3 * 2  # four at once: the truth, the copy, one rival


@pytest.mark.parametrize(
    ("fits", "said", "trained"),
    [
        (0.5, "3 of 6 steps of one seed", [(3, 1)]),
        (1.0, "1 whole seed", [(6, 1)]),
        (4.5, "4 whole seeds and 3 of 6 steps of another", [(6, 4), (3, 1)]),
        (99.0, "30 whole seeds, which take less", [(6, 30)]),
    ],
)
def test_equal_cost_is_the_seconds_of_condensing_and_searching(fits, said, trained, monkeypatch):
    """A seed of six candidates on the full data takes 10 s, searching on the copy 3 s."""
    recipes = []

    def train_on_full(self, name, recipe, seed=0):
        recipes.append((recipe.steps, recipe.seeds))
        value = float(recipe.steps)
        scores = [value * k for k in range(6)]
        return contexts.Trained(
            scores, recipe.seeds * 10.0 * recipe.steps / 6, {"loss": [[value] * recipe.seeds] * 6}
        )

    monkeypatch.setattr(contexts.Context, "train_on_full", train_on_full)
    monkeypatch.setattr(contexts.Context, "full_seconds", 20.0)
    monkeypatch.setattr(contexts.Context, "proxy_seconds", 3.0)
    found = judge(copy_of(), rivals=["equal-cost"], condense_seconds=10 * fits - 3)
    (rival,) = found.rivals
    assert recipes == trained
    assert rival.description == f"full data, the seconds of condensing and searching: {said}"
    assert rival.seconds_per_candidate * 6 == pytest.approx(min(fits, 30) * 10)
    share = [seeds * steps / 6 for steps, seeds in trained]
    mean = sum(steps * w for (steps, _), w in zip(trained, share)) / sum(share)
    assert rival.proxy == pytest.approx([mean * k for k in range(6)])


def test_a_rival_from_outside_is_one_class(monkeypatch):
    monkeypatch.setattr("hcdc.evaluation.rivals._base._RIVALS", {})

    @register_rival
    class Sum(RivalMethod):
        name = "sum"

        def run(self, context):
            scores = [sum(config.values()) for config in context.configs]
            return context.rival(self.name, "the sum of lambda", scores, 0.0)

    (rival,) = judge().rivals
    assert rival.name == "sum"
    assert rival.spearman is not None
    with pytest.raises(ValueError, match="'sum' is registered already"):
        register_rival(Sum)
    with pytest.raises(InputError, match="'som' is not known"):
        judge(rivals=["som"])


def test_rivals_share_s_train_and_differ_in_what_validates(monkeypatch):
    seen = {}
    run_candidates = contexts.run_candidates

    def watched(task, space, configs, train, parts, *rest):
        seen.update({name: (train, part) for name, part in parts.items()})
        return run_candidates(task, space, configs, train, parts, *rest)

    monkeypatch.setattr(contexts, "run_candidates", watched)
    small = copy_of()
    judge(small)
    for name in ("copy", "random", "reach", "real"):
        assert torch.equal(seen[name][0].graph.x, small.train.graph.x)
    assert torch.equal(seen["copy"][1].graph.x, small.val.graph.x)
    assert len(seen["random"][1]) == len(seen["reach"][1]) == len(small.val)
    assert len(seen["real"][1]) == 24


@pytest.mark.parametrize("metric", ["accuracy", "loss"])
def test_the_metric_is_the_one_in_the_file(metric):
    found = judge(copy_of(metric=metric), rivals=False)
    assert found.metric == metric
    assert all(0 <= v <= 1 if metric == "accuracy" else v < 0 for v in found.proxy)


def test_the_real_validation_set():
    found = judge(copy_of(val=False))
    assert found.val_size is None
    real = next(rival for rival in found.rivals if rival.name == "real-val")
    assert found.proxy == real.proxy


def test_constant_scores_have_no_ranking():
    found = agreement([0.1, 0.3, 0.2], [0.5, 0.6, 0.7], [1.0, 1.0, 1.0])
    for key in ("spearman", "kendall", "top_k_overlap", "upper_half_spearman", "regret"):
        assert math.isnan(found[key])
    assert math.isnan(found["selected_test_accuracy"])
    assert all(math.isnan(v) for v in found["interval"])
    assert "no ranking" in found["note"]
    assert agreement([0.1, 0.3, 0.2], [0.5, 0.6, 0.7], [1.0, 3.0, 2.0])["note"] == ""


def test_what_is_not_defined_says_whose_scores_are_to_blame():
    test = [0.5, 0.6, 0.7]
    for truth, proxy, said in (
        ([0.2] * 3, [1.0, 2.0, 3.0], "all candidates have the same full-data score"),
        ([0.2] * 3, [1.0] * 3, "all candidates have the same full-data score"),
        ([0.1, 0.2, math.nan], [1.0, 2.0, 3.0], "some full-data scores are not finite"),
        ([0.1, 0.3, 0.2], [1.0] * 3, "all scores are equal"),
        ([0.1, 0.3, 0.2], [1.0, math.inf, 2.0], "some scores are not finite"),
    ):
        assert agreement(truth, test, proxy)["note"].startswith(said)


def test_candidates_that_do_not_differ_on_the_full_data_are_refused(monkeypatch):
    same = [Result({"val.score": 0.5, "test.score": 0.5}, 1.0)] * 6
    monkeypatch.setattr(TrainedTruth, "results", lambda *_: same)
    said = "all 6 candidates score 0.5 on the full data.*check that training reads 'lambda_0', 'lambda_1'"
    with pytest.raises(InputError, match=said):
        judge()


# --- candidates that diverge --------------------------------------------------------------------------------


def with_losses(*losses):
    return [Result({"copy.loss": v, "copy.score": 0.1 * k}, 1.0) for k, v in enumerate(losses)]


@pytest.mark.parametrize("metric", ["accuracy", "loss"])
def test_who_diverged_is_ranked_last(metric):
    plain = proxy_scores(with_losses(0.5, 2.0, 1.0), metric, "copy")
    scores = proxy_scores(with_losses(0.5, 2.0, 1.0, math.nan, math.nan), metric, "copy")
    assert scores[:3] == plain
    assert scores[3] == scores[4] < min(plain)
    assert scores[3] == pytest.approx(min(plain), abs=1e-12)


def test_where_all_diverge_there_is_a_diagnosis():
    with pytest.raises(NumericalError, match="every candidate diverged"):
        proxy_scores(with_losses(math.nan, math.nan), "loss", "copy")


def test_one_diverging_candidate_does_not_end_the_evaluation(monkeypatch, tmp_path, caplog):
    run_candidates = contexts.run_candidates

    def diverging(task, space, configs, train, parts, *rest):
        *others, keep, kept = rest
        assert kept

        def spoil(batch):
            bad = {f"{part}.{what}": math.nan for part in parts for what in ("loss", "score")}
            keep([(c, dataclasses.replace(r, values=bad) if c == first else r) for c, r in batch])

        return run_candidates(task, space, configs, train, parts, *others, spoil, kept)

    first = SPACE.sample(6, numpy_stream(0, "judge"))[0]
    monkeypatch.setattr(contexts, "run_candidates", diverging)
    with pytest.raises(KeyboardInterrupt):  # what is kept meanwhile has candidates without a loss
        judge(cache=tmp_path, progress=Stopping(3))
    with caplog.at_level("WARNING", "hcdc"):
        found = judge(cache=tmp_path)
    assert found.diverged == 1
    assert found.proxy[0] < min(found.proxy[1:])
    assert found.spearman is not None
    assert "candidates on the copy: 1 of 6 diverged and are ranked last" in caplog.text
    json.dumps(found.to_json(), allow_nan=False)


def spoil(monkeypatch, lost):
    """Some candidates diverge on the full data."""
    score = _trained.score

    def diverging(job):
        assert job.keep_diverged
        bad = {f"{part}.{what}": math.nan for part in job.parts for what in ("loss", "score")}
        some = [config_hash(config) for config in lost]

        def spoiled(batch):
            spoil = [config_hash(config) in some for config, _ in batch]
            found = [(c, dataclasses.replace(r, values=bad) if s else r) for (c, r), s in zip(batch, spoil)]
            job.on_batch(found)

        return score(dataclasses.replace(job, on_batch=spoiled))

    monkeypatch.setattr(_trained, "score", diverging)


def test_who_diverges_on_the_full_data_is_last_of_the_truth(monkeypatch, tmp_path, caplog):
    drawn, plain = SPACE.sample(6, numpy_stream(0, "judge")), judged()
    with monkeypatch.context() as patch, caplog.at_level("WARNING", "hcdc"):
        spoil(patch, [drawn[1], drawn[4]])
        found = judge(cache=tmp_path)
    assert found.diverged_on_full == [drawn[1], drawn[4]]
    assert found.diverged == 0
    for key in ("truth", "test"):
        assert vars(found)[key] == [0.0 if k in (1, 4) else v for k, v in enumerate(vars(plain)[key])]
        assert min(vars(plain)[key]) > 0
    assert found.proxy == plain.proxy
    assert found.spearman == pytest.approx(stats.spearmanr(found.truth, plain.proxy).statistic)
    assert f"full data: 2 of 6 candidates diverged and are ranked last: {drawn[1]}, {drawn[4]}" in caplog.text
    monkeypatch.setattr(_trained, "score", lambda _: pytest.fail("nothing may be trained again"))
    again = judge(cache=tmp_path, rivals=False)
    for key in ("truth", "test", "diverged_on_full", "spearman"):
        assert vars(again)[key] == vars(found)[key]
    (text,) = [text for _, texts in findings([again]) for text in texts if "diverged" in text]
    assert text == (
        f"2 candidates diverged on the full data and are ranked last there: {drawn[1]}, {drawn[4]}"
    )


def test_where_all_diverge_on_the_full_data_there_is_a_diagnosis(monkeypatch, tmp_path):
    spoil(monkeypatch, SPACE.sample(6, numpy_stream(0, "judge")))
    with pytest.raises(NumericalError, match=r"all 6 candidates have a non-finite loss .* on the full data"):
        judge(cache=tmp_path)


def test_a_rival_of_which_all_diverge_has_no_ranking_and_ends_nothing(monkeypatch):
    trained = contexts.Context._trained

    def diverging(self, name, *rest):
        results = trained(self, name, *rest)
        if name != "rival early-stopping":
            return results
        return [Result({"val.loss": math.nan, "val.score": math.nan}, 1.0)] * len(results)

    monkeypatch.setattr(contexts.Context, "_trained", diverging)
    found = judge(copy_of(record={"condense_seconds": 2.0}))
    rivals = {rival.name: rival for rival in found.rivals}
    lost = rivals.pop("early-stopping")
    assert lost.proxy == [None] * 6
    assert lost.spearman is None
    assert lost.note == "some scores are not finite, so there is no ranking"
    assert found.spearman == judged().spearman
    assert rivals["equal-cost"].spearman is not None


def test_constant_scores_are_null_in_the_document(monkeypatch):
    def constant(results, metric, part):
        return [0.5] * len(results)

    monkeypatch.setattr(judging, "proxy_scores", constant)
    found = judge(rivals=False)
    assert found.spearman is found.kendall is found.regret is found.selected_test_accuracy is None
    assert found.interval == [None, None]
    assert found.note
    assert found.best_test_accuracy is not None


# --- who judges ---------------------------------------------------------------------------------------------


def test_candidates_that_made_the_copy_are_dropped_and_counted():
    drawn = SPACE.sample(6, numpy_stream(3, "judge"))
    used = [config_hash(config) for config in (drawn[1], drawn[4])]
    found = judge(copy_of(candidates=used), seed=3, rivals=False)
    assert (found.candidates, found.dropped) == (4, 2)
    assert found.configs == [drawn[i] for i in (0, 2, 3, 5)]


def test_configurations_may_be_given_unless_the_copy_was_made_with_them():
    drawn = SPACE.sample(4, numpy_stream(9, "judge"))
    found = judge(candidates=drawn, rivals=False)
    assert (found.configs, found.candidates, found.dropped) == (drawn, 4, 0)
    small = copy_of(candidates=[config_hash(drawn[2])])
    with pytest.raises(InputError, match=r"candidates: 1 of 4 were used to make the copy.*leave out \{"):
        judge(small, candidates=drawn)
    for few in (drawn[:1], [drawn[0], drawn[0]], []):
        with pytest.raises(InputError, match="give at least 2, without duplicates"):
            judge(candidates=few)
    with pytest.raises(InputError, match="cell"):
        judge(candidates=[drawn[0], {"cell": "none"}])


def test_the_seed_decides_the_initialisations_on_the_copy():
    drawn = SPACE.sample(3, numpy_stream(9, "judge"))
    one, two, again = (judge(candidates=drawn, rivals=False, seed=seed) for seed in (1, 2, 1))
    assert one.truth == two.truth
    assert one.repeats == again.repeats != two.repeats
    assert {np.shape(values) for values in one.repeats.values()} == {(3, len(one.repeats["loss"][0]))}


def test_copies_with_the_same_s_train_are_judged_beside_it():
    """As each of them by itself, by one training of every candidate."""
    small = copy_of()
    val = TASK.replace(small.val, {"x": small.val.graph.x.flip(0)})
    other = dataclasses.replace(small, val=val, record={"condense_seconds": 5.0, "probe_seconds": 2.0})
    found = judge(small, beside={"flipped": other}, rivals=False)
    (rival,) = found.rivals
    alone = judge(other, rivals=False)
    assert (rival.name, rival.extra_seconds) == ("flipped", 7.0)
    assert rival.proxy == alone.proxy != found.proxy
    assert rival.repeats == alone.repeats
    train = TASK.replace(small.train, {"x": 2 * small.train.graph.x})
    with pytest.raises(InputError, match="beside 'doubled': its S_train or recipe differs"):
        judge(small, beside={"doubled": dataclasses.replace(small, train=train)})


def test_where_hardly_any_is_left_nothing_is_judged():
    used = [config_hash(config) for config in SPACE.sample(6, numpy_stream(0, "judge"))[:5]]
    with pytest.raises(InputError, match="candidates 6: 5 of 6 were used to make this copy"):
        judge(copy_of(candidates=used))


def test_fewer_judges_than_asked_for_are_said(caplog, monkeypatch):
    def begun(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(judging, "chosen_rivals", begun)
    small, count = copy_of(space=GNNZoo()), len(halves(GNNZoo(), 0)[1])
    told = f"{count + 5} candidates were asked for, but only {count} judge the copy: space 'gnn-zoo' has "
    for asked, warned in ((3, False), (count + 5, True)):
        with caplog.at_level("WARNING", "hcdc"), pytest.raises(KeyboardInterrupt):
            judge(small, candidates=asked)
        assert (told in caplog.text) == bool(caplog.text) == warned


def test_a_space_that_is_too_small_to_judge_says_so():
    space = Finite([{"k": i} for i in range(3)])
    said = (
        "candidates 80: space 'finite' has 3, of which condensing leaves 1 unused; a ranking needs at least 2"
    )
    with pytest.raises(InputError, match=said):
        judge(copy_of(space=space), candidates=80)


def test_condensing_and_judging_never_draw_the_same(monkeypatch):
    """With equal seeds: the roles of the random streams keep them apart."""
    change_recipes(monkeypatch, functools.partial(Recipe, steps=2))
    options = {"trajectories": 4, "points": 1, "holdout": 3, "steps": 1, "iterations": 1}
    small = condense(TASK, SPACE, train_size=6, val_size=6, seed=3, val_method="both", options=options)
    configs, dropped = judges(small, SPACE, 80, 3)
    assert (len(configs), dropped) == (80, 0)
    assert not set(small.meta["candidates"]) & {config_hash(config) for config in configs}


def test_a_finite_space_is_judged_on_the_other_half():
    space = Finite([{"k": i} for i in range(9)])
    mine, other = halves(space, 5)
    small = copy_of(space=space, seed=5, candidates=[config_hash(config) for config in mine])
    everyone, dropped = judges(small, space, 80, 0)
    assert (sorted(c["k"] for c in everyone), dropped) == ([c["k"] for c in other], 0)
    assert judges(small, space, 2, 0) == (everyone[:2], 0)


def test_the_seed_draws_the_judges_of_a_finite_space():
    """Not the first ones of its order: that may be from small to large."""
    space = Finite([{"k": i} for i in range(60)])
    drawn = [[c["k"] for c in judges(copy_of(space=space, seed=5), space, 8, seed)[0]] for seed in range(6)]
    assert len({tuple(some) for some in drawn}) == 6
    assert all(len(set(some)) == 8 for some in drawn)
    assert np.mean(drawn) > 20  # the first eight of a half have about 8
    assert judges(copy_of(space=space, seed=5), space, 8, 3)[0] == [{"k": k} for k in drawn[3]]


def test_graph_networks_are_judged_one_by_one():
    pytest.importorskip("torch_geometric")
    full = Recipe(steps=1, seeds=1)
    found = judge(copy_of(space=GNNZoo(), full=full), candidates=4)
    assert found.candidates == 4
    assert all(config in halves(GNNZoo(), 0)[1] for config in found.configs)
    counts = next(rival for rival in found.rivals if rival.name == "parameter-count").proxy
    assert len(set(counts)) > 1


# --- the cache ----------------------------------------------------------------------------------------------


@pytest.fixture
def trained(monkeypatch):
    """How many candidates were trained for the truth."""
    calls = []
    score = _trained.score

    def counted(job):
        calls.append(len(job.configs))
        return score(job)

    monkeypatch.setattr(_trained, "score", counted)
    return calls


def test_full_data_results_are_used_again(trained, tmp_path):
    def again(small=None, **arguments):
        return judge(small, cache=tmp_path, rivals=False, **arguments)

    first = again()
    assert trained == [6]
    second = again()
    assert trained == [6]  # nothing more
    assert second.truth == first.truth
    assert second.full_seconds == pytest.approx(first.full_seconds)
    again(candidates=8)
    assert trained == [6, 2]
    again(copy_of(full=Recipe(steps=5, seeds=2)))
    assert trained == [6, 2, 6]  # another recipe, another truth
    decayed = GraphTask(graph_data(), weight_decay=0.1)
    again(copy_of(decayed), task=decayed)
    assert trained == [6, 2, 6, 6]


def test_scoring_the_test_nodes_is_no_part_of_a_trial_on_the_full_data(monkeypatch, tmp_path):
    """By a clock that stands but for scoring, a second a node."""
    now, score_many = [0.0], _lanes.score_many

    def timed(bound, params, lam, part):
        now[0] += len(part)
        return score_many(bound, params, lam, part)

    monkeypatch.setattr("time.perf_counter", lambda: now[0])
    monkeypatch.setattr(_lanes, "score_many", timed)
    for _ in range(2):
        found = judge(cache=tmp_path, rivals=False)
        assert found.full_seconds == pytest.approx(len(TASK.val))  # six candidates in one batch


def test_an_interrupted_truth_goes_on_where_it_stopped(trained, tmp_path, monkeypatch):
    monkeypatch.setattr(GraphTask, "lanes", lambda *_: 4)  # two candidates of two seeds a batch
    append, appended = _trained.records.append, []

    def stopping(file, record):
        append(file, record)
        appended.append(record["hash"])
        if len(appended) == 4:
            raise KeyboardInterrupt

    monkeypatch.setattr(_trained.records, "append", stopping)
    with pytest.raises(KeyboardInterrupt):
        judge(cache=tmp_path, rivals=False)
    monkeypatch.setattr(_trained.records, "append", append)
    found = judge(cache=tmp_path, rivals=False)
    assert trained == [6, 2]
    assert found.truth == judge(rivals=False).truth


class Stopping(Progress):
    """Notes its steps and raises `KeyboardInterrupt` at number ``stop``."""

    def __init__(self, stop=None):
        super().__init__(every=0.0)
        self.stop, self.steps = stop, []

    def report(self, text, last=False):
        self.steps.append(text.split("] ")[1].split(",")[0])
        if len(self.steps) == self.stop:
            raise KeyboardInterrupt


@pytest.fixture
def lanes(monkeypatch):
    """Lanes of every training call; at most four train at once, so two candidates of two seeds."""
    seen, train_many = [], _lanes.train_many
    monkeypatch.setattr(GraphTask, "lanes", lambda *_: 4)

    def counted(task, params, lam, *rest):
        seen.append(len(lam))
        return train_many(task, params, lam, *rest)

    monkeypatch.setattr(_lanes, "train_many", counted)
    return seen


def without_times(found):
    plain, timed = (
        found.to_json(),
        ("environment", "break_even_trials", "break_even_against", "break_even_note"),
    )
    kept = {key: value for key, value in plain.items() if "seconds" not in key and key not in timed}
    rivals = [{key: v for key, v in rival.items() if "seconds" not in key} for rival in plain["rivals"]]
    return {**kept, "rivals": rivals}


STEPS = [
    *(f"{phase}: {k}/6" for phase in ("full data", "candidates on the copy") for k in (2, 4, 6)),
    *(f"rival {name}: {k}/6" for name in ("early-stopping", "one-seed-full") for k in (4, 6)),
    *(f"rival equal-cost: {k}/6" for k in range(1, 7)),
]


def test_an_interrupted_evaluation_goes_on_where_it_stopped(lanes, tmp_path):
    """Stopped after each batch in turn: the same document, and no candidate is trained twice."""
    small = copy_of(record={"condense_seconds": 1e6})  # all the steps there are cost less
    whole = Stopping()
    expected = without_times(judge(small, cache=tmp_path / "a", progress=whole))
    assert whole.steps == STEPS
    assert lanes == [4] * 6 + [4, 2] * 2 + [30] * 6
    lanes.clear()
    for batch in range(len(STEPS)):
        finished = sum(batch >= done for done in (6, 8, 10, 16))  # phases that are told at once
        with pytest.raises(KeyboardInterrupt):
            judge(small, cache=tmp_path / "b", progress=Stopping(finished + 1))
        assert len(lanes) == batch + 1
    assert len(list((tmp_path / "b").glob("*.judging"))) == 4
    found = judge(small, cache=tmp_path / "b")
    assert lanes == [4] * 6 + [4, 2] * 2 + [30] * 6
    assert without_times(found) == expected
    assert not list((tmp_path / "b").glob("*.judging"))


def test_seconds_of_an_interrupted_evaluation_are_counted(lanes, tmp_path, monkeypatch):
    now, count = [0.0], _lanes.train_many

    def slow(*arguments):
        now[0] += 30
        return count(*arguments)

    monkeypatch.setattr("time.perf_counter", lambda: now[0])
    monkeypatch.setattr(_lanes, "train_many", slow)
    small = copy_of(record={"condense_seconds": 1e6})
    for stop in (5, 3):  # in the copy's trainings, then in those of a rival
        with pytest.raises(KeyboardInterrupt):
            judge(small, cache=tmp_path, progress=Stopping(stop))
    found = judge(small, cache=tmp_path)
    assert found.proxy_seconds == pytest.approx(3 * 30)
    rivals = {rival.name: rival for rival in found.rivals}
    for name in ("early-stopping", "one-seed-full"):
        assert rivals[name].seconds_per_candidate == pytest.approx(2 * 30 / 6)
    assert len(lanes) == 16


def test_only_the_same_evaluation_goes_on(lanes, tmp_path):
    """Another copy, other candidates or no rivals: nothing of the interrupted one is of use."""
    judge(cache=tmp_path, candidates=8, rivals=False)  # the truth of all that follow
    lanes.clear()
    with pytest.raises(KeyboardInterrupt):
        judge(cache=tmp_path, progress=Stopping(2))
    assert len(lanes) == 2
    for change in ({"small": copy_of(metric="loss")}, {"candidates": 8}, {"rivals": False}):
        lanes.clear()
        again = {"rivals": False, **change}
        expected = judge(cache=tmp_path / "fresh", **again)
        lanes.clear()
        assert without_times(judge(cache=tmp_path, **again)) == without_times(expected)
        assert len(lanes) == again.get("candidates", 6) // 2
    lanes.clear()
    judge(cache=tmp_path)
    assert len(lanes) == 1 + 4  # the rest of the copy's, and two rivals'


def test_results_of_another_device_have_no_seconds(tmp_path):
    judge(cache=tmp_path, rivals=False)
    (file,) = tmp_path.glob("*.jsonl")
    file.write_text(file.read_text().replace(records.device_name("cpu"), "NVIDIA H200"))
    found = judge(copy_of(record={"condense_seconds": 1.0}), cache=tmp_path)
    assert found.full_seconds is found.full_seconds_per_candidate is found.break_even_trials is None
    assert found.proxy_seconds > 0
    assert "equal-cost" not in {rival.name for rival in found.rivals}


def test_the_cache_lies_where_the_environment_says(tmp_path, monkeypatch):
    monkeypatch.setenv("HCDC_CACHE", str(tmp_path / "here"))
    judge(rivals=False)
    assert len(list((tmp_path / "here").glob("*.jsonl"))) == 1


# --- what it costs ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("cost", "other", "trials"),
    [
        ((10.0, 1.0), (0.0, 3.0), 5),
        ((10.5, 1.0), (0.0, 3.0), 6),
        ((0.0, 1.0), (0.0, 3.0), 1),
        ((10.0, 1.0), (4.0, 3.0), 3),
        ((1.0, 1.0), (4.0, 3.0), 1),
        ((10.0, 3.0), (0.0, 3.0), None),
        ((2.0, 3.0), (4.0, 3.0), 1),
        ((10.0, 4.0), (0.0, 3.0), None),
        ((None, 1.0), (0.0, 3.0), None),
        ((10.0, 1.0), (0.0, None), None),
    ],
)
def test_the_break_even_of_two_costs(cost, other, trials):
    assert Cost(*cost).break_even(Cost(*other)) == trials


def rival(name, spearman, each, once=0.0):
    return Rival(name=name, spearman=spearman, seconds_per_candidate=each, extra_seconds=once, proxy=[each])


def priced(*rivals, interval=(0.5, 0.9), cached=False, space=SPACE, record=None, truth=None, **changes):
    """The break-even of a copy with Spearman .8 at 10 s and 1 s per trial; the full data takes 9 s."""
    small = copy_of(space=space, record={"condense_seconds": 10.0, **(record or {})})
    context = contexts.Context(small, TASK, space, [], truth=truth)
    context.known, context.cached = [Result({}, 9.0)], cached
    found = Evaluation(
        spearman=0.8, interval=interval, condense_seconds=10.0, proxy_seconds_per_candidate=1.0,
        full_seconds_per_candidate=9.0, rivals=rivals, **changes,
    )  # fmt: skip
    told = judging.break_even(found, context)
    return told.break_even_trials, told.break_even_against, told.break_even_note


def test_the_break_even_is_priced_against_the_strongest_other_way():
    assert priced() == (2, "the full data", "")
    worse, better = rival("early-stopping", 0.79, 1.5), rival("one-seed-full", 0.8, 3.0)
    assert priced(worse) == (2, "the full data", "")
    assert priced(worse, better) == (5, "one-seed-full", "")
    same = rival("early-stopping", 0.797, 1.5)  # equal to two digits
    assert priced(same, better) == (20, "early-stopping", "")
    assert priced(rival("parameter-count", 0.9, 0.0)) == (
        None, "parameter-count", "parameter-count is free and ranks at least as well",
    )  # fmt: skip
    assert (
        priced(rival("ridge-probes", 0.9, 0.5, 5.0))[2]
        == "ridge-probes ranks at least as well and never costs more"
    )


def test_a_rival_that_is_the_copy_itself_is_no_other_way():
    assert priced(rival("real-val", 0.8, 1.0), proxy=[1.0]) == (2, "the full data", "")


@pytest.mark.parametrize("interval", [(-0.1, 0.9), (0.0, 0.9), (None, None)])
def test_a_ranking_that_may_be_chance_has_no_break_even(interval):
    said = "Indistinguishable from chance, so no break-even is reported"
    assert priced(interval=interval) == (None, None, said)


def test_the_break_even_is_at_most_the_size_of_a_finite_space():
    better = rival("early-stopping", 0.9, 1.1)
    space = Finite([{"k": i} for i in range(99)])
    note = "it would take 100 trials, but the space has 99 candidates"
    assert priced(better, space=space) == (None, "early-stopping", note)
    assert priced(better, space=Finite([{"k": i} for i in range(100)]))[0] == 100


def test_seconds_of_different_clocks_are_not_compared():
    assert "come from the cache" in priced(cached=True)[2]
    assert priced(rival("one-seed-full", 0.9, 3.0), cached=True)[0] == 5  # which is trained now
    assert "another device (a GPU)" in priced(record={"environment": {"device": "a GPU"}})[2]
    assert "the probes' results" in priced(record={"probe_seconds": 1.0})[2]
    assert "table's own clock" in priced(truth=object())[2]


def test_seconds_of_condensing_come_from_the_record_or_the_argument():
    small = copy_of(record={"condense_seconds": 7.0})
    assert judge(small, rivals=False).condense_seconds == 7.0
    assert judge(small, rivals=False, condense_seconds=3.0).condense_seconds == 3.0
    unknown = judge(rivals=False)
    assert unknown.condense_seconds is unknown.break_even_trials is None


def test_the_pick_is_named_beside_the_best():
    found = judged()
    pick, first, best = found.pick, int(np.argmax(found.proxy)), int(np.argmax(found.truth))
    assert (pick.config, pick.score, pick.test) == (
        found.configs[first], found.truth[first], found.test[first],
    )  # fmt: skip
    assert (pick.best, pick.best_score) == (found.configs[best], found.truth[best])
    assert pick.rank == 1 + sum(value > pick.score for value in found.truth)
    assert found.to_json()["pick"]["config"] == pick.config
    assert any(json.dumps(pick.config) in text for _, texts in findings([found]) for text in texts)


def test_agreement_with_test_scores_stands_beside_that_with_validation():
    found = judged()
    for ranking in (found, found.rival("real-val-loss")):
        assert ranking.test_spearman == pytest.approx(stats.spearmanr(found.test, ranking.proxy).statistic)
        assert ranking.test_interval[0] <= ranking.test_spearman <= ranking.test_interval[1]


def test_results_that_lose_to_a_constant_predictor_are_warned_of():
    found = judged()
    assert found.constant == pytest.approx(8 / 24)  # three classes, equally many
    assert not [text for _, texts in findings([found]) for text in texts if "constant" in text]
    low = dataclasses.replace(found, truth=[0.1, *found.truth[1:]])
    (text,) = [text for _, texts in findings([low]) for text in texts if "constant" in text]
    assert text == "warning: 1 of 6 full-data results do not beat a constant predictor (33.3 %)"


def test_one_configuration_scores_on_the_copy_as_in_an_evaluation():
    found = judged()
    small = dataclasses.replace(copy_of(), task=TASK)
    assert small.score(found.configs[2]) == score(copy_of(), found.configs[2], task=TASK) == found.proxy[2]


def test_the_cost_is_told_with_rivals():
    small = copy_of(record={"condense_seconds": 2.0})
    told = {entry.words.split(":")[0]: entry.seconds for entry in cost(small, TASK, 6).expenses}
    assert list(told) == [
        "6 full-data trainings, less those that the cache knows", "6 candidates trained on the copy",
        "rival early-stopping", "rival one-seed-full", "rival equal-cost",
    ]  # fmt: skip
    assert all(seconds > 0 for seconds in told.values())
    for count in (6, np.int64(6)):
        assert len(cost(small, TASK, count, rivals=False).expenses) == 2


def test_the_cost_leaves_out_what_is_cached(tmp_path, monkeypatch):
    monkeypatch.setattr("hcdc.evaluation._cost.training_seconds", lambda *_: 3.0)
    small = copy_of(record={"condense_seconds": 2.0})
    configs = judges(small, SPACE, 6, 0)[0]

    def told():
        found = cost(small, TASK, configs, rivals=False, cache=tmp_path)
        first = found.expenses[0]
        assert first.full_trainings == found.full_trainings
        return first.words.split(":")[0], first.full_trainings, first.seconds

    assert told() == ("6 full-data trainings", 6, 18.0)
    evaluate(small, candidates=configs[:4], task=TASK, rivals=False, cache=tmp_path)
    assert told() == ("2 full-data trainings, 4 more are cached", 2, 6.0)
    evaluate(small, candidates=configs, task=TASK, rivals=False, cache=tmp_path)
    assert told() == ("all 6 full-data results are cached", 0, 0.0)


# --- no leaks -----------------------------------------------------------------------------------------------


def test_test_labels_change_nothing_but_test_figures():
    shuffled = GraphTask(graph_data(permute_test=True))
    probes = {"lam": [[float(i), 0.0, 1.0] for i in range(6)], "score": [0.1, 0.4, 0.2, 0.5, 0.3, 0.6]}
    one = judge(copy_of(probes=probes))
    two = judge(copy_of(shuffled, probes=probes), task=shuffled)
    assert one.test != two.test
    for key in ("configs", "truth", "proxy", "spearman", "regret"):
        assert vars(one)[key] == vars(two)[key]
    for mine, other in zip(one.rivals, two.rivals):
        assert mine.proxy == other.proxy
        assert mine.regret == other.regret
    pick = int(np.argmax(two.proxy))
    assert two.selected_test_accuracy == two.test[pick]
    assert one.selected_test_accuracy == one.test[pick]


def test_condensing_never_sees_test_labels(monkeypatch):
    change_recipes(monkeypatch, functools.partial(Recipe, steps=2))
    options = {"trajectories": 2, "points": 1, "holdout": 2, "steps": 1, "iterations": 1}
    copies = [
        condense(
            GraphTask(graph_data(shuffled)),
            SPACE,
            train_size=6,
            val_size=6,
            val_method="both",
            options=options,
        )
        for shuffled in (False, True)
    ]
    one, two = (copy.tensors() for copy in copies)
    assert all(torch.equal(one[key], two[key]) for key in one)


# --- what is refused ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("candidates", [1, 0, -3])
def test_one_candidate_has_no_ranking(candidates):
    with pytest.raises(InputError, match=f"candidates {candidates}: a ranking needs at least 2"):
        judge(candidates=candidates)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"candidates": [1, 2]}, r"candidates \[1, 2\]: give a whole number .*or a list of configurations"),
        ({"candidates": 4.0}, "candidates 4.0: give a whole number"),
        ({"candidates": True}, "candidates True: give a whole number"),
        ({"seed": "0"}, "seed '0': give a whole number"),
        ({"seed": -1}, "seed -1: at least 0 is needed"),
    ],
)
def test_numbers_of_another_kind_are_refused(given, said):
    with pytest.raises(InputError, match=said):
        judge(**given)


def test_another_task_than_that_of_the_copy_is_refused():
    with pytest.raises(InputError, match="fingerprint"):
        judge(task=GraphTask(graph_data(permute_test=True)))
    with pytest.raises(InputError, match=r"'inductive'.*the copy was made for"):
        judge(task=GraphTask(graph_data(), "inductive"))


def test_data_handed_over_in_memory_cannot_be_read_again():
    with pytest.raises(InputError, match=r"pass a task on it in Python, hcdc.evaluate\(copy, task=...\)"):
        evaluate(copy_of(), candidates=4)


def test_a_copy_that_remembers_its_task_is_judged_with_it():
    small = dataclasses.replace(copy_of(), task=TASK)
    assert evaluate(small, candidates=4, rivals=False).candidates == 4


# --- tables -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("classes", [3, None])
def test_tables_are_judged_too(classes, monkeypatch):
    change_recipes(monkeypatch, functools.partial(Recipe, steps=4, lr=0.05))
    rng = np.random.default_rng(0)
    x = torch.from_numpy(rng.normal(size=(60, 4))).float()
    y = x[:, 0] - 2 * x[:, 2] if classes is None else x[:, :3].argmax(1)
    rows = [Rows(x[a:b], y[a:b]) for a, b in ((0, 24), (24, 44), (44, 60))]
    data = TableData("numbers", "memory", *rows, num_classes=classes)
    task = TableTask(data, "ridge" if classes is None else "logistic")
    options = {"trajectories": 4, "points": 1, "holdout": 3, "steps": 2, "iterations": 2}
    small = condense(task, task.space(), train_size=8, options=options)
    found = evaluate(small, candidates=5, task=task)
    json.dumps(found.to_json(), allow_nan=False)
    names = {rival.name for rival in found.rivals}
    assert {"random-val", "real-val", "early-stopping", "ridge-probes"} <= names
    assert "parameter-count" not in names
    if classes is None:
        assert found.metric == "loss"
        assert all(v <= 0 for v in found.truth)
    assert found.regret >= 0
    assert found.candidates == 5


def test_settings_that_make_the_truth():
    """The scores are those of training and scoring by hand."""
    config = SPACE.sample(1, numpy_stream(0, "judge"))[0]
    found = judge(rivals=False)
    bound = TASK.bind(PolynomialFilter(order=2, width=4))
    accuracies = []
    for repeat in range(FULL.seeds):
        keys = [(config_hash(config), repeat)]
        params = _lanes.init_many(bound, keys, 0, "truth", "cpu")
        lam = SPACE.encode(config).float()[None]
        params = _lanes.train_many(bound, params, lam, TASK.train, FULL)
        logits = bound.predict({k: v[0] for k, v in params.items()}, lam[0], TASK.val)
        accuracies.append(float((logits.argmax(1) == TASK.val.y).float().mean()))
    assert found.truth[0] == pytest.approx(np.mean(accuracies), abs=1e-6)
