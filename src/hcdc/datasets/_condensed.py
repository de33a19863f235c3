"""The condensed data set and its file: safetensors with one JSON entry that holds all a search needs.

Equal runs write equal files. A file never contains code. Damaged, foreign or newer files are refused in one
sentence.
"""

from __future__ import annotations

import dataclasses
import hashlib
import importlib
import json
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from safetensors.torch import load as parse_tensors
from safetensors.torch import save as format_tensors
from torch import Tensor

from hcdc.core.errors import InputError
from hcdc.core.files import write_atomic
from hcdc.core.records import jsonable, version
from hcdc.core.seeds import derive, global_streams
from hcdc.datasets._labelled import KINDS, LabelledSet, kind_module, kind_named
from hcdc.datasets._trial_data import TrialData

if TYPE_CHECKING:
    from hcdc.datasets._full_data import FullData

FORMAT_VERSION = 1
ENTRY = "hcdc"
REAL = "real"


@dataclass(frozen=True, eq=False)
class CondensedDataset:
    """A small training and validation set that stand in for a large data set.

    Attributes:
        train: S_train.
        val: S_val; None means the original validation set (``meta["val_method"] == "real"``).
        meta: JSON-able description: ``data`` (see `Dataset.describe`), ``task``, ``space``,
            ``method``, ``settings``, ``full_recipe``, ``calibrated_recipe``, ``metric``, ``seed``,
            ``candidates`` (hashes of every candidate used in making it), ``train_learned`` and
            ``val_learned`` (what was learned besides a set, such as TM's step size) and free keys.
            ``format_version``, ``kind``, ``train_size``, ``val_size``, ``val_method`` and
            ``library_version`` are filled in, and ``kind_module`` for kinds from outside hcdc.
        record: Evidence of how it was made (seconds, device, history). It varies between equal runs, so it is
            kept beside the file, not in it; see `record_path`.
        task: The task that made it; known only in the same process.
        file: Where it was loaded from; empty if it was not.
    """

    train: LabelledSet
    val: LabelledSet | None
    meta: dict[str, Any]
    record: dict[str, Any] = field(default_factory=dict)
    task: Any = field(default=None, repr=False)
    file: str = field(default="", repr=False)

    def __repr__(self) -> str:
        what = f"{self.meta.get('method', 'copy')} of '{self.meta.get('data', {}).get('name', '?')}'"
        return f"<{what}: S_train {self.train!r}, S_val {'real' if self.val is None else repr(self.val)}>"

    def __post_init__(self) -> None:
        given = self.meta
        if not isinstance(given, Mapping):
            raise InputError(f"meta must be a dict, got {type(given).__name__}")
        form = type(self.train)
        if not isinstance(self.train, LabelledSet) or KINDS.get(form.kind) is not form:
            raise InputError(
                f"train is {form.__name__}, which is not a registered kind of labelled set; register it with "
                "hcdc.datasets.register_kind"
            )
        module = kind_module(form)
        filled = {
            "library_version": version(),
            "candidates": [],
            "val_method": REAL if self.val is None else "synthetic",
            **{key: value for key, value in given.items() if key not in ("digest", "kind_module")},
            "format_version": FORMAT_VERSION,
            "kind": form.kind,
            "train_size": len(self.train),
            "val_size": None if self.val is None else len(self.val),
            **({} if module.startswith("hcdc.") else {"kind_module": module}),
        }
        try:
            plain = json.loads(json.dumps(jsonable(filled), sort_keys=True, allow_nan=False))
        except (TypeError, ValueError, RecursionError) as error:
            raise InputError(f"meta of a condensed data set must be plain JSON: {error}") from error
        object.__setattr__(self, "meta", plain)
        _check(self)

    @property
    def kind(self) -> str:
        """The kind of data, e.g. ``"graph"``, ``"table"`` or ``"image"``."""
        return str(self.meta["kind"])

    @property
    def num_classes(self) -> int | None:
        """Number of classes; None for regression."""
        count = _data(self.meta).get("num_classes")
        return None if count is None else int(count)

    @property
    def train_seconds(self) -> float | None:
        """Seconds of making S_train; None where there is no record of them."""
        seconds = self.record.get("phases", {}).get("train")
        return None if seconds is None else float(seconds)

    def to(self, device: torch.device | str) -> CondensedDataset:
        """The same data set on another device."""
        return CondensedDataset(
            self.train.to(device), None if self.val is None else self.val.to(device), self.meta, self.record,
            self.task, self.file,
        )  # fmt: skip

    def tensors(self) -> dict[str, Tensor]:
        """``train/x``, ``train/y``, ``train/adj`` (absent without edges), ``val/...``, on the CPU.

        A large sparse matrix is three tensors: ``train/x.values``, ``train/x.places``, ``train/x.shape``.
        """
        return {
            f"{name}/{key}": value
            for name, part in self.parts()
            for key, value in _copied(part.tensors()).items()
        }

    def parts(self) -> list[tuple[str, LabelledSet]]:
        """``("train", S_train)`` and, unless the validation set is real, ``("val", S_val)``."""
        return [("train", self.train), *([] if self.val is None else [("val", self.val)])]

    def score(self, config: dict[str, Any], **options: Any) -> float:
        """Train one configuration on the copy and return the number to rank by; see `hcdc.score`."""
        evaluation = importlib.import_module("hcdc.evaluation")  # evaluation imports this room
        return float(evaluation.score(self, config, **options))

    def objective(
        self, function: Callable[[Any, TrialData], float], full: FullData | None = None
    ) -> Callable[[Any], float]:
        """An objective for a study of your own: ``study.optimize(small.objective(function), n_trials=200)``.

        The study must maximise, else the first trial is refused: ``data.score`` is always higher for better
        models. Trials run one at a time, because each seeds the global random streams.

        Args:
            function: ``function(trial, data)`` trains on ``data.train`` and returns ``data.score(outputs)``.
            full: The full data, if ``function`` expects its type (a DataFrame, tensors), its metric or its
                validation part; without it, see `TrialData.of_copy`.
        """
        TrialData.of_copy(self, 0, full)  # refuse now what every trial would refuse

        def run(trial: Any) -> float:
            _check_maximised(trial)
            data = TrialData.of_copy(self, derive(self.meta.get("seed") or 0, "trial", trial.number), full)
            with global_streams(data.seed):
                return function(trial, data)

        return run

    # --- the file -----------------------------------------------------------------------------------------

    def to_bytes(self) -> bytes:
        """The content of the file; equal data sets have equal bytes."""
        tensors = self.tensors()
        entry = {**self.meta, "digest": _digest(tensors, self.meta)}
        return format_tensors(tensors, {ENTRY: _json(entry)})

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write the file atomically, with its record (if any) beside it; return the path.

        The record is written first, so an existing file always has its record.
        """
        content, file = self.to_bytes(), Path(path)
        files: dict[Path, str | bytes] = {file: content}
        if self.record:
            told = jsonable(self._told(file.name, content))
            text = json.dumps(told, indent=1, sort_keys=True, allow_nan=False) + "\n"
            files = {record_path(file): text, **files}
        for place, written in files.items():
            try:
                write_atomic(place, written)
            except OSError as error:
                raise InputError(f"'{place}' cannot be written: {error.strerror or error}") from error
        return file

    def _told(self, name: str, content: bytes) -> dict[str, Any]:
        """The record, with what ties it to its file."""
        known = ("method", "preset", "train_size", "val_size", "seed")
        return {
            **self.record,
            "file": name,
            "sha256": hashlib.sha256(content).hexdigest(),
            "dataset": _data(self.meta).get("name"),
            **{key: self.meta[key] for key in known if key in self.meta},
        }

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> CondensedDataset:
        """Read a file, and the record beside it if it belongs to that file.

        A missing, truncated, damaged, foreign or newer file is refused in one sentence.
        """
        name = os.fspath(path)
        try:
            content = Path(path).read_bytes()
        except FileNotFoundError as error:
            raise InputError(f"the file '{name}' does not exist; make one with 'hcdc condense'") from error
        except OSError as error:
            raise InputError(f"'{name}' cannot be read: {error.strerror or error}") from error
        made = cls.from_bytes(content, name)
        return dataclasses.replace(made, record=_read_record(record_path(path), content), file=name)

    @classmethod
    def from_bytes(cls, content: bytes, name: str = "condensed file") -> CondensedDataset:
        """Read the content of a file; errors call it ``name``."""
        meta = _read_meta(content, name)
        digest = meta.pop("digest", None)
        try:
            tensors = parse_tensors(content)
            whole = digest == _digest(tensors, meta)
        except Exception as error:  # the parser's own error, or torch's for impossible types and shapes
            raise _damaged(name) from error
        if not whole:
            raise _damaged(name)
        try:
            form = kind_named(str(meta.get("kind")), meta.get("kind_module"))
        except InputError as error:
            raise InputError(f"'{name}' cannot be opened: {error}") from error
        try:
            found = {part: form.from_tensors(some) for part, some in _by_part(tensors).items()}
            return cls(found["train"], found.get("val"), meta)
        except (KeyError, InputError) as error:
            raise InputError(
                f"'{name}' is not a usable condensed file: {error}; condense the data again"
            ) from error

    # --- other forms --------------------------------------------------------------------------------------

    def to_torch(self) -> dict[str, dict[str, Tensor] | None]:
        """``{"train": {"x", "y", ...}, "val": the same or None}``; also ``adj``, ``index``, ``weight``.

        All are dense, also what the file stores as sparse.
        """
        return {"train": None, "val": None, **{name: _copied(part.dense()) for name, part in self.parts()}}

    def to_numpy(self) -> dict[str, dict[str, Any] | None]:
        """As `to_torch`, with numpy arrays."""
        return {
            part: None if found is None else {key: value.numpy() for key, value in found.items()}
            for part, found in self.to_torch().items()
        }

    def to_pyg(self) -> tuple[Any, Any]:
        """``(train, val)`` as PyG ``Data`` with ``edge_weight`` and masks; ``val`` may be None (real).

        ``train_mask`` in the first and ``val_mask`` in the second mark the labelled nodes; other nodes have
        label -1. ``node_weight`` holds the loss weights of labelled nodes if they differ.
        """
        return self.train.to_pyg("train"), None if self.val is None else self.val.to_pyg("val")

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
            ("features", f"{self.train.form}, normalisation {data.get('normalisation', '?')}"),
            ("split", str(data.get("split", "?"))),
            ("task", _text(meta.get("task"))),
            ("space", _text(meta.get("space"))),
            ("method", _text(meta.get("method"))),
            ("train method", _text(meta.get("train_method"))),
            ("settings", _text(meta.get("settings"))),
            ("train", self.train.describe()),
            ("learned beside", _learned(meta)),
            ("val", "the real validation set" if self.val is None else self.val.describe()),
            ("val method", _text(meta.get("val_method"))),
            ("full recipe", _text(meta.get("full_recipe"))),
            ("calibrated recipe", _text(meta.get("calibrated_recipe"))),
            ("rank by", _text(meta.get("metric"))),
            ("seed", _text(meta.get("seed"))),
            ("candidates used", str(len(meta["candidates"]))),
            ("library", f"hcdc {meta['library_version']}"),
        ]
        return [(label, text) for label, text in lines if text]

    def details(self) -> list[tuple[str, str]]:
        """More lines: what the examples look like, and which full-data results they were learned from."""
        lines = []
        for name, part in self.parts():
            lines += part.details(f"S_{name}", self.num_classes)
        probes = self.meta.get("probes") or {}
        if isinstance(probes, dict) and probes.get("configs"):
            source = self.meta.get("truth") or "trained on the full data"
            if isinstance(source, dict):
                source = ", ".join(f"{key.replace('_', ' ')} {value}" for key, value in source.items())
            lines.append(("probes", f"{len(probes['configs'])} candidates, results: {source}"))
        return lines


def _check_maximised(trial: Any) -> None:
    """Refuse a trial of an Optuna study that minimises; other trials do not tell."""
    for direction in getattr(getattr(trial, "study", None), "directions", ()):
        if direction.name != "MAXIMIZE":
            raise InputError(
                "the study minimises, but a higher data.score is better; create it with "
                "optuna.create_study(direction='maximize')"
            )


def record_path(file: str | os.PathLike[str]) -> Path:
    """Path of a condensed file's record: ``NAME.hcdc.json`` beside ``NAME.hcdc``."""
    return Path(file).with_name(f"{Path(file).name}.json")


def _read_record(path: Path, content: bytes) -> dict[str, Any]:
    """The record of a file with this content; empty if it is missing or belongs to another file."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}
    own = isinstance(found, dict) and found.get("sha256") == hashlib.sha256(content).hexdigest()
    return found if own else {}


def _json(value: Any) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)


def _data(meta: dict[str, Any]) -> dict[str, Any]:
    data = meta.get("data")
    return data if isinstance(data, dict) else {}


def _digest(tensors: Mapping[str, Tensor], meta: Mapping[str, Any]) -> str:
    """A hash of everything in the file; it detects damage that the format alone does not."""
    digest = hashlib.sha256(_json(meta).encode())
    for name in sorted(tensors):
        tensor = tensors[name]
        digest.update(f"\n{name} {tensor.dtype} {tuple(tensor.shape)}\n".encode())
        digest.update(tensor.contiguous().flatten().view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()


def _read_meta(content: bytes, name: str) -> dict[str, Any]:
    """The JSON entry of a condensed file."""
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
            f"'{name}' has format version {written}, but this hcdc {version()} reads only up to "
            f"{FORMAT_VERSION}; update hcdc"
        )
    found: dict[str, Any] = meta
    return found


def _damaged(name: str) -> InputError:
    return InputError(
        f"'{name}' is truncated or damaged; copy it again, or make it again with 'hcdc condense'"
    )


def _copied(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Copies on the CPU, contiguous and without gradients."""
    return {
        name: tensor.detach().cpu().clone(memory_format=torch.contiguous_format)
        for name, tensor in tensors.items()
    }


def _by_part(tensors: Mapping[str, Tensor]) -> dict[str, dict[str, Tensor]]:
    """``train/x`` as ``["train"]["x"]``."""
    parts: dict[str, dict[str, Tensor]] = {}
    for name, tensor in tensors.items():
        part, _, key = name.partition("/")
        parts.setdefault(part, {})[key] = tensor
    return parts


def _check(small: CondensedDataset) -> None:
    """Refuse sets whose tensors and description do not match."""
    method, candidates = small.meta["val_method"], small.meta["candidates"]
    if small.val is None and method != REAL:
        raise InputError(f"val is None, which means the real validation set, but val_method is '{method}'")
    if not isinstance(candidates, list) or not all(isinstance(candidate, str) for candidate in candidates):
        raise InputError("meta['candidates'] must be a list of hashes (texts)")
    if not isinstance(small.meta.get("data", {}), dict):
        raise InputError("meta['data'] must be a dict, as data.describe() makes it")
    if not isinstance(_data(small.meta).get("num_classes"), int | None):
        raise InputError("meta['data']['num_classes'] must be a whole number, or None for regression")
    if small.val is not None and type(small.val) is not type(small.train):
        raise InputError(
            f"train and val must be of one kind, got {type(small.train).__name__} and "
            f"{type(small.val).__name__}"
        )
    for name, part in small.parts():
        part.check(name, small.num_classes)
    if small.val is not None and small.val.form != small.train.form:
        raise InputError(f"train has {small.train.form} features and val {small.val.form}")


def _learned(meta: Mapping[str, Any]) -> str:
    """What was learned besides S_train and S_val, in words."""
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
