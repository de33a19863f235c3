"""Bring your own kind of data: one file outside the package, usable from Python and from the command line.

The data are noisy signals: 32 readings over time, in three classes (slow, medium and fast oscillations). A
candidate is a linear classifier of the signal's spectrum; its hyperparameters say how strongly each of four
frequency bands is penalised. This file brings

- a kind of data (`Signals`, and `SignalData` with its reader, the name ``signals``),
- a task (`SignalTask`),
- a search space (`Bands`),
- a way to make S_val (`Central`: the validation signals nearest to their class mean),
- a condenser for S_train (`Loudest`) and a rival (`Roughness`).

In Python, ``import own_task`` registers all of it. On the command line, ``--import own_task.py`` does:

    hcdc condense --import own_task.py --dataset signals --train-size 12 --val-method central --out s.hcdc
    hcdc evaluate s.hcdc --import own_task.py --candidates 20
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch.nn import functional as F

import hcdc
from hcdc.condensers import Made, Reducer, Validation, register_reducer, register_validation
from hcdc.core.labels import allocate_labels, draw_members, members
from hcdc.core.seeds import stream
from hcdc.core.settings import setting
from hcdc.datasets import Dataset, Examples, register_data, register_kind
from hcdc.evaluation import RivalMethod, register_rival
from hcdc.spaces import Box, register
from hcdc.tasks import Task, register_task

LENGTH, CLASSES, BANDS = 32, 3, 4


@register_kind
@dataclass(frozen=True, eq=False, repr=False)
class Signals(Examples):
    """Labelled signals: ``x`` ``[m, time]``, class numbers ``y`` ``[m]``."""

    kind = "signal"
    noun = "signals"
    axes = ("m", "time")


@dataclass(frozen=True, eq=False, repr=False)
class SignalData(Dataset):
    """A data set of signals with its split."""

    name: str
    train: Signals
    val: Signals
    test: Signals
    source: str = "memory"
    num_classes: int = CLASSES
    class_names: tuple[str, ...] = ("slow", "medium", "fast")
    split: str = "drawn"
    origin: dict[str, Any] = field(default_factory=dict)

    kind = "signal"
    words = "signals"

    def contents(self):
        return f"of {LENGTH} readings"

    def pieces(self):
        for part in (self.train, self.val, self.test):
            yield "x", part.x
            yield "y", part.y

    def to(self, device):
        return self._moved(train=self.train.to(device), val=self.val.to(device), test=self.test.to(device))


@register_data("signals")
def read_signals(seed: int = 0) -> SignalData:
    """600 signals: oscillations of 2, 4 or 6 periods with a random phase, in noise."""
    rng = np.random.default_rng(seed)
    y = np.arange(600) % CLASSES
    time = np.arange(LENGTH) / LENGTH
    phase = rng.uniform(0, 2 * np.pi, (600, 1))
    x = np.sin(2 * np.pi * 2 * (1 + y[:, None]) * time + phase) + 1.5 * rng.standard_normal((600, LENGTH))
    parts = [
        Signals(torch.from_numpy(x[rows]).float(), torch.from_numpy(y[rows]))
        for rows in (slice(0, 300), slice(300, 450), slice(450, 600))
    ]
    return SignalData("signals", *parts)


@register
class Bands(Box):
    """log10 of the penalty of each frequency band, from 1e-3 to 10."""

    name = "bands"

    def __init__(self):
        super().__init__([f"band_{k}" for k in range(BANDS)], 1e-3, 10.0, "log")

    def spec(self):
        return {"name": self.name}


@register_task
@dataclass(frozen=True, eq=False)
class SignalTask(Task):
    """Softmax regression on the spectrum, each band with a penalty of its own."""

    data: SignalData
    kind = "signal"
    spaces = ("bands",)

    @property
    def train(self):
        return self.data.train

    @property
    def val(self):
        return self.data.val

    @property
    def test(self):
        return self.data.test

    @property
    def num_classes(self):
        return self.data.num_classes

    def spectrum(self, x):
        """Strength of each frequency ``[m, LENGTH // 2]``."""
        found = torch.fft.rfft(x)[:, 1:]
        return (found.real.square() + found.imag.square() + 1e-6).sqrt() / LENGTH

    def bind(self, space, config=None):
        if space.name != Bands.name:
            raise hcdc.InputError(f"space '{space.name}' does not fit signals; use the space 'bands'")
        return self

    def init(self, generator):
        weight = 0.1 * torch.randn(LENGTH // 2, CLASSES, generator=generator)
        return {"weight": weight, "bias": torch.zeros(CLASSES)}

    def predict(self, params, lam, data):
        return 4 * self.spectrum(data.x) @ params["weight"] + params["bias"]

    def loss(self, outputs, data):
        each = F.cross_entropy(outputs, data.y, reduction="none")
        return each.mean() if data.weight is None else (each * data.weight).sum() / data.weight.sum()

    def penalty(self, params, lam):
        by_band = params["weight"].square().view(BANDS, -1).sum(1)
        return (10.0**lam * by_band).sum() / 2

    def score(self, outputs, data):
        return (outputs.argmax(-1) == data.y).to(outputs.dtype).mean()

    def sample(self, part, size, seed, balanced=False):
        signals = self.part(part)
        wanted = allocate_labels(signals.y, size, CLASSES, f"{part}_size", balanced)
        counts = wanted.bincount(minlength=CLASSES).tolist()
        drawn = draw_members(members(signals.y, CLASSES), counts, stream(seed, "sample", part))
        return signals.subset(torch.cat(drawn).to(signals.y.device))

    def tensors(self, data):
        return {"x": data.x}

    def replace(self, data, tensors):
        return Signals(tensors.get("x", data.x), data.y, tensors.get("weight", data.weight))

    def subset(self, data, index):
        return data.subset(index)

    def to(self, device):
        return SignalTask(self.data.to(device))


@register_validation
@dataclass(frozen=True)
class Central(Validation):
    """The real validation signals whose spectrum is nearest to the mean of their class."""

    name = "central"
    learned = False
    skip: int = setting(0, least=0)

    def make(self, plan, work):
        task, val = work.task, work.task.val
        spectrum = task.spectrum(val.x)
        counts = task.sample("val", plan.val_size, plan.seed).y.bincount(minlength=CLASSES).tolist()
        chosen = []
        for pool, count in zip(val.pools(CLASSES), counts):
            distance = (spectrum[pool] - spectrum[pool].mean(0)).square().sum(1)
            chosen.append(pool[distance.argsort()[self.skip : self.skip + count].cpu()])
        return Made(val.subset(torch.cat(chosen).to(val.y.device)))


@register_reducer
@dataclass(frozen=True)
class Loudest(Reducer):
    """The signals with the most energy, class by class."""

    name = "loudest"
    takes = ("signal",)

    def reduce(self, task, part, size, seed, *, progress, checkpoint):
        signals = task.part(part)
        counts = task.sample(part, size, seed).y.bincount(minlength=CLASSES).tolist()
        energy = signals.x.square().sum(1)
        picked = [
            pool[(-energy[pool]).argsort()[:count].cpu()]
            for pool, count in zip(signals.pools(CLASSES), counts)
        ]
        return signals.subset(torch.cat(picked).to(signals.y.device))


@register_rival
class Roughness(RivalMethod):
    """Ranks by the penalty of the highest band alone: nothing is trained."""

    name = "high-band-penalty"

    def applies(self, context):
        return context.task.kind == "signal"

    def run(self, context):
        scores = [float(config[f"band_{BANDS - 1}"]) for config in context.configs]
        return context.rival(self.name, "the penalty of the highest band, no training", scores, 0.0)


if __name__ == "__main__":
    task = SignalTask(hcdc.data("signals"))
    small = hcdc.condense(task, Bands(), "hcdc", train_size=12, val_size=15, preset="demo")
    print(small, hcdc.evaluate(small, candidates=20).spearman)
