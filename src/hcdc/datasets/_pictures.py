"""Pictures one at a time: PIL images, arrays and tensors as pixels ``[c, h, w]``."""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from hcdc.core.errors import InputError, require
from hcdc.datasets._image_data import LONGEST_SIDE, smaller

COLOUR_MODES = ("RGB", "RGBA", "RGBX", "P", "PA", "CMYK", "YCbCr", "HSV", "LAB")
GREY_MODES = ("1", "L", "LA")
ALPHA_MODES = ("RGBA", "LA", "PA")


def is_picture(one: Any) -> bool:
    return is_pil(one) or (isinstance(one, (np.ndarray, Tensor)) and one.ndim in (2, 3))


def is_pil(picture: Any) -> bool:
    return hasattr(picture, "mode") and hasattr(picture, "convert")


def channels_first(x: Any, what: str) -> Tensor:
    """Pixels as ``[m, c, h, w]``, from grey ``[m, h, w]`` or ``[m, h, w, c]``; a mapped file is not copied.

    If both ends could be channels, tensors are read as channels first and arrays as channels last.
    """
    if isinstance(x, Tensor):
        tensor, first = x.detach().cpu(), True
    else:
        array, first = np.asarray(x), False
        if min(array.strides, default=0) < 0:  # e.g. BGR flipped to RGB, which torch cannot view
            array = array.copy()
        try:
            with warnings.catch_warnings():  # nobody writes to the tensor of a read-only map
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
            f"{what}: images have shape {tuple(tensor.shape)}; [m, h, w], [m, h, w, c] or [m, c, h, w] is "
            "needed"
        )
    leading, trailing = tensor.shape[1] in (1, 3), tensor.shape[3] in (1, 3)
    if not trailing or (leading and first):
        return tensor
    turned = tensor.permute(0, 3, 1, 2)
    return turned if isinstance(x, np.memmap) else turned.contiguous()


def stacked(pictures: Iterable[tuple[str, Any]]) -> tuple[Tensor, tuple[int, int]]:
    """Pictures of one size as ``[m, c, h, w]``, longer side at most 64, and their original height and width.

    Each picture is shrunk as it is read, so large photographs need little memory. All must be grey, or all in
    colour.
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
        elif len(x) != len(made[0]):
            grey, colour = (first, where) if len(x) == 3 else (where, first)
            raise InputError(
                f"{grey} is grey and {colour} is in colour; convert all to one of the two with Pillow: "
                "image.convert('L') for grey, image.convert('RGB') for colour"
            )
        made.append(smaller(x[None])[0] if max(now) > LONGEST_SIDE else x)
    return torch.stack(made), size


def _one(picture: Any, where: str) -> Tensor:
    """One picture as ``[c, h, w]``; transparent pixels of a PIL image become white."""
    if is_pil(picture):
        if picture.mode not in (*GREY_MODES, *COLOUR_MODES):
            raise InputError(
                f"{where} is an image of mode {picture.mode}; 8 bits per channel are needed, grey or colour"
            )
        picture = np.array(_opaque(picture).convert("L" if picture.mode in GREY_MODES else "RGB"))
    if getattr(picture, "ndim", 0) not in (2, 3):
        raise InputError(
            f"{where} is a {type(picture).__name__}, not an image; a PIL image, an array or a tensor [h, w], "
            "[c, h, w] or [h, w, c] is needed"
        )
    x = channels_first(picture[None], where)[0]
    if x.shape[0] not in (1, 3):
        raise InputError(f"{where} has shape {tuple(x.shape)}; 1 channel (grey) or 3 (colour) are needed")
    return x


def _opaque(picture: Any) -> Any:
    """A PIL image on white, whether its transparency is a channel, a palette or one colour."""
    if picture.mode not in ALPHA_MODES and "transparency" not in picture.info:
        return picture
    above = picture.convert("RGBA")
    pillow = require("PIL.Image", "image")
    return pillow.alpha_composite(pillow.new("RGBA", above.size, "white"), above)


def _by(size: tuple[int, int]) -> str:
    return " x ".join(map(str, size))


def _kind(x: Tensor) -> str:
    return str(x.dtype).removeprefix("torch.")
