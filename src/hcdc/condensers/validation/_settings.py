"""Settings that ways to make S_val share: those of alignment, and those of learning from probes."""

from __future__ import annotations

from dataclasses import dataclass

from hcdc.core.errors import InputError
from hcdc.core.settings import Settings, setting
from hcdc.hypergrad import DISTANCES, Solver, get_curvature, get_solver
from hcdc.spaces import Space, halves
from hcdc.tasks import Task


@dataclass(frozen=True)
class Alignment(Settings):
    """Settings of alignment. The defaults are ours (the paper names no values).

    Preset ``"paper"`` is Algorithm 1 to the letter.

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
        distance: ``"cosine"`` (the paper's) or ``"scaled_l2"`` (one global scale), which spaces of one
            dimension take by default.
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

    name = "hcdc"

    trajectories: int = setting(80, least=1)
    points: int = setting(2, least=1)
    step_lam: float = setting(0.25, above=0)
    holdout: int = setting(32, least=2)
    steps: int = setting(500, least=1)
    lr: float = setting(1e-3, above=0)
    batch: int = setting(32, least=1)
    check: int = setting(50, least=1)
    patience: int = setting(6, least=1)
    distance: str = setting("cosine", choices=tuple(DISTANCES))
    anchors: float = setting(1.0, least=0)
    response: str = setting("own", choices=("own", "shared"))
    schedule: str = setting("batched", choices=("batched", "sequential"))
    solver: str = "conjugate_gradient"
    iterations: int = setting(10, least=1)
    damping: float = setting(1e-3, least=0)
    curvature: str = "gauss_newton"
    labels: str = setting("proportional", choices=("proportional", "balanced"))
    structure: str = "reach"
    adjacency: bool = False
    repeats: int = setting(1, least=1)
    theta_steps: int = setting(50, least=1)
    lam_every: int = setting(10, least=1)
    val_batch: int = setting(0, least=0, note="0 is all of S_val")
    fanout: str = ""
    nodes: int = setting(0, least=0, note="0 is all labelled examples")
    relaxation: str = setting("softmax", choices=("softmax", "gdas"))
    tau: float = setting(1.0, least=0.2, most=100, note="below 0.2 derivatives vanish in float32")

    def __post_init__(self) -> None:
        super().__post_init__()
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
        hops = self.fanout.split(",") if self.fanout else []
        if not all(hop.strip().isdecimal() and int(hop) >= 1 for hop in hops):
            raise InputError(
                f"setting 'fanout' of {self.owner()} must be numbers of at least 1 with commas between them, "
                f"e.g. '10,5,5', or empty for the whole graph, got '{self.fanout}'"
            )
        get_curvature(self.curvature)
        self.make_solver()

    @property
    def fanouts(self) -> tuple[int, ...]:
        """``fanout`` as numbers, one per hop."""
        return tuple(int(hop) for hop in self.fanout.split(",")) if self.fanout else ()

    @property
    def samples(self) -> bool:
        """Whether smaller sets stand for T_train and T_val."""
        return bool(self.fanout or self.nodes)

    def starts(self, space: Space, seed: int) -> int:
        """How many trajectories there are."""
        if space.candidates() is None:
            return self.trajectories
        return min(self.trajectories, len(halves(space, seed)[0]))

    def point_count(self, space: Space, seed: int) -> int:
        """Lambdas at which hypergradients are taken: points of trajectories, and those held out."""
        return self.starts(space, seed) * self.points + self.holdout

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
                    f"setting '{name}' of {self.owner()} is not for {task.kind} tasks; leave it out"
                )
        self.bind(task, space)

    def bind(self, task: Task, space: Space) -> Task:
        """The task with the relaxed network of a space."""
        return task.relaxed(space, self.relaxation, self.tau)

    def make_solver(self) -> Solver:
        """What solves the systems of eq. (IFT)."""
        if self.solver == "neumann":
            return get_solver("neumann", terms=self.iterations, damping=self.damping)
        if self.solver == "conjugate_gradient":
            return get_solver("conjugate_gradient", iterations=self.iterations, damping=self.damping)
        return get_solver(self.solver)


FEWEST = 4
"""Probes with a finite result, at least."""


@dataclass(frozen=True)
class Probing(Settings):
    """Settings of the ways that learn S_val from probes.

    Attributes:
        probes: How many candidates have their full-data result looked up or trained.
        probe_steps: Adam steps on the examples of S_val.
        probe_lr: Their learning rate.
        pool: Real validation examples among which weighted ones are chosen.
        ridge: Strength with which weights are held at equal ones.
        companions: How many further candidates are trained on S_train alone, see `Companions`; in a finite
            space at most what the probes leave of the condensing half.
        calibrate: Choose the recipe on the copy by the probes, see `choose_recipe`.
    """

    name = "hcdc"

    probes: int = setting(20, least=FEWEST)
    probe_steps: int = setting(60, least=1)
    probe_lr: float = setting(0.01, above=0)
    pool: int = setting(2000, least=1)
    ridge: float = setting(10.0, above=0)
    companions: int = setting(0, least=4, also=0)
    calibrate: bool = False
