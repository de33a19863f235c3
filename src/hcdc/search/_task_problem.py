"""A task and a space as a ladder: free figures, copies, subsets, short trainings and full ones."""

from __future__ import annotations

import dataclasses
import logging
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch

from hcdc.condensers import condense
from hcdc.core.configs import Config, config_hash
from hcdc.core.errors import InputError
from hcdc.core.memory import PeakMemory
from hcdc.core.progress import Progress, timed
from hcdc.core.ranks import share_error
from hcdc.core.recipe import Recipe
from hcdc.core.seeds import numpy_stream
from hcdc.datasets import CondensedDataset
from hcdc.search._dimensions import described, distributions_of
from hcdc.search._distributions import Distribution
from hcdc.search._executor import Executor
from hcdc.search._free import KIND, FreeRung
from hcdc.search._problem import Array, Outcome, Problem, Rung
from hcdc.search._store import Store
from hcdc.spaces import Space
from hcdc.tasks import Task
from hcdc.training import Result, run_candidates
from hcdc.truth import Truth

log = logging.getLogger("hcdc")

AT_ONCE = {"cuda": 64, "cpu": 8}
"""Candidates that train together; the clock is read between such batches."""
NEARBY = 0.1
"""Standard deviation of a step to a nearby candidate, as a share of the range of lambda."""
ENOUGH = 0.25
"""Seconds of a trial that are long enough to extrapolate from."""
PATIENT = 120.0
"""Seconds of a budget below which no copy is considered: measuring its price would take too much of it."""
WAVES = 6
"""Waves in which a budget is spent; the candidates of a wave train together."""
FEW_SCORED = 256
"""Validation images scored in a trial."""
FEW_STEPS, MOST_SCORED = 2, 1000
"""Steps of a training that take as much memory as all of them, and images that are scored at once."""
CHEAP, QUICK = 1 / 20, 0.05
"""A copy is tried if a trial costs at most this share of a full training, and making it this share of the
budget."""


class TrainedRung(Rung):
    """Trains candidates by a recipe and scores them on a validation set.

    Args:
        name: Its name.
        share: Expected price as a share of one full training.
        task, space: What is trained.
        train: The training set.
        parts: Labelled sets to score on: ``"val"`` and perhaps ``"test"``.
        recipe: How to train; its metric ranks candidates.
        device: Where to train.
        executor: Where candidates run, divided into as many parts as its batch has; this process by default.
    """

    def __init__(
        self,
        name: str,
        share: float,
        task: Task,
        space: Space,
        train: Any,
        parts: Mapping[str, Any],
        recipe: Recipe,
        device: torch.device | str,
        executor: Executor | None = None,
    ):
        self.name, self.share, self.task, self.space = name, share, task, space
        self.train, self.parts, self.recipe, self.device = train, parts, recipe, device
        self.executor = executor or Executor()
        self.together = AT_ONCE[torch.device(device).type]
        self.batch = max(self.together, self.executor.batch)

    def run(self, configs: Sequence[Config], seed: int) -> Iterator[Outcome]:
        size = max(1, math.ceil(len(configs) / self.executor.batch))
        jobs = [(configs[k : k + size], seed) for k in range(0, len(configs), size)]
        shared = self.task, self.space, self.train, self.parts, self.recipe, self.device
        for outcomes in self.executor.map(_trained, shared, jobs, _lost):
            yield from outcomes

    def forecast(self, configs: Sequence[Config], budget: float) -> float:
        """Seconds per candidate if ``budget`` seconds are spent here, from a few steps.

        Candidates in lanes share work: a few of them cost more each than a batch. On CUDA the forecast is too
        high for images, since more networks train side by side than here.
        """
        if self.task.engine != "lanes":
            return self._whole(configs[:2]) / 2
        together = self._whole(configs[: self.together])
        if budget / together >= WAVES:
            return together / self.together
        alone = self._whole(configs[:1])
        each = max(0.0, together - alone) / max(1, self.together - 1)
        base = max(0.0, alone - each)
        lanes = max(1.0, (budget / WAVES - base) / max(each, 1e-9))
        return base / min(lanes, self.together) + each

    def begin(self, configs: Sequence[Config]) -> None:
        """Train candidates together for a few steps, and score them on as much as is scored at once.

        Where so few steps are whole trainings, such as fits, one candidate is enough: others would take time.
        """
        if self.recipe.steps <= FEW_STEPS:
            configs = configs[:1]
        self._seconds(configs, min(FEW_STEPS, self.recipe.steps), min(len(self.parts["val"]), MOST_SCORED))

    def _whole(self, configs: Sequence[Config]) -> float:
        """Seconds to train and score these candidates together, extrapolated."""
        lanes, val = self.task.engine == "lanes", self.parts["val"]
        few = len(val) if lanes else min(len(val), FEW_SCORED)
        self._seconds(configs, 1, few)  # one-off costs
        begun = spent = self._seconds(configs, 1, few)
        steps = 1
        while steps < self.recipe.steps and spent - begun < ENOUGH:
            steps = min(self.recipe.steps, 4 * steps)
            spent = self._seconds(configs, steps, few)
        step = max(0.0, spent - begun) / max(1, steps - 1)
        scored = 0.0
        if few < len(val):
            half = few // 2
            scored = max(0.0, begun - self._seconds(configs, 1, half)) / (few - half) * (len(val) - few)
        return self.recipe.seeds * (begun + step * (self.recipe.steps - 1) + scored)

    def _seconds(self, configs: Sequence[Config], steps: int, scored: int) -> float:
        """Seconds of a training of ``steps`` steps, scored on ``scored`` validation examples."""
        recipe = dataclasses.replace(self.recipe, steps=steps, seeds=1, lr=1e-6, lr_end=0.0)
        val = self.parts["val"]
        if scored < len(val):
            val = self.task.subset(val, torch.arange(scored, device=val.y.device))
        with timed() as spent:
            run_candidates(
                self.task, self.space, configs, self.train, {"val": val}, recipe, 0, "estimate", self.device,
                keep_diverged=True,
            )  # fmt: skip
        return spent[0]


Batch = tuple[Sequence[Config], int]
"""Candidates that train together, and the seed of their rung."""


def _trained(
    task: Task,
    space: Space,
    train: Any,
    parts: Mapping[str, Any],
    recipe: Recipe,
    device: torch.device | str,
    batch: Batch,
) -> list[Outcome]:
    """Outcomes of one batch."""
    configs, seed = batch
    results = run_candidates(
        task, space, configs, train, parts, recipe, seed, "search", device, keep_diverged=True
    )
    return [_outcome(task, parts, recipe, *one) for one in zip(configs, results)]


def _outcome(task: Task, parts: Mapping[str, Any], recipe: Recipe, config: Config, result: Result) -> Outcome:
    if not result.finite:
        return Outcome(config, float("nan"), result.seconds, "failed", note="the loss is not finite")
    loss, score = result.values["val.loss"], result.values["val.score"]
    ranked = -loss if recipe.metric == "loss" else score
    others = {name: result.values[f"{name}.score"] for name in parts if name != "val"}
    accuracy = recipe.metric != "loss" and task.num_classes is not None
    told = {"error": share_error(score, len(parts["val"]))} if accuracy else {}
    return Outcome(config, ranked, result.seconds, parts=others, told=told)


def _lost(batch: Batch, note: str) -> list[Outcome]:
    return [Outcome(config, float("nan"), 0.0, "failed", note=note) for config in batch[0]]


class LookedUp(Rung):
    """Takes results from a table instead of training.

    Args:
        name: Its name.
        share: Its share of a full training's seconds.
        truth: The results.
        fidelity: The length of a short training; None for full ones.
    """

    def __init__(self, name: str, share: float, truth: Truth, fidelity: int | None = None):
        self.name, self.share, self.truth, self.fidelity = name, share, truth, fidelity

    def forecast(self, configs: Sequence[Config], budget: float) -> float:
        """Mean seconds of candidates, by the table."""
        return self.share * float(np.mean([self.truth.seconds(config) for config in configs]))

    def run(self, configs: Sequence[Config], seed: int) -> Iterator[Outcome]:
        for config in configs:
            seconds = self.truth.seconds(config) * self.share
            whole = self.fidelity is None and "test" in self.truth.parts
            parts = {"test": self.truth.score(config, "test")} if whole else {}
            yield Outcome(config, self.truth.score(config, "val", self.fidelity), seconds, parts=parts)


class TaskProblem(Problem):
    """Candidates of a space, trained on a task's data.

    Args:
        task: What is learned.
        space: What is searched.
        rungs: Names, cheapest first: ``"free"`` or ``"free:jacov+naswot"`` (training-free scores, see
            `FreeRung`), ``"subset:0.1"``, ``"short:0.25"`` (a share of the examples or of the steps). The
            full training is always the last rung.
        copies: Condensed sets; each is a rung ``"copy"``, ``"copy:2"``, ...
        truth: A table of full-data results, used instead of training where it has them.
        recipe: The full recipe; None takes the task's, with one initialisation.
        device: Where to train.
        seed: Draws the subsets.
        make_copy: Whether `scout` may make a copy of random training examples, if it is cheap enough.
        executor: Where batches of candidates run; in this process by default.
    """

    warnings: Sequence[str] = ()

    def __init__(
        self,
        task: Task,
        space: Space,
        rungs: Sequence[str] = ("short:0.1",),
        copies: Sequence[CondensedDataset] = (),
        truth: Truth | None = None,
        recipe: Recipe | None = None,
        device: torch.device | str = "cpu",
        seed: int = 0,
        make_copy: bool = False,
        executor: Executor | None = None,
    ):
        task.fit(space)
        self._executor = executor
        self.task, self.space, self.device, self.seed = task.to(device), space, device, seed
        self.truth, self._copies, self._make_copy = truth, list(copies), make_copy
        full, _ = task.recipes(len(task.train), 20, "accuracy")
        self.recipe = dataclasses.replace(recipe or full, seeds=1)
        free = [name for name in rungs if name.partition(":")[0] == KIND]
        self._free = [FreeRung(self.task, space, name, seed) for name in free]
        self.rungs: list[Rung] = [
            *self._free,
            *(self._copy(small, number) for number, small in enumerate(copies, 1)),
            *(self._rung(name) for name in rungs if name not in free),
            self._full(),
        ]
        if truth is None and task.num_classes is not None:
            self.bounds = (0.0, 1.0)  # accuracy; tables may count in percent
        self._names = [rung.name for rung in self.rungs]
        if len(set(self._names)) < len(self._names):
            raise InputError(f"rungs {', '.join(self._names)}: each may appear once")
        self._prices: dict[str, float] = {}
        self._range = np.zeros(0) if space.candidates() is not None else self._spread()

    def _trained(self, name: str, share: float, train: Any, parts: Mapping[str, Any], recipe: Recipe) -> Rung:
        return TrainedRung(
            name, share, self.task, self.space, train, parts, recipe, self.device, self._executor
        )

    def _full(self) -> Rung:
        if self.truth is not None:
            return LookedUp("full", 1.0, self.truth)
        parts = {"val": self.task.val}
        if self.task.test is not None:
            parts["test"] = self.task.test
        return self._trained("full", 1.0, self.task.train, parts, self.recipe)

    def _rung(self, name: str) -> Rung:
        kind, _, text = name.partition(":")
        try:
            share = float(text)
        except ValueError:
            share = float("nan")
        if kind not in ("subset", "short") or not share > 0:
            raise InputError(
                f"rung '{name}' is not known; write 'free', 'subset:0.1', 'short:0.25' (shares), 'short:12' "
                "(epochs, with a table), 'copy:FILE' or 'full'"
            )
        if self.truth is not None and kind == "short":
            return self._listed(name, share)
        if share >= 1:
            raise InputError(f"rung '{name}': the share must be below 1")
        steps = max(1, round(self.recipe.steps * share))
        recipe = dataclasses.replace(self.recipe, steps=steps)
        train = self.task.train
        if kind == "subset":
            train = self.task.sample("train", max(self.task.least, round(share * len(train))), self.seed)
        share = min(0.9, max(share, steps / self.recipe.steps))  # few steps are rounded
        return self._trained(name, share, train, {"val": self.task.val}, recipe)

    def _listed(self, name: str, epochs: float) -> Rung:
        """A short training that the table has."""
        assert self.truth is not None
        if epochs not in self.truth.fidelities:
            known = ", ".join(f"short:{length}" for length in self.truth.fidelities) or "none"
            raise InputError(f"rung '{name}': {self.truth.words()} has these short trainings: {known}")
        return LookedUp(name, self.truth.fidelities[int(epochs)], self.truth, int(epochs))

    def _copy(self, small: CondensedDataset, number: int) -> Rung:
        recipe = Recipe.from_dict(small.meta["calibrated_recipe"])
        moved = small.to(self.device)
        val = self.task.val if moved.val is None else moved.val
        full = self.recipe.steps * min(self.recipe.batch or len(self.task.train), len(self.task.train))
        own = recipe.steps * recipe.seeds * min(recipe.batch or len(small.train), len(small.train))
        name = "copy" if number == 1 else f"copy:{number}"
        rung = self._trained(name, min(own / full, 0.9), moved.train, {"val": val}, recipe)
        rung.file = small.file
        return rung

    # --- what it will cost -------------------------------------------------------------------------------

    def scout(self, store: Store, seed: int, budget: float) -> None:
        """Measure what copies cost; make the cheapest one if it is expected to pay.

        What was measured is kept in the store, so that the same command continues with the same rungs. A
        table's seconds come from another machine, so nothing is measured beside them.
        """
        make = self._make_copy and budget >= PATIENT
        if self.truth is not None or not (self._copies or make):
            return
        with timed() as spent:
            seeds, prices = self._measured(budget)
        told = store.note("scouted", {"seeds": seeds, "prices": prices, "seconds": spent[0]})
        self._settle(told["seeds"], told["prices"], told["seconds"])

    def _measured(self, budget: float) -> tuple[int, dict[str, float]]:
        """Initialisations per candidate on a new copy (0: no copy), and seconds per candidate by rung."""
        configs = self.space.sample(self.rungs[-1].batch, numpy_stream(self.seed, "scout"))
        with timed() as spent:
            full = self._forecast(self.rungs[-1], configs, budget)
        prices = {rung.name: self._forecast(rung, configs, budget) for rung in self._of_copies()}
        prices["full"] = full
        if not self._make_copy or spent[0] > QUICK / 2 * budget:
            return 0, prices
        try:
            single = self._forecast(self._copy(self._cheapest(1), 1), configs, budget)
        except InputError as error:
            log.info("no copy is made: %s", error)
            return 0, prices
        usual = self.task.recipes(self._size(), 20, "loss")[1].seeds
        return min(usual, int(CHEAP * full / single)), {**prices, "single": single}

    def _settle(self, seeds: int, prices: Mapping[str, float], seconds: float) -> None:
        """Add the copy and set the shares of copies as measured; order the rungs by share."""
        full, first = prices["full"], self.rungs[-1]
        self._prices.update(prices)
        if seeds:
            first = self._copy(self._cheapest(seeds), 1)
            self._prices["copy"] = seeds * prices["single"]
            self.rungs.insert(0, first)
        for rung in self._of_copies():
            rung.share = min(0.9, self._prices[rung.name] / full)
        first.once += seconds
        self.rungs.sort(key=lambda rung: rung.share)

    def _of_copies(self) -> list[Rung]:
        return [rung for rung in self.rungs if rung.name.startswith("copy")]

    def _size(self) -> int:
        """Training examples of the cheapest copy: 50 per class, at most a quarter of all."""
        return max(self.task.least, min(50 * self.task.least, len(self.task.train) // 4))

    def _cheapest(self, seeds: int) -> CondensedDataset:
        """A copy that takes no training: random training examples, real validation examples."""
        return condense(
            self.task, self.space, "random", train_size=self._size(), val_method="real", seed=self.seed,
            recipe={"seeds": seeds}, device=self.device, checkpoint=None, progress=Progress(),
        )  # fmt: skip

    @staticmethod
    def _forecast(rung: Rung, configs: Sequence[Config], budget: float) -> float:
        assert isinstance(rung, TrainedRung | LookedUp), "free rungs have prices of their own"
        return rung.forecast(configs, budget / 2)

    def forecast(self, budget: float, seed: int) -> dict[str, float]:
        """Seconds per candidate by paid rung, cheapest first; the search would have these rungs."""
        self.scout(Store(), seed, budget)
        configs = self.space.sample(self.rungs[-1].batch, numpy_stream(self.seed, "forecast"))
        return {
            rung.name: self._prices.get(rung.name) or self._forecast(rung, configs, budget)
            for rung in self.rungs
            if rung.share > 0
        }

    def free_prices(self) -> dict[str, float]:
        """Seconds per candidate by free rung."""
        return {rung.name: rung.price() for rung in self._free}

    def full_memory_gib(self, prices: Mapping[str, float], seed: int) -> float:
        """Peak memory while a batch of candidates trains on the full data for a few steps."""
        rung = self.rungs[-1]
        configs = self.space.sample(rung.batch, numpy_stream(seed, "memory"))
        with PeakMemory() as peak:
            if isinstance(rung, TrainedRung):
                rung.begin(configs)
        return peak.gib

    def size(self) -> float:
        """Number of candidates."""
        everything = self.candidates()
        return math.inf if everything is None else len(everything)

    def params(self, config: Config) -> Config:
        """What a user reads: the configuration itself."""
        return config

    # --- candidates -----------------------------------------------------------------------------------------

    def candidates(self) -> list[Config] | None:
        return self.space.candidates()

    def _spread(self) -> Array:
        """The range of each relaxed hyperparameter, from a sample."""
        sample = self.space.sample(256, numpy_stream(0, "spread"))
        at = np.stack([self.space.encode(config).numpy() for config in sample])
        found: Array = at.max(0) - at.min(0)
        return found

    @property
    def fingerprint(self) -> str:
        """What the full data is known by."""
        return self.task.fingerprint()

    @property
    def distributions(self) -> Mapping[str, Distribution]:
        return distributions_of(self.space)

    def propose(self, count: int, rng: np.random.Generator, near: Sequence[Config] = ()) -> list[Config]:
        if not near:
            return self.space.sample(count, rng)
        found = {}
        for _ in range(count):
            lam = self.space.encode(near[int(rng.integers(len(near)))]).numpy()
            moved = lam + rng.normal(0, NEARBY, lam.shape) * self._range * (rng.random(lam.shape) < 0.5)
            config = self.space.decode(self.space.project(torch.from_numpy(moved)))
            found[config_hash(config)] = config
        return list(found.values())

    def features(self, configs: Sequence[Config]) -> Array:
        rows = [
            [*self.space.features(config), *self.space.structure(config).values(), *self._parameters(config)]
            for config in configs
        ]
        return np.array(rows, np.float64).reshape(len(configs), -1)

    def described(self, configs: Sequence[Config]) -> Mapping[str, Array]:
        return described(configs, self.space)

    def hint(self, configs: Sequence[Config]) -> Array | None:
        """The log of the number of parameters; larger networks are often better."""
        found = [self._parameters(config) for config in configs]
        return np.array(found, np.float64)[:, 0] if found and found[0] else None

    def _parameters(self, config: Config) -> list[float]:
        """The log of the number of parameters; nothing where all candidates have the same shapes."""
        if self.space.batched:
            return []
        count = self.space.parameter_count(config, self.task.features, self.task.num_classes or 1)
        return [float(np.log(count or 1))]

    def spec(self) -> dict[str, Any]:
        return {
            "data": self.task.describe(),
            "task": self.task.spec(),
            "space": self.space.spec(),
            "rungs": self._names,
            "recipe": self.recipe.as_dict(),
            "copies": [small.meta for small in self._copies],
            "truth": None if self.truth is None else self.truth.spec(),
        }
