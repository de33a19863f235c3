"""S_val that follows a landscape: what is trained, what is learned, what is kept and what is refused."""

from types import SimpleNamespace

import pytest
import torch
from quick_hcdc import SPACE, Interrupting, content, short_recipes
from quick_hcdc import make as quick_make
from tiny_graph import tiny_task

from hcdc.condensers import plan
from hcdc.condensers.validation import Company, Following, Work, misorder
from hcdc.core.checkpoint import Checkpoint
from hcdc.core.configs import config_hash
from hcdc.core.errors import InputError
from hcdc.core.progress import Progress
from hcdc.evaluation import evaluate
from hcdc.evaluation.rivals._ridge_probes import probe_seconds
from hcdc.spaces import GNNZoo, PolynomialFilter

pytestmark = pytest.mark.usefixtures("short_recipes")
__all__ = ["short_recipes"]

QUICK = {
    "trainings": 6,
    "spread": 1,
    "companions": 32,
    "steps": 40,
    "check": 10,
    "batch": 16,
    "iterations": 2,
    "lr": 0.05,
}


def make(task=None, **arguments):
    return quick_make(task, **{"val_method": "landscape", "options": QUICK, **arguments})


def running(task=None, **options):
    """A run before any work."""
    task = task or tiny_task()
    planned = plan(
        task, SPACE, train_size=6, val_size=9, val_method="landscape", options={**QUICK, **options}
    )
    s_train = task.for_learning("reach", adjacency=False).sample("train", 6, 0)
    return planned.way.run(planned, Work(task, s_train, "cpu", Checkpoint(None), Progress()))


def test_misorder_is_one_minus_the_correlation_with_ranks():
    expected = torch.tensor([0.1, 5.0, 0.2, 0.3])
    assert float(misorder(torch.tensor([0.0, 3.0, 1.0, 2.0]), expected)) == pytest.approx(0, abs=1e-6)
    assert float(misorder(torch.tensor([3.0, 0.0, 2.0, 1.0]), expected)) == pytest.approx(2, abs=1e-6)
    assert torch.isfinite(misorder(torch.ones(4), expected))


def test_the_slope_is_a_finite_difference():
    run = running(tiny_task(dtype=torch.float64))
    lam = torch.linspace(-1, 1, 24, dtype=torch.float64).view(8, 3)
    params = {
        name: torch.randn(8, *p.shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
        for name, p in run.task.init(torch.Generator()).items()
    }
    company, expected, index = Company(lam, params), torch.linspace(0, 1, 8).double(), torch.arange(8)
    _, gradient = run.slope(company, expected, index)
    start = run.tensors["x"]
    move = torch.randn(start.shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    step, found = 1e-6, []
    for sign in (1, -1):
        run.learned = {"x": start + sign * step * move}
        found.append(float(run.slope(company, expected, index)[0]))
    assert float((gradient["x"] * move).sum()) == pytest.approx((found[0] - found[1]) / (2 * step), rel=1e-5)


def test_fewer_trainings_are_the_first_of_more():
    few, many = running().survey(4, 5), running().survey(7, 5).first(4)
    for name in ("lam", "losses", "gradients", "scores"):
        assert torch.allclose(getattr(few, name), getattr(many, name), atol=1e-6)


def test_trainings_keep_away_from_each_other():
    spread, random = (running().survey(6, tries).lam for tries in (64, 1))
    both = (torch.cat([lam, -lam]) if SPACE.even else lam for lam in (spread, random))
    far, near = (torch.pdist(lam).min() for lam in both)
    assert far > near


def test_a_copy_has_learned_and_says_what_it_used():
    task = tiny_task()
    small = make(task)
    start = task.for_learning("reach", adjacency=False).sample("val", 9, 0)
    assert not torch.equal(small.val.graph.x, start.graph.x)
    history = small.record["history"]
    assert [told["step"] for told in history] == [0, 10, 20, 30, 40]
    assert min(told["held_out"] for told in history[1:]) < history[0]["held_out"]
    assert small.record["full_trainings"] == 6
    probes = small.meta["probes"]
    assert {key: len(rows) for key, rows in probes.items()} == dict.fromkeys(
        ("lam", "score", "loss", "gradient"), 6
    )
    assert len(small.meta["candidates"]) == 6 + 32
    assert config_hash(SPACE.decode(torch.tensor(probes["lam"][0]))) in small.meta["candidates"]
    assert small.meta["metric"] == "loss"


def test_the_kept_iterate_is_the_best_on_the_companions_that_watch(monkeypatch):
    """If every step makes it worse, S_val stays as it began."""
    figures = iter([0.1, 0.5, 0.6, 0.7, 0.8])
    monkeypatch.setattr(Following, "watched", lambda *_: next(figures))
    task = tiny_task()
    start = task.for_learning("reach", adjacency=False).sample("val", 9, 0)
    assert torch.equal(make(task).val.graph.x, start.graph.x)


def test_companions_that_watch_take_no_steps(monkeypatch):
    seen = []
    plain = Following.slope
    monkeypatch.setattr(
        Following, "slope", lambda run, c, e, index: seen.append(index) or plain(run, c, e, index)
    )
    make(options={**QUICK, "batch": 32})
    assert {int(i) for index in seen for i in index} == {i for i in range(32) if i % 4 != 3}


def test_equal_seeds_give_equal_bytes_and_hypergradients_matter():
    first = content(make())
    assert first == content(make())
    assert first != content(make(seed=1))
    assert first != content(make(options={**QUICK, "slopes": False}))


def test_an_interrupted_run_continues_to_the_same_bytes(tmp_path):
    counting = Interrupting()
    whole = make(progress=counting).to_bytes()
    for stop in (2, counting.reports // 2, counting.reports - 1):
        file = tmp_path / f"{stop}.ckpt"
        with pytest.raises(KeyboardInterrupt):
            make(progress=Interrupting(stop), checkpoint=file)
        assert make(checkpoint=file).to_bytes() == whole
        assert not list(tmp_path.iterdir())


def test_the_process_itself_is_a_rival():
    found = evaluate(make(), candidates=6, rivals=["landscape-probes"])
    (rival,) = found.rivals
    assert rival.name == "landscape-probes"
    assert "6 full trainings" in rival.description
    other = evaluate(quick_make(val_method="random", options=None), candidates=4, rivals=["landscape-probes"])
    assert not other.rivals


def test_cost_counts_trainings():
    made = plan(tiny_task(), SPACE, train_size=6, val_size=9, val_method="landscape", options=QUICK)
    (expense,) = made.way.cost(made, made.task, "cpu")
    assert (expense.full_trainings, expense.copy_trainings) == (6, 32)
    assert "6 full-data trainings of 2 steps" in expense.words


def test_finite_spaces_are_refused():
    with pytest.raises(InputError, match="space 'gnn-zoo' is finite"):
        plan(tiny_task(), GNNZoo(), train_size=6, val_method="landscape")


def test_filters_are_even_unless_the_identity_is_fixed():
    assert PolynomialFilter().even
    assert not PolynomialFilter(basis="figure").even


def test_presets_keep_the_way_they_describe():
    task = tiny_task()
    assert plan(task, SPACE, train_size=6, val_size=9).way.name == "landscape"
    paper = plan(task, SPACE, train_size=6, val_size=9, preset="paper")
    assert (paper.way.name, paper.way.schedule, paper.way.anchors) == ("both", "sequential", 0)
    with pytest.raises(InputError, match="preset 'paper' does not describe val_method 'landscape'"):
        plan(task, SPACE, train_size=6, val_size=9, preset="paper", val_method="landscape")


def test_trainings_for_condensing_are_charged_even_if_a_table_knows_others():
    lam = {"lam": [[0.0], [1.0]], "score": [0.1, 0.2]}
    context = SimpleNamespace(
        small=SimpleNamespace(meta={"probes": lam, "truth": "table"}, record={"probe_seconds": 0.0}),
        full=SimpleNamespace(seeds=3), full_seconds=60.0, configs=[{}] * 5, space=None,
    )  # fmt: skip
    assert probe_seconds(context) == pytest.approx(2 * 60 / (5 * 3))
    context.small.meta["probes"] = {"configs": [{}], "score": [0.1]}
    context.small.record, context.space = (
        {"probe_seconds": 7.0},
        SimpleNamespace(features=lambda config: [0.0]),
    )
    assert probe_seconds(context) == 7
