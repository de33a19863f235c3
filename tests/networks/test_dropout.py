"""Masks: the share that is dropped, the scale of the rest, and what a mask depends on."""

import pytest
import torch

from hcdc.networks import Dropout
from hcdc.networks._dropout import mixed


def masks(rate=0.5, key=7):
    return Dropout(rate, torch.tensor(key))


@pytest.mark.parametrize("rate", [0.0, 0.1, 0.5, 0.9])
def test_the_share_that_is_dropped(rate):
    x = torch.ones(400, 250)
    dropped = masks(rate)(x)
    share = float((dropped == 0).float().mean())
    assert share == pytest.approx(rate, abs=4 * (rate * (1 - rate) / x.numel()) ** 0.5)
    assert torch.allclose(dropped[dropped > 0], torch.tensor(1 / (1 - rate)))


def test_masks_of_keys_layers_and_steps_are_independent():
    """Two masks at rate 1/2 agree in half of their places, within four standard deviations."""
    x = torch.ones(300, 200)
    first = masks()
    others = [masks(key=8), first.at(torch.tensor(0)), first.at(torch.tensor(1))]
    seen = [first(x), first(x, layer=1), *(other(x) for other in others)]
    for k, one in enumerate(seen):
        for two in seen[:k]:
            assert float((one == two).float().mean()) == pytest.approx(0.5, abs=2 / x.numel() ** 0.5)
    assert torch.equal(first(x), masks()(x))


def test_places_of_a_mask_are_uncorrelated():
    x = torch.ones(512, 64)
    signs = masks()(x) - 1
    bound = 5 / x.numel() ** 0.5
    for down, right in ((1, 0), (0, 1), (1, 1), (7, 0)):
        assert abs(float((signs[down:, right:] * signs[: 512 - down, : 64 - right]).mean())) < bound


def test_lanes_are_masks_of_their_own_alone_or_under_vmap():
    x = torch.randn(3, 6, 5, generator=torch.Generator().manual_seed(0))
    keys, rates = torch.tensor([4, 5, 6]), torch.tensor([0.1, 0.5, 0.8])
    alone = torch.stack([Dropout(float(r), k)(one, 2) for one, k, r in zip(x, keys, rates)])
    assert torch.equal(Dropout(0.5, keys)(x, 2)[1], alone[1])
    assert torch.equal(torch.vmap(lambda one, k, r: Dropout(r, k)(one, 2))(x, keys, rates), alone)


def test_the_hash_is_one_to_one():
    numbers = mixed(torch.arange(2**16) + 2**31)
    assert len(numbers.unique()) == 2**16
    assert int(numbers.min()) >= 0
    assert int(numbers.max()) < 2**32
