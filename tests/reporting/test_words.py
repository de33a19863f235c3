import dataclasses
import json
import math

import numpy as np
import pytest
from synthetic_evaluation import changed, document, evaluation

from hcdc.core.ranks import spearman
from hcdc.core.results import Evaluation, Rival
from hcdc.reporting import findings, payment, validation_choice
from hcdc.reporting._words import _differences, gain, remarks


def sentences(evaluations):
    return [f"{name}: {text}" for name, texts in findings(evaluations) for text in texts]


def test_gain_is_the_difference_of_the_correlations():
    rng = np.random.default_rng(0)
    truth = rng.random(60)
    good, bad = truth + 0.05 * rng.random(60), truth + 2 * rng.random(60)
    value, low, high = gain(truth, good, bad)
    assert value == pytest.approx(spearman(truth, good) - spearman(truth, bad))
    assert 0 < low < value < high
    assert gain(truth, good, good) == (0.0, 0.0, 0.0)
    assert all(map(math.isnan, gain(truth, good, np.ones(60))))


def test_gain_resamples_candidates_in_pairs():
    rng = np.random.default_rng(1)
    truth, first, second = rng.random((3, 30)).round(1)  # with ties
    draws = rng.integers(0, 30, (5, 30))
    found = _differences(np.asarray([truth, first, second])[:, draws])
    wanted = [spearman(truth[d], first[d]) - spearman(truth[d], second[d]) for d in draws]
    np.testing.assert_allclose(found, wanted, atol=1e-12)


def test_the_real_validation_set_is_named_where_it_ranks_better():
    text = validation_choice(evaluation("hcdc", noise=0.1, real_noise=0.001))
    assert text.startswith("the real validation set ranked better than the learned one")
    assert "--val-method real" in text
    assert "random validation examples" in text


def test_the_learned_set_is_named_where_it_ranks_better():
    text = validation_choice(evaluation("hcdc", noise=0.001, real_noise=0.1))
    assert text.startswith("the learned validation set ranked better than the real one")
    assert "--val-method" not in text


def test_equal_sets_are_said_to_be_equal():
    e = evaluation("hcdc")
    e = changed(e, "real-val", spearman=e.spearman, proxy=e.proxy)
    assert "the learned validation set ranked as well as the real one" in validation_choice(e)


def test_a_random_set_is_called_so_and_not_compared_with_another():
    text = validation_choice(evaluation("gcond", val_method="random"))
    assert "small random" in text
    assert "as many random" not in text


@pytest.mark.parametrize(
    ("size", "said"), [(125, "; as many random "), (1080, "; 1,080 random "), (None, "; random ")]
)
def test_how_many_random_examples_there_were_is_said_as_it_was(size, said):
    """A weighted S_val may be larger than what can be drawn with equally many per class."""
    e = changed(evaluation("hcdc", val_method="weighted"), "random-val", val_size=size)
    assert f"{said}validation examples reached" in validation_choice(e)


@pytest.mark.parametrize(
    ("method", "called"),
    [
        ("both", "learned"),
        ("probes", "learned"),
        ("landscape", "learned"),
        ("weighted", "weighted"),
        ("same", ""),
        ("central", ""),  # registered by a user
    ],
)
@pytest.mark.parametrize("train_method", ["dm", "random"])
def test_the_set_is_called_what_it_is(method, called, train_method):
    text = validation_choice(evaluation("hcdc", val_method=method, train_method=train_method, noise=0.001))
    called = "small random" if (method, train_method) == ("same", "random") else called or "condensed"
    assert text.startswith(f"the {called} validation set ranked better than the real one")
    assert ("random validation examples reached" in text) == (called != "small random")


def test_a_small_difference_may_be_chance():
    text = validation_choice(evaluation("hcdc", noise=0.05, real_noise=0.05))
    assert "may be chance" in text


def test_rivals_whose_scores_were_not_kept_are_compared_without_an_interval():
    e = document("hcdc", noise=0.1, real_noise=0.001)
    e["rivals"] = [{key: value for key, value in r.items() if key != "proxy"} for r in e["rivals"]]
    e = Evaluation.from_json(e)
    assert "the real validation set ranked better" in validation_choice(e)
    assert "no interval" in validation_choice(e)


def test_nothing_is_compared_where_there_is_nothing_to_compare():
    assert validation_choice(evaluation("hcdc", rivals=[])) == ""
    assert validation_choice(evaluation("hcdc", val_method="real")) == ""
    assert validation_choice(evaluation("hcdc", spearman=None)) == ""


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        (
            {},
            "pays off from 172 trials on, against the full data (40 were judged here): condensing took 60 s",
        ),
        ({"break_even_against": "one-seed-full"}, "pays off from 172 trials on, against one-seed-full"),
        ({"break_even_trials": 1}, "pays off from the first trial on"),
        (
            {"proxy_seconds_per_candidate": 0.5, "break_even_trials": None},
            "does not pay off: a trial takes 0.5 s",
        ),
        (
            {"break_even_trials": None, "break_even_against": "x", "break_even_note": "x is free"},
            "does not pay off: x is free; condensing took 60 s",
        ),
        (
            {"break_even_trials": None, "break_even_note": "the table has a clock of its own"},
            "no break-even is reported: the table has a clock of its own; condensing took 60 s",
        ),
        (
            {"condense_seconds": None, "break_even_trials": None},
            "no break-even is reported: the condensing time was not recorded; a trial takes",
        ),
        ({"proxy_seconds_per_candidate": None}, "no times were measured"),
    ],
)
def test_whether_it_pays(changes, said):
    assert said in payment(evaluation("hcdc", **changes))


@pytest.mark.parametrize(
    ("interval", "said"),
    [
        ([-0.2, 0.4], "Indistinguishable from chance"),
        ([0.0, 0.4], "Indistinguishable from chance"),
        ([-0.6, -0.2], "its ranking is reversed"),
        ([None, None], "its ranking has no interval"),
        (None, "its ranking has no interval"),
    ],
)
def test_a_copy_that_does_not_rank_is_not_said_to_pay(interval, said):
    spent = "condensing took 60 s, a trial takes 0.05 s on the copy and 0.4 s on the full data"
    text = payment(evaluation("hcdc", spearman=0.1, interval=interval))
    assert text == f"{said}, so no break-even is reported; {spent}"
    slow = payment(
        evaluation("hcdc", interval=interval, proxy_seconds_per_candidate=0.5, break_even_trials=None)
    )
    assert slow.startswith("does not pay off")  # whatever the ranking is


@pytest.mark.parametrize(
    ("own", "free", "better"), [(0.5, 0.7, True), (0.7, 0.5, False), (0.7, 0.701, False)]
)
def test_a_free_rival_that_ranks_better_is_named(own, free, better):
    e = evaluation("hcdc", spearman=own, interval=[0.3, 0.8])
    e = changed(e, "parameter-count", spearman=free, note="")
    assert sum("parameter-count 0.70 (free)" in text for text in sentences([e])) == better


def test_the_pick_is_said_first_and_can_be_copied():
    e = evaluation("hcdc", noise=0.1)
    first = sentences([e])[0]
    assert first.startswith(f"hcdc: picks {json.dumps(e.pick.config)}: ")
    assert f"rank {e.pick.rank} of 40; the best scores" in first
    assert json.dumps(e.pick.best) in first


@pytest.mark.parametrize(
    ("constant", "said"),
    [
        (0.9, "warning: none of the full-data results beats a constant predictor (90.0 %)"),
        (0.1, None),
        (None, None),
    ],
)
def test_what_does_not_beat_a_constant_predictor_is_warned_of(constant, said):
    found = [text for text in sentences([evaluation("hcdc", constant=constant)]) if "constant" in text]
    assert found == ([] if said is None else [f"hcdc: {said}"])


def test_findings_name_the_best_copy_and_the_warnings():
    found = sentences(
        [
            evaluation("random", noise=0.2, preset="demo"),
            evaluation("hcdc", noise=0.01, preset="demo", dropped=3),
        ]
    )
    assert found[0].startswith(": hcdc ranks best of the copies")
    assert "hcdc: made with preset 'demo', a shortened run" in found
    assert "random: made with preset 'demo', a shortened run" not in found  # it has nothing to shorten
    assert any(text.startswith("hcdc: 3 candidates were left out") for text in found)
    assert any("parameter-count: all candidates have the same number" in text for text in found)
    assert any(
        "ranked better without a copy: early-stopping 0.9" in t for t in found if t.startswith("random")
    )


def test_an_undefined_ranking_is_said_and_does_not_win():
    found = sentences(
        [evaluation("random"), evaluation("hcdc", spearman=None, interval=[None, None], note="flat")]
    )
    assert "hcdc: the rank agreement is undefined (flat)" in found
    assert not any("ranks best" in text for text in found)


def test_the_pick_is_compared_with_that_of_full_data_validation():
    for picked, said in (
        (0.68, "2.0 points below"),
        (0.70, "the same as"),
        (0.6998, "the same as"),
        (0.71, "1.0 points above"),
    ):
        e = evaluation("hcdc", selected_test_accuracy=picked, best_test_accuracy=0.70)
        assert any(said in text for text in sentences([e]))


def test_without_a_ranking_nothing_is_said_of_paying():
    flat = evaluation("hcdc", spearman=None, interval=[None, None], note="flat")
    assert any("pays off" in text for text in sentences([evaluation("hcdc")]))
    assert not any("pays" in text for text in sentences([flat]))


def test_candidates_that_diverged_are_counted():
    for count, said in ((0, None), (1, "1 candidate diverged on the copy and is"), (3, "3 candidates dive")):
        found = [text for text in sentences([evaluation("hcdc", diverged=count)]) if "diverged" in text]
        assert len(found) == (said is not None)
        assert said is None or said in found[0]


def test_candidates_that_diverged_on_the_full_data_are_named():
    e = evaluation("hcdc", diverged=2, diverged_on_full=[{"width": 3}])
    assert [text for text in sentences([e]) if "diverged" in text] == [
        "hcdc: 2 candidates diverged on the copy and are ranked last",
        "hcdc: 1 candidate diverged on the full data and is ranked last there: {'width': 3}",
    ]


def test_the_gain_holds_its_value_and_is_without_an_interval_where_scores_hardly_differ():
    truth, first = [0] * 9 + [1], list(range(10))
    value, low, high = gain(truth, first, first[::-1])
    assert low <= value <= high
    assert math.isnan(gain(first[:9], first[:9], first[8::-1])[1])  # too few
    e = evaluation("hcdc", count=2, truth=[0.1, 0.2], proxy=[1.0, 2.0], spearman=1.0)
    e = dataclasses.replace(e, rivals=[Rival(name="real-val", spearman=-1.0, proxy=[2.0, 1.0])])
    assert "gain +2.00, no interval" in validation_choice(e)


def test_the_real_set_by_loss_is_one_of_its_kind():
    e = evaluation("hcdc", noise=0.1, real_noise=0.2)
    by_loss = Rival(name="real-val-loss", spearman=0.999, proxy=e.truth)
    e = dataclasses.replace(e, rivals=[*e.rivals, by_loss])
    assert "the real validation set ranked better than the learned one: Spearman 1.00" in validation_choice(e)


@pytest.mark.parametrize(
    ("dropped", "told"),
    [(1, "1 candidate was left out because it was"), (2, "2 candidates were left out because they were")],
)
def test_candidates_that_made_the_copy_are_counted(dropped, told):
    assert any(text.startswith(told) for text in remarks(evaluation("hcdc", dropped=dropped)))
