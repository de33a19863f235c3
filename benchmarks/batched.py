"""80 filter configurations on a whole graph: one by one with torch.optim.Adam, against one batch.

    python benchmarks/batched.py [--dataset cora] [--device cuda] [--naive 8] [--out FILE]

The naive loop is timed on a few configurations and given per configuration; both sides run in one process.
"""

from __future__ import annotations

import argparse
import json
import time

import torch

from hcdc.core.configs import config_hash
from hcdc.core.files import write_atomic
from hcdc.core.recipe import Recipe
from hcdc.core.records import environment
from hcdc.core.seeds import numpy_stream, stream
from hcdc.datasets import data
from hcdc.spaces import PolynomialFilter, stack
from hcdc.tasks import GraphTask
from hcdc.training import init_many, lanes_that_fit, score_many, train_many


def sync(device: str) -> float:
    if device == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--dataset", default="cora")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--configurations", type=int, default=80)
    parser.add_argument("--naive", type=int, default=8)
    parser.add_argument("--out", default="benchmarks/records/batched.json")
    given = parser.parse_args()
    space, recipe, device = PolynomialFilter(), Recipe(), given.device
    task = GraphTask(data(given.dataset)).bind(space).to(device)
    configs = space.sample(given.configurations, numpy_stream(0, "benchmark"))
    lam = stack(space, configs).to(device)
    task.prepare(task.train)

    def batched() -> torch.Tensor:
        lanes, accuracy = lanes_that_fit(task, task.train, device), []
        for start in range(0, len(configs), lanes):
            keys = [(config_hash(c),) for c in configs[start : start + lanes]]
            init = init_many(task, keys, 0, "benchmark", device)
            params = train_many(task, init, lam[start : start + lanes], task.train, recipe)
            accuracy.append(score_many(task, params, lam[start : start + lanes], task.val).score)
        return torch.cat(accuracy)

    def one(i: int) -> torch.Tensor:
        start = task.init(stream(0, "benchmark", config_hash(configs[i])))
        params = {name: p.to(device).requires_grad_() for name, p in start.items()}
        optimiser = torch.optim.Adam(params.values(), lr=recipe.lr)
        for _ in range(recipe.steps):
            optimiser.zero_grad()
            task.train_loss(params, lam[i], task.train).backward()
            optimiser.step()
        with torch.no_grad():
            return task.score(task.predict(params, lam[i], task.val), task.val)

    one(0)
    begun = sync(device)
    together = batched()
    batch_seconds = (sync(device) - begun) / len(configs)
    begun = sync(device)
    alone = torch.stack([one(i) for i in range(given.naive)])
    naive_seconds = (sync(device) - begun) / given.naive
    record = {
        "benchmark": "batched",
        "dataset": given.dataset,
        "configurations": len(configs),
        "naive_configurations": given.naive,
        "naive_seconds_each": naive_seconds,
        "batched_seconds_each": batch_seconds,
        "ratio": naive_seconds / batch_seconds,
        "largest_accuracy_difference": float((alone - together[: given.naive]).abs().max()),
        "environment": environment(device),
    }
    write_atomic(given.out, json.dumps(record, indent=1) + "\n")
    print(json.dumps(record))


if __name__ == "__main__":
    main()
