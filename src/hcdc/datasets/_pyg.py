"""PyG's data sets by name, and any PyG ``Data`` object."""

from __future__ import annotations

import contextlib
import os
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from scipy import sparse
from torch import Tensor

from hcdc.core.errors import InputError, require
from hcdc.core.files import locked
from hcdc.datasets._graph import GraphData
from hcdc.datasets._nodes import log, node_data
from hcdc.datasets._npz import read_npz


@dataclass(frozen=True)
class _Place:
    """Where a named set is stored under the root, and the PyG class that fetches it."""

    family: str
    folder: str
    files: tuple[str, ...]


def _planetoid(folder: str) -> _Place:
    parts = ("x", "tx", "allx", "y", "ty", "ally", "graph", "test.index")
    return _Place("Planetoid", folder, tuple(f"ind.{folder.lower()}.{part}" for part in parts))


PLACES = {
    "cora": _planetoid("Cora"),
    "citeseer": _planetoid("CiteSeer"),
    "pubmed": _planetoid("PubMed"),
    "amazon_computers": _Place("Amazon", "Computers", ("amazon_electronics_computers.npz",)),
    "amazon_photo": _Place("Amazon", "Photo", ("amazon_electronics_photo.npz",)),
    "coauthor_cs": _Place("Coauthor", "CS", ("ms_academic_cs.npz",)),
    "coauthor_physics": _Place("Coauthor", "Physics", ("ms_academic_phy.npz",)),
    "reddit": _Place("Reddit", "", ("reddit_data.npz", "reddit_graph.npz")),
    "reddit2": _Place("Reddit2", "", ("adj_full.npz", "feats.npy", "class_map.json", "role.json")),
}


def named(name: str, root: Path, *, download: bool, split: Any = None, seed: int = 0) -> GraphData:
    """One of `PLACES`, from the raw files that PyG's class for the family keeps under ``root / family``.

    PyG reads Planetoid and Reddit. `read_npz` reads the ``.npz`` files of Amazon and Coauthor, with binary
    features as in PyG, but sparse (dense, coauthor_physics would take 1.2 GB).
    """
    place = PLACES[name]
    raw = root / place.family / place.folder / "raw"
    if not all((raw / file).exists() for file in place.files):
        require("torch_geometric", "graph")
        _fetch(name, place, root, download)
    if place.family in ("Amazon", "Coauthor"):
        path = raw / place.files[0]
        return read_npz(path, name=name, source=place.family.lower(), binary=True, split=split, seed=seed)
    data = _read(name, place, root)
    y = data.y.clone()
    if place.family == "Planetoid":
        # Non-test nodes numbered between the first and last test node have neither words nor a class in the
        # raw files (15 nodes in Citeseer); PyG gives them class 0.
        test = data.test_mask.nonzero().flatten()
        between = torch.arange(int(test.min()), int(test.max()) + 1)
        y[between[~data.test_mask[between]]] = -1
    return node_data(
        name,
        place.family.lower(),
        _array(data.x),
        data.edge_index.numpy(),
        y.numpy(),
        normalisation="row" if place.family == "Planetoid" else "standard",
        own_parts=[data[f"{part}_mask"].numpy() for part in ("train", "val", "test")],
        split=split,
        seed=seed,
    )


def _read(name: str, place: _Place, root: Path) -> Any:
    folder = root / place.family / place.folder
    io, datasets = require("torch_geometric.io", "graph"), require("torch_geometric.datasets", "graph")
    try:
        if place.family == "Planetoid":
            return io.read_planetoid_data(str(folder / "raw"), place.folder)
        with locked(folder / ".hcdc.lock"):  # PyG writes a processed file beside the raw ones
            return getattr(datasets, place.family)(str(folder))[0]
    except Exception as error:  # PyG's readers raise anything on a damaged file
        raise InputError(
            f"the raw files of {name} in '{folder / 'raw'}' cannot be read ({type(error).__name__}: "
            f"{error}); remove them and load it again"
        ) from error


def _fetch(name: str, place: _Place, root: Path, download: bool) -> None:
    """Let PyG download the raw files, all or none."""
    family = root / place.family
    reason = "download=False was given"
    if download:
        make = getattr(require("torch_geometric.datasets", "graph"), place.family)
        new = [folder for folder in (family, *family.parents) if not folder.exists()]
        try:
            family.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryDirectory(dir=family, prefix=".download-") as temporary:
                make(temporary, *filter(None, [place.folder]))
                raw = family / place.folder / "raw"
                raw.mkdir(parents=True, exist_ok=True)
                for file in place.files:
                    os.replace(Path(temporary) / place.folder / "raw" / file, raw / file)
            return
        except Exception as error:  # PyG's downloads raise errors of several network libraries
            for folder in new:
                with contextlib.suppress(OSError):
                    folder.rmdir()
            reason = f"it could not be downloaded ({type(error).__name__}: {str(error)[:120]})"
    raw = Path(place.family, place.folder, "raw")
    raise InputError(
        f"{name} is not in '{root / raw}' and {reason}; set HCDC_DATA to a folder that holds {raw}, or use "
        "the graph that comes with the package: 'citeseer-embedded'"
    )


def _array(x: Any) -> Any:
    """Features of a PyG object as a numpy array or a scipy matrix."""
    if not isinstance(x, Tensor):
        raise InputError(
            f"the node features x are of type {type(x).__name__}; a tensor [nodes, features] is needed"
        )
    x = x.detach().cpu()
    if x.layout == torch.strided:
        return x.numpy() if x.dtype != torch.bfloat16 else x.float().numpy()
    coo = x.to_sparse_coo().coalesce()
    return sparse.csr_matrix((coo.values().numpy(), coo.indices().numpy()), tuple(coo.shape))


def is_pyg(source: Any) -> bool:
    """Whether an object is PyG's, without importing PyG."""
    return any(base.__module__.split(".")[0] == "torch_geometric" for base in type(source).__mro__)


def from_pyg(source: Any, *, split: Any = None, seed: int = 0) -> GraphData:
    """A PyG ``Data`` with ``x``, ``edge_index`` and one label per node, or a data set of one such graph.

    ``train_mask``, ``val_mask`` and ``test_mask`` are the split if present (the first column if they have
    several). Features are used as they are; edge weights are ignored.
    """
    kinds = require("torch_geometric.data", "graph")
    if isinstance(source, kinds.Dataset):
        if len(source) != 1:
            raise several(len(source))
        source = source[0]
    if isinstance(source, (kinds.HeteroData, kinds.TemporalData)):
        raise InputError(
            f"a {type(source).__name__} is not supported: hcdc condenses one graph with one kind of nodes "
            "and edges; turn it into a Data object (for HeteroData: data.to_homogeneous())"
        )
    if isinstance(source, kinds.Batch) and source.num_graphs != 1:
        raise several(source.num_graphs)
    if not isinstance(source, kinds.Data):
        raise InputError(
            f"a PyG {type(source).__name__} is not supported; pass one torch_geometric.data.Data object"
        )
    if source.x is None:
        raise InputError(
            "the Data object has no node features x; add some, e.g. one-hot degrees (PyG's OneHotDegree)"
        )
    if source.edge_index is None:
        raise InputError(
            "the Data object has no edge_index [2, edges]; without edges, use a table: hcdc.data((x, y))"
        )
    if source.y is None or "edge_label" in source or "edge_label_index" in source:
        raise InputError(
            "the Data object is for an edge task or has no labels y; hcdc classifies nodes: give one "
            "class per node in y (-1 if unknown)"
        )
    if source.get("edge_weight") is not None or source.edge_attr is not None:
        log.warning("edge weights and edge features of the Data object are not used: every edge has weight 1")
    masks, words = _masks(source) if split is None else (None, "")
    return node_data(
        "graph",
        "memory",
        _array(source.x),
        source.edge_index.detach().cpu().numpy(),
        source.y.detach().cpu().numpy(),
        normalisation="none",
        own_parts=masks,
        own_split=words,
        split=split,
        seed=seed,
    )


def several(count: int) -> InputError:
    """The error for more than one graph."""
    return InputError(
        f"{count} graphs were given, but classifying whole graphs is not supported; pass one graph "
        "with labelled nodes, e.g. dataset[0]"
    )


def _masks(data: Any) -> tuple[list[np.ndarray[Any, Any]] | None, str]:
    masks = [data.get(f"{part}_mask") for part in ("train", "val", "test")]
    if all(mask is None for mask in masks):
        return None, ""
    if any(mask is None for mask in masks):
        there = [f"{part}_mask" for part, mask in zip(("train", "val", "test"), masks) if mask is not None]
        raise InputError(
            f"the Data object has only {' and '.join(there)}; give train_mask, val_mask and test_mask, or "
            "split='seeded'"
        )
    words = "the masks of the Data object"
    if any(mask.dim() == 2 for mask in masks):
        words += f" (the first of {max(mask.shape[1] for mask in masks if mask.dim() == 2)})"
    return [(mask[:, 0] if mask.dim() == 2 else mask).cpu().numpy() for mask in masks], words
