"""Seconds to train the small ResNet on coloured images of 32 x 32 pixels, by width, depth and batch.

    python benchmarks/training_resnet.py [--device cuda] [--candidates 16] [--images 13000] [--epochs 10]

On the CPU it times a few steps and scales them to the whole training; on CUDA it trains every candidate.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import time

import torch

from hcdc.core.recipe import Recipe
from hcdc.datasets import Images
from hcdc.networks import ResNet
from hcdc.training import train_networks

RECIPE = Recipe(lr=0.1, optimizer="sgd", augment="flip-crop", clip=5.0, dropout=0.1, label_smoothing=0.1)
CASES = ((8, 1, 128), (16, 1, 32), (16, 1, 128), (16, 1, 512), (32, 1, 128), (64, 1, 128), (16, 3, 128))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--candidates", type=int, default=1)
    parser.add_argument("--images", type=int, default=13_000)
    parser.add_argument("--epochs", type=float, default=10)
    asked = parser.parse_args()
    chance = torch.Generator().manual_seed(0)
    x = torch.randn(asked.images, 3, 32, 32, generator=chance)
    train = Images(x.to(asked.device), (torch.arange(asked.images) % 10).to(asked.device))
    for width, depth, batch in CASES:
        steps = round(asked.epochs * (asked.images // batch))
        timed = steps if asked.device == "cuda" else min(steps, max(2, 512 // batch))
        recipe = dataclasses.replace(RECIPE, steps=timed, batch=batch)
        networks = [ResNet(3, 10, width, depth).fast()] * asked.candidates
        seconds = []
        for repeated in range(2):  # the first run also compiles
            begun = time.perf_counter()
            train_networks(
                networks, [train], recipe, lambda *_: [None], seed=repeated, role="bench", device=asked.device
            )
            seconds.append((time.perf_counter() - begun) / asked.candidates * steps / timed)
        told = {"width": width, "depth": depth, "batch": batch, "steps": steps, "device": asked.device}
        print(json.dumps({**told, "candidates": asked.candidates, "seconds": round(seconds[1], 2)}))


if __name__ == "__main__":
    main()
