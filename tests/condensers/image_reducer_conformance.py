"""What every reducer of images must do: inherit `ImageReducerConformance` and give `make`, quick."""

import json

import pytest
import torch
from reducer_conformance import RecordingProgress, reduce
from tiny_images import tiny_image_task

from hcdc.condensers import REDUCERS
from hcdc.core.checkpoint import Checkpoint
from hcdc.core.errors import InputError


def image_bytes(images):
    return images.x.contiguous().numpy().tobytes() + images.y.numpy().tobytes()


class ImageReducerConformance:
    stores = False
    """Whether its first phase stores the state on its way."""

    def make(self):
        raise AssertionError("give a reducer")

    def reduce(self, task=None, **options):
        return reduce(self.make(), task or tiny_image_task(), **options)

    @pytest.mark.parametrize(("part", "size"), [("train", 3), ("train", 8), ("train", 12), ("val", 7)])
    def test_sizes_and_labels(self, part, size):
        task = tiny_image_task()
        small = self.reduce(task, part=part, size=size)
        assert small.x.shape == (size, 3, 8, 8)
        assert torch.equal(small.y, task.labels(part, size))
        assert small.x.dtype == torch.float32
        assert bool(small.x.isfinite().all())
        assert not small.x.requires_grad
        assert small.weight is None

    def test_grey_floating_point_images(self):
        assert self.reduce(tiny_image_task(channels=1, floating=True)).x.shape == (8, 1, 8, 8)

    def test_same_seed_same_bytes(self):
        assert image_bytes(self.reduce(seed=3)) == image_bytes(self.reduce(seed=3))

    def test_other_seed_or_part_other_bytes(self):
        assert len({image_bytes(self.reduce(seed=seed)) for seed in range(3)}) > 1
        assert image_bytes(self.reduce(part="val")) != image_bytes(self.reduce())

    def test_the_original_is_not_changed(self):
        task = tiny_image_task(floating=True)
        before = task.data.fingerprint()
        self.reduce(task)
        assert task.data.fingerprint() == before

    def test_an_interrupted_run_continues_to_the_same_bytes(self, tmp_path, monkeypatch):
        whole = self.reduce()
        monkeypatch.setattr("hcdc.core.checkpoint.SAVE_SECONDS", 0.0)
        checkpoint = Checkpoint(tmp_path / "state", "key")
        with pytest.raises(KeyboardInterrupt):
            self.reduce(progress=RecordingProgress(stop_in=1), checkpoint=checkpoint)
        assert checkpoint.path.exists() == self.stores
        continued = RecordingProgress()
        assert image_bytes(self.reduce(progress=continued, checkpoint=checkpoint)) == image_bytes(whole)
        steps = [done for _, done, _ in continued.steps]
        assert steps[-1] == continued.steps[-1][2]
        assert not self.stores or steps[0] > steps[-1] // 2

    def test_a_finished_run_is_read_back(self, tmp_path):
        checkpoint = Checkpoint(tmp_path / "state", "key")
        first = self.reduce(checkpoint=checkpoint)
        again = RecordingProgress()
        assert image_bytes(self.reduce(progress=again, checkpoint=checkpoint)) == image_bytes(first)
        assert not again.steps

    @pytest.mark.parametrize(
        ("part", "size", "found"),
        [("train", 2, "3 classes"), ("train", 30, r"class 1 \('b'\) has only 9"), ("val", 19, "only 18")],
    )
    def test_refuses_impossible_sizes(self, part, size, found):
        with pytest.raises(InputError, match=f"{part}_size {size}.*{found}"):
            self.reduce(part=part, size=size)

    def test_settings_make_the_same_reducer(self):
        reducer = self.make()
        assert type(reducer)(**json.loads(json.dumps(reducer.settings()))) == reducer
        assert REDUCERS[reducer.name] is type(reducer)
