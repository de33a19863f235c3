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
from dataclasses import dataclass, field, fields
from itertools import chain
from typing import Any, TypeVar

import torch
from torch import Tensor
from torch.nn import functional as F

from hcdc.core.errors import InputError
from hcdc.core.recipe import Recipe
from hcdc.core.seeds import derive, stream
from hcdc.datasets import Images
from hcdc.networks import Dropout, Network, Params
from hcdc.tasks import draw_flip_crop, flip_crop, flip_crop_settings
from hcdc.training._captured import record
from hcdc.training._optimizers import VectorOptimizer
from hcdc.training._weights import PRECISION, Layout, weights

STREAMS = 8
"""Networks that train at the same time on CUDA."""

CHUNK = 10
"""Steps launched on a stream at a time."""

LANES = 8
"""Most trainings of one network (repeats and training sets) that run as one on CUDA."""

T = TypeVar("T")
After = Callable[[int, range, range, Params], Sequence[T]]
"""Called with trained networks as ``after(network, training sets, repeats, params)``: one result per set."""


def train_networks(
    networks: Sequence[Network],
    trains: Sequence[Images],
    recipes: Recipe | Sequence[Recipe],
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
        recipes: How to train: one recipe for all networks, or one for each. They may differ in everything but
            the repeats (``seeds``).
        after: Called as soon as networks are trained, with the training sets and repeats that trained as one
            and the parameters of `Network.side_by_side` for that many, ordered by training set (`of_set`).
            On CUDA its work runs on the network's stream, and its results are read after everything is done.
            Parameters are reused afterwards, so copy what you keep. `forward` gives the outputs.
        inputs: Turns stored pixels into network inputs (uint8: normalised).
        streams: Networks training at the same time on CUDA.

    Returns:
        What ``after`` returned, by network, training set and call.
    """
    each = [recipes] * len(networks) if isinstance(recipes, Recipe) else list(recipes)
    shapes = {tuple(train.x.shape) for train in trains}
    if len(shapes) != 1:
        raise InputError(f"training sets of one shape are needed, got {sorted(shapes)}")
    if any(train.weight is not None for train in trains):
        raise InputError("training images have weights, which only validation supports; leave them out")
    run = _Runs(trains, each, after, seed, role, torch.device(device), inputs)
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


@dataclass(frozen=True)
class _Runs:
    """The arguments of `train_networks` that all networks share."""

    trains: Sequence[Images]
    recipes: Sequence[Recipe]
    after: After[Any]
    seed: int
    role: str
    device: torch.device
    inputs: Callable[[Tensor], Tensor]
    _shared: dict[Any, Any] = field(default_factory=dict, init=False, repr=False)

    def shared(self, key: Any, make: Callable[[], T]) -> T:
        """What several networks read, made once; on CUDA it is ready before another stream reads it."""
        if key not in self._shared:
            self._shared[key] = make()
            if self.device.type == "cuda":
                torch.cuda.current_stream(self.device).synchronize()
        found: T = self._shared[key]
        return found

    def start(self, network: Network, layout: Layout, repeats: range, sets: int) -> Tensor:
        """theta_0 ``[R P]`` on the device; layers that networks have in common are drawn and moved once."""
        family = network.family()

        def drawn() -> list[Params]:
            return [family.init(stream(self.seed, self.role, r)) for r in repeats] * sets

        def layers() -> dict[str, Tensor]:
            each = drawn()
            return {n: torch.cat([layout.flat(one[n]) for one in each]).to(self.device) for n in each[0]}

        if family is network:
            return layout.vector(drawn()).to(self.device)
        ready = self.shared((family, repeats, sets), layers)
        return torch.cat([ready[name] for name in layout.shapes])

    def rows(self, recipe: Recipe, repeats: range, sets: int) -> tuple[Tensor, ...]:
        """Batches ``[steps, R batch]``, their augmentation and dropout's keys, on the device."""
        key = (recipe.steps, recipe.batch, recipe.augment, repeats, sets)
        return self.shared(key, lambda: self._rows(recipe, repeats, sets))

    def _rows(self, recipe: Recipe, repeats: range, sets: int) -> tuple[Tensor, ...]:
        count, size = len(self.trains[0].y), self.trains[0].x.shape[-1]
        keys = [derive(self.seed, f"{self.role}-dropout", repeat) for repeat in repeats]
        orders, flips, shifts = [], [], []
        for repeat in repeats:
            generator = stream(self.seed, f"{self.role}-batches", repeat)
            orders.append(batches(count, recipe.batch, recipe.steps, generator))
            if recipe.augment != "none":
                settings = flip_crop_settings(recipe.augment, size)
                flip, shift = draw_flip_crop(generator, orders[-1].numel(), *settings)
            else:
                flip, shift = torch.zeros(0, dtype=torch.bool), torch.zeros(0, 2, dtype=torch.long)
            flips.append(flip.view(recipe.steps, -1) if len(flip) else flip.view(recipe.steps, 0))
            shifts.append(shift.view(*flips[-1].shape, 2))
        orders = [order + k * count for k in range(sets) for order in orders]
        rows = (torch.cat(v, 1) for v in (orders, flips * sets, shifts * sets))
        return tuple(t.to(self.device) for t in (*rows, torch.tensor(keys * sets)))

    def lanes(self, network: Network) -> tuple[int, int]:
        """How many repeats and training sets train as one: divisors of both on CUDA, 1 for other networks."""
        if self.device.type != "cuda" or not network.can_run_side_by_side:
            return 1, 1
        repeats = _divisor(self.recipes[0].seeds, LANES)
        return repeats, _divisor(len(self.trains), LANES // repeats)

    def job(self, network: Network, number: int, slot: _Slot | None = None) -> _Job:
        """All trainings of one network, run chunk by chunk."""
        trainer = _Trainer(self, network, self.recipes[number])
        if slot is not None:
            slot.record(trainer)
        found: list[list[Any]] = [[] for _ in self.trains]
        return _Job(self._chunks(trainer, number, found), found)

    def _chunks(self, trainer: _Trainer, number: int, found: list[list[Any]]) -> Iterator[None]:
        at_once, sets, recipe = trainer.repeats, trainer.sets, trainer.recipe
        groups = [range(first, first + at_once) for first in range(0, recipe.seeds, at_once)]
        draws: Iterable[_Draws] = chain([trainer.now], map(trainer.draw, groups[1:]))
        if self.device.type == "cuda":
            draws = list(draws)  # everything that comes from the host
        for repeats, drawn in zip(groups, draws):
            for first in range(0, len(self.trains), sets):
                trainer.begin(self.trains[first : first + sets], drawn)
                for start in range(0, recipe.steps, CHUNK):
                    for _ in range(min(CHUNK, recipe.steps - start)):
                        trainer.replay()
                    yield
                together = range(first, first + sets)
                made = self.after(number, together, repeats, trainer.weights.trained())
                for k, one in zip(together, made, strict=True):
                    found[k].append(one)


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

    theta_0 ``[R P]``, batches ``[steps, R batch]``, augmentation ``[steps, R batch]`` and ``[.., 2]``, and
    dropout's keys ``[R]``.
    """

    start: Tensor
    order: Tensor
    flip: Tensor
    shift: Tensor
    keys: Tensor


def of_set(params: Params, place: int, sets: int) -> Params:
    """The parameters for one of the training sets that trained as one, given its place among them."""
    if sets == 1:
        return params
    sizes = {name: len(p) // sets for name, p in params.items()}
    return {name: p[place * sizes[name] : (place + 1) * sizes[name]] for name, p in params.items()}


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

    def __init__(self, run: _Runs, network: Network, recipe: Recipe):
        self.run, self.single, self.recipe = run, network, recipe
        self.repeats, self.sets = run.lanes(network)
        self.lanes = self.repeats * self.sets
        self.network = network.side_by_side(self.lanes)
        device = run.device
        shapes = {name: torch.empty(shape, device="meta") for name, shape in network.shapes().items()}
        self.layout = Layout(shapes, self.lanes)
        self.weights = weights(network, self.layout, device)
        self.optimizer = VectorOptimizer(self.weights.theta, recipe)
        self._take(run.trains[: self.sets])
        self.now = self.draw(range(self.repeats))  # the first repeats' draws, until others begin
        if device.type == "cuda":  # a recorded step reads these tensors, and networks share the draws
            self.now = _Draws(*(getattr(self.now, f.name).clone() for f in fields(_Draws)))
        self.counter = torch.zeros(1, dtype=torch.long, device=device)
        self.replay: Callable[[], None] = self.step

    def draw(self, repeats: range) -> _Draws:
        """Draw everything for some repeats, on the device."""
        start = self.run.start(self.single, self.layout, repeats, self.sets)
        return _Draws(start, *self.run.rows(self.recipe, repeats, self.sets))

    @torch.no_grad()
    def begin(self, trains: Sequence[Images], draws: _Draws) -> None:
        """Set the state before the first step, for the training sets that train as one."""
        if self.run.device.type == "cuda":  # a recorded step reads the tensors it was recorded with
            torch.cat([train.x for train in trains], out=self.x)
            torch.cat([train.y for train in trains], out=self.y)
            for name in ("order", "flip", "shift", "keys"):
                getattr(self.now, name).copy_(getattr(draws, name))
        else:
            self._take(trains)
            self.now = draws
        self.weights.theta.copy_(draws.start)
        self.weights.refresh()
        self.optimizer.reset()
        self.counter.zero_()

    def _take(self, trains: Sequence[Images]) -> None:
        """Join the training sets; on the CPU a single set stays where it is, perhaps in a mapped file."""
        if len(trains) == 1 and self.run.device.type != "cuda":
            self.x, self.y = trains[0].x, trains[0].y
        else:
            self.x, self.y = torch.cat([t.x for t in trains]), torch.cat([t.y for t in trains])

    @torch.enable_grad()
    def step(self) -> None:
        """One step in place, without reading any value back."""
        index = self.now.order.index_select(0, self.counter).squeeze(0)
        x = self.run.inputs(self.x.index_select(0, index))
        if self.recipe.augment != "none":
            now = self.now
            flip, shift = (t.index_select(0, self.counter).squeeze(0) for t in (now.flip, now.shift))
            x = flip_crop(x, flip, shift)
        if self.lanes > 1:
            x = x.view(self.lanes, -1, *x.shape[1:]).transpose(0, 1).flatten(1, 2)
        if x.is_cuda:
            x = x.contiguous(memory_format=torch.channels_last)
        leaves = {name: p.detach().requires_grad_() for name, p in self.weights.params.items()}
        network = self.network
        if self.recipe.dropout or network.drops:
            network = network.with_dropout(Dropout(self.recipe.dropout, self.now.keys).at(self.counter))
        logits, y = forward(network, leaves, x).flatten(0, 1), self.y.index_select(0, index)
        loss = self.lanes * F.cross_entropy(logits, y, label_smoothing=self.recipe.label_smoothing)
        found = torch.autograd.grad(loss, list(leaves.values()), allow_unused=True)
        with torch.no_grad():
            decay = 0.0 if self.recipe.optimizer == "adamw" else self.recipe.weight_decay
            self.weights.collect(dict(zip(leaves, found)), decay, self.recipe.clip)
            self.optimizer.step(self.weights.gradient, self.counter)
            self.weights.refresh()
            self.counter += 1


def networks_that_fit(device: torch.device | str) -> int:
    """How many networks fit into a CUDA device's memory, at 4 GiB each; at least 1."""
    return max(1, torch.cuda.get_device_properties(torch.device(device)).total_memory >> 32)


def _on_streams(run: _Runs, networks: Sequence[Network], streams: int) -> list[list[list[Any]]]:
    """Train networks on several streams, which get their steps in turn.

    If a whole training were queued on one stream, the host would wait for it while the others run dry. So
    each stream gets one chunk of steps at a time and is skipped while two chunks are under way. The next
    network of a stream is recorded while the last chunk of the one before runs.
    """
    found: list[list[list[Any]]] = []
    waiting = list(range(len(networks)))[::-1]
    slots = [_Slot() for _ in range(min(streams, networks_that_fit(run.device), len(networks)))]
    torch.cuda.synchronize(run.device)
    _make_room(run.device, 0.75)
    while waiting or any(slot.job for slot in slots):
        moved = False
        for slot in slots:
            if slot.job is None and waiting and slot.room():
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

    def advance(self) -> None:
        """Launch the next chunk; the job ends after the last one."""
        assert self.job is not None
        if next(self.job.chunks, self) is self:
            self.job = None
        done = torch.cuda.Event()  # type: ignore[no-untyped-call]
        done.record()
        self.under_way.append(done)
