"""Protocol ``convnet-accuracy``: test accuracy of ConvNet-3 trained on a condensed set, as published.

    python -m hcdc.experiments.convnet_accuracy --dataset cifar10 --methods random,herding,dm --out FILE

300 epochs without augmentation for random, K-Center, Herding, DC and KIP; 1000 epochs with it for DSA, DM and
TM, which trains at the step size that it has learned. The last epoch counts. ``--every N`` also measures
gradient and trajectory matching at each N-th iteration. A run that is
cut off continues from ``--checkpoint``. ``--keep FOLDER`` keeps the set as a copy for protocol ``nas201``.
``--copies FILE,FILE`` measures condensed files in place of methods.
"""

from __future__ import annotations

import argparse
import logging
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

from hcdc.condensers import TM, ImageMatching, Reducer, plan
from hcdc.core import records
from hcdc.core.checkpoint import Checkpoint, content_key
from hcdc.core.errors import InputError
from hcdc.core.progress import Progress
from hcdc.datasets import CondensedDataset, ImageData, Images, data
from hcdc.experiments._command import as_command, integers
from hcdc.experiments.nas201 import copy_arguments, kept_name
from hcdc.tasks import ImageTask
from hcdc.training import ConvNetRecipe, convnet_accuracy

PROTOCOL = "convnet-accuracy"
AUGMENTED = ("dsa", "dm", "tm")
log = logging.getLogger("hcdc")


def reducer_for(task: ImageTask, method: str, size: int, options: dict[str, Any]) -> Reducer:
    """The method as `condense` has it: with the data set's preset, where it has one, and overrides of it."""
    return plan(**copy_arguments(task, method, 0, size, task.num_classes, options)).reducer


def sets(
    task: ImageTask,
    method: str,
    size: int,
    seed: int,
    options: dict[str, Any],
    every: int,
    folder: Path | None,
) -> Iterator[tuple[int | None, Images, dict[str, Any]]]:
    """Condensed training sets: ``(iteration, images, what a record says of it)``; the last one has iteration
    None."""
    reducer = reducer_for(task, method, size, options)
    key = content_key({"method": method, "size": size, "seed": seed, "settings": reducer.settings()})
    store = Checkpoint(None if folder is None else folder / f"{key}.checkpoint", key)
    told = {"settings": reducer.settings()}
    if every and isinstance(reducer, ImageMatching):
        images = None
        for iterate in reducer.iterates(task, "train", size, seed, store):
            images = iterate.images
            if iterate.iteration % every == 0:
                yield iterate.iteration, images, told
        assert images is not None
        yield None, images, told
        return
    if isinstance(reducer, TM):
        for found in reducer.iterates(
            task, "train", size, seed, progress=Progress(), checkpoint=store, every=every
        ):
            iteration = found.iteration if found.iteration < reducer.iterations else None
            yield iteration, found.images, {**told, "step_size": found.step_size}
        return
    yield None, reducer.reduce(task, "train", size, seed, progress=Progress(), checkpoint=store), told


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
    """Condense and measure; one record a (method, seed, iteration) is appended to ``out``."""
    for name, value in (("per-class", per_class), ("networks", networks), ("epochs", epochs)):
        if value is not None and value < 1:
            raise InputError(f"--{name} {value}: at least 1 is needed")
    if every < 0:
        raise InputError(f"--every {every}: give a number of iterations, or 0 to measure the last one alone")
    images = data(dataset)
    if not isinstance(images, ImageData):
        raise InputError(f"--dataset '{dataset}' has no images, and ConvNets are trained on images alone")
    kept = None if folder is None else Path(folder) / images.fingerprint()  # other data, other checkpoints
    task, plain = ImageTask(images, "convnet").to(device), ImageTask(images)
    size, val_size = per_class * task.num_classes, val_per_class * task.num_classes
    for method in methods:
        reducer_for(task, method, size, options or {})  # refused before any work
    copies = {
        (method, seed): plan(**copy_arguments(plain, method, seed, size, val_size, options or {}))
        for method in methods
        for seed in seeds
        if keep is not None
    }
    for method in methods:
        for seed in seeds:
            begun = time.perf_counter()
            measuring = 0.0
            own = task.to(device)  # what one method has trained is not there for the next
            for iteration, small, found in sets(own, method, size, seed, options or {}, every, kept):
                spent = time.perf_counter() - begun - measuring
                before = time.perf_counter()
                if keep is not None and iteration is None:
                    made = copies[method, seed]
                    val = plain.sample("val", made.val_size, seed)
                    told = {"condense_seconds": spent, "environment": records.environment(device)}
                    told |= {k: v for k, v in found.items() if k == "step_size"}
                    copy = CondensedDataset(small.to("cpu"), val, made.meta, told)
                    copy.save(Path(keep) / kept_name(made, method, seed))
                what = {"method": method, "per_class": per_class, "seed": seed, "iteration": iteration}
                what |= {**found, "condense_seconds": spent}
                measure(task, dataset, small, what, out, networks, epochs, device)
                measuring += time.perf_counter() - before


def measure(
    task: ImageTask,
    dataset: str,
    small: Images,
    what: dict[str, Any],
    out: str,
    networks: int,
    epochs: int | None,
    device: str,
) -> None:
    """Train ConvNets on a condensed set and append the record of it, which says ``what`` the set is."""
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
    """Measure the training sets of condensed files of a data set."""
    images = data(dataset)
    if not isinstance(images, ImageData):
        raise InputError(f"--dataset '{dataset}' has no images, and ConvNets are trained on images alone")
    copies = [CondensedDataset.load(file) for file in files]
    prints = images.fingerprint()
    for file, copy in zip(files, copies):
        if copy.meta["data"].get("fingerprint") != prints:
            raise InputError(f"'{file}' is a copy of other data than '{dataset}'")
    task = ImageTask(images, "convnet").to(device)
    for file, copy in zip(files, copies):
        meta = copy.meta
        assert isinstance(copy.train, Images), "a copy of images has images"
        what = {"method": meta["train_method"], "per_class": len(copy.train) // task.num_classes}
        what |= {"seed": meta["seed"], "iteration": None, "settings": meta["settings"]["train"]}
        told = copy.record | meta.get("train_learned", {})
        if "step_size" in told:
            what["step_size"] = told["step_size"]
        elif what["method"] == "tm":
            log.warning("'%s' has no record of the step size that it has learned: lr .01 is taken", file)
        measure(task, dataset, copy.train, what, out, networks, epochs, device)


def main() -> None:
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=raw)
    parser.add_argument("--dataset", default="cifar10")
    parser.add_argument("--methods", default="random")
    parser.add_argument("--copies", help="condensed files, in place of methods")
    parser.add_argument("--seeds", default="0")
    parser.add_argument("--per-class", type=int, default=50)
    parser.add_argument("--networks", type=int, default=20)
    parser.add_argument("--iterations", type=int, help="in place of the preset's")
    parser.add_argument("--every", type=int, default=0)
    parser.add_argument("--epochs", type=int, help="in place of the published ones; for trials")
    parser.add_argument("--checkpoint", help="a folder")
    parser.add_argument("--keep", help="a folder")
    parser.add_argument("--val-per-class", type=int, default=20, help="random images of kept copies")
    parser.add_argument("--out", required=True)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    given = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    if given.copies is not None:
        run_copies(
            given.dataset, given.copies.split(","), given.out,
            networks=given.networks, epochs=given.epochs, device=given.device,
        )  # fmt: skip
        return
    run(
        given.dataset,
        given.methods.split(","),
        integers("--seeds", given.seeds),
        given.out,
        per_class=given.per_class,
        networks=given.networks,
        options=None if given.iterations is None else {"iterations": given.iterations},
        every=given.every,
        folder=given.checkpoint,
        device=given.device,
        epochs=given.epochs,
        keep=given.keep,
        val_per_class=given.val_per_class,
    )


if __name__ == "__main__":
    as_command(main)
