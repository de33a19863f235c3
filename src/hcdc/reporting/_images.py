"""Shows the images of a condensed data set as a grid, beside those they started from."""

from __future__ import annotations

import os
import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from hcdc.core.errors import InputError, unknown_name
from hcdc.datasets import CondensedDataset, Images
from hcdc.reporting._figures import literal, new_figure, write_figure

PARTS = {"train": "S_train", "val": "S_val"}
MOST_CLASSES = 20
"""Most rows of a grid; with more classes, an even selection is shown."""
SIDE_BY_SIDE = 10
"""Most images per row for "before" to stand beside "after" rather than above it."""
CELL = 0.47
"""Width of an image, in inches."""
GAP_COLOUR = "#dde3ea"
LONGEST_NAME = 20
SPREAD = 2.5
"""Standard deviations shown on either side of the mean, if pixels are not in 0 .. 1."""
TOLERANCE = 1 / 510
"""Half a level of 255: pixels this far outside the range are rounding, not clipping."""

Before = Images | CondensedDataset


def image_grid(
    small: CondensedDataset,
    before: Before | None = None,
    part: str = "val",
    per_class: int = 20,
    *,
    path: str | os.PathLike[str],
) -> Path:
    """Write `draw_images` as a PNG or SVG file; returns its path."""
    return write_figure(draw_images(small, before, part, per_class), path)


def draw_images(
    small: CondensedDataset, before: Before | None = None, part: str = "val", per_class: int = 20
) -> Any:
    """The images of S_val or S_train, one row per class, beside those they started from.

    Normalisation is undone and pixels are clipped, for display only; networks see the values as they are.
    Weighted images are sorted by weight, largest first; the number below is the weight relative to the mean.

    Args:
        small: A condensed data set of images.
        before: What the images started from, in the same order: normalised images, or a condensed data set
            whose part is taken.
        part: ``"val"`` (S_val) or ``"train"`` (S_train).
        per_class: Most images to show per class: the first ones, or those with the largest weight.
    """
    if per_class < 1:
        raise InputError(f"per_class {per_class}: at least 1 image per class is needed")
    images = part_of(small, part)
    start = None if before is None else _start(before, images, part)
    if start is not None and torch.equal(start.x.cpu(), images.x.cpu()):
        start = None  # nothing changed
    mean, std = _pixel_statistics(small, images)
    rows = _rows(images, per_class)
    title = "\n".join([_heading(small, part), *facts(small, before, part, per_class)])

    columns = max(map(len, rows))
    stacked = start is not None and columns > SIDE_BY_SIDE
    panels = [("", images)] if start is None else [("before", start), ("after", images)]
    gap, step, stride = _spacing(images)
    grid = (CELL * columns, CELL * len(rows) * step / stride)
    across, down = (1, len(panels)) if stacked else (len(panels), 1)
    wide = max(1.8 + across * grid[0], 6.5)
    lines = [line for text in title.split("\n") for line in textwrap.wrap(text, int(12.5 * wide))]
    figure = new_figure(wide, 0.3 + 0.22 * len(lines) + down * (grid[1] + 0.3), layout="compressed")
    figure.suptitle(literal("\n".join(lines)), fontsize=10)
    low, high = _shown(mean, std)
    for k, (name, shown) in enumerate(panels):
        axes = figure.add_subplot(down, across, k + 1)
        pixels = (shown.x.detach().cpu().double() * std + mean - low) / (high - low)
        axes.imshow(_mosaic(pixels.clamp(0, 1), rows, columns, (gap, step, stride)), interpolation="none")
        axes.set_facecolor(GAP_COLOUR)
        axes.set_title(name, fontsize=10)
        axes.set_xticks([])
        named = [_class_name(small, int(images.y[row[0]])) for row in rows] if stacked or not k else []
        centres = [gap + step * line + (images.x.shape[2] - 1) / 2 for line in range(len(named))]
        axes.set_yticks(centres, named, fontsize=9)
        axes.tick_params(length=0)
        axes.spines[:].set_visible(False)
        if images.weight is not None and shown is images:
            _write_weights(axes, images, rows, (gap, step, stride))
    return figure


def facts(
    small: CondensedDataset, before: Before | None = None, part: str = "val", per_class: int = 20
) -> list[str]:
    """What the grid does not show: how far pixels moved, what is left out, what is clipped."""
    images = part_of(small, part)
    mean, std = _pixel_statistics(small, images)
    low, high = _shown(mean, std)
    values = images.x.detach().cpu().double()
    told = []
    if before is not None:
        moved = (values - _start(before, images, part).x.detach().cpu().double()).abs().mean()
        told.append(
            f"mean absolute change per pixel: {moved:.2g} standard deviations of training pixels"
            if moved
            else "pixels are unchanged"
        )
    if images.weight is not None:
        idle = int((images.weight == 0).sum())
        unused = f"; {idle} of {len(images)} images have weight 0" if idle else ""
        told.append(f"numbers: weight in the loss (mean 1), largest first{unused}")
    counts = images.y.cpu().bincount()
    counts = counts[counts > 0]
    here = set(images.y.tolist())
    missing = [_class_name(small, label) for label in sorted(set(small.train.y.tolist()) - here)]
    if missing:
        told.append(f"no images of {', '.join(missing)}")
    left_out = []
    if len(counts) > MOST_CLASSES:
        left_out.append(f"{MOST_CLASSES} of {len(counts)} classes")
    if int(counts.max()) > per_class:
        left_out.append(f"{per_class} of up to {int(counts.max())} images per class")
    if left_out:
        told.append(f"shown: {', '.join(left_out)}")
    scaled = (values * std + mean - low) / (high - low)
    clipped = float(((scaled < -TOLERANCE) | (scaled > 1 + TOLERANCE)).double().mean())
    ends = "0 .. 1"
    if not bool((high - low == 1).all()):
        ends = f"mean +- {SPREAD} standard deviations"
        told.append(f"black and white are {ends} of training pixels")
    if clipped:
        share = "less than 0.1" if clipped < 0.001 else f"{100 * clipped:.1f}"
        told.append(f"{share} % of pixel values lie outside {ends} and are clipped, for display only")
    return told


def part_of(small: CondensedDataset, part: str) -> Images:
    """S_train or S_val of a copy that holds images."""
    if part not in PARTS:
        raise unknown_name("part", part, PARTS)
    images: Any = getattr(small, part)
    if images is None:
        raise InputError(
            "part 'val': this copy has no validation images (val_method 'real'); show part 'train'"
        )
    if images.pictures() is None:
        raise InputError(f"this copy is of kind '{small.kind}', not 'image', so it has no images to show")
    found: Images = images
    return found


def _start(before: Before, images: Images, part: str) -> Images:
    """What ``images`` started from, checked to match."""
    start = part_of(before, part) if isinstance(before, CondensedDataset) else before
    if start.x.shape != images.x.shape or not start.x.is_floating_point():
        kind = str(start.x.dtype).removeprefix("torch.")
        raise InputError(
            f"before has pixels {tuple(start.x.shape)} of type {kind}; normalised floating-point pixels "
            f"{tuple(images.x.shape)} are needed, like the copy's"
        )
    if not torch.equal(start.y.cpu(), images.y.cpu()):
        raise InputError(
            "before has different labels from the copy; pass the images it started from, in the same order"
        )
    return start


def _pixel_statistics(small: CondensedDataset, images: Images) -> tuple[Tensor, Tensor]:
    """Mean and standard deviation of the original images, per channel ``[c, 1, 1]``."""
    data, channels = small.meta.get("data") or {}, images.x.shape[1]
    found = [data.get(key) for key in ("mean", "std")]
    if not all(isinstance(values, list) and len(values) == channels for values in found):
        raise InputError(
            f"meta['data'] of this copy lacks 'mean' and 'std' with {channels} numbers each, so its "
            "normalisation cannot be undone; describe the data with data.describe()"
        )
    mean, std = (torch.tensor(values, dtype=torch.float64).view(-1, 1, 1) for values in found)
    return mean, std


def _shown(mean: Tensor, std: Tensor) -> tuple[Tensor, Tensor]:
    """The values shown as black and white, ``[c, 1, 1]`` each.

    They are 0 and 1 if pixels can be in 0 .. 1, where the variance is at most mean (1 - mean).
    """
    if bool((std.square() <= mean * (1 - mean)).any()):
        return torch.zeros_like(mean), torch.ones_like(mean)
    return mean - SPREAD * std, mean + SPREAD * std


def _rows(images: Images, per_class: int) -> list[list[int]]:
    """Positions of the images shown per class, largest weights first."""
    y = images.y.cpu()
    classes = torch.nonzero(y.bincount()).flatten()
    if len(classes) > MOST_CLASSES:
        classes = classes[torch.linspace(0, len(classes) - 1, MOST_CLASSES).round().long()]
    rows = []
    for label in classes.tolist():
        members = torch.nonzero(y == label).flatten()
        if images.weight is not None:
            members = members[images.weight.detach().cpu()[members].argsort(descending=True, stable=True)]
        rows.append(members[:per_class].tolist())
    return rows


Spacing = tuple[int, int, int]
"""In pixels: the gap around images, and the distances between rows and between columns."""


def _spacing(images: Images) -> Spacing:
    height, width = images.x.shape[2:]
    gap = max(1, width // 16)
    text = 0 if images.weight is None else round(0.3 * width)  # room for weights
    return gap, height + gap + text, width + gap


def _mosaic(x: Tensor, rows: Sequence[Sequence[int]], columns: int, spacing: Spacing) -> Any:
    """Images ``x [m, c, h, w]`` in 0 .. 1 as one RGBA picture, transparent in the gaps."""
    gap, step, stride = spacing
    picture = np.zeros((gap + len(rows) * step, gap + columns * stride, 4))
    for line, row in enumerate(rows):
        for place, k in enumerate(row):
            image = x[k].expand(3, -1, -1).permute(1, 2, 0).numpy()  # grey is repeated
            top, left = gap + line * step, gap + place * stride
            picture[top : top + image.shape[0], left : left + image.shape[1], :3] = image
            picture[top : top + image.shape[0], left : left + image.shape[1], 3] = 1.0
    return picture


def _write_weights(axes: Any, images: Images, rows: Sequence[Sequence[int]], spacing: Spacing) -> None:
    """Write each image's weight, relative to the mean, below it."""
    assert images.weight is not None
    gap, step, stride = spacing
    height, width = images.x.shape[2:]
    weight = images.weight.detach().cpu().double()
    relative = (weight / weight.mean().clamp_min(1e-300)).tolist()
    for line, row in enumerate(rows):
        for place, k in enumerate(row):
            across, down = gap + stride * place + (width - 1) / 2, gap + step * line + 1.03 * height - 0.5
            small = 0 < relative[k] < 0.005
            text = "<0.005" if small else f"{relative[k]:.2f}"
            axes.text(across, down, text, ha="center", va="top", fontsize=6.5)


def _heading(small: CondensedDataset, part: str) -> str:
    meta = small.meta
    method = meta.get(f"{part}_method")
    method = meta.get("method") if method in (None, "same") else method
    name = (meta.get("data") or {}).get("name", "images")
    return f"{name}: {PARTS[part]}, {len(getattr(small, part))} images made by '{method}'"


def _class_name(small: CondensedDataset, label: int) -> str:
    names = (small.meta.get("data") or {}).get("class_names") or []
    name = str(names[label]) if label < len(names) else f"class {label}"
    return literal(name if len(name) <= LONGEST_NAME else f"{name[: LONGEST_NAME - 3]}...")
