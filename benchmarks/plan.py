"""What `hcdc.plan` says beforehand beside what `hcdc.search` then takes: seconds per rung, and memory.

    python benchmarks/plan.py [--cases graph digits table torch trees] [--times 3] [--budget 60] [--out FILE]

Plan and search run in turn, each in a process of its own, with the same arguments; another repeat has another
seed. Ratios are the plan's figure over the search's, as medians over the repeats:

- ``price``: seconds per candidate on a rung, of those that the search trained on it at least twice;
- ``seconds``: seconds on a rung, of those that both use;
- ``overhead``: seconds of the search itself, where the plan says that a ladder pays;
- ``memory``: peak of the process.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any

import hcdc
from hcdc.core.progress import peak_memory_gib
from hcdc.core.records import append, environment
from hcdc.tasks import task_for

CASES = ("graph", "digits", "table", "torch", "trees")
EXAMPLES = Path(__file__).resolve().parents[1] / "examples"
AFTER = 2
"""Candidates on a rung from which its price is compared: the first alone is slower than the others."""
Run = Mapping[str, Any]


def subject(case: str) -> tuple[Any, Any]:
    """What is searched: a task and its space, or an objective and its data."""
    if case == "graph":
        return task_for(hcdc.data("embedded")), hcdc.spaces.PolynomialFilter()
    if case == "digits":
        return task_for(hcdc.data("digits")), hcdc.spaces.NASBench201(channels=4)
    if case == "table":
        from sklearn.datasets import load_breast_cancer

        task = hcdc.TableTask(hcdc.data(load_breast_cancer(return_X_y=True)), "mlp")
        return task, task.space()
    return example(case)


def example(name: str) -> tuple[Any, Any]:
    """The objective and the data of ``examples/search_NAME.py``."""
    spec = importlib.util.spec_from_file_location(f"search_{name}", EXAMPLES / f"search_{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module.objective, module.data()


def planned(case: str, budget: float, seed: int, device: str) -> dict[str, Any]:
    """Plan in this process."""
    begun = time.perf_counter()
    found = hcdc.plan(*subject(case), budget=budget, seed=seed, device=device)
    told = {r.name: [r.candidates, r.price, r.seconds] for r in found.rungs}
    whole = time.perf_counter() - begun
    return {
        "rungs": told, "memory_gib": found.memory_gib, "pays": found.pays, "overhead": found.overhead,
        "whole_seconds": whole,
    }  # fmt: skip


def searched(case: str, budget: float, seed: int, device: str) -> dict[str, Any]:
    """Search in this process; what came before the first candidate of a rung is not in its seconds."""
    found = hcdc.search(*subject(case), budget=budget, seed=seed, device=device)
    told = {r.name: [r.candidates, r.price, r.seconds - r.once] for r in found.rungs}
    return {
        "rungs": told, "memory_gib": peak_memory_gib(), "overhead": found.cost.overhead,
        "whole_seconds": found.seconds,
    }  # fmt: skip


def ratios(plans: Sequence[Run], searches: Sequence[Run]) -> dict[str, Any]:
    """Medians over the repeats of the plan's figures over the search's, by rung for prices and seconds."""
    price: dict[str, list[float]] = {}
    seconds: dict[str, list[float]] = {}
    for plan, search in zip(plans, searches):
        for name, (count, each, whole) in search["rungs"].items():
            if name not in plan["rungs"]:
                continue
            many, forecast, expected = plan["rungs"][name]
            if count >= AFTER and each:
                price.setdefault(name, []).append(forecast / each)
            if many and count and whole:
                seconds.setdefault(name, []).append(expected / whole)
    decided = [(p["overhead"], s["overhead"]) for p, s in zip(plans, searches) if p["pays"] and s["overhead"]]
    overhead = round(median(plan / search for plan, search in decided), 3) if decided else None
    memory = median(plan["memory_gib"] / search["memory_gib"] for plan, search in zip(plans, searches))
    middle = [{name: round(median(found), 3) for name, found in each.items()} for each in (price, seconds)]
    return {"price": middle[0], "seconds": middle[1], "overhead": overhead, "memory": round(memory, 3)}


def apart(what: str, *arguments: object) -> dict[str, Any]:
    """Run one of the two in a process of its own."""
    command = [sys.executable, __file__, "--run", what, *map(str, arguments)]
    ran = subprocess.run(command, capture_output=True, text=True, check=True)
    found: dict[str, Any] = json.loads(ran.stdout.splitlines()[-1])
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cases", nargs="+", choices=CASES, default=list(CASES))
    parser.add_argument("--times", type=int, default=3)
    parser.add_argument("--budget", type=float, default=60.0, help="seconds of each search")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--out", type=Path, default=Path(__file__).with_name("records") / "plan.jsonl")
    parser.add_argument("--run", nargs=5, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.run is not None:
        what, case, budget, seed, device = given.run
        run = {"plan": planned, "search": searched}[what]
        print(json.dumps(run(case, float(budget), int(seed), device)))
        return
    for case in given.cases:
        runs: dict[str, list[dict[str, Any]]] = {"plan": [], "search": []}
        for seed in range(given.times):
            for what, some in runs.items():
                some.append(apart(what, case, given.budget, seed, given.device))
        found = ratios(runs["plan"], runs["search"])
        append(
            given.out,
            {
                "benchmark": "plan", "case": case, "budget": given.budget, "ratios": found, **runs,
                "environment": environment(given.device),
            },
        )  # fmt: skip
        print(case, json.dumps(found), flush=True)


if __name__ == "__main__":
    main()
