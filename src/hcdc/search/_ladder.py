"""The ladder: many candidates on cheap rungs, fewer on each dearer one, the best few trained in full."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Mapping, Sequence

import numpy as np

from hcdc.core.configs import Config
from hcdc.core.errors import HcdcError, InputError
from hcdc.core.found import Found
from hcdc.core.progress import Progress
from hcdc.core.seeds import derive, numpy_stream
from hcdc.evaluation.trust import rank_estimate
from hcdc.search._allocation import Simulation, allocate, improving
from hcdc.search._audits import complete
from hcdc.search._board import Board, Index, Posterior
from hcdc.search._first import first_full, started
from hcdc.search._free import score_free
from hcdc.search._hurry import hurry, trainings_are_quick
from hcdc.search._intervals import slope_is_positive
from hcdc.search._overhead import Overhead
from hcdc.search._prices import Prices
from hcdc.search._problem import STEEP, Outcome, Problem, Rung
from hcdc.search._sampler import Sampler
from hcdc.search._settings import LadderSettings
from hcdc.search._size import hoped
from hcdc.search._store import Store
from hcdc.search._summary import summary

log = logging.getLogger("hcdc")
LEVEL = 0.9
"""Level of intervals."""
ASKING = 0.01
"""Largest share of the budget for the proposals of a sampler in one wave."""
OVER, LAST = 1.05, 1.1
"""No candidate is started that is expected to end beyond this share of the budget; the second is for the
winner's last training, without which there is no score."""
JUDGED, ADDING = 12, 0.95
"""Pairs from which a rung is compared with the hint, and the level of that test."""
EARLY, LATE = 1.5, 0.5
"""In a wave, stand-ins get this many times their even part of the plan, full trainings the second."""
QUICK = 0.05
"""The model is fitted before each batch of full trainings if that takes at most this share of one."""
FIRST, STARTING = 4, 0.1
"""Candidates on the cheapest rung before any rung is found too dear, unless they take this share of the
budget."""
PAUSE, MOMENT = 32, 0.002
"""Overhead is counted after so many batches at the latest. Quick trainings of this share of the budget are
planned together."""
TRIFLE = 0.01
"""A last training that takes at most this share of the budget is always made."""
AUDITING, FEWEST_AUDITS = 0.12, 8
"""At most this share of the budget is for audits in full; a rung between is too dear if it would not pay for
so many of its candidates."""
MOST, DEAR = 0.2, 2.0
"""Largest share of the budget for one full training while cheaper ones can be had; one that takes at most
``DEAR`` times the mean is never too dear, as good candidates often cost more."""


class Ladder:
    """One search.

    Args:
        problem: What is searched.
        budget: Seconds, everything included.
        seed: Decides every draw.
        store: Keeps outcomes and decisions; a store with a finished part continues it.
        settings: How the budget is spent.
        known: Full results from before the search, which cost nothing.
        sampler: Makes two thirds of the proposals in an infinite space; else they are steps from the best.
        progress: Where progress is reported.
        before: Seconds that the search took so far, which the budget includes.
    """

    def __init__(
        self,
        problem: Problem,
        budget: float,
        seed: int = 0,
        store: Store | None = None,
        settings: LadderSettings | None = None,
        sampler: Sampler | None = None,
        known: Sequence[Outcome] = (),
        progress: Progress | None = None,
        before: float = 0.0,
    ):
        if not budget > 0:
            raise InputError(f"budget {budget:g} s: a search needs a positive number of seconds")
        self.problem, self.budget, self.seed = problem, budget, seed
        self.store, self.settings = store or Store(), settings or LadderSettings()
        self.board, self.sampler, self.known = Board(problem), sampler, known
        self.free = [rung.name for rung in problem.rungs if rung.share == 0]
        self.paid = [rung for rung in problem.rungs if rung.share > 0]
        self.full, self.prices = self.paid[-1], Prices(self.board, self.paid)
        self.dropped: dict[str, str] = {}
        self.warnings: list[str] = []
        self.trials, self.failures = 0, list[str]()  # trainings on paid rungs, and why some of them failed
        self.spent: dict[str, float] = {rung.name: rung.once for rung in self.paid}
        self.overhead, self.decisions = Overhead(self.store, before), 0
        self.alone = False  # whether only one full training fits, so nothing is kept back for another
        self.hurried = False  # whether full trainings are quick beside decisions
        self.audits: dict[str, list[int]] = {rung.name: [] for rung in self.paid}
        self.sample: list[int] = []
        self.curve: list[tuple[float, float]] = []
        self.repeats: dict[int, dict[int, Outcome]] = {}
        self.compared = False  # whether all finalists were trained again
        self._phase = (progress or Progress()).phase("seconds of search", max(1, int(budget)))

    # Accounts

    @property
    def seconds(self) -> float:
        """Seconds spent so far, everything included."""
        return sum(self.spent.values()) + self.overhead.seconds

    @property
    def kept(self) -> list[Rung]:
        """Rungs in use, cheapest first."""
        return [rung for rung in self.paid if rung.name not in self.dropped]

    def reserve(self) -> float:
        """Seconds kept for the finalists and the winner's last training: 15 % of the budget at most.

        A budget for less than two full trainings has none to spare; nor has one whose price is not known yet.
        """
        price = self.prices.of(self.full)
        best = [o.seconds for o in self._best_full()[: self.settings.finalists] if not o.known]
        price = max([price, *best])
        if math.isnan(price) or self.budget < 2 * price:
            return 0.0
        finalists = self.settings.finalists
        return price * (finalists + 1 if int(0.15 * self.budget / price) > finalists else 1)

    def end(self, repeat: int) -> float:
        """Seconds at which the last candidate must have ended: first scores leave the reserve alone."""
        if repeat == 2:
            return max(LAST * self.budget, self.seconds + TRIFLE * self.budget)
        if repeat or self.alone:
            return OVER * self.budget
        thinking = 4 * self.overhead.mean if self.curve else 0.0  # to come, but a full score comes first
        return OVER * self.budget - thinking - self.reserve()

    def decide(self) -> np.random.Generator:
        """The random stream of the next decision."""
        self.decisions += 1
        self.overhead.tick()
        return numpy_stream(self.seed, "ladder", self.decisions)

    # Evaluation

    def evaluate(self, rung: Rung, indices: Sequence[int], repeat: int = 0) -> list[Outcome]:
        """Score candidates on a rung, or take what the store has; leave out what would overrun the budget."""
        found: list[Outcome] = []
        self.overhead.tick()
        step = self._together(rung)
        for number, start in enumerate(range(0, len(indices), step), 1):
            if number % PAUSE == 0:
                self.overhead.pause()
            if rung.name in self.dropped or (repeat == 0 and rung is self.kept[0] and self._enough(rung)):
                break
            some = self._affordable(rung, indices[start : start + step], repeat)
            configs = [self.board.configs[i] for i in some]
            known = [self.store.known(rung.name, repeat, config) for config in configs]
            missing = [config for config, outcome in zip(configs, known) if outcome is None]
            fresh = rung.run(missing, derive(self.seed, "search", rung.name, repeat))
            for config, outcome in zip(configs, known):
                if outcome is None:
                    with self.store.begun(rung.name, repeat, config):
                        begun = time.perf_counter()  # only now: the store may wait for others
                        outcome = next(fresh)
                        self.overhead.leave_out(time.perf_counter() - begun)
                    self.store.tell(rung.name, repeat, outcome)
                self._account(rung, repeat, outcome)
                found.append(outcome)
        return found

    def _together(self, rung: Rung) -> int:
        """Candidates that are planned together: a batch, or more where trainings are quick."""
        if not self.hurried:
            return rung.batch
        return rung.batch * max(1, int(MOMENT * self.budget / self.prices.of(rung) / rung.batch))

    def _affordable(self, rung: Rung, indices: Sequence[int], repeat: int) -> list[int]:
        """The candidates that the budget has room for, in order, without those that are too dear.

        A first full training needs room for another one: the candidate may be the best, and would then be
        trained again for its score.
        """
        first = rung is self.full and repeat == 0 and not self.alone
        kept = self.reserve() if first else math.inf
        return self.prices.room(rung, indices, self.end(repeat) - self.seconds, kept)

    def _enough(self, rung: Rung) -> bool:
        most = self.settings.candidates
        return most is not None and len(self.board.outcomes[rung.name]) >= most

    def _account(self, rung: Rung, repeat: int, outcome: Outcome) -> None:
        self.spent[rung.name] = self.spent.get(rung.name, 0.0) + outcome.seconds
        self.problem.tell(rung, outcome)
        if rung in self.paid:
            self.trials += 1
            self.failures += [outcome.note] if outcome.state == "failed" else []
        if repeat == 0:
            self.board.tell(rung.name, [outcome])
            self._check_failures(rung)
        if rung is self.full and outcome.complete and repeat == 0:
            best = max([outcome.score, *(score for _, score in self.curve[-1:])])
            self.curve.append((self.seconds, best))
        self._show()

    def _show(self) -> None:
        """Report how many candidates each rung has, and the best full score so far."""
        counts = [f"{rung.name} {len(self.board.outcomes[rung.name])}" for rung in self.paid]
        best = f"best {self.curve[-1][1]:.4f}" if self.curve else "no full score yet"
        self._phase.left = max(0.0, self.budget - self.seconds)
        self._phase.step(min(int(self.seconds), self._phase.total - 1), f"{', '.join(counts)}, {best}")

    def _check_failures(self, rung: Rung) -> None:
        """Drop a stand-in on which nothing ever worked; stop if that is so in full."""
        outcomes = self.board.outcomes[rung.name]
        if len(outcomes) != 5 or any(o.complete for o in outcomes.values()):
            return
        failed = f"the first five candidates all failed on rung '{rung.name}'"
        note = next(reversed(outcomes.values())).note
        if rung not in self.kept[:-1] and rung.name not in self.free:
            raise HcdcError(f"{failed}: {note}")
        self.dropped[rung.name] = f"the first five candidates all failed: {note}"
        self.warnings.append(f"{failed}, so it was dropped: {note}")

    # The climb

    def climb(self) -> Found:
        """Spend the budget; what was found."""
        self.store.open({**self.problem.spec(), "seed": self.seed}, self.problem.distributions)
        everything = self.problem.candidates()
        if everything is not None:
            self.board.add(everything)
        self.board.tell(self.full.name, self.known)
        if self.known:
            self.curve.append((self.seconds, max(outcome.score for outcome in self.known)))
        score_free(self)
        self._pilot()
        if trainings_are_quick(self):
            hurry(self)
        else:
            for wave in range(self.settings.waves, 0, -1):
                if not self._wave(wave) and not first_full(self):
                    break
        self._confirm()
        return summary(self)

    def renew_pool(self, rng: np.random.Generator) -> None:
        """New proposals: a third at random, the others from the sampler or close to the best so far."""
        if self.problem.candidates() is not None:
            return
        count = self.settings.pool
        fresh = self.problem.propose(count - 2 * count // 3, rng)
        if self.sampler is not None:
            fresh += self._sampled(self.sampler, 2 * count // 3)
        elif best := self.leaders(8):
            fresh += self.problem.propose(2 * count // 3, rng, [self.board.configs[i] for i in best])
        self.board.renew(fresh, self.sample)

    def _sampled(self, sampler: Sampler, count: int) -> list[Config]:
        """Proposals of a sampler that learns from the rung with most candidates."""
        key = f"proposals {self.decisions}"
        found = self.store.noted(key)
        if found is None:
            rung = max(self.kept, key=lambda rung: len(self.board.outcomes[rung.name])).name
            given = self.problem.distributions, count, ASKING * self.budget
            found = sampler.propose(rung, list(self.board.outcomes[rung].values()), *given)
        return [self.problem.candidate(params) for params in self.store.note(key, found)]

    def leaders(self, count: int) -> list[int]:
        """The best candidates on the dearest rung that has scored ``count`` of them, best first."""
        for rung in reversed(self.kept):
            scores = self.board.scores(rung.name)
            seen = np.flatnonzero(np.isfinite(scores))
            if len(seen) >= count or (len(seen) and rung is self.kept[0]):
                return [int(i) for i in seen[np.argsort(-scores[seen], kind="stable")][:count]]
        return []

    def _pilot(self) -> None:
        """Score a uniform sample on every rung: the audit samples, and the first data of the model."""
        rng = self.decide()
        if self.problem.candidates() is None:
            self.board.add(self.problem.propose(self.settings.pool, rng))
        order = [int(i) for i in rng.permutation(len(self.board.configs))]
        known = [i for i in order if i in self.board.outcomes[self.full.name]]
        sample = [i for i in order if i not in self.board.outcomes[self.full.name]][: self.settings.audits]
        for number in (0, 1):
            self.evaluate(self.paid[0], sample[number : number + 1])
        self._drop_steep()
        if self.paid[0] in self.kept[:-1]:
            for number in range(2, FIRST):
                if self.spent[self.paid[0].name] < STARTING * self.budget:
                    self.evaluate(self.paid[0], sample[number : number + 1])
        self.sample = sample
        self._thin()
        for below, rung in zip([None, *self.kept], self.kept):
            sample = sample[: self._audit_size(rung)]
            if rung is self.full and below is not None:  # one of them may take half of the budget
                sample = self.prices.first_within(rung, sample, AUDITING * self.budget)
            if below is not None:
                place = self.paid.index(rung) - 1
                self.audits[self.paid[place].name] = self.store.note(f"audit {below.name}", sample)
            self.evaluate(rung, [i for i in sample if i not in self.board.outcomes[rung.name]])
        for rung in self.kept[:-1]:  # on cheaper rungs, what is known in full teaches the model
            self.evaluate(rung, known[: self._audit_size(rung)])

    def _drop_steep(self) -> None:
        """Drop the lowest rungs that save too little."""
        while len(self.kept) > 1 and (share := self.prices.share(self.kept[0])) > STEEP:
            self.dropped[self.kept[0].name] = f"saves too little: costs {share:.0%} of a full training"

    def _thin(self) -> None:
        """Drop rungs that save too little, and rungs between that are too dear to be audited."""
        self._drop_steep()
        for rung in self.kept[1:-1]:
            if FEWEST_AUDITS * self.prices.of(rung) > AUDITING * self.budget:
                seems = "" if self.prices.measured(rung) else "expected to be "
                self.dropped[rung.name] = f"{seems}too expensive for this budget"

    def _audit_size(self, rung: Rung) -> int:
        """Size of the uniform sample on a rung: as many as a small part of the budget pays for."""
        price, most = self.prices.of(rung), self.settings.audits
        if math.isnan(price):  # not one candidate fitted
            return 0
        if rung is not self.full:
            return max(2, min(most, int(0.05 * self.budget / price)))
        affordable = max(0, int((self.end(0) - self.seconds) / price))
        least = 0 if len(self.kept) > 1 else 2  # full trainings alone: the model needs a start
        return min(
            max(least, min(self.settings.full_audits, int(AUDITING * self.budget / price))), affordable
        )

    def audited(self, rung: Rung) -> tuple[str, list[int]]:
        """The next rung in use, and the audit sample that was scored on it: a part of the rung's own."""
        place = next(k for k, r in enumerate(self.paid) if k > self.paid.index(rung) and r in self.kept)
        return self.paid[place].name, self.audits[self.paid[place - 1].name]

    def agreement(self, rung: Rung) -> tuple[float, tuple[float, float], int]:
        """Spearman with the next rung on the audit sample, its 90 % interval, and the size of the sample."""
        above, sample = self.audited(rung)
        both = complete(self.board, sample, rung.name, above)
        found = rank_estimate(self.board.scores(rung.name)[both], self.board.scores(above)[both])
        return found.rho, found.interval(LEVEL), len(both)

    def pays(self, rung: Rung) -> bool:
        """Whether a higher score here means a higher one on the next rung.

        Either the audit interval lies above zero, or the slope of all pairs does. Candidates were promoted by
        what is known of them, which does not bias a slope as it biases a correlation.
        """
        low, high = (self.board.scores(name) for name in (rung.name, self.audited(rung)[0]))
        both = np.isfinite(low) & np.isfinite(high)
        return self.agreement(rung)[1][0] > 0 or slope_is_positive(low[both], high[both])

    def _limits(self) -> dict[str, float]:
        """The most seconds each rung may still take; unproven rungs share the trial part of the budget."""
        unproven = [rung.name for rung in self.kept[:-1] if not self.pays(rung)]
        left = self.settings.trial * self.budget - sum(self.spent[name] for name in unproven)
        limits = {rung.name: math.inf for rung in self.kept}
        return limits | {name: max(0.0, left / len(unproven)) for name in unproven}

    def _wave(self, waves: int) -> bool:
        """Plan with the budget that is left and carry out one part of it; False if nothing more fits."""
        if not started(self):
            return False
        self._thin()
        self.renew_pool(rng := self.decide())
        left = self.budget - self.seconds - self.reserve()
        prices = {rung.name: self.prices.of(rung) for rung in self.kept}
        if left < prices[self.full.name]:
            return False
        names = [rung.name for rung in self.kept]
        posterior = Posterior(self.board, names, self.free, self.settings.draws, rng)
        simulation = Simulation(self.board, posterior, names)
        plan = allocate(simulation, names, prices, left, self._limits())
        if plan is None:
            return False
        sizes = ", ".join(f"{count} on {name}" for name, count in plan.sizes.items())
        log.info("plan for the rest of the budget: %s", sizes)
        self._drop(plan.sizes, waves)
        below: Rung | None = None
        for rung in self.kept:
            self._score(rung, below, math.ceil(self._part(rung, waves) * plan.sizes[rung.name]))
            below = rung
        return True

    def _part(self, rung: Rung, waves: int) -> float:
        """The part of a plan to carry out now: stand-ins early, full trainings late, all in the last wave."""
        if waves == 1 or len(self.kept) == 1:
            return 1 / waves
        return (LATE if rung is self.full else EARLY) / waves

    def _score(self, rung: Rung, below: Rung | None, count: int) -> None:
        """Score the most promising candidates on a rung, among those that the rung below has scored.

        Full trainings come batch by batch where the model is quick beside them: it learns from each.
        """
        quick = rung is self.full and self.overhead.mean < QUICK * self.prices.of(rung)
        step = rung.batch if quick else count
        for start in range(0, count, step) if quick else [0]:
            rng = self.decide()
            entered = range(len(self.board.configs)) if below is None else self.board.scored(below.name)
            scored = {*self.board.outcomes[rung.name], *self.board.outcomes[self.full.name]}
            eligible = np.array([i for i in entered if i not in scored], np.int64)
            if rung is self.full:
                features = self.board.features(self.free)
                limit = max(MOST * self.budget, DEAR * self.prices.of(rung))
                eligible = self.prices.bearable(rung, eligible, limit, features)
            some = hoped(self, rung, eligible)
            if not self.evaluate(rung, self._picks(eligible, some, min(step, count - start), rng)):
                return

    def _picks(self, eligible: Index, some: Index, count: int, rng: np.random.Generator) -> list[int]:
        """The candidates that promise most per second, two thirds of them among ``some``.

        Random ones if the cheapest rung in use has no score, because the rungs below it were dropped before.
        """
        names = [rung.name for rung in self.kept]
        if not np.isfinite(self.board.scores(names[0])).any():
            return [int(i) for i in rng.permutation(eligible)[:count]]
        outlook = Posterior(self.board, names, self.free, self.settings.draws, rng).outlook
        best = max(outlook[0, self.board.scored(self.full.name)], default=0.0)
        costs = self.prices.logs(self.board.features(self.free))
        first = count - count // 3 if len(some) < len(eligible) else 0
        picks = improving(outlook, some, first, best, costs[some])
        rest = np.setdiff1d(eligible, picks)
        return picks + improving(outlook, rest, count - len(picks), best, costs[rest])

    def _drop(self, sizes: Mapping[str, int], waves: int) -> None:
        """Drop rungs that the best plan does not use, and those not shown to add to what is free."""
        if waves == self.settings.waves:
            return
        idle = [rung for rung in self.kept[:-1] if sizes[rung.name] == 0 and not self.pays(rung)]
        self.dropped |= {rung.name: "not worth its cost" for rung in idle}
        for rung in self.kept[:-2]:
            if not self._adds(rung):
                self.dropped[rung.name] = "not shown to add to what is known for free"

    def _adds(self, rung: Rung) -> bool:
        """Whether a rung is shown to tell more about the next one than the hint does; true for few pairs.

        Only candidates that a rung has scored can climb further, so one that knows no more than the hint
        would narrow the choice for nothing.
        """
        hint = self.board.hint(self.free)
        low, high = (self.board.scores(name) for name in (rung.name, self.audited(rung)[0]))
        both = np.isfinite(low) & np.isfinite(high)
        if not hint.shape[1] or both.sum() < JUDGED:
            return True
        return slope_is_positive(low[both], high[both], ADDING, hint[both])

    # The end

    def _confirm(self) -> None:
        """Train the finalists again with a fresh seed, then the winner once more.

        The finalists' first scores were chosen for being high, and the winner's second one too. Only its last
        score chose nothing: it is the one to report.
        """
        best = [self.board.add([outcome.config])[0] for outcome in self._best_full()]
        finalists = best[: self.settings.finalists]
        again = self.prices.expected(self.full, finalists).tolist()
        if len(finalists) > 1 and self.seconds + sum(again) + max(again) <= OVER * self.budget:
            trained = [self._again(i, 1) for i in finalists]
            self.compared = all(trained)
        if best:
            self._again(self.winner(), 2)

    def _again(self, index: int, repeat: int) -> bool:
        """Train a candidate once more; whether the budget had room for it."""
        self.decide()
        found = self.evaluate(self.full, [index], repeat)
        for outcome in found:
            if outcome.complete:
                self.repeats.setdefault(index, {})[repeat] = outcome
        return bool(found)

    def _best_full(self) -> list[Outcome]:
        """Complete full trainings, best first."""
        outcomes = self.board.outcomes[self.full.name]
        return sorted((outcomes[i] for i in sorted(outcomes) if outcomes[i].complete), key=lambda o: -o.score)

    def winner(self) -> int:
        """The finalist with the best mean of its first and second full score, or the best first score.

        A second score of one finalist alone compares nothing, unless the others failed in theirs.
        """
        outcomes = self.board.outcomes[self.full.name]
        second = {i: some[1].score for i, some in self.repeats.items() if 1 in some}
        if self.compared and second:
            return max(second, key=lambda i: outcomes[i].score + second[i])
        return max((i for i in outcomes if outcomes[i].complete), key=lambda i: outcomes[i].score)
