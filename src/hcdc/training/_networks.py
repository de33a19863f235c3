"""Training many different networks on one or more small sets of images.

A step of one small network is a few hundred kernels that take microseconds each. Launching them one by one
costs more than running them, and even a recorded graph is bound by their number. On CUDA, the repeats of a
network and its trainings on several sets therefore run as lanes of one network. Its step is recorded once as
a CUDA graph, and several networks run concurrently on their own streams. On the CPU each network trains on
its own thread and core, because small convolutions do not fill two cores.
"""

from __future__ import annotations

import gc
import math
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import chain
from typing import Any, TypeVar

import torch
from torch import Tensor
from torch.nn import functional as F

from hcdc.core.errors import InputError
from hcdc.core.recipe import Recipe
from hcdc.core.seeds import stream
from hcdc.datasets import Images
from hcdc.networks import Network, Params
from hcdc.tasks import draw_flip_crop, flip_crop
from hcdc.training._captured import record

STREAMS = 16
"""Networks that train at the same time on CUDA."""

CHUNK = 10
"""Steps launched on a stream at a time."""

MOMENTUM = 0.9
LANES = 8
"""Most trainings of one network (repeats and training sets) that run as one on CUDA."""

PRECISION = torch.bfloat16
"""Type of convolutions on CUDA; parameters are updated in float32. Not float16: its one-kernel BatchNorm
occupies the whole device, so networks on other streams wait."""

T = TypeVar("T")
After = Callable[[int, int, range, Params], T]
"""Called with trained networks as ``after(network, training set, repeats, params)``."""


def train_networks(
    networks: Sequence[Network],
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

    Initialisations, batches and augmentations are keyed by (seed, role, repeat). All networks share these
    draws, so chance affects their order less, and results do not depend on which networks train together.

    Args:
        networks: Image networks.
        trains: Training sets of equal size and shape, on ``device``.
        recipe: SGD steps and repeats (``seeds``).
        after: Called as soon as networks are trained, with those repeats on one training set that trained
            as one and the parameters of `Network.side_by_side` for that many. On CUDA its work runs on the
            network's stream, and its result is read after everything is done. Parameters are reused
            afterwards, so copy what you keep. `forward` gives the outputs.
        inputs: Turns stored pixels into network inputs (uint8: normalised).
        streams: Networks training at the same time on CUDA.

    Returns:
        What ``after`` returned, by network, training set and call.
    """
    if recipe.optimizer != "sgd":
        raise InputError(f"images are trained by optimizer 'sgd', and this recipe has '{recipe.optimizer}'")
    shapes = {tuple(train.x.shape) for train in trains}
    if len(shapes) != 1:
        raise InputError(f"training sets of one shape are needed, got {sorted(shapes)}")
    if any(train.weight is not None for train in trains):
        raise InputError("training images have weights, which only validation supports; leave them out")
    run = _Runs(trains, recipe, after, seed, role, torch.device(device), inputs)
    if run.device.type == "cuda":
        return _on_streams(run, networks, streams)

    def whole(i: int) -> list[list[T]]:
        job = run.job(networks[i], i)
        for _ in job.chunks:
            pass
        return job.found

    workers = min(torch.get_num_threads(), len(networks))
    if torch.get_num_threads() == 1 or not networks:
        return [whole(i) for i in range(len(networks))]
    with ThreadPoolExecutor(workers, initializer=torch.set_num_threads, initargs=(1,)) as pool:
        return list(pool.map(whole, range(len(networks))))


def batches(count: int, batch: int, steps: int, generator: torch.Generator) -> Tensor:
    """Indices ``[steps, batch]``: epochs in fresh orders, dropping the last partial batch."""
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

    trains: Sequence[Images]
    recipe: Recipe
    after: After[Any]
    seed: int
    role: str
    device: torch.device
    inputs: Callable[[Tensor], Tensor]

    def lanes(self, network: Network) -> tuple[int, int]:
        """How many repeats and training sets train as one: divisors of both on CUDA, 1 for other networks."""
        if self.device.type != "cuda" or not network.can_run_side_by_side:
            return 1, 1
        repeats = _divisor(self.recipe.seeds, LANES)
        return repeats, _divisor(len(self.trains), LANES // repeats)

    def job(self, network: Network, number: int, slot: _Slot | None = None) -> _Job:
        """All trainings of one network, run chunk by chunk."""
        trainer = _Trainer(self, network)
        if slot is not None:
            slot.record(trainer)
        found: list[list[Any]] = [[] for _ in self.trains]
        return _Job(self._chunks(trainer, number, found), found)

    def _chunks(self, trainer: _Trainer, number: int, found: list[list[Any]]) -> Iterator[None]:
        at_once, sets = trainer.repeats, trainer.sets
        groups = [range(first, first + at_once) for first in range(0, self.recipe.seeds, at_once)]
        draws: Iterable[_Draws] = chain([trainer.now], map(trainer.draw, groups[1:]))
        if self.device.type == "cuda":
            draws = list(draws)  # everything that comes from the host
        for repeats, drawn in zip(groups, draws):
            for first in range(0, len(self.trains), sets):
                trainer.begin(self.trains[first : first + sets], drawn)
                for start in range(0, self.recipe.steps, CHUNK):
                    for _ in range(min(CHUNK, self.recipe.steps - start)):
                        trainer.replay()
                    yield
                for k in range(first, first + sets):
                    found[k].append(self.after(number, k, repeats, trainer.trained(k - first)))


def _divisor(number: int, most: int) -> int:
    """The largest divisor of a number that is at most ``most``."""
    return max(k for k in range(1, most + 1) if number % k == 0)


@dataclass(frozen=True)
class _Job:
    """The trainings of one network: iterating ``chunks`` does the work and fills ``found``."""

    chunks: Iterator[None]
    found: list[list[Any]]


@dataclass(frozen=True)
class _Draws:
    """The random draws of a training of R lanes with P parameters each, ordered by training set.

    theta_0 ``[R P]``, batches ``[steps, R batch]``, augmentation ``[steps, R batch]`` and ``[.., 2]``.
    """

    start: Tensor
    order: Tensor
    flip: Tensor
    shift: Tensor


class Layout:
    """The parameters of a network (or R lanes of it) as one vector: matrices and kernels, then vectors.

    Kernels are stored in channels_last order, and the lanes of a parameter one after another. With one
    vector, an optimiser step takes a handful of kernels, regardless of the number of layers.

    Args:
        params: Parameters of one lane by name, for their shapes.
        lanes: R.
    """

    def __init__(self, params: Params, lanes: int = 1):
        names = sorted(params, key=lambda name: params[name].dim() <= 1)  # stable: matrices first
        self.lanes = lanes
        self.shapes = {name: params[name].shape for name in names}
        self.sizes = [params[name].numel() for name in names]
        self.matrices = lanes * sum(params[name].numel() for name in names if params[name].dim() > 1)

    def vector(self, params: Sequence[Params]) -> Tensor:
        """The parameters of all lanes as one vector ``[R P]``."""
        return torch.cat([self.flat(lane[name]) for name in self.shapes for lane in params])

    @staticmethod
    def flat(p: Tensor) -> Tensor:
        """One parameter (or its gradient) as a vector."""
        return p.permute(0, 2, 3, 1).reshape(-1) if p.dim() == 4 else p.reshape(-1)

    def views(self, vector: Tensor, work: Tensor) -> Params:
        """Parameters of all R lanes by name: matrices are views of ``work``, the rest of ``vector``."""
        found: Params = {}
        start = 0
        for (name, shape), size in zip(self.shapes.items(), self.sizes):
            many = self.lanes * size
            part = (work if start < self.matrices else vector)[start : start + many]
            if len(shape) == 4:
                _, channels, height, width = shape
                found[name] = part.view(-1, height, width, channels).permute(0, 3, 1, 2)
            elif len(shape) > 1:
                found[name] = part.view(-1, *shape[1:])
            else:
                found[name] = part.view(shape if self.lanes == 1 else (-1,))
            start += many
        return found

    def owners(self, device: torch.device | str = "cpu") -> Tensor:
        """The lane to which each entry of a vector ``[R P]`` belongs."""
        lane = torch.arange(self.lanes).repeat(len(self.sizes)).to(device)
        counts = torch.tensor(self.sizes).repeat_interleave(self.lanes).to(device)
        return torch.repeat_interleave(lane, counts, output_size=self.lanes * sum(self.sizes))


def forward(network: Network, params: Params, x: Tensor, reference: Tensor | None = None) -> Tensor:
    """Logits ``[R, n, classes]`` in float32, computed as in training: in `PRECISION` on CUDA.

    Args:
        network: A network with R lanes, see `Network.side_by_side`.
        params: Its parameters.
        x: Images ``[n, c, h, w]``.
        reference: Images for BatchNorm's statistics; None uses ``x``.
    """
    with torch.autocast(x.device.type, PRECISION, enabled=x.is_cuda, cache_enabled=False):
        if reference is None:
            logits = network.forward(params, None, x)
        else:
            logits = network.forward_with_reference(params, None, x, reference)
    return logits.float().view(network.lanes, len(x), -1)


class _Trainer:
    """One network with its lanes, static tensors and step."""

    def __init__(self, run: _Runs, network: Network):
        self.run, self.single = run, network
        self.repeats, self.sets = run.lanes(network)
        self.lanes = self.repeats * self.sets
        self.network = network.side_by_side(self.lanes)
        device = run.device
        self.layout = Layout(network.init(torch.Generator().manual_seed(0)), self.lanes)
        self.theta = torch.zeros(self.lanes * sum(self.layout.sizes), device=device)
        self.momentum, self.gradient = torch.zeros_like(self.theta), torch.zeros_like(self.theta)
        matrices = self.layout.matrices
        mixed = device.type == "cuda"
        self.work = torch.zeros(matrices, dtype=PRECISION, device=device) if mixed else self.theta
        self.params = self.layout.views(self.theta, self.work)
        self.zeros = {name: torch.zeros_like(p) for name, p in self.params.items()}
        if self.lanes > 1:
            self.owners = self.layout.owners(device)
            self.by_lane = self.owners.argsort(stable=True)
        self._take(run.trains[: self.sets])
        self.now = self.draw(range(self.repeats))  # the first repeats' draws, until others begin
        self.rates = -learning_rates(run.recipe).to(device)
        self.counter = torch.zeros(1, dtype=torch.long, device=device)
        self.replay: Callable[[], None] = self.step

    def draw(self, repeats: range) -> _Draws:
        """Draw everything for some repeats, on the device."""
        run, recipe, device = self.run, self.run.recipe, self.run.device
        inits = [self.single.init(stream(run.seed, run.role, r)) for r in repeats]
        start, count = self.layout.vector(inits * self.sets), len(self.y) // self.sets
        orders, flips, shifts = [], [], []
        for repeat in repeats:
            generator = stream(run.seed, f"{run.role}-batches", repeat)
            orders.append(batches(count, recipe.batch, recipe.steps, generator))
            if recipe.augment != "none":
                pad, mirror = max(1, self.x.shape[-1] // 8), recipe.augment == "flip-crop"
                flip, shift = draw_flip_crop(generator, orders[-1].numel(), pad, mirror)
            else:
                flip, shift = torch.zeros(0, dtype=torch.bool), torch.zeros(0, 2, dtype=torch.long)
            flips.append(flip.view(recipe.steps, -1) if len(flip) else flip.view(recipe.steps, 0))
            shifts.append(shift.view(*flips[-1].shape, 2))
        orders = [order + k * count for k in range(self.sets) for order in orders]
        rows = (torch.cat(v, 1) for v in (orders, flips * self.sets, shifts * self.sets))
        return _Draws(*(t.to(device) for t in (start, *rows)))

    @torch.no_grad()
    def begin(self, trains: Sequence[Images], draws: _Draws) -> None:
        """Set the state before the first step, for the training sets that train as one."""
        if self.run.device.type == "cuda":  # a recorded step reads the tensors it was recorded with
            torch.cat([train.x for train in trains], out=self.x)
            torch.cat([train.y for train in trains], out=self.y)
            for name in ("order", "flip", "shift"):
                getattr(self.now, name).copy_(getattr(draws, name))
        else:
            self._take(trains)
            self.now = draws
        self.theta.copy_(draws.start)
        self._refresh()
        self.momentum.zero_()
        self.counter.zero_()

    def _take(self, trains: Sequence[Images]) -> None:
        """Join the training sets; on the CPU a single set stays where it is, perhaps in a mapped file."""
        if len(trains) == 1 and self.run.device.type != "cuda":
            self.x, self.y = trains[0].x, trains[0].y
        else:
            self.x, self.y = torch.cat([t.x for t in trains]), torch.cat([t.y for t in trains])

    @torch.enable_grad()
    def step(self) -> None:
        """One SGD step in place, without reading any value back."""
        index = self.now.order.index_select(0, self.counter).squeeze(0)
        x = self.run.inputs(self.x.index_select(0, index))
        if self.run.recipe.augment != "none":
            now = self.now
            flip, shift = (t.index_select(0, self.counter).squeeze(0) for t in (now.flip, now.shift))
            x = flip_crop(x, flip, shift)
        if self.lanes > 1:
            x = x.view(self.lanes, -1, *x.shape[1:]).transpose(0, 1).flatten(1, 2)
        if x.is_cuda:
            x = x.contiguous(memory_format=torch.channels_last)
        leaves = {name: p.detach().requires_grad_() for name, p in self.params.items()}
        logits = forward(self.network, leaves, x)
        loss = self.lanes * F.cross_entropy(logits.flatten(0, 1), self.y.index_select(0, index))
        found = torch.autograd.grad(loss, list(leaves.values()), allow_unused=True)
        with torch.no_grad():
            self._collect(dict(zip(leaves, found)))
            self._sgd()

    def _collect(self, found: dict[str, Tensor | None]) -> None:
        """Join gradients into one vector; weights on no path from input to output have none."""
        parts = [self.layout.flat(self.zeros[name] if g is None else g) for name, g in found.items()]
        flat = [part for part, p in zip(parts, self.params.values()) if p.dim() > 1]
        self.gradient[: self.layout.matrices].copy_(torch.cat(flat))
        if len(flat) < len(parts):
            torch.cat(parts[len(flat) :], out=self.gradient[self.layout.matrices :])

    def _sgd(self) -> None:
        recipe = self.run.recipe
        if recipe.weight_decay:
            self.gradient.add_(self.theta, alpha=recipe.weight_decay)
        if recipe.clip:
            self.gradient.mul_(self._clipped(recipe.clip))
        self.momentum.mul_(MOMENTUM).add_(self.gradient)
        self.theta.addcmul_(self.momentum, self.rates.index_select(0, self.counter))
        self._refresh()
        self.counter += 1

    def _clipped(self, clip: float) -> Tensor:
        """The clipping factor for each entry of the gradient, from its own lane's norm."""
        rows = self.gradient
        if self.lanes > 1:
            rows = rows.index_select(0, self.by_lane)
        norm: Tensor = torch.linalg.vector_norm(rows.view(self.lanes, -1), dim=1)
        factor = (clip / (norm + 1e-6)).clamp_max(1.0)
        return factor if self.lanes == 1 else factor.index_select(0, self.owners)

    def trained(self, k: int) -> Params:
        """The parameters for one training set, given its position among those that train as one."""
        if self.sets == 1:
            return self.params
        sizes = {name: len(p) // self.sets for name, p in self.params.items()}
        return {name: p[k * sizes[name] : (k + 1) * sizes[name]] for name, p in self.params.items()}

    def _refresh(self) -> None:
        """Update the parameters that the network sees."""
        if self.work is not self.theta:
            self.work.copy_(self.theta[: self.layout.matrices])


def networks_that_fit(device: torch.device | str) -> int:
    """How many networks fit into a CUDA device's memory, at 4 GiB each; at least 1."""
    return max(1, torch.cuda.get_device_properties(torch.device(device)).total_memory >> 32)


def _on_streams(run: _Runs, networks: Sequence[Network], streams: int) -> list[list[list[Any]]]:
    """Train networks on several streams, which get their steps in turn.

    If a whole training were queued on one stream, the host would wait for it while the others run dry. So
    each stream gets one chunk of steps at a time and is skipped while two chunks are under way.
    """
    found: list[list[list[Any]]] = []
    waiting = list(range(len(networks)))[::-1]
    slots = [_Slot() for _ in range(min(streams, networks_that_fit(run.device), len(networks)))]
    torch.cuda.synchronize(run.device)
    _make_room(run.device, 0.75)
    while waiting or any(slot.job for slot in slots):
        moved = False
        for slot in slots:
            if slot.job is None and waiting and slot.idle():
                i = waiting.pop()
                with torch.cuda.stream(slot.stream):
                    slot.job = run.job(networks[i], i, slot)
                found.append(slot.job.found)
                moved = True
            elif slot.job is not None and slot.room():
                with torch.cuda.stream(slot.stream):
                    slot.advance()
                moved = True
        if not moved:
            next(slot for slot in slots if slot.under_way).under_way[0].synchronize()
    torch.cuda.synchronize(run.device)
    return found


def _make_room(device: torch.device, share: float) -> None:
    """Free unused memory if less than ``share`` is left. While a graph is recorded, memory that the allocator
    holds for other streams and deleted graphs cannot be freed."""
    free, total = torch.cuda.mem_get_info(device)
    if free < share * total:
        gc.collect()  # graphs and their steps reference each other
        torch.cuda.empty_cache()


class _Slot:
    """A stream, its memory pool and the network on it."""

    def __init__(self) -> None:
        self.stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        self.pool = torch.cuda.graph_pool_handle()
        self.under_way: deque[torch.cuda.Event] = deque()
        self.job: _Job | None = None
        self.trainer: _Trainer | None = None
        self.graph: torch.cuda.CUDAGraph | None = None

    def record(self, trainer: _Trainer) -> None:
        """Record the step while the other streams run."""
        _make_room(self.stream.device, 0.25)
        trainer.step()
        graph = record(trainer.step, self.pool)
        trainer.replay = graph.replay
        self.graph = graph  # replace the old graph only now: the pool must always have one
        self.trainer = trainer

    def room(self) -> bool:
        """Whether fewer than two chunks are under way."""
        while self.under_way and self.under_way[0].query():  # type: ignore[no-untyped-call]
            self.under_way.popleft()
        return len(self.under_way) < 2

    def idle(self) -> bool:
        """Whether nothing is under way, so the last network's memory may be freed."""
        self.room()
        return not self.under_way

    def advance(self) -> None:
        """Launch the next chunk; the job ends after the last one."""
        assert self.job is not None
        if next(self.job.chunks, self) is self:
            self.job = None
        done = torch.cuda.Event()  # type: ignore[no-untyped-call]
        done.record()
        self.under_way.append(done)
