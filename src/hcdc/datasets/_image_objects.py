"""Images from memory: arrays, lists of pictures, torch and Hugging Face data sets."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from torch import Tensor
from torch.utils.data import Dataset, IterableDataset

from hcdc.core.errors import InputError, unknown_name
from hcdc.datasets._image_data import Array, image_data
from hcdc.datasets._image_files import KNOWN_PARTS, part_called
from hcdc.datasets._images import ImageData
from hcdc.datasets._pictures import channels_first, is_picture, stacked
from hcdc.datasets._split import PART_NAMES

IMAGE_COLUMNS = ("image", "img")
LABEL_COLUMNS = ("label", "labels", "fine_label")


def is_images(source: Any) -> bool:
    """Whether `from_object` can read an object."""
    if isinstance(source, Mapping):
        return any(part_called(name) in PART_NAMES for name in source)
    if isinstance(source, tuple) and len(source) == 2:
        return getattr(source[0], "ndim", 0) in (3, 4) or _is_pictures(source[0])
    return isinstance(source, Dataset) or _has_columns(source)


def takes_columns(source: Any) -> bool:
    """Whether an object is a Hugging Face ``Dataset``, a ``Dataset`` of dicts, or a mapping to one."""
    if isinstance(source, Mapping):
        return any(map(takes_columns, source.values()))
    return bool(_columns(source))


def from_object(
    source: Any, *, image: str | None = None, label: str | None = None, split: Any = None, seed: int = 0
) -> ImageData:
    """Images from memory.

    Args:
        source: ``(x, y)`` with x ``[m, h, w]`` (grey), ``[m, c, h, w]`` or ``[m, h, w, c]``, or a list of
            images of one size; a torch ``Dataset`` of pairs (image, label) or of dicts, with images as PIL
            images, arrays or tensors; a Hugging Face ``Dataset``; or a mapping from ``"train"`` and
            possibly ``"val"`` (``"validation"``, ``"valid"``) and ``"test"`` to any of these.
        image, label: Columns of a Hugging Face ``Dataset``, or keys of dicts; by default ``image`` or
            ``img``, and ``label``, ``labels`` or ``fine_label``.
        split, seed: As in `image_data`.
    """
    given: dict[str, Any] = {}
    for called, content in (source if isinstance(source, Mapping) else {"train": source}).items():
        part = part_called(called)
        if part not in PART_NAMES:
            raise unknown_name("part", str(called), PART_NAMES)
        if part in given:
            raise InputError(
                f"the {part} part is given more than once, among {', '.join(map(str, source))}; keep one"
            )
        given[part] = content
    if "train" not in given:
        raise InputError(f"there is no train part besides {' and '.join(given)}; parts are {KNOWN_PARTS}")
    parts: dict[str, tuple[Tensor, Array]] = {}
    original: dict[str, tuple[int, int]] = {}
    for part, content in given.items():
        if isinstance(content, tuple):
            x, y, seen = _pair(content, part)
        else:
            x, y, seen = _items(content, part, image, label)
        parts[part] = (x, y)
        if seen is not None:
            original[part] = seen
    names = _class_names(given["train"], label)
    return image_data("images", "memory", parts, class_names=names, original=original, split=split, seed=seed)


def _pair(content: tuple[Any, ...], part: str) -> tuple[Tensor, Array, tuple[int, int] | None]:
    """Pixels, labels and, for a list of images, their original height and width."""
    if len(content) != 2:
        raise InputError(f"{part}: a tuple of {len(content)} objects is not the pair (x, y)")
    x, y = content
    labels = y.detach().cpu().numpy() if isinstance(y, Tensor) else np.asarray(y)
    if _is_pictures(x):
        pixels, original = stacked((f"image {k} of {part}", picture) for k, picture in enumerate(x))
        return pixels, labels, original
    return channels_first(x, part), labels, None


def _is_pictures(x: Any) -> bool:
    """Whether x is a list, or an object array, of images; table rows have one dimension."""
    listed = isinstance(x, (list, tuple)) or (isinstance(x, np.ndarray) and x.dtype == object)
    return listed and len(x) > 0 and all(map(is_picture, x))


def _has_columns(source: Any) -> bool:
    return hasattr(source, "column_names") and hasattr(source, "__getitem__") and hasattr(source, "__len__")


def _columns(source: Any) -> list[str]:
    """Columns of a Hugging Face ``Dataset``, or keys of the first dict in a ``Dataset``; else none."""
    if _has_columns(source):
        return [str(name) for name in source.column_names]
    sized = isinstance(source, Dataset) and hasattr(source, "__len__") and len(source) > 0
    first = source[0] if sized else None
    return [str(name) for name in first] if isinstance(first, Mapping) else []


def _items(
    content: Any, part: str, image: str | None, label: str | None
) -> tuple[Tensor, Array, tuple[int, int]]:
    """Pixels, labels, and original height and width of a data set object."""
    if isinstance(content, IterableDataset) or not hasattr(content, "__len__"):
        raise InputError(
            f"{part}: a {type(content).__name__} has no length; pass a Dataset with __len__ and __getitem__, "
            "or the tensors (x, y)"
        )
    if len(content) == 0:
        raise InputError(f"{part}: the {type(content).__name__} is empty")
    keys: tuple[Any, Any] = (0, 1)
    if columns := _columns(content):
        keys = (
            _column("image", image, columns, IMAGE_COLUMNS),
            _column("label", label, columns, LABEL_COLUMNS),
        )
    labels: list[int] = []

    def pairs() -> Iterator[tuple[str, Any]]:
        for k in range(len(content)):
            item = content[k]
            try:
                picture, number = item[keys[0]], item[keys[1]]
            except (TypeError, IndexError, KeyError) as error:
                raise InputError(
                    f"{part}: example {k} is a {type(item).__name__}, not a pair (image, label)"
                ) from error
            labels.append(_number(number, f"{part}: example {k}"))
            yield f"example {k} of {part}", picture

    x, original = stacked(pairs())
    return x, np.array(labels, np.int64), original


def _column(what: str, given: str | None, columns: list[str], usual: tuple[str, ...]) -> str:
    if given is not None and given not in columns:
        raise unknown_name(f"{what}=", given, columns)
    found = [given] if given is not None else [name for name in usual if name in columns]
    if not found:
        raise InputError(f"{what}= names no column; choose one of: {', '.join(columns)}")
    return found[0]


def _number(value: Any, what: str) -> int:
    array = value.detach().cpu().numpy() if isinstance(value, Tensor) else np.asarray(value)
    if array.size != 1 or array.dtype.kind not in "iu":
        text = " ".join(repr(value).split())[:60]
        raise InputError(f"{what} has the label {text}; one whole number 0 .. classes - 1 is needed")
    return int(array.reshape(()))


def _class_names(source: Any, label: str | None) -> tuple[str, ...]:
    """Names from ``classes`` (torchvision) or ``features[label].names`` (Hugging Face)."""
    names = getattr(source, "classes", None)
    features = getattr(source, "features", None)
    if isinstance(features, Mapping):
        found = [features[key] for key in ((label,) if label else LABEL_COLUMNS) if key in features]
        names = getattr(found[0], "names", None) if found else None
    return tuple(map(str, names)) if isinstance(names, (list, tuple)) else ()
