import numpy as np
import pytest
import torch

from hcdc.core.errors import InputError
from hcdc.spaces import PolynomialFilter
from hcdc.tasks import GraphTask, pixels_as_graph
from hcdc.testing import TaskConformance

SPLIT = ([0, 3], [1], [2, 4])


def images(channels=2):
    rng = np.random.default_rng(0)
    return rng.random((5, 3, 4, channels)), rng.integers(0, 3, (5, 3, 4))


class TestConformance(TaskConformance):
    def make(self):
        x, y = images()
        return GraphTask(pixels_as_graph(x.astype(np.float32), y, SPLIT)), PolynomialFilter(order=1, layers=1)


def neighbour_mean(ink):
    """Mean ink of a pixel and its neighbours above, below, left and right; [N, h, w]."""
    padded = np.pad(ink, ((0, 0), (1, 1), (1, 1)))
    inside = np.pad(np.ones_like(ink), ((0, 0), (1, 1), (1, 1)))
    around = [(slice(1, -1), slice(1, -1)), (slice(2, None), slice(1, -1)), (slice(None, -2), slice(1, -1))]
    around += [(slice(1, -1), slice(2, None)), (slice(1, -1), slice(None, -2))]
    return sum(padded[:, a, b] for a, b in around) / sum(inside[:, a, b] for a, b in around)


def test_every_pixel_is_a_node():
    x, y = images()
    data = pixels_as_graph(x, y, SPLIT)
    assert data.graph.x.shape == (5 * 12, 2)
    assert data.num_classes == 3
    for j, r, c in ((0, 0, 0), (2, 1, 3), (4, 2, 3)):
        node = (j * 3 + r) * 4 + c
        np.testing.assert_array_equal(data.graph.x[node].numpy(), x[j, r, c])
        assert int(data.y[node]) == y[j, r, c]


def test_edges_are_the_four_neighbours_and_stay_in_their_image():
    data = pixels_as_graph(*images(), SPLIT)
    expected = np.zeros((60, 60))
    for j in range(5):
        for r in range(3):
            for c in range(4):
                for dr, dc in ((0, 1), (1, 0), (0, -1), (-1, 0)):
                    if 0 <= r + dr < 3 and 0 <= c + dc < 4:
                        expected[(j * 3 + r) * 4 + c, (j * 3 + r + dr) * 4 + c + dc] = 1
    np.testing.assert_array_equal(data.graph.adj.to_dense().numpy(), expected)
    edges, _ = data.graph.edges()
    assert torch.equal(edges[0] // 12, edges[1] // 12)
    assert data.graph.adj.symmetric


@pytest.mark.parametrize("shape", [(1, 1), (1, 4), (5, 1)])
def test_thin_images(shape):
    x = np.ones((3, *shape, 1))
    data = pixels_as_graph(x, np.zeros((3, *shape), int), ([0], [1], [2]))
    assert data.graph.adj.nnz == 3 * 2 * (shape[0] * shape[1] - 1)


def test_the_split_goes_by_image():
    data = pixels_as_graph(*images(), SPLIT)
    assert data.train.tolist() == [*range(12), *range(36, 48)]
    assert data.val.tolist() == list(range(12, 24))
    assert data.test.tolist() == [*range(24, 36), *range(48, 60)]
    assert data.split == "by image: 2 / 1 / 2"


def test_pixels_without_a_label_are_in_no_split():
    x, y = images()
    y[0, 0, 0] = y[1, 2, 3] = -1
    data = pixels_as_graph(x, y, SPLIT)
    assert 0 not in data.train.tolist()
    assert 23 not in data.val.tolist()
    assert (len(data.train), len(data.val), len(data.test)) == (23, 11, 24)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda x, y: (x[..., 0], y, SPLIT), r"shape \(5, 3, 4\); needed is \[N, h, w, c\]"),
        (lambda x, y: (x, y[:, 0], SPLIT), r"whole numbers of shape \(5, 3, 4\)"),
        (lambda x, y: (x, y + 0.5, SPLIT), "whole numbers"),
        (lambda x, y: (x * np.nan, y, SPLIT), "NaN"),
        (lambda x, y: (x, y, ([0], [0], [1])), "disjoint"),
        (lambda x, y: (x, y, ([0], [1], [5])), "below 5"),
        (lambda x, y: (x, y, ([0], [1])), "three"),
    ],
)
def test_bad_images_are_refused(change, words):
    with pytest.raises(InputError, match=words):
        pixels_as_graph(*change(*images()))


def test_digits_pixel_by_pixel():
    """8 x 8 digits; a pixel's class is whether the mean ink of it and its four neighbours exceeds 5 of 16.

    The label needs the neighbours: on images it was not trained on, a linear model of single pixels (C = I)
    must stay behind one that sees the grid (C = P). The second channel is 1, for a threshold.
    """
    digits = pytest.importorskip("sklearn.datasets").load_digits()
    ink = digits.images[:60] / 16
    labels = (neighbour_mean(ink) > 5 / 16).astype(int)
    images = np.stack([ink, np.ones_like(ink)], -1).astype(np.float32)
    data = pixels_as_graph(images, labels, (range(30), range(30, 45), range(45, 60)))
    assert data.graph.num_nodes == 60 * 64
    assert data.graph.adj.nnz == 60 * 2 * 2 * 7 * 8
    space = PolynomialFilter(order=1, layers=1)
    task = GraphTask(data, weight_decay=0.0).bind(space)
    accuracy = {}
    for name, lam in (("alone", torch.tensor([1.0, 0.0])), ("grid", torch.tensor([0.0, 1.0]))):
        start = task.init(torch.Generator().manual_seed(0))
        params = {key: value.requires_grad_() for key, value in start.items()}
        optimiser = torch.optim.Adam(params.values(), lr=0.05)
        for _ in range(60):
            optimiser.zero_grad()
            task.train_loss(params, lam, task.train).backward()
            optimiser.step()
        accuracy[name] = float(task.score(task.predict(params, lam, task.val), task.val))
    assert accuracy["grid"] > max(0.95, accuracy["alone"] + 0.03), accuracy
