"""Surrogate benchmarks: inputs in the right order, scores that behave, refusals that say what is wrong."""

import os
from pathlib import Path

import numpy as np
import pytest

from hcdc.core.errors import InputError
from hcdc.truth import Surrogate

FOLDER = Path(os.environ.get("HCDC_DATA", "")) / "surrogates"
data = [
    pytest.mark.data,
    pytest.mark.skipif("HCDC_DATA" not in os.environ or not FOLDER.is_dir(), reason="no surrogates"),
]


@pytest.fixture(scope="module", params=["lcbench", "rbv2_xgboost"])
def surrogate(request):
    pytest.importorskip("onnxruntime")
    return Surrogate(FOLDER / request.param)


def test_a_folder_that_is_no_benchmark_is_refused(tmp_path):
    with pytest.raises(InputError, match="lcbench"):
        Surrogate(tmp_path / "lcbanch")
    (tmp_path / "lcbench").mkdir()
    with pytest.raises(InputError, match="no file config_space"):
        Surrogate(tmp_path / "lcbench")


class TestRead:
    pytestmark = data

    def test_tables_and_space(self, surrogate):
        networks = len(surrogate.tables) == 34
        assert networks or len(surrogate.tables) == 119
        names = {d.name for d in surrogate.space.dimensions()}
        assert len(names) == (7 if networks else 14)
        assert not names & {"epoch", "trainsize", "repl", "task_id", "OpenML_task_id"}

    def test_batches_agree_with_single_scores(self, surrogate):
        configs = surrogate.space.sample(20, np.random.default_rng(0))
        together = surrogate.score(surrogate.tables[3], configs)
        alone = [surrogate.score(surrogate.tables[3], [config])[0] for config in configs]
        np.testing.assert_allclose(together, alone, atol=1e-5)
        assert together.min() >= 0
        assert together.max() <= 1
        assert together.std() > 0.01

    def test_longer_trainings_agree_better(self, surrogate):
        from hcdc.core.ranks import spearman

        configs = surrogate.space.sample(200, np.random.default_rng(1))
        shares = (3, 25) if surrogate.full == 52 else (0.05, 0.5)
        found = [
            [spearman(surrogate.score(t, configs), surrogate.score(t, configs, share)) for share in shares]
            for t in surrogate.tables[:12]
        ]
        low, high = np.mean(found, 0)
        assert 0.4 < low < high - 0.1

    def test_whole_numbers_are_rounded_and_switched_off_ones_ignored(self, surrogate):
        config = surrogate.space.sample(1, np.random.default_rng(2))[0]
        table = surrogate.tables[0]
        if surrogate.full == 52:
            pairs = [({"num_layers": 2.6}, {"num_layers": 3.0})]
        else:
            pairs = [
                ({"booster": "gblinear", "eta": 0.01}, {"booster": "gblinear", "eta": 0.9}),
                ({"booster": "gbtree", "rate_drop": 0.1}, {"booster": "gbtree", "rate_drop": 0.8}),
            ]
            lively = [{**config, "booster": "dart", "eta": e} for e in (0.01, 0.9)]
            assert np.ptp(surrogate.score(table, lively)) > 1e-4
        for one, other in pairs:
            scores = surrogate.score(table, [{**config, **one}, {**config, **other}])
            assert scores[0] == scores[1]

    def test_prices(self, surrogate):
        configs = surrogate.space.sample(5, np.random.default_rng(3))
        assert surrogate.share(surrogate.full) == 1
        assert surrogate.share(surrogate.full / 4) == 0.25
        assert (surrogate.seconds(surrogate.tables[0], configs) > 0).all()

    def test_wrong_names_and_lengths_are_refused(self, surrogate):
        configs = surrogate.space.sample(1, np.random.default_rng(0))
        with pytest.raises(InputError, match="table"):
            surrogate.score("1", configs)
        with pytest.raises(InputError, match="outside"):
            surrogate.score(surrogate.tables[0], configs, 100)
