"""Roads to images: CIFAR, digits, ``.npz`` and ``.npy`` files, folders, arrays and data set objects."""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import tarfile
import tempfile
import urllib.request
import warnings
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from http.client import HTTPException
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset, IterableDataset

from hcdc.core.errors import InputError, require, unknown_name
from hcdc.core.files import locked
from hcdc.core.progress import Progress
from hcdc.datasets._image_data import LONGEST_SIDE, Array, image_data, smaller
from hcdc.datasets._images import ImageData
from hcdc.datasets._npz import npz_arrays, npz_names, plain
from hcdc.datasets._split import PART_NAMES

IMAGE_NAMES = ("cifar10", "cifar100", "digits")
SUFFIXES = (".png", ".jpg", ".jpeg")
IMAGE_COLUMNS = ("image", "img")
LABEL_COLUMNS = ("label", "labels", "fine_label")
COLOUR_MODES = ("RGB", "RGBA", "RGBX", "P", "PA", "CMYK", "YCbCr", "HSV", "LAB")
GREY_MODES = ("1", "L", "LA")
ALPHA_MODES = ("RGBA", "LA", "PA")
OTHER_NAMES = {"validation": "val", "valid": "val"}
KNOWN_PARTS = "train, val (or validation, valid) and test"
MOST_BYTES_IN_MEMORY = 4 * 2**30

IMAGE_ARRAYS = "images are x_train, y_train, x_test, y_test (and x_val, y_val where there are some)"
LAYOUTS = (
    "CLASS/*.{png,jpg,jpeg}, {train,val,test}/CLASS/*.{png,jpg,jpeg}, or x_train.npy, y_train.npy, "
    "x_test.npy, y_test.npy"
)


# --- CIFAR ------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Archive:
    """The binary version of a CIFAR set: records of label bytes followed by 3 x 32 x 32 pixels."""

    url: str
    sha256: str
    folder: str
    train: tuple[str, ...]
    test: str
    names: str
    label_bytes: int
    classes: int
    train_images: int  # a file
    test_images: int
    shuffled_share: float | None


ARCHIVES = {
    "cifar10": _Archive(
        "https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz",
        "c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd",
        "cifar-10-batches-bin",
        tuple(f"data_batch_{k}.bin" for k in range(1, 6)),
        "test_batch.bin",
        "batches.meta.txt",
        label_bytes=1,
        classes=10,
        train_images=10_000,
        test_images=10_000,
        shuffled_share=0.2,  # 10,000 images, as the benchmarks of condensed sets on NAS-Bench-201 hold out
    ),
    "cifar100": _Archive(
        "https://www.cs.toronto.edu/~kriz/cifar-100-binary.tar.gz",
        "58a81ae192c23a4be8b1804d68e518ed807d710a4eb253b1f2a199162a40d8ec",
        "cifar-100-binary",
        ("train.bin",),
        "test.bin",
        "fine_label_names.txt",
        label_bytes=2,  # coarse, then fine
        classes=100,
        train_images=50_000,
        test_images=10_000,
        shuffled_share=None,
    ),
}


def named_images(
    name: str, root: Path, *, download: bool = True, split: Any = None, seed: int = 0
) -> ImageData:
    """One of `IMAGE_NAMES`: CIFAR's binary files under ``root`` (fetched where they are not), or the digits.

    Args:
        name: The name.
        root: Folder that holds ``cifar-10-batches-bin`` or ``cifar-100-binary``.
        download: Fetch an absent CIFAR archive from its authors.
        split, seed: As in `image_data`.
    """
    if name == "digits":
        return _digits(split, seed)
    archive = ARCHIVES[name]
    folder = root / archive.folder
    if _missing(archive, folder):
        _fetch(name, archive, root, download)
    train = [_records(folder / file, archive, archive.train_images) for file in archive.train]
    x, y = (np.concatenate(arrays) for arrays in zip(*train, strict=True))
    test_x, test_y = _records(folder / archive.test, archive, archive.test_images)
    return image_data(
        name,
        "cifar",
        {"train": (torch.from_numpy(x), y), "test": (torch.from_numpy(test_x), test_y)},
        num_classes=archive.classes,
        class_names=_names(folder / archive.names, archive.classes),
        shuffled_share=archive.shuffled_share,
        split=split,
        seed=seed,
    )


def _missing(archive: _Archive, folder: Path) -> list[str]:
    return [file for file in (*archive.train, archive.test) if not (folder / file).is_file()]


def _records(path: Path, archive: _Archive, count: int) -> tuple[Array, Array]:
    """Pixels ``[count, 3, 32, 32]`` and (fine) labels ``[count]`` of one binary file."""
    size = archive.label_bytes + 3 * 32 * 32
    try:
        content = np.fromfile(path, np.uint8)
    except OSError as error:
        raise InputError(f"'{path}' cannot be read: {error}") from error
    if len(content) == 0 or len(content) % size:
        raise InputError(
            f"'{path}' has {len(content)} bytes, which is not a whole number of records of {size} bytes; "
            "remove it and load the set again"
        )
    records = content.reshape(-1, size)
    if len(records) != count:
        raise InputError(
            f"'{path}' has {len(records):,} images, and the official file has {count:,}; remove it and load "
            "the set again, or pass your own images as an .npz or a folder"
        )
    return records[:, archive.label_bytes :].reshape(-1, 3, 32, 32), records[:, archive.label_bytes - 1]


def _names(path: Path, classes: int) -> tuple[str, ...]:
    """Class names, one a line; none where the file is absent or has another number of them."""
    try:
        names = tuple(path.read_text(encoding="utf-8").split())
    except (OSError, UnicodeDecodeError):
        return ()
    return names if len(names) == classes else ()


def _fetch(name: str, archive: _Archive, root: Path, download: bool) -> None:
    """Download the archive, check it and unpack the files that are read, all of them or none."""
    folder = root / archive.folder
    reason = "download=False was given"
    if download:
        new = [place for place in (folder, *folder.parents) if not place.exists()]
        try:
            with locked(folder / ".hcdc.lock"):
                if not _missing(archive, folder):  # another process was faster
                    return
                with tempfile.TemporaryDirectory(dir=folder, prefix=".download-") as temporary:
                    _download(name, archive, Path(temporary, "archive.tar.gz"))
                    _unpack(archive, Path(temporary), folder)
                return
        except (OSError, EOFError, ValueError, KeyError, HTTPException, tarfile.TarError) as error:
            with contextlib.suppress(OSError):
                (folder / ".hcdc.lock").unlink()
            for place in new:
                with contextlib.suppress(OSError):
                    place.rmdir()
            text = " ".join(str(error).split())[:160]
            reason = f"it could not be downloaded ({type(error).__name__}: {text})"
    raise InputError(
        f"{name} is not in '{folder}' and {reason}; set HCDC_DATA to a folder that holds {archive.folder} "
        f"with {archive.train[0]} .. {archive.test}, or use the images that need no download: 'digits'"
    )


def _download(name: str, archive: _Archive, target: Path) -> None:
    digest = hashlib.sha256()
    with urllib.request.urlopen(archive.url, timeout=30) as stream, open(target, "wb") as file:
        total, done = int(stream.headers.get("Content-Length") or 0), 0
        phase = Progress().phase(f"download of {name} (MiB)", max(1, total >> 20))
        while block := stream.read(1 << 20):
            digest.update(block)
            file.write(block)
            done += len(block)
            phase.step(done >> 20)
    if digest.hexdigest() != archive.sha256:
        raise ValueError(f"the sha256 of {archive.url} is {digest.hexdigest()}, not {archive.sha256}")


def _unpack(archive: _Archive, temporary: Path, folder: Path) -> None:
    files = (archive.names, archive.test, *archive.train)
    with tarfile.open(temporary / "archive.tar.gz", "r:gz") as tar:
        for file in files:
            member = tar.extractfile(f"{archive.folder}/{file}")
            if member is None:
                raise ValueError(f"{file} of the archive is not a plain file")
            with member, open(temporary / file, "wb") as out:
                shutil.copyfileobj(member, out)
    for file in files:
        os.replace(temporary / file, folder / file)


# --- images that come with scikit-learn -------------------------------------------------------------------


def _digits(split: Any, seed: int) -> ImageData:
    """1,797 handwritten digits of 8 x 8 grey pixels; their 17 levels 0 .. 16 are spread over 0 .. 255.

    Three of eight that are not test images are for validation: with the 143 of the usual share, which
    networks are better would be chance.
    """
    found = require("sklearn.datasets", "learn").load_digits()
    x = np.round(found.images * (255 / 16)).astype(np.uint8)
    return image_data(
        "digits",
        "scikit-learn",
        {"train": (torch.from_numpy(x)[:, None], found.target)},
        val_share=3 / 8,
        split=split,
        seed=seed,
    )


# --- files of arrays --------------------------------------------------------------------------------------


def read_image_npz(path: Path, *, split: Any = None, seed: int = 0) -> ImageData:
    """``x_train, y_train, x_test, y_test`` (and ``x_val, y_val``); x as in `from_object`."""
    arrays = npz_arrays(path, _array_names(npz_names(path), str(path)))
    return _from_named_arrays(path.stem, str(path), arrays, split, seed)


def _read_npy_folder(root: Path, split: Any, seed: int) -> ImageData:
    """The same arrays as ``.npy`` files, which stay on disk: pixels are read where they are used.

    A set above 4 GiB must bring its validation part, for drawing one would copy it into memory.
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
            f"'{found['x_train']}' has {size / 2**30:.1f} GiB and stays on disk, where no validation part "
            f"can be drawn from it (above {MOST_BYTES_IN_MEMORY >> 30} GiB); write x_val.npy and y_val.npy, "
            "and leave split= out"
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
        part: (_channels_first(arrays[f"x_{part}"], f"x_{part}"), arrays[f"y_{part}"])
        for part in PART_NAMES
        if f"x_{part}" in arrays
    }
    return image_data(name, source, parts, split=split, seed=seed)


# --- folders ----------------------------------------------------------------------------------------------


def read_image_folder(root: Path, *, split: Any = None, seed: int = 0) -> ImageData:
    """A folder ``root/CLASS/*``, ``root/{train,val,test}/CLASS/*``, or of ``.npy`` arrays.

    Classes are numbered in the order of their names. Images are grey if all are, else colour. The validation
    part may be called ``validation`` or ``valid``, and names of parts may have capital letters. Files in a
    class folder that are not PNG or JPEG are left out, and the split says how many.

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
    x, original = _stack(_opened(files))
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


def _part(name: Any) -> str:
    """What a part is called here: ``val`` for ``Validation``; other names in lower case."""
    text = str(name).lower()
    return OTHER_NAMES.get(text, text)


def _parts(root: Path) -> dict[str, Path]:
    """Folders of parts in the order of `PART_NAMES`; none where the folders are classes."""
    folders = _subfolders(root)
    found = {part: [called for called in folders if _part(called) == part] for part in PART_NAMES}
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
    """The images of a class folder, and how many other files it holds."""
    if inner := _subfolders(folder):
        raise InputError(
            f"'{folder / inner[0]}' is a folder in '{folder}', which was read as a class folder of images; "
            f"the folders above classes may be {KNOWN_PARTS}, train among them, and no others"
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
                yield f"'{file}'", upright(image)  # as a camera noted it was held
        except (OSError, ValueError, SyntaxError, pillow.DecompressionBombError) as error:
            raise InputError(f"'{file}' cannot be read as an image: {error}") from error


# --- objects ----------------------------------------------------------------------------------------------


def is_images(source: Any) -> bool:
    """Whether an object is one of those that `from_object` reads."""
    if isinstance(source, Mapping):
        return any(_part(name) in PART_NAMES for name in source)
    if isinstance(source, tuple) and len(source) == 2:
        return getattr(source[0], "ndim", 0) in (3, 4) or _is_pictures(source[0])
    return isinstance(source, Dataset) or _has_columns(source)


def takes_columns(source: Any) -> bool:
    """Whether an object is a Hugging Face ``Dataset``, a ``Dataset`` of dicts, or a mapping with one."""
    if isinstance(source, Mapping):
        return any(map(takes_columns, source.values()))
    return bool(_columns(source))


def from_object(
    source: Any, *, image: str | None = None, label: str | None = None, split: Any = None, seed: int = 0
) -> ImageData:
    """Images from memory.

    Args:
        source: ``(x, y)`` with x ``[m, h, w]`` (grey), ``[m, c, h, w]`` or ``[m, h, w, c]``, or a list of
            images of one size; a torch ``Dataset`` of pairs (image, label) or of dicts, where an image is a
            PIL image, an array or a tensor; a Hugging Face ``Dataset``; or a mapping of ``"train"`` and
            possibly ``"val"`` (``"validation"``, ``"valid"``) and ``"test"`` to any of these.
        image, label: Columns of a Hugging Face ``Dataset``, keys of dicts; by default ``image`` or ``img``,
            and ``label``, ``labels`` or ``fine_label``.
        split, seed: As in `image_data`.
    """
    given: dict[str, Any] = {}
    for called, content in (source if isinstance(source, Mapping) else {"train": source}).items():
        part = _part(called)
        if part not in PART_NAMES:
            raise unknown_name("part", str(called), PART_NAMES)
        if part in given:
            raise InputError(
                f"the {part} part is given more than once, among {', '.join(map(str, source))}; keep one"
            )
        given[part] = content
    if "train" not in given:
        raise InputError(f"there is no train part beside {' and '.join(given)}; parts are {KNOWN_PARTS}")
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
    """Pixels and labels, and height and width as they came of images that came one by one."""
    if len(content) != 2:
        raise InputError(f"{part}: a tuple of {len(content)} objects is not the pair (x, y)")
    x, y = content
    labels = y.detach().cpu().numpy() if isinstance(y, Tensor) else np.asarray(y)
    if _is_pictures(x):
        stacked, original = _stack((f"image {k} of {part}", picture) for k, picture in enumerate(x))
        return stacked, labels, original
    return _channels_first(x, part), labels, None


def _is_pictures(x: Any) -> bool:
    """Whether x is a list (or an array of objects) of images; rows of a table have one dimension."""
    listed = isinstance(x, (list, tuple)) or (isinstance(x, np.ndarray) and x.dtype == object)
    return listed and len(x) > 0 and all(map(_is_picture, x))


def _is_picture(one: Any) -> bool:
    return _is_pil(one) or (isinstance(one, (np.ndarray, Tensor)) and one.ndim in (2, 3))


def _is_pil(picture: Any) -> bool:
    return hasattr(picture, "mode") and hasattr(picture, "convert")


def _channels_first(x: Any, what: str) -> Tensor:
    """Pixels as ``[m, c, h, w]``; ``[m, h, w]`` is grey, ``[m, h, w, c]`` is turned (a mapped file in place).

    Where both ends could be channels, a tensor has them first and an array last.
    """
    if isinstance(x, Tensor):
        tensor, first = x.detach().cpu(), True
    else:
        array, first = np.asarray(x), False
        if min(array.strides, default=0) < 0:  # e.g. BGR turned to RGB, which torch cannot view
            array = array.copy()
        try:
            with warnings.catch_warnings():  # a file mapped for reading makes a tensor that nobody writes to
                warnings.filterwarnings("ignore", message=".*not writable.*")
                tensor = torch.from_numpy(array)
        except (TypeError, ValueError) as error:
            raise InputError(
                f"{what}: images have type {array.dtype}; uint8 (0 .. 255) or floating point is needed"
            ) from error
    if tensor.dim() == 3:
        return tensor[:, None]
    if tensor.dim() != 4:
        raise InputError(
            f"{what}: images have shape {tuple(tensor.shape)}; needed is [m, h, w], [m, h, w, c] or "
            "[m, c, h, w]"
        )
    leading, trailing = tensor.shape[1] in (1, 3), tensor.shape[3] in (1, 3)
    if not trailing or (leading and first):
        return tensor
    turned = tensor.permute(0, 3, 1, 2)
    return turned if isinstance(x, np.memmap) else turned.contiguous()


def _has_columns(source: Any) -> bool:
    return hasattr(source, "column_names") and hasattr(source, "__getitem__") and hasattr(source, "__len__")


def _columns(source: Any) -> list[str]:
    """Columns of a Hugging Face ``Dataset``, or keys of the first of a ``Dataset`` of dicts; else none."""
    if _has_columns(source):
        return [str(name) for name in source.column_names]
    sized = isinstance(source, Dataset) and hasattr(source, "__len__") and len(source) > 0
    first = source[0] if sized else None
    return [str(name) for name in first] if isinstance(first, Mapping) else []


def _items(
    content: Any, part: str, image: str | None, label: str | None
) -> tuple[Tensor, Array, tuple[int, int]]:
    """Pixels, labels, and height and width as they came, of a data set object."""
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

    x, original = _stack(pairs())
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
    """Names in ``classes`` (torchvision) or in ``features[label].names`` (Hugging Face)."""
    names = getattr(source, "classes", None)
    features = getattr(source, "features", None)
    if isinstance(features, Mapping):
        found = [features[key] for key in ((label,) if label else LABEL_COLUMNS) if key in features]
        names = getattr(found[0], "names", None) if found else None
    return tuple(map(str, names)) if isinstance(names, (list, tuple)) else ()


# --- one image at a time ----------------------------------------------------------------------------------


def _stack(pictures: Iterable[tuple[str, Any]]) -> tuple[Tensor, tuple[int, int]]:
    """Pictures of one size as ``[m, c, h, w]``, longer side at most 64; and their height and width before.

    Each is made smaller as it comes, so that large photographs need little memory. Grey pictures among
    coloured ones get three equal channels.
    """
    made: list[Tensor] = []
    first = ""
    size = (0, 0)
    for where, picture in pictures:
        x = _one(picture, where)
        now = (x.shape[1], x.shape[2])
        if not made:
            first, size = where, now
        elif now != size or x.dtype != made[0].dtype:
            raise InputError(
                f"images of mixed shapes: {first} is {_by(size)} {_kind(made[0])}, {where} is {_by(now)} "
                f"{_kind(x)} (height x width); bring all to one shape and type"
            )
        made.append(smaller(x[None])[0] if max(now) > LONGEST_SIDE else x)
    if len({x.shape[0] for x in made}) > 1:
        made = [x.expand(3, -1, -1) for x in made]
    return torch.stack(made), size


def _one(picture: Any, where: str) -> Tensor:
    """One picture as ``[c, h, w]``; transparent pixels of a PIL image show a white ground."""
    if _is_pil(picture):
        if picture.mode not in (*GREY_MODES, *COLOUR_MODES):
            raise InputError(
                f"{where} is an image of mode {picture.mode}; 8 bits a channel are needed, grey or colour"
            )
        picture = np.array(_opaque(picture).convert("L" if picture.mode in GREY_MODES else "RGB"))
    if getattr(picture, "ndim", 0) not in (2, 3):
        raise InputError(
            f"{where} is a {type(picture).__name__} and no image; a PIL image, an array or a tensor [h, w], "
            "[c, h, w] or [h, w, c] is needed"
        )
    x = _channels_first(picture[None], where)[0]
    if x.shape[0] not in (1, 3):
        raise InputError(f"{where} has shape {tuple(x.shape)}; 1 channel (grey) or 3 (colour) are needed")
    return x


def _opaque(picture: Any) -> Any:
    """A PIL image over white where it has transparency, be it in a channel, a palette or one colour."""
    if picture.mode not in ALPHA_MODES and "transparency" not in picture.info:
        return picture
    above = picture.convert("RGBA")
    pillow = require("PIL.Image", "image")
    return pillow.alpha_composite(pillow.new("RGBA", above.size, "white"), above)


def _by(size: tuple[int, int]) -> str:
    return " x ".join(map(str, size))


def _kind(x: Tensor) -> str:
    return str(x.dtype).removeprefix("torch.")
