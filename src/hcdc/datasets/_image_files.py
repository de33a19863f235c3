"""Images from files: ``.npz`` and ``.npy`` arrays, and folders of pictures."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch

from hcdc.core.errors import InputError, require
from hcdc.datasets._image_data import Array, image_data
from hcdc.datasets._images import ImageData
from hcdc.datasets._npz import npz_arrays, npz_names, plain
from hcdc.datasets._pictures import channels_first, stacked
from hcdc.datasets._split import PART_NAMES

SUFFIXES = (".png", ".jpg", ".jpeg")
OTHER_NAMES = {"validation": "val", "valid": "val"}
KNOWN_PARTS = "train, val (or validation, valid) and test"
MOST_BYTES_IN_MEMORY = 4 * 2**30

IMAGE_ARRAYS = "images are x_train, y_train, x_test, y_test (and x_val, y_val if any)"
LAYOUTS = (
    "CLASS/*.{png,jpg,jpeg}, {train,val,test}/CLASS/*.{png,jpg,jpeg}, or x_train.npy, y_train.npy, "
    "x_test.npy, y_test.npy"
)


def read_image_npz(path: Path, *, split: Any = None, seed: int = 0) -> ImageData:
    """``x_train, y_train, x_test, y_test`` (and ``x_val, y_val``); x as in `from_object`."""
    arrays = npz_arrays(path, _array_names(npz_names(path), str(path)))
    return _from_named_arrays(path.stem, str(path), arrays, split, seed)


def _read_npy_folder(root: Path, split: Any, seed: int) -> ImageData:
    """The same arrays as ``.npy`` files; pixels stay on disk until they are used.

    A set above 4 GiB must have its own validation part, since drawing one would copy it into memory.
    """
    found = {file.stem: file for file in root.glob("*.npy")}
    arrays: dict[str, Array] = {}
    for key in _array_names(found, str(root)):
        try:
            arrays[key] = np.load(found[key], mmap_mode="r" if key.startswith("x") else None)
        except (OSError, ValueError, EOFError) as error:
            raise InputError(f"'{found[key]}' cannot be read as a plain array: {plain(error)}") from error
    size = arrays["x_train"].nbytes
    if size > MOST_BYTES_IN_MEMORY and ("x_val" not in arrays or split is not None):
        raise InputError(
            f"'{found['x_train']}' has {size / 2**30:.1f} GiB and stays on disk; above "
            f"{MOST_BYTES_IN_MEMORY >> 30} GiB no validation part can be drawn, so write x_val.npy and "
            "y_val.npy, and leave split= out"
        )
    return _from_named_arrays(root.name, str(root), arrays, split, seed)


def _array_names(found: Iterable[str], where: str) -> list[str]:
    there = set(found)
    wanted = [f"{kind}_{part}" for part in ("train", "test") for kind in "xy"]
    if there & {"x_val", "y_val"}:
        wanted += ["x_val", "y_val"]
    missing = [key for key in wanted if key not in there]
    if missing:
        raise InputError(f"'{where}' lacks the arrays {', '.join(missing)}; {IMAGE_ARRAYS}")
    return wanted


def _from_named_arrays(
    name: str, source: str, arrays: Mapping[str, Array], split: Any, seed: int
) -> ImageData:
    parts = {
        part: (channels_first(arrays[f"x_{part}"], f"x_{part}"), arrays[f"y_{part}"])
        for part in PART_NAMES
        if f"x_{part}" in arrays
    }
    return image_data(name, source, parts, split=split, seed=seed)


def read_image_folder(root: Path, *, split: Any = None, seed: int = 0) -> ImageData:
    """Read ``root/CLASS/*``, ``root/{train,val,test}/CLASS/*``, or a folder of ``.npy`` arrays.

    Classes are numbered in the order of their names. All images must be grey, or all in colour. The
    validation part may be called ``validation`` or ``valid``; part names ignore case. Files in a class folder
    that are not PNG or JPEG are skipped, and the split says how many.

    Args:
        root: The folder.
        split, seed: As in `image_data`.
    """
    if (root / "x_train.npy").is_file():
        return _read_npy_folder(root, split, seed)
    places = _parts(root) or {"train": root}
    names = _subfolders(places["train"])
    if not names:
        raise InputError(f"'{root}' is a folder without class folders; pass a folder of images: {LAYOUTS}")
    files: list[Path] = []
    labels: list[int] = []
    lengths: dict[str, int] = {}
    others = 0
    for part, place in places.items():
        for called in _subfolders(place):
            if called not in names:
                raise InputError(
                    f"'{place / called}' is not a class of '{places['train']}'; allowed are "
                    f"{', '.join(names)}"
                )
            members, left = _image_files(place / called)
            files += members
            others += left
            labels += [names.index(called)] * len(members)
        lengths[part] = len(files) - sum(lengths.values())
    x, original = stacked(_opened(files))
    cuts = np.cumsum(list(lengths.values()))[:-1]
    pixels = torch.tensor_split(x, cuts.tolist())
    parts = dict(zip(lengths, zip(pixels, np.split(np.array(labels, np.int64), cuts))))
    return image_data(
        root.resolve().name,
        str(root),
        parts,
        class_names=tuple(names),
        original=dict.fromkeys(parts, original),
        left_out=f"files left out, not {', '.join(SUFFIXES)}: {others}" if others else "",
        split=split,
        seed=seed,
    )


def part_called(name: Any) -> str:
    """The library's name for a part: ``val`` for ``Validation``; other names in lower case."""
    text = str(name).lower()
    return OTHER_NAMES.get(text, text)


def _parts(root: Path) -> dict[str, Path]:
    """Folders of parts in the order of `PART_NAMES`; empty if the folders are classes."""
    folders = _subfolders(root)
    found = {part: [called for called in folders if part_called(called) == part] for part in PART_NAMES}
    known = sum(map(len, found.values())) == len(folders)
    if not known or not any(_subfolders(root / called) for called in found["train"]):
        return {}
    for part, called in found.items():
        if len(called) > 1:
            raise InputError(f"'{root}' has the {part} part more than once: {', '.join(called)}; keep one")
    return {part: root / called[0] for part, called in found.items() if called}


def _subfolders(root: Path) -> list[str]:
    return sorted(place.name for place in root.iterdir() if place.is_dir() and not place.name.startswith("."))


def _image_files(folder: Path) -> tuple[list[Path], int]:
    """The images in a class folder, and the number of other files."""
    if inner := _subfolders(folder):
        raise InputError(
            f"'{folder / inner[0]}' is a folder in '{folder}', which was read as a class folder of images; "
            f"only {KNOWN_PARTS} may stand above class folders, and train must be there"
        )
    files = sorted(place for place in folder.iterdir() if not place.name.startswith("."))
    images = [file for file in files if file.suffix.lower() in SUFFIXES]
    if not images:
        what = f"holds no image {', '.join(SUFFIXES)} (but '{files[0].name}')" if files else "is empty"
        raise InputError(f"the class folder '{folder}' {what}; put images in it, or remove it")
    return images, len(files) - len(images)


def _opened(files: list[Path]) -> Iterator[tuple[str, Any]]:
    pillow, upright = require("PIL.Image", "image"), require("PIL.ImageOps", "image").exif_transpose
    for file in files:
        try:
            with pillow.open(file) as image:
                image.load()
                yield f"'{file}'", upright(image)  # rotated as the camera recorded
        except (OSError, ValueError, SyntaxError, pillow.DecompressionBombError) as error:
            raise InputError(f"'{file}' cannot be read as an image: {error}") from error
