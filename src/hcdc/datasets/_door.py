"""The one entry to data: turns a name, a path or an object into `GraphData`, `TableData` or `ImageData`."""

from __future__ import annotations

import dataclasses
import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from hcdc.core.errors import InputError, unknown_name
from hcdc.core.seeds import check_seed
from hcdc.datasets._arxiv import arxiv
from hcdc.datasets._dataset import Dataset
from hcdc.datasets._embedded import embedded
from hcdc.datasets._graph import GraphData
from hcdc.datasets._image_files import IMAGE_ARRAYS, read_image_folder, read_image_npz
from hcdc.datasets._image_objects import from_object, is_images, takes_columns
from hcdc.datasets._images import ImageData
from hcdc.datasets._named_images import IMAGE_NAMES, named_images
from hcdc.datasets._npz import GRAPH_LAYOUT, npz_names, read_npz
from hcdc.datasets._pyg import PLACES, from_pyg, is_pyg, named, several
from hcdc.datasets._table import TableData
from hcdc.datasets._tabular import TABLE_SUFFIXES, from_arrays, from_frame, read_table

EMBEDDED = ("citeseer-embedded", "embedded")
Reader = TypeVar("Reader", bound=Callable[..., Dataset])
NAMES = (*PLACES, "ogbn-arxiv", *EMBEDDED, *IMAGE_NAMES)
READERS: dict[str, Callable[..., Dataset]] = {}
"""Readers registered by users and plugins, by name."""
FILES = "a name (see hcdc.datasets.NAMES) or a path (.npz, .csv, .parquet, a folder of images)"
OBJECTS = (  # only in Python
    ", or an object: a PyG Data, a pandas DataFrame with target=, a torch or Hugging Face Dataset of images, "
    "or arrays (x, y)"
)
ROADS = FILES + OBJECTS


def register_data(name: str) -> Callable[[Reader], Reader]:
    """Decorator: give your own data a name for `hcdc.data` and ``--dataset``.

    The reader takes ``seed`` and returns a `Dataset`; equal arguments must give equal data.
    """

    def register(reader: Reader) -> Reader:
        if _plain(name) in map(_plain, NAMES):
            raise InputError(f"data '{name}' is one of the library's own names; choose another")
        READERS[_plain(name)] = reader
        return reader

    return register


def load(
    source: Any,
    *,
    root: str | os.PathLike[str] | None = None,
    target: str | None = None,
    seed: int = 0,
    split: Any = None,
    download: bool = True,
    image: str | None = None,
    label: str | None = None,
) -> Dataset:
    """Read data for node classification (`GraphData`), a table task (`TableData`) or images (`ImageData`).

    Args:
        source: A name in `NAMES`; a path to an ``.npz`` graph in the gnn-benchmark layout or to a CSV or
            Parquet table; images as an ``.npz`` (``x_train, y_train, x_test, y_test``) or a folder (see
            `read_image_folder`); a PyG ``Data``; a pandas ``DataFrame``; a tuple ``(x, y)`` of arrays, images
            if x has three or four dimensions; image data sets (see `from_object`); or a `Dataset`.
        root: Folder of the named sets; default ``$HCDC_DATA``, then ``~/.cache/hcdc``.
        target: Column to predict, for tables only.
        seed: Seed for a seeded split.
        split: None uses the data's own split, or a seeded one if it has none; ``"seeded"`` always makes one;
            three index arrays or masks (train, val, test) are used as given.
        download: Download a named set that is not under ``root``.
        image, label: Columns of a Hugging Face ``Dataset`` of images, or keys of a ``Dataset`` of dicts.

    Returns:
        The data; its ``split`` says in words how the split was made.

    Example:
        >>> hcdc.data("citeseer-embedded").num_classes
        6
    """
    check_seed(seed)
    if isinstance(source, Dataset):
        return source
    if (image is not None or label is not None) and not takes_columns(source):
        raise InputError(
            f"image {image!r} and label {label!r} name columns of a Hugging Face Dataset, or keys "
            f"of a Dataset of dicts, but a {type(source).__name__} has none; leave them out"
        )
    if isinstance(source, (str, os.PathLike)):
        if (own := _plain(os.fspath(source))) in READERS:
            return dataclasses.replace(READERS[own](seed=seed), origin={"source": own, "seed": seed})  # type: ignore[type-var]
        data = _from_text(os.fspath(source), root, target, seed, split, download)
        if split is not None and not isinstance(split, str):
            return data
        text, place = data.name, data.source
        if _plain(os.fspath(source)) not in map(_plain, NAMES):
            text = place = os.path.abspath(source)
        origin = {"source": text, "seed": seed, "target": target, "split": split}
        return dataclasses.replace(
            data, source=place, origin={key: value for key, value in origin.items() if value is not None}
        )
    pandas = sys.modules.get("pandas")
    if pandas is not None and isinstance(source, pandas.DataFrame):
        return from_frame(source, target, split=split, seed=seed)
    if target is not None:
        raise InputError(
            f"target '{target}' names a column, which only tables with named columns have; leave it out"
        )
    if is_pyg(source):
        return from_pyg(source, split=split, seed=seed)
    if is_images(source):
        return from_object(source, image=image, label=label, split=split, seed=seed)
    if isinstance(source, (list, tuple)):
        return _from_sequence(source, seed, split)
    raise InputError(f"an object of type {type(source).__name__} is not supported as data; pass {ROADS}")


def reopen(description: Mapping[str, Any], download: bool = True) -> Dataset:
    """Read the data that ``meta["data"]`` of a condensed file describes; refuse changed content."""
    origin = dict(description.get("origin") or {})
    if "source" not in origin:
        raise InputError(
            f"the data '{description.get('name')}' was passed in memory, so it cannot be read again "
            "from the condensed file; pass a task on it in Python, hcdc.evaluate(copy, task=...) or "
            "copy.score(config, task=...)"
        )
    source = origin.pop("source")
    if _plain(source) not in (*map(_plain, NAMES), *READERS) and not os.path.exists(source):
        raise InputError(
            f"the data '{source}', from which the condensed file was made, does not exist; put it back, or "
            "pass a task on the data in Python, hcdc.evaluate(copy, task=...) or copy.score(config, task=...)"
        )
    data = load(source, download=download, **origin)
    found, wanted = data.fingerprint(), description.get("fingerprint")
    if found != wanted:
        raise InputError(
            f"the data '{data.name}' has changed since the condensed file was made (fingerprint {found}, "
            f"the file has {wanted}); condense it again, or pass the original data in "
            "Python, hcdc.evaluate(copy, task=...)"
        )
    return data


def _plain(name: str) -> str:
    return name.lower().replace("-", "_")


def _from_text(
    text: str, root: Any, target: str | None, seed: int, split: Any, download: bool
) -> GraphData | TableData | ImageData:
    name = _plain(text)
    path = Path(text)
    names = {_plain(known) for known in NAMES}
    table, exists = text.lower().endswith(TABLE_SUFFIXES), os.path.exists(text)
    if name not in names and not path.suffix and path.name == text and not exists:
        if len(text.split()) > 1:
            raise InputError(f"raw text is not supported as data; encode it as numbers and pass {ROADS}")
        raise unknown_name("dataset", text, (*NAMES, *READERS))
    if name not in names and not exists:
        raise InputError(f"the file '{text}' does not exist; pass {ROADS}")
    if target is not None and not table:
        raise InputError(
            f"target '{target}' names a column of a table, but '{text}' is not a table; leave it out"
        )
    if name in names:
        place = Path(root or os.environ.get("HCDC_DATA") or Path.home() / ".cache" / "hcdc")
        if name in map(_plain, EMBEDDED):
            return embedded(split=split, seed=seed)
        if name == "ogbn_arxiv":
            return arxiv(place, split=split, seed=seed)
        if name in IMAGE_NAMES:
            return named_images(name, place, download=download, split=split, seed=seed)
        return named(name, place, download=download, split=split, seed=seed)
    if path.is_dir():
        return read_image_folder(path, split=split, seed=seed)
    if table:
        return read_table(path, target=target, split=split, seed=seed)
    if path.suffix.lower() == ".npz":
        return _from_npz(path, seed, split)
    raise _unreadable(text, path.suffix.lower())


def _from_npz(path: Path, seed: int, split: Any) -> GraphData | ImageData:
    """Images or a graph, told apart by the names of the arrays."""
    found = npz_names(path)
    if "x_train" not in found and any(name.startswith("adj_") for name in found):
        return read_npz(path, split=split, seed=seed)
    if {"x_train", "y_train", "x_test", "y_test"} & set(found):
        return read_image_npz(path, split=split, seed=seed)
    has = f"has the arrays {', '.join(found[:8])}{', ...' * (len(found) > 8)}" if found else "has no array"
    raise InputError(f"'{path}' {has}; {IMAGE_ARRAYS}; {GRAPH_LAYOUT}")


def _unreadable(text: str, suffix: str) -> InputError:
    roads = {
        ".txt": "raw text is not supported: encode it as numbers in a .csv table, and pass target=",
        ".json": "JSON is not supported: write a .csv or .parquet table and pass target=",
        ".pt": "PyTorch files may hold code: open it yourself and pass the Data object or the arrays (x, y)",
        ".npy": "one array has no labels: pass arrays (x, y), or an .npz graph",
        ".hcdc": "it is a condensed file: open it with CondensedDataset.load, or 'hcdc inspect'",
    }
    return InputError(f"'{text}' cannot be used as data; {roads.get(suffix, 'pass ' + ROADS)}")


def _from_sequence(source: Any, seed: int, split: Any) -> GraphData | TableData:
    if len(source) and all(is_pyg(item) for item in source):
        if len(source) > 1:
            raise several(len(source))
        return from_pyg(source[0], split=split, seed=seed)
    if len(source) and all(isinstance(item, str) for item in source):
        raise InputError(
            "raw text is not supported, but a list of texts was given; encode it as numbers, pass (x, y)"
        )
    if not isinstance(source, tuple) or len(source) != 2:
        raise InputError(
            f"a {type(source).__name__} of {len(source)} objects is not supported as data; pass the "
            "tuple (x, y)"
        )
    return from_arrays(*source, split=split, seed=seed)
