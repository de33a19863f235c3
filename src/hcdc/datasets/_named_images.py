"""Images by name: CIFAR in its binary form, and scikit-learn's digits."""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import tarfile
import tempfile
import urllib.request
from dataclasses import dataclass
from http.client import HTTPException
from pathlib import Path
from typing import Any

import numpy as np
import torch

from hcdc.core.errors import InputError, require
from hcdc.core.files import locked
from hcdc.core.progress import Progress
from hcdc.datasets._image_data import Array, image_data
from hcdc.datasets._images import ImageData

IMAGE_NAMES = ("cifar10", "cifar100", "digits")


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
    train_images: int  # per file
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
        shuffled_share=0.2,  # 10,000 images, as in published benchmarks of condensed sets on NAS-Bench-201
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
    """One of `IMAGE_NAMES`: CIFAR's binary files under ``root`` (fetched if missing), or the digits.

    Args:
        name: The name.
        root: Folder that holds ``cifar-10-batches-bin`` or ``cifar-100-binary``.
        download: Fetch a missing CIFAR archive from its authors.
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
            f"'{path}' has {len(records):,} images, but the official file has {count:,}; remove it and load "
            "the set again, or pass your own images as an .npz or a folder"
        )
    return records[:, archive.label_bytes :].reshape(-1, 3, 32, 32), records[:, archive.label_bytes - 1]


def _names(path: Path, classes: int) -> tuple[str, ...]:
    """Class names, one per line; none if the file is missing or their number is wrong."""
    try:
        names = tuple(path.read_text(encoding="utf-8").split())
    except (OSError, UnicodeDecodeError):
        return ()
    return names if len(names) == classes else ()


def _fetch(name: str, archive: _Archive, root: Path, download: bool) -> None:
    """Download the archive, check it and unpack the files needed, all or none."""
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


def _digits(split: Any, seed: int) -> ImageData:
    """1,797 handwritten digits of 8 x 8 grey pixels, rescaled from levels 0 .. 16 to 0 .. 255.

    Three in eight of the non-test images are for validation. The usual share, 143 images, would be too few to
    tell good networks from bad.
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
