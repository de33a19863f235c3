"""What aligning images may take: trials that grow, and counts that are those of a run."""

import dataclasses
import math
import re
from contextlib import contextmanager

import pytest
import torch
from light_space import LightSpace
from tiny_images import tiny_image_data, tiny_image_task
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import flop_registry

import hcdc.condensers._forecast as forecast
import hcdc.condensers.validation._batched as batched
import hcdc.condensers.validation._expected as expected
import hcdc.condensers.validation._run as aligning
import hcdc.condensers.validation._sequential as sequential
from hcdc.condensers import condense, make_reducer, plan
from hcdc.condensers._forecast import Line, measured
from hcdc.condensers.validation._expected import alignment_seconds
from hcdc.core.recipe import Recipe
from hcdc.spaces import PolynomialFilter
from hcdc.tasks import ImageTask
from recipes import change_recipes

SPACE = LightSpace()
CPU = torch.device("cpu")
QUICK = {"trajectories": 2, "points": 2, "holdout": 3, "steps": 4, "batch": 3, "nodes": 6, "iterations": 2}
ALIGNED = {"val_method": "aligned"}
SEQUENTIAL = {
    "response": "shared",
    "schedule": "sequential",
    "theta_steps": 4,
    "lam_every": 3,
}


@pytest.fixture
def task():
    return ImageTask(tiny_image_data(1, 4))


@pytest.fixture
def clock(monkeypatch):
    """Trials take what a line says; what was tried."""
    tried = []

    def set_to(base, each):
        def seconds(work, count):
            tried.append(count)
            return base + each * count

        monkeypatch.setattr(forecast, "_seconds", seconds)
        return tried

    return set_to


@pytest.mark.parametrize(
    ("base", "each", "count", "trials"),
    [
        (0.01, 0.02, 300, [1, 4, 16]),  # long enough, and most of it is images
        (0.3, 0.001, 70, [1, 4, 16, 64, 70]),  # mostly what is paid anyway: all of them
        (0.9, 0.01, 999, [1, 4, 16]),  # two seconds are enough
        (5.0, 3.0, 999, [1]),
        (0.001, 0.0, 4, [1, 4]),
    ],
)
def test_trials_have_more_images_until_they_tell(base, each, count, trials, clock):
    tried = clock(base, each)
    found = measured(lambda number: None, count, CPU)
    assert tried == trials
    if len(trials) > 1:
        assert (found.base, found.each) == pytest.approx((base, each))
        assert found.at(count) == pytest.approx(base + each * count)
    else:
        assert found == Line(0.0, base + each)  # too long to try again: all of it is the images'


def test_on_cuda_trials_begin_with_many_images(clock):
    tried = clock(0.1, 1e-3)
    assert measured(lambda number: None, 128, torch.device("cuda")).at(128) == pytest.approx(0.228)
    assert tried == [128]


def counted(monkeypatch, task, options):
    """Training steps on the original and on the copy, responses, adjoints and steps of S_val."""
    found = dict.fromkeys(("full", "copy", "response", "adjoint", "val"), 0)

    def watch(name, count):
        for module in (aligning, batched, sequential):
            if not hasattr(module, name):
                continue

            plain = getattr(module, name)

            def watched(*given, _plain=plain, **more):
                count(*given)
                return _plain(*given, **more)

            monkeypatch.setattr(module, name, watched)

    def add(name, number):
        found[name] += number

    watch(
        "train_many",
        lambda bound, params, lam, data, recipe: add("full" if len(data) > 6 else "copy", recipe.steps),
    )
    watch("batched_best_response", lambda bound, params, lam, *rest: add("response", len(lam)))
    watch("batched_hypergradient", lambda bound, params, lam, *rest: add("adjoint", len(lam)))
    watch("anchored_gradient", lambda bound, params, lam, *rest: add("val", len(lam)))
    watch("alignment_gradient", lambda *given: add("val", 1))
    condense(task, SPACE, **ALIGNED, train_size=6, val_size=6, options=options)
    return found


@pytest.fixture
def short(monkeypatch):
    change_recipes(monkeypatch, lambda **given: Recipe(**{**given, "steps": 3, "batch": 5}))


@pytest.mark.usefixtures("short")
def test_what_is_predicted_is_what_is_done(task, monkeypatch):
    """With trials of a second each, whatever the number of images: seconds are counts."""
    made = plan(task, SPACE, **ALIGNED, train_size=6, val_size=6, options=QUICK)
    monkeypatch.setattr(expected, "measured", lambda work, count, device: Line(1.0, 0.0))
    sizes = (made.train_size, made.val_size)
    parts = alignment_seconds(task, SPACE, made.way, made.relaxed(), made.calibrated, *sizes, 2)
    done = counted(monkeypatch, task, QUICK)
    assert parts["training on the full data"] == done["full"] == 7 * 3
    assert parts["training on the copy"] == done["copy"] == 7 * 3
    assert parts["linear systems"] == done["adjoint"] + done["response"] == 7 + 7
    assert parts["steps of S_val"] == 4 * 3
    assert done["val"] == 2 * 2 + 2 * 3  # fewer points before the second ones are there


@pytest.mark.usefixtures("short")
def test_what_is_predicted_of_algorithm_1_is_what_is_done(task, monkeypatch):
    options = {**QUICK, **SEQUENTIAL}
    made = plan(task, SPACE, **ALIGNED, train_size=6, val_size=6, options=options)
    monkeypatch.setattr(expected, "measured", lambda work, count, device: Line(1.0, 0.0))
    parts = alignment_seconds(task, SPACE, made.way, made.relaxed(), made.calibrated, 6, 6, 2)
    done = counted(monkeypatch, task, options)
    assert parts["steps of S_val"] == parts["training on the copy"] == done["val"] == 2 * 4
    extra = 2 * 2 * 4  # those inside of the alignment gradient
    assert parts["linear systems"] == done["adjoint"] + extra == 8 + 2 * 2 + 16


def test_seconds_grow_with_images_steps_and_directions(task, monkeypatch):
    def measured(work, count, device):
        work(1)
        return Line(0.0, 1.0)

    monkeypatch.setattr(expected, "measured", measured)
    made = plan(task, SPACE, **ALIGNED, train_size=6, val_size=6, options=QUICK)
    full = Recipe(steps=10, optimizer="sgd", batch=8, lr=0.1)
    small = dataclasses.replace(full, steps=5, batch=4)
    parts = alignment_seconds(task, SPACE, made.way, full, small, 6, 6, 2)
    assert parts["training on the full data"] == 7 * 10 * 8
    assert parts["training on the copy"] == 7 * 5 * 4
    assert parts["linear systems"] == 7 * (6 + 9 + 6)  # 15 of T_val; a solve takes nothing by this clock
    assert parts["steps of S_val"] == 4 * 3 * 6

    def solving(self, most, solver=None):
        return Line(0.0, 1.0 if solver is not None else 3.0)

    monkeypatch.setattr(expected._Trial, "adjoint", solving)
    parts = alignment_seconds(task, SPACE, made.way, full, small, 6, 6, 2)
    response = 3 * 6 + 30 * (2 + 1) * 6  # a solve, and its right side: one of two products
    assert parts["linear systems"] == 7 * (3 * 6 + 9 + response)


def test_words_say_what_takes_longest(task, monkeypatch):
    def told(parts, **options):
        monkeypatch.setattr(expected, "alignment_seconds", lambda *given: parts)
        made = plan(
            task,
            SPACE,
            val_method="aligned",
            train_size=6,
            val_size=6,
            options={**QUICK, **options},
            truth_epochs=3,
        )
        return made.cost().words()

    own = told({"linear systems": 4000.4, "steps of S_val": 12.0})
    assert own == (
        "7 full-data trainings of the relaxed network (3 steps of 32 examples), as many on the copy (20 "
        "steps of 6 examples), 7 x 30 linear systems and 4 steps of S_val: about 4,012 s, most of it linear "
        "systems (estimate from a few examples)"
    )
    shared = told({"a": 0.2, "b": 0.1}, response="shared")
    assert shared.startswith(
        "7 trainings of the relaxed network on the copy (20 steps of 6 examples), 7 x 30"
    )
    assert "about 1 s, most of it a" in shared
    assert told({"a": 0.2}, **SEQUENTIAL).startswith(
        "2 trajectories of 4 steps of the relaxed network on the"
    )


def test_alignment_counts_and_times_its_trainings(task):
    few = {**QUICK, "trajectories": 3, "points": 2, "holdout": 4, "steps": 2, "iterations": 1}
    told = plan(task, SPACE, **ALIGNED, train_size=6, options=few).cost().words()
    assert told.startswith("10 full-data trainings of the relaxed network (")
    timed = r"about [\d,]+ s( \([\d.]+ h\))?, most of it .* \(estimate from a few examples\)$"
    assert re.search(timed, told)
    few["calibrate"] = True
    once = {"seeds": 1}
    told = plan(task, SPACE, train_size=6, val_method="both", options=few, recipe=once).cost().words()
    assert "candidates trained once each on the copy, 20 of them by 6 recipes before: about" in told
    assert "20 full-data trainings, less those that the cache knows: about" in told


def test_points_are_those_of_the_trajectories_there_are(task):
    made = plan(task, SPACE, **ALIGNED, train_size=6, options={**QUICK, "trajectories": 9999}).way
    assert made.point_count(SPACE, 0) == 2465 * 2 + 3
    assert made.point_count(PolynomialFilter(), 0) == 9999 * 2 + 3


class Operations(TorchDispatchMode):
    """Counts multiplications of convolutions and matrices."""

    total = 0.0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        found = function(*args, **(kwargs or {}))
        counted = flop_registry.get(function._overloadpacket)
        if counted is not None:
            self.total += counted(*args, **(kwargs or {}), out_val=found)
        return found


def flops(work):
    with Operations() as operations:
        work()
    return operations.total


def test_a_prediction_is_of_the_size_of_the_run(task, monkeypatch):
    """By a clock of operations, which no other work on the machine disturbs."""
    monkeypatch.setattr(forecast, "_seconds", lambda work, count: flops(lambda: work(count)))
    monkeypatch.setattr(forecast, "PATIENCE", math.inf)
    monkeypatch.setattr(forecast, "LONG", math.inf)
    options = {**QUICK, "points": 1, "holdout": 2, "steps": 2}
    more = {"truth_epochs": 2, "recipe": {"steps": 5}}
    made = plan(task, SPACE, **ALIGNED, train_size=6, val_size=6, options=options, **more)
    sizes = (made.train_size, made.val_size)
    parts = alignment_seconds(task, SPACE, made.way, made.relaxed(), made.calibrated, *sizes, 2)
    done = flops(lambda: condense(task, SPACE, **ALIGNED, train_size=6, val_size=6, options=options, **more))
    assert done / 2 < sum(parts.values()) < done * 2


def test_a_short_trial_is_repeated_and_a_long_one_is_not(monkeypatch):
    taken = iter([0.09, 0.04, 0.05, 7.0, 0.9, 0.01])

    @contextmanager
    def clock():
        yield [next(taken)]

    monkeypatch.setattr(forecast, "timed", clock)
    done = []
    assert forecast._seconds(done.append, 3) == 0.04
    assert forecast._seconds(done.append, 5) == 7.0
    assert forecast._seconds(done.append, 6) == 0.01  # something held up the first
    assert done == [3, 3, 3, 5, 6, 6]


# --- methods that train on the original ---------------------------------------------------------------------


def test_experts_and_matching_are_both_predicted(clock):
    task = tiny_image_task()
    clock(1.0, 0.0)  # each step takes a second
    experts = {"experts": 3, "start_epochs": 4, "target_epochs": 2, "expert_batch": 10}
    tm = make_reducer("tm", **experts, iterations=7, student_steps=5)
    assert tm.seconds(task, "train", 6) == pytest.approx(3 * 5 * 4 + 7 * 5)
    assert tm.seconds(task, "val", 6) == pytest.approx(3 * 5 * 2 + 7 * 5)
    assert tm.loops() == "7 iterations"


def test_the_network_behind_a_coreset_is_predicted(clock):
    task = tiny_image_task()
    clock(1.0, 0.0)
    for name in ("kcenter", "herding"):
        assert make_reducer(name, steps=50).seconds(task, "train", 6) == pytest.approx(50)
        assert make_reducer(name).loops() == ""


def test_methods_without_a_prediction_tell_their_loops():
    task = tiny_image_task()
    for name, loops in (("dm", "20,000 iterations"), ("kip", "1,000 steps"), ("random", "")):
        assert make_reducer(name).loops() == loops
        assert make_reducer(name).seconds(task, "train", 6) is None
    assert make_reducer("gcond").loops().endswith(" epochs")
