"""The batched schedule: steps on S_val average over points of many trajectories."""

from __future__ import annotations

import logging
from typing import Any

import torch
from torch import Tensor

from hcdc.condensers.validation._points import AlignedRun, Points
from hcdc.condensers.validation._run import Learned, flat
from hcdc.core.seeds import stream
from hcdc.hypergrad import Trajectories, anchored_gradient, anchored_loss, values_and_hypergradients
from hcdc.networks import Params

log = logging.getLogger("hcdc")


class Batched(AlignedRun):
    """Aligns at many points at once."""

    def learn(self) -> Learned:
        """Align at the points of all trajectories; keeps the best iterate on held-out lambdas."""
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
            self.learned, self.first, self.second, best_tensors = (self.part(tensors, p) for p in "tmvb")
        else:  # the start counts as an iterate
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
        self.apply(gradient, step, loss)

    def val_batch(self, step: int) -> Tensor | None:
        """The examples of S_val in the loss of a step; None means all."""
        if not 0 < self.config.val_batch < len(self.s_val):
            return None
        order = torch.randperm(len(self.s_val), generator=stream(self.seed, "val-nodes", step))
        return order[: self.config.val_batch].sort().values.to(self.device)

    def objective(self, held: Points) -> float:
        """The objective on the held-out lambdas."""
        data = self.task.replace(self.s_val, self.tensors)
        with torch.no_grad():
            v_S, g_S = values_and_hypergradients(self.on_copy, held.params, held.at, held.response, data)
        self.check_size(g_S, v_S)
        return float(anchored_loss(held.g_T, held.v_T, g_S, v_S, self.config.distance, self.config.anchors))

    def next_lam(self, points: Points, t: int, resumed: bool) -> Tensor:
        """Move every trajectory one step along the synthetic hypergradient at the current S_val."""
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
        parts = {"t": self.learned, "m": self.first, "v": self.second, "b": best_tensors}
        state = {"step": step, "best": best, "stale": stale, "history": self.history}
        self.checkpoint.child("val").save(flat(parts), state)
