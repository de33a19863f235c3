"""A third of the proposals is always random, on the ladder and on a copy alone."""

import numpy as np
import pytest
from tests.search.problems import Square

import hcdc
from hcdc.core.configs import config_hash
from hcdc.search import Ladder, LadderSettings, Outcome, Rung, Store, TaskProblem
from hcdc.search._copy_alone import BLIND, POOL


class Named(Square):
    """Every proposal says where it came from; being random is worth nothing."""

    def propose(self, count, rng, near=()):
        return [{**c, "from": "steps" if near else "random"} for c in super().propose(count, rng, near)]


class Proposes:
    """A sampler that proposes around one point."""

    def propose(self, rung, outcomes, distributions, count, seconds):
        at = np.random.default_rng(len(outcomes)).normal(0.3, 0.01, (count, 2))
        return [{"x": float(x), "y": float(y), "from": "sampler"} for x, y in at]


@pytest.mark.parametrize("sampler", [None, Proposes()])
def test_a_third_of_every_pool_is_random(sampler, monkeypatch):
    """Of what waits to be tried after each renewal, whatever the best so far are."""
    shares, renew = [], Ladder.renew_pool

    def renewed(self, rng):
        renew(self, rng)
        tried = {i for outcomes in self.board.outcomes.values() for i in outcomes}
        waiting = [c["from"] for i, c in enumerate(self.board.configs) if i not in {*tried, *self.sample}]
        shares.append(waiting.count("random") / len(waiting))

    monkeypatch.setattr(Ladder, "renew_pool", renewed)
    settings = LadderSettings(waves=4, pool=90, draws=16)
    Ladder(Named(), 400, 0, Store(), settings, sampler).climb()
    assert len(shares) == 4
    assert shares == pytest.approx([1 / 3] * 4, abs=0.05)


class Bowl(Rung):
    """A copy on which the penalties should be 1; keeps what was tried, in order."""

    name, batch = "copy", 4

    def __init__(self):
        self.tried = []

    def run(self, configs, seed):
        for config in configs:
            self.tried.append(config_hash(config))
            yield Outcome(config, -float(sum(np.log10(value) ** 2 for value in config.values())), 0.01)


def test_a_third_of_the_trials_on_a_copy_is_random_and_of_the_proposals_after_them(monkeypatch):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(60, 2)).astype(np.float32)
    task = hcdc.TableTask(hcdc.data((x, (x[:, 0] > 0).astype(np.int64))), "logistic")
    recipe = {"steps": 2, "seeds": 1}
    small = hcdc.condense(
        task, task.space(), "random", train_size=10, val_method="real", recipe=recipe, checkpoint=None
    )
    copy, calls, drawn = Bowl(), [], {"random": set(), "steps": set()}
    propose = TaskProblem.propose

    def proposed(self, count, rng, near=()):
        found = propose(self, count, rng, near)
        calls.append((count, bool(near)))
        drawn["steps" if near else "random"] |= set(map(config_hash, found))
        return found

    monkeypatch.setattr(TaskProblem, "_copy", lambda *_: copy)
    monkeypatch.setattr(TaskProblem, "propose", proposed)
    hcdc.search(small, trials=36)
    assert len(copy.tried) == 36
    assert pytest.approx(1 / 3) == BLIND
    assert set(copy.tried[:12]) <= drawn["random"]
    assert calls[:3] == [(4, False)] * 3
    assert calls[3:] == [(POOL // 3, False), (2 * POOL // 3, True)] * 6
    assert set(copy.tried) & drawn["steps"]  # the model likes to stay close to the best
