"""Convolutional networks of repeated cells (NAS-Bench-201), as pure functions of (params, lambda, images)."""

from __future__ import annotations

import dataclasses
import functools
import importlib.util
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

import torch
from torch import Tensor
from torch.nn import functional as F

from hcdc.core.errors import InputError
from hcdc.core.seeds import stream
from hcdc.networks._base import Network, Params, check_lam
from hcdc.networks._dropout import Dropout

OPERATIONS = ("none", "skip_connect", "nor_conv_1x1", "nor_conv_3x3", "avg_pool_3x3")
"""The operations an edge can have, in the benchmark's order."""

EDGES = ((0, 1), (0, 2), (1, 2), (0, 3), (1, 3), (2, 3))
"""(source, target) of the six edges of a cell; node 0 is the input, node 3 the output."""

NONE, SKIP, CONV_1X1, CONV_3X3, POOL = range(5)
KERNELS = {CONV_1X1: 1, CONV_3X3: 3}
STAGES = 3
MIXTURE = len(EDGES) * len(OPERATIONS)
"""H = 30, the number of mixture weights of the relaxed cell."""

Shapes = dict[str, tuple[int, ...]]


def split_edges(lam: Tensor) -> Tensor:
    """lambda ``[..., 30]`` as ``[..., 6, 5]``: edges and their operations."""
    return lam.reshape(*lam.shape[:-1], len(EDGES), len(OPERATIONS))


def batch_norm(
    x: Tensor, scale: Tensor | None, shift: Tensor | None, fused: bool = False, first: int = 0
) -> Tensor:
    """BatchNorm of ``[n, c, h, w]`` with the batch's own statistics and correct derivatives of every order.

    ``F.batch_norm`` is wrong when a forward-mode derivative is differentiated again, as alignment does: torch
    then silently treats the statistics as constants (pytorch issue 196699). Its gradients, and gradients of
    gradients, are correct.

    Args:
        x: Images.
        scale, shift: ``[c]``, or None for 1 and 0.
        fused: Use ``F.batch_norm``, or Triton's kernels on CUDA; faster.
        first: Take statistics only from this many images at the front; 0 means all.
    """
    if fused and not first:
        if scale is not None and shift is not None and _by_triton(x, scale):
            return _norm_cuda().batch_norm(x, scale, shift)  # type: ignore[no-any-return]
        return F.batch_norm(x, None, None, scale, shift, training=True)
    variance, mean = torch.var_mean(x[:first] if first else x, (0, 2, 3), correction=0, keepdim=True)
    factor = torch.rsqrt(variance + 1e-5)
    if scale is None or shift is None:
        return (x - mean) * factor
    factor = factor * scale[:, None, None]
    return (x - mean) * factor + shift[:, None, None]


@functools.cache
def _norm_cuda() -> Any:
    """The module with BatchNorm's kernels; None if Triton is missing or cannot compile them."""
    if importlib.util.find_spec("triton") is None:
        return None
    module = importlib.import_module("hcdc.networks._norm_cuda")
    return module if module.works() else None


def _by_triton(x: Tensor, scale: Tensor) -> bool:
    """Whether Triton's kernels support these tensors; they would compute float64 in float32."""
    fits = x.dtype in (torch.bfloat16, torch.float32) and scale.dtype == torch.float32
    layout = torch.channels_last
    return x.is_cuda and fits and x.is_contiguous(memory_format=layout) and _norm_cuda() is not None


def has_triton() -> bool:
    """Whether Triton compiles kernels here."""
    return _norm_cuda() is not None


def convolve(x: Tensor, weight: Tensor, stride: int, groups: int) -> Tensor:
    """Convolution that keeps the image size, or halves it, rounded up.

    On CUDA, grouped convolutions are fast only for 3 x 3 kernels at stride 1 with many input channels. The
    others are up to seven times faster as one convolution of all channels, with zeros between groups. Such
    a weight ``[o, c, k, k]`` may also be given.
    """
    size = weight.shape[-1]
    if weight.shape[1] == x.shape[1]:
        groups = 1
    elif groups > 1 and x.is_cuda and _dense(weight.shape, stride):
        weight, groups = block_diagonal(weight, groups), 1
    return F.conv2d(x, weight, stride=stride, padding=size // 2, groups=groups)


def _dense(shape: Sequence[int], stride: int) -> bool:
    """Whether a grouped convolution is faster as one of all channels."""
    return shape[-1] == 1 or stride > 1 or shape[1] < 16


@functools.cache
def _identity(size: int, device: torch.device, dtype: torch.dtype) -> Tensor:
    """The identity matrix; kept for good, since recorded steps read it."""
    return torch.eye(size, dtype=dtype).to(
        device
    )  # copied from the host, so ready before any stream reads it


def block_diagonal(weight: Tensor, groups: int) -> Tensor:
    """Kernels of a grouped convolution ``[g o, i, k, k]`` as kernels of a plain one ``[g o, g i, k, k]``.

    The result is in channels_last order. One non-finite channel spoils all groups.
    """
    outputs, inputs, *size = weight.shape
    rows = weight.permute(0, 2, 3, 1).reshape(groups, outputs // groups, *size, 1, inputs)
    own = _identity(groups, weight.device, weight.dtype).view(groups, 1, 1, 1, groups, 1)
    return (rows * own).reshape(outputs, *size, groups * inputs).permute(0, 3, 1, 2)


def linear_lanes(params: Params, x: Tensor, lanes: int, dropout: Dropout | None) -> Tensor:
    """The linear layer on features ``[n, R c]``: logits ``[n, classes]``; R lanes ``[R, n, classes]``."""
    if lanes == 1:
        x = x if dropout is None else dropout(x[None] if dropout.key.dim() else x).view(x.shape)
        return F.linear(x, params["linear.weight"], params["linear.bias"])
    x = x.view(len(x), lanes, -1).transpose(0, 1)
    x = x if dropout is None else dropout(x)
    weight = params["linear.weight"].view(lanes, -1, x.shape[-1])
    return torch.baddbmm(params["linear.bias"].view(lanes, 1, -1), x, weight.mT)


def live_edges(operations: tuple[int, ...]) -> frozenset[int]:
    """Numbers of the edges that are not ``none`` and lead to the output."""
    reaching, live = {3}, set()
    for edge in reversed(range(len(EDGES))):
        source, target = EDGES[edge]
        if operations[edge] != NONE and target in reaching:
            reaching.add(source)
            live.add(edge)
    return frozenset(live)


@functools.lru_cache(maxsize=1024)
def _uniform(seed: int, name: str, shape: tuple[int, ...]) -> Tensor:
    """The draw for one layer, shared by all cells that have it; do not change it in place."""
    return torch.rand(shape, generator=stream(seed, name))


@functools.cache
def _pool_matrix(height: int, width: int, device: torch.device, dtype: torch.dtype) -> Tensor:
    """The pool of an edge as a matrix ``[h w, h w]``; kept for good, since recorded steps read it."""
    bands = []
    for size in (height, width):
        at = torch.arange(size)
        bands.append((at[:, None] - at).abs() <= 1)
    return _means(*bands).to(dtype).to(device)  # as `_identity`


@functools.cache
def _halving_matrix(height: int, width: int, device: torch.device, dtype: torch.dtype) -> Tensor:
    """The pool of a reduction as a matrix ``[h w / 4, h w]``, sizes rounded up; kept for good."""
    bands = []
    for size in (height, width):
        bands.append(torch.arange(math.ceil(size / 2))[:, None] == torch.arange(size) // 2)
    return _means(*bands).to(dtype).to(device)


def _means(rows: Tensor, columns: Tensor) -> Tensor:
    """Averages over row ranges ``[a, h]`` and column ranges ``[b, w]``, as a matrix ``[a b, h w]``."""
    one, two = (mask / mask.sum(1, keepdim=True).double() for mask in (rows, columns))
    return torch.kron(one, two)


def _product(matrix: Tensor, x: Tensor, height: int) -> Tensor:
    """Apply a linear map of pixels ``[a b, h w]`` to channels_last images ``[n, c, h, w]``."""
    n, c, h, w = x.shape
    found: Tensor = matrix @ x.permute(0, 2, 3, 1).reshape(n, h * w, c)
    return found.view(n, height, -1, c).permute(0, 3, 1, 2)


def pool_3x3(x: Tensor, fused: bool) -> Tensor:
    """Mean over the 3 x 3 pixels around each pixel of ``[n, c, h, w]``; padding does not count.

    Fused training on CUDA uses a matrix product. For cells it is several times faster than torch's pool of
    channels_last images, although it multiplies by many zeros.
    """
    h, w = x.shape[-2:]
    if not (fused and x.is_cuda) or h * w > 1024:
        return F.avg_pool2d(x, 3, stride=1, padding=1, count_include_pad=False)
    return _product(_pool_matrix(h, w, x.device, x.dtype), x, h)


def halve(x: Tensor, fused: bool) -> Tensor:
    """Mean over blocks of 2 x 2 pixels of ``[n, c, h, w]``; odd sizes are rounded up. See `pool_3x3`."""
    h, w = x.shape[-2:]
    if not (fused and x.is_cuda) or h * w > 1024:
        return F.avg_pool2d(x, 2, stride=2, ceil_mode=True)
    return _product(_halving_matrix(h, w, x.device, x.dtype), x, math.ceil(h / 2))


class _Node:
    """A node of a cell: its images ``[n, c, h, w]`` and the results that its outgoing edges share."""

    def __init__(self, x: Tensor, fused: bool):
        self.x, self.fused = x, fused
        self._relu: Tensor | None = None
        self._pool: Tensor | None = None

    @property
    def relu(self) -> Tensor:
        if self._relu is None:
            self._relu = F.relu(self.x)
        return self._relu

    @property
    def pool(self) -> Tensor:
        if self._pool is None:
            self._pool = pool_3x3(self.x, self.fused)
        return self._pool


@dataclass(frozen=True)
class CellNetwork(Network):
    """Stem, N cells at C channels, reduction, N cells at 2C, reduction, N cells at 4C, linear classifier.

    - Stem: 3x3 convolution, BatchNorm.
    - Cell: node j is the sum over i < j of edge (i, j) applied to node i; all cells have the same operations.
      A convolution is ReLU, convolution, BatchNorm; the pool ignores padding.
    - Reduction block: two ReLU-3x3 convolution-BatchNorm, the first with stride 2, plus a shortcut of a 2x2
      average pool and a 1x1 convolution.
    - End: BatchNorm, ReLU, mean over the image, linear layer.

    The relaxed network (``cell`` None) outputs sum_o lambda_{e,o} o(x) at each edge e. It runs all operations
    except ``none``, which is zero; otherwise the mixed partials of the losses in (theta, lambda) would vanish
    where lambda is zero. At a one-hot lambda it equals the network of that cell; parameters have the same
    names in both.

    BatchNorm uses the statistics of the given batch, so the output for one image depends on the others.

    Attributes:
        cell: Six operation numbers in the order of `EDGES`; None is the relaxed network.
        cells: N, cells per stage.
        channels: C, channels of the first stage.
        inputs: Channels of the images: 1 grey, 3 colour.
        classes: Number of classes.
        affine: Give BatchNorm inside cells a scale and a shift; outside cells it always has them. The
            benchmark's candidates have them. Its supernet does not, since a scale would undo lambda.
        fused: Use torch's own BatchNorm, or Triton's kernels. Values and gradients are the same, but it is
            faster; only for training, not for hypergradients, see `batch_norm`.
        lanes: R networks of equal shape, each with its own parameters, run as one. Channels lie lane by lane
            and convolutions have R groups, so R networks take as many kernels as one.
        reference: BatchNorm takes statistics from this many images at the front of a batch; 0 means all.
        tau: Above 0 (relaxed network only), lambda holds logits with Gumbel noise added, and the weights are
            `gumbel_one_hot` of them at this temperature. At 0, lambda holds the weights.
        dropout: The masks of a training step, on the features before the linear layer; None drops nothing.
    """

    cell: tuple[int, ...] | None
    cells: int
    channels: int
    inputs: int
    classes: int
    affine: bool
    fused: bool = False
    lanes: int = 1
    reference: int = 0
    tau: float = 0.0
    dropout: Dropout | None = field(default=None, compare=False, repr=False)

    takes = "image"
    can_run_side_by_side = True

    def family(self) -> Network:
        """The network with all operations on every edge."""
        return dataclasses.replace(self, cell=None, fused=False, lanes=1, reference=0, tau=0.0, dropout=None)

    def wide(self) -> frozenset[str]:
        strided = {f"reductions.{stage}.first.weight" for stage in range(STAGES - 1)}
        kernels = ((name, shape) for name, shape in self.shapes().items() if len(shape) == 4)
        return frozenset(name for name, shape in kernels if _dense(shape, 1 + (name in strided)))

    def fast(self) -> Self:
        return dataclasses.replace(self, fused=True)

    def side_by_side(self, lanes: int) -> Self:
        return self if lanes == 1 else dataclasses.replace(self, lanes=lanes)

    def drawn(self, tau: float) -> Self:
        return dataclasses.replace(self, tau=tau)

    def with_dropout(self, dropout: Dropout) -> Self:
        return dataclasses.replace(self, dropout=dropout)

    def forward_with_reference(self, params: Params, lam: Any, images: Tensor, reference: Tensor) -> Tensor:
        """Logits of ``images``, with BatchNorm statistics from the images ``reference`` ``[r, c, h, w]``."""
        behind = dataclasses.replace(self, reference=len(reference))
        logits = behind.forward(params, lam, torch.cat([reference, images]))
        return logits[..., len(reference) :, :]

    def shapes(self) -> Shapes:
        """The shape of each parameter, from the stem to the classifier.

        Cell k of 3 N has ``cells.{k}.{source}-{target}.{operation}.{weight, scale, shift}``.
        """
        widths = [self.channels * 2**stage for stage in range(STAGES)]
        shapes = _layer("stem", widths[0], self.inputs, 3)
        for stage, width in enumerate(widths):
            if stage:
                below = widths[stage - 1]
                shapes |= _layer(f"reductions.{stage - 1}.first", width, below, 3)
                shapes |= _layer(f"reductions.{stage - 1}.second", width, width, 3)
                shapes |= _layer(f"reductions.{stage - 1}.shortcut", width, below, 1, affine=False)
            for k in range(stage * self.cells, (stage + 1) * self.cells):
                for name, operation in self._convolutions():
                    shapes |= _layer(f"cells.{k}.{name}", width, width, KERNELS[operation], self.affine)
        shapes |= {"last.scale": (widths[-1],), "last.shift": (widths[-1],)}
        return shapes | {"linear.weight": (self.classes, widths[-1]), "linear.bias": (self.classes,)}

    def _convolutions(self) -> Iterator[tuple[str, int]]:
        """Name and operation number of each convolution in a cell."""
        for edge in range(len(EDGES)):
            for operation in KERNELS if self.cell is None else (self.cell[edge],):
                if operation in KERNELS:
                    yield _name(edge, operation), operation

    def init(self, generator: torch.Generator) -> Params:
        """Weights and the classifier's bias uniform within 1 / sqrt(fan-in); BatchNorm 1 and 0; float32.

        A layer's draw depends only on the generator and the layer's name. Cells that share a layer start with
        equal weights there, so chance affects their comparison less.
        """
        seed = int(torch.randint(2**62, (1,), generator=generator))
        params: Params = {}
        for name, shape in self.shapes().items():
            if name.endswith(".scale"):
                params[name] = torch.ones(shape)
            elif name.endswith(".shift"):
                params[name] = torch.zeros(shape)
            else:
                fan_in = 4 * self.channels if name == "linear.bias" else math.prod(shape[1:])
                params[name] = (2 * _uniform(seed, name, tuple(shape)) - 1) / math.sqrt(fan_in)
        return params

    def forward(self, params: Params, lam: Tensor, images: Tensor) -> Tensor:
        """Logits ``[n, classes]`` of images ``[n, inputs, h, w]``; for R lanes ``[R, n, classes]``.

        Args:
            params: Tensors named as in `shapes`; others are ignored. R lanes are concatenated along the first
                dimension.
            lam: Mixture weights ``[30]`` (or logits, see ``tau``), edge by edge; read only by the relaxed
                network.
            images: Floating-point images of at least 4 x 4 pixels; lanes may have their own, as
                ``[n, R inputs, h, w]``.
        """
        if images.dim() != 4 or images.shape[1] not in (self.inputs, self.lanes * self.inputs):
            raise InputError(
                f"images have shape {tuple(images.shape)}; this network needs [n, {self.inputs}, h, w]"
                + (f" or [n, {self.lanes * self.inputs}, h, w]" if self.lanes > 1 else "")
            )
        if self.cell is None and lam.shape != (MIXTURE,):
            raise InputError(f"lam has shape {tuple(lam.shape)}; the relaxed cell needs ({MIXTURE},)")
        if self.cell is None and self.tau:
            lam = gumbel_one_hot(lam, self.tau)
        mixture = split_edges(lam) if self.cell is None else None
        x = self._convolve(params, "stem", images, groups=images.shape[1] // self.inputs)
        for stage in range(STAGES):
            if stage:
                x = self._reduce(params, f"reductions.{stage - 1}", x)
            for k in range(stage * self.cells, (stage + 1) * self.cells):
                x = self._cell(params, f"cells.{k}", mixture, x)
        pooled = F.relu(self._norm(params, "last", x)).mean((-2, -1))
        return linear_lanes(params, pooled, self.lanes, self.dropout)

    def _norm(self, params: Params, name: str, x: Tensor) -> Tensor:
        """BatchNorm with the scale and shift of this name, if ``params`` has them."""
        scale, shift = params.get(f"{name}.scale"), params.get(f"{name}.shift")
        return batch_norm(x, scale, shift, self.fused, self.reference)

    def _convolve(
        self, params: Params, name: str, x: Tensor, stride: int = 1, groups: int | None = None
    ) -> Tensor:
        """Convolution without bias that keeps the image size (or halves it, rounded up), then BatchNorm."""
        groups = self.lanes if groups is None else groups
        return self._norm(params, name, convolve(x, params[f"{name}.weight"], stride, groups))

    def _reduce(self, params: Params, name: str, x: Tensor) -> Tensor:
        main = self._convolve(params, f"{name}.first", F.relu(x), stride=2)
        main = self._convolve(params, f"{name}.second", F.relu(main))
        shortcut = halve(x, self.fused)  # rounds odd sizes as the convolution does
        return main + convolve(shortcut, params[f"{name}.shortcut.weight"], 1, self.lanes)

    def _cell(self, params: Params, name: str, mixture: Tensor | None, x: Tensor) -> Tensor:
        live = range(len(EDGES)) if self.cell is None else live_edges(self.cell)
        nodes = [_Node(x, self.fused)]
        for node in range(1, 4):
            terms = []
            for edge, (source, target) in enumerate(EDGES):
                if target != node or edge not in live:
                    continue
                if mixture is None:
                    assert self.cell is not None, "a network without a mixture has a cell"
                    terms.append(self._apply(params, name, edge, self.cell[edge], nodes[source]))
                else:
                    terms += [
                        mixture[edge, operation] * self._apply(params, name, edge, operation, nodes[source])
                        for operation in (SKIP, CONV_1X1, CONV_3X3, POOL)
                    ]
            total = terms[0] if terms else torch.zeros_like(x)
            for term in terms[1:]:
                total = total + term
            nodes.append(_Node(total, self.fused))
        return nodes[-1].x

    def _apply(self, params: Params, name: str, edge: int, operation: int, node: _Node) -> Tensor:
        if operation == SKIP:
            return node.x
        if operation == POOL:
            return node.pool
        return self._convolve(params, f"{name}.{_name(edge, operation)}", node.relu)


def _name(edge: int, operation: int) -> str:
    source, target = EDGES[edge]
    return f"{source}-{target}.{OPERATIONS[operation]}"


def _layer(name: str, outputs: int, inputs: int, kernel: int, affine: bool = True) -> Shapes:
    """Shapes of a convolution and, if ``affine``, of the BatchNorm after it."""
    shapes: Shapes = {f"{name}.weight": (outputs, inputs, kernel, kernel)}
    return shapes | ({f"{name}.scale": (outputs,), f"{name}.shift": (outputs,)} if affine else {})


def gumbel_noise(generator: torch.Generator) -> Tensor:
    """Standard Gumbel noise ``[30]``, -log(-log u), float64 and always finite; one draw for all cells."""
    u = torch.rand(MIXTURE, generator=generator, dtype=torch.float64)
    return -torch.log(-torch.log(u.clamp(1e-12, 1 - 1e-12)))


def gumbel_one_hot(logits: Tensor, tau: float, noise: Tensor | None = None) -> Tensor:
    """GDAS: a hard sample of one operation per edge, with the gradient of the soft sample.

    At each edge, let p = softmax((log_softmax(logits) + noise) / tau). The value is the one-hot vector of its
    largest entry; derivatives of any order are those of p. The caller passes ``noise``, so one draw can serve
    all products of a linear solve. The result is the lambda of the relaxed network.

    Args:
        logits: ``[..., 30]``, edge by edge.
        tau: Temperature, above 0; the benchmark lowers it from 10 to 0.1.
        noise: ``[..., 30]``, see `gumbel_noise`; None if it is already in the logits, which gives the same
            derivatives.
    """
    if not tau > 0:
        raise InputError(f"tau {tau}: the temperature must be above 0")
    check_lam(logits, MIXTURE)
    shifted = split_edges(logits).log_softmax(-1)
    if noise is not None:
        check_lam(noise, MIXTURE)
        shifted = shifted + split_edges(noise.to(logits))
    soft = (shifted / tau).softmax(-1)
    numbers = torch.arange(len(OPERATIONS), device=soft.device)
    hard = (shifted.argmax(-1, keepdim=True) == numbers).to(soft)  # F.one_hot fails under vmap of grad
    return (hard + (soft - soft.detach())).flatten(-2)
