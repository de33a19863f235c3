"""The condensed data set and its file: safetensors with one JSON entry that says all a search needs to know.

Nothing in the file varies between equal runs, nothing in it is code, and a file that is damaged, foreign or
newer is refused in one sentence.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load as parse_tensors
from safetensors.torch import save as format_tensors
from torch import Tensor

from hcdc.core.errors import InputError, require
from hcdc.core.files import write_atomic
from hcdc.core.records import jsonable, version
from hcdc.core.sparse import SparseMatrix
from hcdc.datasets._graph import Graph, Matrix, Nodes
from hcdc.datasets._images import Images
from hcdc.datasets._table import Rows

FORMAT_VERSION = 1
ENTRY = "hcdc"
REAL = "real"

Part = Nodes | Rows | Images
KINDS = {"graph": Nodes, "table": Rows, "image": Images}


@dataclass(frozen=True, eq=False)
class CondensedDataset:
    """A small training and validation set that stand for a large data set.

    Attributes:
        train: S_train.
        val: S_val; None means the real validation set (``meta["val_method"] == "real"``).
        meta: JSON-able description: ``data`` (see `hcdc.datasets.describe`), ``task``, ``space``,
            ``method``, ``settings``, ``full_recipe``, ``calibrated_recipe``, ``metric``, ``seed``,
            ``candidates`` (hashes of every candidate used in making it), ``train_learned`` and
            ``val_learned`` (what was learned beside a set, as TM's step size) and free keys.
            ``format_version``, ``kind``, ``train_size``, ``val_size``, ``val_method`` and
            ``library_version`` are filled in.
        record: Evidence of how it was made (seconds, device, history); never part of the file, which does not
            vary between equal runs, but written beside it.
    """

    train: Part
    val: Part | None
    meta: dict[str, Any]
    record: dict[str, Any] = field(default_factory=dict)

    def __repr__(self) -> str:
        what = f"{self.meta.get('method', 'copy')} of '{self.meta.get('data', {}).get('name', '?')}'"
        return f"<{what}: S_train {self.train!r}, S_val {'real' if self.val is None else repr(self.val)}>"

    def __post_init__(self) -> None:
        given = self.meta
        if not isinstance(given, Mapping):
            raise InputError(f"meta must be a dict, got {type(given).__name__}")
        filled = {
            "library_version": version(),
            "candidates": [],
            "val_method": REAL if self.val is None else "synthetic",
            **{key: value for key, value in given.items() if key != "digest"},
            "format_version": FORMAT_VERSION,
            "kind": next(kind for kind, form in KINDS.items() if isinstance(self.train, form)),
            "train_size": len(self.train),
            "val_size": None if self.val is None else len(self.val),
        }
        try:
            plain = json.loads(json.dumps(jsonable(filled), sort_keys=True, allow_nan=False))
        except (TypeError, ValueError, RecursionError) as error:
            raise InputError(f"meta of a condensed data set must be plain JSON: {error}") from error
        object.__setattr__(self, "meta", plain)
        _check(self)

    @property
    def kind(self) -> str:
        """``"graph"``, ``"table"`` or ``"image"``."""
        return str(self.meta["kind"])

    @property
    def num_classes(self) -> int | None:
        """Number of classes; None for regression."""
        count = _data(self.meta).get("num_classes")
        return None if count is None else int(count)

    def to(self, device: torch.device | str) -> CondensedDataset:
        """The same on another device."""
        return CondensedDataset(
            self.train.to(device), None if self.val is None else self.val.to(device), self.meta, self.record
        )

    def tensors(self) -> dict[str, Tensor]:
        """``train/x``, ``train/y``, ``train/adj`` (dense; absent without edges), ``val/...``, on the CPU."""
        stored = _part_tensors("train", self.train)
        if self.val is not None:
            stored |= _part_tensors("val", self.val)
        return stored

    # --- the file -----------------------------------------------------------------------------------------

    def to_bytes(self) -> bytes:
        """The content of the file; equal data sets have equal bytes."""
        tensors = self.tensors()
        entry = {**self.meta, "digest": _digest(tensors, self.meta)}
        return format_tensors(tensors, {ENTRY: _json(entry)})

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write the file, whole or not at all; returns its path."""
        try:
            write_atomic(path, self.to_bytes())
        except OSError as error:
            raise InputError(f"'{os.fspath(path)}' cannot be written: {error.strerror or error}") from error
        return Path(path)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> CondensedDataset:
        """Read a file; a missing, truncated, damaged, foreign or newer one is refused in a sentence."""
        name = os.fspath(path)
        try:
            content = Path(path).read_bytes()
        except FileNotFoundError as error:
            raise InputError(f"the file '{name}' does not exist; make one with 'hcdc condense'") from error
        except OSError as error:
            raise InputError(f"'{name}' cannot be read: {error.strerror or error}") from error
        return cls.from_bytes(content, name)

    @classmethod
    def from_bytes(cls, content: bytes, name: str = "condensed file") -> CondensedDataset:
        """Read the content of a file; ``name`` is what errors call it."""
        meta = _read_meta(content, name)
        digest = meta.pop("digest", None)
        try:
            tensors = parse_tensors(content)
            whole = digest == _digest(tensors, meta)
        except (
            Exception
        ) as error:  # the parser's own error and what torch says of impossible types and shapes
            raise _damaged(name) from error
        if not whole:
            raise _damaged(name)
        try:
            readers: dict[str, Callable[[str, Mapping[str, Tensor]], Part]]
            readers = {"graph": _nodes, "table": _rows, "image": _images}
            build = readers[meta["kind"]]
            val = build("val", tensors) if "val/y" in tensors else None
            return cls(build("train", tensors), val, meta)
        except (KeyError, InputError) as error:
            raise InputError(
                f"'{name}' is not a usable condensed file: {error}; condense the data again"
            ) from error

    # --- other forms --------------------------------------------------------------------------------------

    def to_torch(self) -> dict[str, dict[str, Tensor] | None]:
        """``{"train": {"x", "y", ...}, "val": the same or None}``; ``adj``, ``index``, ``weight`` if any."""
        tensors = self.tensors()
        parts: dict[str, dict[str, Tensor] | None] = {}
        for part in ("train", "val"):
            prefix = f"{part}/"
            found = {
                key.removeprefix(prefix): value for key, value in tensors.items() if key.startswith(prefix)
            }
            parts[part] = found or None
        return parts

    def to_numpy(self) -> dict[str, dict[str, Any] | None]:
        """As `to_torch`, with numpy arrays."""
        return {
            part: None if found is None else {key: value.numpy() for key, value in found.items()}
            for part, found in self.to_torch().items()
        }

    def to_pyg(self) -> tuple[Any, Any]:
        """``(train, val)`` as PyG ``Data`` with ``edge_weight`` and masks; ``val`` may be None (real).

        ``train_mask`` of the first and ``val_mask`` of the second mark the labelled nodes; other nodes have
        label -1. ``node_weight`` holds the weights of labelled nodes in the loss where they are not equal.
        """
        if not isinstance(self.train, Nodes) or not isinstance(self.val, Nodes | None):
            raise InputError(
                f"this condensed data set is of kind '{self.kind}', which PyG has no form for; "
                "use to_torch() or to_numpy()"
            )
        return _pyg(self.train, "train"), None if self.val is None else _pyg(self.val, "val")

    def summary(self) -> list[tuple[str, str]]:
        """What the file holds, as (label, text) lines for `hcdc inspect`."""
        meta, data = self.meta, _data(self.meta)
        classes = data.get("num_classes")
        lines = [
            ("kind", f"{self.kind}, format {meta['format_version']}"),
            (
                "data",
                f"{data.get('name', '?')} ({data.get('source', '?')}), fingerprint "
                f"{data.get('fingerprint', '?')}",
            ),
            (
                "classes",
                "regression" if classes is None else f"{classes}: {', '.join(data.get('class_names') or [])}",
            ),
            ("features", f"{_form(self.train)}, normalisation {data.get('normalisation', '?')}"),
            ("split", str(data.get("split", "?"))),
            ("task", _text(meta.get("task"))),
            ("space", _text(meta.get("space"))),
            ("method", _text(meta.get("method"))),
            ("settings", _text(meta.get("settings"))),
            ("train", _part_text(self.train)),
            ("learned beside", _learned(meta)),
            ("val", "the real validation set" if self.val is None else _part_text(self.val)),
            ("val method", _text(meta.get("val_method"))),
            ("full recipe", _text(meta.get("full_recipe"))),
            ("calibrated recipe", _text(meta.get("calibrated_recipe"))),
            ("rank by", _text(meta.get("metric"))),
            ("seed", _text(meta.get("seed"))),
            ("candidates used", str(len(meta["candidates"]))),
            ("library", f"hcdc {meta['library_version']}"),
        ]
        return [(label, text) for label, text in lines if text]


def _json(value: Any) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)


def _data(meta: dict[str, Any]) -> dict[str, Any]:
    data = meta.get("data")
    return data if isinstance(data, dict) else {}


def _digest(tensors: Mapping[str, Tensor], meta: Mapping[str, Any]) -> str:
    """A hash of everything in the file, which finds damage that the format alone would not."""
    digest = hashlib.sha256(_json(meta).encode())
    for name in sorted(tensors):
        tensor = tensors[name]
        digest.update(f"\n{name} {tensor.dtype} {tuple(tensor.shape)}\n".encode())
        digest.update(tensor.contiguous().flatten().view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()


def _read_meta(content: bytes, name: str) -> dict[str, Any]:
    """The JSON entry of a safetensors file of ours."""
    foreign = InputError(f"'{name}' is not a condensed file of hcdc; make one with 'hcdc condense'")
    size = int.from_bytes(content[:8], "little")
    if not content:
        raise InputError(f"'{name}' is empty, not a condensed file; make one with 'hcdc condense'")
    if content[8:9] != b"{":
        raise foreign
    if len(content) < 8 + size:
        raise _damaged(name)
    try:
        header = json.loads(content[8 : 8 + size])
    except (ValueError, RecursionError) as error:
        raise _damaged(name) from error
    extra = header.get("__metadata__") if isinstance(header, dict) else None
    if not isinstance(extra, dict) or not isinstance(extra.get(ENTRY), str):
        raise foreign
    try:
        meta = json.loads(extra[ENTRY])
    except (ValueError, RecursionError) as error:
        raise _damaged(name) from error
    written = meta.get("format_version") if isinstance(meta, dict) else None
    if not isinstance(written, int) or written < 1:
        raise _damaged(name)
    if written > FORMAT_VERSION:
        raise InputError(
            f"'{name}' has format version {written}, and this hcdc {version()} reads up to "
            f"{FORMAT_VERSION}; update hcdc"
        )
    found: dict[str, Any] = meta
    return found


def _damaged(name: str) -> InputError:
    return InputError(
        f"'{name}' is truncated or damaged; copy it again, or make it again with 'hcdc condense'"
    )


def _plain(value: Matrix) -> Tensor:
    dense = value.to_dense() if isinstance(value, SparseMatrix) else value
    return dense.detach().cpu().clone(memory_format=torch.contiguous_format)


def _part_tensors(part: str, data: Part) -> dict[str, Tensor]:
    if isinstance(data, Nodes):
        found = {
            "x": data.graph.x,
            "y": data.y,
            "adj": data.graph.adj,
            "index": data.index,
            "weight": data.weight,
        }
    else:
        found = {"x": data.x, "y": data.y, "weight": data.weight}
    return {f"{part}/{key}": _plain(value) for key, value in found.items() if value is not None}


def _nodes(part: str, tensors: Mapping[str, Tensor]) -> Nodes:
    graph = Graph(tensors[f"{part}/x"], tensors.get(f"{part}/adj"))
    return Nodes(graph, tensors[f"{part}/y"], tensors.get(f"{part}/index"), tensors.get(f"{part}/weight"))


def _rows(part: str, tensors: Mapping[str, Tensor]) -> Rows:
    return Rows(tensors[f"{part}/x"], tensors[f"{part}/y"], tensors.get(f"{part}/weight"))


def _images(part: str, tensors: Mapping[str, Tensor]) -> Images:
    return Images(tensors[f"{part}/x"], tensors[f"{part}/y"], tensors.get(f"{part}/weight"))


def _check(small: CondensedDataset) -> None:
    """Refuse sets whose tensors and description do not fit together."""
    method, candidates = small.meta["val_method"], small.meta["candidates"]
    if (small.val is None) != (method == REAL):
        raise InputError(f"val_method is '{method}'; it must be '{REAL}' exactly where val is None")
    if not isinstance(candidates, list) or not all(isinstance(candidate, str) for candidate in candidates):
        raise InputError("meta['candidates'] must be a list of hashes (texts)")
    if not isinstance(small.meta.get("data", {}), dict):
        raise InputError("meta['data'] must be a dict, as hcdc.datasets.describe makes it")
    if not isinstance(_data(small.meta).get("num_classes"), int | None):
        raise InputError("meta['data']['num_classes'] must be a whole number, or None for regression")
    if small.val is not None and type(small.val) is not type(small.train):
        raise InputError("train and val must be of one kind: nodes, rows or images")
    for name, part in (("train", small.train), ("val", small.val)):
        if part is not None:
            _check_part(name, part, small.num_classes)
    if small.val is not None and _form(small.val) != _form(small.train):
        raise InputError(f"train has {_form(small.train)} features and val {_form(small.val)}")


def _check_part(name: str, part: Part, num_classes: int | None) -> None:
    x = part.graph.x if isinstance(part, Nodes) else part.x
    y, weight = part.y, part.weight
    needed = "[n, c, h, w]" if isinstance(part, Images) else "[n, d]"
    if len(x.shape) != (4 if isinstance(part, Images) else 2) or y.dim() != 1 or len(y) == 0:
        raise InputError(
            f"{name}/x has shape {tuple(x.shape)} and {name}/y {tuple(y.shape)}; {needed} and [m] are needed"
        )
    nodes = x.shape[0]
    if isinstance(part, Nodes):
        if part.graph.adj is not None and tuple(part.graph.adj.shape) != (nodes, nodes):
            raise InputError(f"{name}/adj has shape {tuple(part.graph.adj.shape)} for {nodes} nodes")
        if part.index is not None:
            if part.index.shape != y.shape or int(part.index.min()) < 0 or int(part.index.max()) >= nodes:
                raise InputError(
                    f"{name}/index does not name one of {nodes} nodes for each of {len(y)} labels"
                )
        elif nodes != len(y):
            raise InputError(f"{name} has {nodes} nodes and {len(y)} labels")
    elif nodes != len(y):
        what = "images" if isinstance(part, Images) else "rows"
        raise InputError(f"{name} has {nodes} {what} and {len(y)} labels")
    if not x.dtype.is_floating_point or (
        y.is_floating_point() and (num_classes or not isinstance(part, Rows))
    ):
        raise InputError(
            f"{name}/x is {x.dtype} and {name}/y {y.dtype}; numbers and class numbers are needed"
        )
    if not y.is_floating_point() and (
        int(y.min()) < 0 or (num_classes is not None and int(y.max()) >= num_classes)
    ):
        raise InputError(
            f"{name}/y holds labels {int(y.min())} .. {int(y.max())}; allowed are 0 .. classes - 1"
        )
    if weight is not None and (weight.shape != y.shape or not bool((weight >= 0).all())):
        raise InputError(f"{name}/weight must hold one non-negative number for each of {len(y)} labels")
    if weight is not None and not bool((weight > 0).any()):
        raise InputError(f"{name}/weight is 0 for each of {len(y)} labels, which leaves no loss")
    floats = {"x": x.values if isinstance(x, SparseMatrix) else x, "y": y, "weight": weight}
    if isinstance(part, Nodes) and isinstance(part.graph.adj, Tensor):
        floats["adj"] = part.graph.adj
    for key, value in floats.items():
        if value is not None and not bool(torch.isfinite(value).all()):
            raise InputError(f"{name}/{key} holds NaN or infinity")


def _form(part: Part) -> str:
    """The form of one example: a number of features, or the shape of an image."""
    if isinstance(part, Images):
        return " x ".join(str(side) for side in part.x.shape[1:])
    return str(part.graph.num_features if isinstance(part, Nodes) else int(part.x.shape[1]))


def _part_text(part: Part) -> str:
    if not isinstance(part, Nodes):
        what = "images" if isinstance(part, Images) else "rows"
        return f"{len(part)} {what}" + ("" if part.weight is None else ", weighted")
    edges = part.graph.edges()[0].shape[1]
    structure = (
        "no edges (every node by itself)" if part.graph.adj is None else f"{edges} directed edge weights"
    )
    inside = f" of {part.graph.num_nodes}" if part.index is not None else ""
    return f"{len(part)}{inside} nodes, {structure}" + ("" if part.weight is None else ", weighted")


def _learned(meta: Mapping[str, Any]) -> str:
    """What was learned beside S_train and S_val, in words."""
    found = {part: meta.get(f"{part}_learned") for part in ("train", "val")}
    return "; ".join(f"{part}: {_text(some)}" for part, some in found.items() if some)


def _text(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, dict):
        return ", ".join(
            f"{key}={_text(inner) if not isinstance(inner, dict) else _json(inner)}"
            for key, inner in value.items()
            if inner is not None
        )
    return value if isinstance(value, str) else _json(value)


def _pyg(part: Nodes, name: str) -> Any:
    count, positions = part.graph.num_nodes, part.positions().cpu()
    graph = part.graph.to("cpu")
    edge_index, edge_weight = graph.edges()
    y = torch.full((count,), -1, dtype=torch.long)
    y[positions] = part.y.cpu().long()
    data = require("torch_geometric.data", "graph").Data(
        x=_plain(graph.x), edge_index=edge_index, edge_weight=edge_weight.detach(), y=y
    )
    for mask in ("train", "val", "test"):
        marked = torch.zeros(count, dtype=torch.bool)
        if mask == name:
            marked[positions] = True
        data[f"{mask}_mask"] = marked
    if part.weight is not None:
        data.node_weight = torch.zeros(count, dtype=part.weight.dtype)
        data.node_weight[positions] = part.weight.detach().cpu()
    return data
