"""``trajectories``: how far apart paths begin and end, and a panel for each of the first seeds."""

import numpy as np

from hcdc.experiments.reproductions.trajectories import PANELS, Paths, apart_by


def record(seed, ends):
    paths = np.stack([np.array([[-1.0, 1.0], [1.0, -1.0]]), np.array(ends)])  # two paths onto `ends`
    unit = {"dataset": "cora", "size": 35, "seed": seed}
    return {"label": "random", "unit": unit, "paths": np.swapaxes(paths, 0, 1).tolist()}


def test_distances_of_starts_and_ends():
    assert apart_by(np.array([[0.0, 0.0], [3.0, 4.0]])) == 5.0
    together = record(0, [[0.5, 0.5], [0.5, 0.5]])
    ((*_, starts, ends, _),) = Paths().table([together]).rows
    assert (starts, ends) == ("2.83 (1)", "0.00 (1)")


def test_the_first_seeds_have_panels_of_the_same_square():
    found = [record(seed, [[0.1, 0.2], [0.3, 0.4]]) for seed in range(PANELS + 1)]
    panels = Paths().draw(found).axes
    assert [axes.get_title()[-6:] for axes in panels] == [f"seed {seed}" for seed in range(PANELS)]
    assert {(axes.get_xlim(), axes.get_ylim()) for axes in panels} == {((-1.1, 1.1), (-1.1, 1.1))}
