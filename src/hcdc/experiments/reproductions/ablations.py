"""``ablations``: which choice of HCDC moves the rank correlation, and by how much.

Filters of Cora are ranked on 35 nodes. Each variant changes one choice of the base; all variants of a seed
are judged by the same filters and the same full-data results. The base is a short HCDC (24 trainings on the
original graph, width 16), so that all variants can be run; its differences need not carry over to longer
runs. The paper leaves these choices to future work and prints no number.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.nn import functional as F

from hcdc.condensers import Plan, plan
from hcdc.core.ranks import calibration, mean_interval, spearman
from hcdc.core.seeds import stream
from hcdc.core.settings import setting
from hcdc.core.sparse import SparseMatrix
from hcdc.datasets import GraphData, Nodes
from hcdc.evaluation import evaluate
from hcdc.experiments._command import check_names
from hcdc.experiments.reproductions._frame import (
    Record,
    Reproduction,
    Scale,
    Table,
    Unit,
    Work,
    mean_text,
    register,
)
from hcdc.experiments.reproductions._graphs import by_graph, graph_sizes, graph_task
from hcdc.experiments.reproductions.filters_80 import QUICK, short
from hcdc.hypergrad import SOLVERS, Solution, Solver, exact
from hcdc.networks import Params
from hcdc.spaces import PolynomialFilter
from hcdc.tasks import GraphTask

BASE = {"trajectories": 16, "points": 1, "holdout": 8, "steps": 150, "check": 25, "batch": 16}
FILTERS = 16
"""Of a `Supernet`: as many as the points of the base."""
SURE, PACE = 4.0, 20.0
"""Of `LearnedLabels`: first logit of a node's own class, and how much faster logits learn than features."""
DAMPING = 1e-3
"""Of the exact inverse: the base's, which is the default of HCDC."""
FEW = {"response": "shared", "trajectories": 4, "anchors": 0.0}
SEQUENTIAL = {**FEW, "schedule": "sequential", "theta_steps": 20}
BATCHED = {**FEW, "points": 2, "steps": 80}
"""As many paths, steps in lambda and steps on S_val as `SEQUENTIAL`."""


class ImplicitOnly(GraphTask):
    """Validation losses without a direct derivative in lambda."""

    def val_loss(self, params: Params, lam: Tensor, data: Any) -> Tensor:
        return super().val_loss(params, lam.detach(), data)


def frequent(data: GraphData, words: int) -> GraphData:
    """A graph with its most frequent words alone, so that a dense curvature matrix is affordable."""
    given = data.graph.x
    x = given.to_dense() if isinstance(given, SparseMatrix) else given
    kept = (x != 0).sum(0).sort(descending=True, stable=True).indices[:words].sort().values
    return replace(data, graph=replace(data.graph, x=x[:, kept]))


class OneTheta(GraphTask):
    """One theta for all filters that are trained at once, which minimises the mean of their losses.

    They have the same start and the same gradients, so theta stays the same for all: a supernet.
    """

    def init(self, generator: torch.Generator) -> Params:
        return super().init(stream(0, "ablations", "theta"))

    def filters(self, lam: Tensor) -> Tensor:
        """The filters that theta is trained at ``[B', H]``."""
        return lam

    def train_gradients(self, params: Params, lam: Tensor, data: Nodes) -> tuple[Params, Tensor]:
        at = self.filters(lam)
        theta = {name: p[:1].expand(len(at), *p.shape[1:]) for name, p in params.items()}
        gradient, loss = super().train_gradients(theta, at, data)
        return {name: g.mean(0).expand_as(params[name]) for name, g in gradient.items()}, loss


class Supernet(OneTheta):
    """One theta, trained at `FILTERS` random filters and used at others."""

    def filters(self, lam: Tensor) -> Tensor:
        drawn = torch.rand(FILTERS, lam.shape[1], generator=stream(0, "ablations", "filters"))
        return (2 * drawn - 1).to(lam)


class LearnedLabels(GraphTask):
    """S_val's labels are learned with its features.

    A node has every class, each with a weight; the weights of a node sum to 1 and start at about .9 for its
    own class.
    """

    def tensors(self, data: Nodes) -> dict[str, Tensor]:
        if data.weight is None:
            logits = SURE * F.one_hot(data.y, self.num_classes).to(torch.float32)
        else:
            logits = data.weight.view(-1, self.num_classes).log()
        return {**super().tensors(data), "labels": logits / PACE}

    def replace(self, data: Nodes, tensors: dict[str, Tensor]) -> Nodes:
        made = super().replace(data, {name: t for name, t in tensors.items() if name != "labels"})
        if "labels" not in tensors:
            return made
        count, classes = tensors["labels"].shape
        every = torch.arange(count * classes, device=made.y.device)
        weight = (PACE * tensors["labels"]).softmax(-1).flatten()
        return replace(made, y=every % classes, index=every // classes, weight=weight)


def no_response() -> Solver:
    """A solver that returns 0: d theta* / d lambda = 0, so that only the direct derivative is left."""

    def solve(matvec: Callable[[Params], Params], rhs: Params) -> Solution:
        one = next(iter(rhs.values())).sum() * 0
        zero = torch.zeros_like(one, dtype=torch.int64)
        return Solution({name: 0 * b for name, b in rhs.items()}, one + 1, zero, zero + 1, one + math.nan)

    return solve


@contextmanager
def own_solvers() -> Iterator[None]:
    """Give this module's solvers a name while a variant runs: other users of `SOLVERS` should not see it."""
    own: dict[str, Callable[..., Solver]] = {
        "no-response": no_response,
        "exact-damped": functools.partial(exact, DAMPING),
    }
    SOLVERS.update(own)
    try:
        yield
    finally:
        for name in own:
            del SOLVERS[name]


@dataclass(frozen=True)
class Variant:
    """One changed choice.

    Attributes:
        choice: What is chosen, in words.
        chosen: What was chosen.
        options: Changed settings of HCDC; instead of the base's, if the way to S_val is another.
        planned: Changed arguments of the plan.
        task: The class of the task.
        width, words: Hidden units and features, if not the base's.
        against: The variant that differences are taken from.
    """

    choice: str
    chosen: str
    options: dict[str, Any] = field(default_factory=dict)
    planned: dict[str, Any] = field(default_factory=dict)
    task: type[GraphTask] = GraphTask
    width: int = 0
    words: int = 0
    against: str = "base"

    def told(self) -> dict[str, Any]:
        """What differs from the base, for a unit: another difference is another unit."""
        task = {} if self.task is GraphTask else {"task": self.task.__name__}
        less = {name: value for name, value in (("width", self.width), ("words", self.words)) if value}
        return {**self.options, **self.planned, **task, **less}

    def own_task(self, data: GraphData) -> GraphTask:
        """The variant's task on a graph."""
        return self.task(frequent(data, self.words) if self.words else data)


def _set(choice: str, words: str, **options: Any) -> Variant:
    return Variant(choice, words, options)


def _probes(count: int) -> Variant:
    """S_val learned from full results alone, with the settings of that way instead of the base's."""
    words = f"{count} probes instead of hypergradients"
    return Variant("what S_val is learned from", words, {"probes": count}, {"val_method": "probes"})


def _letter(words: str, **options: Any) -> Variant:
    """Algorithm 1 with one more change."""
    return Variant("Algorithm 1", words, {**SEQUENTIAL, **options}, against="sequential")


VARIANTS: dict[str, Variant] = {
    "base": Variant("", "base"),
    "direct": _set("derivative", "direct only", solver="no-response"),
    "implicit": Variant("derivative", "implicit only", task=ImplicitOnly),
    "one-scale": _set("distance", "one global scale instead of cosines", distance="scaled_l2"),
    "shared": _set("original hypergradients at", "theta trained on S_train", response="shared"),
    "no-anchors": _set("anchors", "none", anchors=0.0),
    "no-anchors-shared": _set("anchors", "none, and theta of S_train", anchors=0.0, response="shared"),
    **{f"probes-{count}": _probes(count) for count in (5, 10, 20, 40, 60)},
    "neumann-1": _set("inverse", "Neumann, 1 term", solver="neumann", iterations=1),
    "neumann-5": _set("inverse", "Neumann, 5 terms", solver="neumann", iterations=5),
    "neumann-20": _set("inverse", "Neumann, 20 terms", solver="neumann", iterations=20),
    "neumann-50": _set("inverse", "Neumann, 50 terms", solver="neumann", iterations=50),
    "cg-2": _set("inverse", "conjugate gradients, 2 instead of 10", iterations=2),
    "cg-50": _set("inverse", "conjugate gradients, 50", iterations=50),
    "hessian": _set("curvature", "Hessian instead of Gauss-Newton", curvature="hessian"),
    "hessian-neumann": _set(
        "curvature", "Hessian, Neumann, 20 terms", curvature="hessian", solver="neumann", iterations=20
    ),
    "fewer": _set("trainings on the original", "12 instead of 24", trajectories=8, holdout=4),
    "more": _set("trainings on the original", "48 instead of 24", trajectories=32, holdout=16),
    "points": _set("where it is aligned", "8 paths of 2 points", trajectories=8, points=2),
    "val-35": Variant("size of S_val", "35 instead of 125 nodes", planned={"val_size": 35}),
    "val-250": Variant("size of S_val", "250 nodes", planned={"val_size": 250}),
    "steps-50": _set("steps on S_val", "50 instead of 150", steps=50),
    "steps-450": _set("steps on S_val", "450", steps=450),
    "induced": _set("edges of S_val", "induced subgraph instead of reach", structure="induced"),
    "adjacency": _set("edges of S_val", "weights learned too", adjacency=True),
    "balanced": _set("labels of S_val", "balanced instead of proportional", labels="balanced"),
    "labels-learned": Variant("labels of S_val", "learned too", task=LearnedLabels),
    "factorised": _set("features of S_val", "a product of rank 4", factors=4),
    "factorised-32": _set("features of S_val", "a product of rank 32", factors=32),
    "one-theta": Variant("supernet", "one theta for all filters where it is aligned", task=OneTheta),
    "supernet": Variant("supernet", f"one theta, trained at {FILTERS} other filters", task=Supernet),
    "train-random": Variant("S_train", "random instead of reach", planned={"train_method": "random"}),
    "train-gcondx": Variant("S_train", "GCond-X", planned={"train_method": "gcondx"}),
    "base-64": Variant("inverse, 64 words, width 8", "base on 64 words", width=8, words=64),
    "exact-64": Variant(
        "inverse, 64 words, width 8", "exact", {"solver": "exact-damped"}, width=8, words=64,
        against="base-64",
    ),
    "batched": _set("schedule", "4 paths, 80 steps, theta of S_train, no anchors", **BATCHED),
    "sequential": Variant(
        "schedule", "Algorithm 1 to the letter: T_theta 20, T_lambda 10, K 1", SEQUENTIAL, against="batched"
    ),
    "sequential-theta": _letter("T_theta 40", theta_steps=40),
    "sequential-lam": _letter("T_lambda 5", lam_every=5),
    "sequential-repeats": _letter("K 2", repeats=2),
}  # fmt: skip


@register
@dataclass(frozen=True)
class Ablations(Reproduction):
    """Spearman's correlation of filters, with one choice of HCDC changed at a time.

    Attributes:
        graphs: Data and training nodes, as ``cora:35``.
        variants: Names of `VARIANTS`.
        candidates: Filters that judge.
        width: Hidden units.
        options: Settings of the base.
        recipe, full_recipe: Changes to the training on the copy and on the whole graph.
    """

    graphs: tuple[str, ...] = ("cora:35",)
    variants: tuple[str, ...] = tuple(VARIANTS)
    candidates: int = setting(80, least=3)
    width: int = setting(16, least=1)
    options: dict[str, Any] = field(default_factory=lambda: dict(BASE))
    recipe: dict[str, Any] = field(default_factory=lambda: {"steps": 100})
    full_recipe: dict[str, Any] = field(default_factory=lambda: {"steps": 100})

    name = "ablations"
    label = "the conclusion's choices"
    title = "one choice of HCDC changed at a time: filters ranked"
    axes = ("graphs", "variants")
    scales: ClassVar = {
        "smoke": Scale({**QUICK, "variants": ("base", "direct", "implicit", "val-35")}),
        "small": Scale(seeds=3, takes="an hour on one core"),
        "paper": Scale({"width": 64, "options": {}, "recipe": {}, "full_recipe": {}}, 5, "hours on a GPU"),
    }

    def units(self, seeds: Sequence[int]) -> list[Unit]:
        check_names("--set variants", self.variants, VARIANTS)
        return [
            self.unit(seed, dataset=dataset, size=size, variant=variant, changes=VARIANTS[variant].told())
            for seed in seeds
            for dataset, size in graph_sizes(self.graphs)
            for variant in self.variants
        ]

    def planned(self, unit: Unit, work: Work) -> Plan:
        """The plan of a variant."""
        variant = VARIANTS[unit["variant"]]
        task, space = self.own_task(unit, work), PolynomialFilter(width=variant.width or self.width)
        base = {} if "val_method" in variant.planned else self.options
        return plan(
            task, space, "hcdc", train_size=unit["size"], seed=unit["seed"],
            options={**base, **variant.options}, recipe=self.recipe, full_recipe=self.full_recipe,
            **{"val_method": "both", **variant.planned},
        )  # fmt: skip

    def own_task(self, unit: Unit, work: Work) -> GraphTask:
        """The task of a unit's variant."""
        return VARIANTS[unit["variant"]].own_task(graph_task(unit, work).data)

    def check(self, unit: Unit, work: Work) -> None:
        with own_solvers():
            self.planned(unit, work)

    def run(self, unit: Unit, work: Work) -> list[Record]:
        # plans do not say how derivatives are taken, so copies are not kept
        with own_solvers():
            small = self.planned(unit, work).run(device=work.device, checkpoint=None, progress=work.progress)
        rivals = list(RIVALS) if unit["variant"] == "base" else False
        plain = GraphTask(self.own_task(unit, work).data)  # whatever the copy is made with
        found = evaluate(
            small, candidates=self.candidates, seed=unit["seed"], task=plain, device=work.device,
            rivals=rivals, progress=work.progress,
        ).to_json()  # fmt: skip
        return [{"label": unit["variant"], **short(found), "making": small.record}]

    def table(self, found: Sequence[Record]) -> Table:
        head = [
            "graph", "choice", "changed to", "Corr.", "compared with", "difference", "pairs in order",
            "seconds", "paper",
        ]  # fmt: skip
        rows = []
        for graph, records in by_graph(found).items():
            every = {(r["label"], r["seed"]): figures(r) for r in records} | derived(records)
            corrs: dict[str, dict[int, float]] = {}
            for (name, seed), (value, *_) in every.items():
                corrs.setdefault(name, {})[seed] = value
            order = [*self.variants, *DERIVED] if "base" in self.variants else self.variants
            for name in order:
                own = {seed: values for (label, seed), values in every.items() if label == name}
                variant = VARIANTS.get(name) or DERIVED[name]
                corr, pairs, seconds = ([values[k] for values in own.values()] for k in range(3))
                rows.append([
                    graph, variant.choice, variant.chosen, mean_text(corr, 3),
                    *compared(name, variant.against, corrs),
                    mean_text(pairs, 3), "" if name in DERIVED else mean_text(seconds, 0), "none",
                ])  # fmt: skip
        notes = [
            "differences are paired by seed, with their 90 % interval; seconds are those of condensing",
            "an exact inverse needs the whole curvature matrix: affordable on 64 words",
        ]
        longer = [best_step(r) for r in found if r["label"] == "steps-450"]
        if longer and max(longer) <= BASE["steps"]:
            notes.append("450 steps: the best iterate is kept, and it always came within the first 150")
        return Table(head, rows, notes)


RIVALS = {
    "random-reach-val-loss": Variant("S_val", "not learned: its start, by loss"),
    "real-val-loss": Variant("S_val", "the whole real validation set, by loss"),
    "real-val": Variant("S_val", "the whole real validation set, by accuracy"),
}
DERIVED = {"accuracy": Variant("ranked by", "accuracy on S_val instead of the loss"), **RIVALS}
"""Rows from records of the base, without a run of their own."""


def figures(record: Record) -> tuple[float, float, float]:
    """Correlation, share of pairs in order, and seconds."""
    seconds = record["making"]["condense_seconds"]
    return number(record["spearman"]), number(record["calibration"]), number(seconds)


def derived(records: Sequence[Record]) -> dict[tuple[str, int], tuple[float, float, float]]:
    """`DERIVED`: the base ranked by accuracy, and its rivals."""
    found = {}
    for r in records:
        if r["label"] != "base":
            continue
        by_score = [sum(each) / len(each) for each in r["repeats"]["score"]]
        by_accuracy = spearman(r["truth"], by_score), calibration(r["truth"], by_score), math.nan
        found["accuracy", r["seed"]] = by_accuracy
        for rival in r["rivals"]:
            if rival["name"] in DERIVED:
                pairs = number(rival["calibration"])
                found[rival["name"], r["seed"]] = number(rival["spearman"]), pairs, math.nan
    return found


def number(value: float | None) -> float:
    """A figure; NaN for None."""
    return math.nan if value is None else float(value)


def compared(name: str, against: str, corrs: dict[str, dict[int, float]]) -> list[str]:
    """What a variant is compared with, as its row says (the base until that was run), and the difference.

    Both are empty for a base.
    """
    if name.startswith("base"):
        return ["", ""]
    against = against if against in corrs else "base"
    words = VARIANTS[against].chosen
    if against not in corrs or name not in corrs:
        return [words, "not run"]
    return [words, gain(corrs[name], corrs[against])]


def best_step(record: Record) -> int:
    """The step on S_val with the least held-out objective: the iterate that is kept."""
    best = min(record["making"]["history"], key=lambda one: float(one["held_out"]))
    return int(best["step"])


def gain(own: dict[int, float], base: dict[int, float]) -> str:
    """The mean difference from the base, paired by seed, and its interval."""
    apart = [own[seed] - base[seed] for seed in own if seed in base]
    apart = [value for value in apart if not math.isnan(value)]
    if not apart:
        return "undefined"
    mean, interval = mean_interval(apart)
    if math.isnan(interval.low):
        return f"{mean:+.3f}"
    return f"{mean:+.3f} [{interval.low:+.3f}, {interval.high:+.3f}]"
