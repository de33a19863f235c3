"""``images-rank``: the paper's table of cells ranked on copies of CIFAR (tab:images).

As in the paper, 100 cells judge, and 50 images per class are the training and the validation images together.
The truth is the benchmark's table, 200 epochs; the paper trains for 50 epochs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from hcdc.core.settings import setting
from hcdc.experiments.reproductions._frame import Scale, register
from hcdc.experiments.reproductions.nas201 import NAS201, QUICK, ROWS, SMALL


@register
@dataclass(frozen=True)
class ImagesRank(NAS201):
    """Corr. and Perf. of nine copies of CIFAR-10 and CIFAR-100."""

    datasets: tuple[str, ...] = ("cifar10", "cifar100")
    methods: tuple[str, ...] = ROWS
    modes: tuple[str, ...] = ("probes",)
    draws: int = setting(1, least=1)
    judges: int = setting(100, least=3)
    total: bool = True

    name = "images-rank"
    label = "tab:images"
    title = "100 cells ranked on nine copies of CIFAR"
    scales: ClassVar = {
        "smoke": Scale({**QUICK, "datasets": ("cifar10",), "per_class": 3}),
        "small": Scale({**SMALL, "datasets": ("cifar10",)}, takes="an hour and a half on one core"),
        "paper": Scale(seeds=5, takes="days on a GPU"),
    }
