"""The small ResNet against the same network of torch modules."""

from itertools import pairwise

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from hcdc.core.errors import InputError
from hcdc.networks import Dropout, ResNet


class Block(nn.Module):
    def __init__(self, below, above):
        super().__init__()
        stride = 2 if above > below else 1
        self.main = nn.Sequential(
            nn.Conv2d(below, above, 3, stride, 1, bias=False), nn.BatchNorm2d(above), nn.ReLU(),
            nn.Conv2d(above, above, 3, 1, 1, bias=False), nn.BatchNorm2d(above),
        )  # fmt: skip
        self.short = (
            nn.Sequential()
            if stride == 1
            else nn.Sequential(nn.Conv2d(below, above, 1, stride, bias=False), nn.BatchNorm2d(above))
        )

    def forward(self, x):
        return F.relu(self.main(x) + self.short(x))


def modules(width, depth):
    channels = [width] * (depth + 1) + [2 * width] * depth + [4 * width] * depth
    blocks = [Block(below, above) for below, above in pairwise(channels)]
    stem = [nn.Conv2d(3, width, 3, 1, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU()]
    return nn.Sequential(
        *stem, *blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4 * width, 10)
    ).double()


@pytest.mark.parametrize(("width", "depth"), [(3, 1), (2, 3)])
@pytest.mark.parametrize("fused", [False, True])
def test_it_is_the_network_of_torch_modules(width, depth, fused):
    """Parameters in the order of the layers are those of the modules; BatchNorm as in training."""
    network = ResNet(3, 10, width, depth, fused)
    params = {name: p.double() for name, p in network.init(torch.Generator().manual_seed(0)).items()}
    generator = torch.Generator().manual_seed(1)
    params = {k: p + 0.1 * torch.randn(p.shape, generator=generator).double() for k, p in params.items()}
    plain = modules(width, depth)
    targets = list(plain.parameters())
    assert [p.shape for p in targets] == [p.shape for p in params.values()]
    with torch.no_grad():
        for target, p in zip(targets, params.values()):
            target.copy_(p)
    x = torch.randn(6, 3, 9, 12, generator=generator, dtype=torch.float64)
    torch.testing.assert_close(network.forward(params, None, x), plain(x))


def test_depth_three_and_width_sixteen_is_resnet_20():
    """0.27 million parameters (He et al., 2016, table 6): 269,722 without the two projections."""
    projections = (16 + 2) * 32 + (32 + 2) * 64
    assert ResNet(3, 10, 16, 3).parameter_count() - projections == 269_722


def test_lanes_side_by_side_and_their_dropout_are_single_networks():
    network = ResNet(3, 4, 2, 1)
    each = [network.init(torch.Generator().manual_seed(k)) for k in range(3)]
    many = {name: torch.cat([params[name] for params in each]) for name in each[0]}
    x = torch.randn(5, 3, 8, 8, generator=torch.Generator().manual_seed(9))
    keys = torch.tensor([3, 4, 5])
    for dropout in (None, Dropout(0.5, keys)):
        wide = network.side_by_side(3)
        wide = wide if dropout is None else wide.with_dropout(dropout)
        logits = wide.forward(many, None, x)
        assert logits.shape == (3, 5, 4)
        for k, params in enumerate(each):
            one = network if dropout is None else network.with_dropout(Dropout(0.5, keys[k : k + 1]))
            torch.testing.assert_close(logits[k], one.forward(params, None, x), rtol=1e-4, atol=1e-5)


def test_dropout_acts_on_the_features_before_the_classifier():
    network = ResNet(1, 3, 2, 1)
    params = network.init(torch.Generator().manual_seed(0))
    x = torch.randn(4, 1, 8, 8, generator=torch.Generator().manual_seed(1))
    identity = {**params, "linear.weight": torch.eye(8), "linear.bias": torch.zeros(8)}
    features = network.forward(identity, None, x)
    masks = Dropout(0.5, torch.tensor(1))
    dropped = network.with_dropout(masks)
    torch.testing.assert_close(dropped.forward(identity, None, x), masks(features))
    assert not torch.equal(dropped.forward(params, None, x), network.forward(params, None, x))


def test_a_reference_gives_the_statistics():
    network = ResNet(1, 3, 2, 1)
    params = network.init(torch.Generator().manual_seed(0))
    x = torch.randn(6, 1, 8, 8, generator=torch.Generator().manual_seed(1))
    whole = network.forward(params, None, x)
    one = network.forward_with_reference(params, None, x[:1], x)
    torch.testing.assert_close(one, whole[:1], rtol=1e-4, atol=1e-5)
    assert (network.forward(params, None, x[:1]) - whole[:1]).abs().max() > 1e-3


def test_bad_sizes_and_images_are_refused():
    with pytest.raises(InputError, match="width and depth of at least 1, got 0 and 1"):
        ResNet(3, 10, 0)
    with pytest.raises(InputError, match=r"this network needs \[n, 3, h, w\]"):
        ResNet(3, 10).forward(ResNet(3, 10).init(torch.Generator()), None, torch.zeros(2, 1, 8, 8))
