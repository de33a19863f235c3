"""DEHB: Hyperband whose candidates come from differential evolution (Awad et al., 2021)."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hcdc.core.configs import Config
from hcdc.experiments.rival_searches import Session, brackets
from hcdc.spaces import Space

Array = NDArray[np.float64]

FACTOR, CROSSOVER = 0.5, 0.5
"""Mutation factor and crossover rate, the paper's."""


class Cube:
    """The unit cube in front of a space: options as equal parts of an axis, numbers on their own scale."""

    def __init__(self, space: Space):
        self.space, self._sizes, self._dimensions = space, space.decisions(), space.dimensions()
        self.axes = len(self._sizes or self._dimensions)

    def config(self, at: Array) -> Config:
        """The candidate at a point ``[axes]``."""
        if self._sizes is not None:
            numbers = [min(int(u * size), size - 1) for u, size in zip(at, self._sizes)]
            return self.space.counterpart(self.space.from_numbers(numbers))
        found: Config = {}
        for u, d in zip(at.tolist(), self._dimensions):
            if d.distribution == "choice":
                found[d.name] = d.choices[min(int(u * len(d.choices)), len(d.choices) - 1)]
                continue
            log = d.distribution == "log-uniform"
            value = d.low * (d.high / d.low) ** u if log else d.low + u * (d.high - d.low)
            value = min(max(value, d.low), d.high)
            found[d.name] = round(value) if d.whole else value
        return self.space.counterpart(found)


@dataclass
class Member:
    """A point of the cube and its score; a point that was not trained yet has the score -inf."""

    at: Array
    score: float = -math.inf


def dehb(session: Session) -> None:
    """One population per fidelity. The first bracket is successive halving of random points. Later, each
    member is challenged by a mutant; beyond a bracket's first round its parents are the best one fidelity
    below."""
    cube, rng = Cube(session.problem.space), session.stream("dehb")
    plan = brackets([rung.share for rung in session.fidelities])
    populations: list[list[Member]] = [[] for _ in session.fidelities]
    turn = [0] * len(populations)

    def scored(k: int, points: list[Array]) -> list[Member]:
        scores = session.train(session.fidelities[k], [cube.config(at) for at in points])
        return [Member(at, s) for at, s in zip(points, np.nan_to_num(scores, nan=-math.inf).tolist())]

    def mutant(target: Member, parents: list[Member]) -> Array:
        if len(parents) < 3:
            parents = parents + [member for some in populations for member in some]
        a, b, c = (parents[i].at for i in rng.choice(len(parents), 3, replace=False))
        made = a + FACTOR * (b - c)
        made = np.where((made < 0) | (made > 1), rng.random(cube.axes), made)
        cross = rng.random(cube.axes) < CROSSOVER
        cross[rng.integers(cube.axes)] = True
        return np.where(cross, made, target.at)

    points = [rng.random(cube.axes) for _ in range(plan[0][0][1])]
    for k, count in plan[0]:
        populations[k] = scored(k, points[:count])
        points = [member.at for member in sorted(populations[k], key=lambda member: -member.score)]
    todo = plan[1:]
    while True:
        for rounds in todo:
            for position, (k, count) in enumerate(rounds):
                own = populations[k]
                own += [Member(rng.random(cube.axes)) for _ in range(count - len(own))]
                below = sorted(populations[k - 1] if position else own, key=lambda member: -member.score)
                parents = below[:count] if position else own
                places = [(turn[k] + j) % len(own) for j in range(count)]
                turn[k] = (turn[k] + count) % len(own)
                for place, fresh in zip(places, scored(k, [mutant(own[i], parents) for i in places])):
                    if fresh.score >= own[place].score:
                        own[place] = fresh
        todo = plan
