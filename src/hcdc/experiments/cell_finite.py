"""Protocol ``cells-finite``: an S_val learned from finite hypergradients of cells.

A star is a cell and some of its neighbours, which differ from it in one edge. Its finite hypergradient is
the difference of their losses from the centre's, each cell trained separately: Delta_T after 12 epochs on the
full data (minus the table's validation accuracy), Delta_S on S_train, exactly as the judges are trained.
S_val is learned by min over a >= 0 of sum (a Delta_S - Delta_T)^2, one scale for all stars, which implies
calibration. Beside it stands an S_val that follows the values of the same cells, not their differences.

An estimator that does not agree with itself cannot be aligned, so the record starts with the agreement of
Delta_S between two initialisations. Stars that watch take no part in learning. Judges are other cells.

    python -m hcdc.experiments.cell_finite --seed 0 --device cuda --stars 40 --out F
"""

from __future__ import annotations

import argparse
import dataclasses
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from hcdc.condensers import Slopes, misorder, plan
from hcdc.core import records
from hcdc.core.configs import Config
from hcdc.core.progress import timed
from hcdc.core.ranks import spearman, standard, standard_tensor_ranks
from hcdc.core.ridge import ridge
from hcdc.core.seeds import numpy_stream
from hcdc.datasets import data
from hcdc.experiments._command import as_command, rounded
from hcdc.hypergrad import alignment_loss
from hcdc.spaces import NASBench201
from hcdc.tasks import ImageTask, Task
from hcdc.training import Predictor, adam_step, predictors
from hcdc.truth import NASBench201Table, TableTruth

Array = NDArray[np.float64]
Objective = Callable[[Tensor], Tensor]

PROTOCOL = "cells-finite"
EPOCHS = 12


@dataclass(frozen=True)
class Sizes:
    """How much is trained.

    Attributes:
        stars, watching: Stars that S_val is learned from, and further ones that only watch.
        near: Neighbours in a star.
        judges: Cells that judge.
        initialisations: Networks per cell.
        steps, lr: Adam's on S_val.
        train, val, pool: Images in S_train, in S_val and in a large real validation set.
    """

    stars: int = 6
    watching: int = 2
    near: int = 3
    judges: int = 60
    initialisations: int = 3
    steps: int = 20
    lr: float = 0.01
    train: int = 500
    val: int = 100
    pool: int = 1000


def draw_cells(space: NASBench201, sizes: Sizes, seed: int) -> tuple[list[Config], list[Config]]:
    """Judges, and the cells of all stars: star by star, its centre first; no cell comes twice."""
    cells, rng = space.candidates(), numpy_stream(seed, PROTOCOL)
    order = [cells[i] for i in rng.permutation(len(cells))]
    judges = order[: sizes.judges]
    used = {c["cell"] for c in judges}
    stars: list[Config] = []
    for centre in order[sizes.judges :]:
        free = [c for c in space.neighbours(centre) if c["cell"] not in used]
        if len(stars) == (sizes.stars + sizes.watching) * (1 + sizes.near):
            break
        if centre["cell"] not in used and len(free) >= sizes.near:
            star = [centre, *(free[i] for i in rng.permutation(len(free))[: sizes.near])]
            used |= {c["cell"] for c in star}
            stars += star
    return judges, stars


def differences(values: Tensor, near: int) -> Tensor:
    """Finite hypergradients ``[stars, near]`` from values ``[stars * (1 + near)]``."""
    rows = values.view(-1, 1 + near)
    return rows[:, 1:] - rows[:, :1]


def finite(short: Tensor, near: int) -> Objective:
    """The distance of Delta_S from Delta_T up to one scale; ``short`` are accuracies of the stars' cells."""
    target = differences(-short, near)
    return lambda losses: alignment_loss(target, differences(losses, near), "scaled_l2")


def followed(short: Tensor) -> Objective:
    """How far losses are from the ranks of minus ``short``: values, not differences."""
    return lambda losses: misorder(losses, -short)


def losses_of(task: Task, network: Predictor, images: Any) -> Tensor:
    """Losses of one cell by initialisation ``[initialisations]``."""
    found: Tensor = torch.vmap(lambda out: task.loss(out, images))(network(images))
    return found


@torch.no_grad()
def losses_on(task: Task, networks: Sequence[Predictor], images: Any) -> Tensor:
    """Losses ``[cells, initialisations]``, on the CPU."""
    return torch.stack([losses_of(task, network, images) for network in networks]).cpu()


def learn(task: Task, networks: Sequence[Predictor], start: Any, objective: Objective, sizes: Sizes) -> Any:
    """Adam steps on the images of S_val, with the losses of all cells in every step."""
    learned = task.replace(start, {"x": task.tensors(start)["x"].detach().clone()})
    slopes = Slopes(task, networks, learned, learned.x.device)
    theta, first, second = {"x": slopes.x}, *({"x": torch.zeros_like(slopes.x)} for _ in range(2))
    for step in range(sizes.steps):
        adam_step(theta, {"x": slopes.gradient(objective)}, first, second, step + 1, sizes.lr)
    return learned


def agreement(losses: Tensor, short: Tensor, full: Tensor, near: int) -> dict[str, float]:
    """Spearman's correlation of Delta_S with itself, with 12 epochs and with 200, over the stars' pairs.

    Args:
        losses: Of the stars' cells by initialisation ``[cells, initialisations]``.
        short, full: Accuracies of the same cells ``[cells]``.
    """

    def pairs(values: Tensor) -> Array:
        found: Array = differences(values.double(), near).flatten().numpy()
        return found

    single = [pairs(column) for column in losses.T.contiguous()]
    mean = pairs(losses.mean(1))
    twice = [spearman(a, b) for k, a in enumerate(single) for b in single[:k]]
    return {
        "self": float(np.mean(twice)) if twice else float("nan"),
        "short": spearman(-mean, pairs(short)), "full": spearman(-mean, pairs(full)),
    }  # fmt: skip


def run(task: ImageTask, truth: TableTruth, sizes: Sizes, seed: int, device: str = "cpu") -> dict[str, Any]:
    """Train stars and judges on one S_train, learn both S_val and rank the judges; returns the record."""
    space = NASBench201()
    judges, stars = draw_cells(space, sizes, seed)
    recipe = plan(
        task, space, train_size=sizes.train, val_method="real", recipe={"metric": "loss"}
    ).calibrated
    recipe = dataclasses.replace(recipe, seeds=sizes.initialisations)
    task = task.to(device)
    s_train = task.sample("train", sizes.train, seed, balanced=True)
    with timed() as training:
        trained = predictors(
            task, space, [*stars, *judges], s_train, recipe, seed=seed, role=PROTOCOL, device=device
        )
    own, judging = trained[: len(stars)], trained[len(stars) :]
    short, full = (
        torch.tensor([truth.score(c, "val", epochs) for c in stars], dtype=torch.float32)
        for epochs in (EPOCHS, None)
    )
    count = sizes.stars * (1 + sizes.near)
    start = task.sample("val", sizes.val, seed, balanced=True)
    sets = {"start": start, "pool": task.pool(sizes.pool, seed)}
    known = short[:count].to(device)
    objectives = {"finite": finite(known, sizes.near), "values": followed(known)}
    with timed() as learning:
        for name, objective in objectives.items():
            sets[name] = learn(task, own[:count], start, objective, sizes)
    agreed, scores = {}, {}
    for name, images in sets.items():
        of_stars = losses_on(task, own, images)
        parts = {"learning": slice(0, count), "watching": slice(count, None)}
        agreed[name] = {
            part: agreement(of_stars[some], short[some], full[some], sizes.near)
            for part, some in parts.items()
        }
        scores[name] = -losses_on(task, judging, images).double().mean(1).numpy()
    features, asked = (
        np.asarray([space.features(c) for c in some], np.float64) for some in (stars[:count], judges)
    )
    scores["parameters"] = np.array([space.parameter_count(c, 3, 10) for c in judges], np.float64)
    scores["ridge"] = ridge(features, standard_tensor_ranks(short[:count]).double().numpy(), asked)
    for name in ("start", "pool"):
        scores[f"ridge + {name}"] = standard(scores["ridge"]) + standard(scores[name])
    truths = {part: np.array(truth.scores(judges, part)) for part in ("val", "test")}
    ranked = {
        name: {part: spearman(right, score) for part, right in truths.items()}
        for name, score in scores.items()
    }
    return {
        "protocol": PROTOCOL, "dataset": truth.dataset, "seed": seed, "sizes": dataclasses.asdict(sizes),
        "recipe": recipe.as_dict(), "agreement": agreed, "ranked": ranked,
        "scores": {name: score.tolist() for name, score in scores.items()},
        "truth": {part: right.tolist() for part, right in truths.items()},
        "judges": [c["cell"] for c in judges], "stars": [c["cell"] for c in stars],
        "training_seconds": training[0], "learning_seconds": learning[0],
    }  # fmt: skip


def main() -> None:
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=raw)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--device", default="cpu")
    for field in dataclasses.fields(Sizes):
        kind = type(field.default)
        parser.add_argument(f"--{field.name}", type=kind, default=field.default, help="see Sizes")
    parser.add_argument("--data", default="cifar10", help="the images, a name or a file")
    parser.add_argument("--out", type=Path, required=True, help="file to append a record to")
    given = parser.parse_args()
    sizes = Sizes(**{field.name: getattr(given, field.name) for field in dataclasses.fields(Sizes)})
    folder = Path(os.environ.get("HCDC_DATA") or Path.home() / ".cache" / "hcdc")
    task = ImageTask(data(given.data))  # type: ignore[arg-type]
    truth = TableTruth(NASBench201Table(folder / "nasbench201.csv.gz"), "cifar10")
    found = run(task, truth, sizes, given.seed, given.device)
    records.append(given.out, rounded({**found, "environment": records.environment(given.device)}))


if __name__ == "__main__":
    as_command(main)
