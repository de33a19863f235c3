"""Seconds of 12 and of 200 epochs of NAS-Bench-201's own network on half of CIFAR-10: one clock for all rows.

    python benchmarks/epochs.py [--device cuda] [--cells 32] [--epochs 3] [--out FILE]

The image tables compare ways to spend seconds, so all seconds must come from one machine and one engine. This
times full-data trainings of the benchmark's network (5 cells per stage, 16 channels, batch 256, 25,000 images
of 32 x 32 pixels, mirrored and shifted) by the engine that trains candidates. All epochs cost the same, so a
few are timed, the set-up is taken off (a run of one epoch less), and the rest is multiplication. Pixels are
random: what a step costs does not depend on them.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import time
from pathlib import Path

import numpy as np
import torch

from hcdc.core.files import write_atomic
from hcdc.core.recipe import Recipe
from hcdc.core.records import environment
from hcdc.datasets import Images
from hcdc.networks import CellNetwork
from hcdc.spaces import NASBench201
from hcdc.training import train_networks

IMAGES, BATCH, JUDGED_FROM, JUDGES = 25_000, 256, 1512, 512


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--cells", type=int, default=32, help="cells that are timed")
    parser.add_argument("--epochs", type=int, default=3, help="epochs of each")
    parser.add_argument("--images", type=int, default=IMAGES, help="training images, for a trial run")
    parser.add_argument("--out", type=Path, default=Path(__file__).with_name("records") / "epochs.json")
    options = parser.parse_args()
    device = options.device
    space = NASBench201(cells=5, channels=16)
    judges = space.candidates()[JUDGED_FROM : JUDGED_FROM + JUDGES]
    picked = np.random.default_rng(0).permutation(len(judges))[: options.cells]
    networks: list[CellNetwork] = [
        dataclasses.replace(space.network(3, 10, judges[k]), fused=True) for k in picked
    ]
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(options.images, 3, 32, 32, generator=generator).to(device)
    images = Images(x, (torch.arange(options.images) % 10).to(device))
    per_epoch = options.images // BATCH

    def seconds(epochs):
        recipe = Recipe(
            steps=epochs * per_epoch, lr=0.1, weight_decay=5e-4, optimizer="sgd", batch=BATCH,
            augment="flip-crop", clip=5.0,
        )  # fmt: skip
        begun = time.perf_counter()
        train_networks(networks, [images], recipe, lambda *_: [None], seed=0, role="benchmark", device=device)
        if device.startswith("cuda"):
            torch.cuda.synchronize()
        return (time.perf_counter() - begun) / len(networks)

    seconds(1)  # what is paid once on this machine
    less, more = seconds(1), seconds(options.epochs)
    each = (more - less) / (options.epochs - 1)
    found = {
        "benchmark": "epochs", "cells": len(networks), "images": options.images, "batch": BATCH,
        "seconds_per_epoch": each, "set_up_seconds": less - each,
        "seconds_12": less + 11 * each, "seconds_200": less + 199 * each, "timed_epochs": options.epochs,
        "environment": environment(device),
    }  # fmt: skip
    write_atomic(options.out, json.dumps(found, indent=1, sort_keys=True) + "\n")
    print(f"{len(networks)} cells: {each:.3f} s per epoch and cell, set-up {less - each:.3f} s")
    print(f"12 epochs {found['seconds_12']:.1f} s, 200 epochs {found['seconds_200']:.1f} s per cell")


if __name__ == "__main__":
    main()
