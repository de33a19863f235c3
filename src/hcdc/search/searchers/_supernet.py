"""What GDAS and DARTS-PT share: a supernet of NAS-Bench-201 cells, its weights and its logits."""

from __future__ import annotations

import dataclasses
import itertools
import logging
import math
from abc import abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from hcdc.core.configs import Config
from hcdc.core.errors import InputError
from hcdc.core.recipe import Recipe
from hcdc.core.seeds import numpy_stream, stream
from hcdc.core.settings import setting
from hcdc.networks import EDGES, OPERATIONS, CellNetwork
from hcdc.search.searchers._base import SearcherSettings, TaskSearcher
from hcdc.spaces import NASBench201, Space
from hcdc.tasks import Task
from hcdc.training import Captured

log = logging.getLogger("hcdc")


@dataclass(frozen=True)
class SupernetSettings(SearcherSettings):
    """How a supernet is trained.

    Attributes:
        epochs: Passes over the training set.
        batch: Images per step.
        cells: N, cells per stage of the supernet.
        lr, lr_end: First and last learning rate of the weights (SGD, Nesterov momentum .9, cosine).
        weight_decay: Of the weights.
        clip: Largest norm of the weights' gradient.
        arch_lr, arch_weight_decay: Of the logits alpha (Adam, betas .5 and .999).
        augment: Augmentation of training images; None takes the task's own on its data and none on a copy.
    """

    name = "supernet"

    epochs: int = setting(100, least=1)
    batch: int = setting(64, least=2)
    cells: int = setting(5, least=1)
    lr: float = setting(0.025, above=0)
    lr_end: float = setting(0.001, least=0)
    weight_decay: float = setting(3e-4, least=0)
    clip: float = setting(5.0, above=0)
    arch_lr: float = setting(3e-4, above=0)
    arch_weight_decay: float = setting(1e-3, least=0)
    augment: str | None = None


class Recorded:
    """A function of the next batch; on CUDA its first call records it. Batches are copied into the first one.

    A supernet's gradient is several hundred small kernels, which take longer to launch than to run.

    Args:
        function: Takes a batch from an iterator and leaves its results in tensors, which the next call
            overwrites. It makes no decisions on the host and draws no random numbers.
        device: Where it runs.
    """

    def __init__(self, function: Callable[[Iterator[Any]], None], device: torch.device):
        self._function, self._device = function, device
        self._batch: Any = None

    def __call__(self, batches: Iterator[Any]) -> None:
        found = next(batches)
        if self._batch is None:
            self._batch = type(found).from_tensors({name: t.clone() for name, t in found.tensors().items()})
            again = itertools.repeat(self._batch)
            self._replay = Captured(lambda: self._function(again), self._device)
        for name, tensor in self._batch.tensors().items():
            tensor.copy_(found.tensors()[name])
        self._replay()


class SupernetSearcher(TaskSearcher):
    """Trains weights on the training set and logits alpha ``[6, 5]`` on the validation set, in turn.

    Gradients are first order: alpha's does not pass through the weights. BatchNorm takes the statistics of
    its batch. `ask` runs the search once and always returns the cell it found.

    Attributes:
        recordable: Whether both gradients can be recorded on CUDA, see `Recorded`.
    """

    settings: SupernetSettings
    recordable: ClassVar[bool] = False

    def __init__(
        self, space: Space, seed: int = 0, *, task: Task, train: Any = None, val: Any = None, **settings: Any
    ):
        if not isinstance(space, NASBench201) or task.image_shape is None:
            raise InputError(
                f"searcher '{self.name}' trains a supernet of cells on images; use NASBench201 and an image "
                f"task, not space '{space.name}' on {task.kind} data"
            )
        cell = space.sample(1, numpy_stream(seed, "search"))[0]
        if not isinstance(task.network(space, cell), CellNetwork):
            raise InputError(f"searcher '{self.name}' trains cells, but the task has another model")
        super().__init__(space, seed, task=task, train=train, val=val, **settings)
        used = dataclasses.replace(space, cells=self.settings.cells)
        self.net: CellNetwork = used.network(task.features, task.num_classes or 0).fast()
        full, small = task.recipes(len(self.train), 1, task.real_metric)
        augment = self.settings.augment or (small if self.on_copy else full).augment
        self._recipe = Recipe(augment=augment)
        self._found: Config | None = None

    def run(self) -> Config:
        """Train the supernet from scratch and return the cell."""
        self._chance = stream(self.seed, "search", self.name)
        start = self.net.init(self._chance)
        self.params = {name: p.to(self.device).requires_grad_() for name, p in start.items()}
        logits = 1e-3 * torch.randn(len(EDGES), len(OPERATIONS), generator=self._chance)
        self.alpha = logits.to(self.device).requires_grad_()
        s = self.settings
        self._adam = torch.optim.Adam(
            [self.alpha], s.arch_lr, betas=(0.5, 0.999), weight_decay=s.arch_weight_decay
        )
        self._descend: Callable[[Iterator[Any]], None] = self._weight_gradient
        self._turn: Callable[[Iterator[Any]], None] = self._logit_gradient
        if self.recordable:
            self._descend, self._turn = (Recorded(f, self.device) for f in (self._descend, self._turn))
        self._found = self.search()
        return dict(self._found)

    def propose(self) -> Config:
        return self._found or self.run()

    @abstractmethod
    def search(self) -> Config:
        """The whole search, from fresh ``params`` and ``alpha``."""

    @abstractmethod
    def mixture(self, progress: float) -> Tensor:
        """lambda ``[30]`` from ``alpha``, with its gradient, at this share of all epochs (0 to 1)."""

    def network_at(self, lam: Tensor) -> CellNetwork:
        """The network whose weights are trained at lambda."""
        return self.net

    def fit(self, epochs: int, lr: float, lr_end: float) -> None:
        """Train weights and logits in turn for some epochs; the learning rate follows a cosine."""
        s, weights = self.settings, list(self.params.values())
        sgd = torch.optim.SGD(weights, lr, momentum=0.9, weight_decay=s.weight_decay, nesterov=True)
        validation = self._batches(self.val)
        for epoch in range(epochs):
            self._progress = epoch / max(1, epochs - 1)
            for group in sgd.param_groups:
                group["lr"] = lr_end + (lr - lr_end) * (1 + math.cos(math.pi * epoch / epochs)) / 2
            training = (
                self.task.augmented(some, self._recipe, self._chance) for some in self._batches(self.train)
            )
            for _ in range(max(1, len(self.train) // s.batch)):
                self._descend(training)
                torch.nn.utils.clip_grad_norm_(weights, s.clip)
                sgd.step()
                self._turn(validation)
                self._adam.step()
            log.debug("searcher %s: epoch %d of %d, loss %.3f", self.name, epoch + 1, epochs, self._loss)

    def _weight_gradient(self, batches: Iterator[Any]) -> None:
        """The gradient of the next batch's loss in the weights."""
        some, weights = next(batches), list(self.params.values())
        lam = self.mixture(self._progress).detach()
        loss = self.loss(self.network_at(lam), lam, some)
        for p, gradient in zip(weights, torch.autograd.grad(loss, weights, allow_unused=True)):
            p.grad = gradient
        self._loss = loss.detach()

    def _logit_gradient(self, batches: Iterator[Any]) -> None:
        """The gradient of the next batch's loss in the logits."""
        loss = self.loss(self.net, self.mixture(self._progress), next(batches))
        self.alpha.grad = torch.autograd.grad(loss, self.alpha)[0]

    def loss(self, network: CellNetwork, lam: Tensor, data: Any) -> Tensor:
        """The loss of a labelled set at lambda."""
        return self.task.loss(network.forward(self.params, lam, self.task.inputs(data.x)), data)

    def _batches(self, data: Any) -> Iterator[Any]:
        """Batches without end, each epoch in a new order; a set smaller than a batch is one batch."""
        size = min(self.settings.batch, len(data))
        while True:
            order = torch.randperm(len(data), generator=self._chance).to(self.device)
            for start in range(0, len(data) - size + 1, size):
                yield self.task.subset(data, order[start : start + size])
