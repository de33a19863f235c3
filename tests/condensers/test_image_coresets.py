from weakref import WeakKeyDictionary

import pytest
import torch
from image_reducer_conformance import ImageReducerConformance
from reducer_conformance import reduce
from tiny_images import tiny_image_task

import hcdc.condensers._embeddings as module
from hcdc.condensers import REDUCERS, condense, make_reducer, plan
from hcdc.core.checkpoint import Checkpoint
from hcdc.core.progress import Progress
from hcdc.core.seeds import derive
from hcdc.datasets import ImageData, Images
from hcdc.spaces import NASBench201
from hcdc.tasks import ImageTask
from hcdc.testing import RecordingProgress
from hcdc.training import ConvNetRecipe, train_convnets

Herding, KCenter = REDUCERS["herding"], REDUCERS["kcenter"]


class ImageCoresetConformance(ImageReducerConformance):
    @pytest.mark.parametrize("part", ["train", "val"])
    def test_chooses_real_images_by_the_embedding_of_the_trained_network(self, part):
        """The chosen images are those that `choose` finds among the penultimate features of their class."""
        task, reducer = tiny_image_task(), self.make()
        small = reduce(reducer, task, part=part, size=8, seed=1)
        recipe = ConvNetRecipe(epochs=4, width=6)
        (params,) = train_convnets(task, task.train, [derive(1, "coreset")], recipe)
        images = task.part(part)
        x = task.inputs(images.x)
        points = recipe.net(task).features(params, x)
        for c in range(3):
            members = torch.nonzero(images.y == c).flatten()
            count = int((small.y == c).sum())
            picked = members[reducer.choose(points[members], count)]
            assert len(set(picked.tolist())) == count
            assert torch.equal(small.x[small.y == c], x[picked])

    def test_steps_are_rounded_up_to_epochs(self):
        seen = RecordingProgress()
        task = tiny_image_task()  # 34 training images: one batch an epoch
        self.reduce(task, progress=seen)
        assert [done for _, done, total in seen.steps if total == 4] == [1, 2, 3, 4]

    def test_published_presets_for_images(self):
        name = self.make().name
        for preset in ("cifar10", "cifar100"):
            reducer = make_reducer(name, preset)
            assert reducer.hidden == 128
            assert reducer.steps == 40 * 157


class TestKCenterOfImages(ImageCoresetConformance):
    def make(self):
        return KCenter(steps=4, hidden=6)


class TestHerdingOfImages(ImageCoresetConformance):
    def make(self):
        return Herding(steps=4, hidden=6)


@pytest.mark.parametrize("name", ["kcenter", "herding"])
def test_images_of_any_name_have_the_settings_of_images(name):
    task = tiny_image_task()

    def settings(**given):
        made = plan(task, NASBench201(), name, train_size=6, val_size=3, **given)
        return made.reducer.settings()

    assert settings() == settings(preset="default") == {"steps": 240, "hidden": 128}
    assert settings(options={"steps": 7}) == {"steps": 7, "hidden": 128}
    assert settings(preset="digits") == {"steps": 240, "hidden": 32}
    learned = plan(task, NASBench201(), train_method=name, train_size=6, val_method="real")
    assert learned.reducer.settings() == {"steps": 240, "hidden": 128}


def test_images_are_embedded_after_as_many_epochs_as_those_of_cifar10():
    def steps(count):
        y = torch.arange(count) % 2
        few = Images(torch.zeros(2, 1, 8, 8), torch.arange(2))
        many = Images(torch.zeros(1, 1, 8, 8).expand(count, -1, -1, -1), y)
        data = ImageData("grey", "memory", many, few, few, 2, torch.zeros(1), torch.ones(1), ("a", "b"))
        return KCenter.defaults_for(ImageTask(data, "convnet"))["steps"]

    assert steps(40_000) == make_reducer("kcenter", "cifar10").steps
    assert steps(48_000) == 40 * 188
    assert steps(300) == make_reducer("kcenter", "digits").steps


def test_embeddings_are_those_of_a_network_that_has_learned():
    """Images of one class lie nearer to their class mean than to the others, also those of validation."""
    task = tiny_image_task()
    points = module.EMBEDDINGS["image"].points(
        KCenter(steps=60, hidden=8), task, "val", 0, Progress(), Checkpoint(None)
    )
    y = task.val.y
    assert points.shape == (18, 8)
    means = torch.stack([points[y == c].mean(0) for c in range(3)])
    assert float((torch.cdist(points, means).argmin(1) == y).double().mean()) > 0.8


@pytest.mark.parametrize("file", [True, False])
def test_one_network_embeds_both_parts(file, tmp_path, monkeypatch):
    """With a checkpoint it is found there, else in memory."""
    seen = RecordingProgress()
    task, store = tiny_image_task(), Checkpoint(tmp_path / "run" if file else None, "key")
    chosen = []
    for part in ("train", "val"):
        if file:
            monkeypatch.setattr("hcdc.condensers._embeddings.TRAINED", WeakKeyDictionary())
        reducer = KCenter(steps=4, hidden=6)
        chosen.append(reducer.reduce(task, part, 6, 0, progress=seen, checkpoint=store.child(part)))
    assert len([done for _, done, total in seen.steps if total == 4]) == 4  # epochs, once
    assert torch.equal(chosen[1].x, reduce(KCenter(steps=4, hidden=6), tiny_image_task(), "val", 6, 0).x)
    assert not torch.equal(chosen[1].x, reduce(KCenter(steps=4, hidden=6), tiny_image_task(), "val", 6, 1).x)


def test_seconds_of_the_network_count_once_after_an_interruption(tmp_path, monkeypatch):
    """They are those of S_train; a clock that stands but for a minute of the training."""
    now = [0.0]
    monkeypatch.setattr("time.perf_counter", lambda: now[0])
    train = module.train_convnets

    def slow(*arguments, **options):
        now[0] += 60
        return train(*arguments, **options)

    choose = KCenter.choose
    monkeypatch.setattr(module, "train_convnets", slow)
    task, calls = tiny_image_task(), []

    def chosen(self, points, count):
        calls.append(count)
        if len(calls) == 4:  # three classes of S_train, then S_val
            raise KeyboardInterrupt
        return choose(self, points, count)

    monkeypatch.setattr(KCenter, "choose", chosen)
    given = {"train_size": 6, "val_size": 6, "options": {"steps": 4, "hidden": 6}}
    arguments = (task, NASBench201(), "kcenter")
    with pytest.raises(KeyboardInterrupt):
        condense(*arguments, **given, checkpoint=tmp_path / "run")
    monkeypatch.setattr(module, "train_convnets", train)
    small = condense(*arguments, **given, checkpoint=tmp_path / "run")
    assert small.record["phases"] == {"train": 60.0, "val": 0.0}
    assert list(tmp_path.iterdir()) == []
