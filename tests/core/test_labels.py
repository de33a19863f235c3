from itertools import pairwise

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from hcdc.core.errors import InputError
from hcdc.core.labels import allocate_labels, draw_members, members

counts_and_size = st.lists(st.integers(1, 60), min_size=1, max_size=12).flatmap(
    lambda counts: st.tuples(st.just(counts), st.integers(len(counts), sum(counts)))
)


def labels_of(counts):
    return torch.repeat_interleave(torch.arange(len(counts)), torch.tensor(counts))


def allocated(counts, size, **options):
    return (
        allocate_labels(labels_of(counts), size, len(counts), **options)
        .bincount(minlength=len(counts))
        .tolist()
    )


@given(counts_and_size, st.booleans())
def test_sizes(case, balanced):
    counts, size = case
    labels = allocate_labels(labels_of(counts), size, len(counts), balanced=balanced)
    assert labels.dtype == torch.int64
    assert len(labels) == size
    assert bool((labels.diff() >= 0).all())
    given_counts = labels.bincount(minlength=len(counts)).tolist()
    assert min(given_counts) >= 1
    assert all(mine <= there for mine, there in zip(given_counts, counts))


@given(counts_and_size)
def test_proportions(case):
    """Every class gets its share to within one, less what the floor of one a class takes from it."""
    counts, size = case
    share = [count / sum(counts) * size for count in counts]
    lifted = sum(max(0.0, 1 - s) for s in share)
    for mine, s in zip(allocated(counts, size), share):
        assert mine < max(1, s) + 1
        assert mine > s - 1 - lifted


@given(counts_and_size)
def test_a_larger_class_never_gets_less(case):
    counts, size = case
    by_class = sorted(zip(counts, allocated(counts, size)))
    for (few, mine), (more, yours) in pairwise(by_class):
        assert few == more or mine <= yours


@given(counts_and_size)
def test_balanced_counts_differ_only_where_labels_run_out(case):
    counts, size = case
    mine = allocated(counts, size, balanced=True)
    most = max(mine)
    assert all(have >= most - 1 or have == there for have, there in zip(mine, counts))


@given(counts_and_size, st.randoms(use_true_random=False))
def test_the_order_of_the_labels_does_not_matter(case, random):
    counts, size = case
    shuffled = labels_of(counts).tolist()
    random.shuffle(shuffled)
    assert torch.equal(
        allocate_labels(torch.tensor(shuffled), size, len(counts)),
        allocate_labels(labels_of(counts), size, len(counts)),
    )


def test_worked_examples():
    assert allocated([20] * 7, 35) == [5] * 7
    assert allocated([50, 30, 20], 10) == [5, 3, 2]
    assert allocated([98, 1, 1], 5) == [3, 1, 1]
    assert allocated([98, 1, 1], 6, balanced=True) == [4, 1, 1]
    assert allocated([3, 1, 2], 6) == [3, 1, 2]


@pytest.mark.parametrize(
    ("counts", "size", "sentence"),
    [
        ([5, 5, 5], 2, "val_size 2: there are 3 classes, so at least 3 are needed; try 15"),
        ([2, 2, 1], 2, "val_size 2: there are 3 classes, so at least 3 are needed; try 5"),
        ([5, 5, 5], 16, "val_size 16: there are only 15 labelled examples to condense; choose at most that"),
        (
            [5, 0, 5],
            4,
            "class 1 has no labelled example to condense in the val part; every class needs at least one",
        ),
    ],
)
def test_refusals(counts, size, sentence):
    with pytest.raises(InputError) as caught:
        allocate_labels(labels_of(counts), size, len(counts), "val_size")
    assert str(caught.value) == sentence


def test_members_are_drawn_class_by_class_without_repeats():
    y = torch.tensor([2, 0, 1, 0, 2, 2, 0])
    pools = members(y, 3)
    assert [pool.tolist() for pool in pools] == [[1, 3, 6], [2], [0, 4, 5]]
    drawn = draw_members(pools, [2, 5, 1], torch.Generator().manual_seed(0))
    assert [len(of) for of in drawn] == [2, 1, 1]
    assert all(set(of.tolist()) <= set(pool.tolist()) for of, pool in zip(drawn, pools))
    again = torch.Generator().manual_seed(0)
    by_hand = [
        pool[torch.randperm(len(pool), generator=again)[:count]] for pool, count in zip(pools, [2, 5, 1])
    ]
    assert all(torch.equal(one, two) for one, two in zip(drawn, by_hand))
