"""Rank every cell of NAS-Bench-201 by one supernet, for replays of searches (SPOS, Guo et al., 2020).

Each step trains the weights of one cell on 256 images; a pass over all cells, in random order, comes before
any repeats. Convolutions are shared by edge and operation. With the weights it inherits, each cell is then
scored on 2,000 validation images. BatchNorm takes the statistics of its batch, here all validation images.

    python -m hcdc.experiments.supernet_pool --dataset cifar10 --device cuda --out F.jsonl

The first line of the file has the seconds and the settings, each further one the loss and accuracy of a cell.
Replays charge these seconds, or ``--charge`` where the pool's clock is another device's.
"""

from __future__ import annotations

import dataclasses
import json
import logging
import math
import time
from argparse import ArgumentParser, RawDescriptionHelpFormatter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from hcdc.core import records
from hcdc.core.configs import Config
from hcdc.core.files import write_atomic
from hcdc.core.recipe import Recipe
from hcdc.core.seeds import numpy_stream, stream
from hcdc.datasets import Images, data
from hcdc.experiments._command import as_command, rounded
from hcdc.networks import CellNetwork, Params
from hcdc.spaces import NASBench201, operations
from hcdc.tasks import ImageTask

PROTOCOL = "supernet-pool"
LR, WEIGHT_DECAY, CLIP = 0.1, 5e-4, 5.0
log = logging.getLogger("hcdc")


@dataclass(frozen=True)
class Supernet:
    """Weights that all cells share.

    Attributes:
        net: The network with all convolutions on every edge, with scales and shifts.
        params: Its parameters.
    """

    net: CellNetwork
    params: Params

    @classmethod
    def start(cls, task: ImageTask, space: NASBench201, seed: int, device: torch.device | str) -> Supernet:
        """A fresh supernet."""
        relaxed = space.network(task.features, task.num_classes)
        net = dataclasses.replace(relaxed, affine=True).fast()
        params = net.init(stream(seed, PROTOCOL)).items()
        return cls(net, {name: p.to(device).requires_grad_() for name, p in params})

    def outputs(self, config: Config, x: Tensor) -> Tensor:
        """Logits ``[n, classes]`` of a cell, which runs its own operations only."""
        cell = dataclasses.replace(self.net, cell=operations(config["cell"]))
        return cell.forward(self.params, torch.empty(0), x)


def train(
    net: Supernet, task: ImageTask, images: Images, cells: Sequence[Config], batch: int, seed: int
) -> None:
    """One step of SGD per cell; weights that a cell does not use stay as they are."""
    weights, chance, steps = list(net.params.values()), stream(seed, PROTOCOL, "batches"), len(cells)
    sgd = torch.optim.SGD(weights, LR, momentum=0.9, weight_decay=WEIGHT_DECAY, nesterov=True)
    recipe, per_epoch = Recipe(augment=task.augmentation), max(1, len(images) // batch)
    for step, config in enumerate(cells):
        if step % per_epoch == 0:
            order = torch.randperm(len(images), generator=chance).to(images.y.device)
        first = step % per_epoch * batch
        some = task.augmented(images.subset(order[first : first + batch]), recipe, chance)
        sgd.param_groups[0]["lr"] = LR * (1 + math.cos(math.pi * step / steps)) / 2
        sgd.zero_grad()
        task.loss(net.outputs(config, some.x), some).backward()  # type: ignore[no-untyped-call]
        torch.nn.utils.clip_grad_norm_(weights, CLIP)
        sgd.step()


@torch.no_grad()
def scores(net: Supernet, task: ImageTask, val: Images, cells: Sequence[Config]) -> list[list[float]]:
    """Loss and accuracy of each cell; all are read back at the end."""
    found = []
    for config in cells:
        outputs = net.outputs(config, val.x)
        found.append(torch.stack([task.loss(outputs, val), task.score(outputs, val)]))
    both: list[list[float]] = torch.stack(found).tolist()
    return both


def main(arguments: Sequence[str] | None = None) -> None:
    """The command."""
    parser = ArgumentParser(description=__doc__, formatter_class=RawDescriptionHelpFormatter)
    add: Any = parser.add_argument
    add("--dataset", default="cifar10")
    add("--seed", type=int, default=0)
    add("--images", type=int, default=25_000, help="training images")
    add("--steps", type=int, default=8000, help="one cell each")
    add("--batch", type=int, default=256)
    add("--val", type=int, default=2000, help="validation images that cells are scored on")
    add("--cells", type=int, default=1, help="per stage")
    add("--channels", type=int, default=16, help="of the first stage")
    add("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    add("--charge", type=float, help="seconds that replays charge instead of those of this run")
    add("--out", type=Path, required=True, help="file to write")
    given = parser.parse_args(arguments)
    task, seed = ImageTask(data(given.dataset)).to(given.device), given.seed  # type: ignore[arg-type]
    space = NASBench201(given.cells, given.channels)
    every, net = space.candidates(), Supernet.start(task, space, seed, given.device)
    drawn = torch.randperm(len(task.train), generator=stream(seed, PROTOCOL, "images"))[: given.images]
    images, val = task.train.subset(drawn.to(task.train.y.device)), task.pool(given.val, seed)
    begun = time.perf_counter()
    batch = min(given.batch, len(images))
    train(net, task, images, space.sample(given.steps, numpy_stream(seed, PROTOCOL)), batch, seed)
    scores(net, task, val, every[:1])  # waits until the device has trained
    trained = time.perf_counter()
    found = scores(net, task, val, every)
    scored = time.perf_counter()
    told = {
        "protocol": PROTOCOL, "dataset": task.name, "seed": seed, "images": len(images), "val": len(val),
        "steps": given.steps, "batch": batch, "cells": given.cells, "channels": given.channels, "lr": LR,
        "weight_decay": WEIGHT_DECAY, "clip": CLIP, "train_seconds": trained - begun,
        "score_seconds": scored - trained, "charged_seconds": given.charge or scored - begun,
        "environment": records.environment(given.device),
    }  # fmt: skip
    lines = [told]
    for config, (loss, score) in zip(every, found):
        lines.append({"protocol": PROTOCOL, "cell": config["cell"], "loss": loss, "score": score})
    write_atomic(given.out, "".join(f"{json.dumps(records.jsonable(rounded(line)))}\n" for line in lines))
    log.info(
        "%d steps in %.1f s, %d cells in %.1f s", given.steps, trained - begun, len(every), scored - trained
    )


if __name__ == "__main__":
    as_command(main)
