"""Small runs of `hcdc.condense` and `hcdc.evaluate`, one for each method, way to S_val and kind of data.

Only the public interface is used, and only data that needs no download: Citeseer and the digits, which come
with the packages, and tables and coloured images drawn here.
"""

from __future__ import annotations

import functools
import hashlib
import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
import torch
from torch import nn

import hcdc
from hcdc.spaces import Finite, GNNZoo, NASBench201, PolynomialFilter, config_hash
from hcdc.truth import Truth

LEARNED = ("aligned", "both", "probes")
"""The ways to S_val that move examples."""
LARGEST = 1024
"""Numbers that are kept of one tensor; of a larger one its sketch is kept."""

# --- data ---------------------------------------------------------------------------------------------------


@functools.cache
def graph(setting: str = "transductive") -> hcdc.Task:
    return hcdc.GraphTask(hcdc.data("embedded"), setting=setting)


def _parts(*counts: int) -> list[np.ndarray]:
    ends = np.cumsum(counts)
    return [np.arange(end - count, end) for count, end in zip(counts, ends)]


@functools.cache
def digits(model: Any = "space") -> hcdc.Task:
    """360 of the digits: 200 train, 100 validate, 60 test."""
    return hcdc.ImageTask(hcdc.data("digits", split=_parts(200, 100, 60)), model=model)


@functools.cache
def colours() -> hcdc.Task:
    """Noise of 4 x 4 pixels in three classes, each with a bright corner of its own."""
    rng = np.random.default_rng(0)
    y = np.arange(90) % 3
    x = rng.integers(0, 160, (90, 4, 4, 3))
    for k, label in enumerate(y):
        down, right = 2 * (label // 2), 2 * (label % 2)
        x[k, down : down + 2, right : right + 2] += 90
    return hcdc.ImageTask(hcdc.data((x.astype(np.uint8), y), split=_parts(45, 30, 15)))


def _numbers() -> tuple[np.ndarray, np.random.Generator]:
    rng = np.random.default_rng(0)
    return rng.normal(size=(120, 4)), rng


@functools.cache
def classes(model: str = "logistic") -> hcdc.Task:
    """120 rows of 4 features in three classes."""
    x, rng = _numbers()
    y = np.argmax(x[:, :3] + 0.5 * rng.normal(size=(120, 3)), 1)
    return hcdc.TableTask(hcdc.data((x, y), split=_parts(50, 40, 30)), model, width=4)


@functools.cache
def values(model: str = "ridge") -> hcdc.Task:
    """120 rows of 4 features with a value to predict."""
    x, rng = _numbers()
    y = x @ [2.0, 0.0, -1.0, 0.0] + 0.3 * rng.normal(size=120)
    return hcdc.TableTask(hcdc.data((x, y), split=_parts(50, 40, 30)), model, width=4)


def perceptron(config: Mapping[str, Any]) -> nn.Module:
    """A module of one's own for the digits."""
    return nn.Sequential(
        nn.Flatten(), nn.Linear(64, config["width"]), nn.BatchNorm1d(config["width"]), nn.ReLU(),
        nn.Linear(config["width"], 10),
    )  # fmt: skip


class Table(Truth):
    """Full-data results of cells by formula, in the place of a table of NAS-Bench-201."""

    fidelities: ClassVar[dict[int, float]] = {12: 12 / 200}

    def score(self, config: Mapping[str, Any], part: str = "val", fidelity: int | None = None) -> float:
        number = int(config_hash(dict(config))[:6], 16) / 16**6
        return {"val": number, "test": 1 - number}[part] * (fidelity or 200) / 200

    def known(self, config: Mapping[str, Any]) -> bool:
        return True

    def seconds(self, config: Mapping[str, Any]) -> float:
        return 100.0

    def words(self) -> str:
        return "a table"

    def spec(self) -> dict[str, Any]:
        return {"name": "formula"}


# --- the table of cases -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Case:
    """One run.

    Attributes:
        name: Kind of data and what is special about the run.
        task: Makes the task.
        space: What is searched.
        arguments: Of `hcdc.condense`.
        judging: Arguments of `hcdc.evaluate`; None judges nothing.
    """

    name: str
    task: Callable[[], hcdc.Task]
    space: Any
    arguments: dict[str, Any]
    judging: dict[str, Any] | None = field(default=None)


FILTERS = PolynomialFilter(order=2, width=4)
ZOO = GNNZoo(relax_width=4)
CELLS = NASBench201(cells=1, channels=1)
WIDTHS = Finite("width", list(range(2, 26)))

NODES = {"train_size": 18, "val_size": 18, "recipe": {"steps": 12, "lr": 0.05, "seeds": 2}}
NODES["full_recipe"] = {"steps": 12, "lr": 0.05, "seeds": 1}
PICTURES = {"train_size": 20, "val_size": 20, "recipe": {"steps": 4, "seeds": 2, "batch": 10}}
PICTURES["full_recipe"] = {"steps": 10, "batch": 40}
CORNERS = {"train_size": 6, "val_size": 15, "recipe": {"steps": 4, "seeds": 1, "batch": 6}}
CORNERS["full_recipe"] = {"steps": 8, "batch": 15}
ROWS = {"train_size": 12, "val_size": 12, "recipe": {"steps": 20, "lr": 0.05, "seeds": 2}}
ROWS["full_recipe"] = {"steps": 20, "lr": 0.05, "seeds": 1}

ALIGN = {"trajectories": 3, "points": 2, "holdout": 3, "steps": 12, "batch": 3, "check": 3, "iterations": 3}
ALIGN_NODES = {**ALIGN, "lr": 5e-4}
ALIGN_ROWS = {**ALIGN, "lr": 0.02}
ALIGN_ZOO = {
    **ALIGN_NODES,
    "trajectories": 2,
    "points": 1,
    "holdout": 2,
    "batch": 2,
    "steps": 6,
    "iterations": 1,
}
ALIGN_IMAGES = {
    "trajectories": 1, "points": 1, "holdout": 2, "steps": 6, "batch": 1, "check": 3, "iterations": 2,
    "lr": 0.03, "nodes": 6,
}  # fmt: skip
PAPER = {"trajectories": 2, "theta_steps": 3, "lam_every": 2, "iterations": 2, "lr": 0.02}
PAPER_NODES = {**PAPER, "lr": 5e-4}
PAPER_IMAGES = {**PAPER, "trajectories": 1, "theta_steps": 2, "iterations": 1, "lr": 0.05}
PROBE = {"probes": 5, "probe_steps": 10, "probe_lr": 0.02, "companions": 0}
PROBE_NODES = {**PROBE, "probe_lr": 5e-4}
WEIGH = {"probes": 5, "pool": 60, "ridge": 0.1, "companions": 0}
COMPANY = {**PROBE, "companions": 4}

QUICK = {  # settings of each method that makes S_train and has any
    "kcenter": {"steps": 10, "hidden": 8},
    "herding": {"steps": 10, "hidden": 8},
    "gcondx": {"epochs": 3, "outer": 2, "inner": 2, "lr_feat": 0.001},
    "gcond": {"epochs": 3, "outer": 2, "inner": 2, "lr_feat": 0.001, "lr_adj": 0.01, "pge_hidden": 8},
    "dc": {
        "iterations": 2, "outer": 2, "inner": 2, "batch_real": 8, "batch_train": 8, "width": 8, "depth": 2,
    },
    "dm": {"iterations": 4, "batch": 16, "width": 8, "depth": 2},
    "kip": {"steps": 4, "lr": 0.03, "batch": 40, "networks": 2, "width": 8, "depth": 2},
    "tm": {
        "iterations": 3, "student_steps": 3, "target_epochs": 1, "start_epochs": 1, "experts": 1,
        "expert_batch": 40, "lr_img": 1.0, "step_size": 0.05, "width": 8, "depth": 2,
    },
}  # fmt: skip
QUICK["dsa"] = QUICK["dc"]
FOR_IMAGES = {"kcenter": {"steps": 10}, "herding": {"steps": 10}}


def _case(name: str, task: Any, space: Any, base: dict[str, Any], **more: Any) -> Case:
    judging = more.pop("judging", None)
    method = more.pop("method", "hcdc")
    return Case(name, task, space, {**base, "method": method, **more}, judging)


def _reducers() -> list[Case]:
    """Every method that makes S_train, by itself; S_val is made the same way."""
    cases = []
    for method in ("random", "kcenter", "herding", "reach", "gcondx", "gcond"):
        options = QUICK.get(method)
        cases.append(_case(f"graph-{method}", graph, FILTERS, NODES, method=method, options=options))
    for method in ("random", "kcenter", "herding", "dc", "dsa", "dm", "kip", "tm"):
        options = FOR_IMAGES.get(method, QUICK.get(method))
        cases.append(_case(f"image-{method}", digits, CELLS, PICTURES, method=method, options=options))
    for kind, task in (("classes", classes), ("values", values)):
        cases.append(_case(f"{kind}-random", task, task().space(), ROWS, method="random"))
    return cases


UNLEARNED = ("same", "random", "real")


def _graphs() -> list[Case]:
    make = functools.partial(_case, task=graph, space=FILTERS, base=NODES)
    cases = [
        make(f"graph-val-{way}", val_method=way, judging={"candidates": 4} if way == "real" else None)
        for way in UNLEARNED
    ]
    judged = {"candidates": 6}
    cases += [
        make("graph-aligned", val_method="aligned", options=ALIGN_NODES, judging=judged),
        make("graph-both", val_method="both", options=ALIGN_NODES, seed=1),
        make("graph-probes", val_method="probes", options=PROBE_NODES, judging=judged),
        make("graph-probes-companions", val_method="probes", options={**PROBE_NODES, "companions": 4}),
        make("graph-probes-calibrated", val_method="probes", options={**PROBE_NODES, "calibrate": True}),
        make("graph-paper", val_method="aligned", preset="paper", options=PAPER_NODES),
        make(
            "graph-adjacency",
            val_method="both",
            options={**ALIGN_NODES, "lr": 0.02, "adjacency": True},
            seed=4,
        ),
        make("graph-sampled", val_method="both", options={**ALIGN_NODES, "fanout": "4,2", "nodes": 40}),
        make("graph-shared", val_method="aligned", options={**ALIGN_NODES, "response": "shared"}),
        make("graph-scaled-l2", val_method="both", options={**ALIGN_NODES, "distance": "scaled_l2"}),
        make("graph-neumann", val_method="both", options={**ALIGN_NODES, "solver": "neumann"}),
        make("graph-val-batch", val_method="both", options={**ALIGN_NODES, "val_batch": 8}),
        make("graph-balanced", val_method="both", options={**ALIGN_NODES, "labels": "balanced"}, seed=1),
        make("graph-induced", val_method="both", options={**ALIGN_NODES, "structure": "induced"}, seed=2),
        make(
            "graph-inductive",
            task=functools.partial(graph, "inductive"),
            val_method="both",
            options=ALIGN_NODES,
        ),
        make(
            "graph-gcond-both",
            train_method="gcond",
            val_method="both",
            options={**ALIGN_NODES, **{f"train.{name}": value for name, value in QUICK["gcond"].items()}},
        ),
        make(
            "zoo-both",
            space=ZOO,
            val_method="both",
            options=ALIGN_ZOO,
            judging={"candidates": 3, "rivals": False},
        ),
        make("zoo-probes", space=ZOO, val_method="probes", options=PROBE_NODES),
    ]
    return cases


def _images() -> list[Case]:
    make = functools.partial(_case, task=digits, space=CELLS, base=PICTURES)
    small = functools.partial(_case, task=colours, space=CELLS, base=CORNERS)
    judged = {"candidates": 5}
    cases = [make(f"image-val-{way}", val_method=way) for way in UNLEARNED]
    cases += [
        small(
            "image-aligned",
            val_method="aligned",
            options={**ALIGN_IMAGES, "points": 2, "batch": 2, "lr": 0.015},
            seed=2,
            judging=judged,
        ),
        small("image-both", val_method="both", options={**ALIGN_IMAGES, **PROBE}),
        small("image-gdas", val_method="aligned", options={**ALIGN_IMAGES, "relaxation": "gdas"}),
        small("image-paper", val_method="aligned", preset="paper", options=PAPER_IMAGES),
        small(
            "image-statistics",
            val_method="aligned",
            options=ALIGN_IMAGES,
            recipe={**CORNERS["recipe"], "statistics": "train"},
        ),
        make("image-probes", val_method="probes", options=PROBE),
        make("image-probes-companions", val_method="probes", options=COMPANY),
        small("image-probes-calibrated", val_method="probes", options={**COMPANY, "calibrate": True}),
        make(
            "image-probes-table",
            val_method="probes",
            options=PROBE,
            truth=Table(),
            judging={**judged, "truth": Table()},
        ),
        make("image-weighted", val_method="weighted", options=WEIGH, judging=judged),
        make("image-weighted-companions", val_method="weighted", options={**WEIGH, "companions": 4}),
        make("image-weighted-table", options=WEIGH, truth=Table()),
        make(
            "image-own-module",
            task=functools.partial(digits, perceptron),
            space=WIDTHS,
            val_method="weighted",
            options=WEIGH,
        ),
        make(
            "image-dm-weighted",
            train_method="dm",
            val_method="weighted",
            options={**WEIGH, **{f"train.{name}": value for name, value in QUICK["dm"].items()}},
        ),
    ]
    return cases


def _tables() -> list[Case]:
    cases = []
    judged = {"candidates": 8}
    for kind, task, seed in (("classes", classes, 0), ("values", values, 3)):
        make = functools.partial(_case, task=task, space=task().space(), base=ROWS)
        cases += [make(f"{kind}-val-{way}", val_method=way) for way in UNLEARNED]
        cases += [
            make(f"{kind}-aligned", val_method="aligned", options=ALIGN_ROWS, seed=seed),
            make(f"{kind}-both", val_method="both", options=ALIGN_ROWS, seed=2, judging=judged),
            make(f"{kind}-probes", val_method="probes", options=PROBE),
            make(f"{kind}-probes-companions", val_method="probes", options=COMPANY),
            make(f"{kind}-paper", val_method="aligned", preset="paper", options=PAPER),
            make(
                f"{kind}-network",
                task=functools.partial(task, "mlp"),
                val_method="both",
                options=ALIGN_ROWS,
                seed=2,
            ),
        ]
    make = functools.partial(_case, task=classes, space=classes().space(), base=ROWS)
    cases += [
        make("classes-weighted", val_method="weighted", options=WEIGH),
        make("classes-weighted-companions", val_method="weighted", options={**WEIGH, "companions": 4}),
    ]
    return cases


def cases() -> list[Case]:
    """All cases; names are different."""
    found = [*_reducers(), *_graphs(), *_images(), *_tables()]
    assert len({case.name for case in found}) == len(found), "two cases have one name"
    return found


def named(*words: str) -> list[Case]:
    """The cases whose name holds one of some words; all where there is none."""
    return [case for case in cases() if not words or any(word in case.name for word in words)]


# --- a run and what is kept of it ---------------------------------------------------------------------------

AGREEMENT = (
    "proxy", "spearman", "kendall", "interval", "top_k_overlap", "upper_half_spearman", "regret",
    "selected_test_accuracy",
)  # fmt: skip
JUDGED = ("metric", "candidates", "dropped", "diverged", "truth", "test", "best_test_accuracy")
CLOCKED = ("equal-cost",)
"""Rivals that get as many steps as their seconds allow, so that they differ from run to run."""


def run(case: Case) -> tuple[hcdc.CondensedDataset, dict[str, Any] | None]:
    """The copy of a case and, where it is judged, the scores and picks of the copy and of its rivals.

    The copy is judged as its file has it, without the seconds it took.
    """
    task = case.task()
    small = hcdc.condense(task, case.space, **case.arguments)
    if case.judging is None:
        return small, None
    stored = hcdc.CondensedDataset.from_bytes(small.to_bytes())
    found = hcdc.evaluate(stored, task=task, **case.judging)
    told = found.to_json()
    judged = {key: told[key] for key in JUDGED}
    judged["judges"] = [config_hash(config) for config in told["configs"]]
    judged["copy"] = _agreement(told)
    judged["rivals"] = {
        rival["name"]: _agreement(rival) for rival in told["rivals"] if rival["name"] not in CLOCKED
    }
    return small, judged


def _agreement(found: Mapping[str, Any]) -> dict[str, Any]:
    return {**{key: found[key] for key in AGREEMENT}, "pick": int(np.argmax(found["proxy"]))}


def start(case: Case) -> torch.Tensor:
    """The features that a learned S_val starts from."""
    options = case.arguments.get("options") or {}
    balanced = {"balanced": True} if options.get("labels") == "balanced" else {}
    seed = case.arguments.get("seed", 0)
    return features(case.task().sample("val", case.arguments["val_size"], seed, **balanced))


def features(data: Any) -> torch.Tensor:
    """x of nodes, images or rows, dense."""
    x = data.graph.x if hasattr(data, "graph") else data.x
    return x if isinstance(x, torch.Tensor) else x.to_dense()


def describe(
    case: Case, small: hcdc.CondensedDataset, judged: dict[str, Any] | None
) -> tuple[dict[str, Any], dict[str, torch.Tensor]]:
    """What is kept of a run: plain JSON, and the tensors that were learned."""
    meta, record, stored = small.meta, small.record, small.tensors()
    found: dict[str, Any] = {
        "sizes": [meta["train_size"], meta["val_size"]],
        "ways": [meta["method"], meta["train_method"], meta["val_method"]],
        "metric": meta["metric"],
        "shapes": {name: list(tensor.shape) for name, tensor in sorted(stored.items())},
        "candidates": [len(meta["candidates"]), _hash(meta["candidates"])],
        "probes": meta.get("probes"),
        "recipes": {key: meta[key] for key in RECIPES if key in meta},
        "beside": {key: meta[key] for key in ("train_learned", "val_learned") if key in meta},
        "history": record.get("history"),
        "full_trainings": record.get("full_trainings"),
        "judged": judged,
    }
    tensors: dict[str, torch.Tensor] = {}
    for part in ("train", "val"):
        if f"{part}/y" not in stored:
            continue
        rows = indices(case.task(), part, stored[f"{part}/x"])
        found[part] = {"labels": stored[f"{part}/y"].tolist(), "indices": rows}
        for name in ("x", "adj", "weight"):
            key = f"{part}/{name}"
            if key in stored and not (name == "x" and rows is not None):
                tensors[key] = sketch(stored[key])
        if f"{part}/index" in stored:
            found[part]["positions"] = stored[f"{part}/index"].tolist()
    return _plain(found), tensors


RECIPES = ("full_recipe", "calibrated_recipe", "relaxed_recipe", "recipes_tried")


def indices(task: Any, part: str, x: torch.Tensor) -> list[int] | None:
    """Which examples of a part these are, by number; None where they are not all original ones.

    Of equal examples the first is meant.
    """
    whole = getattr(task, part)
    rows = features(whole)
    if hasattr(whole, "graph"):
        rows = rows[whole.positions()]
    if hasattr(task, "inputs"):
        rows = task.inputs(rows)
    rows, x = rows.flatten(1).double(), x.flatten(1).double()
    found = []
    for one in x:
        apart = (rows - one).norm(dim=1)
        nearest = int(apart.argmin())
        if float(apart[nearest]) > 1e-5 * max(float(one.norm()), 1.0):
            return None
        found.append(nearest)
    return found


def sketch(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor, flat; of a large one `LARGEST` signed sums, whose distances are those of the tensors.

    Every number is added to one of the sums with one of two signs, both by a hash of its place (a count
    sketch), so that the norm of a difference is kept up to a few hundredths.
    """
    flat = tensor.detach().flatten().double().numpy()
    if len(flat) > LARGEST:
        mixed = np.arange(1, len(flat) + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
        for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
            mixed = (mixed ^ (mixed >> np.uint64(shift))) * np.uint64(factor)
        mixed ^= mixed >> np.uint64(31)
        signs = np.where(mixed >> np.uint64(63), 1.0, -1.0)
        flat = np.bincount((mixed % np.uint64(LARGEST)).astype(np.int64), signs * flat, LARGEST)
    return torch.from_numpy(flat.copy()).float()


def _hash(names: list[str]) -> str:
    return hashlib.sha256("\n".join(names).encode()).hexdigest()[:16]


def _plain(value: Any) -> Any:
    """JSON with nine digits a number, and None where there is no number."""
    if isinstance(value, Mapping):
        return {str(key): _plain(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(inner) for inner in value]
    if isinstance(value, float | np.floating):
        return float(f"{value:.9g}") if math.isfinite(value) else None
    return json.loads(json.dumps(value))
