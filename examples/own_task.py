"""Bring your own kind of data, in one file outside the package.

The data are noisy signals: 32 readings over time, in three classes (slow, medium and fast oscillations). Each
candidate is a linear classifier of a signal's spectrum. Its four hyperparameters say how strongly the weights
of each frequency band are penalised.

Everything the library can be extended by is here, one class each; keep what you need:

- `Signals`, a kind of data, and `read_signals`, which reads a data set of it by the name ``signals``;
- `SignalTask`, what is learned: a model and its losses;
- `Bands`, what is searched;
- `Loudest`, a way to make the small training set;
- `Central`, a way to make the small validation set;
- `HighBand`, a rival: another way to rank candidates, for comparison.

The decorators register each of them, so all you need is ``import own_task``, or ``--import own_task.py``:

    hcdc condense --import own_task.py --dataset signals --train-size 12 --val-method central --out s.hcdc
    hcdc inspect s.hcdc --import own_task.py
    hcdc evaluate s.hcdc --import own_task.py --candidates 20

To test your own classes, inherit the suites of ``hcdc.testing``.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

import hcdc
from hcdc.condensers import Made, Reducer, Validation, register_reducer, register_validation
from hcdc.core.settings import setting
from hcdc.datasets import Examples, SplitData, register_data, register_kind
from hcdc.evaluation import RivalMethod, register_rival
from hcdc.spaces import Box, register
from hcdc.tasks import Task, register_task

READINGS, CLASSES, BANDS = 32, 3, 4


# --- the data -----------------------------------------------------------------------------------------------


@register_kind
class Signals(Examples):
    """Labelled signals: ``x`` ``[m, time]``, class numbers ``y`` ``[m]``."""

    kind = "signal"
    noun = "signals"
    axes = ("m", "time")


@register_data("signals")
def read_signals(seed: int = 0) -> SplitData:
    """600 signals with 2, 4 or 6 oscillations, a random phase and noise."""
    rng = np.random.default_rng(seed)
    y = np.arange(600) % CLASSES
    time, phase = np.arange(READINGS) / READINGS, rng.uniform(0, 2 * np.pi, (600, 1))
    x = np.sin(4 * np.pi * (1 + y[:, None]) * time + phase) + 1.5 * rng.standard_normal((600, READINGS))
    x, y = torch.from_numpy(x).float(), torch.from_numpy(y)
    parts = [Signals(x[rows], y[rows]) for rows in (slice(0, 300), slice(300, 450), slice(450, 600))]
    return SplitData("signals", *parts, num_classes=CLASSES, class_names=("slow", "medium", "fast"))


def spectrum(x: torch.Tensor) -> torch.Tensor:
    """Strength of each frequency ``[m, READINGS / 2]``."""
    found = torch.fft.rfft(x)[:, 1:]
    return (found.real.square() + found.imag.square() + 1e-6).sqrt() / READINGS


# --- what is searched and what is learned -------------------------------------------------------------------


@register
class Bands(Box):
    """The penalty of each frequency band, from 0.001 to 10 on a log scale."""

    name = "bands"

    def __init__(self):
        super().__init__([f"band_{k}" for k in range(BANDS)], 1e-3, 10.0, "log")

    def spec(self):
        return {"name": self.name}  # the constructor takes no other settings


@register_task
class SignalTask(Task):
    """Softmax regression on the spectrum; each frequency band has its own penalty."""

    kind = "signal"  # that of the data
    spaces = (Bands.name,)

    def __init__(self, data: SplitData):
        self.data = data

    def bind(self, space, config=None):
        if not isinstance(space, Bands):
            raise hcdc.InputError(f"space '{space.name}' does not fit signals; use the space 'bands'")
        return self

    def init(self, generator):
        weight = 0.1 * torch.randn(READINGS // 2, CLASSES, generator=generator)
        return {"weight": weight.to(self.train.x.device), "bias": self.train.x.new_zeros(CLASSES)}

    def predict(self, params, lam, data):
        return 4 * spectrum(data.x) @ params["weight"] + params["bias"]

    def penalty(self, params, lam):
        by_band = params["weight"].square().view(BANDS, -1).sum(1)
        return (10.0**lam * by_band).sum() / 2  # the space is logarithmic, so lam is log10 of the penalty


# --- ways to make the small sets ----------------------------------------------------------------------------


def first_of_each_class(task, part, size, seed, order):
    """The first ``size`` signals of a part by ``order``, classes in their original proportions."""
    signals, labels = task.part(part), task.sample(part, size, seed).y
    counts = labels.bincount(minlength=CLASSES).tolist()
    ranked = [pool[order[pool].argsort()] for pool in signals.pools(CLASSES)]
    picked = torch.cat([pool[:count] for pool, count in zip(ranked, counts)])
    return signals.subset(picked.to(signals.y.device))


@register_reducer
@dataclass(frozen=True)
class Loudest(Reducer):
    """The signals with the most energy."""

    name = "loudest"
    takes = ("signal",)

    def reduce(self, task, part, size, seed, *, progress, checkpoint):
        energy = task.part(part).x.square().sum(1).cpu()
        return first_of_each_class(task, part, size, seed, -energy)


@register_validation
@dataclass(frozen=True)
class Central(Validation):
    """Real validation signals with a spectrum close to the mean of their class.

    Attributes:
        power: Exponent of the distance of each frequency.
    """

    name = "central"
    learned = False
    power: int = setting(2, least=1)

    def make(self, plan, work):
        val, found = work.task.val, spectrum(work.task.val.x)
        means = torch.stack([found[pool].mean(0) for pool in val.pools(CLASSES)])
        distance = (found - means[val.y]).abs().pow(self.power).sum(1).cpu()
        return Made(first_of_each_class(work.task, "val", plan.val_size, plan.seed, distance))


# --- a rival ------------------------------------------------------------------------------------------------


@register_rival
class HighBand(RivalMethod):
    """The higher the penalty of the highest band, the better: nothing is trained."""

    name = "high-band"

    def applies(self, context):
        return isinstance(context.space, Bands)

    def run(self, context):
        scores = [config[f"band_{BANDS - 1}"] for config in context.configs]
        return context.rival(self.name, "the penalty of the highest band, no training", scores, 0.0)


if __name__ == "__main__":
    task = SignalTask(hcdc.data("signals"))
    small = hcdc.condense(task, Bands(), train_method="loudest", val_method="central", train_size=60)
    print(small)
    print(f"Spearman {hcdc.evaluate(small, candidates=20).spearman:.2f} against the full data")
