"""Settings that several ways to make S_val share: for alignment, and for learning from probes."""

from __future__ import annotations

from dataclasses import dataclass

from hcdc.core.errors import InputError
from hcdc.core.settings import Settings, setting
from hcdc.hypergrad import DISTANCES, Solver, get_curvature, get_solver
from hcdc.spaces import Space, halves
from hcdc.tasks import Task


@dataclass(frozen=True)
class Learning(Settings):
    """Settings of every way that takes hypergradients on the original data and learns S_val by gradients.

    Neighbour sampling (``fanout``, ``nodes``) is for original graphs that do not fit. Each batch of points
    is trained, and its original hypergradients are taken, on one sampled T_train and T_val (role
    ``"neighbours"``). This approximates two things. Losses are means over the sampled labelled nodes, so
    values of different batches of points differ by mini-batch noise. Neighbourhoods are sampled, and P is
    normalised by the sampled degrees; this bias vanishes if fanouts keep every neighbour over more hops than
    the network sees (layers times order, for filters). S_train, S_val and `hcdc.evaluate` are not affected.

    Attributes:
        steps: Total Adam steps on S_val.
        lr: Learning rate of S_val.
        batch: Points that a step on S_val averages over.
        check: Steps on S_val between two checks of the held-out objective; the best iterate is kept.
        solver, iterations, damping, curvature: How (IFT) systems are solved.
        labels: Labels of S_val, ``"proportional"`` or ``"balanced"``.
        structure: Edges among the initial nodes of S_val, ``"reach"`` or ``"induced"`` (graphs only).
        adjacency: Also learn the edge weights of a synthetic validation graph.
        factors: Learn the change of S_val's examples as a product of this rank; 0 learns every number, see
            `Factors`.
        fanout: Neighbours of a node kept at each hop, as in ``"10,5,5"``; empty means the whole graph.
        nodes: Labelled nodes (or images) of a sampled T_train or T_val; 0 means all. For images, training
            losses, curvature and mixed derivatives use this many, validation losses four times as many, with
            equal counts per class (at least one, at most the size of the smallest class).
        relaxation: What an edge of the relaxed cell computes (NAS-Bench-201): ``"softmax"`` mixes all
            operations with the weights lambda; ``"gdas"`` draws one operation with these weights, with the
            straight-through derivatives of a Gumbel softmax in the logits, which the trajectories move. Each
            point has one draw (role ``"gumbel"``) for both data sets, in training and linear systems.
        tau: Temperature of that Gumbel softmax.
    """

    name = "hcdc"

    steps: int = setting(500, least=1)
    lr: float = setting(1e-3, above=0)
    batch: int = setting(32, least=1)
    check: int = setting(50, least=1)
    solver: str = "conjugate_gradient"
    iterations: int = setting(10, least=1)
    damping: float = setting(1e-3, least=0)
    curvature: str = "gauss_newton"
    labels: str = setting("proportional", choices=("proportional", "balanced"))
    structure: str = "reach"
    adjacency: bool = False
    factors: int = setting(0, least=0, note="0 learns every number")
    fanout: str = ""
    nodes: int = setting(0, least=0, note="0 is all labelled examples")
    relaxation: str = setting("softmax", choices=("softmax", "gdas"))
    tau: float = setting(1.0, least=0.2, most=100, note="below 0.2 derivatives vanish in float32")

    def __post_init__(self) -> None:
        super().__post_init__()
        hops = self.fanout.split(",") if self.fanout else []
        if not all(hop.strip().isdecimal() and int(hop) >= 1 for hop in hops):
            raise InputError(
                f"setting 'fanout' of {self.owner()} must be numbers of at least 1 separated by commas, "
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
        """Whether samples replace T_train and T_val."""
        return bool(self.fanout or self.nodes)

    def check_for(self, task: Task, space: Space) -> None:
        """Refuse, before any work, a task or space that these settings cannot handle."""
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
        """The solver for the systems of eq. (IFT)."""
        if self.solver == "neumann":
            return get_solver("neumann", terms=self.iterations, damping=self.damping)
        if self.solver == "conjugate_gradient":
            return get_solver("conjugate_gradient", iterations=self.iterations, damping=self.damping)
        return get_solver(self.solver)


@dataclass(frozen=True)
class Alignment(Learning):
    """Settings of alignment. The defaults are ours (the paper gives no values).

    Preset ``"paper"`` follows Algorithm 1 exactly. The settings of `Learning` come first.

    Attributes:
        trajectories: p, the number of HPO trajectories (finite spaces: at most; each starts at a candidate).
        points: Points per trajectory at which hypergradients are aligned.
        step_lam: Length of a trajectory step in lambda, in the direction of the synthetic hypergradient.
        holdout: Number of fresh lambdas that monitor the objective and never train S_val.
        patience: Checks without improvement before the run stops; the best iterate is kept.
        distance: ``"cosine"`` (the paper's) or ``"scaled_l2"`` (one global scale), the default for
            one-dimensional spaces.
        anchors: Weight of the value term (see `hcdc.hypergrad.anchored_loss`). It uses values that the full
            trainings for the original hypergradients give anyway; 0 only aligns hypergradients.
        response: Where original hypergradients are taken: ``"own"``, at parameters trained on the original
            data, or ``"shared"``, at the parameters trained on S_train, as in Algorithm 1.
        schedule: ``"batched"``: steps on S_val average over points of many trajectories; ``"sequential"``:
            one trajectory after another, updating S_val and lambda while theta trains (Algorithm 1; needs
            ``response="shared"``).
        repeats, theta_steps, lam_every: K, T_theta and T_lambda of Algorithm 1 (sequential schedule only).
        val_batch: Examples of S_val in the loss of a step, redrawn for each (role ``"val-nodes"``); 0 means
            all (batched schedule only).
    """

    trajectories: int = setting(80, least=1)
    points: int = setting(2, least=1)
    step_lam: float = setting(0.25, above=0)
    holdout: int = setting(32, least=2)
    patience: int = setting(6, least=1)
    distance: str = setting("cosine", choices=tuple(DISTANCES))
    anchors: float = setting(1.0, least=0)
    response: str = setting("own", choices=("own", "shared"))
    schedule: str = setting("batched", choices=("batched", "sequential"))
    repeats: int = setting(1, least=1)
    theta_steps: int = setting(50, least=1)
    lam_every: int = setting(10, least=1)
    val_batch: int = setting(0, least=0, note="0 is all of S_val")

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

    def starts(self, space: Space, seed: int) -> int:
        """Number of trajectories."""
        if space.candidates() is None:
            return self.trajectories
        return min(self.trajectories, len(halves(space, seed)[0]))

    def point_count(self, space: Space, seed: int) -> int:
        """Number of lambdas with hypergradients: trajectory points and held-out ones."""
        return self.starts(space, seed) * self.points + self.holdout

    def check_for(self, task: Task, space: Space) -> None:
        if self.distance == "cosine" and space.dimension == 1:
            raise InputError(
                f"distance 'cosine': space '{space.name}' has one dimension, where hypergradients have no "
                "direction to align; choose distance 'scaled_l2'"
            )
        super().check_for(task, space)


FEWEST = 4
"""Fewest probes with a finite result."""


@dataclass(frozen=True)
class Probing(Settings):
    """Settings of the ways that learn S_val from probes.

    Attributes:
        probes: Candidates whose full-data result is looked up or trained.
        probe_steps: Adam steps on the examples of S_val.
        probe_lr: Their learning rate.
        factors: As in `Learning`.
        pool: Real validation examples from which weighted ones are chosen.
        ridge: How strongly weights are pulled towards equal ones.
        companions: Further candidates trained only on S_train, see `Companions`; in a finite space at most
            what the probes leave of the condensing half.
        calibrate: Let the probes choose the recipe on the copy, see `choose_recipe`.
        target: What companions are expected to reach, see `TARGETS`: ``"ridge"``, a ridge regression on the
            probes plus minus the real loss; ``"model"``, the posterior mean of `hcdc.core.posterior` given
            everything known. Needs ``companions``.
        objective: What S_val minimises, see `OBJECTIVES`: ``"correlation"`` with the ranks of the target, or
            ``"top"``, a Bradley-Terry loss weighted toward the top of the target.
    """

    name = "hcdc"

    probes: int = setting(20, least=FEWEST)
    probe_steps: int = setting(60, least=1)
    probe_lr: float = setting(0.01, above=0)
    factors: int = setting(0, least=0, note="0 learns every number")
    pool: int = setting(2000, least=1)
    ridge: float = setting(10.0, above=0)
    companions: int = setting(0, least=4, also=0)
    calibrate: bool = False
    target: str = setting("ridge", choices=("ridge", "model"))
    objective: str = setting("correlation", choices=("correlation", "top"))

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.target == "model" and not self.companions:
            raise InputError(
                f"target 'model' of {self.owner()} scores companions, and there are none; add some, e.g. "
                "companions=60, or leave target out"
            )
