"""Score every cell of NAS-Bench-201 on a copy, for replays of searches.

A copy is one or several sets of random training images (500 unless said otherwise), and 2,000 random
validation images; each cell is trained on every set by the calibrated recipe, for 10 epochs. A copy is small,
so it can be drawn where the data is and scored elsewhere:

    python -m hcdc.experiments.copy_pool --dataset cifar10 --seed 200 --draw draw.npz
    python -m hcdc.experiments.copy_pool --draw draw.npz --device cuda --out F.jsonl
    python -m hcdc.experiments.copy_pool --dataset cifar10 --seed 210 --sets 5 --draw five.npz
    python -m hcdc.experiments.copy_pool --draw five.npz --initialisations 1 --device cuda --out G.jsonl
    python -m hcdc.experiments.copy_pool --dataset DATA/cifar100_20k.npz:cifar100 --train 1000 --draw draw.npz

A record lists losses and accuracies by set, and by initialisation within a set.

The same command continues: cells that ``--out`` has are not trained again.
"""

from __future__ import annotations

import time
from argparse import ArgumentParser
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from hcdc.core import records
from hcdc.core.errors import InputError
from hcdc.core.recipe import Recipe
from hcdc.core.seeds import numpy_stream
from hcdc.datasets import ImageData, Images, data
from hcdc.experiments._command import rounded
from hcdc.spaces import NASBench201
from hcdc.tasks import ImageTask
from hcdc.training import Job, score

PROTOCOL = "copy-pool"
TRAIN, VAL = 500, 2000
INITIALISATIONS = 8


def save_draw(path: Path, dataset: str, seed: int, sets: int = 1, size: int = TRAIN) -> None:
    """Draw the images and write them with what normalises them; each set has a seed of its own.

    Args:
        path: The file to write.
        dataset: A name, or ``FILE:NAME`` with the name that records get.
        seed: Seed of the first set.
        sets: Training sets.
        size: Images of each.
    """
    source, _, name = dataset.partition(":")
    task = ImageTask(data(source))  # type: ignore[arg-type]
    trains = [task.sample("train", size, seed + k, balanced=True) for k in range(sets)]
    val = task.pool(VAL, seed)
    arrays: dict[str, Any] = {
        "x_train": torch.cat([train.x for train in trains]), "y_train": torch.cat([t.y for t in trains]),
        "x_val": val.x, "y_val": val.y, "mean": task.data.mean, "std": task.data.std, "sets": sets,
    }  # fmt: skip
    np.savez_compressed(path, **arrays, classes=task.num_classes, name=name or source, seed=seed)


def read_draw(path: Path) -> tuple[ImageTask, int, int]:
    """The draw as a task of its own whose training images are all sets, its seed, and how many sets."""
    with np.load(path) as file:
        train, val = (
            Images(torch.from_numpy(file[f"x_{part}"]), torch.from_numpy(file[f"y_{part}"]))
            for part in ("train", "val")
        )
        classes = int(file["classes"])
        made = ImageData(
            name=str(file["name"]), source=path.name, train=train, val=val, test=val, num_classes=classes,
            mean=torch.from_numpy(file["mean"]), std=torch.from_numpy(file["std"]),
            class_names=tuple(map(str, range(classes))), split="one draw",
        )  # fmt: skip
        return ImageTask(made), int(file["seed"]), int(file["sets"])


def score_cells(
    draw: tuple[ImageTask, int, int],
    initialisations: int,
    device: str,
    out: Path,
    limit: float = float("inf"),
    cells: int | None = None,
) -> int:
    """Train the cells that ``out`` lacks, in a shuffled order, until ``limit`` seconds have passed."""
    (task, seed, sets), space = draw, NASBench201()
    task = task.to(device)
    size = len(task.train) // sets
    trains = [
        task.train.subset(torch.arange(first, first + size, device=device))
        for first in range(0, len(task.train), size)
    ]
    old = list(records.read(out)) if out.exists() else []
    other = [line for line in old if (line["dataset"], line["seed"], line["sets"]) != (task.name, seed, sets)]
    if other:
        raise InputError(f"'{out}' has cells of another draw (seed {other[0]['seed']}); name another file")
    known = {line["cell"] for line in old}
    everything = space.candidates()
    order = numpy_stream(0, PROTOCOL).permutation(len(everything))[:cells]
    left = [everything[i] for i in order if everything[i]["cell"] not in known]
    recipe = Recipe(
        steps=round(10 * size / 64), lr=0.05, weight_decay=3e-4, seeds=initialisations, metric="loss",
        optimizer="sgd", batch=64, clip=5.0,
    )  # fmt: skip
    where, begun = records.environment(device), time.monotonic()

    for start in range(0, len(left), 256):
        if time.monotonic() - begun > limit:
            break
        some = left[start : start + 256]
        job = Job(
            task, space, some, trains, recipe, {"val": task.val}, seed, PROTOCOL, device, keep_diverged=True
        )
        for config, *results in zip(some, *score(job)):
            records.append(
                out,
                rounded({
                    "protocol": PROTOCOL, "dataset": task.name, "seed": seed, "sets": sets,
                    "cell": config["cell"],
                    "loss": [value for result in results for value in result.repeats["val.loss"]],
                    "score": [value for result in results for value in result.repeats["val.score"]],
                    "seconds": sum(result.seconds for result in results), "environment": where,
                }),
            )  # fmt: skip
    return len(left)


def main(arguments: Sequence[str] | None = None) -> None:
    """The command."""
    parser = ArgumentParser(description=__doc__)
    add: Any = parser.add_argument
    add("--dataset", help="draw the images from this data set")
    add("--seed", type=int, default=200)
    add("--sets", type=int, default=1, help="training sets to draw")
    add("--train", type=int, default=TRAIN, help="images in each")
    add("--draw", type=Path, required=True, help="file of the draw")
    add("--out", type=Path, help="file to append records to")
    add("--initialisations", type=int, default=INITIALISATIONS, help="networks per cell and set")
    add("--device", default="cpu")
    add("--limit", type=float, default=float("inf"), help="seconds after which no further batch starts")
    add("--cells", type=int, help="how many cells, from the first of the shuffled order on")
    given = parser.parse_args(arguments)
    if given.dataset is not None:
        save_draw(given.draw, given.dataset, given.seed, given.sets, given.train)
    if given.out is not None:
        score_cells(
            read_draw(given.draw), given.initialisations, given.device, given.out, given.limit, given.cells
        )


if __name__ == "__main__":
    main()
