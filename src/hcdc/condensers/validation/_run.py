"""What the ways that learn S_val by gradients share: lambdas, trainings on both data sets, Adam steps."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from hcdc.condensers.validation._factors import examples_form
from hcdc.condensers.validation._settings import Learning
from hcdc.core.checkpoint import Checkpoint
from hcdc.core.configs import config_hash
from hcdc.core.errors import NumericalError
from hcdc.core.progress import Progress
from hcdc.core.recipe import Recipe
from hcdc.core.seeds import derive, numpy_stream, stream
from hcdc.hypergrad import batched_best_response, batched_hypergradient
from hcdc.networks import Params, gumbel_noise, gumbel_one_hot
from hcdc.spaces import Space, halves
from hcdc.tasks import Task
from hcdc.training import adam_step, init_many, score_many, train_many

MIXED = 3
"""Candidates of a finite space mixed in a held-out lambda."""

LEAST = 0.01
"""Smallest operation weight before taking logs (avoids -inf)."""


@dataclass(frozen=True)
class Learned:
    """The result of alignment.

    Attributes:
        val: S_val, the best iterate by the held-out objective.
        candidates: Hashes of every configuration encountered.
        history: One dict per check: step, held-out objective.
        probes: ``{"lam": [[...]], "score": [...]}`` of the full trainings made; may be empty.
        full_trainings: Number of trainings on the original data.
    """

    val: Any
    candidates: list[str]
    history: list[dict[str, Any]]
    probes: dict[str, Any]
    full_trainings: int


def flat(parts: dict[str, Params]) -> Params:
    """Flatten ``{"t": {"x": ...}}`` to ``{"t/x": ...}`` for checkpoints."""
    return {f"{prefix}/{name}": tensor for prefix, part in parts.items() for name, tensor in part.items()}


class Run:
    """One run that learns S_val: its inputs, and the state that a checkpoint holds.

    Attributes:
        on_original, on_copy: The task with the losses of the two recipes. A recipe's weight decay enters the
            training loss as w/2 ||theta||^2, and hence the curvature of eq. (IFT).
        learned: The numbers that are learned; `tensors` are those of S_val that follow, see `Form`.
    """

    def __init__(
        self,
        task: Task,
        space: Space,
        s_train: Any,
        s_val: Any,
        seed: int,
        config: Learning,
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
        self.form = examples_form(task.tensors(s_val), config.factors, seed)
        self.learned = self.form.start()
        self.first = {name: torch.zeros_like(tensor) for name, tensor in self.learned.items()}
        self.second = {name: torch.zeros_like(tensor) for name, tensor in self.learned.items()}
        self.history: list[dict[str, Any]] = []
        self.candidates: list[str] = []

    @property
    def tensors(self) -> dict[str, Tensor]:
        """The tensors of S_val."""
        return self.form.examples(self.learned)

    def draw(self, role: str, count: int) -> Tensor:
        """Fresh lambdas for one role; in a finite space, mixtures of candidates from the condensing half."""
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
        """Weights ``[B, H]`` in the coordinates of trajectories: logits if operations are drawn."""
        return lam if self.config.relaxation == "softmax" else lam.clamp_min(LEAST).log()

    def drawn(self, lam: Tensor, *key: object) -> Tensor:
        """lambda ``[B, H]`` as networks use it: unchanged, or with a fixed Gumbel draw added to each row.

        A derivative in logits plus noise is one in the logits. Drawn cells count as candidates encountered.
        """
        if self.config.relaxation == "softmax":
            return lam
        noise = [gumbel_noise(stream(self.seed, "gumbel", *key, i)) for i in range(len(lam))]
        at = lam + torch.stack(noise).to(lam)
        cells = [self.space.counterpart(self.space.decode(row)) for row in at.cpu()]
        self.candidates += [config_hash(cell) for cell in cells]
        return at

    def weights(self, at: Tensor) -> Tensor:
        """The operation weights that networks use ``[B, H]``."""
        return at if self.config.relaxation == "softmax" else gumbel_one_hot(at, self.config.tau)

    def met(self, lam: Tensor) -> list[str]:
        """Hashes of the configurations at lambda ``[B, H]``; in a finite space, of the condensing half.

        A mixture is no candidate itself; its components are the ones that must not judge the copy.
        """
        if self.space.candidates() is None:
            return [config_hash(self.space.decode(row)) for row in lam.cpu()]
        return [config_hash(config) for config in halves(self.space, self.seed)[0]]

    def original(self, *key: object) -> tuple[Any, Any]:
        """Augmented T_train and T_val, or samples of them; one draw per key."""
        train, val = self._sampled(*key)
        return self.augmented(train, self.full, "original", *key), val

    def augmented(self, data: Any, recipe: Recipe, *key: object) -> Any:
        """Training images as a step sees them: the training loss is a mean over augmentations."""
        return self.task.augmented(data, recipe, stream(self.seed, "augmentation", *key))

    def _sampled(self, *key: object) -> tuple[Any, Any]:
        config = self.config
        if not config.samples:
            return self.task.train, self.task.val
        return self.task.sampled(config.nodes, config.fanouts, derive(self.seed, "neighbours", *key))

    def small_side(self, lam: Tensor, name: str) -> tuple[Params, Params]:
        """theta^S ``[B, ...]`` and J ``[B, H, ...]``."""
        keys = [(name, i) for i in range(len(lam))]
        init = init_many(self.task, keys, self.seed, "hcdc-small", self.device)
        params = self.trained(init, lam, self.s_train, self.small)
        response = batched_best_response(
            self.on_copy, params, lam, self._curved(name), self.solver, self.config.curvature,
            chunk_size=self.lanes,
        )  # fmt: skip
        return params, response

    def _curved(self, name: str) -> Any:
        """The examples of S_train in the linear systems, augmented by the recipe."""
        data = self.task.curved(self.s_train, self.config.nodes, stream(self.seed, "curvature"))
        return self.augmented(data, self.small, "copy", name)

    def trained(self, init: Params, lam: Tensor, data: Any, recipe: Recipe) -> Params:
        """`train_many` on the copy: all lanes at once or, with mini-batches, as many as fit."""
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

    def original_side(self, lam: Tensor, name: str) -> tuple[Tensor, Tensor, Tensor]:
        """g_T, v_T and scores after training on the original data; checkpoints each chunk."""
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
            done.append(self.original_at(params, lam[rows], train, val))
            reached = min(start + self.lanes, len(lam))
            joined = [torch.cat(parts) for parts in zip(*done)]
            store.save(dict(zip("gvs", joined)), {"rows": reached})
            self.progress.report(f"original data, {name}: {reached}/{len(lam)} trainings and hypergradients")
        g, v, s = (torch.cat(parts) for parts in zip(*done))
        return g, v, s

    def original_at(self, params: Params, lam: Tensor, train: Any, val: Any) -> tuple[Tensor, Tensor, Tensor]:
        """Hypergradient and value of the target loss on T_val, and the score, at given parameters."""
        target = self.on_original.target()
        g = batched_hypergradient(
            target, params, lam, train, val, self.solver, self.config.curvature, chunk_size=self.lanes
        ).total
        values = torch.func.vmap(lambda p, l: target.val_loss(p, l, val))(params, lam).detach()
        return g, values, score_many(self.task, params, lam, val).score

    def apply(self, gradient: dict[str, Tensor], step: int, loss: Tensor) -> None:
        """An Adam step on what is learned, from the gradient in S_val's tensors."""
        if not all(bool(torch.isfinite(g).all()) for g in gradient.values()):
            raise NumericalError(
                f"the gradient of S_val is not finite at step {step + 1} (loss {float(loss):.4g}); "
                f"try a smaller lr (now {self.config.lr}) or more damping (now {self.config.damping})"
            )
        chained = self.form.chained(self.learned, gradient)
        adam_step(self.learned, chained, self.first, self.second, step + 1, self.config.lr)

    def check_size(self, *found: Tensor) -> None:
        """Stop if synthetic values or hypergradients are too large to square, so no distance exists."""
        if all(bool(torch.isfinite(tensor.square().sum())) for tensor in found):
            return
        largest = max(float(tensor.abs().max()) for tensor in self.tensors.values())
        raise NumericalError(
            f"values or hypergradients of S_val are not finite or too large to square (S_val reaches "
            f"{largest:.3g}); scale the features, or try a smaller lr (now {self.config.lr}) or more damping "
            f"(now {self.config.damping})"
        )

    def part(self, tensors: dict[str, Tensor], prefix: str) -> Params:
        start = f"{prefix}/"
        return {k.removeprefix(start): v.to(self.device) for k, v in tensors.items() if k.startswith(start)}
