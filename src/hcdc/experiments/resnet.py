"""Record a small ResNet with nine training hyperparameters on CIFAR-10 (``hcdc.experiments.recorded_pool``).

13,000 training images, 3,000 validation images that none of them trains on, and the test set. Each of
``--configs`` random configurations is trained on five copies (500 random images, 20 epochs), for shares of 10
epochs on all training images, and in full; the second seed repeats the full training. Scores are accuracies.
Candidates train side by side on the GPU, and a full training takes about a second, so starting a network
outweighs a short training. ``seconds`` are therefore those of the block's full trainings, in proportion to
image visits, as they would be on more data; ``measured_seconds`` are those that were taken.

    python -m hcdc.experiments.resnet --configs 240 --device cuda --out records/pools/resnet.jsonl

The same command continues: what ``--out`` has is not trained again.
"""

from __future__ import annotations

import logging
import time
from argparse import ArgumentParser
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from hcdc.core import records
from hcdc.core.configs import Config
from hcdc.core.recipe import Recipe
from hcdc.core.seeds import numpy_stream, stream
from hcdc.datasets import Images, data
from hcdc.experiments._command import as_command, rounded
from hcdc.spaces import Training
from hcdc.tasks import ImageTask
from hcdc.training import Job, Result, score

PROTOCOL = "resnet-pool"
SPACE = Training()
BLOCK = 24
"""Configurations trained before their lines are written."""
BATCH = 128
"""Images per step of a recipe that leaves the batch open; a candidate's own batch keeps the epochs."""
log = logging.getLogger("hcdc")


@dataclass(frozen=True)
class Sizes:
    """How much of everything.

    Attributes:
        train, val: Images to train and to validate on.
        epochs: Of a full training.
        shares: Shares of these epochs, the shortest first; the last is 1.
        copies: Draws of a copy.
        copy_images, copy_epochs: Size of a copy, and how long a candidate trains on it.
    """

    train: int = 13_000
    val: int = 3_000
    epochs: float = 10.0
    shares: Sequence[float] = (1 / 27, 1 / 9, 1 / 3, 1.0)
    copies: int = 5
    copy_images: int = 500
    copy_epochs: float = 20.0

    def visits(self) -> dict[str, float]:
        """Image visits of each rung as a share of a full training's."""
        copy = self.copy_epochs * self.copy_images / (self.epochs * self.train)
        found = {f"copy:{k}": copy for k in range(self.copies)}
        return {**found, **{rung_name(share): share for share in self.shares}}


def rung_name(share: float) -> str:
    """The rung of a share of the epochs."""
    return "full" if share == 1 else f"short:{share:.3g}"


def configurations(count: int) -> list[Config]:
    """Random configurations; a longer list begins with the shorter one."""
    rng = numpy_stream(0, PROTOCOL)
    found = []
    for _ in range(count):
        config = SPACE.sample(1, rng)[0]
        found.append({n: float(f"{v:.4g}") if isinstance(v, float) else v for n, v in config.items()})
    return found


class Recorder:
    """Trains blocks of configurations at all rungs.

    Args:
        task: The images.
        sizes: How much of everything.
        device: Where to train.
    """

    def __init__(self, task: ImageTask, sizes: Sizes, device: str):
        self.task, self.sizes, self.device = task.to(device), sizes, device
        rows = {
            name: torch.randperm(len(part), generator=stream(0, PROTOCOL, name)).to(device)
            for name, part in (("train", self.task.train), ("val", self.task.val))
        }
        self.train = self.task.train.subset(rows["train"][: sizes.train])
        self.parts = {"val": self.task.val.subset(rows["val"][: sizes.val])}
        self.copies = [self._copy(rows["train"][: sizes.train], k) for k in range(sizes.copies)]

    def _copy(self, rows: Tensor, number: int) -> Images:
        """As many images of each class, drawn from the training images."""
        order = torch.randperm(len(rows), generator=stream(0, PROTOCOL, "copy", number)).to(rows)
        rows, classes = rows[order], self.task.num_classes
        labels = self.task.train.y[rows]
        each = self.sizes.copy_images // classes
        return self.task.chosen("train", torch.cat([rows[labels == c][:each] for c in range(classes)]))

    def block(self, configs: Sequence[Config], seed: int) -> list[dict[str, dict[str, float]]]:
        """``val``, ``seconds`` and ``test`` of each configuration by rung; later seeds train in full only."""
        found: list[dict[str, dict[str, float]]] = [{"val": {}, "seconds": {}, "test": {}} for _ in configs]

        def keep(rung: str, results: Sequence[Result]) -> None:
            for line, result in zip(found, results):
                line["val"][rung] = result.values["val.score"]
                line["seconds"][rung] = result.seconds_for("val")
                if "test.score" in result.values:
                    line["test"][rung] = result.values["test.score"]

        s = self.sizes
        if seed == 0:
            results = self._trained(configs, self.copies, s.copy_epochs, self.parts, seed)
            for k, some in enumerate(results):
                keep(f"copy:{k}", some)
        for share in s.shares if seed == 0 else (1.0,):
            parts = {**self.parts, "test": self.task.test} if share == 1 else self.parts
            keep(rung_name(share), self._trained(configs, [self.train], share * s.epochs, parts, seed)[0])
        return found

    def _trained(
        self,
        configs: Sequence[Config],
        trains: Sequence[Images],
        epochs: float,
        parts: Mapping[str, Any],
        seed: int,
    ) -> list[list[Result]]:
        """Results by training set and configuration."""
        steps = max(1, round(epochs * len(trains[0]) / BATCH))
        recipe = Recipe(steps=steps, lr=0.1, optimizer="sgd", batch=BATCH, clip=5.0)
        job = Job(
            self.task, SPACE, configs, trains, recipe, parts, seed=seed, role=PROTOCOL, device=self.device,
            keep_diverged=True,
        )  # fmt: skip
        return score(job)


def record(
    recorder: Recorder, configs: Sequence[Config], seeds: int, out: Path, limit: float = float("inf")
) -> None:
    """Train what ``out`` lacks, block by block, until ``limit`` seconds have passed.

    All configurations are trained with the first seed before any with the next one.
    """
    old = records.read(out) if out.exists() else ()
    done = {(r["number"], r["seed"]) for r in old if r.get("protocol") == PROTOCOL}
    where, begun, visits = records.environment(recorder.device), time.monotonic(), recorder.sizes.visits()
    for seed in range(seeds):
        left = [k for k in range(len(configs)) if (k, seed) not in done]
        for first in range(0, len(left), BLOCK):
            if time.monotonic() - begun > limit:
                return
            some = left[first : first + BLOCK]
            for number, line in zip(some, recorder.block([configs[k] for k in some], seed)):
                shares = {rung: visits[rung] for rung in line["val"]}
                taken = line["seconds"]
                figures = rounded({
                    "val": line["val"], "test": line["test"]["full"], "measured_seconds": taken,
                    "seconds": {rung: share * taken["full"] for rung, share in shares.items()},
                })  # fmt: skip
                records.append(
                    out,
                    {"protocol": PROTOCOL, "number": number, "seed": seed, **figures,
                     "config": configs[number], "shares": shares, "environment": where},
                )  # fmt: skip
            spent = time.monotonic() - begun
            log.info("seed %d: %d of %d, %.0f s", seed, first + len(some), len(left), spent)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = ArgumentParser(description=__doc__)
    parser.add_argument("--configs", type=int, default=240, help="random configurations")
    parser.add_argument("--seeds", type=int, default=2, help="full trainings of each")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--out", type=Path, required=True, help="file to append records to")
    parser.add_argument(
        "--limit", type=float, default=float("inf"), help="seconds after which no block starts"
    )
    given = parser.parse_args(arguments)
    recorder = Recorder(ImageTask(data("cifar10")), Sizes(), given.device)  # type: ignore[arg-type]
    record(recorder, configurations(given.configs), given.seeds, given.out, given.limit)


if __name__ == "__main__":
    as_command(main)
