"""Evaluations made up for the tests of reporting: known truth, noisy proxies."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import torch

from hcdc.core.ranks import kendall, regret, spearman, top_k_overlap, upper_half_spearman
from hcdc.core.results import Evaluation
from hcdc.datasets import CondensedDataset, Images
from hcdc.evaluation.trust import rank_estimate


def figures(truth: np.ndarray, proxy: np.ndarray, test: np.ndarray) -> dict[str, Any]:
    return {
        "spearman": spearman(truth, proxy),
        "kendall": kendall(truth, proxy),
        "interval": rank_estimate(truth, proxy).interval(),
        "top_k_overlap": top_k_overlap(truth, proxy, 10),
        "upper_half_spearman": upper_half_spearman(truth, proxy),
        "regret": regret(truth, proxy),
        "selected_test_accuracy": float(test[proxy.argmax()]),
        "proxy": proxy.tolist(),
    }


def evaluation(*arguments: Any, **changes: Any) -> Evaluation:
    """`document` as a result."""
    return Evaluation.from_json(document(*arguments, **changes))


def document(
    method: str = "hcdc", noise: float = 0.01, real_noise: float = 0.02, count: int = 40, **changes: Any
) -> dict[str, Any]:
    """As `hcdc evaluate` writes it; ``noise`` blurs the copy's scores, ``real_noise`` the real set's."""
    rng = np.random.default_rng(7)
    truth = 0.4 + 0.3 * rng.random(count)
    test = truth - 0.01 + 0.005 * rng.standard_normal(count)
    own = np.random.default_rng(sum(map(ord, method)))

    def rival(name: str, blur: float, each: float, once: float, note: str = "") -> dict[str, Any]:
        proxy = truth + blur * own.standard_normal(count)
        return {
            "name": name,
            "description": f"what {name} is",
            "seconds_per_candidate": each,
            "extra_seconds": once,
            "note": note,
            **figures(truth, proxy, test),
        }

    shared = {
        "name": "parameter-count",
        "description": "number of parameters",
        "spearman": None,
        "kendall": None,
        "interval": [None, None],
        "top_k_overlap": None,
        "upper_half_spearman": None,
        "regret": None,
        "selected_test_accuracy": None,
        "seconds_per_candidate": 0.0,
        "extra_seconds": 0.0,
        "proxy": [1000.0] * count,
        "note": "all candidates have the same number of parameters",
    }
    full = rival("early-stopping", 0.03, 0.2, 0.0)
    full |= figures(truth, truth + 0.03 * np.random.default_rng(1).standard_normal(count), test)
    made = {
        "dataset": "citeseer-embedded",
        "method": method,
        "train_method": "random" if method == "hcdc" else method,
        "val_method": "aligned" if method == "hcdc" else "same",
        "train_size": 30,
        "val_size": 125,
        "seed": 0,
        "judge_seed": 1,
        "space": {"name": "polynomial-filter", "order": 3},
        "metric": "loss",
        "candidates": count,
        "dropped": 0,
        "level": 0.9,
        "best_test_accuracy": float(test[truth.argmax()]),
        "condense_seconds": 60.0,
        "proxy_seconds": 0.05 * count,
        "full_seconds": 0.4 * count,
        "proxy_seconds_per_candidate": 0.05,
        "full_seconds_per_candidate": 0.4,
        "break_even_trials": 172,
        "configs": [{"lambda_0": float(value)} for value in truth],
        "truth": truth.tolist(),
        "test": test.tolist(),
        "rivals": [
            rival("random-val", 0.1, 0.05, 60.0),
            rival("real-val", real_noise, 0.08, 60.0),
            full,
            shared,
        ],
        "environment": {"device": "cpu (2 threads)", "torch": "2.6", "commit": "abc"},
        **figures(truth, truth + noise * own.standard_normal(count), test),
    }
    return {**made, **changes}


def image_copy(
    per_class: int = 3, channels: int = 1, weight: Any = None, val: bool = True, **changes: Any
) -> tuple[CondensedDataset, Images]:
    """A copy with images of 4 x 5 pixels, three classes, as `evaluation` judges it, and its start."""
    generator = torch.Generator().manual_seed(0)
    y = torch.arange(3).repeat_interleave(per_class)
    mean, std = torch.linspace(0.4, 0.6, channels), torch.linspace(0.2, 0.3, channels)
    pixels = torch.rand(len(y), channels, 4, 5, generator=generator)
    start = Images((pixels - mean.view(-1, 1, 1)) / std.view(-1, 1, 1), y)
    data = {
        "name": "shapes",
        "num_classes": 3,
        "class_names": ["ring", "bar", "dot"],
        "mean": mean.tolist(),
        "std": std.tolist(),
    }
    meta = {
        "data": data,
        "method": "hcdc",
        "train_method": "random",
        "val_method": "both" if val else "real",
        "seed": 0,
        **changes,
    }
    learned = Images(start.x + 0.25, y, weight) if val else None
    return CondensedDataset(start, learned, meta), start


def changed(found: Evaluation, name: str, **changes: Any) -> Evaluation:
    """An evaluation with some fields of one rival changed."""
    rivals = [dataclasses.replace(r, **changes) if r.name == name else r for r in found.rivals]
    return dataclasses.replace(found, rivals=rivals)


def image_evaluation(small: CondensedDataset, **changes: Any) -> Evaluation:
    """An evaluation of a copy by `image_copy`."""
    keys = ("method", "train_method", "val_method", "train_size", "val_size", "seed")
    return evaluation(dataset=small.meta["data"]["name"], **{**{k: small.meta[k] for k in keys}, **changes})
