"""Reducers of images: what they must do beside what `hcdc.testing.ReducerConformance` asks of all."""

import pytest
import torch
from tiny_images import tiny_image_task

from hcdc.core.checkpoint import Checkpoint
from hcdc.core.errors import InputError
from hcdc.testing import RecordingProgress, ReducerConformance


class ImageReducerConformance(ReducerConformance):
    stores = False
    """Whether its first phase stores the state on its way."""

    def task(self):
        return tiny_image_task()

    def test_is_floating_point_without_weights(self):
        small = self.reduce()
        assert small.x.shape == (8, 3, 8, 8)
        assert small.x.dtype == torch.float32
        assert small.weight is None

    def test_grey_floating_point_images(self):
        assert self.reduce(tiny_image_task(channels=1, floating=True)).x.shape == (8, 1, 8, 8)

    @pytest.mark.usefixtures("save_always")
    def test_a_run_continues_where_it_was_interrupted(self, tmp_path):
        checkpoint = Checkpoint(tmp_path / "state", "key")
        with pytest.raises(KeyboardInterrupt):
            self.reduce(progress=RecordingProgress(stop_in=1), checkpoint=checkpoint)
        assert checkpoint.path.exists() == self.stores
        continued = RecordingProgress()
        self.reduce(progress=continued, checkpoint=checkpoint)
        steps = [done for _, done, _ in continued.steps]
        assert steps[-1] == continued.steps[-1][2]
        assert not self.stores or steps[0] > steps[-1] // 2
        again = RecordingProgress()
        self.reduce(progress=again, checkpoint=checkpoint)
        assert not again.steps

    def test_classes_that_are_too_small_are_named(self):
        with pytest.raises(InputError, match=r"train_size 30.*class 1 \('b'\) has only 9"):
            self.reduce(size=30)
