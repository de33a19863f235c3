"""From pixels and labels to `ImageData`: checks, resizing, a split, channel statistics."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from hcdc.core.errors import InputError
from hcdc.core.seeds import numpy_stream
from hcdc.datasets._dataset import CHUNK
from hcdc.datasets._images import ImageData, Images, channel_statistics
from hcdc.datasets._split import PART_NAMES, chosen

log = logging.getLogger("hcdc")

LONGEST_SIDE = 64
TEST_SHARE = 0.2
FEW, FEW_PER_CLASS = 50, 5
"""Validation images, in total and per class, below which a warning is due."""
VALIDATION_SHARE = 0.1

Array = NDArray[Any]


def smaller(x: Tensor) -> Tensor:
    """Shrink images ``[m, c, h, w]`` to at most 64 pixels on the longer side, by averaging over areas."""
    height, width = x.shape[2:]
    longest = max(height, width)
    if longest <= LONGEST_SIDE:
        return x
    size = [max(1, round(side * LONGEST_SIDE / longest)) for side in (height, width)]
    chunks = []
    for chunk in torch.split(x, 64):
        small = functional.interpolate(chunk.float(), size, mode="area")
        chunks.append(small.round_().to(x.dtype) if x.dtype == torch.uint8 else small.to(x.dtype))
    return torch.cat(chunks)


def image_data(
    name: str,
    source: str,
    parts: Mapping[str, tuple[Tensor, Array]],
    *,
    num_classes: int | None = None,
    class_names: tuple[str, ...] = (),
    shuffled_share: float | None = None,
    val_share: float = VALIDATION_SHARE,
    original: Mapping[str, tuple[int, int]] | None = None,
    left_out: str = "",
    split: Any = None,
    seed: int = 0,
) -> ImageData:
    """Check images and labels, split them and measure the channels.

    All parts must have one size, type and number of channels. Without a test part, 20 % of the images of each
    class are drawn for it. Without a validation part, ``val_share`` of each class's remaining training images
    are. Each draw takes at least one image per class.

    Args:
        name, source: As in `ImageData`.
        parts: ``"train"`` and possibly ``"val"`` and ``"test"``: pixels ``[m, c, h, w]`` and labels ``[m]``.
        num_classes: Number of classes; by default the number of names, else the largest label plus 1.
        class_names: One name per class; the class numbers by default.
        shuffled_share: For validation, take this share at the end of a seeded shuffle of all training images,
            instead of drawing class by class.
        val_share: Share drawn for validation, class by class.
        original: Height and width of each part before a reader shrank its images.
        left_out: What a reader skipped, in words.
        split: None; ``"seeded"`` to redraw validation from the training and validation images; or three index
            arrays into the images in the order training, validation, test.
        seed: Seed of the draws.
    """
    labels = {part: _labels(y, len(x), f"{name}, {part}") for part, (x, y) in parts.items()}
    pixels = {part: _pixels(x, f"{name}, {part}") for part, (x, _) in parts.items()}
    before = {part: (x.shape[2], x.shape[3]) for part, x in pixels.items()} | dict(original or {})
    for part, x in pixels.items():
        first = pixels["train"]
        if before[part] != before["train"] or (x.dtype, x.shape[1]) != (first.dtype, first.shape[1]):
            forms = [_form(pixels[one], before[one]) for one in ("train", part)]
            raise InputError(
                f"{name}: images of mixed shapes: train has {forms[0]}, {part} has {forms[1]}; bring all to "
                "one shape and type"
            )
    count = _classes(labels, num_classes or len(class_names) or None, name)
    names = class_names or tuple(map(str, range(count)))
    pixels = {part: smaller(x) for part, x in pixels.items()}
    divided, words = _divide(pixels, labels, shuffled_share, val_share, split, seed, name)
    train, val, test = divided
    absent = {
        part: np.setdiff1d(np.arange(count), images.y.numpy()) for part, images in zip(PART_NAMES, divided)
    }
    if len(absent["train"]):
        missing = int(absent["train"][0])
        called = f"{missing} ('{class_names[missing]}')" if class_names else f"{missing}"
        there = [part for part in ("val", "test") if missing not in absent[part]]
        other = f" (there are some in {' and '.join(there)})" if there else ""
        raise InputError(
            f"{name}: class {called} has no training image{other}; every class needs at least one"
        )
    for part in ("val", "test"):
        if len(absent[part]):
            words += f"; no image in {part} of {_some([names[c] for c in absent[part]])}"
    after = (train.x.shape[2], train.x.shape[3])
    if before["train"] != after:
        shapes = " to ".join(f"{height} x {width}" for height, width in (before["train"], after))
        words += f"; images resized from {shapes} pixels (averages over areas)"
    words += f"; {left_out}" if left_out else ""
    log.info("%s: %s", name, words)
    drawn = "val" not in parts and not isinstance(split, (tuple, list))
    if drawn and (len(val) < FEW or int(np.bincount(val.y.numpy()).min()) < FEW_PER_CLASS):
        log.warning(
            "%s: only %d validation images were set apart, so scores are coarse and noisy; put more into a "
            "folder val/ beside train/, or pass split=(train, val, test) in Python", name, len(val),
        )  # fmt: skip
    mean, std = channel_statistics(train.x)
    return ImageData(
        name=name,
        source=source,
        train=train,
        val=val,
        test=test,
        num_classes=count,
        mean=mean,
        std=std,
        class_names=names,
        split=words,
    )


def _form(x: Tensor, size: tuple[int, int]) -> str:
    return f"{' x '.join(map(str, (x.shape[1], *size)))} {str(x.dtype).removeprefix('torch.')}"


def _some(names: list[str]) -> str:
    """The number of classes and the first three names."""
    text = ", ".join([*(f"'{name}'" for name in names[:3]), *["..."][: len(names) > 3]])
    return f"class {text}" if len(names) == 1 else f"{len(names)} classes ({text})"


def _pixels(x: Tensor, what: str) -> Tensor:
    if x.dim() != 4 or x.shape[1] not in (1, 3):
        raise InputError(
            f"{what}: images have shape {tuple(x.shape)}; [m, c, h, w] with 1 channel (grey) or 3 (colour) "
            "is needed"
        )
    if len(x) == 0 or x.shape[2] == 0 or x.shape[3] == 0:
        raise InputError(f"{what}: there are no images (shape {tuple(x.shape)})")
    if x.dtype == torch.uint8:
        return x
    if not x.is_floating_point():
        raise InputError(
            f"{what}: images have type {str(x.dtype).removeprefix('torch.')}; uint8 (0 .. 255) or floating "
            "point is needed"
        )
    x = x.detach().float()
    for k, chunk in enumerate(torch.split(x, CHUNK)):
        bad = ~chunk.isfinite().flatten(1).all(1)
        if bad.any():
            at = k * CHUNK + int(bad.nonzero()[0])
            raise InputError(f"{what}: image {at} holds NaN or infinity (as float32); fill or drop it")
    return x


def _labels(y: Array, count: int, what: str) -> Array:
    if y.ndim == 2 and y.shape[1] == 1:
        y = y[:, 0]
    if y.ndim != 1:
        raise InputError(
            f"{what}: labels have shape {y.shape}; one class number per image is needed (from one-hot: "
            "y.argmax(1))"
        )
    if len(y) != count:
        raise InputError(
            f"{what}: there are {count} images and {len(y)} labels; one label per image is needed"
        )
    if y.dtype.kind not in "iu":
        raise InputError(f"{what}: labels have type {y.dtype}; integers 0 .. classes - 1 are needed")
    return y.astype(np.int64)


def _classes(labels: Mapping[str, Array], known: int | None, name: str) -> int:
    """The number of classes; refuse labels outside 0 .. classes - 1."""
    for part, y in labels.items():
        low, high = int(y.min()), int(y.max())
        if low < 0 or (known is not None and high >= known):
            wrong = low if low < 0 else high
            raise _out_of_range(f"{name}, {part}", wrong, "classes - 1" if known is None else known - 1)
    found = np.unique(np.concatenate(list(labels.values())))
    low, high = int(found[0]), int(found[-1])
    if len(found) < 2:
        raise InputError(f"{name}: all labels are {low}; at least 2 classes are needed")
    if known is not None:
        return known
    if low > 0:
        raise InputError(
            f"{name}: labels start at {low} ({low} .. {high}); they must start at 0 (subtract {low})"
        )
    if high >= len(found):
        empty = int(np.flatnonzero(found != np.arange(len(found)))[0])
        beyond = [part for part, y in labels.items() if y.max() > empty]
        if "train" not in beyond and empty > 1:
            raise _out_of_range(f"{name}, {beyond[0]}", int(labels[beyond[0]].max()), empty - 1)
        raise InputError(
            f"{name}: class {empty} is empty, but labels go up to {high}; number the classes without gaps"
        )
    return len(found)


def _out_of_range(what: str, label: int, last: int | str) -> InputError:
    return InputError(f"{what}: label {label} is out of range; 0 .. {last} is allowed")


def _divide(
    pixels: dict[str, Tensor],
    labels: dict[str, Array],
    shuffled_share: float | None,
    val_share: float,
    split: Any,
    seed: int,
    name: str,
) -> tuple[tuple[Images, Images, Images], str]:
    """The three parts and the split in words."""
    own = [part for part in PART_NAMES if part in pixels]
    if split is not None:
        drawn = chosen(split, sum(map(len, labels.values())))
        pool = own if drawn is not None else [part for part in own if part != "test"]
        x, y = torch.cat([pixels[p] for p in pool]), np.concatenate([labels[p] for p in pool])
        if drawn is not None:
            train, val, test = (Images(_rows(x, part), torch.from_numpy(y[part])) for part in drawn)
            return (train, val, test), f"split given by the caller: {_sizes(train, val, test)} images"
        pixels, labels = {**pixels, "train": x}, {**labels, "train": y}
        own = ["train", *(part for part in own if part == "test")]
    parts = {part: (pixels[part], labels[part]) for part in own}
    rng = numpy_stream(seed, "split")
    words = []
    for part, share in (("test", TEST_SHARE), ("val", val_share)):
        if part in parts:
            continue
        x, y = parts["train"]
        called, group = {"test": ("test", ""), "val": ("validation", "training ")}[part]
        if part == "val" and shuffled_share is not None:
            order = rng.permutation(len(y))
            held = round(shuffled_share * len(y))
            kept, out = np.sort(order[: len(y) - held]), np.sort(order[len(y) - held :])
            words.append(
                f"{called}: the last {held} ({shuffled_share:.0%}) of a seeded shuffle of the training images"
            )
        else:
            kept, out = _held_out(y, share, rng, called, name)
            words.append(f"{called}: {share:.0%} of the {group}images of each class, at least 1, seeded")
        parts["train"], parts[part] = (_rows(x, kept), y[kept]), (_rows(x, out), y[out])
    train, val, test = (Images(parts[part][0], torch.from_numpy(parts[part][1])) for part in PART_NAMES)
    how = f"{'; '.join(words)}, seed {seed}" if words else "the split of the source"
    return (train, val, test), f"{how}: {_sizes(train, val, test)} images"


def _rows(x: Tensor, index: Array) -> Tensor:
    return x[torch.from_numpy(index)].contiguous()


def _held_out(
    y: Array, share: float, rng: np.random.Generator, called: str, name: str
) -> tuple[Array, Array]:
    """Positions to keep and positions to hold out, class by class, both in order."""
    kept, out = [], []
    for c in range(int(y.max()) + 1):
        members = rng.permutation(np.flatnonzero(y == c))
        if len(members) == 1:
            raise InputError(
                f"{name}: class {c} has 1 image left for training, so none can be held out for {called}; "
                "give it more images, or a split of your own"
            )
        count = max(1, round(share * len(members))) if len(members) else 0
        out.append(members[:count])
        kept.append(members[count:])
    return np.sort(np.concatenate(kept)), np.sort(np.concatenate(out))


def _sizes(*parts: Images) -> str:
    return " / ".join(str(len(part)) for part in parts)
