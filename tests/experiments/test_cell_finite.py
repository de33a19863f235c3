"""Protocol cells-finite: stars, differences up to one scale, and a whole small run."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from small_cifar import write_images, write_table

from hcdc.datasets import data
from hcdc.experiments import cell_finite, cell_tables
from hcdc.experiments.cell_finite import Sizes, agreement, differences, draw_cells, finite, followed
from hcdc.spaces import NASBench201
from hcdc.tasks import ImageTask
from hcdc.truth import NASBench201Table, TableTruth

SMALL = Sizes(
    stars=2, watching=2, near=2, judges=5, initialisations=2, steps=3, lr=0.05, train=10, val=10, pool=20
)


def test_stars_are_neighbours_and_no_cell_comes_twice():
    space = NASBench201()
    judges, stars = draw_cells(space, Sizes(), 3)
    cells = [c["cell"] for c in (*judges, *stars)]
    assert len(set(cells)) == len(cells) == 60 + 8 * 4
    for k in range(0, len(stars), 4):
        near = [c["cell"] for c in space.neighbours(stars[k])]
        assert all(c["cell"] in near for c in stars[k + 1 : k + 4])


def test_differences_are_taken_from_the_centre():
    found = differences(torch.tensor([1.0, 3.0, 2.0, 10.0, 9.0, 14.0]), 2)
    assert found.tolist() == [[2, 1], [-1, 4]]


def test_losses_that_fall_with_accuracy_are_aligned_whatever_their_scale_and_levels():
    short = torch.rand(12, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    distance = finite(short, 2)
    level = torch.arange(4, dtype=torch.float64).repeat_interleave(3)  # each star may have a level of its own
    assert float(distance(5 - 7 * short + level)) == pytest.approx(0, abs=1e-12)
    assert float(distance(7 * short)) == 1  # the wrong order has no scale
    scale = torch.tensor([1.0, 1, 1, 9, 9, 9, 1, 1, 1, 9, 9, 9], dtype=torch.float64)
    assert float(distance(-scale * short)) > 0.05  # one scale for all stars
    assert float(followed(short)(5 - 7 * short)) < float(followed(short)(5 - 7 * short + level))


def test_agreement_of_initialisations_and_with_the_truth():
    full = torch.linspace(0, 1, 9) ** 2
    short = torch.flip(full, (0,))
    found = agreement(torch.stack([-full, -2 * full], 1), short, full, 2)
    assert found["self"] == found["full"] == pytest.approx(1)
    assert found["short"] == pytest.approx(agreement(-short[:, None], full, short, 2)["short"])
    assert np.isnan(agreement(-full[:, None], short, full, 2)["self"])


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    folder = tmp_path_factory.mktemp("finite")
    task = ImageTask(data(str(write_images(folder / "images.npz"))))
    truth = TableTruth(NASBench201Table(write_table(folder / "table.csv")), "cifar10")
    return task, cell_finite.run(task, truth, SMALL, 0)


def test_a_run_ranks_judges_by_every_set_and_rival(found):
    ranked = found[1]["ranked"]
    assert {*ranked} == {
        "start", "pool", "finite", "values", "parameters", "ridge", "ridge + start", "ridge + pool",
    }  # fmt: skip
    assert all(-1 <= ranked[name][part] <= 1 for name in ranked for part in ("val", "test"))
    assert all(len(scores) == SMALL.judges for scores in found[1]["scores"].values())
    assert {*found[1]["agreement"]["finite"]} == {"learning", "watching"}


def test_learning_lowers_the_distance(found):
    """Networks that are simple functions, so that the gradient through them matters and nothing else."""
    task = found[0]
    start = task.sample("val", 10, 0, balanced=True)
    at = task.tensors(start)["x"].detach().clone()
    networks = [lambda images, k=k: images.x.flatten(1)[None, :, 10 * k : 10 * k + 10] for k in range(6)]
    objective = finite(torch.tensor([0.9, 0.5, 0.7, 0.3, 0.6, 0.4]), 2)

    def reached(images):
        return float(objective(cell_finite.losses_on(task, networks, images).mean(1)))

    assert reached(cell_finite.learn(task, networks, start, objective, SMALL)) < reached(start) - 0.01
    assert torch.equal(task.tensors(start)["x"], at)


def test_the_table_compares_the_aligned_set_with_each_rival(found):
    made = {**found[1], "scores": {**found[1]["scores"], "start": found[1]["scores"]["finite"]}}
    made["ranked"] = {**made["ranked"], "start": made["ranked"]["finite"]}
    text = cell_tables.finite_table([made, made], small=True)
    rows = {line.split(" | ")[0]: line for line in text.splitlines()}
    assert len(rows) == 2 + len(cell_tables.FINITE)
    assert rows["| the images both start from"].endswith("| +0.00 [+0.00, +0.00] |")
    assert f"| {made['ranked']['ridge']['val']:.2f} |" in rows["| ridge on the same short trainings, no copy"]
