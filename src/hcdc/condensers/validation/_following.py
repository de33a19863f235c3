"""Learning an S_val whose losses follow a landscape: what a few full trainings let expect everywhere."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.func import grad_and_value, vmap

from hcdc.condensers.validation._run import Learned, Run, flat
from hcdc.core.errors import NumericalError
from hcdc.core.landscape import Landscape, fit_landscape, spread_out
from hcdc.core.ranks import standard_tensor_ranks
from hcdc.core.seeds import stream
from hcdc.hypergrad import full_precision
from hcdc.networks import Params
from hcdc.spaces import Space
from hcdc.training import init_many

SHARE = 0.05
"""Share of the latest iterate in the running mean of S_val's iterates."""
UNIT = 64
"""Random lambdas whose deviation is the unit of distances."""


@dataclass(frozen=True)
class Survey:
    """What full trainings say at each lambda: m rows per field.

    Attributes:
        lam: lambda ``[m, H]``.
        losses, gradients: The target loss ``[m]`` and its hypergradient ``[m, H]``.
        scores: Validation scores ``[m]``.
    """

    lam: Tensor
    losses: Tensor
    gradients: Tensor
    scores: Tensor

    def first(self, count: int) -> Survey:
        """The first trainings."""
        return Survey(*(rows[:count] for rows in (self.lam, self.losses, self.gradients, self.scores)))

    def probes(self) -> dict[str, Any]:
        """For the condensed file, so that rivals can use the same trainings."""
        return {
            "lam": self.lam.tolist(), "score": self.scores.tolist(), "loss": self.losses.tolist(),
            "gradient": self.gradients.tolist(),
        }  # fmt: skip


def fitted(space: Space, probes: dict[str, Any], sloped: bool = True) -> Landscape:
    """The landscape of full trainings, as `Survey.probes` tells them."""
    lam, losses, gradients, scores = (np.asarray(probes[k]) for k in ("lam", "loss", "gradient", "score"))
    return fit_landscape(lam, losses, gradients if sloped else None, scores, even=space.even)


@dataclass(frozen=True)
class Company:
    """Companions: lambda ``[n, H]`` and theta^S ``[n, ...]``, trained on S_train alone."""

    lam: Tensor
    params: Params


def copied(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name: tensor.clone() for name, tensor in tensors.items()}


def misorder(losses: Tensor, expected: Tensor) -> Tensor:
    """1 - Pearson(rank(expected), losses) of ``[B]`` each: 0 if the losses order and space them alike."""
    centred = losses - losses.mean()
    spread = centred.square().mean().sqrt().clamp_min(1e-12)
    return 1 - (standard_tensor_ranks(expected) * centred / spread).mean()


class Following(Run):
    """Trains few lambdas on the original data and many on S_train, then learns S_val.

    The landscape of the original trainings says what loss to expect of each companion. Every fourth companion
    takes no part in the steps on S_val, but chooses the iterate.
    """

    def survey(self, trainings: int, spread: int) -> Survey:
        """Train on the original data at lambdas that keep away from each other (role ``"survey"``).

        Fewer trainings are the first of more.

        Args:
            trainings: Their number.
            spread: Random lambdas from which each is chosen, see `spread_out`.
        """
        unit = self.draw("unit", UNIT).std(0)
        lam = spread_out(self.draw("survey", trainings * spread), spread, unit, self.space.even)
        gradients, losses, scores = self.original_side(lam, "survey")
        if not bool(torch.isfinite(torch.cat([gradients.flatten(), losses])).all()):
            raise NumericalError(
                f"the original hypergradients are not finite; try more damping (now {self.config.damping}) "
                "or curvature 'gauss_newton'"
            )
        return Survey(lam, losses, gradients, scores)

    def company(self, count: int) -> Company:
        """Train other lambdas (role ``"companion"``) on S_train."""
        lam = self.draw("companion", count)
        phase = self.progress.phase("companions on the copy", count)
        parts = []
        for start in range(0, count, self.lanes):
            some = lam[start : start + self.lanes]
            keys = [("companion", start + i) for i in range(len(some))]
            init = init_many(self.task, keys, self.seed, "hcdc-small", self.device)
            parts.append(self.trained(init, some, self.s_train, self.small))
            phase.step(start + len(some))
        return Company(lam, {name: torch.cat([part[name] for part in parts]) for name in parts[0]})

    def learn(self, survey: Survey, company: Company, sloped: bool) -> Learned:
        """Learn S_val; keeps the best iterate on the companions that watch."""
        landscape = fitted(self.space, survey.probes(), sloped)
        kept = self.follow(company, landscape.predict(company.lam.cpu().numpy())[0])
        self.candidates += self.met(torch.cat([survey.lam, company.lam]))
        val = self.task.replace(self.s_val, kept)
        return Learned(val, self.candidates, self.history, survey.probes(), len(survey.lam))

    def follow(self, company: Company, expecting: NDArray[np.float64]) -> dict[str, Tensor]:
        """Steps on S_val; returns the tensors of the best running mean of its iterates.

        Args:
            expecting: Expected losses ``[n]`` of the companions, up to a monotone function.
        """
        config, expected = self.config, torch.from_numpy(expecting).to(company.lam)
        every = torch.arange(len(expected), device=self.device)
        watching, acting = every[every % 4 == 3], every[every % 4 != 3]
        phase = self.progress.phase("S_val from companions", config.steps)
        store, begun = self.checkpoint.child("val"), 0
        if (saved := store.load()) is not None:
            begun, best, self.history = saved[1]["step"], saved[1]["best"], saved[1]["history"]
            self.learned, self.first, self.second, kept, mean = (self.part(saved[0], p) for p in "tmvba")
        else:
            kept, mean = copied(self.learned), copied(self.learned)
            best = self.watched(self.tensors, company, expected, watching)
            self.history.append({"step": 0, "held_out": best})
        phase.first_step = begun
        for step in range(begun, config.steps):
            order = torch.randperm(len(acting), generator=stream(self.seed, "val-batch", step))
            index = acting[order[: config.batch].to(self.device)]
            loss, gradient = self.slope(company, expected, index)
            self.apply(gradient, step, loss)
            for name, tensor in self.learned.items():
                mean[name].lerp_(tensor, SHARE)
            if (step + 1) % config.check == 0 or step + 1 == config.steps:
                reached = self.watched(self.form.examples(mean), company, expected, watching)
                if reached < best:
                    best, kept = reached, copied(mean)
                self.history.append({"step": step + 1, "held_out": reached})
                parts = {"t": self.learned, "m": self.first, "v": self.second, "b": kept, "a": mean}
                store.save(flat(parts), {"step": step + 1, "best": best, "history": self.history})
                phase.step(step + 1, f"held-out {reached:.3f}, best {best:.3f}")
        return self.form.examples(kept)

    def _losses(self, company: Company, index: Tensor) -> Callable[[dict[str, Tensor]], Tensor]:
        """Losses ``[B]`` of some companions as a function of S_val's tensors."""
        params, lam = {name: tensor[index] for name, tensor in company.params.items()}, company.lam[index]

        def losses(tensors: dict[str, Tensor]) -> Tensor:
            data = self.task.replace(self.s_val, tensors)
            found: Tensor = vmap(lambda p, l: self.on_copy.val_loss(p, l, data))(params, lam)
            return found

        return losses

    @full_precision()
    def slope(self, company: Company, expected: Tensor, index: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        """`misorder` of some companions and its gradient in S_val."""
        losses = self._losses(company, index)
        gradient, loss = grad_and_value(lambda t: misorder(losses(t), expected[index]))(self.tensors)
        return loss, gradient

    @torch.no_grad()
    def watched(self, tensors: dict[str, Tensor], company: Company, expected: Tensor, index: Tensor) -> float:
        """`misorder` of the companions that watch, with these tensors of S_val."""
        found = self._losses(company, index)(tensors)
        self.check_size(found)
        return float(misorder(found, expected[index]))
