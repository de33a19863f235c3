"""Image classification with networks of a search space, ConvNet-3 or a user's own modules."""

from __future__ import annotations

import dataclasses
import logging
import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from hcdc.core.checkpoint import content_key
from hcdc.core.configs import Config, config_hash
from hcdc.core.errors import InputError, unknown_name
from hcdc.core.labels import allocate_labels, draw_members, members
from hcdc.core.plugins import load_attribute
from hcdc.core.recipe import Recipe
from hcdc.core.seeds import derive, stream
from hcdc.datasets import ImageData, Images
from hcdc.networks import ConvNet, Dropout, Factory, ModuleNetwork, Network, Params, ResNet, factory_name
from hcdc.spaces import Space
from hcdc.tasks._augment import draw_flip_crop, flip_crop, flip_crop_settings
from hcdc.tasks._base import PARTS, Task
from hcdc.tasks._registry import register_task
from hcdc.tasks._soft import soft_accuracy

log = logging.getLogger("hcdc")

VALIDATED = 4
"""Validation images per training image in an original hypergradient: they need one gradient, no products."""

VAL_RATIO = 0.4
"""Validation images per training image in a copy: 20 for 50 per class."""


@register_task
@dataclass(frozen=True, eq=False)
class ImageTask(Task):
    """Cross-entropy on labelled images; the training loss includes weight decay.

    Images stored as uint8 are normalised per channel when a network sees them. Floating point images are used
    as they are: original ones are normalised once, synthetic ones live in the normalised space and are never
    clipped.

    Attributes:
        data: The data set.
        model: ``"space"``: networks of the search space (NAS-Bench-201 cells), or small ResNets if the space
            has training settings only (`hcdc.spaces.Training`); ``"convnet"``: ConvNet-3; or your own
            factory, see `ModuleNetwork`.
        weight_decay: Coefficient of ``w/2 ||theta||^2``.
        smooth: Use minus the soft accuracy as validation loss, see `soft_accuracy`; set by `target`.
        net: The network, set by `bind`.
        reference: Network inputs ``[r, c, h, w]`` for BatchNorm's statistics in the validation loss; None
            takes them from the validation set.
    """

    data: ImageData
    model: str | Factory = "space"
    weight_decay: float = 5e-4
    smooth: bool = False
    net: Network | None = None
    reference: Tensor | None = dataclasses.field(default=None, repr=False)
    _parts: dict[str, Images] = dataclasses.field(default_factory=dict, repr=False)

    kind = "image"
    flags = ("model",)
    spaces = ("nasbench201", "training")
    engine = "streams"
    preset = "images"
    anchored = False
    learns = frozenset({"nodes"})
    recordable = True
    mini_batches = True
    stands_alone = True
    real_metric = "loss"
    recipe_settings = tuple(f.name for f in dataclasses.fields(Recipe))

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

    def part(self, name: str) -> Images:
        """T_train, T_val or the test images: uint8 as stored, or normalised floating point."""
        if name not in self._parts:
            if name not in PARTS:
                raise unknown_name("part", name, PARTS)
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

    def example_words(self) -> str:
        return f", {' x '.join(map(str, self.data.shape))} pixels"

    def sized(self, size: int) -> str:
        return str(size) if size % self.num_classes else f"{size} ({size // self.num_classes} per class)"

    @property
    def features(self) -> int:
        return self.data.shape[0]

    @property
    def image_shape(self) -> tuple[int, ...]:
        return tuple(self.data.shape)

    @property
    def augmentation(self) -> str:
        """Default augmentation on the full data: shifts, and mirroring for coloured images only, since grey
        images often show characters."""
        return "crop" if self.data.shape[0] == 1 else "flip-crop"

    def inputs(self, x: Tensor) -> Tensor:
        """Images ``[m, c, h, w]`` as networks see them: floating point, normalised."""
        return x if x.is_floating_point() else self.data.normalised(x)

    def network(self, space: Space | None = None, config: Config | None = None) -> Network:
        """The network of a candidate; the relaxed network of the space if ``config`` is None."""
        channels, height, width = self.data.shape
        if self.model == "convnet":
            return ConvNet(channels, self.num_classes, (height, width))
        if not isinstance(self.model, str):
            if config is None:
                raise InputError(
                    "model: a factory of modules has no relaxed network, so there are no hypergradients in "
                    "lambda; choose val_method 'probes', 'weighted', 'same', 'random' or 'real'"
                )
            return ModuleNetwork(self.model, config, self.num_classes)
        net = None if space is None else space.network(channels, self.num_classes, config)
        if net is None and space is not None and space.plain:
            return ResNet(channels, self.num_classes, **space.sizes(config))
        if net is None or net.takes != "image":
            name = "none" if space is None else space.name
            raise InputError(
                f"space '{name}' builds no image network; use NASBench201, or give ImageTask a model"
            )
        return net

    @property
    def own_model(self) -> bool:
        """Whether networks come from a user's factory."""
        return not isinstance(self.model, str)

    def one_network(self, space: Space) -> str:
        if self.model != "convnet" or space.plain:  # a plain space trains it differently
            return ""
        return "model 'convnet' is one network for all candidates of a space"

    def parameter_count(self, space: Space, config: Config) -> int | None:
        if self.own_model or space.plain:
            return self.network(space, config).parameter_count()
        return space.parameter_count(config, self.features, self.num_classes)

    @torch.no_grad()
    def identity(self, space: Space, config: Config) -> str:
        """The hash of a configuration and, for a user's own module, of what it computes.

        No key covers a module's code, so without this a changed module would get its predecessor's results.
        Parameters are perturbed first, since a module's last layer may start at zero. Outputs are compared to
        three digits of the largest, on which different processors agree.
        """
        if not self.own_model:
            return config_hash(config)
        network = self.network(space, config)
        chance = stream(0, "identity")
        params = {
            name: p + 0.1 * torch.randn(p.shape, generator=chance) / math.sqrt(max(1, p[:1].numel()))
            for name, p in network.init(chance).items()
        }
        outputs = network.forward(params, None, self.inputs(self.train.x[:8]).cpu())
        most = float(outputs.abs().max())
        told = (outputs.double() / max(most, 1e-12)).round(decimals=3) + 0
        return f"{config_hash(config)}-{content_key({'most': f'{most:.2e}', 'outputs': told.tolist()})}"

    def reads(self, space: Space) -> Collection[str]:
        if self.own_model:
            return super().reads(space)
        return ("width", "depth") if space.plain and self.model == "space" else ()

    def with_dropout(self, dropout: Dropout) -> ImageTask:
        return self._with(net=self._network().with_dropout(dropout))

    def bind(self, space: Space, config: Config | None = None) -> ImageTask:
        return dataclasses.replace(self, net=self.network(space, config))

    def _network(self) -> Network:
        if self.net is None:
            raise InputError("this ImageTask has no network yet; bind it to a space: task.bind(space)")
        return self.net

    def init(self, generator: torch.Generator) -> Params:
        return self._network().init(generator)

    def predict(self, params: Params, lam: Tensor, data: Images) -> Tensor:
        """Logits ``[m, classes]``; BatchNorm uses the statistics of these m images."""
        return self._network().forward(params, lam, self.inputs(data.x))

    def loss(self, outputs: Tensor, data: Images) -> Tensor:
        if data.weight is None:
            return F.cross_entropy(outputs, data.y)
        each = F.cross_entropy(outputs, data.y, reduction="none")
        return (each * data.weight).sum() / data.weight.sum()

    def val_loss(self, params: Params, lam: Tensor, data: Images) -> Tensor:
        if self.reference is None:
            outputs = self.predict(params, lam, data)
        else:
            network, x = self._network(), self.inputs(data.x)
            outputs = network.forward_with_reference(params, lam, x, self.reference)
        return -soft_accuracy(outputs, data.y) if self.smooth else self.loss(outputs, data)

    def target(self) -> ImageTask:
        return dataclasses.replace(self, smooth=True)

    def penalty(self, params: Params, lam: Tensor) -> Tensor:
        return 0.5 * self.weight_decay * torch.stack([p.square().sum() for p in params.values()]).sum()

    def labels(self, part: str, size: int) -> Tensor:
        """Labels ``[size]`` of a small set, sorted by class: equal counts, one more for the first classes."""
        y = self.part(part).y
        wanted = allocate_labels(y, size, self.num_classes, f"{part}_size", balanced=True)
        have = y.cpu().bincount(minlength=self.num_classes)
        each = -(-size // self.num_classes)
        short = torch.nonzero(have < each).flatten().tolist()
        if short:
            c = short[0]
            raise InputError(
                f"{part}_size {size} is {each} images per class, but class {c} "
                f"('{self.data.class_names[c]}') has only {int(have[c])} {part} images; choose at most "
                f"{int(have.min())} per class, {self.most(part)} in all"
            )
        return wanted

    def most(self, part: str) -> int:
        """Size of the largest set of ``part`` with equally many images per class."""
        return int(self.part(part).y.bincount(minlength=self.num_classes).min()) * self.num_classes

    def sample(self, part: str, size: int, seed: int, balanced: bool = True) -> Images:
        """Random real images, equally many per class, sorted by class, normalised."""
        counts = self.labels(part, size).bincount(minlength=self.num_classes).tolist()
        pools = members(self.part(part).y, self.num_classes)
        return self.chosen(part, torch.cat(draw_members(pools, counts, stream(seed, "sample", part))))

    def chosen(self, part: str, picked: Tensor) -> Images:
        """The images at positions ``picked`` ``[m]`` of a part, normalised."""
        images = self.part(part)
        picked = picked.to(images.y.device)
        return Images(self.inputs(images.x[picked]), images.y[picked])

    def to(self, device: torch.device | str) -> ImageTask:
        return dataclasses.replace(self, data=self.data.to(device), _parts={})

    # --- sizes and training -------------------------------------------------------------------------------

    def val_size(self, train_size: int) -> int:
        size = max(round(train_size * VAL_RATIO), self.num_classes)
        return min(size, len(self.val))

    def check_size(self, part: str, size: int) -> None:
        self.labels(part, size)

    def pool(self, size: int, seed: int) -> Images:
        size = min(size, len(self.val))
        return self.chosen(
            "val", torch.randperm(len(self.val), generator=stream(seed, "pool"))[:size].sort().values
        )

    def val_method(self, truth: bool, space: Space) -> str:
        """With a table of full-data results, weights fitted to 20 of them; otherwise real images by loss.

        Aligning hypergradients alone ranks cells worse than the initial images (docs/results.md).
        """
        return "weighted" if truth else "real"

    def recipes(self, train_size: int, epochs: int, metric: str) -> tuple[Recipe, Recipe]:
        """On the copy: 10 epochs at learning rate .05, averaged over at most 16 initialisations.

        Together the initialisations see no more examples (steps times batch) than a full training, since a
        trial on the copy must not cost more. Training too long on the copy makes the rank correlation
        negative (see records/tuning/images.md).
        """
        count = len(self.train)
        batch = min(count, 256, max(32, count // 20))  # about twenty steps per epoch, even for few images
        full = Recipe(
            steps=epochs * (count // batch), lr=0.1, weight_decay=self.weight_decay, metric="accuracy",
            optimizer="sgd", batch=batch, augment=self.augmentation, clip=5.0,
        )  # fmt: skip
        batch = min(64, train_size)
        steps = max(20, round(10 * train_size / batch))
        seeds = max(1, min(16, full.steps * full.batch // (steps * batch)))
        small = Recipe(
            steps=steps, lr=0.05, weight_decay=3e-4, seeds=seeds, metric=metric, optimizer="sgd",
            batch=batch, clip=5.0,
        )  # fmt: skip
        return full, small

    def check_recipe(self, argument: str, recipe: Recipe) -> None:
        if recipe.statistics == "train" and self.own_model:
            raise InputError(
                f"{argument} setting statistics 'train': your own modules are scored with the statistics "
                "of the scored images; choose 'batch'"
            )

    def for_epochs(self, recipe: Recipe, epochs: int) -> Recipe:
        whole = len(self.train)
        return dataclasses.replace(recipe, steps=epochs * max(1, whole // (recipe.batch or whole)))

    def relaxed_recipe(self, full: Recipe, small: Recipe) -> Recipe:
        """At most four times as many steps as on the copy."""
        return dataclasses.replace(full, steps=min(full.steps, 4 * small.steps))

    def by_recipe(self, recipe: Recipe, train: Images | None = None) -> ImageTask:
        reference = self.inputs(train.x) if train is not None and recipe.statistics == "train" else None
        return dataclasses.replace(self, weight_decay=recipe.weight_decay, reference=reference)

    def recipes_around(self, recipe: Recipe) -> list[Recipe]:
        """Also twice the steps with augmentation and, for networks of a space, BatchNorm statistics from the
        training images."""
        augment = self.augmentation if recipe.augment == "none" else recipe.augment
        found = super().recipes_around(recipe)
        found.append(dataclasses.replace(recipe, steps=2 * recipe.steps, augment=augment))
        if self.model == "space":
            found.append(dataclasses.replace(recipe, statistics="train"))
        return found

    def lanes(self, data: Images, device: torch.device | str) -> int:
        return 4 if torch.device(device).type == "cuda" else 1

    # --- alignment ----------------------------------------------------------------------------------------

    def relaxed(self, space: Space, relaxation: str, tau: float) -> ImageTask:
        bound = self.bind(space)
        if relaxation == "softmax":
            return bound
        return dataclasses.replace(bound, net=bound._network().drawn(tau))

    def sampled(self, nodes: int, fanouts: Sequence[int], seed: int) -> tuple[Images, Images]:
        """``nodes`` training images and four times as many validation images, equally many per class."""
        least = max(nodes, self.num_classes)
        wanted = (("train", least), ("val", VALIDATED * least))
        train, val = (
            self.sample(part, min(size, self.most(part)), derive(seed, part)) for part, size in wanted
        )
        return train, val

    def curved(self, data: Images, count: int, generator: torch.Generator) -> Images:
        if not 0 < count < len(data):
            return data
        order = torch.randperm(len(data), generator=generator)
        return data.subset(order[:count].sort().values.to(data.y.device))

    def augmented(self, data: Images, recipe: Recipe, generator: torch.Generator) -> Images:
        """Shift each image, and mirror it or not, by its own draw if the recipe says so."""
        if recipe.augment == "none":
            return data
        x = self.inputs(data.x)
        flip, shift = draw_flip_crop(generator, len(x), *flip_crop_settings(recipe.augment, x.shape[-1]))
        return dataclasses.replace(data, x=flip_crop(x, flip.to(x.device), shift.to(x.device)))

    # --- description --------------------------------------------------------------------------------------

    @classmethod
    def from_flags(cls, data: ImageData, model: str = "space", **flags: Any) -> ImageTask:
        """``model``: ``space``, ``convnet`` or your own factory, ``FILE.py:NAME``."""
        return cls(data, load_attribute(model) if ":" in model else model, **flags)

    @classmethod
    def from_spec(cls, spec: Mapping[str, Any], data: Any) -> ImageTask:
        settings = {key: value for key, value in spec.items() if key != "name"}
        model = settings.get("model")
        if isinstance(model, str) and ":" in model:
            raise InputError(
                f"the copy was made with the model '{model}', and a file holds no code; pass the task in "
                "Python, hcdc.evaluate(copy, task=...), or --model FILE.py:NAME to the command"
            )
        return cls(data, **settings)

    @classmethod
    def key_of(cls, spec: Mapping[str, Any]) -> dict[str, Any]:
        """A user's model is ``"own"``, whatever module holds its factory: `identity` covers what it
        computes."""
        return {**spec, "model": "own"} if ":" in str(spec.get("model")) else dict(spec)

    def spec(self) -> dict[str, Any]:
        """JSON-able settings, stored in the condensed file; a factory is stored by name."""
        model = self.model if isinstance(self.model, str) else factory_name(self.model)
        return {"name": self.kind, "model": model, "weight_decay": self.weight_decay}
