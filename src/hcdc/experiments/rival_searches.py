"""Other ways to search, replayed on a recorded pool under the same clock as the ladder.

Each is a small function of a `Session`, which trains candidates, counts seconds and stops at the budget. All
select by the single runs that they see; none keeps seconds back to train its pick again.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import linalg, stats

from hcdc.core.configs import Config, config_hash
from hcdc.core.errors import InputError, require
from hcdc.core.ranks import standard_ranks
from hcdc.core.seeds import derive, numpy_stream
from hcdc.experiments.replay_problem import RecordedRung, Replay
from hcdc.search.searchers import Exhausted, searcher
from hcdc.spaces import Space

Array = NDArray[np.float64]

PATIENCE = 200
"""A method that asks this many times in a row for what it knows already has nothing left to try."""
STARTUP = 4
"""Random full trainings before the first model of the Gaussian process."""
POOL = 500
"""Random and nearby candidates among which it chooses in an infinite space."""
SHORT_PART = 0.5
"""Part of the budget left that the filters (such as parameters -> short -> full) spend on short trainings."""


class Spent(Exception):
    """The next training would exceed the budget."""


@dataclass
class Trace:
    """What a method did.

    Attributes:
        curve: Its pick so far, as pairs of seconds and configuration, one per change.
        seconds: Seconds spent.
        trainings: Candidates scored, by rung.
    """

    curve: list[tuple[float, Config]] = field(default_factory=list)
    seconds: float = 0.0
    trainings: dict[str, int] = field(default_factory=dict)


class Session:
    """A simulated machine: scores candidates, and picks the best full training so far.

    Args:
        problem: The pool.
        budget: Seconds.
        seed: Seed of the method and of its trainings.
    """

    def __init__(self, problem: Replay, budget: float, seed: int):
        self.problem, self.budget, self.seed = problem, budget, seed
        self.fidelities = problem.fidelities
        self.trace = Trace(trainings={rung.name: 0 for rung in problem.rungs})
        self.best = -math.inf
        self._known: dict[tuple[str, str], float] = {}
        self._met: set[str] = set()
        self._idle = 0

    @property
    def left(self) -> float:
        """Seconds left."""
        return self.budget - self.trace.seconds

    def stream(self, name: str) -> np.random.Generator:
        """The random stream of a method."""
        return numpy_stream(self.seed, "replay", name)

    def train(self, rung: RecordedRung, configs: Sequence[Config]) -> Array:
        """Scores ``[n]`` on a rung, NaN for what is no candidate; known scores cost nothing.

        Raises:
            Spent: Not all of them fit into the budget; those that do count.
        """
        keys = [(rung.name, config_hash(config)) for config in configs]
        fresh = {key: c for key, c in zip(keys, configs) if key not in self._known and self.problem.known(c)}
        self._idle = 0 if fresh else self._idle + 1
        if self._idle > PATIENCE:
            raise Spent
        seconds = np.cumsum([rung.cost(config, self.seed) for config in fresh.values()])
        paid = list(fresh.items())[: int((seconds <= self.left + 1e-9 * rung.price).sum())]
        for (key, _), outcome in zip(paid, rung.run([config for _, config in paid], self.seed)):
            self._known[key] = outcome.score
            self._met.add(key[1])
            self.trace.seconds += outcome.seconds
            self.trace.trainings[rung.name] += 1
            if rung is self.fidelities[-1] and outcome.score > self.best:
                self.best = outcome.score
                self.trace.curve.append((self.trace.seconds, outcome.config))
        if len(paid) < len(fresh):
            raise Spent
        return np.array([self._known.get(key, math.nan) for key in keys])

    def pay(self, seconds: float) -> None:
        """Pay for what is no training of one candidate.

        Raises:
            Spent: It does not fit into the budget.
        """
        if seconds > self.left:
            raise Spent
        self.trace.seconds += seconds

    def settled(self, proposal: Config, others: Iterable[Config] = ()) -> Config:
        """The candidate to train for a proposal, see `Replay.settled`; neither trained nor one of others."""
        return self.problem.settled(proposal, self._met.union(map(config_hash, others)))

    def full(self, configs: Sequence[Config]) -> Array:
        """Full scores ``[n]``, see `train`."""
        return self.train(self.fidelities[-1], configs)


Method = Callable[[Session], None]


def replay(method: Method, problem: Replay, budget: float, seed: int) -> Trace:
    """Run a method until the budget is spent or it has nothing left to try."""
    session = Session(problem, budget, seed)
    with contextlib.suppress(Spent, Exhausted):
        method(session)
    return session.trace


# --- full trainings only ------------------------------------------------------------------------------------


def asked(name: str) -> Method:
    """A searcher of the library: random search, regularised evolution, local search."""

    def method(session: Session) -> None:
        asking = searcher(name, session.problem.space, session.seed)
        while True:
            proposal = asking.ask()
            config = session.settled(proposal)
            if config != proposal:
                asking.pending.remove(proposal)
            asking.tell(config, float(session.full([config])[0]))

    return method


class Suggester:
    """Points of a space from Optuna's TPE: numbers of options in a discrete space, values elsewhere.

    Args:
        space: The space.
        seed: Seed of the sampler.
        settings: Further settings of Optuna's ``TPESampler``.
    """

    def __init__(self, space: Space, seed: int, **settings: Any):
        optuna = require("optuna", "hpo")
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        self._optuna, self.space, self._sizes = optuna, space, space.decisions()
        sampler = optuna.samplers.TPESampler(seed=seed % 2**32, **settings)
        self.study = optuna.create_study(direction="maximize", sampler=sampler)
        kinds = optuna.distributions
        if self._sizes is not None:
            options: dict[str, Sequence[Any]] = {str(k): range(size) for k, size in enumerate(self._sizes)}
        else:
            options = {d.name: d.choices for d in space.dimensions() if d.distribution == "choice"}
        self._kinds = {name: kinds.CategoricalDistribution(some) for name, some in options.items()}
        for d in space.dimensions() if self._sizes is None else ():
            if d.distribution != "choice":
                kind = kinds.IntDistribution if d.whole else kinds.FloatDistribution
                low, high = (int(d.low), int(d.high)) if d.whole else (d.low, d.high)
                self._kinds[d.name] = kind(low, high, log=d.distribution == "log-uniform")

    def draw(self) -> dict[str, Any]:
        """A point; nothing is expected back."""
        trial = self.study.ask(self._kinds)
        self.study.tell(trial, state=self._optuna.trial.TrialState.FAIL)
        return dict(trial.params)

    def tell(self, point: dict[str, Any], score: float) -> None:
        """Enter the score of a point; NaN counts as the worst so far."""
        if math.isnan(score):
            score = min((trial.value for trial in self.study.trials if trial.value is not None), default=0.0)
        made = self._optuna.trial.create_trial(params=point, distributions=self._kinds, value=score)
        self.study.add_trial(made)

    def config(self, point: dict[str, Any]) -> Config:
        """The candidate at a point."""
        if self._sizes is None:
            return dict(point)
        return self.space.counterpart(self.space.from_numbers([point[str(k)] for k in range(len(point))]))

    def point(self, config: Config) -> dict[str, Any]:
        """The point of a candidate."""
        if self._sizes is None:
            return dict(config)
        return {str(k): number for k, number in enumerate(self.space.to_numbers(config))}


def tpe(session: Session) -> None:
    """Optuna's TPE (Bergstra et al., 2011) with its defaults."""
    suggester = Suggester(session.problem.space, derive(session.seed, "replay", "tpe"))
    while True:
        point = suggester.draw()
        proposal = suggester.config(point)
        config = session.settled(proposal)
        if config is not proposal:
            point = suggester.point(config)
        suggester.tell(point, float(session.full([config])[0]))


def gaussian_process(session: Session) -> None:
    """A Gaussian process on free features; each training has the greatest expected improvement."""
    rng, problem = session.stream("gp"), session.problem
    every = problem.candidates() or []
    place = {config_hash(config): i for i, config in enumerate(every)}
    described = problem.features(every) if every else None
    seen = problem.propose(STARTUP, rng)
    scores = session.full(seen).tolist()
    while True:
        old = dict.fromkeys(map(config_hash, seen))
        if described is not None:
            order = [place[key] for key in old]
            order += [i for key, i in place.items() if key not in old]
            pool, features = [every[i] for i in order[len(seen) :]], described[order]
        else:
            near = [seen[i] for i in np.argsort(-np.array(scores))[:STARTUP]]
            pool = problem.propose(POOL // 2, rng) + problem.propose(POOL // 2, rng, near)
            pool = [config for config in pool if config_hash(config) not in old]
            features = problem.features([*seen, *pool])
        if not pool:
            return
        features = features[:, features.std(0) > 1e-12]
        features = (features - features.mean(0)) / features.std(0)
        ranks = stats.norm.ppf((stats.rankdata(scores) - 0.5) / len(scores))
        mean, deviation = posterior(features[: len(seen)], ranks, features[len(seen) :])
        gain = (mean - ranks.max()) / deviation
        improvement = deviation * (gain * stats.norm.cdf(gain) + stats.norm.pdf(gain))
        pick = pool[int(np.argmax(improvement))]
        scores += session.full([pick]).tolist()
        seen.append(pick)


def posterior(at: Array, values: Array, new: Array) -> tuple[Array, Array]:
    """Mean and standard deviation ``[m]`` of a Gaussian process at ``new [m, f]``, given ``values [n]``.

    Matern 5/2 kernel and noise; length scale and noise have the greatest evidence among a few.
    """
    best, chosen = -math.inf, (np.empty(0), np.empty((0, 0)), 1.0)
    apart, away = _distances(at, at), _distances(new, at)
    for length in (0.5, 1.0, 2.0, 4.0):
        for noise in (0.01, 0.05, 0.2):
            root = linalg.cholesky(_matern(apart / length) + noise * np.eye(len(at)), lower=True)
            half = linalg.solve_triangular(root, values, lower=True)
            evidence = float(-0.5 * half @ half - np.log(np.diag(root)).sum())
            if evidence > best:
                best, chosen = evidence, (half, root, length)
    half, root, length = chosen
    weights = linalg.solve_triangular(root, _matern(away / length).T, lower=True)
    return weights.T @ half, np.sqrt(np.maximum(1 - (weights**2).sum(0), 1e-9))


def _distances(a: Array, b: Array) -> Array:
    """Root mean square differences ``[n, m]`` over features."""
    square = (a**2).sum(1)[:, None] + (b**2).sum(1)[None] - 2 * a @ b.T
    found: Array = np.sqrt(np.maximum(square, 0) / max(1, a.shape[1]))
    return found


def _matern(distance: Array) -> Array:
    scaled = math.sqrt(5) * distance
    found: Array = (1 + scaled + scaled**2 / 3) * np.exp(-scaled)
    return found


# --- short and full trainings -------------------------------------------------------------------------------


def brackets(shares: Sequence[float]) -> list[list[tuple[int, int]]]:
    """Hyperband's brackets (Li et al., 2018, Algorithm 1): fidelity and number of candidates of each round.

    Fidelities need not be powers of eta: their ratio takes its place. With them, each bracket costs at most
    about as many full trainings as there are fidelities.

    Args:
        shares: Price of each fidelity as a share of a full training, shortest first.

    Example:
        >>> brackets([1 / 9, 1 / 3, 1])
        [[(0, 9), (1, 3), (2, 1)], [(1, 5), (2, 1)], [(2, 3)]]
    """
    last, found = len(shares) - 1, []
    for first in range(last + 1):
        count = math.ceil((last + 1) / (last - first + 1) * shares[-1] / shares[first] - 1e-9)
        rounds = [(k, max(1, int(count * shares[first] / shares[k] + 1e-9))) for k in range(first, last + 1)]
        found.append(rounds)
    return found


def _shares(session: Session) -> list[float]:
    if len(session.fidelities) < 2:
        raise InputError("this method needs short trainings, and the pool has none")
    return [rung.share for rung in session.fidelities]


def _halving(
    session: Session,
    draw: Callable[[int], list[Config]],
    told: Callable[[int, Iterable[Config], Array], None] | None = None,
) -> None:
    """Hyperband with candidates from ``draw``; ``told`` hears of every round."""
    plan = brackets(_shares(session))
    while True:
        for rounds in plan:
            configs = draw(rounds[0][1])
            for k, count in rounds:
                scores = session.train(session.fidelities[k], configs[:count])
                if told is not None:
                    told(k, configs[:count], scores)
                configs = [configs[i] for i in np.argsort(-scores, kind="stable")]


def hyperband(session: Session) -> None:
    """Hyperband with random candidates."""
    rng = session.stream("hyperband")
    _halving(session, lambda count: session.problem.propose(count, rng))


def asha(session: Session) -> None:
    """Asynchronous successive halving (Li et al., 2020) with one worker, from the shortest fidelity."""
    shares, rng = _shares(session), session.stream("asha")
    scores: list[dict[str, float]] = [{} for _ in shares]
    promoted: list[set[str]] = [set() for _ in shares]
    configs: dict[str, Config] = {}

    def score(k: int, key: str) -> None:
        scores[k][key] = float(session.train(session.fidelities[k], [configs[key]])[0])

    while True:
        for k in range(len(shares) - 2, -1, -1):
            best = sorted(scores[k], key=lambda key: -scores[k][key])
            keep = best[: int(len(best) * shares[k] / shares[k + 1] + 1e-9)]
            waiting = [key for key in keep if key not in promoted[k]]
            if waiting:
                promoted[k].add(waiting[0])
                score(k + 1, waiting[0])
                break
        else:
            config = session.problem.propose(1, rng)[0]
            configs[config_hash(config)] = config
            score(0, config_hash(config))


def bohb(session: Session) -> None:
    """BOHB (Falkner et al., 2018): Hyperband whose candidates come from TPE, a third of them at random.

    The model sees the longest fidelity with at least two more candidates than it has dimensions plus one.
    """
    space, rng = session.problem.space, session.stream("bohb")
    models = [
        Suggester(space, derive(session.seed, "replay", "bohb", k), multivariate=True, n_startup_trials=0)
        for k in range(len(_shares(session)))
    ]
    told = [0] * len(models)
    needed = len(space.decisions() or space.dimensions()) + 3

    def draw(count: int) -> list[Config]:
        model = next((models[k] for k in reversed(range(len(models))) if told[k] >= needed), None)
        found: list[Config] = []
        while len(found) < count:
            if model is None or rng.random() < 1 / 3:
                found += session.problem.propose(1, rng)
            elif session.problem.known(config := session.settled(model.config(model.draw()), found)):
                found.append(config)
        return found

    def tell(k: int, configs: Iterable[Config], scores: Array) -> None:
        for config, score in zip(configs, scores.tolist()):
            models[k].tell(models[k].point(config), score)
            told[k] += 1

    _halving(session, draw, tell)


# --- filters ------------------------------------------------------------------------------------------------


def filtered(*, free: bool) -> Method:
    """Rank all candidates by parameters (with jacov: the sum of both ranks), train the first for a few
    epochs, and the best of these in full."""

    def method(session: Session) -> None:
        problem = session.problem
        every = problem.candidates()
        if every is None or problem.size is None:
            raise InputError("filtering by parameters needs a finite space of networks")
        ranks = standard_ranks([problem.size(config) for config in every])
        if free:
            rung = problem.rung("free")
            if rung is None:
                raise InputError("the pool has no training-free scores")
            ranks += standard_ranks(session.train(rung, every))
        _short_then_full(session, every, ranks)

    return method


def one_shot(session: Session) -> None:
    """SPOS (Guo et al., 2020): rank all candidates by one supernet, train the first for a few epochs, and the
    best of these in full."""
    problem = session.problem
    every, supernet = problem.candidates(), problem.supernet
    if every is None or supernet is None:
        raise InputError("the pool has no scores of a supernet")
    session.pay(supernet.seconds)
    _short_then_full(session, every, np.array([supernet.score(config) for config in every]))


def _short_then_full(session: Session, every: Sequence[Config], ranks: Array) -> None:
    """Train the highest ranks ``[n]`` for a few epochs, and the best of these in full."""
    order = np.lexsort((session.stream("filtered").random(len(every)), -ranks))
    chosen = [every[i] for i in order]
    if len(session.fidelities) > 1:
        short = session.fidelities[-2]
        chosen = chosen[: max(1, int(SHORT_PART * session.left / short.price))]
        scores = session.train(short, chosen)
        chosen = [chosen[i] for i in np.argsort(-scores, kind="stable")]
    session.full(chosen)


def random_subset(session: Session) -> None:
    """Train random candidates on a random subset of the real examples, and the best of these in full."""
    subset = session.problem.subset
    if subset is None:
        raise InputError("the pool has no trainings on a random subset of the examples")
    session.pay(subset.once)
    count = max(1, int(SHORT_PART * session.left / subset.price))
    chosen = session.problem.propose(count, session.stream("random-subset"))
    scores = session.train(subset, chosen)
    session.full([chosen[i] for i in np.argsort(-scores, kind="stable")])


def summed_loss(session: Session) -> None:
    """Training speed estimation (Ru et al., 2021): train random candidates for a few epochs, and those with
    the smallest sum of training losses in full."""
    problem = session.problem
    short = next((rung for rung in reversed(session.fidelities[:-1]) if rung.loss is not None), None)
    if short is None or short.loss is None:
        raise InputError("the pool has no sums of training losses")
    count = max(1, int(SHORT_PART * session.left / short.price))
    chosen = problem.propose(count, session.stream("summed-loss"))
    session.train(short, chosen)
    session.full(sorted(chosen, key=short.loss))
