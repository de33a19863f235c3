"""Training many different cells on 500 images: all at once against one after the other.

    python benchmarks/networks.py [--device cuda] [--cells 100] [--steps 400] [--plain 4] [--out FILE]

The usual way is a loop over the cells, modules of torch.nn and torch.optim.SGD in float32, launched kernel by
kernel; images lie on the device, so that no DataLoader is in its way. It is timed on ``--plain`` cells and
scaled to all. On a CPU there are fewer cells and steps, and the loop is timed on every cell: cells differ in
cost, and few stand badly for all. One run, one machine; the record lies beside.
"""

from __future__ import annotations

import argparse
import dataclasses
import itertools
import json
import time
from pathlib import Path

import torch
from torch import nn
from torch.nn import functional as F

from hcdc.core.files import write_atomic
from hcdc.core.recipe import Recipe
from hcdc.core.records import environment
from hcdc.datasets import Images
from hcdc.networks import EDGES, OPERATIONS
from hcdc.spaces import NASBench201
from hcdc.training import train_networks
from hcdc.training._networks import batches, learning_rates

SIZES = {
    "cuda": {"cells": 100, "steps": 400, "plain": 4},
    "cpu": {"cells": 8, "steps": 40, "plain": 8},
}


class Unit(nn.Sequential):
    """Convolution and BatchNorm."""

    def __init__(self, inputs, outputs, size, stride=1):
        convolution = nn.Conv2d(inputs, outputs, size, stride, size // 2, bias=False)
        super().__init__(convolution, nn.BatchNorm2d(outputs))


class Cell(nn.Module):
    """Six edges between four nodes."""

    def __init__(self, operations, channels):
        super().__init__()
        makers = {
            "none": lambda: None,
            "skip_connect": nn.Identity,
            "nor_conv_1x1": lambda: nn.Sequential(nn.ReLU(), Unit(channels, channels, 1)),
            "nor_conv_3x3": lambda: nn.Sequential(nn.ReLU(), Unit(channels, channels, 3)),
            "avg_pool_3x3": lambda: nn.AvgPool2d(3, 1, 1, count_include_pad=False),
        }
        self.edges = nn.ModuleList(makers[OPERATIONS[k]]() or nn.Module() for k in operations)
        self.used = [OPERATIONS[k] != "none" for k in operations]

    def forward(self, x):
        nodes = [x]
        for target in (1, 2, 3):
            into = [k for k, (_, to) in enumerate(EDGES) if to == target and self.used[k]]
            parts = [self.edges[k](nodes[EDGES[k][0]]) for k in into]
            nodes.append(sum(parts) if parts else torch.zeros_like(x))
        return nodes[3]


class Reduction(nn.Module):
    """A residual block that halves the image and doubles the channels."""

    def __init__(self, inputs):
        super().__init__()
        self.main = nn.Sequential(
            nn.ReLU(), Unit(inputs, 2 * inputs, 3, 2), nn.ReLU(), Unit(2 * inputs, 2 * inputs, 3)
        )
        self.shortcut = nn.Sequential(nn.AvgPool2d(2), nn.Conv2d(inputs, 2 * inputs, 1, bias=False))

    def forward(self, x):
        return self.main(x) + self.shortcut(x)


def usual_network(operations, channels=16, classes=10):
    """The benchmark's network with one cell a stage, as torch.nn has it."""
    wide = [channels, 2 * channels, 4 * channels]
    layers = [Unit(3, channels, 3), Cell(operations, wide[0])]
    for below, here in itertools.pairwise(wide):
        layers += [Reduction(below), Cell(operations, here)]
    last = [nn.BatchNorm2d(wide[-1]), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten()]
    return nn.Sequential(*layers, *last, nn.Linear(wide[-1], classes))


def plain(network, images, recipe, device):
    """One network, step by step."""
    generator = torch.Generator().manual_seed(0)
    model = usual_network(network.cell).to(device)
    params = list(model.parameters())
    optimizer = torch.optim.SGD(params, recipe.lr, momentum=0.9, weight_decay=recipe.weight_decay)
    order = batches(len(images), recipe.batch, recipe.steps, generator).to(device)
    rates = learning_rates(recipe).tolist()
    for step in range(recipe.steps):
        for group in optimizer.param_groups:
            group["lr"] = rates[step]
        loss = F.cross_entropy(model(images.x[order[step]]), images.y[order[step]])
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(params, recipe.clip)
        optimizer.step()


def timed(function, device):
    if device == "cuda":
        torch.cuda.synchronize()
    begun = time.perf_counter()
    function()
    if device == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter() - begun


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--device", choices=list(SIZES), default="cuda" if torch.cuda.is_available() else "cpu"
    )
    for name, meaning in (
        ("cells", "networks trained"),
        ("steps", "steps of each"),
        ("plain", "cells of the usual way"),
    ):
        parser.add_argument(f"--{name}", type=int, help=meaning)
    parser.add_argument("--out", type=Path, help="records/networks.json, on a CPU networks-cpu.json")
    options = parser.parse_args()
    device = options.device
    name = "networks.json" if device == "cuda" else f"networks-{device}.json"
    out = options.out or Path(__file__).with_name("records") / name
    sizes = {k: v if getattr(options, k) is None else getattr(options, k) for k, v in SIZES[device].items()}
    count, steps = sizes["cells"], sizes["steps"]
    timed_cells = min(sizes["plain"], count)
    space = NASBench201()
    cells = space.candidates()[:count]
    networks = [dataclasses.replace(space.network(3, 10, cell), fused=True) for cell in cells]
    images = Images(torch.randn(500, 3, 32, 32, device=device), torch.arange(500, device=device) % 10)
    recipe = Recipe(
        steps=steps, lr=0.025, weight_decay=3e-4, optimizer="sgd", batch=64, lr_end=0.001, clip=5.0
    )

    def ours(number, settings):
        train_networks(
            networks[:number], [images], settings, lambda *_: [None], seed=0, role="benchmark", device=device
        )

    short = dataclasses.replace(recipe, steps=2)
    ours(min(2, count), short)
    plain(networks[0], images, short, device)
    fast = timed(lambda: ours(count, recipe), device)
    slow = timed(lambda: [plain(n, images, recipe, device) for n in networks[:timed_cells]], device)
    usual = slow / timed_cells * count
    found = {
        "benchmark": "networks", "cells": count, "steps": steps, "batch": 64,
        "seconds": fast, "usual_seconds": usual, "usual_timed_cells": timed_cells, "ratio": usual / fast,
        "environment": environment(device),
    }  # fmt: skip
    write_atomic(out, json.dumps(found, indent=1, sort_keys=True) + "\n")
    print(f"{count} cells x {steps} steps: {fast:.1f} s, one after the other {usual:.1f} s")
    print(f"{usual / fast:.1f} times faster; written to {out}")


if __name__ == "__main__":
    main()
