"""Protocol ``convnet-accuracy``: test accuracy of ConvNet-3 trained on a condensed set, as published.

    python -m hcdc.experiments.convnet_accuracy --dataset cifar10 --methods random,herding,dm --out FILE

300 epochs without augmentation for random, K-Center, Herding, DC and KIP; 1000 epochs with augmentation for
DSA, DM and TM (at its learned step size). The last epoch counts. ``--every N`` also measures DC, DSA, KIP and
TM every N iterations. An interrupted run continues from ``--checkpoint``. ``--keep FOLDER`` stores the set as
a copy for protocol ``nas201``. ``--copies FILE,FILE`` measures condensed files instead of methods.
"""

from __future__ import annotations

import logging
import time
from pathlib import Path
from typing import Any

from hcdc.core import records
from hcdc.core.checkpoint import Checkpoint
from hcdc.core.errors import InputError
from hcdc.core.progress import Progress
from hcdc.datasets import CondensedDataset, data
from hcdc.experiments._command import as_command, integers, kept_file, protocol_parser
from hcdc.experiments.nas201 import copy_plan
from hcdc.tasks import ImageTask
from hcdc.training import ConvNetRecipe, convnet_accuracy

PROTOCOL = "convnet-accuracy"
AUGMENTED = ("dsa", "dm", "tm")
log = logging.getLogger("hcdc")


def run(
    dataset: str,
    methods: list[str],
    seeds: list[int],
    out: str,
    *,
    per_class: int = 50,
    networks: int = 20,
    options: dict[str, Any] | None = None,
    every: int = 0,
    folder: str | None = None,
    device: str = "cpu",
    epochs: int | None = None,
    keep: str | None = None,
    val_per_class: int = 20,
) -> None:
    """Condense and measure; appends one record per method, seed and iteration to ``out``."""
    for name, value in (("per-class", per_class), ("networks", networks), ("epochs", epochs)):
        if value is not None and value < 1:
            raise InputError(f"--{name} {value}: at least 1 is needed")
    if every < 0:
        raise InputError(f"--every {every}: give a number of iterations, or 0 to measure only the last one")
    task = ImageTask(data(dataset))  # type: ignore[arg-type]
    sizes = per_class * task.num_classes, (1 if keep is None else val_per_class) * task.num_classes
    plans = [copy_plan(task, method, seed, sizes, options) for method in methods for seed in seeds]
    for planned in plans:  # all are checked before the first is made
        settings, seconds, begun = planned.reducer.settings(), 0.0, time.perf_counter()
        store = Checkpoint(None)
        if folder is not None:  # keyed by data and settings
            store = Checkpoint(Path(folder) / f"{planned.key()}.checkpoint", planned.key())
        for now in planned.reducer.iterates(
            task.to(device), "train", sizes[0], planned.seed,
            progress=Progress(), checkpoint=store, every=every,
        ):  # fmt: skip
            seconds += time.perf_counter() - begun
            if keep is not None and now.iteration is None:
                record = {"condense_seconds": seconds, "phases": {"train": seconds, "val": 0.0}}
                record["environment"] = records.environment(device)
                meta = planned.meta | ({"train_learned": dict(now.told)} if now.told else {})
                val = task.sample("val", planned.val_size, planned.seed)
                CondensedDataset(now.images.to("cpu"), val, meta, record).save(kept_file(keep, planned))
            what = {"method": planned.reducer.name, "per_class": per_class, "seed": planned.seed}
            what |= {"iteration": now.iteration, "settings": settings, **now.told}
            what["condense_seconds"] = seconds
            measure(task, dataset, now.images, what, out, networks, epochs, device)
            begun = time.perf_counter()


def measure(
    task: ImageTask,
    dataset: str,
    small: Any,
    what: dict[str, Any],
    out: str,
    networks: int,
    epochs: int | None,
    device: str,
) -> None:
    """Train ConvNets on a condensed set and append a record that describes it by ``what``."""
    augment, seed = what["method"] in AUGMENTED, what["seed"]
    recipe = ConvNetRecipe(lr=what.get("step_size", ConvNetRecipe.lr))
    found = convnet_accuracy(
        small.to(device), task.data, networks, augment=augment, epochs=epochs, seed=seed, recipe=recipe
    )
    record = {"protocol": PROTOCOL, "dataset": dataset, **what, **found}
    records.append(out, record | {"environment": records.environment(device)})
    log.info("%s seed %d at %s: %.4f", what["method"], seed, what["iteration"], found["test_accuracy"])


def run_copies(
    dataset: str, files: list[str], out: str, *, networks: int = 20, epochs: int | None = None, device: str
) -> None:
    """Measure the training sets of condensed files."""
    task = ImageTask(data(dataset))  # type: ignore[arg-type]
    copies = [CondensedDataset.load(file) for file in files]
    prints = task.data.fingerprint()
    for file, copy in zip(files, copies):
        if copy.meta["data"].get("fingerprint") != prints:
            raise InputError(f"'{file}' was not made from '{dataset}'")
    for copy in copies:
        meta = copy.meta
        what = {"method": meta["train_method"], "per_class": len(copy.train) // task.num_classes}
        what |= {"seed": meta["seed"], "iteration": None, "settings": meta["settings"]["train"]}
        what |= meta.get("train_learned", {})
        measure(task, dataset, copy.train, what, out, networks, epochs, device)


def main() -> None:
    parser = protocol_parser(__doc__, "cifar10")
    parser.add_argument("--methods", default="random")
    parser.add_argument("--copies", help="condensed files to measure instead of methods")
    parser.add_argument("--per-class", type=int, default=50)
    parser.add_argument("--networks", type=int, default=20)
    parser.add_argument("--iterations", type=int, help="default: the preset's")
    parser.add_argument("--every", type=int, default=0)
    parser.add_argument("--epochs", type=int, help="default: as published; for tests")
    parser.add_argument("--checkpoint", help="a folder")
    parser.add_argument("--keep", help="a folder")
    parser.add_argument("--val-per-class", type=int, default=20, help="for stored copies")
    given = parser.parse_args()
    shared = {"networks": given.networks, "epochs": given.epochs, "device": given.device}
    if given.copies is not None:
        run_copies(given.dataset, given.copies.split(","), given.out, **shared)
        return
    run(
        given.dataset, given.methods.split(","), integers("--seeds", given.seeds), given.out,
        per_class=given.per_class, every=given.every, folder=given.checkpoint, keep=given.keep,
        options=None if given.iterations is None else {"iterations": given.iterations},
        val_per_class=given.val_per_class, **shared,
    )  # fmt: skip


if __name__ == "__main__":
    as_command(main)
