"""The sequential schedule, exactly as in Algorithm 1: one trajectory after another."""

from __future__ import annotations

import torch

from hcdc.condensers.validation._points import AlignedRun
from hcdc.condensers.validation._run import Learned, flat
from hcdc.hypergrad import alignment_gradient, batched_hypergradient
from hcdc.training import adam_step, init_many


class Sequential(AlignedRun):
    """Algorithm 1: updates S_val and lambda while theta trains."""

    def learn(self) -> Learned:
        """For each repeat and lambda_i: update theta and S_val in every step, lambda every T_lambda steps."""
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
            self.learned, self.first, self.second = (self.part(tensors, p) for p in "tmv")
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
                    self.check_size(g_S)
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
                self.apply(gradient, step, loss)
                losses.append(float(loss))
                step += 1
            self.candidates += self.met(lam)
            self.history.append({"step": step, "train": sum(losses) / len(losses)})
            parts = {"t": self.learned, "m": self.first, "v": self.second}
            state = {"round": turn + 1, "step": step, "history": self.history, "candidates": self.candidates}
            self.checkpoint.child("val").save(flat(parts), state)
            phase.step(turn + 1, f"alignment {self.history[-1]['train']:.3f}")
        return Learned(
            self.task.replace(self.s_val, self.tensors),
            self.candidates,
            self.history,
            {"lam": [], "score": []},
            0,
        )
