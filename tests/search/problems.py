"""Problems with known answers, for the tests of the ladder."""

from __future__ import annotations

import numpy as np

from hcdc.core.configs import config_hash
from hcdc.search import Outcome, Problem, Rung


class Noisy(Rung):
    """The truth plus noise that belongs to the candidate, at a fixed price."""

    def __init__(self, name, share, truth, noise, price, fails=lambda config: False):
        self.name, self.share, self.truth, self.noise, self.price, self.fails = (
            name,
            share,
            truth,
            noise,
            price,
            fails,
        )
        self.calls = 0

    def run(self, configs, seed):
        for config in configs:
            self.calls += 1
            rng = np.random.default_rng(int(config_hash(config), 16) % 2**32 + seed % 1000 + len(self.name))
            if self.fails(config):
                yield Outcome(config, float("nan"), self.price, "failed", note="it failed")
            else:
                yield Outcome(config, self.truth(config) + self.noise * rng.standard_normal(), self.price)


class Square(Problem):
    """Maximise ``-(x - 0.3)^2 - (y - 0.7)^2`` on the unit square, or on a grid of it.

    The cheap rung costs 1 s, the full one 20 s.
    """

    def __init__(self, cheap_noise=0.02, grid=None, full_noise=0.001, fails=lambda config: False):
        self.grid = grid
        self.rungs = [
            Noisy("cheap", 0.05, self.truth, cheap_noise, 1.0, fails),
            Noisy("full", 1.0, self.truth, full_noise, 20.0, fails),
        ]

    @staticmethod
    def truth(config):
        return -((config["x"] - 0.3) ** 2) - (config["y"] - 0.7) ** 2

    def candidates(self):
        if self.grid is None:
            return None
        at = np.linspace(0, 1, self.grid)
        return [{"x": float(x), "y": float(y)} for x in at for y in at]

    def propose(self, count, rng, near=()):
        if not near:
            return [{"x": x, "y": y} for x, y in rng.random((count, 2)).tolist()]
        base = [near[i] for i in rng.integers(len(near), size=count)]
        steps = rng.normal(0, 0.05, (count, 2))
        return [
            {"x": float(np.clip(c["x"] + dx, 0, 1)), "y": float(np.clip(c["y"] + dy, 0, 1))}
            for c, (dx, dy) in zip(base, steps)
        ]

    def features(self, configs):
        return np.array([[c["x"], c["y"]] for c in configs], float).reshape(-1, 2)

    def described(self, configs):
        return {name: np.array([c[name] for c in configs]) for name in ("x", "y")}

    def spec(self):
        return {"name": "square", "grid": self.grid}


class Mistaken(Square):
    """A cheap rung that prefers kind "a" by a wide margin; in truth, kind "b" is better by a little."""

    kinds = "abcd"

    def __init__(self):
        self.grid = None
        self.rungs = [
            Noisy("cheap", 0.05, lambda c: Square.truth(c) + 0.3 * (c["kind"] == "a"), 0.1, 1.0),
            Noisy("full", 1.0, self.truth, 0.001, 20.0),
        ]

    @staticmethod
    def truth(config):
        return Square.truth(config) + 0.05 * (config["kind"] == "b")

    def propose(self, count, rng, near=()):
        found = super().propose(count, rng, near)
        return [{**c, "kind": self.kinds[k]} for c, k in zip(found, rng.integers(4, size=count))]

    def features(self, configs):
        return np.concatenate([super().features(configs), self._kinds(configs)], 1)

    def described(self, configs):
        return {**super().described(configs), "kind": self._kinds(configs)}

    def _kinds(self, configs):
        return np.array([[float(c["kind"] == k) for k in self.kinds] for c in configs]).reshape(-1, 4)


class Three(Square):
    """A rung between: it costs 5 s and has less noise."""

    def __init__(self, **options):
        super().__init__(**options)
        self.rungs.insert(1, Noisy("short", 0.25, self.truth, 0.005, 5.0))
