"""Score every cell of NAS-Bench-201 on one draw of a copy, for replays of searches.

A draw is 500 random training images and 2,000 random validation images; each cell is trained by the
calibrated recipe with 8 initialisations. A draw is small, so it can be made where the data is and scored
elsewhere:

    python -m hcdc.experiments.copy_pool --dataset cifar10 --seed 200 --draw draw.npz
    python -m hcdc.experiments.copy_pool --draw draw.npz --device cuda --out F.jsonl

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
from hcdc.core.configs import Config
from hcdc.core.recipe import Recipe
from hcdc.core.seeds import numpy_stream
from hcdc.datasets import ImageData, Images, data
from hcdc.experiments._command import rounded
from hcdc.spaces import NASBench201
from hcdc.tasks import ImageTask
from hcdc.training import Result, run_candidates

PROTOCOL = "copy-pool"
TRAIN, VAL = 500, 2000
INITIALISATIONS = 8


def save_draw(path: Path, dataset: str, seed: int) -> None:
    """Draw the images and write them with what normalises them."""
    task = ImageTask(data(dataset))  # type: ignore[arg-type]
    train, val = task.sample("train", TRAIN, seed, balanced=True), task.pool(VAL, seed)
    arrays: dict[str, Any] = {
        "x_train": train.x, "y_train": train.y, "x_val": val.x, "y_val": val.y,
        "mean": task.data.mean, "std": task.data.std,
    }  # fmt: skip
    np.savez_compressed(path, **arrays, classes=task.num_classes, name=dataset, seed=seed)


def read_draw(path: Path) -> tuple[ImageTask, int]:
    """The draw as a task of its own, and its seed."""
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
        return ImageTask(made), int(file["seed"])


def score_cells(task: ImageTask, seed: int, device: str, out: Path, limit: float, cells: int | None) -> int:
    """Train the cells that ``out`` lacks, in a shuffled order, until ``limit`` seconds have passed."""
    space, task = NASBench201(), task.to(device)
    known = {line["cell"] for line in records.read(out)} if out.exists() else set()
    everything = space.candidates()
    order = numpy_stream(0, PROTOCOL).permutation(len(everything))[:cells]
    left = [everything[i] for i in order if everything[i]["cell"] not in known]
    recipe = Recipe(
        steps=round(10 * TRAIN / 64), lr=0.05, weight_decay=3e-4, seeds=INITIALISATIONS, metric="loss",
        optimizer="sgd", batch=64, clip=5.0,
    )  # fmt: skip
    where, begun = records.environment(device), time.monotonic()

    def keep(batch: list[tuple[Config, Result]]) -> None:
        for config, result in batch:
            records.append(
                out,
                rounded({
                    "protocol": PROTOCOL, "dataset": task.name, "seed": seed, "cell": config["cell"],
                    "loss": result.repeats["val.loss"], "score": result.repeats["val.score"],
                    "seconds": result.seconds, "environment": where,
                }),
            )  # fmt: skip

    for start in range(0, len(left), 256):
        if time.monotonic() - begun > limit:
            break
        run_candidates(
            task, space, left[start : start + 256], task.train, {"val": task.val}, recipe, seed, PROTOCOL,
            device, on_batch=keep, keep_diverged=True,
        )  # fmt: skip
    return len(left)


def main(arguments: Sequence[str] | None = None) -> None:
    """The command."""
    parser = ArgumentParser(description=__doc__)
    add: Any = parser.add_argument
    add("--dataset", help="draw the images from this data set")
    add("--seed", type=int, default=200)
    add("--draw", type=Path, required=True, help="file of the draw")
    add("--out", type=Path, help="file to append records to")
    add("--device", default="cpu")
    add("--limit", type=float, default=float("inf"), help="start no further batch after so many seconds")
    add("--cells", type=int, help="only the first so many cells of the shuffled order")
    given = parser.parse_args(arguments)
    if given.dataset is not None:
        save_draw(given.draw, given.dataset, given.seed)
    if given.out is not None:
        task, seed = read_draw(given.draw)
        score_cells(task, seed, given.device, given.out, given.limit, given.cells)


if __name__ == "__main__":
    main()
