"""The copies that a search used: found again by the file that the search named, and drawn."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import Any

import numpy as np

from hcdc.core.errors import InputError
from hcdc.core.found import Found
from hcdc.core.records import jsonable
from hcdc.datasets import CondensedDataset
from hcdc.reporting._figures import new_figure
from hcdc.reporting._images import PARTS, draw_images, facts
from hcdc.reporting._page import shown_parts


def found_copies(
    found: Found, folder: str | os.PathLike[str] | None = None
) -> list[tuple[str, CondensedDataset]]:
    """The copies behind the rungs, by name, whose files can be read and have not changed since the search.

    Args:
        found: What the search found.
        folder: Where to look for a file that is no longer where the search read it.
    """
    copies = []
    for rung in found.rungs:
        places = [Path(rung.file), *([] if folder is None else [Path(folder) / Path(rung.file).name])]
        for place in places if rung.file else []:
            small = _read(place)
            if small is not None and _searched(small, found):
                copies.append((rung.name, small))
                break
    return copies


def _read(path: Path) -> CondensedDataset | None:
    try:
        return CondensedDataset.load(path)
    except InputError:
        return None


def _searched(small: CondensedDataset, found: Found) -> bool:
    """Whether the search used this copy: it kept the description, or a hash of the file."""
    kept: Any = found.spec.get("copies") or ()
    if isinstance(kept, dict):
        return hashlib.sha256(small.to_bytes()).hexdigest()[:32] in kept.values()
    return jsonable(small.meta) in list(kept)


def copy_figures(name: str, small: CondensedDataset) -> list[tuple[str, str, Any]]:
    """Names, captions and figures of a copy: its images, or its graph; nothing for other kinds of data."""
    if small.train.pictures() is not None:
        return [
            (f"images-{part}", _caption(name, small, part), draw_images(small, None, part))
            for part in shown_parts(small)
        ]
    tensors = small.to_numpy()["train"] or {}
    if "adj" not in tensors:
        return []
    labels = np.full(len(tensors["adj"]), -1)
    labels[tensors.get("index", np.arange(len(labels)))] = tensors["y"]
    edges = int(np.count_nonzero(np.triu(tensors["adj"], 1)))
    caption = (
        f"'{name}': the graph of S_train as its matrix, {len(labels)} nodes sorted by class and {edges:,} "
        "edges; darker is heavier, lines part the classes."
    )
    return [("graph-train", caption, draw_graph(tensors["adj"], labels))]


def _caption(name: str, small: CondensedDataset, part: str) -> str:
    told = "; ".join(["with the normalisation undone", *facts(small, None, part)])
    return f"'{name}': images of {PARTS[part]}, one row per class, {told}."


def draw_graph(adjacency: Any, labels: Any) -> Any:
    """A graph as its matrix ``[n, n]``, nodes sorted by class."""
    order = np.argsort(labels, kind="stable")
    figure = new_figure(5.2, 4.6)
    axes = figure.add_subplot()
    weights = np.abs(adjacency)[order][:, order]
    most = weights.max() or 1.0  # without edges all of it is white
    shown = axes.imshow(weights, cmap="Greys", vmin=0, vmax=most, interpolation="none")
    bounds = np.flatnonzero(np.diff(labels[order])) + 0.5
    for bound in bounds:
        axes.axhline(bound, color="#D55E00", linewidth=0.6)
        axes.axvline(bound, color="#D55E00", linewidth=0.6)
    middles = (np.concatenate([[-0.5], bounds]) + np.concatenate([bounds, [len(order) - 0.5]])) / 2
    names = [str(label) if label >= 0 else "none" for label in dict.fromkeys(labels[order].tolist())]
    axes.set_xticks(middles, names)
    axes.set_yticks(middles, names)
    axes.set_xlabel("class of the node")
    figure.colorbar(shown, ax=axes, label="weight of the edge")
    return figure
