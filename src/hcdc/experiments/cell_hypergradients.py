"""Protocol ``cells-hypergradients``: do hypergradients of a cell agree with themselves, and with the truth?

At each of some cells the hypergradient is estimated twice, from other initialisations and other images, by
each way to relax a cell, with damping 1. An estimate becomes differences between neighbours: what it
promises if one edge gets another operation, minus (g_new - g_old). Two estimates are compared with each
other, and with the differences in accuracy after 200 epochs on the full data, from the benchmark's table.

    python -m hcdc.experiments.cell_hypergradients --points 6 --out F

Networks, images and steps are few and images are shrunk, so that a CPU is enough. A record is one cell and
holds all estimates. The same command goes on with the cells that the file does not have yet.
"""

from __future__ import annotations

import argparse
import dataclasses
import logging
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import avg_pool2d

from hcdc.core import records
from hcdc.core.configs import Config
from hcdc.core.progress import timed
from hcdc.core.recipe import Recipe
from hcdc.core.seeds import numpy_stream, stream
from hcdc.datasets import data
from hcdc.experiments._command import as_command, rounded
from hcdc.hypergrad import batched_hypergradient, conjugate_gradient
from hcdc.networks import gumbel_noise
from hcdc.spaces import NASBench201, operations
from hcdc.tasks import ImageTask
from hcdc.training import init_many, train_many
from hcdc.truth import NASBench201Table, TableTruth

PROTOCOL = "cells-hypergradients"
LEAST = 0.01
"""Smallest weight of an operation before taking logs, as in alignment."""
EDGES, CHOICES = 6, 5


@dataclass(frozen=True)
class Sizes:
    """How much is trained.

    Attributes:
        points: Cells.
        initialisations: Networks per estimate, at each point.
        channels: Of the first stage; three cells in all.
        images: Training images of an estimate, and as many validation images.
        steps, lr, batch: Of SGD on the relaxed network.
        shrink: Pixels of a side that become one.
        iterations, damping: Of conjugate gradients.
        tau: Temperature of drawn operations.
    """

    points: int = 8
    initialisations: int = 2
    channels: int = 4
    images: int = 300
    shrink: int = 2
    steps: int = 40
    lr: float = 0.05
    batch: int = 64
    iterations: int = 3
    damping: float = 1.0
    tau: float = 1.0

    def recipe(self) -> Recipe:
        return Recipe(
            steps=self.steps, lr=self.lr, weight_decay=3e-4, optimizer="sgd", batch=self.batch, clip=5.0
        )


def changes(space: NASBench201, truth: TableTruth, cell: Config) -> list[tuple[int, int, Config]]:
    """The changes of one edge that give another function: positions of its new and old weight in lambda."""
    own, known = space.to_numbers(cell), space.counterpart(cell)
    found = []
    for edge in range(EDGES):
        for operation in range(CHOICES):
            other = space.counterpart(space.from_numbers([*own[:edge], operation, *own[edge + 1 :]]))
            if operation != own[edge] and other != known and truth.known(other):
                found.append((CHOICES * edge + operation, CHOICES * edge + own[edge], other))
    return found


def promised(gradient: Tensor, new: Tensor, old: Tensor) -> Tensor:
    """How much better each change is expected to be ``[..., m]``, from hypergradients ``[..., 30]``."""
    return gradient[..., old] - gradient[..., new]


def relaxations(space: NASBench201, cell: Config, sizes: Sizes, seed: int) -> dict[str, tuple[str, Tensor]]:
    """Ways to relax a cell: the network's relaxation, and lambda per initialisation ``[K, 30]``.

    ``cell`` has the weights of the cell; ``mixed`` half of them and half of equal weights, so that absent
    operations are trained too; ``gdas`` draws operations, the same ones for both estimates.
    """
    at = space.encode(cell).float()
    keys = [(cell["cell"], k) for k in range(sizes.initialisations)]
    noise = torch.stack([gumbel_noise(stream(seed, PROTOCOL, "gumbel", *key)) for key in keys]).float()
    same = at.expand(sizes.initialisations, -1)
    return {
        "cell": ("softmax", same),
        "mixed": ("softmax", (same + 1 / CHOICES) / 2),
        "gdas": ("gdas", same.clamp_min(LEAST).log() + noise),
    }


def estimates(
    task: ImageTask, images: tuple[Any, Any], lam: Tensor, sizes: Sizes, seed: int, key: tuple[object, ...]
) -> tuple[dict[str, Tensor], Tensor]:
    """Hypergradients ``[K, 30]`` by name, and values ``[K]``, of one estimate.

    Args:
        task: The task with a relaxed network.
        images: The training and the validation images of this estimate.
        lam: lambda of each initialisation ``[K, 30]``.
        key: What the initialisations are drawn from.
    """
    train, val = images
    bound = task.by_recipe(sizes.recipe())
    start = init_many(bound, [(*key, k) for k in range(len(lam))], seed, PROTOCOL, "cpu")
    params = train_many(bound, start, lam, train, sizes.recipe())
    target, solver = bound.target(), conjugate_gradient(sizes.iterations, damping=sizes.damping)
    made = batched_hypergradient(target, params, lam, train, val, solver, chunk_size=1)
    with torch.no_grad():
        values = torch.stack([
            target.val_loss({name: p[k] for name, p in params.items()}, one, val) for k, one in enumerate(lam)
        ])  # fmt: skip
    return {"total": made.total, "direct": made.direct}, values


def halves(task: ImageTask, sizes: Sizes, seed: int) -> list[tuple[Any, Any]]:
    """The images of the two estimates: shrunk, disjoint, equally many per class."""
    parts = []
    for part in ("train", "val"):
        some = task.sample(part, 2 * sizes.images, seed, balanced=True)  # sorted by class
        parts.append(dataclasses.replace(some, x=avg_pool2d(task.inputs(some.x), sizes.shrink)))
    rows = torch.arange(2 * sizes.images)
    train, val = ([one.subset(rows[half::2]) for half in range(2)] for one in parts)
    return list(zip(train, val))


def at_cell(
    task: ImageTask, truth: TableTruth, cell: Config, images: list[tuple[Any, Any]], sizes: Sizes, seed: int
) -> dict[str, Any]:
    """All estimates at one cell, as differences between neighbours."""
    space = NASBench201(1, sizes.channels)
    made = changes(space, truth, cell)
    new, old = (torch.tensor([change[k] for change in made]) for k in range(2))
    told: dict[str, list[Any]] = {}
    values: dict[str, list[Any]] = {}
    for name, (relaxation, lam) in relaxations(space, cell, sizes, seed).items():
        bound = task.relaxed(space, relaxation, sizes.tau)
        for half, some in enumerate(images):
            key = cell["cell"], name, half
            found, reached = estimates(bound, some, lam, sizes, seed, key)
            for way, gradient in found.items():
                told.setdefault(f"{name} {way}", []).append(promised(gradient, new, old).tolist())
            values.setdefault(name, []).append((-reached).tolist())
    counts = [space.parameter_count(other, 3, 10) for _, _, other in made]
    own = space.parameter_count(cell, 3, 10)
    return {
        "cell": cell["cell"], "changes": [other["cell"] for *_, other in made], "promised": told,
        "values": values, "parameters": [count - own for count in counts],
        "truth": {
            part: [truth.score(other, part) - truth.score(cell, part) for *_, other in made]
            for part in ("val", "test")
        },
        "accuracy": {part: truth.score(cell, part) for part in ("val", "test")},
    }  # fmt: skip


def run(task: ImageTask, truth: TableTruth, sizes: Sizes, seed: int, out: Path) -> None:
    """Estimate at random cells that ``out`` does not have yet; appends one record per cell to it."""
    images = halves(task, sizes, seed)
    told_before = records.read(out) if out.exists() else []
    done = {(r["seed"], r["cell"]) for r in told_before if r["protocol"] == PROTOCOL}
    for cell in NASBench201().sample(sizes.points, numpy_stream(seed, PROTOCOL)):
        if (seed, cell["cell"]) in done:
            continue
        with timed() as spent:
            found = at_cell(task, truth, cell, images, sizes, seed)
        told: Mapping[str, Any] = {
            "protocol": PROTOCOL, "dataset": truth.dataset, "seed": seed, "sizes": dataclasses.asdict(sizes),
            "environment": records.environment("cpu"), "seconds": spent[0],
        }  # fmt: skip
        records.append(out, rounded({**told, **found}))
        named = "-".join(map(str, operations(cell["cell"])))
        logging.getLogger("hcdc").info("cell %s: %.0f s", named, spent[0])


def main() -> None:
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=raw)
    parser.add_argument("--seed", type=int, default=0)
    for field in dataclasses.fields(Sizes):
        kind = type(field.default)
        parser.add_argument(f"--{field.name}", type=kind, default=field.default, help="see Sizes")
    parser.add_argument("--data", default="cifar10", help="the images, a name or a file")
    parser.add_argument("--out", type=Path, required=True, help="file to append records to")
    given = parser.parse_args()
    sizes = Sizes(**{field.name: getattr(given, field.name) for field in dataclasses.fields(Sizes)})
    folder = Path(os.environ.get("HCDC_DATA") or Path.home() / ".cache" / "hcdc")
    task = ImageTask(data(given.data))  # type: ignore[arg-type]
    truth = TableTruth(NASBench201Table(folder / "nasbench201.csv.gz"), "cifar10")
    run(task, truth, sizes, given.seed, given.out)


if __name__ == "__main__":
    as_command(main)
