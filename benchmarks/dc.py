"""Seconds a step of DC and DSA, pixels and then network: this library against the plain form.

    python benchmarks/dc.py --method dc [--steps 5] [--device cuda] [--profile] [--out FILE]

A step is one of the pixels, then the network's epochs on them. The plain form goes class by class: images
drawn on the host, one autograd graph for all classes kept until the backward pass, epochs from a `DataLoader`
over tensors on the device with the loss read after every batch. Both take steps of equal size in one process,
on generated images: in the shapes of CIFAR on a GPU, fewer and smaller elsewhere. Before that one step of
this library, as it runs on the device, is held against the plain form in float64: matching distance and
gradient of the pixels.
"""

from __future__ import annotations

import argparse
import copy
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

from hcdc.condensers import ImageMatching
from hcdc.condensers._dc import DC, DSA, Matching
from hcdc.core.progress import peak_memory_gib
from hcdc.core.records import append, environment
from hcdc.core.seeds import numpy_stream, stream
from hcdc.datasets import ImageData, Images
from hcdc.networks import ConvNet, Params
from hcdc.tasks import ImageTask
from hcdc.training import Augmentation, augment, augment_each, draw_augmentation, draw_each

View = Callable[[Tensor, int], Tensor]
SIZES = {
    "cuda": {
        "classes": 10, "per_class": 50, "images": 5000, "side": 32, "width": 128, "batch": 256, "inner": 10,
        "steps": 5,
    },
    "cpu": {
        "classes": 5, "per_class": 5, "images": 100, "side": 32, "width": 32, "batch": 32, "inner": 10,
        "steps": 5,
    },
}  # fmt: skip


def generated(classes: int, each: int, side: int) -> ImageTask:
    """Colour images of noise around a pattern of their class, with ``each`` images a class."""
    generator = stream(0, "benchmark", "images")
    pattern = torch.randint(64, (classes, 3, side, side), generator=generator)
    y = torch.arange(classes).repeat_interleave(each)
    noise = torch.randint(128, (len(y), 3, side, side), generator=generator, dtype=torch.uint8)
    train = Images(noise + pattern[y].to(torch.uint8), y)
    few = Images(train.x[::each].clone(), train.y[::each].clone())
    mean, std = torch.full((3,), 0.37), torch.full((3,), 0.16)
    names = tuple(map(str, range(classes)))
    return ImageTask(
        ImageData("generated", "benchmarks/dc.py", train, few, few, classes, mean, std, names), "convnet"
    )


class PlainNet(nn.Sequential):
    """ConvNet-3 as torch's layers."""

    def __init__(self, net: ConvNet):
        layers: list[nn.Module] = []
        for k in range(net.depth):
            below = net.inputs if k == 0 else net.width
            layers += [nn.Conv2d(below, net.width, 3, padding=1), nn.GroupNorm(net.width, net.width)]
            layers += [nn.ReLU(), nn.AvgPool2d(2)]
        super().__init__(*layers, nn.Flatten(), nn.Linear(net.features_out, net.classes))

    @torch.no_grad()
    def take(self, params: Params) -> PlainNet:
        for own, given in zip(self.parameters(), params.values(), strict=True):
            own.copy_(given)
        return self


def compiling() -> dict[str, float]:
    """Compilations so far and their seconds, by torch's own count."""
    from torch._dynamo.utils import compilation_time_metrics

    seconds = [s for name, each in compilation_time_metrics.items() if "compile_inner" in name for s in each]
    return {"compilations": len(seconds), "seconds_compiling": sum(seconds)}


def gradient_distance(found: tuple[Tensor, ...], wanted: tuple[Tensor, ...]) -> Tensor:
    """Row-wise cosine distances of the weights, layer by layer."""
    total = torch.zeros_like(found[0].sum())
    for f, w in zip(found, wanted):
        if f.dim() == 1:
            continue
        a, b = f.flatten(1), w.flatten(1)
        total = total + (1 - (a * b).sum(-1) / (a.norm(dim=-1) * b.norm(dim=-1) + 1e-6)).sum()
    return total


class Plain:
    """The loops by ordinary means."""

    def __init__(self, method: ImageMatching, task: ImageTask, size: int, device: torch.device):
        self.method, self.device, self.classes = method, device, task.num_classes
        self.images = task.inputs(task.train.x)  # all of them as floating point on the device
        self.members = [np.flatnonzero(task.train.y.cpu().numpy() == c) for c in range(self.classes)]
        self.rng = numpy_stream(0, "benchmark", "plain")
        self.generator = torch.Generator(device).manual_seed(0)
        self.x = method.start(task, "train", size, 0).to(device).requires_grad_()
        self.y = task.labels("train", size).to(device)
        self.optimiser = torch.optim.SGD([self.x], lr=method.lr_img, momentum=method.momentum)
        channels, height, width = task.data.shape
        self.size = (height, width)
        self.spec = ConvNet(channels, self.classes, self.size, method.width, method.depth)

    def fresh(self) -> None:
        self.net = PlainNet(self.spec).to(self.device)
        self.trained = torch.optim.SGD(self.net.parameters(), lr=self.method.lr_net)

    def match(self) -> float:
        loss = torch.zeros((), device=self.device)
        each = len(self.y) // self.classes
        for c in range(self.classes):
            picked = self.rng.permutation(self.members[c])[: self.method.batch_real]
            real, synthetic = self.images[picked], self.x[c * each : (c + 1) * each]
            if self.method.augmented:
                drawn = draw_augmentation(self.generator, 1, self.size)
                real, synthetic = (augment(images[None], drawn)[0] for images in (real, synthetic))
            loss = loss + self.distance(self.net, real, synthetic, c)
        self.optimiser.zero_grad()
        loss.backward()
        self.optimiser.step()
        return loss.item()

    @staticmethod
    def distance(net: nn.Module, real: Tensor, synthetic: Tensor, c: int) -> Tensor:
        params = list(net.parameters())
        sides = []
        for images, create in ((real, False), (synthetic, True)):
            labels = torch.full((len(images),), c, device=images.device)
            loss = F.cross_entropy(net(images), labels)
            sides.append(torch.autograd.grad(loss, params, create_graph=create))
        return gradient_distance(sides[1], sides[0])

    def train(self) -> None:
        data = TensorDataset(copy.deepcopy(self.x.detach()), copy.deepcopy(self.y))
        loader = DataLoader(data, batch_size=self.method.batch_train, shuffle=True)
        for _ in range(self.method.inner):
            seen = 0.0
            for images, labels in loader:
                if self.method.augmented:
                    images = augment_each(images, draw_each(self.generator, len(images), self.size))
                loss = F.cross_entropy(self.net(images), labels)
                seen += loss.item() * len(images)
                self.trained.zero_grad()
                loss.backward()
                self.trained.step()


def check(run: Matching, task: ImageTask) -> dict[str, float]:
    """The first step of ``run`` against the plain form in float64, with the same draws."""
    run.begin(0)
    before = run.x.clone()
    run.match(0)
    x = before.double().requires_grad_()
    net = PlainNet(run.net).to(run.device).double().take(run.params)
    images = task.inputs(task.train.x[run.picked]).double()
    total = 0.0
    slopes = torch.zeros_like(x)
    for c in range(run.classes):
        real, synthetic = images[c], x[c]
        if run.method.augmented:
            one = Augmentation(*(tensor[c : c + 1].double() for tensor in run.shared.tensors()))
            real, synthetic = (augment(shown[None], one)[0] for shown in (real, synthetic))
        distance = Plain.distance(net, real, synthetic, c)
        slopes += torch.autograd.grad(distance, x)[0]
        total += distance.item()
    own, wanted = run.velocity.double(), slopes
    run.x.copy_(before)
    run.velocity.zero_()
    return {
        "relative_difference_of_distance": abs(float(run.total) - total) / total,
        "cosine_of_pixel_gradients": float(F.cosine_similarity(own.flatten(), wanted.flatten(), dim=0)),
        "ratio_of_gradient_norms": float(own.norm() / wanted.norm()),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--method", choices=("dc", "dsa"), default="dc")
    parser.add_argument(
        "--device", choices=list(SIZES), default="cuda" if torch.cuda.is_available() else "cpu"
    )
    for name, meaning in (
        ("classes", "number of classes"),
        ("per-class", "synthetic images a class"),
        ("images", "real images a class"),
        ("side", "pixels"),
        ("width", "channels of the network"),
        ("batch", "real images drawn of a class, and synthetic ones a step of the network"),
        ("inner", "epochs of the network between two steps of the pixels"),
        ("steps", "steps of the plain form; ours takes four times as many"),
    ):
        parser.add_argument(f"--{name}", type=int, help=meaning)
    parser.add_argument(
        "--profile", action="store_true", help="print the kernels that take the time, and stop"
    )
    parser.add_argument("--out", type=Path, help="records/dc.jsonl, on a CPU dc-cpu.jsonl")
    given = parser.parse_args()
    for key, value in SIZES[given.device].items():
        if getattr(given, key) is None:
            setattr(given, key, value)
    name = "dc.jsonl" if given.device == "cuda" else f"dc-{given.device}.jsonl"
    out = given.out or Path(__file__).with_name("records") / name
    device = torch.device(given.device)
    kind = {"dc": DC, "dsa": DSA}[given.method]
    method = kind(
        outer=4 * given.steps + 1,
        inner=given.inner,
        batch_real=given.batch,
        batch_train=given.batch,
        width=given.width,
    )
    task, size = (
        generated(given.classes, given.images, given.side).to(device),
        given.classes * given.per_class,
    )

    def now() -> float:
        if device.type == "cuda":
            torch.cuda.synchronize()
        return time.perf_counter()

    begun = now()
    run = Matching(method, task, "train", size, 0)
    run.record()
    made = {"seconds_to_record": now() - begun, **compiling()}
    memory = peak_memory_gib()
    print(
        f"{made['seconds_to_record']:.1f} s to record the steps, with {made['compilations']} compilations "
        f"of {made['seconds_compiling']:.1f} s in all"
    )
    if given.profile:
        profile(run, given.steps)
        return
    agreement = check(run, task)
    assert agreement["cosine_of_pixel_gradients"] > 0.98, agreement

    def timed(
        steps: int,
        begin: Callable[[], object],
        match: Callable[[int], object],
        train: Callable[[int], object],
    ) -> dict[str, float]:
        seconds: dict[str, list[float]] = {"match": [], "train": [], "both": []}
        first = now()
        begin()
        start = now()
        for step in range(steps + 1):  # the first warms up
            begun = now()
            match(step)
            half = now()
            train(step)
            seconds["match"].append(half - begun)
            seconds["train"].append(now() - half)
            seconds["both"].append(now() - begun)
        return {"begin": start - first, **{k: statistics.median(v[1:]) for k, v in seconds.items()}}

    own = timed(4 * given.steps - 1, lambda: run.begin(0), run.match, run.train)
    plain = Plain(method, task, size, device)
    other = timed(given.steps, plain.fresh, lambda _: plain.match(), lambda _: plain.train())
    whole = [1000 * (s["begin"] + 50 * s["match"] + 49 * s["train"]) / 3600 for s in (own, other)]
    record = {
        "benchmark": "dc",
        "method": given.method,
        **{
            key: getattr(given, key)
            for key in ("classes", "per_class", "images", "side", "width", "batch", "inner")
        },
        "columns": ["hcdc", "plain"],
        **{f"seconds_{key}": [own[key], other[key]] for key in ("begin", "match", "train", "both")},
        **made,
        "peak_memory_gib": memory,
        "hours_of_1000_iterations_of_50_steps_projected": whole,
        "ratio": other["both"] / own["both"],
        **agreement,
        "environment": environment(device),
    }
    append(out, record)
    own_ms, other_ms = ({k: 1000 * v for k, v in side.items()} for side in (own, other))
    print(f"{given.method}, {given.classes} classes of {given.per_class}, a step:")
    for name, ms in (("hcdc", own_ms), ("plain", other_ms)):
        print(f"  {name}: {ms['both']:.1f} ms (match {ms['match']:.1f}, train {ms['train']:.1f})")
    print(f"against float64: {agreement}")
    print(f"{record['ratio']:.1f} times as fast as the plain form; {memory:.1f} GiB")
    print(f"appended to {out}")


def profile(run: Matching, steps: int) -> None:
    """Print the kernels of a few steps by their time."""
    from torch.profiler import ProfilerActivity
    from torch.profiler import profile as profiled

    run.begin(0)
    run.match(0)
    run.train(0)
    cuda = run.device.type == "cuda"
    activities = [ProfilerActivity.CUDA] if cuda else [ProfilerActivity.CPU]
    with profiled(activities=activities) as seen:
        for step in range(1, steps + 1):
            run.match(step)
            run.train(step)
        if cuda:
            torch.cuda.synchronize()
    order = "self_cuda_time_total" if cuda else "self_cpu_time_total"
    print(f"{steps} steps of {run.method.title}")
    print(seen.key_averages().table(sort_by=order, row_limit=45, max_name_column_width=90))


if __name__ == "__main__":
    main()
