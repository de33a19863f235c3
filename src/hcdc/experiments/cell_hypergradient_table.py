"""Table of protocol ``cells-hypergradients``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hcdc.core.ranks import spearman
from hcdc.experiments.markdown import table_text

Array = NDArray[np.float64]
Record = dict[str, Any]

WORDS = {
    "cell total": "weights of the cell (`softmax`)",
    "cell direct": "the same, direct part alone",
    "mixed total": "half the cell, half equal weights (`softmax`)",
    "mixed direct": "the same, direct part alone",
    "gdas total": "drawn operations (`gdas`)",
    "gdas direct": "the same, direct part alone",
}
VALUES = {
    "cell": "values of these trainings, between cells: `softmax`",
    "mixed": "values, half equal weights",
    "gdas": "values, `gdas`",
}


def hypergradients_table(found: Sequence[Record]) -> str:
    """Agreement of hypergradients with a second estimate and with the truth: mean [least, most] of cells."""
    lines = []
    for name, words in WORDS.items():
        each = [_at_cell(r, np.asarray(r["promised"][name])) for r in found]
        count = len(found[0]["promised"][name][0])
        lines.append(
            [words, *_spread(each, ("self", "means", "init", "val", "test", "cosine")), _signs(each)]
        )
    head = [
        "differences between neighbours by", "two estimates of one network each: cosine",
        f"of {count} networks each" if found else "", "same images, other networks",
        "with the truth: Spearman", "with test: Spearman", "with the truth: cosine", "right sign",
    ]  # fmt: skip
    if found:
        sizes = [_at_cell(r, np.asarray(r["parameters"], float)[None, None]) for r in found]
        told = _spread(sizes, ("val", "test", "cosine"))
        lines.append(["number of parameters", "-", "-", "-", *told, _signs(sizes)])
        lines += [[words, *_values(found, name)] for name, words in VALUES.items()]
    return table_text(head, lines)


def _cosine(a: Array, b: Array) -> float:
    return float(a @ b / max(float(np.linalg.norm(a) * np.linalg.norm(b)), 1e-12))


def _pairs(half: Array) -> list[float]:
    """Cosines between the networks ``[networks, m]`` of one estimate."""
    return [_cosine(half[k], half[j]) for k in range(len(half)) for j in range(k)]


def _at_cell(r: Record, promised: Array) -> dict[str, float]:
    """Figures of one cell from what is promised ``[estimates, networks, m]``."""
    val, test = (np.asarray(r["truth"][part]) for part in ("val", "test"))
    every, told = promised.mean((0, 1)), {}
    if len(promised) == 2:
        first, second = promised
        told["self"] = float(np.mean([_cosine(a, b) for a, b in zip(first, second)]))
        told["means"] = _cosine(first.mean(0), second.mean(0))
        pairs = [*_pairs(first), *_pairs(second)]
        told["init"] = float(np.mean(pairs)) if pairs else float("nan")
    right = np.sign(every) == np.sign(val)
    return told | {
        "val": spearman(val, every), "test": spearman(test, every), "cosine": _cosine(val, every),
        "right": float(right.sum()), "of": float(len(right)),
    }  # fmt: skip


def _spread(each: Sequence[dict[str, float]], names: Sequence[str]) -> list[str]:
    cells = []
    for name in names:
        values = [one[name] for one in each]
        cells.append(f"{np.mean(values):.2f} [{min(values):.2f}, {max(values):.2f}]")
    return cells


def _signs(each: Sequence[dict[str, float]]) -> str:
    right, of = (sum(one[key] for one in each) for key in ("right", "of"))
    return f"{100 * right / of:.0f} % of {of:,.0f}"


def _values(found: Sequence[Record], name: str) -> list[str]:
    """The same figures for values, whose differences are those between the cells themselves."""
    values = np.asarray([r["values"][name] for r in found]).transpose(1, 2, 0)  # [estimates, networks, cells]
    val, test = (np.asarray([r["accuracy"][part] for r in found]) for part in ("val", "test"))
    centred = values - values.mean(-1, keepdims=True)
    every, truth = centred.mean((0, 1)), val - val.mean()
    first, second = centred
    rows, columns = np.triu_indices(len(val), 1)
    right = np.sign(every[rows] - every[columns]) == np.sign(val[rows] - val[columns])
    figures = [
        float(np.mean([_cosine(a, b) for a, b in zip(first, second)])),
        _cosine(first.mean(0), second.mean(0)), float(np.mean([*_pairs(first), *_pairs(second)])),
        spearman(val, every), spearman(test, every), _cosine(truth, every),
    ]  # fmt: skip
    return [*(f"{figure:.2f}" for figure in figures), f"{100 * right.mean():.0f} % of {len(right):,}"]
