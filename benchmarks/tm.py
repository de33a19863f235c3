"""Seconds an iteration and peak memory of trajectory matching: this library against autograd, in one run.

    python benchmarks/tm.py [--device cuda] [--precision tf32 bf16] [--experts] [--out FILE]

Shapes are those of CIFAR-10 at 50 images a class, fewer and smaller on a CPU, where both precisions are
float32 and one is timed; pixels are noise, on which no time depends. The plain form is the published one: the
graph of all N student steps is kept (create_graph) and differentiated once more, eager float32 with torch's
own group norm; data on the device, no DataLoader, augmentation as batched as ours. Both see the same student
batches, augmentations and experts, and their derivatives by the pixels are compared. With --experts, a step
of expert training is timed as well: recorded, against an eager float32 loop.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from hcdc.condensers import TM
from hcdc.condensers._experts import ExpertTrainer
from hcdc.condensers._tm import Matching
from hcdc.core.files import write_atomic
from hcdc.core.records import environment, jsonable
from hcdc.datasets import Images
from hcdc.networks import ConvNet
from hcdc.training import Augmentation, augment_each

SIZES = {
    "cuda": {"size": 500, "steps": 30, "width": 128, "repeats": 12, "images": 50_000},
    "cpu": {"size": 50, "steps": 10, "width": 32, "repeats": 5, "images": 1000},
}
PRECISIONS = {"cuda": ["tf32", "bf16"], "cpu": ["tf32"]}


def seconds(device: torch.device, work: Callable[[], object], repeats: int) -> float:
    """Median seconds of one call, after one that is not counted."""

    def wait() -> None:
        if device.type == "cuda":
            torch.cuda.synchronize()

    work()
    found = []
    for _ in range(repeats):
        wait()
        begin = time.perf_counter()
        work()
        wait()
        found.append(time.perf_counter() - begin)
    return statistics.median(found)


def forget_peak(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()


def peak_gib(device: torch.device) -> float | None:
    return torch.cuda.max_memory_allocated() / 2**30 if device.type == "cuda" else None


def loss(net: ConvNet, theta: Tensor, x: Tensor, y: Tensor) -> Tensor:
    return F.cross_entropy(net.forward(net.views(theta), None, x), y)


def plain_derivatives(
    net: ConvNet, match: Matching, start: Tensor, target: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """D, dD/dX and dD/da through the graph of all student steps."""
    x, size = match.x.clone().requires_grad_(), match.size.clone().requires_grad_()
    theta = start.clone().requires_grad_()
    for k in range(match.config.student_steps):
        rows = match.order[k]
        batch = augment_each(x[rows], Augmentation(*(t[k] for t in match.parameters)))
        (g,) = torch.autograd.grad(loss(net, theta, batch, match.y[rows]), theta, create_graph=True)
        theta = theta - size * g
    distance = (theta - target).square().sum() / (start - target).square().sum()
    dx, dsize = torch.autograd.grad(distance, (x, size))
    return distance.detach(), dx, dsize


def matching(options: argparse.Namespace, net: ConvNet, device: torch.device) -> dict[str, Any]:
    """Both forms of one iteration, ours in every precision asked for."""
    generator = torch.Generator(device).manual_seed(0)
    shape = (options.size, net.inputs, *net.size)
    x = torch.randn(shape, generator=generator, device=device)
    small = Images(x, torch.arange(options.size, device=device) % net.classes)
    start = net.flatten(net.init(generator))
    target = start + 1e-3 * torch.randn(len(start), generator=generator, device=device)

    def make(precision: str) -> Matching:
        config = TM(student_steps=options.steps, batch=options.batch, step_size=0.01, precision=precision)
        match = Matching(config, net, small)
        match.draw(0)
        return match

    torch_net = ConvNet(net.inputs, net.classes, net.size, net.width, net.depth, fused=True)
    forget_peak(device)
    drawn = make("tf32")
    distance, dx, dsize = plain_derivatives(torch_net, drawn, start, target)
    plain = seconds(device, lambda: plain_derivatives(torch_net, drawn, start, target), 3)
    found: dict[str, Any] = {"plain": {"seconds": plain, "peak_gib": peak_gib(device)}}
    for precision in options.precision:
        forget_peak(device)
        begin = time.perf_counter()
        match = make(precision)
        match.record()
        recording = time.perf_counter() - begin
        ours = seconds(device, lambda match=match: match.derivatives(start, target), options.repeats)
        own_distance = match.derivatives(start, target)
        alike = F.cosine_similarity(match.dx.flatten(), dx.flatten(), 0)
        found[precision] = {
            "seconds": ours,
            "peak_gib": peak_gib(device),
            "seconds_of_compiling_and_recording": recording,
            "ratio": plain / ours,
            "cosine_of_pixel_derivatives": float(alike),
            "length_of_pixel_derivatives": float(match.dx.norm() / dx.norm()),
            "relative_difference_of_distance": float((own_distance - distance).abs() / distance),
            "relative_difference_of_step_derivative": float((match.dsize - dsize).abs() / dsize.abs()),
        }
        assert float(alike) > 0.9, f"the two forms differ: cosine {float(alike)} in {precision}"
        del match
    return found


def experts(options: argparse.Namespace, net: ConvNet, device: torch.device) -> dict[str, Any]:
    """Steps a second of expert training, recorded and eager."""
    generator = torch.Generator(device).manual_seed(0)
    shape = (options.images, net.inputs, *net.size)
    x = torch.randint(256, shape, generator=generator, device=device, dtype=torch.uint8)
    images = Images(x, torch.randint(net.classes, shape[:1], generator=generator, device=device))

    def inputs(pixels: Tensor) -> Tensor:
        return pixels.float() / 128 - 1

    begin = time.perf_counter()
    trainer = ExpertTrainer(net, images, inputs, 0.01, 256)
    recording = time.perf_counter() - begin
    epoch = seconds(device, lambda: trainer.train(1, 0, "benchmark"), 3)
    order, parameters = trainer._draw(generator)
    torch_net = ConvNet(net.inputs, net.classes, net.size, net.width, net.depth, fused=True)
    steps = min(trainer.steps, 50)

    def eager() -> None:
        theta = net.flatten(net.init(generator)).requires_grad_()
        for k in range(steps):
            rows = order[k]
            batch = augment_each(inputs(images.x[rows]), Augmentation(*(t[k] for t in parameters)))
            (g,) = torch.autograd.grad(loss(torch_net, theta, batch, images.y[rows]), theta)
            with torch.no_grad():
                theta -= 0.01 * g

    plain = seconds(device, eager, 3) / steps
    return {
        "images": options.images,
        "seconds_an_epoch": epoch,
        "steps_a_second": [trainer.steps / epoch, 1 / plain],
        "ratio": plain * trainer.steps / epoch,
        "seconds_of_compiling_and_recording": recording,
        "seconds_of_20_experts_of_41_epochs_projected": 20 * 41 * epoch,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--device", choices=list(SIZES), default="cuda" if torch.cuda.is_available() else "cpu"
    )
    parser.add_argument("--precision", nargs="+", choices=PRECISIONS["cuda"])
    parser.add_argument("--batch", type=int, default=0, help="synthetic images a student step; 0 takes all")
    parser.add_argument("--side", type=int, default=32, help="pixels")
    for name, meaning in (
        ("size", "synthetic images"),
        ("steps", "student steps"),
        ("width", "channels of the network"),
        ("repeats", "iterations timed"),
        ("images", "original images, for --experts"),
    ):
        parser.add_argument(f"--{name}", type=int, help=meaning)
    parser.add_argument("--experts", action="store_true", help="time a step of expert training too")
    parser.add_argument("--out", type=Path, help="records/tm.json, on a CPU tm-cpu.json")
    options = parser.parse_args()
    for key, value in {**SIZES[options.device], "precision": PRECISIONS[options.device]}.items():
        if getattr(options, key) is None:
            setattr(options, key, value)
    name = "tm.json" if options.device == "cuda" else f"tm-{options.device}.json"
    out = options.out or Path(__file__).with_name("records") / name
    device = torch.device(options.device)
    net = ConvNet(3, 10, (options.side, options.side), options.width)
    record: dict[str, Any] = {
        "benchmark": "tm",
        "size": options.size,
        "student_steps": options.steps,
        "width": options.width,
        "iteration": matching(options, net, device),
        "experts": experts(options, net, device) if options.experts else None,
        "environment": environment(device),
    }
    write_atomic(out, json.dumps(jsonable(record), indent=2) + "\n")
    for name, row in record["iteration"].items():
        peak = "" if row["peak_gib"] is None else f", {row['peak_gib']:.1f} GiB"
        ratio = f", {row['ratio']:.1f} times as fast" if "ratio" in row else ""
        alike = f", cosine {row['cosine_of_pixel_derivatives']:.5f}" if "ratio" in row else ""
        print(f"{name}: {row['seconds']:.3f} s an iteration{peak}{ratio}{alike}")
    if record["experts"]:
        ours, plain = record["experts"]["steps_a_second"]
        print(f"experts: {ours:.0f} steps a second, eager {plain:.0f}")
    print(f"written to {out}")


if __name__ == "__main__":
    main()
