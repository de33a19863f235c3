"""HCDC: learn a validation set whose hypergradients point as those of the original data do (Algorithm 1)."""

from __future__ import annotations

import dataclasses
import logging
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from hcdc.core.checkpoint import Checkpoint
from hcdc.core.configs import config_hash
from hcdc.core.errors import InputError, NumericalError, unknown_name
from hcdc.core.progress import Progress
from hcdc.core.recipe import Recipe
from hcdc.core.seeds import derive, numpy_stream, stream
from hcdc.hypergrad import (
    DISTANCES,
    Solver,
    Trajectories,
    alignment_gradient,
    anchored_gradient,
    anchored_loss,
    batched_best_response,
    batched_hypergradient,
    get_curvature,
    get_solver,
    trajectory_starts,
    values_and_hypergradients,
)
from hcdc.networks import Params, gumbel_noise, gumbel_one_hot
from hcdc.spaces import Space, halves
from hcdc.tasks import Task
from hcdc.training import adam_step, init_many, score_many, train_many

MIXED = 3
"""Candidates of a finite space that a held-out lambda mixes."""

RELAXATIONS = ("softmax", "gdas")

LEAST = 0.01
"""Weight of an operation that lambda gives less, where operations are drawn: the logit of 0 is infinite."""

log = logging.getLogger("hcdc")


@dataclass(frozen=True)
class HCDC:
    """Settings of HCDC. The defaults are ours (the paper names no values).

    ``preset="paper"`` is Algorithm 1 to the letter.

    Neighbour sampling (``fanout``, ``nodes``) is for original graphs that do not fit: each batch of points is
    trained, and its original hypergradients are taken, on one sampled T_train and T_val (role
    ``"neighbours"``). It approximates two things. Losses are means over the drawn labelled nodes, with the
    variance of a mini-batch, so that values of different batches of points differ by that noise too.
    Neighbourhoods are those drawn, and P is normalised by the degrees drawn: a bias that vanishes where
    fanouts keep every neighbour and there are more hops than the network looks far (layers times order, for
    filters). S_train, S_val and `hcdc.evaluate` see none of it.

    Attributes:
        trajectories: p, the number of HPO trajectories (finite spaces: at most; each starts at a candidate).
        points: Points on each trajectory at which hypergradients are aligned.
        step_lam: Length of a trajectory step in lambda; its direction is that of the synthetic hypergradient.
        holdout: Fresh lambdas on which the objective is watched; they never train S_val.
        steps: Adam steps on S_val in all.
        lr: Learning rate of S_val.
        batch: Trajectory points an S_val step averages over.
        check: S_val steps between two looks at the held-out objective.
        patience: Looks without improvement before the run stops; the best iterate is kept.
        distance: ``"cosine"`` (the paper's) or ``"scaled_l2"`` (one global scale).
        anchors: Weight of the value term (see `hcdc.hypergrad.anchored_loss`), which uses the values that the
            full trainings behind the original hypergradients give anyway; 0 aligns hypergradients alone.
        response: Where original hypergradients are taken: ``"own"``, at parameters trained on the original
            data, or ``"shared"``, at the parameters trained on S_train as Algorithm 1 reads.
        schedule: ``"batched"``: S_val steps average over points of many trajectories; ``"sequential"``: one
            trajectory after the other, S_val and lambda updated while theta trains (Algorithm 1; needs
            ``response="shared"``).
        solver, iterations, damping, curvature: How (IFT) systems are solved.
        labels: Labels of S_val, ``"proportional"`` or ``"balanced"``.
        structure: Edges among the nodes that S_val starts from, ``"reach"`` or ``"induced"`` (graphs only).
        adjacency: Learn the edge weights of a synthetic validation graph beside its features.
        repeats, theta_steps, lam_every: K, T_theta and T_lambda of Algorithm 1 (sequential schedule only).
        val_batch: Examples of S_val in the loss of a step, drawn anew for each (role ``"val-nodes"``); 0 is
            all (batched schedule only).
        fanout: Neighbours of a node kept at each hop, as in ``"10,5,5"``; empty is the whole graph.
        nodes: Labelled nodes (or images) of a sampled T_train or T_val; 0 is all of them. Images: training
            losses, curvature and mixed derivatives are taken at that many, validation losses at four times
            as many; equally many a class: at least one, no more than the smallest class has.
        relaxation: What an edge of the relaxed cell computes (NAS-Bench-201): ``"softmax"``, all operations,
            mixed with the weights lambda; or ``"gdas"``, one operation, drawn with these weights, with the
            derivatives of a Gumbel softmax in the logits (straight through), which the trajectories move.
            Each point has one draw (role ``"gumbel"``), on the original data and on S_train, in training and
            in the linear systems.
        tau: Temperature of that Gumbel softmax.
    """

    trajectories: int = 80
    points: int = 2
    step_lam: float = 0.25
    holdout: int = 32
    steps: int = 500
    lr: float = 1e-3
    batch: int = 32
    check: int = 50
    patience: int = 6
    distance: str = "cosine"
    anchors: float = 1.0
    response: str = "own"
    schedule: str = "batched"
    solver: str = "conjugate_gradient"
    iterations: int = 10
    damping: float = 1e-3
    curvature: str = "gauss_newton"
    labels: str = "proportional"
    structure: str = "reach"
    adjacency: bool = False
    repeats: int = 1
    theta_steps: int = 50
    lam_every: int = 10
    val_batch: int = 0
    fanout: str = ""
    nodes: int = 0
    relaxation: str = "softmax"
    tau: float = 1.0

    name = "hcdc"

    def __post_init__(self) -> None:
        for what, value, choices in (
            ("distance", self.distance, DISTANCES),
            ("response", self.response, ("own", "shared")),
            ("schedule", self.schedule, ("batched", "sequential")),
            ("labels", self.labels, ("proportional", "balanced")),
            ("relaxation", self.relaxation, RELAXATIONS),
        ):
            if value not in choices:
                raise unknown_name(what, value, choices)
        if self.schedule == "sequential" and self.response != "shared":
            raise InputError(
                "schedule 'sequential' trains theta on S_train only, so it needs response 'shared', "
                f"got '{self.response}'"
            )
        if self.schedule == "sequential" and self.val_batch:
            raise InputError(
                f"setting 'val_batch' {self.val_batch}: schedule 'sequential' has no mini-batches of S_val; "
                "leave it at 0, or choose schedule 'batched'"
            )
        counts = ("trajectories", "points", "steps", "batch", "check", "patience", "iterations", "repeats")
        for name in (*counts, "theta_steps", "lam_every"):
            if getattr(self, name) < 1:
                raise InputError(
                    f"setting '{name}' of method 'hcdc' must be at least 1, got {getattr(self, name)}"
                )
        for name, fits, allowed in (
            ("holdout", self.holdout >= 2, "at least 2"),
            ("lr", self.lr > 0, "more than 0"),
            ("step_lam", self.step_lam > 0, "more than 0"),
            ("anchors", self.anchors >= 0, "at least 0"),
            ("damping", self.damping >= 0, "at least 0"),
            ("val_batch", self.val_batch >= 0, "at least 0 (0 is all of S_val)"),
            ("nodes", self.nodes >= 0, "at least 0 (0 is all labelled nodes)"),
            ("tau", 0.2 <= self.tau <= 100, "from 0.2 (below, derivatives vanish in float32) to 100"),
        ):
            if not fits:
                raise InputError(
                    f"setting '{name}' of method 'hcdc' must be {allowed}, got {getattr(self, name)}"
                )
        hops = self.fanout.split(",") if self.fanout else []
        if not all(hop.strip().isdecimal() and int(hop) >= 1 for hop in hops):
            raise InputError(
                f"setting 'fanout' of method 'hcdc' must be numbers of at least 1 with commas between them, "
                f"e.g. '10,5,5', or empty for the whole graph, got '{self.fanout}'"
            )
        get_curvature(self.curvature)
        self.make_solver()

    @property
    def fanouts(self) -> tuple[int, ...]:
        """``fanout`` as numbers, one a hop."""
        return tuple(int(hop) for hop in self.fanout.split(",")) if self.fanout else ()

    def check_for(self, task: Task, space: Space) -> None:
        """Refuse, before any work, what these settings cannot do for a task and a space."""
        if self.distance == "cosine" and space.dimension == 1:
            raise InputError(
                f"distance 'cosine': space '{space.name}' has one dimension, where hypergradients have no "
                "direction to align; choose distance 'scaled_l2'"
            )
        for name in ("adjacency", "fanout", "nodes"):
            if getattr(self, name) and name not in task.learns:
                raise InputError(
                    f"setting '{name}' of method 'hcdc' is not for a task of kind '{task.kind}'; leave it out"
                )
        self.bind(task, space)

    def bind(self, task: Task, space: Space) -> Task:
        """The task with the relaxed network of a space."""
        return task.relaxed(space, self.relaxation, self.tau)

    def make_solver(self) -> Solver:
        if self.solver == "neumann":
            return get_solver("neumann", terms=self.iterations, damping=self.damping)
        if self.solver == "conjugate_gradient":
            return get_solver("conjugate_gradient", iterations=self.iterations, damping=self.damping)
        return get_solver(self.solver)

    def settings(self) -> dict[str, Any]:
        return dataclasses.asdict(self)


@dataclass
class Points:
    """What alignment needs at each lambda: B rows a field.

    Attributes:
        lam: lambda ``[B, H]``.
        at: lambda as networks take it ``[B, H]``, see `_Run.drawn`.
        g_T, v_T: Original hypergradients ``[B, H]`` and values ``[B]`` of the target loss.
        score_T: Original validation scores ``[B]`` (accuracy), for rivals that see the same full trainings.
        params, response: theta^S ``[B, ...]`` and J ``[B, H, ...]``.
    """

    lam: Tensor
    at: Tensor
    g_T: Tensor
    v_T: Tensor
    score_T: Tensor
    params: Params = field(repr=False)
    response: Params = field(repr=False)

    def rows(self, index: Tensor) -> Points:
        return Points(
            self.lam[index],
            self.at[index],
            self.g_T[index],
            self.v_T[index],
            self.score_T[index],
            {name: tensor[index] for name, tensor in self.params.items()},
            {name: tensor[index] for name, tensor in self.response.items()},
        )

    def joined(self, other: Points) -> Points:
        return Points(
            torch.cat([self.lam, other.lam]),
            torch.cat([self.at, other.at]),
            torch.cat([self.g_T, other.g_T]),
            torch.cat([self.v_T, other.v_T]),
            torch.cat([self.score_T, other.score_T]),
            {name: torch.cat([tensor, other.params[name]]) for name, tensor in self.params.items()},
            {name: torch.cat([tensor, other.response[name]]) for name, tensor in self.response.items()},
        )


@dataclass(frozen=True)
class Learned:
    """What HCDC returns.

    Attributes:
        val: S_val, the best iterate by the held-out objective.
        candidates: Hashes of every configuration met on the way.
        history: One dict a look: step, held-out objective.
        probes: ``{"lam": [[...]], "score": [...]}`` of the full trainings made (empty where none was).
        full_trainings: How many trainings on the original data it took.
    """

    val: Any
    candidates: list[str]
    history: list[dict[str, Any]]
    probes: dict[str, Any]
    full_trainings: int


def learn_validation(
    task: Task,
    space: Space,
    s_train: Any,
    val_size: int,
    seed: int,
    config: HCDC,
    full: Recipe,
    small: Recipe,
    *,
    device: torch.device | str,
    progress: Progress,
    checkpoint: Checkpoint,
) -> Learned:
    """Learn S_val for a fixed S_train.

    Args:
        task: The task on the original data, on ``device``.
        s_train: S_train, on ``device``.
        val_size: Number of synthetic validation examples.
        config: Settings.
        full, small: How candidates are trained on the original data and on S_train.
    """
    config.check_for(task, space)
    bound = config.bind(task.for_learning(config.structure, config.adjacency), space)
    s_val = bound.sample("val", val_size, seed, balanced=config.labels == "balanced")
    if config.val_batch:
        bound.subset(s_val, torch.zeros(1, dtype=torch.long, device=device))  # a task without it says so now
    sampling = bool(config.fanout or config.nodes)
    for data in (s_train, s_val) if sampling else (bound.train, bound.val, s_train, s_val):
        bound.prepare(data)
    run = _Run(
        bound, space, s_train, s_val, seed, config, full, small, torch.device(device), progress, checkpoint
    )
    return run.sequential() if config.schedule == "sequential" else run.batched()


def _flat(parts: dict[str, Params]) -> Params:
    """``{"t": {"x": ...}}`` as ``{"t/x": ...}``, which a checkpoint can hold."""
    return {f"{prefix}/{name}": tensor for prefix, part in parts.items() for name, tensor in part.items()}


class _Run:
    """One run of HCDC: its inputs, and the state that a checkpoint holds.

    Attributes:
        on_original, on_copy: The task with the losses of the two recipes. A recipe's weight decay is in the
            training loss, w/2 ||theta||^2, and so in the curvature of eq. (IFT).
    """

    def __init__(
        self,
        task: Task,
        space: Space,
        s_train: Any,
        s_val: Any,
        seed: int,
        config: HCDC,
        full: Recipe,
        small: Recipe,
        device: torch.device,
        progress: Progress,
        checkpoint: Checkpoint,
    ):
        self.task, self.space, self.s_train, self.s_val, self.seed = task, space, s_train, s_val, seed
        self.config, self.full, self.small, self.device = config, full, small, device
        self.progress, self.checkpoint = progress, checkpoint
        self.on_original, self.on_copy = task.by_recipe(full), task.by_recipe(small, s_train)
        self.solver = config.make_solver()
        self.lanes = max(1, task.lanes(task.train, device))
        self.tensors = {name: tensor.detach().clone() for name, tensor in task.tensors(s_val).items()}
        self.first = {name: torch.zeros_like(tensor) for name, tensor in self.tensors.items()}
        self.second = {name: torch.zeros_like(tensor) for name, tensor in self.tensors.items()}
        self.history: list[dict[str, Any]] = []
        self.candidates: list[str] = []

    # --- the batched schedule -----------------------------------------------------------------------------

    def batched(self) -> Learned:
        config = self.config
        self.phase = self.progress.phase("original hypergradients and S_val", config.steps)
        held = self.points(self.draw("holdout", config.holdout), "holdout")
        path = Trajectories(self.space, self.starts())
        seen: Points | None = None
        stale, begun = 0, 0
        saved = self.checkpoint.child("val").load()
        if saved is not None:
            tensors, state = saved
            begun, best, stale, self.history = state["step"], state["best"], state["stale"], state["history"]
            self.tensors, self.first, self.second, best_tensors = (self._part(tensors, p) for p in "tmvb")
        else:  # the start is an iterate too
            best, best_tensors = self.objective(held), {k: v.clone() for k, v in self.tensors.items()}
            self.history.append({"step": 0, "held_out": best})
        self.phase.first_step = begun
        bounds = [config.steps * (t + 1) // config.points for t in range(config.points)]
        for t, bound in enumerate(bounds):
            fresh = self.points(path.lam, f"point{t}")
            seen = fresh if seen is None else seen.joined(fresh)
            start = 0 if t == 0 else bounds[t - 1]
            last = t == config.points - 1
            for step in range(start, bound):
                if step < begun or (last and stale >= config.patience):
                    continue
                self.step_val(seen, step)
                if (step + 1) % config.check == 0 or step + 1 == bound:
                    objective = self.objective(held)
                    stale = 0 if objective < best else stale + 1
                    if objective < best:
                        best, best_tensors = objective, {k: v.clone() for k, v in self.tensors.items()}
                    self.history.append({"step": step + 1, "held_out": objective})
                    self.save(step + 1, best, best_tensors, stale)
                    self.phase.step(step + 1, f"held-out {objective:.3f}, best {best:.3f}")
            if not last:
                path.lam = self.next_lam(fresh, t, begun >= bound)
        assert seen is not None
        self.phase.step(config.steps, f"best held-out {best:.3f}")
        if best == self.history[0]["held_out"]:
            log.warning(
                "aligning hypergradients improved nothing on held-out points: S_val stays as it began"
            )
        trained = (seen, held) if config.response == "own" else ()
        probes: dict[str, list[Any]] = {
            "lam": [row for points in trained for row in self.weights(points.at).tolist()],
            "score": [score for points in trained for score in points.score_T.tolist()],
        }
        val = self.task.replace(self.s_val, best_tensors)
        return Learned(val, self.candidates, self.history, probes, len(probes["lam"]))

    def starts(self) -> Tensor:
        """lambda_{i,0}: random points, or, of a finite space, candidates of the condensing half."""
        if self.space.candidates() is None:
            return trajectory_starts(self.space, self.config.trajectories, self.seed).to(self.device)
        half = halves(self.space, self.seed)[0][: self.config.trajectories]
        starts = torch.stack([self.space.encode(config) for config in half]).float().to(self.device)
        return self.coordinates(starts)

    def draw(self, role: str, count: int) -> Tensor:
        """Fresh lambdas for one role; of a finite space, mixtures of candidates of the condensing half."""
        rng = numpy_stream(self.seed, role)
        if self.space.candidates() is None:
            drawn = [self.space.encode(config) for config in self.space.sample(count, rng)]
            return torch.stack(drawn).float().to(self.device)
        half = halves(self.space, self.seed)[0]
        some = min(MIXED, len(half))
        drawn = []
        for _ in range(count):
            members = [self.space.encode(half[i]) for i in rng.permutation(len(half))[:some]]
            drawn.append(torch.from_numpy(rng.dirichlet([1.0] * some)) @ torch.stack(members))
        return self.coordinates(self.space.project(torch.stack(drawn).float()).to(self.device))

    def coordinates(self, lam: Tensor) -> Tensor:
        """Weights ``[B, H]`` as trajectories move them: as they are; where operations are drawn, logits."""
        return lam if self.config.relaxation == "softmax" else lam.clamp_min(LEAST).log()

    def drawn(self, lam: Tensor, *key: object) -> Tensor:
        """lambda ``[B, H]`` as networks take it: as it is, or with a Gumbel draw in each row, so frozen.

        A derivative in the sum of logits and noise is one in the logits. The cells drawn are candidates met.
        """
        if self.config.relaxation == "softmax":
            return lam
        noise = [gumbel_noise(stream(self.seed, "gumbel", *key, i)) for i in range(len(lam))]
        at = lam + torch.stack(noise).to(lam)
        cells = [self.space.counterpart(self.space.decode(row)) for row in at.cpu()]
        self.candidates += [config_hash(cell) for cell in cells]
        return at

    def weights(self, at: Tensor) -> Tensor:
        """The weights of operations that networks compute with ``[B, H]``."""
        return at if self.config.relaxation == "softmax" else gumbel_one_hot(at, self.config.tau)

    def moved(self, lam: Tensor, direction: Tensor) -> Tensor:
        """lambda ``[B, H]`` after a step against a direction; logits have no border to return to."""
        if self.config.relaxation == "softmax":
            return Trajectories(self.space, lam).step(direction, self.config.step_lam)
        return lam - self.config.step_lam * direction

    def points(self, lam: Tensor, name: str) -> Points:
        """Train at each lambda on the original data and on S_train, and take hypergradients and responses."""
        self.candidates += self.met(lam)
        at = self.drawn(lam, name)
        small = self._small_side(at, name)
        if self.config.response == "shared":
            g_T, v_T, score_T = self._original_at(small[0], at, *self.original(name, 0))
        else:
            g_T, v_T, score_T = self._original_side(at, name)
        bad = torch.nonzero(~torch.isfinite(torch.linalg.vector_norm(g_T, dim=1))).flatten()
        if len(bad):
            raise NumericalError(
                "the original hypergradient at lambda = "
                f"{[round(v, 4) for v in lam[bad[0]].tolist()]} is not finite ({len(bad)} of {len(lam)} "
                f"points); try more damping (now {self.config.damping}) or curvature 'gauss_newton'"
            )
        return Points(lam, at, g_T, v_T, score_T, *small)

    def met(self, lam: Tensor) -> list[str]:
        """Hashes of the configurations at lambda ``[B, H]``; of a finite space, of all the condensing half.

        A mixture of candidates is none of them: what it is made of is what must not judge the copy.
        """
        if self.space.candidates() is None:
            return [config_hash(self.space.decode(row)) for row in lam.cpu()]
        return [config_hash(config) for config in halves(self.space, self.seed)[0]]

    def original(self, *key: object) -> tuple[Any, Any]:
        """T_train, augmented by the recipe, and T_val, or sampled sets that stand for them; a draw a key."""
        train, val = self._sampled(*key)
        return self._augmented(train, self.full, "original", *key), val

    def _augmented(self, data: Any, recipe: Recipe, *key: object) -> Any:
        """Training images as a step meets them: the training loss is a mean over augmentations."""
        return self.task.augmented(data, recipe, stream(self.seed, "augmentation", *key))

    def _sampled(self, *key: object) -> tuple[Any, Any]:
        config = self.config
        if not (config.fanout or config.nodes):
            return self.task.train, self.task.val
        return self.task.sampled(config.nodes, config.fanouts, derive(self.seed, "neighbours", *key))

    def _small_side(self, lam: Tensor, name: str) -> tuple[Params, Params]:
        """theta^S ``[B, ...]`` and J ``[B, H, ...]``."""
        keys = [(name, i) for i in range(len(lam))]
        init = init_many(self.task, keys, self.seed, "hcdc-small", self.device)
        params = self.trained(init, lam, self.s_train, self.small)
        response = batched_best_response(
            self.on_copy, params, lam, self._curved(name), self.solver, self.config.curvature,
            chunk_size=self.lanes,
        )  # fmt: skip
        return params, response

    def trained(self, init: Params, lam: Tensor, data: Any, recipe: Recipe) -> Params:
        """`train_many` on the copy: all lanes at once, or, of images, as many as fit."""
        lanes = self.lanes if self.task.mini_batches else len(lam)
        parts = [
            train_many(
                self.on_copy,
                {name: tensor[start : start + lanes] for name, tensor in init.items()},
                lam[start : start + lanes],
                data,
                recipe,
            )
            for start in range(0, len(lam), lanes)
        ]
        return {name: torch.cat([part[name] for part in parts]) for name in init}

    def _curved(self, name: str) -> Any:
        """What of S_train the linear systems are made of: all, or, of images, ``nodes`` drawn ones."""
        data = self.task.curved(self.s_train, self.config.nodes, stream(self.seed, "curvature"))
        return self._augmented(data, self.small, "copy", name)

    def _original_side(self, lam: Tensor, name: str) -> tuple[Tensor, Tensor, Tensor]:
        """g_T, v_T and scores at parameters trained on the original data; each chunk is checkpointed."""
        store = self.checkpoint.child(f"original-{name}")
        saved = store.load()
        done = [] if saved is None else [tuple(saved[0][k].to(self.device) for k in ("g", "v", "s"))]
        first = 0 if saved is None else int(saved[1]["rows"])
        for start in range(first, len(lam), self.lanes):
            rows = slice(start, start + self.lanes)
            keys = [(name, i) for i in range(start, min(start + self.lanes, len(lam)))]
            init = init_many(self.task, keys, self.seed, "hcdc-original", self.device)
            train, val = self.original(name, start)
            whole = self.task.train if self.task.mini_batches else train
            params = train_many(self.on_original, init, lam[rows], whole, self.full)
            done.append(self._original_at(params, lam[rows], train, val))
            reached = min(start + self.lanes, len(lam))
            joined = [torch.cat(parts) for parts in zip(*done)]
            store.save(dict(zip("gvs", joined)), {"rows": reached})
            self.progress.report(f"original data, {name}: {reached}/{len(lam)} trainings and hypergradients")
        g, v, s = (torch.cat(parts) for parts in zip(*done))
        return g, v, s

    def _original_at(
        self, params: Params, lam: Tensor, train: Any, val: Any
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Hypergradient and value of the target loss on T_val, and the score there, at given parameters."""
        target = self.on_original.target()
        g = batched_hypergradient(
            target, params, lam, train, val, self.solver, self.config.curvature, chunk_size=self.lanes
        ).total
        values = torch.func.vmap(lambda p, l: target.val_loss(p, l, val))(params, lam).detach()
        return g, values, score_many(self.task, params, lam, val).score

    def step_val(self, points: Points, step: int) -> None:
        """One Adam step on S_val, averaged over a random batch of points."""
        generator = stream(self.seed, "val-batch", step)
        index = torch.randperm(len(points.lam), generator=generator)[: self.config.batch].to(self.device)
        some = points.rows(index)
        loss, gradient = anchored_gradient(
            self.on_copy,
            some.params,
            some.at,
            some.response,
            some.g_T,
            some.v_T,
            self.task.replace(self.s_val, self.tensors),
            self.config.distance,
            self.config.anchors,
            self.val_batch(step),
        )
        self._apply(gradient, step, loss)

    def val_batch(self, step: int) -> Tensor | None:
        """Which examples of S_val are in the loss of a step; None is all."""
        if not 0 < self.config.val_batch < len(self.s_val):
            return None
        order = torch.randperm(len(self.s_val), generator=stream(self.seed, "val-nodes", step))
        return order[: self.config.val_batch].sort().values.to(self.device)

    def _apply(self, gradient: dict[str, Tensor], step: int, loss: Tensor) -> None:
        if not all(bool(torch.isfinite(g).all()) for g in gradient.values()):
            raise NumericalError(
                f"the gradient of S_val is not finite at step {step + 1} (loss {float(loss):.4g}); "
                f"try a smaller lr (now {self.config.lr}) or more damping (now {self.config.damping})"
            )
        adam_step(self.tensors, gradient, self.first, self.second, step + 1, self.config.lr)

    def objective(self, held: Points) -> float:
        """The objective on the held-out lambdas."""
        data = self.task.replace(self.s_val, self.tensors)
        with torch.no_grad():
            v_S, g_S = values_and_hypergradients(self.on_copy, held.params, held.at, held.response, data)
        self._check_size(g_S, v_S)
        return float(anchored_loss(held.g_T, held.v_T, g_S, v_S, self.config.distance, self.config.anchors))

    def _check_size(self, *found: Tensor) -> None:
        """Stop where synthetic values or hypergradients are too large to square: no distance is left."""
        if all(bool(torch.isfinite(tensor.square().sum())) for tensor in found):
            return
        largest = max(float(tensor.abs().max()) for tensor in self.tensors.values())
        raise NumericalError(
            f"values or hypergradients of S_val are not finite or too large to square (S_val reaches "
            f"{largest:.3g}); scale the features, or try a smaller lr (now {self.config.lr}) or more damping "
            f"(now {self.config.damping})"
        )

    def next_lam(self, points: Points, t: int, resumed: bool) -> Tensor:
        """One step of every trajectory along the synthetic hypergradient at the current S_val."""
        store = self.checkpoint.child(f"lam{t + 1}")
        if resumed and (saved := store.load()) is not None:
            return saved[0]["lam"].to(self.device)
        data = self.task.replace(self.s_val, self.tensors)
        with torch.no_grad():
            _, g_S = values_and_hypergradients(self.on_copy, points.params, points.at, points.response, data)
        direction = g_S / torch.linalg.vector_norm(g_S, dim=1, keepdim=True).clamp_min(1e-12)
        lam = self.moved(points.lam, direction)
        store.save({"lam": lam}, {})
        return lam

    def save(self, step: int, best: float, best_tensors: Params, stale: int) -> None:
        parts = {"t": self.tensors, "m": self.first, "v": self.second, "b": best_tensors}
        state = {"step": step, "best": best, "stale": stale, "history": self.history}
        self.checkpoint.child("val").save(_flat(parts), state)

    def _part(self, tensors: dict[str, Tensor], prefix: str) -> Params:
        start = f"{prefix}/"
        return {k.removeprefix(start): v.to(self.device) for k, v in tensors.items() if k.startswith(start)}

    # --- Algorithm 1 to the letter ------------------------------------------------------------------------

    def sequential(self) -> Learned:
        """For each repeat and lambda_i: theta learns from S_train, lambda every T_lambda, S_val always."""
        config = self.config
        starts = self.starts()
        total = config.repeats * len(starts)
        phase = self.progress.phase("Algorithm 1", total)
        saved = self.checkpoint.child("val").load()
        begun, step = 0, 0
        if saved is not None:
            tensors, state = saved
            begun, step, self.history = state["round"], state["step"], state["history"]
            self.candidates = state["candidates"]
            self.tensors, self.first, self.second = (self._part(tensors, p) for p in "tmv")
        gradient_theta = torch.func.vmap(torch.func.grad(self.on_copy.train_loss), in_dims=(0, 0, None))
        target = self.on_original.target()
        for turn in range(begun, total):
            lam = starts[turn % len(starts)][None]
            self.candidates += self.met(lam)
            at = self.drawn(lam, "sequential", turn, 0)
            train, val = self.original("sequential", turn)
            theta = init_many(self.task, [(turn,)], self.seed, "hcdc-sequential", self.device)
            first = {name: torch.zeros_like(tensor) for name, tensor in theta.items()}
            second = {name: torch.zeros_like(tensor) for name, tensor in theta.items()}
            losses = []
            for t in range(config.theta_steps):
                adam_step(theta, gradient_theta(theta, at, self.s_train), first, second, t + 1, self.small.lr)
                data = self.task.replace(self.s_val, self.tensors)
                if t % config.lam_every == 0:
                    g_S = batched_hypergradient(
                        self.on_copy, theta, at, self.s_train, data, self.solver, config.curvature
                    ).total
                    self._check_size(g_S)
                    direction = g_S / torch.linalg.vector_norm(g_S).clamp_min(1e-12)
                    lam = self.moved(lam, direction)
                    at = self.drawn(lam, "sequential", turn, t + 1)
                g_T = batched_hypergradient(
                    target, theta, at, train, val, self.solver, config.curvature
                ).total
                loss, gradient = alignment_gradient(
                    self.on_copy, theta, at, g_T, self.s_train, data, self.solver, config.curvature,
                    config.distance,
                )  # fmt: skip
                self._apply(gradient, step, loss)
                losses.append(float(loss))
                step += 1
            self.candidates += self.met(lam)
            self.history.append({"step": step, "train": sum(losses) / len(losses)})
            parts = {"t": self.tensors, "m": self.first, "v": self.second}
            state = {"round": turn + 1, "step": step, "history": self.history, "candidates": self.candidates}
            self.checkpoint.child("val").save(_flat(parts), state)
            phase.step(turn + 1, f"alignment {self.history[-1]['train']:.3f}")
        return Learned(
            self.task.replace(self.s_val, self.tensors),
            self.candidates,
            self.history,
            {"lam": [], "score": []},
            0,
        )
