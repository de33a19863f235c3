"""Ranking the whole of NAS-Bench-201 on a copy: seconds per cell, and where they go.

    python benchmarks/whole_space.py [--cells 200] [--streams 16] [--processes 1,2,3] [--out FILE]

Random cells train for 78 steps on 500 images from eight initialisations, and each is scored on 2,000 images.
Seconds per cell times 4,929 is the whole space. The rest says where they go: preparing a network (from a run
of one step without scores), its steps (from that run and one without scores), scoring (what remains), and the
kernels of a step by kind, timed one network after another. ``--processes`` shares the cells among so many
processes, which use the device at the same time. One CUDA device; the record lies beside.
"""

from __future__ import annotations

import argparse
import collections
import dataclasses
import json
import random
import time
from pathlib import Path

import torch
from torch.nn import functional as F
from torch.profiler import ProfilerActivity, profile

from hcdc.core.files import write_atomic
from hcdc.core.recipe import Recipe
from hcdc.core.records import environment
from hcdc.datasets import Images
from hcdc.spaces import NASBench201
from hcdc.training import train_networks
from hcdc.training._networks import forward

RECIPE = Recipe(
    steps=78, lr=0.025, weight_decay=3e-4, optimizer="sgd", batch=64, lr_end=0.001, clip=5.0, seeds=8
)
KINDS = {
    "BatchNorm": ("_map", "_sum"),
    "3 x 3 convolutions": ("xmma", "cudnn"),
    "1 x 1 convolutions and pools": ("nvjet", "gemm"),
    "additions": ("CUDAFunctor_add",),
    "ReLU": ("clamp", "threshold"),
    "weights": ("_gather", "_clip", "_scatter", "Cat"),
}


def trained(networks, images, scored, steps, streams):
    """Seconds to train (and, given images, score) all networks, and their losses."""

    @torch.no_grad()
    def after(number, _, repeats, params):
        network = networks[number].side_by_side(len(repeats))
        halves = [] if scored is None else zip(scored.x.split(1000), scored.y.split(1000))
        outputs = [(forward(network, params, x), y) for x, y in halves]
        losses = [F.cross_entropy(lane, y) for out, y in outputs for lane in out]
        return [torch.stack(losses) if losses else None]

    recipe = dataclasses.replace(RECIPE, steps=steps)
    torch.cuda.synchronize()
    begun = time.perf_counter()
    found = train_networks(
        networks, [images], recipe, after, seed=0, role="benchmark", device="cuda", streams=streams
    )
    torch.cuda.synchronize()
    return time.perf_counter() - begun, [sets[0][0] for sets in found]


def kernels(networks, images, steps=11):
    """Microseconds per step by kind, and the number of kernels."""
    with profile(activities=[ProfilerActivity.CUDA]) as seen:
        trained(networks, images, None, steps, 1)
    spent, count = collections.Counter(), 0
    for event in seen.key_averages():
        kind = next((k for k, names in KINDS.items() if any(n in event.key for n in names)), "other")
        spent[kind] += event.self_device_time_total
        count += event.count
    ran = (steps + 1) * len(networks)  # one to warm up
    return {kind: value / ran for kind, value in spent.most_common()}, count / ran


def images(count, draw):
    x = torch.randn(count, 3, 32, 32, generator=draw)
    return Images(x.cuda(), (torch.arange(count) % 10).cuda())


def work(cells, streams, barrier):
    """One process: get ready, wait for the others twice, around training and scoring its cells."""
    draw, space = torch.Generator().manual_seed(0), NASBench201()
    networks = [space.network(3, 10, cell).fast() for cell in cells]
    train, scored = images(500, draw), images(2000, draw)
    trained(networks[:8], train, scored, 2, streams)
    barrier.wait()
    trained(networks, train, scored, RECIPE.steps, streams)
    barrier.wait()


def side_by_side(cells, processes, streams):
    """Milliseconds per cell with so many processes, from the moment that all are ready."""
    context = torch.multiprocessing.get_context("spawn")
    barrier = context.Barrier(processes + 1, timeout=300)
    started = [
        context.Process(target=work, args=(cells[k::processes], streams, barrier)) for k in range(processes)
    ]
    for process in started:
        process.start()
    barrier.wait()
    begun = time.perf_counter()
    barrier.wait()
    seconds = time.perf_counter() - begun
    for process in started:
        process.join()
    return 1000 * seconds / len(cells)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cells", type=int, default=200)
    parser.add_argument("--streams", type=int, default=16)
    parser.add_argument("--processes", default="", help="also share the cells among so many: 2,3")
    parser.add_argument("--out", type=Path, default=Path(__file__).with_name("records") / "whole_space.json")
    options = parser.parse_args()
    space, draw = NASBench201(), torch.Generator().manual_seed(0)
    every = space.candidates()
    cells = random.Random(0).sample(every, options.cells)
    networks = [space.network(3, 10, cell).fast() for cell in cells]
    train, scored = images(500, draw), images(2000, draw)
    trained(networks[:16], train, scored, 2, options.streams)
    seconds, losses = trained(networks, train, scored, RECIPE.steps, options.streams)
    plain, _ = trained(networks, train, None, RECIPE.steps, options.streams)
    once, _ = trained(networks, train, None, 1, options.streams)
    spent, count = kernels(networks[:8], train)
    each = 1000 / len(networks)
    torch.cuda.empty_cache()
    counts = [int(text) for text in options.processes.split(",") if text]
    shared = {count: side_by_side(cells, count, options.streams) for count in counts}
    found = {
        "benchmark": "whole_space", "cells": len(networks), "streams": options.streams,
        "ms_per_cell": seconds * each, "minutes": seconds * each * len(every) / 60_000,
        "ms_preparing": once * each, "ms_steps": (plain - once) * each,
        "ms_scoring": (seconds - plain) * each,
        "us_per_step_by_kind": spent, "kernels_per_step": count,
        "ms_per_cell_by_processes": shared, "losses": [float(loss.mean()) for loss in losses],
        "environment": environment("cuda"),
    }  # fmt: skip
    write_atomic(options.out, json.dumps(found, indent=1, sort_keys=True) + "\n")
    print(f"{found['ms_per_cell']:.0f} ms per cell, {found['minutes']:.1f} minutes for {len(every)} cells")
    print(f"preparing {found['ms_preparing']:.0f}, steps {found['ms_steps']:.0f}, scoring "
          f"{found['ms_scoring']:.0f} ms; written to {options.out}")  # fmt: skip
    for processes, ms in shared.items():
        print(f"{processes} processes: {ms:.0f} ms per cell, {ms * len(every) / 60_000:.1f} minutes")


if __name__ == "__main__":
    main()
