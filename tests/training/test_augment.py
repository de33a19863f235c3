import math

import pytest
import torch
from torch.nn import functional as F

from hcdc.core.errors import InputError
from hcdc.networks import _fused
from hcdc.tasks import draw_flip_crop, flip_crop
from hcdc.training import (
    Augmentation,
    _augment,
    augment,
    augment_back,
    augment_each,
    draw_augmentation,
    draw_each,
    shown,
)
from hcdc.training._augment import OPERATIONS


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def images(*shape, dtype=torch.float64):
    return torch.randn(*shape, generator=generator(9), dtype=dtype)


def identity_with(groups, size, **given):
    fields = vars(Augmentation.identity(groups, size))
    return Augmentation(**{**fields, **{name: torch.tensor(value) for name, value in given.items()}})


def shifted(x, down, right):
    """out[i, j] = x[i + down, j + right], zero outside."""
    height, width = x.shape[-2:]
    out = torch.zeros_like(x)
    for i in range(height):
        for j in range(width):
            if 0 <= i + down < height and 0 <= j + right < width:
                out[..., i, j] = x[..., i + down, j + right]
    return out


def test_the_identity_changes_no_bit():
    for dtype in (torch.float32, torch.bfloat16):
        x = images(2, 3, 3, 6, 5, dtype=torch.float32).to(dtype)
        assert torch.equal(augment(x, Augmentation.identity(2, (6, 5))), x)


def test_flips_and_whole_shifts_are_exact():
    x = images(3, 2, 3, 6, 5, dtype=torch.float32)
    a = identity_with(
        3,
        (6, 5),
        theta=[
            [[-1.0, 0.0, 0.0], [0.0, 1.0, 0.0]],
            [[1.0, 0.0, 2.0], [0.0, 1.0, -1.0]],
            [[1.0, 0.0, -5.0], [0.0, 1.0, 0.0]],
        ],
    )
    out = augment(x, a)
    assert torch.equal(out[0], x[0].flip(-1))
    assert torch.equal(out[1], shifted(x[1], down=-1, right=2))
    assert torch.equal(out[2], torch.zeros_like(x[2]))


@pytest.mark.parametrize(("angle", "across", "down"), [(0.2, 1.0, 1.0), (0.0, 1.2, 0.85)])
def test_rotation_and_scale_equal_the_bilinear_sampler_of_torch(angle, across, down):
    """On square images pixels from the centre are torch's corner-aligned coordinates times (side - 1) / 2."""
    x = images(1, 4, 3, 7, 7)
    theta = [
        [across * math.cos(angle), -math.sin(angle), 0.0],
        [math.sin(angle), down * math.cos(angle), 0.0],
    ]
    out = augment(x, identity_with(1, (7, 7), theta=[theta]))
    grid = F.affine_grid(
        torch.tensor([theta], dtype=torch.float64).expand(4, -1, -1), [4, 3, 7, 7], align_corners=True
    )
    assert torch.allclose(out[0], F.grid_sample(x[0], grid, align_corners=True), atol=1e-5)


def test_colour_is_brightness_then_saturation_then_contrast():
    x = images(2, 3, 3, 4, 4)
    a = identity_with(2, (4, 4), brightness=[0.3, 0.0], saturation=[1.7, 1.0], contrast=[0.6, 1.0])
    bright = x[0] + torch.tensor(0.3).double()
    grey = bright.mean(1, keepdim=True)
    vivid = (bright - grey) * torch.tensor(1.7).double() + grey
    mean = vivid.mean((1, 2, 3), keepdim=True)
    out = augment(x, a)
    assert torch.allclose(out[0], (vivid - mean) * torch.tensor(0.6).double() + mean, atol=1e-6)
    assert torch.equal(out[1], x[1])


def test_first_and_second_derivatives():
    a = draw_augmentation(generator(), 8, (4, 4))
    x = images(8, 1, 2, 4, 4).requires_grad_()
    assert torch.autograd.gradcheck(lambda t: augment(t, a), (x,))
    assert torch.autograd.gradgradcheck(lambda t: augment(t, a).square(), (x,))


def test_the_way_back_is_the_transpose_of_the_linear_part():
    a = draw_augmentation(generator(), 24, (6, 5))
    assert all(bool(has.any()) for has in changed(a)[0].values())
    x, dy = images(24, 2, 3, 6, 5).requires_grad_(), images(24, 2, 3, 6, 5).flip(0)
    (wanted,) = torch.autograd.grad(augment(x, a), x, dy)
    assert torch.allclose(augment_back(dy, a), wanted, atol=1e-12)
    laid_out = dy.permute(0, 1, 3, 4, 2).contiguous().permute(0, 1, 4, 2, 3)  # channels last
    assert torch.allclose(augment_back(laid_out, a), wanted, atol=1e-12)


def test_images_are_shown_in_a_row():
    a, x = draw_augmentation(generator(1), 6, (8, 8)), images(6, 3, 3, 8, 8)
    assert torch.equal(shown(x, a, torch.float64), augment(x, a).flatten(0, 1))
    assert torch.equal(shown(x, a, torch.bfloat16), augment(x, a).flatten(0, 1).bfloat16())


def test_augmentation_compiles_to_one_graph_for_all_numbers_of_images(monkeypatch):
    """With a compiler that only counts; places and weights of the samples are a graph of their own."""
    from torch._dynamo.testing import CompileCounter

    counter = CompileCounter()
    monkeypatch.setattr(
        _fused, "_compiled", lambda f: torch.compile(f, dynamic=False, fullgraph=True, backend=counter)
    )
    monkeypatch.setattr(_augment, "fused", lambda f, *given: _fused._called_compiled(f, given, False))
    a = draw_augmentation(generator(1), 6, (8, 8))
    for n in (7, 4, 9):
        x = images(6, n, 3, 8, 8)
        assert torch.allclose(shown(x, a, torch.float64), augment(x, a).flatten(0, 1))
        assert counter.frame_count == 2


def changed(a):
    """Which of the operations each group has, by what differs from the identity."""
    plain = Augmentation.identity(1, a.mask.shape[2:])
    square, offset = a.theta[:, :, :2], a.theta[:, :, 2]
    return {
        "colour": a.saturation != 1,
        "crop": (offset != 0).any(1),
        "cutout": (a.mask == 0).flatten(1).any(1),
        "flip": square[:, 0, 0] == -1,
        "scale": (square[:, 1, 1] != 1) & (square[:, 0, 1] == 0),
        "rotate": square[:, 0, 1] != 0,
    }, plain


def test_a_group_has_one_operation_and_all_come_equally_often():
    a = draw_augmentation(generator(), 6000, (32, 32))
    found, _ = changed(a)
    assert int(torch.stack(list(found.values())).sum(0).max()) == 1
    for name, has in found.items():
        share = 0.5 if name == "flip" else 1.0  # half of the flips do nothing
        assert float(has.double().mean()) == pytest.approx(share / 6, abs=0.02), name


@pytest.mark.parametrize("name", OPERATIONS)
def test_parameters_fill_the_published_ranges(name):
    a = draw_augmentation(generator(), 4000, (32, 32), name)
    found, plain = changed(a)
    assert not any(bool(has.any()) for other, has in found.items() if other != name)
    if name == "colour":
        for values, low, high in ((a.brightness, -0.5, 0.5), (a.saturation, 0, 2), (a.contrast, 0.5, 1.5)):
            assert float(values.min()) == pytest.approx(low, abs=0.01)
            assert float(values.max()) == pytest.approx(high, abs=0.01)
            assert low <= float(values.min()) <= float(values.max()) <= high
        assert torch.equal(a.theta, plain.theta.expand(4000, -1, -1))
    elif name == "crop":
        for axis in (0, 1):
            assert a.theta[:, axis, 2].unique().tolist() == list(range(-4, 5))
    elif name == "cutout":
        blanked = (a.mask == 0).double().sum((1, 2, 3))
        assert blanked.max() == 16 * 16  # in the middle; at the corner a quarter is left
        assert blanked.min() == 8 * 8
        assert set(a.mask.unique().tolist()) == {0.0, 1.0}
        assert bool((a.mask == 0).any(0).all())
    elif name == "flip":
        assert float(found["flip"].double().mean()) == pytest.approx(0.5, abs=0.03)
    elif name == "scale":
        sides = a.theta[:, [0, 1], [0, 1]]
        assert float(sides.min()) == pytest.approx(1 / 1.2, abs=2e-3)
        assert float(sides.max()) == pytest.approx(1.2, abs=2e-3)
        assert abs(float(torch.corrcoef(sides.t())[0, 1])) < 0.05  # each axis its own
    else:
        angle = torch.rad2deg(torch.atan2(a.theta[:, 1, 0], a.theta[:, 0, 0]))
        assert float(angle.abs().max()) == pytest.approx(15, abs=0.1)
        assert torch.allclose(torch.linalg.det(a.theta[:, :, :2]), torch.ones(4000))


def test_cutout_equals_the_plain_form_at_an_odd_side():
    """A square of round(side / 2) pixels around any centre inside the image, cut at the border."""
    a = draw_augmentation(generator(), 500, (5, 5), "cutout")
    length = 3
    allowed = set()
    for offset in range(5):
        rows = {min(max(k + offset - length // 2, 0), 4) for k in range(length)}
        allowed.add(tuple(float(k in rows) for k in range(5)))
    blank = 1 - a.mask[:, 0]
    assert {tuple(row) for row in blank.amax(2).tolist()} == allowed
    assert {tuple(row) for row in blank.amax(1).tolist()} == allowed


def test_groups_do_not_mix_and_images_of_a_group_are_changed_alike():
    a = draw_augmentation(generator(3), 6, (8, 8))
    x = images(6, 4, 3, 8, 8)
    whole = augment(x, a)
    for g in range(6):
        assert torch.allclose(augment(x[g : g + 1, 2:3], a[g : g + 1]), whole[g : g + 1, 2:3])


def test_draw_each_has_one_operation_a_batch_and_parameters_an_image():
    a = draw_each(generator(1), 16, (32, 32), "colour_rotate", batches=12)
    assert len(a) == 12 * 16
    colour = (a.saturation != 1).view(12, 16)
    assert torch.equal(colour.all(1), colour.any(1))
    assert {bool(v) for v in colour[:, 0]} == {True, False}
    assert len(a.saturation[a.saturation != 1].unique()) == int(colour.sum())
    x = images(192, 3, 32, 32)
    out = augment_each(x, a)
    assert out.shape == x.shape
    assert torch.equal(out[5], augment(x[None, 5:6], a[5:6])[0, 0])


def test_a_buffer_takes_values_in_place():
    buffer = Augmentation.identity(4, (6, 6))
    addresses = [t.data_ptr() for t in buffer.tensors()]
    drawn = draw_augmentation(generator(2), 8, (6, 6))
    buffer.copy_from(drawn[4:])
    assert [t.data_ptr() for t in buffer.tensors()] == addresses
    assert all(torch.equal(own, new[4:]) for own, new in zip(buffer.tensors(), drawn.tensors()))
    assert len(buffer) == 4


def test_equal_generators_draw_the_same():
    one, two = (draw_augmentation(generator(5), 10, (8, 8)).tensors() for _ in range(2))
    assert all(torch.equal(a, b) for a, b in zip(one, two))


def test_refuses_an_unknown_operation():
    with pytest.raises(
        InputError, match="operation of an augmentation 'colr' is not known; did you mean 'colour'"
    ):
        draw_augmentation(generator(), 1, (8, 8), "flip_colr")


def test_flip_crop_equals_a_padded_crop_and_a_mirror():
    x = images(12, 3, 7, 6)
    flip, shift = draw_flip_crop(generator(), 12, pad=2)
    out = flip_crop(x, flip, shift)
    padded = F.pad(x, (2, 2, 2, 2))
    for k in range(12):
        down, right = (shift[k] + 2).tolist()
        crop = padded[k, :, down : down + 7, right : right + 6]
        assert torch.equal(out[k], crop.flip(-1) if flip[k] else crop)
    x = x.requires_grad_()
    assert torch.autograd.gradcheck(lambda t: flip_crop(t, flip, shift), (x,))


def test_flip_crop_of_bytes():
    x = torch.randint(1, 256, (4, 1, 5, 5), generator=generator(), dtype=torch.uint8)
    out = flip_crop(
        x, torch.tensor([False, True, False, True]), torch.tensor([[0, 0], [0, 0], [1, 0], [0, -1]])
    )
    assert out.dtype == torch.uint8
    assert torch.equal(out[0], x[0])
    assert torch.equal(out[1], x[1].flip(-1))
    assert torch.equal(out[2, :, :4], x[2, :, 1:])
    assert not out[2, :, 4].any()


def test_flip_crop_draws_fill_their_range():
    flip, shift = draw_flip_crop(generator(), 3000)
    assert float(flip.double().mean()) == pytest.approx(0.5, abs=0.03)
    assert shift[:, 0].unique().tolist() == shift[:, 1].unique().tolist() == list(range(-4, 5))
    still, equal = draw_flip_crop(generator(), 3000, mirror=False)
    assert not still.any()
    assert torch.equal(equal, shift)
