"""Train the same candidates at every fidelity: nine training hyperparameters of a small ResNet on CIFAR-10.

    python benchmarks/nine_hyperparameters.py --device cuda --candidates 800 > pool.jsonl

One JSON line per candidate and fidelity: ``fidelity``, ``config``, ``val.loss``, ``val.score``, ``seconds``.
"""

from __future__ import annotations

import argparse
import functools
import json

import torch

import hcdc
from hcdc.core.recipe import Recipe
from hcdc.core.seeds import numpy_stream, stream
from hcdc.spaces import Config, Training
from hcdc.training import Job, Result, score

FIDELITIES = {"500": (500, 20.0), "2000": (2_000, 10.0), "short": (13_000, 2.3), "full": (13_000, 10.0)}
"""Training images and epochs."""


def tell(fidelity: str, done: list[tuple[Config, Result]]) -> None:
    for config, result in done:
        told = {"fidelity": fidelity, "config": config, **result.values, "seconds": result.seconds}
        print(json.dumps(told), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--candidates", type=int, default=800)
    parser.add_argument("--first", type=int, default=0, help="Skip this many candidates.")
    parser.add_argument("--fidelities", nargs="+", default=list(FIDELITIES))
    asked = parser.parse_args()
    task = hcdc.ImageTask(hcdc.data("cifar10")).to(asked.device)
    space = Training()
    configs = space.sample(asked.candidates, numpy_stream(0, "nine"))[asked.first :]
    order, picked = (
        torch.randperm(len(part), generator=stream(0, f"nine-{name}")).to(asked.device)
        for name, part in (("train", task.train), ("val", task.val))
    )
    parts = {"val": task.val.subset(picked[:3_000])}
    for name in asked.fidelities:
        images, epochs = FIDELITIES[name]
        recipe = Recipe(steps=round(epochs * images / 128), lr=0.1, optimizer="sgd", batch=128, clip=5.0)
        job = Job(
            task, space, configs, [task.train.subset(order[:images])], recipe, parts, seed=0, role="nine",
            device=asked.device, keep_diverged=True,
            on_batch=functools.partial(tell, name),
        )  # fmt: skip
        score(job)


if __name__ == "__main__":
    main()
