import numpy as np
import pytest
import torch
from synthetic_evaluation import image_copy

from hcdc import InputError
from hcdc.datasets import CondensedDataset, Graph, Images, Nodes

pytest.importorskip("matplotlib")

from hcdc.reporting import draw_images, image_grid
from hcdc.reporting._images import facts


def title(figure):
    return figure.get_suptitle().replace("\n", " ")


def rows(axes):
    return [label.get_text() for label in axes.get_yticklabels()]


def pictures(axes, line, place, small, below=0):
    """The image at a place of the grid, as it is shown."""
    height, width = small.train.x.shape[2:]
    top, left = 1 + line * (height + 1 + below), 1 + place * (width + 1)
    return np.asarray(axes.images[0].get_array())[top : top + height, left : left + width]


def with_pixels(small, x):
    return CondensedDataset(small.train, Images(x, small.val.y, small.val.weight), small.meta)


@pytest.mark.parametrize("channels", [1, 3])
def test_one_row_a_class_with_the_original_pixels(channels):
    small, start = image_copy(channels=channels)
    small = with_pixels(small, start.x)
    axes = draw_images(small).axes[0]
    assert rows(axes) == ["ring", "bar", "dot"]
    mean, std = (torch.tensor(small.meta["data"][key]).view(-1, 1, 1) for key in ("mean", "std"))
    wanted = (start.x[4] * std + mean).permute(1, 2, 0).expand(-1, -1, 3)
    found = pictures(axes, 1, 1, small)
    np.testing.assert_allclose(found[..., :3], wanted, atol=1e-6)
    assert (found[..., 3] == 1).all()


def test_images_stand_at_their_rows():
    small, _ = image_copy()
    axes = draw_images(small).axes[0]
    filled = np.asarray(axes.images[0].get_array())[..., 3].max(1) == 1
    for place in axes.get_yticks():  # the middle of four lines of pixels
        low, high = int(place - 1.5), int(place + 1.5)
        np.testing.assert_array_equal(filled[low - 1 : high + 2], [False, True, True, True, True, False])


def test_pixels_are_clipped_for_display_and_that_is_said():
    small, start = image_copy()
    wild = start.x.clone()
    wild[0, 0, 0, :2] = torch.tensor([100.0, -100.0])  # 2 of 180 values
    figure = draw_images(with_pixels(small, wild))
    shown = pictures(figure.axes[0], 0, 0, small)
    np.testing.assert_array_equal(shown[0, :2, 0], [1, 0])
    assert "1.1 % of pixel values lie outside 0 .. 1" in title(figure)
    assert "clipped" not in title(draw_images(with_pixels(small, start.x)))


def test_pixels_of_another_range_are_shown_around_their_mean():
    small, start = image_copy()
    meta = {**small.meta, "data": {**small.meta["data"], "mean": [7.0], "std": [2.0]}}
    x = torch.full_like(start.x, 0.5)
    figure = draw_images(CondensedDataset(small.train, Images(x, start.y), meta))
    np.testing.assert_allclose(pictures(figure.axes[0], 0, 0, small)[..., 0], (0.5 + 2.5) / 5)
    assert "mean +- 2.5 standard deviations" in title(figure)


@pytest.mark.parametrize("as_copy", [False, True])
def test_before_stands_beside_after_with_the_change(as_copy):
    small, start = image_copy()
    before = with_pixels(small, start.x) if as_copy else start
    figure = draw_images(small, before)
    first, second = figure.axes
    assert [axes.get_title() for axes in figure.axes] == ["before", "after"]
    assert first.get_subplotspec().rowspan == second.get_subplotspec().rowspan
    assert "mean absolute change per pixel: 0.25 standard deviations" in title(figure)
    assert pictures(first, 2, 0, small)[0, 0, 0] < pictures(second, 2, 0, small)[0, 0, 0]


def test_long_rows_have_before_above_after_with_names_for_both():
    small, start = image_copy(per_class=11)
    first, second = draw_images(small, start).axes
    assert first.get_subplotspec().colspan == second.get_subplotspec().colspan
    assert rows(first) == rows(second) == ["ring", "bar", "dot"]


def test_images_that_did_not_change_are_shown_once():
    small, _ = image_copy()
    figure = draw_images(small, small)
    assert len(figure.axes) == 1
    assert "pixels are unchanged" in title(figure)


def test_weighted_images_are_sorted_and_say_their_weight():
    weight = torch.tensor([1.0, 0.0, 5.0, 1.0, 1.0, 1.0, 2.0, 3.0, 4.0])  # the mean is 2
    small, start = image_copy(weight=weight)
    figure = draw_images(small, start)
    before, after = figure.axes
    texts = [text.get_text() for text in after.texts]
    assert texts == ["2.50", "0.50", "0.00", "0.50", "0.50", "0.50", "2.00", "1.50", "1.00"]
    assert not before.texts  # where there were none
    assert "1 of 9 images have weight 0" in title(figure)
    mean, std = small.meta["data"]["mean"][0], small.meta["data"]["std"][0]
    for place, k in enumerate((8, 7, 6)):
        found = pictures(before, 2, place, small, below=2)[..., 0]
        np.testing.assert_allclose(found, (start.x[k, 0] * std + mean), atol=1e-6)


def test_what_is_left_out_is_said():
    small, _ = image_copy(per_class=5)
    figure = draw_images(small, per_class=2)
    assert "shown: 2 of up to 5 images per class" in title(figure)
    assert np.asarray(figure.axes[0].images[0].get_array()).shape[1] == 1 + 2 * 6


def test_of_many_classes_some_are_shown():
    x, y = torch.zeros(50, 1, 4, 5), torch.arange(50)
    data = {"name": "many", "num_classes": 50, "mean": [0.5], "std": [0.2]}
    small = CondensedDataset(Images(x, y), Images(x, y), {"data": data, "method": "random"})
    figure = draw_images(small)
    assert "20 of 50 classes" in title(figure)
    assert (len(rows(figure.axes[0])), rows(figure.axes[0])[0], rows(figure.axes[0])[-1]) == (
        20,
        "class 0",
        "class 49",
    )


def test_class_names_are_no_formulas(tmp_path):
    small, _ = image_copy()
    meta = {**small.meta, "data": {**small.meta["data"], "class_names": [r"$\frac$", "$", "a" * 50]}}
    small = CondensedDataset(small.train, small.val, meta)
    assert rows(draw_images(small).axes[0])[2] == "a" * 17 + "..."
    assert image_grid(small, path=tmp_path / "a.svg").read_text().count("<svg") == 1


def test_the_heading_names_who_made_the_images():
    same, _ = image_copy(method="dm", train_method="dm", val_method="same")
    assert draw_images(same).get_suptitle().startswith("shapes: S_val, 9 images made by 'dm'")
    train = draw_images(image_copy()[0], part="train").get_suptitle()
    assert train.startswith("shapes: S_train, 9 images made by 'random'")


def test_the_file_is_written_and_equal_for_equal_images(tmp_path):
    small, start = image_copy()
    first, second = (image_grid(small, start, path=tmp_path / f"{k}.png") for k in "ab")
    assert first.read_bytes() == second.read_bytes()
    with pytest.raises(InputError, match="'gif' is not known"):
        image_grid(small, path=tmp_path / "a.gif")


def test_what_cannot_be_shown_is_refused_in_a_sentence():
    small, start = image_copy()
    nodes = Nodes(Graph(torch.zeros(3, 2), None), torch.arange(3))
    cases = [
        ((CondensedDataset(nodes, nodes, {"method": "random"}),), "kind 'graph', not 'image'"),
        ((image_copy(val=False)[0],), "no validation images"),
        ((small, Images(start.x[:3], start.y[:3])), "before has pixels"),
        ((small, Images((start.x * 0).to(torch.uint8), start.y)), "of type uint8"),
        ((small, Images(start.x, start.y.flip(0))), "different labels"),
        ((small, None, "test"), "part 'test' is not known"),
        ((small, None, "val", 0), "per_class 0"),
        ((image_copy(data={"name": "shapes"})[0],), "normalisation cannot be undone"),
    ]
    for arguments, said in cases:
        with pytest.raises(InputError, match=said):
            draw_images(*arguments)


def test_classes_without_an_image_are_named():
    small, _ = image_copy()
    kept = small.val.y != 1
    few = CondensedDataset(small.train, Images(small.val.x[kept], small.val.y[kept]), small.meta)
    assert "no images of bar" in facts(few)
    assert not any("no image" in told for told in (*facts(small), *facts(few, part="train")))
