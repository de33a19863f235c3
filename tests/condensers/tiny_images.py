"""A small set of images with three classes, for tests of reducers."""

import torch

from hcdc.datasets import ImageData, Images, channel_statistics
from hcdc.tasks import ImageTask

SIZES = {"train": (14, 9, 11), "val": (6, 5, 7), "test": (8, 8, 8)}


def tiny_image_data(channels=3, side=8, floating=False, seed=0):
    """Noise of which each class has its own bright corner; class sizes as in `SIZES`, mixed order."""
    generator = torch.Generator().manual_seed(seed)
    parts = {}
    for name, counts in SIZES.items():
        y = torch.repeat_interleave(torch.arange(3), torch.tensor(counts))
        y = y[torch.randperm(len(y), generator=generator)]
        x = torch.randint(0, 160, (len(y), channels, side, side), generator=generator)
        half = side // 2
        for k, label in enumerate(y.tolist()):
            down, right = divmod(label, 2)
            x[k, :, down * half : (down + 1) * half, right * half : (right + 1) * half] += 90
        x = x.to(torch.uint8)
        parts[name] = Images(x.float() / 50 if floating else x, y)
    mean, std = channel_statistics(parts["train"].x)
    return ImageData(
        "tiny", "memory", **parts, num_classes=3, mean=mean, std=std, class_names=("a", "b", "c")
    )


def tiny_image_task(**options):
    return ImageTask(tiny_image_data(**options), model="convnet")
