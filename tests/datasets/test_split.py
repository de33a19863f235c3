"""Seeded and given splits."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hcdc.core.errors import InputError
from hcdc.datasets._split import as_parts, chosen, seeded_nodes, seeded_rows


def labels(counts, unlabelled=0):
    y = np.concatenate([np.repeat(np.arange(len(counts)), counts), np.full(unlabelled, -1)])
    return np.random.default_rng(0).permutation(y)


def test_twenty_a_class_and_five_hundred():
    y = labels([400, 300, 700], unlabelled=9)
    (train, val, test), words = seeded_nodes(y, seed=4)
    assert np.bincount(y[train]).tolist() == [20, 20, 20]
    assert len(val) == 500
    assert len(test) == 1400 - 560
    # in proportion to what training left: 380, 280, 680 of 1340
    assert np.bincount(y[val]).tolist() == [142, 104, 254]
    assert "60 / 500 / 840" in words
    assert "seed 4" in words


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(3, 90), min_size=2, max_size=8), st.integers(0, 20), st.integers(0, 5))
def test_parts_are_a_partition_of_labelled_nodes_with_every_class(counts, unlabelled, seed):
    y = labels(counts, unlabelled)
    parts, _ = seeded_nodes(y, seed)
    together = np.concatenate(parts)
    assert sorted(together) == np.flatnonzero(y >= 0).tolist()
    for part in parts:
        assert set(y[part]) == set(range(len(counts)))
    again, _ = seeded_nodes(y, seed)
    assert all(np.array_equal(a, b) for a, b in zip(parts, again))


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(3, 60), min_size=2, max_size=6), st.integers(0, 5))
def test_rows_are_split_class_by_class(counts, seed):
    y = labels(counts)
    parts, _ = seeded_rows(y, tuple(map(str, range(len(counts)))), seed)
    assert sorted(np.concatenate(parts)) == list(range(len(y)))
    for c, count in enumerate(counts):
        sizes = [int((y[part] == c).sum()) for part in parts]
        assert min(sizes) >= 1
        assert abs(sizes[0] - 0.6 * count) <= 1
        assert abs(sizes[1] - 0.2 * count) <= 1


def test_seeds_differ():
    y = labels([100, 100])
    assert not np.array_equal(seeded_nodes(y, 0)[0][0], seeded_nodes(y, 1)[0][0])


def test_regression_rows():
    parts, words = seeded_rows(np.linspace(0, 1, 50), None, 0)
    assert [len(part) for part in parts] == [30, 10, 10]
    assert "random" in words


def test_masks_and_indices_are_the_same():
    mask = np.array([True, False, True, False, False, False])
    parts = as_parts((mask, [1], np.array([5, 3])), 6)
    assert [part.tolist() for part in parts] == [[0, 2], [1], [3, 5]]


@pytest.mark.parametrize(
    ("split", "message"),
    [
        ("public", "split 'public' is not known"),
        (([0], [1]), "three index arrays"),
        (5, "three index arrays"),
        (([0], [0], [1]), "in both train and val"),
        (([0], [1], []), "test part of the split is empty"),
        (([0], [1], [9]), "names example 9; there are examples 0 .. 5"),
        (([-2], [1], [3]), "names example -2"),
        (([0.5], [1], [3]), "integers or a mask"),
        (([[0]], [1], [3]), "one dimension"),
        ((np.ones(4, bool), [1], [3]), "4 entries for 6"),
    ],
)
def test_bad_splits_are_refused(split, message):
    with pytest.raises(InputError, match=message):
        chosen(split, 6)


def test_too_few_examples_are_refused():
    with pytest.raises(InputError, match="class 1 has 2 labelled nodes"):
        seeded_nodes(labels([30, 2]), 0)
    with pytest.raises(InputError, match="class b has 1 rows"):
        seeded_rows(labels([30, 1]), ("a", "b"), 0)
    with pytest.raises(InputError, match="at least 5"):
        seeded_rows(np.zeros(4), None, 0)
