"""Training many different networks on one small set of images, or on several.

A step of one small network is a few hundred kernels of microseconds: launching them one by one costs more
than running them. On CUDA each network's step is recorded once as a CUDA graph, replayed for every seed and
every training set, and several networks run at the same time on streams of their own. On the CPU networks
train on threads of their own, one core each: small convolutions do not fill two cores.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, TypeVar

import torch
from torch import Tensor
from torch.nn import functional as F

from hcdc.core.errors import InputError
from hcdc.core.recipe import Recipe
from hcdc.core.seeds import stream
from hcdc.datasets._images import Images
from hcdc.spaces._base import Params
from hcdc.training._augment import draw_flip_crop, flip_crop

STREAMS = 8
"""Networks that train at the same time on CUDA."""

MOMENTUM = 0.9

T = TypeVar("T")
After = Callable[[int, int, int, Params], T]
"""What is made of a trained network: ``after(network, training set, repeat, params)``."""


def train_networks(
    networks: Sequence[Any],
    keys: Sequence[object],
    trains: Sequence[Images],
    recipe: Recipe,
    after: After[T],
    *,
    seed: int,
    role: str,
    device: torch.device | str,
    inputs: Callable[[Tensor], Tensor] = lambda x: x,
    streams: int = STREAMS,
) -> list[list[list[T]]]:
    """Train every network on every training set from every repeat's initialisation.

    Initialisations, batches and augmentations are keyed by (seed, role, key, repeat): they do not depend on
    which networks are trained together, and a network meets equal draws on all training sets.

    Args:
        networks: Networks of images, ``init(generator)`` and ``forward(params, lam, images)``.
        keys: One a network (hash of its configuration).
        trains: Training sets of one size and shape, on ``device``.
        recipe: SGD steps and repeats (``seeds``).
        after: Called with each trained network as soon as it is trained; on CUDA work it launches runs on
            the network's stream, and what it returns is read after all is done. Parameters are re-used
            afterwards: it copies what it keeps.
        inputs: From stored pixels to what networks see (uint8: normalised).
        streams: Networks at the same time on CUDA.

    Returns:
        What ``after`` returned, by network, training set and repeat.
    """
    if recipe.optimizer != "sgd":
        raise InputError(f"images are trained by optimizer 'sgd', and this recipe has '{recipe.optimizer}'")
    shapes = {tuple(train.x.shape) for train in trains}
    if len(shapes) != 1:
        raise InputError(f"training sets of one shape are needed, got {sorted(shapes)}")
    run = _Runs(keys, trains, recipe, after, seed, role, torch.device(device), inputs)
    if run.device.type == "cuda":
        return _on_streams(run, networks, streams)
    workers = max(1, min(torch.get_num_threads(), len(networks)))
    if workers == 1:
        return [run.all(_Trainer(run, net), i) for i, net in enumerate(networks)]
    with ThreadPoolExecutor(workers, initializer=torch.set_num_threads, initargs=(1,)) as pool:
        return list(pool.map(lambda job: run.all(_Trainer(run, job[1]), job[0]), enumerate(networks)))


def batches(count: int, batch: int, steps: int, generator: torch.Generator) -> Tensor:
    """Indices ``[steps, batch]``: epochs of a fresh order each, without a last partial batch."""
    if batch == 0 or batch >= count:
        return torch.stack([torch.randperm(count, generator=generator) for _ in range(steps)])
    per_epoch = count // batch
    epochs = [
        torch.randperm(count, generator=generator)[: per_epoch * batch].view(per_epoch, batch)
        for _ in range(math.ceil(steps / per_epoch))
    ]
    return torch.cat(epochs)[:steps]


def learning_rates(recipe: Recipe) -> Tensor:
    """The learning rate of each step ``[steps]``: a cosine from ``lr`` to ``lr_end``."""
    t = torch.arange(recipe.steps) / recipe.steps
    return recipe.lr_end + (recipe.lr - recipe.lr_end) * (1 + torch.cos(math.pi * t)) / 2


@dataclass(frozen=True)
class _Runs:
    """The arguments of `train_networks` that all networks share."""

    keys: Sequence[object]
    trains: Sequence[Images]
    recipe: Recipe
    after: After[Any]
    seed: int
    role: str
    device: torch.device
    inputs: Callable[[Tensor], Tensor]

    def all(self, trainer: _Trainer, network: int) -> list[list[Any]]:
        """Every training of one network; all that comes from the host comes first."""
        draws = [trainer.draw((self.keys[network], repeat)) for repeat in range(self.recipe.seeds)]
        found: list[list[Any]] = [[] for _ in self.trains]
        for repeat, drawn in enumerate(draws):
            for k, train in enumerate(self.trains):
                trainer.train(train, drawn)
                found[k].append(self.after(network, k, repeat, trainer.params))
        return found


@dataclass(frozen=True)
class _Draws:
    """What chance decides of one training: initial parameters, batches ``[steps, batch]``, augmentation."""

    start: list[Tensor]
    order: Tensor
    flip: Tensor
    shift: Tensor

    def tensors(self) -> list[Tensor]:
        return [self.order, self.flip, self.shift]


class _Trainer:
    """One network with its static tensors and its step."""

    def __init__(self, run: _Runs, network: Any):
        self.run, self.network = run, network
        recipe, device, example = run.recipe, run.device, run.trains[0]
        self.params: Params = {
            name: _laid_out(p.to(device))
            for name, p in network.init(torch.Generator().manual_seed(0)).items()
        }
        self.momentum = [torch.zeros_like(p) for p in self.params.values()]
        self.x, self.y = example.x.clone(), example.y.clone()
        self.now = self.draw(("first",))
        self.rates = learning_rates(recipe).to(device)
        self.counter = torch.zeros(1, dtype=torch.long, device=device)
        self.live: list[int] | None = None
        self.replay: Callable[[], None] = self.step

    def draw(self, key: tuple[object, ...]) -> _Draws:
        """The draws of one training, on the device."""
        run, recipe, device = self.run, self.run.recipe, self.run.device
        init = self.network.init(stream(run.seed, run.role, *key))
        start = [_laid_out(init[name].to(device)) for name in self.params]
        generator = stream(run.seed, f"{run.role}-batches", *key)
        order = batches(len(self.y), recipe.batch, recipe.steps, generator)
        if recipe.augment == "flip-crop":
            flip, shift = draw_flip_crop(generator, order.numel(), pad=max(1, self.x.shape[-1] // 8))
        else:
            flip, shift = torch.zeros(0, dtype=torch.bool), torch.zeros(0, 2, dtype=torch.long)
        rows = (recipe.steps, -1)
        return _Draws(start, order.to(device), flip.view(rows).to(device), shift.view(*rows, 2).to(device))

    @torch.no_grad()
    def train(self, train: Images, draws: _Draws) -> None:
        """All steps on one training set."""
        self.x.copy_(train.x)
        self.y.copy_(train.y)
        torch._foreach_copy_(list(self.params.values()), draws.start)
        for static, drawn in zip(self.now.tensors(), draws.tensors()):
            static.copy_(drawn)
        torch._foreach_zero_(self.momentum)
        self.counter.zero_()
        for _ in range(self.run.recipe.steps):
            self.replay()

    @torch.enable_grad()
    def step(self) -> None:
        """One SGD step in place, without a look at any value."""
        recipe = self.run.recipe
        index = self.now.order.index_select(0, self.counter).squeeze(0)
        x = self.run.inputs(self.x.index_select(0, index))
        if recipe.augment == "flip-crop":
            flip, shift = (
                t.index_select(0, self.counter).squeeze(0) for t in (self.now.flip, self.now.shift)
            )
            x = flip_crop(x, flip, shift)
        if x.is_cuda:
            x = x.contiguous(memory_format=torch.channels_last)
        names = list(self.params)
        leaves = [p.requires_grad_() for p in self.params.values()]
        loss = F.cross_entropy(self.network.forward(self.params, None, x), self.y.index_select(0, index))
        found = torch.autograd.grad(loss, leaves, allow_unused=True)
        if self.live is None:  # weights that no path from input to output uses have no gradient
            self.live = [i for i in range(len(names)) if found[i] is not None]
        with torch.no_grad():
            self._sgd([found[i] for i in self.live], [leaves[i] for i in self.live])
        for p in leaves:
            p.requires_grad_(False)

    def _sgd(self, gradient: list[Any], params: list[Tensor]) -> None:
        recipe = self.run.recipe
        assert self.live is not None
        momentum = [self.momentum[i] for i in self.live]
        if recipe.weight_decay:
            gradient = list(torch._foreach_add(gradient, params, alpha=recipe.weight_decay))
        if recipe.clip:
            norm = torch.linalg.vector_norm(torch.stack(torch._foreach_norm(gradient)))
            gradient = list(torch._foreach_mul(gradient, (recipe.clip / (norm + 1e-6)).clamp_max(1.0)))
        torch._foreach_mul_(momentum, MOMENTUM)
        torch._foreach_add_(momentum, gradient)
        rate = self.rates.index_select(0, self.counter).squeeze(0)
        torch._foreach_sub_(params, torch._foreach_mul(momentum, rate))
        self.counter += 1


def _laid_out(p: Tensor) -> Tensor:
    """Convolution weights on CUDA in the order of channels_last images."""
    return p.contiguous(memory_format=torch.channels_last) if p.is_cuda and p.dim() == 4 else p


def _on_streams(run: _Runs, networks: Sequence[Any], count: int) -> list[list[list[Any]]]:
    """Networks in turn on ``count`` streams; one is recorded while the others run."""
    slots = [_Slot() for _ in range(min(count, len(networks)))]
    found = []
    for i, network in enumerate(networks):
        slot = slots[i % len(slots)]
        slot.done.synchronize()
        with torch.cuda.stream(slot.stream):
            trainer = _Trainer(run, network)
            slot.record(trainer)
            found.append(run.all(trainer, i))
            slot.done.record()
            slot.trainer = trainer
    torch.cuda.synchronize()
    return found


class _Slot:
    """A stream, its memory pool and the network on it."""

    def __init__(self) -> None:
        self.stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        self.done = torch.cuda.Event()  # type: ignore[no-untyped-call]
        self.pool = torch.cuda.graph_pool_handle()
        self.trainer: _Trainer | None = None
        self.graph: torch.cuda.CUDAGraph | None = None

    def record(self, trainer: _Trainer) -> None:
        """Record the step without a wait for the other streams (as `torch.cuda.graph` would)."""
        trainer.step()  # kernels are loaded, and unused weights found, outside of the recording
        graph = torch.cuda.CUDAGraph()
        graph.capture_begin(pool=self.pool, capture_error_mode="thread_local")
        trainer.step()
        graph.capture_end()
        trainer.replay = graph.replay
        self.graph = graph  # the old one goes only now: the pool must not be without a graph
