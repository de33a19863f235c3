"""Peak memory of the image condensers at CIFAR-100's size: 100 classes, 50 images of each, ConvNet-3.

    python benchmarks/memory.py [--methods tm dc dsa dm] [--device cuda] [--out FILE]

Each method runs by `hcdc.condense` with its settings for CIFAR-100 but for the number of iterations and of
TM's experts and their epochs. Of these memory depends on the kept experts alone, a parameter vector for each
epoch, and those of the whole run are added. Pixels are noise. On a CPU there are fewer and smaller images,
and the peak is that of the whole process.
"""

from __future__ import annotations

import argparse
import math
import time
from pathlib import Path
from typing import Any

import torch

from hcdc.condensers import TM, condense, make_reducer
from hcdc.condensers._tm import network
from hcdc.core.progress import peak_memory_gib
from hcdc.core.records import append, environment
from hcdc.core.seeds import stream
from hcdc.datasets import ImageData, Images
from hcdc.spaces import NASBench201
from hcdc.tasks import ImageTask

SIZES = {
    "cuda": {"classes": 100, "per_class": 50, "images": 400, "width": 128},
    "cpu": {"classes": 5, "per_class": 5, "images": 40, "width": 16},
}
SHORT: dict[str, dict[str, Any]] = {
    "tm": {"iterations": 10, "experts": 1, "start_epochs": 2},
    "dc": {"iterations": 1, "outer": 2},
    "dsa": {"iterations": 1, "outer": 2},
    "dm": {"iterations": 20},
}
FLOAT = 4
"""Bytes of a kept parameter."""


def generated(classes: int, each: int) -> ImageTask:
    """Colour images of noise, ``each`` a class."""
    generator = stream(0, "benchmark", "memory")
    y = torch.arange(classes).repeat_interleave(each)
    x = torch.randint(256, (len(y), 3, 32, 32), generator=generator, dtype=torch.uint8)
    few = Images(x[::each].clone(), y[::each].clone())
    mean, std = torch.full((3,), 0.5), torch.full((3,), 0.29)
    names = tuple(map(str, range(classes)))
    data = ImageData("generated", "benchmarks/memory.py", Images(x, y), few, few, classes, mean, std, names)
    return ImageTask(data, "convnet")


def kept_gib(whole: TM, short: TM, task: ImageTask) -> float:
    """What the experts of a whole run keep beyond those of the short one, in GiB."""
    parameters = sum(math.prod(shape) for shape in network(whole, task).shapes().values())

    def vectors(config: TM) -> int:
        return config.experts * (config.start_epochs + config.target_epochs)

    return (vectors(whole) - vectors(short)) * parameters * FLOAT / 2**30


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--methods", nargs="+", choices=list(SHORT), default=list(SHORT))
    parser.add_argument(
        "--device", choices=list(SIZES), default="cuda" if torch.cuda.is_available() else "cpu"
    )
    parser.add_argument("--out", type=Path, help="records/memory.jsonl, on a CPU memory-cpu.jsonl")
    options = parser.parse_args()
    device, sizes = options.device, SIZES[options.device]
    name = "memory.jsonl" if device == "cuda" else f"memory-{device}.jsonl"
    out = options.out or Path(__file__).with_name("records") / name
    task = generated(sizes["classes"], sizes["images"]).to(device)
    for method in options.methods:
        if device == "cuda":
            torch.cuda.empty_cache()
            torch.cuda.reset_peak_memory_stats()
        settings = {**SHORT[method], "width": sizes["width"]}
        begun = time.perf_counter()
        condense(
            task, NASBench201(), method, train_size=sizes["classes"] * sizes["per_class"],
            val_size=sizes["classes"], val_method="random", preset="cifar100", options=settings,
            device=device,
        )  # fmt: skip
        seconds, peak = time.perf_counter() - begun, peak_memory_gib()
        record = {"benchmark": "memory", **sizes, "method": method, "settings": settings, "peak_gib": peak}
        whole, short = (
            make_reducer(method, "cifar100", **some) for some in ({"width": sizes["width"]}, settings)
        )
        if isinstance(whole, TM) and isinstance(short, TM):
            record["peak_gib_of_whole_run"] = peak + kept_gib(whole, short, task)
        record |= {"seconds": seconds, "environment": environment(device)}
        append(out, record)
        more = record.get("peak_gib_of_whole_run")
        print(
            f"{method}: {peak:.2f} GiB" + (f", {more:.2f} with all experts" if more else ""),
            f"{seconds:.0f} s",
        )


if __name__ == "__main__":
    main()
