"""Milliseconds an iteration of DM: this library against the usual way to write it, in one run.

    python benchmarks/dm.py [--device cuda] [--iterations 50] [--classes 10] [--per-class 50] [--profile]
        [--out FILE]

The usual way: a new module each iteration, initialised on the host and moved to the device; classes one after
another; a batch of a class by a permutation of its list of indices; the operation of an augmentation chosen
on the host and applied to the original and to the synthetic images by a call each; eager float32. The images
are generated, in the shapes of CIFAR on a GPU and fewer and smaller elsewhere; both forms start from the same
ones, and their mean matching losses are compared (their draws differ). On CUDA ours computes in bfloat16.
Before that one iteration of this library, as it runs on the device, is held against modules and autograd in
float64: loss and gradient of the pixels. ``--profile`` says instead what the parts of an iteration take.
"""

from __future__ import annotations

import argparse
import json
import math
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from hcdc.condensers._dm import BLOCK, DM, _Matching
from hcdc.core.files import write_atomic
from hcdc.core.progress import peak_memory_gib
from hcdc.core.records import environment, jsonable
from hcdc.datasets import ImageData, Images, channel_statistics
from hcdc.networks import Features
from hcdc.tasks import ImageTask
from hcdc.training import (
    Augmentation,
    augment,
    augment_back,
    draw_augmentation,
    recorded,
    shown,
)

REFERENCE_ITERATIONS = 20_000
SIZES = {
    "cuda": {"classes": 10, "per_class": 50, "real": 5000, "batch": 256, "width": 128, "iterations": 50},
    "cpu": {"classes": 5, "per_class": 5, "real": 100, "batch": 32, "width": 32, "iterations": 20},
}


def generated(classes: int, count: int, device: str) -> ImageData:
    """Smooth noise of 3 x 32 x 32 pixels around a smooth image of the class."""
    generator = torch.Generator(device).manual_seed(0)

    def smooth(number: int) -> Tensor:
        return F.interpolate(
            torch.randn(number, 3, 8, 8, generator=generator, device=device), size=32, mode="bilinear"
        )

    y = torch.arange(classes, device=device).repeat_interleave(count)
    centres = smooth(classes)
    x = torch.cat([128 + 30 * (centres[c] + smooth(count)) for c in range(classes)])
    x = x.clamp(0, 255).to(torch.uint8)
    mean, std = channel_statistics(x.cpu())
    some = Images(x[::count], y[::count])
    names = tuple(map(str, range(classes)))
    return ImageData(
        "generated", "memory", Images(x, y), some, some, classes, mean.to(device), std.to(device), names
    )


def module(width: int, classes: int) -> nn.Sequential:
    """ConvNet-3 as a module."""
    layers: list[nn.Module] = []
    for below in (3, width, width):
        layers += [nn.Conv2d(below, width, 3, padding=1), nn.GroupNorm(width, width), nn.ReLU()]
        layers += [nn.AvgPool2d(2)]
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(16 * width, classes))


def usual_augmentation(x: Tensor, name: str, u: list[float]) -> Tensor:
    """One operation of DSA with parameters from uniform numbers, the same for all images ``[n, c, h, w]``."""
    side = x.shape[-1]
    if name == "flip":
        return x.flip(3) if u[0] < 0.5 else x
    if name == "colour":
        x = x + (u[0] - 0.5)
        grey = x.mean(1, keepdim=True)
        x = (x - grey) * (2 * u[1]) + grey
        mean = x.mean((1, 2, 3), keepdim=True)
        return (x - mean) * (u[2] + 0.5) + mean
    if name == "crop":
        pad = int(side * 0.125 + 0.5)
        down, right = (int(v * (2 * pad + 1)) for v in u[:2])
        return F.pad(x, (pad, pad, pad, pad))[:, :, down : down + side, right : right + side]
    if name == "cutout":
        half = side // 4
        row, column = (int(v * (side + 1)) for v in u[:2])
        mask = torch.ones(side, side, device=x.device)
        mask[max(0, row - half) : row + half, max(0, column - half) : column + half] = 0
        return x * mask
    if name == "scale":
        across, down = (1 / 1.2 + v * (1.2 - 1 / 1.2) for v in u[:2])
        theta = torch.tensor([[across, 0, 0], [0, down, 0]])
    else:
        angle = math.radians(15 * (2 * u[0] - 1))
        cos, sin = math.cos(angle), math.sin(angle)
        theta = torch.tensor([[cos, -sin, 0], [sin, cos, 0]])
    theta = theta.to(x).expand(len(x), -1, -1)
    grid = F.affine_grid(theta, list(x.shape), align_corners=True)
    return F.grid_sample(x, grid, align_corners=True)


class Usual:
    """DM as it is usually written."""

    operations = ("colour", "crop", "cutout", "flip", "scale", "rotate")

    def __init__(self, config: DM, task: ImageTask, start: Images):
        self.config, self.classes = config, task.num_classes
        self.real = task.inputs(task.train.x)
        labels = task.train.y.tolist()
        self.members: list[list[int]] = [[] for _ in range(self.classes)]
        for position, label in enumerate(labels):
            self.members[label].append(position)
        self.x = start.x.clone().requires_grad_()
        self.each = len(start) // self.classes
        self.optimiser = torch.optim.SGD([self.x], config.lr_img, momentum=config.momentum)
        self.rng = np.random.default_rng(0)

    def run(self, count: int) -> float:
        """``count`` iterations; returns their mean loss."""
        total = 0.0
        for _ in range(count):
            net = module(self.config.width, self.classes).to(self.x.device)
            for p in net.parameters():
                p.requires_grad = False
            embedding = net[:-1]
            loss = torch.zeros((), device=self.x.device)
            for c in range(self.classes):
                index = self.rng.permutation(self.members[c])[: self.config.batch]
                real, mine = self.real[index], self.x[c * self.each : (c + 1) * self.each]
                name, u = self.operations[self.rng.integers(6)], self.rng.random(3).tolist()
                wanted = embedding(usual_augmentation(real, name, u)).detach()
                found = embedding(usual_augmentation(mine, name, u))
                loss = loss + (wanted.mean(0) - found.mean(0)).square().sum()
            self.optimiser.zero_grad()
            loss.backward()
            self.optimiser.step()
            total += loss.item()
        return total / count


class Ours:
    """This library's iterations."""

    def __init__(self, config: DM, task: ImageTask, start: Images):
        self.match = _Matching(config, task, "train", start)
        self.blocks = 0

    def run(self, count: int) -> float:
        total = 0.0
        for done in range(0, count, BLOCK):
            number = min(BLOCK, count - done)
            total += number * self.match.run(self.blocks, number)
            self.blocks += 1
        return total / count


def waited() -> float:
    """The time when the device has done all that it was given."""
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return time.perf_counter()


def compiling() -> dict[str, float]:
    """Compilations so far and their seconds, by torch's own count."""
    from torch._dynamo.utils import compilation_time_metrics

    seconds = [s for name, each in compilation_time_metrics.items() if "compile_inner" in name for s in each]
    return {"compilations": len(seconds), "seconds_compiling": sum(seconds)}


def check(match: _Matching) -> dict[str, float]:
    """The first iteration against modules and autograd in float64, with the same draws."""
    before = match.small.x.clone()
    loss = match.run(0, 1)
    net = module(match.config.width, len(match.index)).to(before.device).double()
    with torch.no_grad():
        for own, given in zip(net.parameters(), match.net.views(match.vector).values(), strict=True):
            own.copy_(given)
    total, slopes = 0.0, torch.zeros_like(before, dtype=torch.float64)
    for c, index in enumerate(match.index):
        a = Augmentation(*(t[c : c + 1].double() for t in match.augmentation.tensors()))
        leaf = before[c : c + 1].double().requires_grad_()
        real = match.real.images_at(index)[None].double()
        with torch.no_grad():
            wanted = match.real.weight[c].double() @ net[:-1](augment(real, a)[0])
        found = match.small.weight[c].double() @ net[:-1](augment(leaf, a)[0])
        term = (found - wanted).square().sum()
        slopes[c] = torch.autograd.grad(term, leaf)[0][0]
        total += term.item()
    own = match.velocity.double()
    match.small.x.copy_(before)
    match.velocity.zero_()
    return {
        "relative_difference_of_loss": abs(loss - total) / total,
        "cosine_of_pixel_gradients": float(F.cosine_similarity(own.flatten(), slopes.flatten(), dim=0)),
        "ratio_of_gradient_norms": float(own.norm() / slopes.norm()),
    }


def profile(match: _Matching, device: str, repeats: int = 20) -> None:
    """Print what the parts of an iteration take, each recorded by itself, and the kernels of the whole."""
    net, dtype, a, params = match.net, match.dtype, match.augmentation, match.net.views(match.vector)
    match.run(0, BLOCK)
    x, y = match.real.images_at(match.index), match.small.x
    real, own = (shown(images, a, dtype) for images in (x, y))
    features = Features(net, params, torch.cat([real, own]), dtype)[len(real) :]
    slope = torch.randn_like(features.values)
    back = features.pixels(slope).reshape(y.shape)

    def draws() -> None:
        torch.rand(BLOCK, match.initialiser.length, generator=match.generator, device=device)
        match.real.draw(match.generator, BLOCK)
        draw_augmentation(match.generator, BLOCK * len(match.index), net.size)

    parts: dict[str, Callable[[], object]] = {
        "original images: read, normalised": lambda: match.real.images_at(match.index),
        "original images: augmented": lambda: shown(x, a, dtype),
        "synthetic images: augmented": lambda: shown(y, a, dtype),
        "synthetic images: augmentation back": lambda: augment_back(back, a),
        "original images: forward": lambda: Features(net, params, real, dtype),
        "synthetic images: forward": lambda: Features(net, params, own, dtype),
        "both: forward": lambda: Features(net, params, torch.cat([real, own]), dtype),
        "synthetic images: back to pixels": lambda: features.pixels(slope),
    }

    def milliseconds(call: Callable[[], object]) -> float:
        call()
        begin = waited()
        for _ in range(repeats):
            call()
        return (waited() - begin) / repeats * 1000

    print(f"{'draws':40s}{milliseconds(draws) / BLOCK:8.3f} ms an iteration")
    for name, part in parts.items():
        print(f"{name:40s}{milliseconds(recorded(part, torch.device(device), [])):8.3f} ms")
    print(f"{'iteration, without draws':40s}{milliseconds(match.step):8.3f} ms")
    from torch.profiler import ProfilerActivity
    from torch.profiler import profile as profiled

    activity = ProfilerActivity.CUDA if device == "cuda" else ProfilerActivity.CPU
    with profiled(activities=[activity]) as seen:
        match.run(1, BLOCK)
        waited()
    print(f"kernels of {BLOCK} iterations")
    order = f"self_{device}_time_total"
    print(seen.key_averages().table(sort_by=order, row_limit=40, max_name_column_width=90))


def measured(form: Ours | Usual, iterations: int, warm: int, device: str) -> tuple[float, float, float]:
    """Milliseconds an iteration, mean matching loss, peak memory in GiB."""
    if device == "cuda":
        torch.cuda.reset_peak_memory_stats()
    form.run(warm)
    begin = waited()
    loss = form.run(iterations)
    return (waited() - begin) / iterations * 1000, loss, peak_memory_gib()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--device", choices=list(SIZES), default="cuda" if torch.cuda.is_available() else "cpu"
    )
    for name, meaning in (
        ("classes", "number of classes"),
        ("per-class", "synthetic images of a class"),
        ("real", "original images of a class"),
        ("batch", "original images drawn of a class"),
        ("width", "channels of the network"),
        ("iterations", "iterations timed"),
    ):
        parser.add_argument(f"--{name}", type=int, help=meaning)
    parser.add_argument("--profile", action="store_true", help="print what the parts take, and stop")
    parser.add_argument("--out", type=Path, help="records/dm.json, on a CPU dm-cpu.json")
    options = parser.parse_args()
    device = options.device
    name = "dm.json" if device == "cuda" else f"dm-{device}.json"
    out = options.out or Path(__file__).with_name("records") / name
    sizes = {k: v if getattr(options, k) is None else getattr(options, k) for k, v in SIZES[device].items()}
    torch.manual_seed(0)
    task = ImageTask(generated(sizes["classes"], sizes["real"], device), model="convnet")
    config = DM(batch=sizes["batch"], width=sizes["width"])
    start = task.sample("train", sizes["classes"] * sizes["per_class"], 0)

    begin = waited()
    ours = Ours(config, task, start)
    seconds = {"seconds_to_record": waited() - begin, **compiling()}
    print(
        f"{seconds['seconds_to_record']:.1f} s to record the iteration, with {seconds['compilations']} "
        f"compilations of {seconds['seconds_compiling']:.1f} s in all"
    )
    if options.profile:
        profile(ours.match, device)
        return
    agreement = check(ours.match)
    print(f"against float64: {agreement}")
    assert agreement["cosine_of_pixel_gradients"] > 0.95, agreement
    rows = [
        measured(ours, sizes["iterations"], BLOCK, device),
        measured(Usual(config, task, start), sizes["iterations"], 3, device),
    ]
    (own, own_loss, _), (usual, usual_loss, _) = rows
    assert 0.5 < own_loss / usual_loss < 2, f"the two forms differ: losses {own_loss} and {usual_loss}"
    record: dict[str, Any] = {
        "benchmark": "dm",
        **sizes,
        "columns": ["hcdc", "usual"],
        "milliseconds_per_iteration": [row[0] for row in rows],
        "minutes_of_20000_iterations_projected": [row[0] * REFERENCE_ITERATIONS / 60_000 for row in rows],
        "mean_matching_loss": [row[1] for row in rows],
        "peak_memory_gib": [row[2] for row in rows] if device == "cuda" else None,
        "ratio": usual / own,
        **seconds,
        **agreement,
        "environment": environment(device),
    }
    write_atomic(out, json.dumps(jsonable(record), indent=1) + "\n")
    print(
        f"{sizes['classes']} classes, {sizes['batch']} original and {sizes['per_class']} synthetic images of "
        f"each: {own:.2f} ms an iteration, usual way {usual:.2f} ms"
    )
    minutes = record["minutes_of_20000_iterations_projected"]
    print(f"20,000 iterations: {minutes[0]:.1f} minutes, usual way {minutes[1]:.1f} minutes (projected)")
    print(f"{record['ratio']:.1f} times faster; written to {out}")


if __name__ == "__main__":
    main()
