"""Image classification by networks of a search space, by ConvNet-3, or by a user's own modules."""

from __future__ import annotations

import dataclasses
import logging
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from hcdc.core.configs import Config
from hcdc.core.errors import InputError, unknown_name
from hcdc.core.labels import allocate_labels, draw_members, members
from hcdc.core.seeds import stream
from hcdc.datasets import ImageData, Images
from hcdc.networks import CellNetwork, ConvNet, Factory, ModuleNetwork, Params, factory_name
from hcdc.spaces import BENCHMARKS, Space, TableTruth
from hcdc.tasks._base import Task
from hcdc.tasks._soft import soft_accuracy

log = logging.getLogger("hcdc")

PARTS = ("train", "val", "test")


@dataclass(frozen=True, eq=False)
class ImageTask(Task):
    """Cross-entropy on labelled images, weight decay in the training loss.

    Images that are stored as uint8 are normalised, channel by channel, when a network sees them; floating
    point images are taken as they are: original ones are normalised once, synthetic ones live in the
    normalised space and are never clipped.

    Attributes:
        data: The data set.
        model: ``"space"``: networks of the search space (NAS-Bench-201 cells); ``"convnet"``: ConvNet-3; or a
            factory of your own, see `ModuleNetwork`.
        weight_decay: Coefficient of ``w/2 ||theta||^2``.
        smooth: The validation loss is minus the soft accuracy, see `soft_accuracy`; set by `target`.
        net: The network, set by `bind`.
        reference: Images ``[r, c, h, w]``, as networks see them, whose statistics BatchNorm takes in the
            validation loss; None takes those of the validation set.
    """

    data: ImageData
    model: str | Factory = "space"
    weight_decay: float = 5e-4
    smooth: bool = False
    net: Any = None
    reference: Tensor | None = dataclasses.field(default=None, repr=False)
    _parts: dict[str, Images] = dataclasses.field(default_factory=dict, repr=False)

    kind = "image"

    def __post_init__(self) -> None:
        if not isinstance(self.data, ImageData):
            raise InputError(
                f"ImageTask: data is {type(self.data).__name__}, not images; pass what hcdc.data(...) gives "
                "for images"
            )
        if isinstance(self.model, str) and self.model not in ("space", "convnet"):
            raise unknown_name("model", self.model, ("space", "convnet"))
        if not isinstance(self.model, str) and not callable(self.model):
            raise InputError(
                f"model {self.model!r}: it must be 'space', 'convnet' or a function from a configuration to "
                "a torch module"
            )
        if not self.weight_decay >= 0:
            raise InputError(f"weight_decay {self.weight_decay}: it must be at least 0")
        if self.reference is not None and not isinstance(self.net, CellNetwork):
            raise InputError(
                "recipe setting 'statistics' 'train': networks that are not of cells are scored with the "
                "statistics of the images that are scored; choose 'batch'"
            )

    def part(self, name: str) -> Images:
        """T_train, T_val or the test images: uint8 as stored, or normalised floating point."""
        if name not in PARTS:
            raise unknown_name("part", name, PARTS)
        if name not in self._parts:
            images: Images = getattr(self.data, name)
            if images.x.is_floating_point():
                images = Images(self.data.normalised(images.x), images.y)
            self._parts[name] = images
        return self._parts[name]

    @property
    def train(self) -> Images:
        return self.part("train")

    @property
    def val(self) -> Images:
        return self.part("val")

    @property
    def test(self) -> Images:
        return self.part("test")

    @property
    def num_classes(self) -> int:
        return self.data.num_classes

    @property
    def augmentation(self) -> str:
        """What training on the full data is augmented by where nothing else is said: grey images, which are
        often of signs that a mirror makes wrong, are shifted alone; coloured ones are mirrored too."""
        return "crop" if self.data.shape[0] == 1 else "flip-crop"

    def inputs(self, x: Tensor) -> Tensor:
        """Images ``[m, c, h, w]`` as networks see them: floating point, normalised."""
        return x if x.is_floating_point() else self.data.normalised(x)

    def network(self, space: Space | None = None, config: Config | None = None) -> Any:
        """The network of a candidate; the relaxed one of the space where ``config`` is None."""
        channels, height, width = self.data.shape
        if self.model == "convnet":
            return ConvNet(channels, self.num_classes, (height, width))
        if not isinstance(self.model, str):
            if config is None:
                raise InputError(
                    "model: a factory of modules has no relaxed network, so hypergradients in lambda do not "
                    "exist; choose val_method 'probes', 'weighted', 'same', 'random' or 'real'"
                )
            return ModuleNetwork(self.model, config, self.num_classes)
        net = None if space is None else space.network(channels, self.num_classes, config)
        if net is None or net.takes != "image":
            name = "none" if space is None else space.name
            raise InputError(
                f"space '{name}' builds no image network; use NASBench201, or give ImageTask a model"
            )
        return net

    def bind(self, space: Space, config: Config | None = None) -> ImageTask:
        return dataclasses.replace(self, net=self.network(space, config))

    def _network(self) -> Any:
        if self.net is None:
            raise InputError("this ImageTask has no network yet; bind it to a space: task.bind(space)")
        return self.net

    def init(self, generator: torch.Generator) -> Params:
        params: Params = self._network().init(generator)
        return params

    def predict(self, params: Params, lam: Tensor, data: Images) -> Tensor:
        """Logits ``[m, classes]``; BatchNorm takes the statistics of these m images."""
        logits: Tensor = self._network().forward(params, lam, self.inputs(data.x))
        return logits

    def loss(self, outputs: Tensor, data: Images) -> Tensor:
        if data.weight is None:
            return F.cross_entropy(outputs, data.y)
        each = F.cross_entropy(outputs, data.y, reduction="none")
        return (each * data.weight).sum() / data.weight.sum()

    def val_loss(self, params: Params, lam: Tensor, data: Images) -> Tensor:
        if self.reference is None:
            outputs = self.predict(params, lam, data)
        else:
            first = len(self.reference)
            behind = dataclasses.replace(self._network(), reference=first)
            outputs = behind.forward(params, lam, torch.cat([self.reference, self.inputs(data.x)]))[first:]
        return -soft_accuracy(outputs, data.y) if self.smooth else self.loss(outputs, data)

    def target(self) -> ImageTask:
        return dataclasses.replace(self, smooth=True)

    def penalty(self, params: Params, lam: Tensor) -> Tensor:
        return 0.5 * self.weight_decay * torch.stack([p.square().sum() for p in params.values()]).sum()

    def score(self, outputs: Tensor, data: Images) -> Tensor:
        """Accuracy, weighted as the loss is."""
        right = (outputs.argmax(-1) == data.y).to(outputs.dtype)
        if data.weight is None:
            return right.mean()
        return (right * data.weight).sum() / data.weight.sum()

    def labels(self, part: str, size: int) -> Tensor:
        """Labels ``[size]`` of a small set, sorted by class: equal counts, the first classes one more."""
        y = self.part(part).y
        wanted = allocate_labels(y, size, self.num_classes, f"{part}_size", balanced=True)
        have = y.cpu().bincount(minlength=self.num_classes)
        each = -(-size // self.num_classes)
        short = torch.nonzero(have < each).flatten().tolist()
        if short:
            c = short[0]
            raise InputError(
                f"{part}_size {size} is {each} images a class, and class {c} "
                f"('{self.data.class_names[c]}') has only {int(have[c])} {part} images; choose at most "
                f"{int(have.min())} a class, {self.most(part)} in all"
            )
        return wanted

    def most(self, part: str) -> int:
        """Size of the largest set of ``part`` with equally many images a class."""
        return int(self.part(part).y.bincount(minlength=self.num_classes).min()) * self.num_classes

    def sample(self, part: str, size: int, seed: int, balanced: bool = True) -> Images:
        """Random real images, equally many a class, sorted by class, normalised."""
        counts = self.labels(part, size).bincount(minlength=self.num_classes).tolist()
        pools = members(self.part(part).y, self.num_classes)
        return self.chosen(part, torch.cat(draw_members(pools, counts, stream(seed, "sample", part))))

    def chosen(self, part: str, picked: Tensor) -> Images:
        """The images at positions ``picked`` ``[m]`` of a part, normalised."""
        images = self.part(part)
        picked = picked.to(images.y.device)
        return Images(self.inputs(images.x[picked]), images.y[picked])

    def tensors(self, data: Images) -> dict[str, Tensor]:
        return {"x": data.x}

    def replace(self, data: Images, tensors: dict[str, Tensor]) -> Images:
        """Other pixels (``"x"``) or weights (``"weight"``); labels stay."""
        if unknown := set(tensors) - {"x", "weight"}:
            raise unknown_name("tensor of a synthetic set of images", min(unknown), ("x", "weight"))
        return dataclasses.replace(data, **tensors)

    def subset(self, data: Images, index: Tensor) -> Images:
        """The images ``index`` ``[b]``."""
        return Images(data.x[index], data.y[index], None if data.weight is None else data.weight[index])

    def to(self, device: torch.device | str) -> ImageTask:
        return dataclasses.replace(self, data=self.data.to(device), _parts={})

    def spec(self) -> dict[str, Any]:
        """JSON-able settings, stored in the condensed file; a factory by its name."""
        model = self.model if isinstance(self.model, str) else factory_name(self.model)
        return {"name": self.kind, "model": model, "weight_decay": self.weight_decay}


def check_truth(truth: Any, task: Task) -> None:
    """Refuse what is no table of results, or one that is not about the task: other data or networks."""
    if not hasattr(truth, "spec"):
        raise InputError(
            f"truth is {type(truth).__name__}; give a table: TableTruth(NASBench201Table(file), 'cifar10')"
        )
    if not isinstance(truth, TableTruth):
        return
    if not isinstance(task, ImageTask):
        raise InputError(
            f"truth: the table has results on images, and the task is a {task.kind}; leave it out"
        )
    if task.model != "space":
        raise InputError(
            "truth: a NAS-Bench-201 table has results of its cells, and the task has another model; leave "
            "it out"
        )
    shape, classes = tuple(task.data.shape), BENCHMARKS[truth.dataset]
    if (shape, task.num_classes) != ((3, 32, 32), classes):
        raise InputError(
            f"truth: {truth.dataset} has {classes} classes of 3 x 32 x 32 pixels, and '{task.data.name}' has "
            f"{task.num_classes} of {' x '.join(map(str, shape))}, so the table's results are not about it; "
            "leave it out"
        )
