"""What is learned: a training loss and a validation loss as pure functions of (params, lambda, data).

A new kind of data needs one subclass of `Task`. Everything else (hypergradients, alignment, HCDC, batched
training, evaluation, the command line) uses this interface and never asks for the subclass.
"""

from __future__ import annotations

import copy
import dataclasses
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, ClassVar, Self

import torch
from torch import Tensor
from torch.func import grad_and_value, vmap
from torch.nn import functional as F

from hcdc.core.configs import Config, config_hash
from hcdc.core.errors import InputError, unknown_name
from hcdc.core.labels import allocate_labels, draw_members, members
from hcdc.core.recipe import Recipe
from hcdc.core.seeds import numpy_stream, stream
from hcdc.datasets import fingerprint
from hcdc.networks import Dropout, Network, Params
from hcdc.spaces import TRAINING, Space

PARTS = ("train", "val", "test")
NETWORK_SETTINGS = (
    "steps", "lr", "seeds", "metric", "optimizer", "batch", "lr_end", "clip", "momentum", "schedule",
    "dropout", "label_smoothing",
)  # fmt: skip
"""Recipe settings that a user may change where networks are trained in lanes."""


def weighted_mean(each: Tensor, weight: Tensor | None) -> Tensor:
    """Mean of ``each`` ``[m]`` with the weights of a labelled set; None means equal weights."""
    return each.mean() if weight is None else (weight * each).sum() / weight.sum()


class Task(ABC):
    """Data, a model family and its losses.

    ``data`` in the methods is a labelled set (`Nodes`, `Rows`, your own): T_train, T_val, S_train and S_val
    all have that type. Methods are pure: they may be transformed by ``torch.func`` and batched over
    (params, lam) with ``vmap``; ``data`` is shared by the batch.

    The training loss is ``loss(predict(...)) + penalty(...)``; Gauss-Newton products need this split.

    A subclass must define ``kind``, ``init`` and ``predict``. The rest has defaults that fit full-batch
    training of small models on labelled sets that are `Examples`; ``hcdc.testing.TaskConformance`` tests it.

    Attributes:
        kind: The registered name, stored in condensed files.
        data: The data set, with a name and a fingerprint; None for in-memory data.
        flags: Command-line flags that choose among tasks of this kind, such as ``"model"``.
        spaces: Names of suitable search spaces, the default first; empty if the task brings its own.
        engine: What trains its candidates: ``"lanes"`` (one batch), ``"streams"`` (one network each) or
            ``"fits"`` (the task's own `fitted`, without gradients).
        train_method: The default way to make S_train.
        preset: The HCDC preset for this task; None takes the defaults.
        anchored: Use the values of full trainings behind original hypergradients as anchors of S_val.
        learns: Alignment settings that this task understands: ``adjacency``, ``fanout``, ``nodes``.
        recordable: Steps can be recorded as CUDA graphs (no sparse products).
        mini_batches: Training uses mini-batches of all of T_train, so a sampled T_train only serves the
            linear systems.
        stands_alone: Validation examples can be stored in a file without the rest of the original data.
        real_metric: What ranks candidates on real validation examples, ``"accuracy"`` or ``"loss"``.
        weighted_metric: The same on weighted ones.
    """

    kind: str
    data: Any = None
    flags: ClassVar[tuple[str, ...]] = ()
    spaces: ClassVar[tuple[str, ...]] = ()
    engine: ClassVar[str] = "lanes"
    train_method: ClassVar[str] = "random"
    preset: ClassVar[str | None] = None
    anchored: ClassVar[bool] = True
    learns: ClassVar[frozenset[str]] = frozenset()
    recordable: ClassVar[bool] = False
    mini_batches: ClassVar[bool] = False
    stands_alone: ClassVar[bool] = False
    real_metric: ClassVar[str] = "accuracy"
    weighted_metric: ClassVar[str] = "loss"

    # --- the original data ----------------------------------------------------------------------------------

    @property
    def train(self) -> Any:
        """T_train, the original training set."""
        return self.data.train

    @property
    def val(self) -> Any:
        """T_val, the original validation set."""
        return self.data.val

    @property
    def test(self) -> Any:
        """The test set, on which nothing is chosen; None if there is none."""
        return None if self.data is None else self.data.test

    @property
    def num_classes(self) -> int | None:
        """Number of classes; None for regression."""
        return None if self.data is None else self.data.num_classes

    def part(self, name: str) -> Any:
        """T_train, T_val or the test set by name."""
        if name not in PARTS:
            raise unknown_name("part", name, PARTS)
        found = getattr(self, name)
        if found is None:
            raise InputError(f"part '{name}': this {self.kind} task has no {name} set; leave it out")
        return found

    def fingerprint(self) -> str:
        """A hash of the data, under which full-data results are kept."""
        if self.data is not None:
            return str(self.data.fingerprint())
        parts = (self.train, self.val, self.test)
        return fingerprint(piece for part in parts if part is not None for piece in part.pieces())

    @property
    def name(self) -> str:
        """Name of the data."""
        return "memory" if self.data is None else str(self.data.name)

    def describe(self) -> dict[str, Any]:
        """How a condensed file describes the data."""
        if self.data is None:
            told = {"name": self.name, "source": "memory", "fingerprint": self.fingerprint()}
            return {**told, "num_classes": self.num_classes, "normalisation": "none", "split": "given"}
        described: dict[str, Any] = self.data.describe()
        return described

    def words(self) -> str:
        """The data in one line."""
        found = {"training": self.train, "validation": self.val, "test": self.test}
        sizes = {name: f"{len(part):,}" for name, part in found.items() if part is not None}
        split = "" if self.data is None else f", split: {self.data.split}"
        told = f"{' / '.join(sizes.values())} for {' / '.join(sizes)}"
        return f"{self.name}, {told}{self.example_words()}{split}"

    def example_words(self) -> str:
        """Describes an example for `words`, starting with a comma; empty by default."""
        return ""

    def sized(self, size: int) -> str:
        """The size of a copy in words."""
        return str(size)

    def spec(self) -> dict[str, Any]:
        """JSON-able settings, stored in the condensed file; ``from_spec`` rebuilds the task."""
        return {"name": self.kind}

    @classmethod
    def from_spec(cls, spec: Mapping[str, Any], data: Any) -> Task:
        """The task described by `spec`, on its data."""
        return cls(data, **{key: value for key, value in spec.items() if key != "name"})  # type: ignore[call-arg]

    @classmethod
    def from_flags(cls, data: Any, **flags: Any) -> Task:
        """The task that the command line's ``flags`` choose for the data; flags not given are absent."""
        return cls(data, **flags)  # type: ignore[call-arg]

    @classmethod
    def key_of(cls, spec: Mapping[str, Any]) -> dict[str, Any]:
        """The part of a `spec` that says what is computed, without the location of its code."""
        return dict(spec)

    def key(self) -> dict[str, Any]:
        """This task's part of cache keys; `identity` is the candidate's part."""
        return self.key_of(self.spec())

    def same_as(self, spec: Mapping[str, Any]) -> bool:
        """Whether `spec` describes this task, wherever its code is located."""
        return self.key() == self.key_of(spec)

    def identity(self, space: Space, config: Config) -> str:
        """Key of a candidate's results: its configuration and, for a user's own model, what it computes."""
        return config_hash(config)

    @property
    def features(self) -> int:
        """Features of a node or row, or channels of an image: the input size of networks."""
        return 1

    @property
    def image_shape(self) -> tuple[int, ...] | None:
        """Channels, height and width of images; None for other data."""
        return None

    # --- losses ---------------------------------------------------------------------------------------------

    @abstractmethod
    def init(self, generator: torch.Generator) -> Params:
        """Fresh parameters theta_0, drawn on the CPU."""

    @abstractmethod
    def predict(self, params: Params, lam: Tensor, data: Any) -> Tensor:
        """Model outputs on the labelled examples of ``data``, ``[m, outputs]``."""

    def loss(self, outputs: Tensor, data: Any) -> Tensor:
        """Scalar loss of outputs against the labels (and weights) of ``data``; convex in the outputs.

        By default the weighted mean of `losses`.
        """
        return weighted_mean(self.losses(outputs, data), data.weight)

    def losses(self, outputs: Tensor, data: Any) -> Tensor:
        """Loss of each example ``[m]``: the cross-entropy for classes, half the squared error for values."""
        if self.num_classes is None:
            errors: Tensor = outputs.squeeze(-1) - data.y
            return errors.square() / 2
        return F.cross_entropy(outputs, data.y, reduction="none")

    def penalty(self, params: Params, lam: Tensor) -> Tensor:
        """Scalar regulariser in the training loss (including weight decay); 0 by default."""
        return next(iter(params.values())).new_zeros(())

    def train_loss(self, params: Params, lam: Tensor, data: Any) -> Tensor:
        """L^train(theta, lambda): loss plus penalty."""
        return self.loss(self.predict(params, lam, data), data) + self.penalty(params, lam)

    def train_gradients(self, params: Params, lam: Tensor, data: Any) -> tuple[Params, Tensor]:
        """The gradient of L^train in theta ``[B, ...]`` and its value ``[B]``, at lambda ``[B, H]``."""
        each = vmap(grad_and_value(self.train_loss), in_dims=(0, 0, None))
        found: tuple[Params, Tensor] = each(params, lam, data)
        return found

    def smoothed_loss(self, outputs: Tensor, data: Any, smoothing: float | Tensor) -> Tensor:
        """`loss` with label smoothing: a share of each target is spread evenly over the classes."""
        spread = weighted_mean(-outputs.log_softmax(-1).mean(-1), data.weight)
        return (1 - smoothing) * self.loss(outputs, data) + smoothing * spread

    def val_loss(self, params: Params, lam: Tensor, data: Any) -> Tensor:
        """L^val(theta, lambda): loss without penalty."""
        return self.loss(self.predict(params, lam, data), data)

    def score(self, outputs: Tensor, data: Any) -> Tensor:
        """Accuracy for classes, minus the loss for values, weighted as the loss is; higher is better."""
        if self.num_classes is None:
            return -self.loss(outputs, data)
        return weighted_mean((outputs.argmax(-1) == data.y).to(outputs.dtype), data.weight)

    def target(self) -> Task:
        """This task with a validation loss that represents the ranking on the original data.

        Scores rank candidates. If the score has no gradient (accuracy), a smooth stand-in replaces the
        validation loss in original hypergradients. By default the task itself.
        """
        return self

    def prepare(self, data: Any) -> None:
        """Compute what ``predict`` needs from ``data`` before any ``torch.func`` transform; optional."""
        return

    # --- synthetic data -------------------------------------------------------------------------------------

    def sample(self, part: str, size: int, seed: int, balanced: bool = False) -> Any:
        """``size`` random real examples of ``part`` (``"train"`` or ``"val"``) as a small labelled set.

        Classes come sorted, in their original proportions, or in equal numbers where ``balanced``; for values
        examples keep their order.
        """
        whole = self.part(part)
        generator = stream(seed, "sample", part)
        if self.num_classes is None:
            self.check_count(part, size)
            picked = torch.randperm(len(whole), generator=generator)[:size].sort().values
        else:
            wanted = allocate_labels(whole.y, size, self.num_classes, f"{part}_size", balanced)
            counts = wanted.bincount(minlength=self.num_classes).tolist()
            picked = torch.cat(draw_members(members(whole.y, self.num_classes), counts, generator))
        return whole.subset(picked.to(whole.y.device))

    def check_count(self, part: str, size: int) -> None:
        """Refuse a number of examples that ``part`` does not have."""
        have = len(self.part(part))
        if not 1 <= size <= have:
            raise InputError(f"{part}_size {size}: there are {have} labelled examples; choose 1 to {have}")

    def tensors(self, data: Any) -> dict[str, Tensor]:
        """The tensors of a synthetic set that may be learned, by name; ``{"x": ...}`` by default."""
        return {"x": data.x}

    def replace(self, data: Any, tensors: dict[str, Tensor]) -> Any:
        """The synthetic set with other examples (``"x"``) or weights (``"weight"``); labels stay."""
        if unknown := set(tensors) - {"x", "weight"}:
            raise unknown_name(f"tensor of a synthetic {self.kind} set", min(unknown), ("x", "weight"))
        return dataclasses.replace(data, **tensors)

    def subset(self, data: Any, index: Tensor) -> Any:
        """The labelled examples ``index`` ``[b]`` of ``data``, for mini-batches of a synthetic set.

        Differentiable in the tensors of ``data``.
        """
        return data.subset(index)

    @property
    def least(self) -> int:
        """Smallest allowed set size: one example per class."""
        return self.num_classes or 1

    def most(self, part: str) -> int:
        """Size of the largest random set of ``part``."""
        return len(self.part(part))

    def val_size(self, train_size: int) -> int:
        """The default |S_val|: keeps the original ratio of validation to training examples."""
        return min(max(round(train_size * len(self.val) / len(self.train)), self.least), len(self.val))

    def check_size(self, part: str, size: int) -> None:
        """Refuse a size of S_train or S_val that this task cannot make."""
        return

    def pool(self, size: int, seed: int) -> Any:
        """``size`` random examples of T_val, or all if it has fewer (role ``"pool"``)."""
        size = min(size, len(self.val))
        order = torch.randperm(len(self.val), generator=stream(seed, "pool"))[:size].sort().values
        return self.subset(self.val, order)

    def unweighable(self) -> str:
        """Why S_val cannot be weighted real examples, and what to choose instead; empty if it can."""
        return ""

    def without_gradients(self) -> str:
        """Why examples cannot be learned by gradients, and what to choose instead; empty if they can."""
        return ""

    def val_method(self, truth: bool, space: Space) -> str:
        """HCDC's default way to make S_val for a space, with or without a table of full-data results."""
        return "both"

    def rival_sets(self, size: int, seed: int) -> dict[str, tuple[Any, str]]:
        """Extra small validation sets to compare a copy with, by name, each with a description."""
        return {}

    def constant_score(self) -> float:
        """Score of a constant predictor on T_val: the most common class of T_train, or its mean."""
        y = self.train.y
        if self.num_classes is None:
            outputs = y.mean().expand(len(self.val), 1)
        else:
            commonest = y.bincount(minlength=self.num_classes).argmax()
            outputs = F.one_hot(commonest, self.num_classes).float().expand(len(self.val), -1)
        return float(self.score(outputs, self.val))

    # --- alignment ------------------------------------------------------------------------------------------

    def bind(self, space: Space, config: Config | None = None) -> Task:
        """This task with the network of ``space`` (for ``config``, or relaxed); itself if it has its own."""
        return self

    def relaxed(self, space: Space, relaxation: str, tau: float) -> Task:
        """This task with the relaxed network of a space.

        Args:
            space: The search space.
            relaxation: ``"softmax"`` mixes operations; ``"gdas"`` draws them.
            tau: Temperature of the draws.
        """
        bound = self.bind(space)
        if relaxation == "softmax":
            return bound
        raise InputError(
            f"relaxation '{relaxation}' draws the operations of cells, but the networks of this task and "
            f"space '{space.name}' have none; leave it out, or use images and NASBench201"
        )

    def for_learning(self, structure: str, adjacency: bool) -> Task:
        """This task for learning S_val: how its examples are joined, and whether edges are learned too."""
        return self

    def sampled(self, nodes: int, fanouts: Sequence[int], seed: int) -> tuple[Any, Any]:
        """T_train and T_val, or smaller samples if the original sets do not fit."""
        return self.train, self.val

    def curved(self, data: Any, count: int, generator: torch.Generator) -> Any:
        """The examples of S_train used in linear systems: all, or ``count`` of them."""
        return data

    def augmented(self, data: Any, recipe: Recipe, generator: torch.Generator) -> Any:
        """Training examples as a step sees them, augmented if the recipe says so."""
        return data

    # --- training -------------------------------------------------------------------------------------------

    def recipes(self, train_size: int, epochs: int, metric: str) -> tuple[Recipe, Recipe]:
        """The default recipes on the full data and on the copy.

        Args:
            train_size: |S_train|.
            epochs: Epochs of a full-data training, if training uses mini-batches.
            metric: What ranks candidates on the copy.
        """
        scored = "loss" if self.num_classes is None else "accuracy"
        full = Recipe(weight_decay=getattr(self, "weight_decay", 5e-4), seeds=3, metric=scored)
        return full, dataclasses.replace(full, metric=metric)

    recipe_settings: ClassVar[tuple[str, ...]] = ("steps", "lr", "seeds", "metric")
    """Recipe settings that a user may change."""

    @property
    def training(self) -> Collection[str]:
        """Training settings that can differ between candidates, see `hcdc.spaces.Training`."""
        return TRAINING

    def check_recipe(self, argument: str, recipe: Recipe) -> None:
        """Refuse a recipe that this task cannot follow; ``argument`` is the user's name for it."""
        return

    def for_epochs(self, recipe: Recipe, epochs: int) -> Recipe:
        """The full recipe for this many epochs, after a user changed its batch size."""
        return recipe

    def relaxed_recipe(self, full: Recipe, small: Recipe) -> Recipe:
        """How the relaxed network is trained on the original data."""
        return full

    def by_recipe(self, recipe: Recipe, train: Any = None) -> Task:
        """This task with a recipe's losses: its weight decay enters the training loss.

        Args:
            recipe: The recipe.
            train: The training set, if networks are scored with its statistics.
        """
        return self

    def with_decay(self, weight_decay: float | Tensor) -> Self:
        """This task with another weight decay in its training loss; also inside ``vmap``."""
        return self._with(weight_decay=weight_decay)

    def with_dropout(self, dropout: Dropout) -> Self:
        """This task as one training step sees it; itself if its model has no dropout."""
        return self

    def _with(self, **changes: Any) -> Self:
        """A copy with other attributes, which are not checked: they may be batched tensors."""
        changed = copy.copy(self)
        for name, value in changes.items():
            object.__setattr__(changed, name, value)  # tasks may be frozen
        return changed

    def recipes_around(self, recipe: Recipe) -> list[Recipe]:
        """The recipes that probes choose from: itself, twice and half its steps, twice its learning rate."""
        change = dataclasses.replace
        return [
            recipe,
            change(recipe, steps=2 * recipe.steps),
            change(recipe, steps=max(1, recipe.steps // 2)),
            change(recipe, lr=2 * recipe.lr),
        ]

    def fitted(self, config: Config, train: Any, seed: int) -> Callable[[Any], Tensor]:
        """A candidate trained on ``train``, as a function of labelled sets; for the engine ``"fits"``."""
        raise InputError(f"a {self.kind} task fits no candidates; its engine must not be 'fits'")

    def lanes(self, data: Any, device: torch.device | str) -> int:
        """How many candidates to train at once: enough to fill the machine, few enough to fit its memory.

        It depends only on the size of the data, not on free memory, so equal runs take equal steps.
        """
        return 256 if torch.device(device).type == "cuda" else 16

    # --- candidates -----------------------------------------------------------------------------------------

    def one_network(self, space: Space) -> str:
        """Why all candidates of a space would be the same; empty if they differ."""
        return ""

    def network(self, space: Space, config: Config) -> Network:
        """A candidate's network, for engines that train networks one by one."""
        raise InputError(f"a {self.kind} task has no network per candidate; its engine must be 'lanes'")

    def inputs(self, x: Tensor) -> Tensor:
        """Turn stored inputs ``[m, ...]`` into network inputs; the identity by default."""
        return x

    def fit(self, space: Space) -> None:
        """Refuse a space that this task cannot use, or one with a hyperparameter that nothing reads."""
        self.bind(space, space.sample(1, numpy_stream(0, "fit"))[0])
        space.check_read(self.reads(space), self.training)

    def reads(self, space: Space) -> Collection[str]:
        """Hyperparameters that the task or its model reads, beside its network and recipe; all by default."""
        return [dimension.name for dimension in space.dimensions()]

    def parameter_count(self, space: Space, config: Config) -> int | None:
        """Number of parameters of a candidate; None if unknown."""
        return None

    def to(self, device: torch.device | str) -> Self:
        """This task with its data on ``device``."""
        return self._with(data=self.data.to(device))
