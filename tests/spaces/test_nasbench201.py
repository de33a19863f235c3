"""NAS-Bench-201: the cells and their counts, networks against torch.nn, the relaxation."""

from __future__ import annotations

import contextlib
import copy
import doctest
import itertools
from dataclasses import dataclass, replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.func import grad, hessian, jacrev, jvp, vjp, vmap
from torch.nn import functional as F

import hcdc.spaces
from hcdc.core.errors import InputError
from hcdc.hypergrad import (
    batched_hypergradient,
    best_response,
    exact,
    hypergradient,
    response_hypergradient,
    unrolled_response,
)
from hcdc.networks import EDGES, OPERATIONS, CellNetwork, _cells, gumbel_noise, gumbel_one_hot
from hcdc.networks._cells import batch_norm, convolve, halve, pool_3x3
from hcdc.spaces import (
    NASBench201,
    canonical,
    cell_string,
    computation,
    connected,
    genotype,
    operations,
)
from hcdc.spaces._nasbench201 import parse
from hcdc.tasks import Task
from hcdc.testing import SpaceConformance

F64 = torch.float64
CELL = "|nor_conv_3x3~0|+|nor_conv_3x3~0|avg_pool_3x3~1|+|skip_connect~0|nor_conv_3x3~1|skip_connect~2|"
EVERY = list(itertools.product(range(5), repeat=6))

KNOWN = [  # index, operation numbers, parameters, CIFAR-10 validation accuracy after 200 epochs
    (0, (4, 2, 1, 2, 1, 1), 129306, 81.9827),
    (1, (3, 3, 4, 1, 3, 1), 802426, 90.7693),
    (2, (4, 3, 3, 4, 4, 4), 559386, 81.9107),
    (3, (4, 1, 0, 0, 0, 1), 73306, 84.3773),
    (5, (2, 1, 2, 3, 0, 4), 372346, 87.812),
]


class TestConformance(SpaceConformance):
    def make(self):
        return NASBench201(channels=4)


# --- cells --------------------------------------------------------------------------------------------------


def test_a_string_is_its_six_operations():
    assert parse(CELL) == (3, 3, 4, 1, 3, 1)
    assert cell_string((3, 3, 4, 1, 3, 1)) == CELL
    assert all(parse(cell_string(numbers)) == numbers for numbers in EVERY)
    assert len({cell_string(numbers) for numbers in EVERY}) == 15_625
    assert operations(CELL) == operations([3, 3, 4, 1, 3, 1]) == parse(CELL)


@pytest.mark.parametrize(
    "cell",
    [15_625, None, 3.0, {"cell": CELL}, b"333333", [3, 3, 4, 1, 3, 1.0], [True] * 6, [0] * 7, torch.zeros(6)],
    ids=str,
)
def test_what_is_no_cell_is_refused_with_what_is_one(cell):
    for helper in (operations, cell_string, canonical, connected, computation):
        with pytest.raises(
            InputError, match=r"is not a cell; a cell is a string such as '\|nor_conv"
        ) as error:
            helper(cell)
        assert "6 operation numbers from 0 to 4, such as [3, 0, 1, 0, 0, 4]" in str(error.value)


def test_what_a_user_needs_of_cells_is_public():
    names = ("OPERATIONS", "canonical", "cell_string", "computation", "connected", "genotype", "operations")
    assert set(names) <= set(hcdc.spaces.__all__)
    for name in names:
        assert getattr(hcdc.spaces, name) is globals()[name]
    found = doctest.testmod(hcdc.spaces._nasbench201)
    assert found.attempted >= 6
    assert found.failed == 0


@pytest.mark.parametrize("numbers", [np.array([3, 3, 4, 1, 3, 1]), torch.tensor([3, 3, 4, 1, 3, 1])])
def test_operation_numbers_may_be_an_array(numbers):
    assert operations(numbers) == parse(CELL)
    assert operations(list(np.array([3, 3, 4, 1, 3, 1]))) == parse(CELL)


def test_counts_are_the_benchmarks():
    assert len({canonical(numbers) for numbers in EVERY}) == 6_466
    assert len({computation(numbers) for numbers in EVERY}) == 4_930
    assert sum(not connected(numbers) for numbers in EVERY) == 341


def test_connectivity_is_that_of_powers_of_the_adjacency_matrix():
    for numbers in EVERY[::7]:
        adjacency = np.eye(4, dtype=int)
        for number, edge in zip(numbers, EDGES):
            adjacency[edge] = number != 0
        assert connected(numbers) == bool(np.linalg.matrix_power(adjacency, 3)[0, 3])
        assert connected(numbers) == (computation(numbers) != ())


def test_classes_collapse_skips_and_zeros():
    assert canonical((1, 3, 0, 0, 0, 1)) == canonical((1, 0, 3, 0, 0, 1))
    assert canonical((1, 1, 1, 1, 1, 1)) == "0+0+0+0"
    assert canonical((0, 0, 0, 0, 0, 0)) == "#+#+#"
    assert canonical((2, 0, 0, 0, 0, 0)) == canonical((0, 0, 0, 0, 2, 0)) == "#+#+#"
    assert canonical((3, 0, 2, 0, 0, 1)) == "#+#+#+((0)@nor_conv_3x3)@nor_conv_1x1"
    assert computation((3, 0, 2, 0, 0, 1)) == (("nor_conv_1x1", ("nor_conv_3x3", ("x",))),)
    assert computation((1, 1, 0, 1, 0, 4)) == (("avg_pool_3x3", ("x",)), ("x",))
    names = {}
    for numbers in EVERY:
        assert names.setdefault(canonical(numbers), computation(numbers)) == computation(numbers)


def test_cells_that_compute_the_same_do_so_as_networks():
    """One cell of a class and its candidate, equal weights at the edges that work: equal outputs."""
    space = NASBench201(channels=3)
    images = torch.randn(4, 1, 8, 8, dtype=F64, generator=torch.Generator().manual_seed(0))
    # a 3x3 convolution reached over a skip, directly, and beside a convolution that leads nowhere
    over, direct, beside = (1, 0, 3, 0, 0, 1), (0, 3, 0, 0, 0, 1), (2, 3, 0, 0, 0, 1)
    assert computation(over) == computation(direct) == computation(beside)
    outputs = []
    for numbers, edge in ((over, "1-2"), (direct, "0-2"), (beside, "0-2")):
        net = space.network(1, 2, {"cell": cell_string(numbers)})
        params = {n: v.double() for n, v in net.init(torch.Generator()).items()}
        for name in params:
            if edge in name and name.endswith("weight"):
                params[name] = torch.linspace(-1, 1, params[name].numel(), dtype=F64).reshape(
                    params[name].shape
                )
            elif "cells" not in name and name.endswith("weight"):
                params[name] = torch.cos(torch.arange(params[name].numel(), dtype=F64)).reshape(
                    params[name].shape
                )
        params["linear.bias"] = torch.zeros(2, dtype=F64)
        outputs.append(net.forward(params, torch.empty(0), images))
    torch.testing.assert_close(outputs[0], outputs[1])
    torch.testing.assert_close(outputs[2], outputs[1])


def test_candidates_are_unique_connected_and_lean():
    cells = [config["cell"] for config in NASBench201().candidates()]
    assert len(cells) == 4_929
    assert all(connected(cell) for cell in cells)
    assert len({canonical(cell) for cell in cells}) == len({computation(cell) for cell in cells}) == 4_929
    count = NASBench201(channels=1).parameter_count
    lean = {computation(cell): count({"cell": cell}, 1, 2) for cell in cells}
    for numbers in EVERY[::11]:
        if connected(numbers):
            assert count({"cell": cell_string(numbers)}, 1, 2) >= lean[computation(numbers)]


def test_every_cell_has_a_counterpart_among_the_candidates():
    space = NASBench201()
    candidates = [config["cell"] for config in space.candidates()]
    for numbers in EVERY[::13]:
        found = space.counterpart({"cell": cell_string(numbers)})["cell"]
        if connected(numbers):
            assert computation(found) == computation(numbers)
            assert found in candidates
        else:
            assert found == cell_string(numbers)
    assert space.counterpart({"cell": candidates[7]}) == {"cell": candidates[7]}


def test_the_first_candidates_are_a_fair_sample():
    """The mean number of 3x3 convolutions of the first 500 is that of all within three standard errors."""
    counts = np.array([parse(config["cell"]).count(3) for config in NASBench201().candidates()])
    assert abs(counts[:500].mean() - counts.mean()) < 3 * counts.std() / 500**0.5


@pytest.mark.parametrize(
    ("cell", "words"),
    [
        (7, "a cell must be a string such as .* got 7"),
        ("resnet", "has 1 nodes between"),
        (CELL + "+|none~0|", "has 4 nodes"),
        (CELL.replace("|+|", "+|", 1), "node 1 .* must begin and end with"),
        ("|none~0|+|none~0|+|none~0|none~1|none~2|", "node 2 .* has 1 edges; it must have 2"),
        (
            CELL.replace("avg_pool_3x3~1", "avg_pool_3x3~0"),
            "is 'avg_pool_3x3~0'; it must be an operation .*'~1'",
        ),
        (CELL.replace("avg_pool_3x3~1", "avg_pool_3x3"), "is 'avg_pool_3x3'"),
        (
            CELL.replace("avg_pool_3x3", "max_pool_3x3"),
            "'max_pool_3x3' is not known; did you mean 'avg_pool_3x3'",
        ),
        ("", "has 1 nodes"),
        ("|+|+|", "node 1"),
    ],
)
def test_a_string_that_is_no_cell_is_refused_in_one_sentence(cell, words):
    for use in (parse, lambda c: NASBench201().encode({"cell": c})):
        with pytest.raises(InputError, match=words) as caught:
            use(cell)
        assert "\n" not in str(caught.value)


def test_bad_numbers_and_settings_are_refused():
    for numbers in ((1, 2, 3), (0, 0, 0, 0, 0, 5), (-1, 0, 0, 0, 0, 0)):
        with pytest.raises(InputError, match="6 operation numbers from 0 to 4"):
            operations(numbers)
    with pytest.raises(InputError, match="got 0 and 16"):
        NASBench201(cells=0)
    with pytest.raises(InputError, match="has the key cell; 'width' is not one of them"):
        NASBench201().network(3, 10, {"cell": CELL, "width": 3})
    with pytest.raises(InputError, match="must be 30"):
        genotype(torch.zeros(29))


# --- networks -----------------------------------------------------------------------------------------------


def doubled(net: CellNetwork, seed: int = 0) -> dict[str, Tensor]:
    """Parameters in float64, scales and shifts moved away from 1 and 0."""
    params = net.init(torch.Generator().manual_seed(seed))
    generator = torch.Generator().manual_seed(seed + 100)
    for name, value in params.items():
        moved = name.endswith((".scale", ".shift"))
        params[name] = value.double() + (
            0.3 * torch.randn(value.shape, generator=generator).double() if moved else 0
        )
    return params


class Module(nn.Module):
    """The same network from torch.nn layers, called by the names of the parameters."""

    def __init__(self, net: CellNetwork, params: dict[str, Tensor]):
        super().__init__()
        self.net, self.layers = net, nn.ModuleDict()
        for name, value in params.items():
            layer, kind = name.rsplit(".", 1)
            key = layer.replace(".", "/")
            if name == "linear.weight":
                self.layers[key] = nn.Linear(value.shape[1], value.shape[0])
            elif kind == "weight":
                stride = 2 if layer.endswith("first") else 1
                size = value.shape[-1]
                self.layers[key] = nn.Conv2d(
                    value.shape[1], value.shape[0], size, stride, size // 2, bias=False
                )
            elif kind == "scale":
                self.layers[key + "/norm"] = nn.BatchNorm2d(len(value))
        self.double()
        with torch.no_grad():
            for name, value in params.items():
                layer, kind = name.rsplit(".", 1)
                key = layer.replace(".", "/") + ("/norm" if kind in ("scale", "shift") else "")
                target = {"scale": "weight", "shift": "bias"}.get(kind, kind)
                getattr(self.layers[key], target).copy_(value)

    def unit(self, key, x):
        return self.layers[key + "/norm"](self.layers[key](x))

    def cell(self, k, x):
        edge = dict(zip(EDGES, self.net.cell))
        nodes = [x]
        for target in (1, 2, 3):
            total = torch.zeros_like(x)
            for source in range(target):
                name = OPERATIONS[edge[source, target]]
                if name == "skip_connect":
                    total = total + nodes[source]
                elif name == "avg_pool_3x3":
                    total = total + nn.AvgPool2d(3, 1, 1, count_include_pad=False)(nodes[source])
                elif name != "none":
                    total = total + self.unit(f"cells/{k}/{source}-{target}/{name}", nodes[source].relu())
            nodes.append(total)
        return nodes[3]

    def forward(self, x):
        x = self.unit("stem", x)
        for stage in range(3):
            if stage:
                r = f"reductions/{stage - 1}"
                main = self.unit(f"{r}/second", self.unit(f"{r}/first", x.relu()).relu())
                x = main + self.layers[f"{r}/shortcut"](nn.AvgPool2d(2, 2)(x))
            for n in range(self.net.cells):
                x = self.cell(stage * self.net.cells + n, x)
        return self.layers["linear"](self.layers["last/norm"](x).relu().mean((2, 3)))


@pytest.mark.parametrize(
    "cell", [(3, 3, 4, 1, 3, 1), (2, 0, 3, 4, 1, 2), (0, 2, 3, 1, 4, 3), (3, 2, 1, 0, 2, 0)]
)
@pytest.mark.parametrize(("cells", "inputs"), [(1, 1), (2, 3)])
def test_the_network_is_the_one_of_torch_layers(cell, cells, inputs):
    net = NASBench201(cells=cells, channels=4).network(inputs, 5, {"cell": cell_string(cell)})
    params = doubled(net)
    images = torch.randn(6, inputs, 12, 12, dtype=F64, generator=torch.Generator().manual_seed(3))
    expected = Module(net, params).train()(images)
    assert expected.std() > 0.1
    torch.testing.assert_close(net.forward(params, torch.empty(0), images), expected, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("affine", [False, True])
def test_batch_norm_is_torchs_and_right_where_torchs_is_not(affine):
    generator = torch.Generator().manual_seed(0)
    x, to = (torch.randn(4, 2, 3, 3, dtype=F64, generator=generator) for _ in range(2))
    scale, shift = torch.randn(2, 2, dtype=F64, generator=generator) if affine else (None, None)
    weights = torch.randn(x.shape, dtype=F64, generator=generator)

    def loss(at, fused=False):
        return (weights * torch.sin(batch_norm(at, scale, shift, fused))).sum()

    torch.testing.assert_close(batch_norm(x, scale, shift), batch_norm(x, scale, shift, fused=True))
    torch.testing.assert_close(grad(loss)(x), grad(loss)(x, True))
    quotient = (grad(loss)(x + 1e-6 * to) - grad(loss)(x - 1e-6 * to)) / 2e-6
    torch.testing.assert_close(grad(lambda at: jvp(loss, (at,), (to,))[1])(x), quotient, rtol=1e-6, atol=1e-7)
    for fused in (False, True):
        twice = grad(lambda at, f=fused: (grad(loss)(at, f) * to).sum())(x)
        torch.testing.assert_close(twice, quotient, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("config", [None, {"cell": CELL}])
def test_the_fused_network_is_the_same(config):
    net = TINY.network(1, 3, config)
    params, lam = doubled(net), mixture(0)

    def loss(network):
        return lambda p: F.cross_entropy(network.forward(p, lam, IMAGES), LABELS)

    torch.testing.assert_close(grad(loss(replace(net, fused=True)))(params), grad(loss(net))(params))


@pytest.mark.parametrize(("index", "numbers", "count", "valid"), KNOWN)
def test_parameter_counts_are_the_benchmarks(index, numbers, count, valid):
    config = {"cell": cell_string(numbers)}
    assert NASBench201(cells=5).parameter_count(config, 3, 10) == count
    net = NASBench201(cells=5).network(3, 10, config)
    assert sum(p.numel() for p in net.init(torch.Generator()).values()) == count


def test_parameters_come_from_the_generator_alone():
    net = NASBench201().network(3, 10)
    before = torch.random.get_rng_state()
    first, again, other = (net.init(torch.Generator().manual_seed(seed)) for seed in (1, 1, 2))
    assert torch.equal(before, torch.random.get_rng_state())
    for name, value in first.items():
        assert value.dtype == torch.float32
        assert torch.equal(value, again[name])
        if name.endswith(("scale", "shift")):
            assert bool((value == name.endswith("scale")).all())
            continue
        assert not torch.equal(value, other[name])
        bound = (64 if name == "linear.bias" else value[0].numel()) ** -0.5
        assert 0.5 * bound < float(value.abs().max()) <= bound


@pytest.mark.parametrize("size", [(4, 4), (5, 7), (28, 28)])
def test_any_size_of_image(size):
    net = NASBench201(channels=2).network(1, 3, {"cell": CELL})
    out = net.forward(net.init(torch.Generator().manual_seed(0)), torch.empty(0), torch.rand(3, 1, *size))
    assert out.shape == (3, 3)
    assert bool(torch.isfinite(out).all())


def test_wrong_shapes_are_refused():
    net = NASBench201(channels=2).network(1, 3)
    params = net.init(torch.Generator())
    with pytest.raises(InputError, match=r"needs \[n, 1, h, w\]"):
        net.forward(params, torch.zeros(30), torch.zeros(2, 3, 8, 8))
    with pytest.raises(InputError, match=r"needs \(30,\)"):
        net.forward(params, torch.zeros(6, 5), torch.zeros(2, 1, 8, 8))


def test_a_network_is_its_numbers_and_nothing_else():
    """Forward keeps no statistics: the same call twice, in any order, gives the same."""
    net = NASBench201(channels=2).network(1, 3, {"cell": CELL})
    params = doubled(net)
    kept = copy.deepcopy(params)
    a, b = (torch.rand(4, 1, 8, 8, dtype=F64, generator=torch.Generator().manual_seed(s)) for s in (0, 1))
    first = net.forward(params, torch.empty(0), a)
    net.forward(params, torch.empty(0), b)
    assert torch.equal(net.forward(params, torch.empty(0), a), first)
    assert all(torch.equal(params[name], kept[name]) for name in kept)


# --- lanes and the forms for CUDA ---------------------------------------------------------------------------


@pytest.fixture
def as_cuda(monkeypatch):
    """Within it every tensor says that it is on CUDA, and the forms for CUDA are computed here."""

    @contextlib.contextmanager
    def made():
        with monkeypatch.context() as patch:
            patch.setattr(Tensor, "is_cuda", True)
            patch.setattr(_cells, "_norm_cuda", lambda: None)  # Triton cannot run here
            yield

    return made


@pytest.fixture
def forms(monkeypatch):
    """What networks call: convolutions (kernel, stride, groups), torch's pools and pools by matrix."""
    seen: dict[str, list] = {"conv": [], "avg_pool": [], "matrix": [], "halving": []}
    matrix, halving = _cells._pool_matrix, _cells._halving_matrix

    class Counting:
        def __getattr__(self, name):
            return getattr(F, name)

        def conv2d(self, x, weight, **options):
            seen["conv"].append((weight.shape[-1], options.get("stride", 1), options["groups"]))
            return F.conv2d(x, weight, **options)

        def avg_pool2d(self, x, size, **options):
            seen["avg_pool"].append(size)
            return F.avg_pool2d(x, size, **options)

    def counting(height, width, *where):
        seen["matrix"].append((height, width))
        return matrix(height, width, *where)

    def counting_halves(height, width, *where):
        seen["halving"].append((height, width))
        return halving(height, width, *where)

    monkeypatch.setattr(_cells, "F", Counting())
    monkeypatch.setattr(_cells, "_halving_matrix", counting_halves)
    monkeypatch.setattr(_cells, "_pool_matrix", counting)
    return seen


def stacked(params: list[dict[str, Tensor]]) -> dict[str, Tensor]:
    """Parameters of lanes, one after the other along the first dimension."""
    return {name: torch.cat([lane[name] for lane in params]) for name in params[0]}


def lanes_by_hand(net, params, lam, images, weights):
    """Outputs of each lane alone, and gradients of their weighted sum in parameters, lambda and images."""
    params = [{n: p.clone().requires_grad_() for n, p in lane.items()} for lane in params]
    lam, images = lam.clone().requires_grad_(), [x.clone().requires_grad_() for x in images]
    outputs = [net.forward(lane, lam, x) for lane, x in zip(params, images)]
    total = sum((w * out.sin()).sum() for w, out in zip(weights, outputs))
    leaves = [p for lane in params for p in lane.values()]
    found = torch.autograd.grad(total, [*leaves, *images, lam], allow_unused=True, materialize_grads=True)
    by_lane = [dict(zip(lane, found[k * len(lane) :])) for k, lane in enumerate(params)]
    return torch.stack(outputs).detach(), stacked(by_lane), torch.stack(found[len(leaves) : -1]), found[-1]


LANES = [
    # cell, cells a stage, inputs, size
    (CELL, 1, 1, (8, 8)),
    (CELL, 2, 3, (5, 7)),
    (cell_string((2, 0, 3, 4, 1, 2)), 1, 3, (8, 6)),
    (cell_string((3, 0, 0, 1, 0, 0)), 1, 2, (9, 4)),  # a convolution that leads nowhere
    (cell_string((0,) * 6), 1, 1, (4, 4)),
    (None, 1, 1, (8, 8)),
]


@pytest.mark.parametrize("cuda", [False, True], ids=["plain", "forms for CUDA"])
@pytest.mark.parametrize("own", [False, True], ids=["shared images", "own images"])
@pytest.mark.parametrize(
    ("cell", "cells", "inputs", "size"), LANES, ids=["cell", "deep", "colour", "dead edge", "none", "relaxed"]
)
@pytest.mark.parametrize("count", [2, 3])
def test_lanes_are_networks_side_by_side(count, cell, cells, inputs, size, own, cuda, as_cuda):
    """Outputs and all gradients are those of each network alone."""
    space = NASBench201(cells=cells, channels=2)
    net = space.network(inputs, 3, None if cell is None else {"cell": cell})
    generator = torch.Generator().manual_seed(7)
    params = [doubled(net, seed) for seed in range(count)]
    lam = mixture(0) if cell is None else torch.zeros(0, dtype=F64)
    images = torch.randn(count if own else 1, 5, inputs, *size, dtype=F64, generator=generator)
    weights = torch.randn(count, 5, 3, dtype=F64, generator=generator)
    expected, of_params, of_images, of_lam = lanes_by_hand(
        net, params, lam, images.expand(count, *images.shape[1:]), weights
    )
    if cell != LANES[4][0]:
        assert float((expected[0] - expected[1]).abs().max()) > 0.1

    many = replace(net, lanes=count)
    assert many.shapes() == net.shapes()  # those of one lane
    theta = {n: p.requires_grad_() for n, p in stacked(params).items()}
    x = images.transpose(0, 1).flatten(1, 2).contiguous(memory_format=torch.channels_last).requires_grad_()
    lam = lam.clone().requires_grad_()
    with as_cuda() if cuda else contextlib.nullcontext():
        found = many.forward(theta, lam, x)
    assert found.shape == (count, 5, 3)
    torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-10)
    total = (weights * found.sin()).sum()
    slopes = torch.autograd.grad(total, [*theta.values(), x, lam], allow_unused=True, materialize_grads=True)
    for name, slope in zip(theta, slopes):
        torch.testing.assert_close(slope, of_params[name], rtol=1e-8, atol=1e-9)
    by_lane = of_images if own else of_images.sum(0, keepdim=True)
    assert cell == LANES[4][0] or float(by_lane.abs().max()) > 1e-3
    torch.testing.assert_close(slopes[-2], by_lane.transpose(0, 1).flatten(1, 2), rtol=1e-8, atol=1e-9)
    torch.testing.assert_close(slopes[-1], of_lam, rtol=1e-8, atol=1e-9)


def test_fused_lanes_are_the_same():
    net = TINY.network(1, 3, {"cell": CELL})
    params = stacked([doubled(net, seed) for seed in range(2)])
    plain, fused = (replace(net, lanes=2, fused=f) for f in (False, True))
    torch.testing.assert_close(fused.forward(params, None, IMAGES), plain.forward(params, None, IMAGES))


def test_one_lane_does_not_see_another():
    """Other parameters and other images of lane 1 change nothing in lane 0."""
    net = replace(TINY.network(1, 3, {"cell": CELL}), lanes=2)
    one, two, three = (doubled(net, seed) for seed in range(3))
    images = IMAGES.repeat(1, 2, 1, 1)
    other = torch.cat([IMAGES, 10 * IMAGES.flip(0)], 1)
    first = net.forward(stacked([one, two]), None, images)
    second = net.forward(stacked([one, three]), None, other)
    torch.testing.assert_close(second[0], first[0], rtol=1e-12, atol=1e-12)
    assert float((second[1] - first[1]).abs().max()) > 0.1


def test_lanes_start_as_single_networks_and_wrong_images_are_refused():
    net = NASBench201(channels=2).network(2, 3, {"cell": CELL})
    many = replace(net, lanes=3)
    single, start = (n.init(torch.Generator().manual_seed(0)) for n in (net, many))
    assert all(torch.equal(single[name], start[name]) for name in single)
    params = stacked([start] * 3)
    for channels in (2, 6):
        assert many.forward(params, None, torch.rand(4, channels, 8, 8)).shape == (3, 4, 3)
    for channels in (1, 3, 4, 12):
        with pytest.raises(InputError, match=rf"shape \(4, {channels}, 8, 8\); this network needs \[n, 2"):
            many.forward(params, None, torch.rand(4, channels, 8, 8))


def same_by_both_forms(pool, x, expected, weights, as_cuda):
    """A pool has these values, and equal derivatives, as torch's and in the form for CUDA."""
    for at in (x, x.contiguous(memory_format=torch.channels_last)):
        slopes = []
        for cuda in (False, True):
            leaf = at.clone().requires_grad_()
            with as_cuda() if cuda else contextlib.nullcontext():
                found = pool(leaf, fused=True)
            torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-12)
            slopes.append(torch.autograd.grad((weights * found.sin()).sum(), leaf)[0])
        torch.testing.assert_close(*slopes, rtol=1e-11, atol=1e-12)


@pytest.mark.parametrize("size", [(32, 32), (16, 16), (8, 8), (5, 7), (7, 5), (1, 1), (1, 3), (2, 2)])
def test_a_pool_as_a_matrix_is_torchs_pool(size, as_cuda, forms):
    generator = torch.Generator().manual_seed(sum(size))
    x = torch.randn(3, 4, *size, dtype=F64, generator=generator)
    weights = torch.randn(3, 4, *size, dtype=F64, generator=generator)
    expected = nn.AvgPool2d(3, 1, 1, count_include_pad=False)(x)
    matrix = _cells._pool_matrix(*size, x.device, F64)
    pixels = size[0] * size[1]
    assert matrix.shape == (pixels, pixels)
    assert matrix.dtype == F64
    torch.testing.assert_close(x.flatten(2) @ matrix.T, expected.flatten(2), rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(matrix.sum(1), torch.ones(pixels, dtype=F64))
    forms["matrix"].clear()
    same_by_both_forms(pool_3x3, x, expected, weights, as_cuda)
    assert forms["avg_pool"] == [3, 3]
    assert forms["matrix"] == [size, size]  # on CUDA alone


def test_large_images_are_pooled_by_torch(as_cuda, forms):
    x = torch.randn(2, 3, 33, 32, dtype=F64, generator=torch.Generator().manual_seed(0))
    expected = nn.AvgPool2d(3, 1, 1, count_include_pad=False)(x)
    with as_cuda():
        assert torch.equal(pool_3x3(x, fused=True), expected)
    assert forms["matrix"] == []
    assert forms["avg_pool"] == [3]


@pytest.mark.parametrize(
    ("dtype", "scales", "layout", "fused", "first", "taken"),
    [
        (torch.bfloat16, torch.float32, torch.channels_last, True, 0, True),
        (torch.float32, torch.float32, torch.channels_last, True, 0, True),
        (torch.float64, torch.float64, torch.channels_last, True, 0, False),
        (torch.float32, torch.float64, torch.channels_last, True, 0, False),
        (torch.float32, torch.float32, torch.contiguous_format, True, 0, False),
        (torch.float32, torch.float32, torch.channels_last, False, 0, False),
        (torch.float32, torch.float32, torch.channels_last, True, 2, False),
    ],
)
def test_triton_gets_what_it_computes_right(dtype, scales, layout, fused, first, taken, as_cuda, monkeypatch):
    """Fused BatchNorm of channels_last images in bfloat16 or float32, on CUDA where Triton works."""
    x = torch.randn(4, 3, 5, 6, dtype=dtype).contiguous(memory_format=layout)
    scale, shift = torch.rand(3, dtype=scales), torch.rand(3, dtype=scales)
    calls = []

    class Kernels:
        @staticmethod
        def batch_norm(*given):
            calls.append(given)
            return x

    with as_cuda(), monkeypatch.context() as patch:  # undone before as_cuda's own
        patch.setattr(_cells, "_norm_cuda", lambda: Kernels)
        if (dtype, scales) == (torch.float32, torch.float64):
            assert not _cells._by_triton(x, scale)
            return
        _cells.batch_norm(x, scale, shift, fused, first)
        assert calls == ([(x, scale, shift)] if taken else [])
        calls.clear()
        _cells.batch_norm(x, None, None, fused, first)
        assert not calls
    _cells.batch_norm(x, scale, shift, fused, first)  # not on CUDA
    assert not calls


@pytest.mark.parametrize(("installed", "works"), [(False, True), (True, False), (True, True)])
def test_without_a_triton_that_works_torch_is_used(installed, works, monkeypatch):
    module = SimpleNamespace(works=lambda: works)
    monkeypatch.setattr(_cells.importlib.util, "find_spec", lambda name: module if installed else None)
    monkeypatch.setattr(_cells.importlib, "import_module", lambda name: module)
    found = _cells._norm_cuda.__wrapped__()  # not the one that is kept
    assert found is (module if installed and works else None)


def test_a_pools_matrix_has_the_type_of_the_images(as_cuda):
    """One matrix is kept a size, device and type."""
    for dtype in (torch.float32, F64, torch.bfloat16, torch.float32):
        with as_cuda():
            assert pool_3x3(torch.rand(2, 3, 6, 5, dtype=dtype), fused=True).dtype == dtype


@pytest.mark.parametrize("size", [(32, 32), (16, 16), (5, 7), (7, 5), (1, 1), (1, 3), (2, 2)])
def test_halving_as_a_matrix_is_torchs_pool(size, as_cuda, forms):
    """An odd size is rounded up, and the last pixels' mean is of those that exist."""
    generator = torch.Generator().manual_seed(sum(size))
    x = torch.randn(3, 4, *size, dtype=F64, generator=generator)
    expected = nn.AvgPool2d(2, 2, ceil_mode=True)(x)
    weights = torch.randn(expected.shape, dtype=F64, generator=generator)
    same_by_both_forms(halve, x, expected, weights, as_cuda)
    assert forms["avg_pool"] == [2, 2]
    assert forms["halving"] == [size, size]  # on CUDA alone
    with as_cuda():
        halve(x, fused=False)
        halve(torch.rand(1, 1, 33, 32), fused=True)
    assert forms["halving"] == [size, size]


@pytest.mark.parametrize("size", [(8, 8), (7, 7), (5, 8), (6, 9), (1, 1), (2, 1)])
@pytest.mark.parametrize("inputs", [2, 16])
@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize("kernel", [1, 3])
@pytest.mark.parametrize("groups", [1, 2, 3])
def test_convolutions_for_cuda_are_the_plain_ones(groups, kernel, stride, inputs, size, as_cuda, forms):
    """Groups are one convolution of all channels, but for 3 x 3 at stride 1 of many channels."""
    generator = torch.Generator().manual_seed(kernel + stride)
    x = torch.randn(3, inputs * groups, *size, dtype=F64, generator=generator)
    weight = torch.randn(4 * groups, inputs, kernel, kernel, dtype=F64, generator=generator)
    shape = (inputs * groups, 4 * groups, kernel, stride, kernel // 2)
    layer = nn.Conv2d(*shape, groups=groups, bias=False).double()
    with torch.no_grad():
        layer.weight.copy_(weight)
    expected = layer(x).detach()
    assert expected.shape[-2:] == tuple(-(-side // stride) for side in size)  # rounded up
    upstream = torch.randn(expected.shape, dtype=F64, generator=generator)
    slopes = []
    for cuda in (False, True):
        leaves = [x.clone().requires_grad_(), weight.clone().requires_grad_()]
        with as_cuda() if cuda else contextlib.nullcontext():
            found = convolve(*leaves, stride, groups)
        torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-12)
        slopes.append(torch.autograd.grad((upstream * found).sum(), leaves))
    torch.testing.assert_close(*slopes, rtol=1e-11, atol=1e-11)
    grouped = (kernel, stride, inputs) == (3, 1, 16)
    assert forms["conv"] == [(kernel, stride, groups), (kernel, stride, groups if grouped else 1)]


def test_lanes_on_cuda_have_groups_at_3x3_of_stride_1_alone(as_cuda, forms):
    """As many convolutions as one network has."""
    net = replace(TINY, channels=16).network(1, 3, {"cell": cell_string((2, 3, 4, 2, 1, 4))})
    net.forward(doubled(net), None, IMAGES)
    single = len(forms["conv"])
    assert {kernel for kernel, _, _ in forms["conv"]} == {1, 3}
    assert {stride for _, stride, _ in forms["conv"]} == {1, 2}
    assert len(forms["matrix"]) == 0
    forms["conv"].clear()
    params = stacked([doubled(net, seed) for seed in range(2)])
    with as_cuda():
        replace(net, lanes=2, fused=True).forward(params, None, IMAGES)
        assert len(forms["conv"]) == single
        assert {form for form in forms["conv"] if form[2] == 2} == {(3, 1, 2)}
        assert forms["conv"].count((3, 1, 1)) == 1  # the stem, of few channels
        assert {form for form in forms["conv"] if form[2] == 1} == {(1, 1, 1), (3, 2, 1), (3, 1, 1)}
        shared = forms["conv"].copy()
        forms["conv"].clear()
        replace(net, lanes=2, fused=True).forward(params, None, IMAGES.repeat(1, 2, 1, 1))
        assert forms["conv"] == shared
    assert set(forms["matrix"]) == {(8, 8), (4, 4), (2, 2)}
    assert set(forms["halving"]) == {(8, 8), (4, 4)}


def test_hypergradients_have_the_same_derivatives_by_the_forms_for_cuda(as_cuda):
    """Forward over reverse, its slope in the images and a batch: what alignment does."""
    params, lam = doubled(TINY.network(1, 3)), mixture(0)
    generator = torch.Generator().manual_seed(1)
    to_lam = torch.randn(30, dtype=F64, generator=generator)
    to_params = {n: torch.randn(v.shape, dtype=F64, generator=generator) for n, v in params.items()}

    def derivatives():
        def slope(x):
            return jvp(lambda p, l: relaxed_loss(p, l, x), (params, lam), (to_params, to_lam))[1]

        mixed = jvp(lambda at: grad(relaxed_loss)(params, at), (lam,), (to_lam,))[1]
        lams = torch.stack([lam, mixture(1)])
        return grad(slope)(IMAGES), mixed, vmap(lambda l: grad(relaxed_loss, argnums=1)(params, l))(lams)

    expected = derivatives()
    _cells._pool_matrix.cache_clear()  # made anew inside the transforms
    with as_cuda():
        torch.testing.assert_close(derivatives(), expected, rtol=1e-9, atol=1e-11)
        torch.testing.assert_close(derivatives(), expected, rtol=1e-9, atol=1e-11)


# --- statistics of other images -----------------------------------------------------------------------------


def settled(net, params, images) -> Module:
    """The network of torch layers in ``eval()``, with running statistics set from ``images`` by hand: torch's
    own running variance is the unbiased one."""
    module = Module(net, params).train()

    def keep(layer, inputs, _):
        x = inputs[0].transpose(0, 1).flatten(1)
        layer.running_mean.copy_(x.mean(1))
        layer.running_var.copy_((x - x.mean(1, keepdim=True)).square().mean(1))

    norms = [layer for layer in module.modules() if isinstance(layer, nn.BatchNorm2d)]
    hooks = [layer.register_forward_hook(keep) for layer in norms]
    with torch.no_grad():
        module(images)
    for hook in hooks:
        hook.remove()
    assert len(hooks) > 4
    return module.eval()


def two_sets(inputs=1, first=5, behind=4, size=(12, 12), seed=3):
    """Reference images and scored ones, which are brighter and have more contrast."""
    generator = torch.Generator().manual_seed(seed)
    reference, scored = (
        torch.randn(n, inputs, *size, dtype=F64, generator=generator) for n in (first, behind)
    )
    return reference, 2 * scored + 0.7


def behind(net, params, reference, scored, lam=None):
    """Outputs of the scored images with the statistics of the reference."""
    found = replace(net, reference=len(reference)).forward(params, lam, torch.cat([reference, scored]))
    return found[..., len(reference) :, :]


@pytest.mark.parametrize("fused", [False, True])
@pytest.mark.parametrize("affine", [False, True])
def test_batch_norm_by_the_first_images_is_torchs_in_eval(affine, fused):
    generator = torch.Generator().manual_seed(0)
    x = 1 + 3 * torch.randn(7, 2, 3, 4, dtype=F64, generator=generator)
    x[3:] = 0.2 * x[3:] - 5
    scale, shift = torch.randn(2, 2, dtype=F64, generator=generator) if affine else (None, None)
    for first in (1, 3, 7):
        front = x[:first].transpose(0, 1).flatten(1)
        mean, var = front.mean(1), front.var(1, correction=0)
        expected = F.batch_norm(x, mean, var, scale, shift, training=False)
        found = batch_norm(x, scale, shift, fused, first)
        torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-12)
        torch.testing.assert_close(
            found[:first], F.batch_norm(x[:first], None, None, scale, shift, training=True)
        )
    own = F.batch_norm(x, None, None, scale, shift, training=True)
    torch.testing.assert_close(batch_norm(x, scale, shift, fused, 7), own, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(batch_norm(x, scale, shift, fused), own, rtol=1e-12, atol=1e-12)
    if fused:
        assert torch.equal(batch_norm(x, scale, shift, True, 0), own)
    assert float((batch_norm(x, scale, shift, fused, 3) - own).abs().max()) > 0.1


def test_batch_norm_by_the_first_images_has_right_derivatives():
    """In all images, those of the front included: gradients and a slope along a response, differentiated."""
    generator = torch.Generator().manual_seed(0)
    x, to, weights = (torch.randn(5, 2, 3, 3, dtype=F64, generator=generator) for _ in range(3))
    scale, shift = torch.randn(2, 2, dtype=F64, generator=generator)

    def loss(at, fused=False):
        return (weights * torch.sin(batch_norm(at, scale, shift, fused, 2))).sum()

    def quotient(of):
        return (of(x + 1e-6 * to) - of(x - 1e-6 * to)) / 2e-6

    torch.testing.assert_close((grad(loss)(x) * to).sum(), quotient(loss), rtol=1e-7, atol=1e-7)
    assert torch.equal(grad(loss)(x, True), grad(loss)(x))
    turned = grad(lambda at: jvp(loss, (at,), (to,))[1])(x)
    torch.testing.assert_close(turned, quotient(grad(loss)), rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("fused", [False, True])
@pytest.mark.parametrize("cell", [(3, 3, 4, 1, 3, 1), (0, 2, 3, 1, 4, 3), (3, 2, 1, 0, 2, 0)])
@pytest.mark.parametrize(("cells", "inputs"), [(1, 1), (2, 3)])
def test_with_a_reference_the_network_is_that_of_torch_layers_in_eval(cell, cells, inputs, fused):
    net = replace(
        NASBench201(cells=cells, channels=4).network(inputs, 5, {"cell": cell_string(cell)}), fused=fused
    )
    params = doubled(net)
    reference, scored = two_sets(inputs)
    module = settled(net, params, reference)
    with torch.no_grad():
        expected = module(scored)
    assert expected.std() > 0.1
    found = behind(net, params, reference, scored)
    torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-10)
    # in front, the reference by its own statistics; without a reference, the scored images by theirs
    whole = replace(net, reference=5).forward(params, None, torch.cat([reference, scored]))
    torch.testing.assert_close(whole[:5], net.forward(params, None, reference), rtol=1e-10, atol=1e-10)
    own = net.forward(params, None, scored)
    torch.testing.assert_close(own, module.train()(scored), rtol=1e-10, atol=1e-10)
    assert float((own - expected).abs().max()) > 0.1


@pytest.mark.parametrize("cuda", [False, True], ids=["plain", "forms for CUDA"])
@pytest.mark.parametrize("own", [False, True], ids=["shared images", "own images"])
@pytest.mark.parametrize("count", [2, 3])
def test_lanes_with_a_reference_are_torch_layers_in_eval_side_by_side(count, own, cuda, as_cuda):
    net = replace(NASBench201(channels=2).network(1, 3, {"cell": CELL}), fused=True)
    params = [doubled(net, seed) for seed in range(count)]
    sets = [two_sets(size=(8, 8), seed=k if own else 0) for k in range(count)]
    with torch.no_grad():
        expected = [settled(net, lane, first)(second) for lane, (first, second) in zip(params, sets)]
    assert float((expected[0] - expected[1]).abs().max()) > 0.1
    together = [torch.cat(parts, 1) if own else parts[0] for parts in zip(*sets)]
    with as_cuda() if cuda else contextlib.nullcontext():
        found = behind(replace(net, lanes=count), stacked(params), *together)
    assert found.shape == (count, 4, 3)
    torch.testing.assert_close(found, torch.stack(expected), rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("config", [None, {"cell": CELL}], ids=["relaxed", "cell"])
@pytest.mark.parametrize("count", [1, 2])
def test_with_a_reference_an_image_does_not_depend_on_the_others(count, config):
    net = replace(TINY.network(1, 3, config), lanes=count)
    params, lam = stacked([doubled(net, seed) for seed in range(count)]), mixture(0)
    reference, scored = two_sets(size=(8, 8))
    together = behind(net, params, reference, scored, lam)
    for k in range(4):
        alone = behind(net, params, reference, scored[k : k + 1], lam)
        torch.testing.assert_close(alone[..., 0, :], together[..., k, :], rtol=1e-11, atol=1e-11)
    by_batch = net.forward(params, lam, scored[:2])
    assert float((by_batch - net.forward(params, lam, scored)[..., :2, :]).abs().max()) > 0.1
    other = behind(net, params, reference.flip(-1) + 1, scored, lam)
    assert float((other - together).abs().max()) > 0.01  # the reference matters


def test_with_a_reference_gradients_in_the_images_are_those_of_finite_differences():
    net = TINY.network(1, 3, {"cell": CELL})
    params = doubled(net)
    reference, scored = two_sets(size=(8, 8))
    generator = torch.Generator().manual_seed(0)
    to = torch.randn(scored.shape, dtype=F64, generator=generator)

    def each(x):
        return F.cross_entropy(behind(net, params, reference, x), LABELS[:4], reduction="none")

    jacobian = jacrev(each)(scored)  # [4, 4, 1, 8, 8]
    for k in range(4):
        others = [j for j in range(4) if j != k]
        assert float(jacobian[k, others].abs().max()) == 0  # of the other images
        assert float(jacobian[k, k].abs().max()) > 1e-3
    quotient = (each(scored + 1e-6 * to) - each(scored - 1e-6 * to)) / 2e-6
    torch.testing.assert_close((jacobian * to).sum((1, 2, 3, 4)), quotient, rtol=1e-6, atol=1e-8)
    module = settled(net, params, reference)
    leaf = scored.clone().requires_grad_()
    (expected,) = torch.autograd.grad(F.cross_entropy(module(leaf), LABELS[:4]), leaf)
    torch.testing.assert_close(jacobian.sum(0) / 4, expected, rtol=1e-9, atol=1e-11)
    own = grad(lambda x: F.cross_entropy(net.forward(params, None, x), LABELS[:4]))(scored)
    assert float((own - expected).abs().max()) > 1e-2


# --- relaxation ---------------------------------------------------------------------------------------------

TINY = NASBench201(cells=1, channels=2)
IMAGES = torch.randn(6, 1, 8, 8, dtype=F64, generator=torch.Generator().manual_seed(5))
LABELS = torch.tensor([0, 1, 2, 0, 1, 2])


def mixture(seed: int) -> Tensor:
    """A point inside the product of simplices."""
    return torch.from_numpy(np.random.default_rng(seed).dirichlet([2.0] * 5, 6)).flatten()


def relaxed_loss(params, lam, images=IMAGES):
    return F.cross_entropy(TINY.network(1, 3).forward(params, lam, images), LABELS)


@pytest.mark.parametrize("affine", [False, True])
def test_at_a_one_hot_lambda_the_supernet_is_the_cell(affine):
    supernet = replace(TINY.network(1, 3), affine=affine)
    params = doubled(supernet)
    cells = [*TINY.sample(12, np.random.default_rng(0)), {"cell": cell_string((0, 2, 3, 1, 4, 3))}]
    for config in cells:
        discrete = replace(TINY.network(1, 3, config), affine=affine)
        assert set(discrete.shapes()) <= set(params)
        expected = discrete.forward(
            {name: params[name] for name in discrete.shapes()}, torch.empty(0), IMAGES
        )
        actual = supernet.forward(params, TINY.encode(config), IMAGES)
        torch.testing.assert_close(actual, expected, rtol=1e-10, atol=1e-10)


def test_a_supernet_without_scales_is_the_affine_cell_at_scale_one():
    supernet, discrete = TINY.network(1, 3), TINY.network(1, 3, {"cell": CELL})
    params = {name: value.double() for name, value in supernet.init(torch.Generator().manual_seed(0)).items()}
    assert not any("cells" in name and not name.endswith("weight") for name in params)
    plain = {name: value.double() for name, value in discrete.init(torch.Generator()).items()}
    plain |= {name: params[name] for name in plain if name in params}
    expected = discrete.forward(plain, torch.empty(0), IMAGES)
    torch.testing.assert_close(supernet.forward(params, TINY.encode({"cell": CELL}), IMAGES), expected)


def test_all_operations_have_mixed_partials_where_lambda_is_zero():
    """d^2 L / d theta d lambda at a vertex: not zero for a convolution that the vertex does not use."""
    lam = TINY.encode({"cell": cell_string((1, 1, 1, 1, 1, 1))})
    params = doubled(TINY.network(1, 3))
    direction = torch.zeros(30, dtype=F64)
    direction[3] = 1  # nor_conv_3x3 at the edge 0-1
    _, mixed = jvp(lambda at: grad(relaxed_loss)(params, at), (lam,), (direction,))
    assert float(mixed["cells.0.0-1.nor_conv_3x3.weight"].norm()) > 1e-6
    assert float(mixed["cells.0.0-2.nor_conv_3x3.weight"].norm()) == 0


def test_project_is_the_simplex_at_each_edge():
    lam = 3 * torch.randn(4, 30, dtype=F64, generator=torch.Generator().manual_seed(0))
    inside = NASBench201().project(lam).reshape(4, 6, 5)
    assert bool((inside >= 0).all())
    torch.testing.assert_close(inside.sum(-1), torch.ones(4, 6, dtype=F64))
    edges = lam.reshape(4, 6, 5)
    threshold = (edges - inside).masked_fill(inside == 0, -torch.inf).amax(-1, keepdim=True)
    torch.testing.assert_close(inside, (edges - threshold).clamp_min(0))  # the optimality conditions


def test_genotype_takes_the_largest_at_each_edge():
    assert genotype(TINY.encode({"cell": CELL}) * 0.2 + 0.1 * torch.rand(30)) == {"cell": CELL}
    assert genotype(torch.zeros(30)) == {"cell": cell_string((0,) * 6)}


def test_gumbel_sample_is_hard_with_the_derivatives_of_the_soft_one():
    generator = torch.Generator().manual_seed(0)
    logits, weights = (torch.randn(30, dtype=F64, generator=generator) for _ in range(2))
    noise = gumbel_noise(generator)

    def hard(at):
        return (weights * gumbel_one_hot(at, 0.7, noise)).sum()

    def soft(at):
        shifted = (at - at.reshape(6, 5).exp().sum(1).log().repeat_interleave(5) + noise).reshape(6, 5) / 0.7
        return (weights * (shifted.exp() / shifted.exp().sum(1, keepdim=True)).flatten()).sum()

    sample = gumbel_one_hot(logits, 0.7, noise)
    largest = (logits + noise).reshape(6, 5).argmax(1)
    assert torch.equal(sample.reshape(6, 5), F.one_hot(largest, 5).double())
    torch.testing.assert_close(grad(hard)(logits), grad(soft)(logits))
    torch.testing.assert_close(jvp(hard, (logits,), (weights,))[1], jvp(soft, (logits,), (weights,))[1])
    torch.testing.assert_close(hessian(hard)(logits), hessian(soft)(logits))
    both = torch.stack([logits, weights])
    torch.testing.assert_close(vmap(lambda l: gumbel_one_hot(l, 0.7, noise))(both)[0], sample)
    assert torch.equal(gumbel_one_hot(both, 0.7, noise)[0], sample)
    assert torch.equal(gumbel_one_hot(logits + noise, 0.7), sample)  # a draw that the logits have in them
    within = jvp(lambda at: gumbel_one_hot(at, 0.7), (logits + noise,), (weights,))[1]
    beside = jvp(lambda at: gumbel_one_hot(at, 0.7, noise), (logits,), (weights,))[1]
    torch.testing.assert_close(within, beside)
    for tau in (0.0, -1.0, float("nan")):
        with pytest.raises(InputError, match="above 0"):
            gumbel_one_hot(logits, tau, noise)
    with pytest.raises(InputError, match="must be 30"):
        gumbel_one_hot(logits[:5], 1.0, noise)


def test_gumbel_noise_draws_operations_with_softmax_probabilities():
    generator = torch.Generator().manual_seed(0)
    noise = torch.stack([gumbel_noise(generator) for _ in range(4000)])
    assert bool(torch.isfinite(noise).all())
    logits = torch.tensor([0.0, 1.0, -1.0, 2.0, 0.5], dtype=F64).repeat(6)
    shares = gumbel_one_hot(logits.expand(4000, 30), 1.0, noise).mean(0).reshape(6, 5)
    expected = logits[:5].softmax(0)
    assert bool(((shares - expected).abs() < 5 * (expected * (1 - expected) / 4000).sqrt()).all())


def test_transforms_agree_with_each_other():
    params, lam = doubled(TINY.network(1, 3)), mixture(0)
    generator = torch.Generator().manual_seed(1)
    to_lam = torch.randn(30, dtype=F64, generator=generator)
    to_params = {n: torch.randn(v.shape, dtype=F64, generator=generator) for n, v in params.items()}
    of_params, of_lam = grad(relaxed_loss, argnums=(0, 1))(params, lam)
    _, tangent = jvp(relaxed_loss, (params, lam), (to_params, to_lam))
    inner = sum((of_params[n] * to_params[n]).sum() for n in params) + of_lam @ to_lam
    torch.testing.assert_close(tangent, inner)
    # mixed second derivatives: forward over reverse, reverse over reverse
    _, forward = jvp(lambda at: grad(relaxed_loss)(params, at), (lam,), (to_lam,))
    _, pull = vjp(lambda at: grad(relaxed_loss)(params, at), lam)
    torch.testing.assert_close(
        sum((forward[n] * to_params[n]).sum() for n in params), pull(to_params)[0] @ to_lam
    )

    # what learns images by alignment: the slope along (params, lam), differentiated in the images
    def slope(x):
        return jvp(lambda p, l: relaxed_loss(p, l, x), (params, lam), (to_params, to_lam))[1]

    _, turned = jvp(
        lambda p, l: grad(relaxed_loss, argnums=2)(p, l, IMAGES), (params, lam), (to_params, to_lam)
    )
    torch.testing.assert_close(grad(slope)(IMAGES), turned)
    # a batch over (params, lam)
    two = {n: torch.stack([v, v + 0.1 * to_params[n]]) for n, v in params.items()}
    lams = torch.stack([lam, mixture(1)])
    batched = vmap(grad(relaxed_loss, argnums=(0, 1)))(two, lams)
    for i in range(2):
        one = grad(relaxed_loss, argnums=(0, 1))({n: v[i] for n, v in two.items()}, lams[i])
        torch.testing.assert_close(batched[1][i], one[1])
        torch.testing.assert_close({n: v[i] for n, v in batched[0].items()}, one[0])


def test_gradients_are_those_of_finite_differences():
    params, lam = doubled(TINY.network(1, 3)), mixture(0)
    of_params, of_lam = grad(relaxed_loss, argnums=(0, 1))(params, lam)
    of_images = grad(lambda x: relaxed_loss(params, lam, x))(IMAGES)
    for h in range(0, 30, 4):
        step = 1e-6 * F.one_hot(torch.tensor(h), 30).double()
        quotient = (relaxed_loss(params, lam + step) - relaxed_loss(params, lam - step)) / 2e-6
        torch.testing.assert_close(of_lam[h], quotient, rtol=1e-5, atol=1e-8)
    generator = torch.Generator().manual_seed(2)
    to = {n: torch.randn(v.shape, dtype=F64, generator=generator) for n, v in params.items()}
    pixels = torch.randn(IMAGES.shape, dtype=F64, generator=generator)

    def along(t):
        return relaxed_loss({n: v + t * to[n] for n, v in params.items()}, lam, IMAGES + t * pixels)

    expected = sum((of_params[n] * to[n]).sum() for n in params) + (of_images * pixels).sum()
    torch.testing.assert_close(expected, (along(1e-7) - along(-1e-7)) / 2e-7, rtol=1e-5, atol=1e-7)
    assert bool((of_lam.reshape(6, 5)[:, 0] == 0).all())  # `none` adds nothing
    assert bool((of_lam.reshape(6, 5)[:, 1:] != 0).all())


# --- hypergradients -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Labelled:
    x: Tensor
    y: Tensor


class SmallImages(Task):
    """The relaxed network on tiny images; ``fixed`` parameters are not trained."""

    kind = "small-images"

    def __init__(self, train: Labelled, val: Labelled, fixed: dict[str, Tensor], decay: float):
        self._train, self._val, self.fixed, self.decay = train, val, fixed, decay
        self.net = TINY.network(1, 3)

    @property
    def train(self):
        return self._train

    @property
    def val(self):
        return self._val

    def init(self, generator):
        return {n: v.double() for n, v in self.net.init(generator).items() if n not in self.fixed}

    def predict(self, params, lam, data):
        return self.net.forward({**self.fixed, **params}, lam, data.x)

    def loss(self, outputs, data):
        return F.cross_entropy(outputs, data.y)

    def penalty(self, params, lam):
        return self.decay / 2 * torch.stack([v.square().sum() for v in params.values()]).sum()

    def sample(self, part, size, seed, balanced=False):
        raise AssertionError("not used here")

    def tensors(self, data):
        return {"x": data.x}

    def replace(self, data, tensors):
        return replace(data, x=tensors["x"])

    def to(self, device):
        return self


def labelled(seed: int, count: int) -> Labelled:
    generator = torch.Generator().manual_seed(seed)
    return Labelled(torch.randn(count, 1, 8, 8, dtype=F64, generator=generator), torch.arange(count) % 3)


def trained_head(task: SmallImages, lam: Tensor) -> dict[str, Tensor]:
    """The optimum of the (convex) loss in the classifier by Newton's method."""
    params = {n: torch.zeros_like(v) for n, v in task.init(torch.Generator()).items()}
    shapes = {n: v.shape for n, v in params.items()}

    def loss(flat):
        parts = flat.split([s.numel() for s in shapes.values()])
        return task.train_loss({n: p.reshape(s) for (n, s), p in zip(shapes.items(), parts)}, lam, task.train)

    flat = torch.cat([v.flatten() for v in params.values()])
    for _ in range(8):
        flat = flat - torch.linalg.solve(hessian(loss)(flat), grad(loss)(flat))
    assert float(grad(loss)(flat).norm()) < 1e-12
    parts = flat.split([s.numel() for s in shapes.values()])
    return {n: p.reshape(s) for (n, s), p in zip(shapes.items(), parts)}


def test_hypergradients_of_a_trained_classifier_are_finite_differences_of_retrained_ones():
    """BatchNorm leaves the whole network no isolated optimum; the classifier on top of it has one."""
    body = doubled(TINY.network(1, 3))
    fixed = {n: v for n, v in body.items() if not n.startswith("linear")}
    task = SmallImages(labelled(0, 9), labelled(1, 9), fixed, decay=0.05)
    lam = mixture(0)
    result = hypergradient(
        task, trained_head(task, lam), lam, task.train, task.val, exact(damping=0.0), "hessian"
    )

    def optimised(at):
        return task.val_loss(trained_head(task, at), at, task.val)

    for h in (1, 7, 13, 18, 24):  # a step of 1e-5 already crosses kinks of ReLU
        step = 1e-6 * F.one_hot(torch.tensor(h), 30).double()
        quotient = (optimised(lam + step) - optimised(lam - step)) / 2e-6
        torch.testing.assert_close(result.total[h], quotient, rtol=1e-5, atol=1e-8)
    assert float(result.implicit.norm()) > 0.01 * float(result.direct.norm()) > 0


def test_hypergradients_through_training_of_all_parameters_are_finite_differences():
    task = SmallImages(labelled(0, 6), labelled(1, 6), {}, decay=1e-3)
    start, lam = doubled(TINY.network(1, 3)), mixture(0)
    params, response = unrolled_response(task, start, lam, task.train, steps=3, lr=0.05)
    total = response_hypergradient(task, params, lam, response, task.val)

    def trained(at):
        params = start
        for _ in range(3):
            gradient = grad(task.train_loss)(params, at, task.train)
            params = {n: v - 0.05 * gradient[n] for n, v in params.items()}
        return task.val_loss(params, at, task.val)

    for seed in range(3):
        direction = torch.randn(30, dtype=F64, generator=torch.Generator().manual_seed(seed))
        quotient = (trained(lam + 1e-6 * direction) - trained(lam - 1e-6 * direction)) / 2e-6
        torch.testing.assert_close(total @ direction, quotient, rtol=1e-4, atol=1e-7)
    direct = grad(task.val_loss, argnums=1)(params, lam, task.val)
    assert float((total - direct).norm()) > 0.01 * float(direct.norm())


def test_hypergradients_through_a_frozen_gumbel_draw():
    """The straight-through hypergradient in the logits: the relaxation's at the hard sample, times dp."""
    generator = torch.Generator().manual_seed(0)
    logits, noise = 1e-3 * torch.randn(30, dtype=F64, generator=generator), gumbel_noise(generator)
    params = doubled(TINY.network(1, 3))
    through = grad(lambda at: relaxed_loss(params, gumbel_one_hot(at, 2.0, noise)))(logits)
    hard = gumbel_one_hot(logits, 2.0, noise)
    jacobian = jacrev(
        lambda at: ((at.reshape(6, 5).log_softmax(1) + noise.reshape(6, 5)) / 2).softmax(1).flatten()
    )
    torch.testing.assert_close(through, grad(relaxed_loss, argnums=1)(params, hard) @ jacobian(logits))
    assert float(through.norm()) > 0


def drawn_logits(seed: int) -> Tensor:
    """Logits of a point inside, with a Gumbel draw in them."""
    return mixture(seed).log() + gumbel_noise(torch.Generator().manual_seed(seed))


def test_a_network_of_drawn_operations_is_the_cell_drawn():
    net, at = replace(TINY.network(1, 3), tau=2.0), drawn_logits(0)
    params = doubled(net)
    expected = TINY.network(1, 3).forward(params, TINY.encode(genotype(at)), IMAGES)
    torch.testing.assert_close(net.forward(params, at, IMAGES), expected)
    assert genotype(at) != genotype(mixture(0))


def nodes_live(at: Tensor) -> bool:
    """Whether no node of the cell drawn is zero, where ReLU has a kink."""
    live = [True, False, False, False]
    for number, (source, target) in zip(parse(genotype(at)["cell"]), EDGES):
        live[target] |= number != 0 and live[source]
    return all(live)


@pytest.mark.parametrize("tau", [0.7, 5.0])
def test_hypergradients_of_drawn_operations_are_finite_differences_of_retrained_classifiers(tau):
    """Straight through: the weights move as the softened sample does, from the hard one. By both forms, and
    with draws of their own in one batch."""
    fixed = {n: v for n, v in doubled(TINY.network(1, 3)).items() if not n.startswith("linear")}
    plain, drawn = (SmallImages(labelled(0, 9), labelled(1, 9), fixed, decay=0.05) for _ in range(2))
    drawn.net = replace(drawn.net, tau=tau)
    points = torch.stack(list(itertools.islice(filter(nodes_live, map(drawn_logits, range(99))), 2)))
    assert genotype(points[0]) != genotype(points[1])

    def soft(at):
        return (at.reshape(6, 5) / tau).softmax(1).flatten()

    trained, totals = [], []
    for at in points:
        hard = TINY.encode(genotype(at))

        def optimised(moved, at=at, hard=hard):
            weights = hard + soft(moved) - soft(at)
            return plain.val_loss(trained_head(plain, weights), weights, plain.val)

        params = trained_head(drawn, at)
        solver = exact(damping=0.0)
        result = hypergradient(drawn, params, at, drawn.train, drawn.val, solver, "hessian")
        for h in (1, 7, 13, 18, 24):
            step = 1e-6 * F.one_hot(torch.tensor(h), 30).double()
            quotient = (optimised(at + step) - optimised(at - step)) / 2e-6
            torch.testing.assert_close(result.total[h], quotient, rtol=1e-5, atol=1e-8)
        assert float(result.implicit.norm()) > 0.01 * float(result.direct.norm()) > 0
        response = best_response(drawn, params, at, drawn.train, solver, "hessian")
        by_response = response_hypergradient(drawn, params, at, response, drawn.val)
        torch.testing.assert_close(by_response, result.total)
        trained.append(params)
        totals.append(result.total)
    together = {name: torch.stack([params[name] for params in trained]) for name in trained[0]}
    batch = batched_hypergradient(
        drawn, together, points, drawn.train, drawn.val, exact(damping=0.0), "hessian"
    )
    torch.testing.assert_close(batch.total, torch.stack(totals))


def test_features_are_counts_of_operations_and_the_size():
    """What a ridge on the probes sees: five counts, and the logarithm of the number of parameters."""
    space = NASBench201()
    cells = space.candidates()[:40]
    found = np.asarray([space.features(cell) for cell in cells])
    assert found.shape == (40, 6)
    for cell, row in zip(cells, found):
        names = [part.split("~")[0] for part in cell["cell"].replace("+", "").split("|") if part]
        assert row[:5].tolist() == [names.count(operation) for operation in OPERATIONS]
        assert row[5] == pytest.approx(np.log(space.parameter_count(cell, 3, 10)))


@pytest.mark.parametrize("given", [{"channels": "8"}, {"cells": 1.5}, {"cells": True}, {"channels": 0}])
def test_sizes_that_are_no_whole_numbers_are_refused(given):
    with pytest.raises(InputError, match="cells and channels of at least 1, whole numbers; got"):
        NASBench201(**given)


def test_the_first_candidates_may_be_left_out_to_judge():
    whole, space = NASBench201().candidates(), NASBench201(skip=4900)
    assert space.candidates() == whole[4900:]
    assert {c["cell"] for c in space.sample(29, np.random.default_rng(0))} == {
        c["cell"] for c in whole[4900:]
    }
    assert hcdc.spaces.from_spec(space.spec()) == space != NASBench201()
    assert "skip" not in NASBench201().spec()
    space.check(whole[0])  # any cell is still a configuration
    with pytest.raises(InputError, match="skip 4928: at least 2"):
        NASBench201(skip=4928)
