"""``gnn-manifold``: a panel for each graph and each of the first seeds."""

import numpy as np

from hcdc.experiments.reproductions.gnn_manifold import ROWS, GNNManifold


def test_every_seed_has_a_row_and_every_graph_a_column():
    """Agreement differs from seed to seed, so one seed would mislead. Accuracies are means over trainings."""
    found = [
        {
            "label": "gcond",
            "unit": {"dataset": "cora", "size": size, "seed": seed},
            "repeats": {"score": [[0.1, 0.1], [0.4, 0.6], [0.7, 0.7]]},
            "truth": [0.1, seed / 1000, 0.8],
        }
        for size in (28, 112)
        for seed in range(100, 101 + ROWS)
    ]
    panels = GNNManifold().draw(found).axes
    titles = sorted(axes.get_title() for axes in panels)
    shown = [(size, seed) for size in (112, 28) for seed in range(100, 100 + ROWS)]
    assert titles == [f"cora, {size} nodes by GCond, seed {seed}" for size, seed in shown]
    for axes in panels:
        seed = int(axes.get_title()[-3:])
        shown = axes.collections[0].get_offsets()
        np.testing.assert_allclose(shown, [[50.0, seed / 10], [70.0, 80.0]])
        cells = axes.get_subplotspec()
        assert cells.rowspan.start == seed - 100
        assert cells.colspan.start == (", 112 " in axes.get_title())
