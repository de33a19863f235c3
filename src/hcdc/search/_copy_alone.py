"""The search on one copy alone: the best configuration by the copy, without a full score."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import torch

from hcdc.core.configs import Config, config_hash
from hcdc.core.errors import HcdcError
from hcdc.core.found import Found, RungReport
from hcdc.core.progress import Progress
from hcdc.core.records import environment
from hcdc.core.seeds import derive, numpy_stream
from hcdc.core.told import every
from hcdc.datasets import CondensedDataset
from hcdc.evaluation import task_of
from hcdc.search._allocation import improving
from hcdc.search._board import Board, Posterior
from hcdc.search._problem import Outcome, Problem
from hcdc.search._store import Store
from hcdc.search._summary import failure_warnings
from hcdc.search._task_problem import TaskProblem
from hcdc.spaces import from_spec

POOL, DRAWS = 400, 48
"""Proposals per step in an infinite space, and posterior draws."""
COPY_TRIALS = 200
"""Configurations of a search on a copy alone, by default."""
BLIND = 1 / 3
"""Share of the trials that are drawn at random."""
ALONE = "the copy alone chose it; 'hcdc evaluate' or 'hcdc trust' measure how far its ranking can be believed"


def search_copy(
    small: CondensedDataset,
    trials: int,
    budget: float | None,
    seed: int,
    store: Store,
    device: torch.device | str = "cpu",
    progress: Progress | None = None,
) -> Found:
    """Search a copy: all of a small space, else a third of the trials at random, then by model.

    The trials in a storage count, also those of a search that was asked for fewer or more of them.

    Args:
        small: The condensed data set.
        trials: Most configurations to try.
        budget: Most seconds to spend, if there is a limit; a batch that has begun is finished.
        seed, store, device, progress: As in `hcdc.search`.
    """
    problem = TaskProblem(
        task_of(small), from_spec(small.meta["space"]), (), [small], device=device, seed=seed
    )
    store.open({**problem.spec(), "seed": seed, "alone": True})
    rung, board = problem.rungs[0], Board(problem)
    everything = problem.candidates()
    board.add(everything or ())
    total = min(trials, len(everything)) if everything is not None else trials
    phase = None if progress is None else progress.phase("trials on the copy", total)
    done, spent, stored = board.outcomes[rung.name], 0.0, store.outcomes(rung.name)
    while len(done) < total and (budget is None or spent < budget):
        size = min(rung.batch, total - len(done))
        configs = [board.configs[i] for i in _chosen(board, problem, rung.name, size, total, seed)]
        if others := _decided_otherwise(stored[len(done) :], configs):
            count = store.note(f"trials taken over at {len(done)} of {total}", len(others))
            board.tell(rung.name, others[:count])
            spent += sum(outcome.seconds for outcome in others[:count])
            continue
        known = [store.outcome(rung.name, 0, config) for config in configs]
        fresh = rung.run([c for c, o in zip(configs, known) if o is None], derive(seed, "search", rung.name))
        for outcome in known:
            if outcome is None:
                outcome = next(fresh)
                store.tell(rung.name, 0, outcome)
            spent += outcome.seconds
            board.tell(rung.name, [outcome])
        if phase is not None:
            phase.step(len(done), f"best {_best(board, rung.name)[1]:.4f} on the copy")
    best, _ = _best(board, rung.name)
    report = RungReport(
        name=rung.name, candidates=len(done), failed=sum(not o.complete for o in done.values()),
        seconds=spent, price=spent / len(done), file=small.file,
    )  # fmt: skip
    failed = failure_warnings([o.note for o in done.values() if o.state == "failed"], len(done))
    return Found(
        best=best, seconds=spent, budget=budget, rungs=[report], warnings=[ALONE, *failed],
        spec=problem.spec(), environment=environment(device),
    )  # fmt: skip


def _decided_otherwise(stored: list[Outcome], configs: Sequence[Config]) -> list[Outcome]:
    """The stored trials that come next, if a search for another number of trials chose them; else none."""
    theirs, ours = ([config_hash(c) for c in some] for some in ([o.config for o in stored], configs))
    both = min(len(theirs), len(ours))
    return [] if theirs[:both] == ours[:both] else stored


def _chosen(board: Board, problem: Problem, rung: str, size: int, total: int, seed: int) -> Sequence[int]:
    """The next candidates: at random first, then those with the greatest expected improvement."""
    done = board.outcomes[rung]
    rng = numpy_stream(seed, "copy alone", len(done))
    endless = problem.candidates() is None
    blind = len(done) < max(2, math.ceil(BLIND * total)) or (not endless and total == len(board.configs))
    if endless:
        fresh = problem.propose(size if blind else POOL // 3, rng)
        if not blind:
            scores = board.scores(rung)
            seen = np.array(sorted(done))
            near = [board.configs[i] for i in seen[np.argsort(-scores[seen], kind="stable")][:8]]
            fresh += problem.propose(2 * POOL // 3, rng, near)
        board.renew(fresh)
    eligible = np.array([i for i in range(len(board.configs)) if i not in done], np.int64)
    if blind:
        return [int(i) for i in rng.permutation(eligible)[:size]]
    outlook = Posterior(board, [rung], (), DRAWS, rng).outlook
    return improving(outlook, eligible, size, float(outlook[0, sorted(done)].max()))


def _best(board: Board, rung: str) -> tuple[Config, float]:
    complete = [(o.score, i) for i, o in board.outcomes[rung].items() if o.complete]
    if not complete:
        last = next(reversed(board.outcomes[rung].values()))
        raise HcdcError(f"{every(len(board.outcomes[rung]), 'trial')} on the copy failed: {last.note}")
    score, index = max(complete, key=lambda pair: (pair[0], -pair[1]))
    return board.configs[index], score
