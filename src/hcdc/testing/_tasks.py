"""The conformance suite for tasks."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.func import grad, vmap

from hcdc.condensers import condense
from hcdc.core.configs import Config
from hcdc.core.errors import InputError
from hcdc.core.recipe import Recipe
from hcdc.core.seeds import numpy_stream, stream
from hcdc.datasets import CondensedDataset, LabelledSet
from hcdc.evaluation import evaluate
from hcdc.networks import Params
from hcdc.spaces import Box, Space, stack
from hcdc.tasks import Task, task_class, task_from_spec
from hcdc.testing._condensers import set_bytes

OPTIONS = {"trajectories": 2, "points": 1, "holdout": 2, "steps": 2, "check": 1, "iterations": 2}


class TaskConformance:
    """Inherit from it and define ``make``; pytest then runs every test.

    Attributes:
        size: Examples in a small set; each part must have more.
        candidates: How many candidates to train and judge.
        options: Quick settings for val_method ``"both"``.
        recipe: Quick settings for both recipes.

    Example:
        class TestSignalTask(TaskConformance):
            def make(self):
                return SignalTask(hcdc.data("signals")), Bands()
    """

    size = 6
    candidates = 4
    options: Mapping[str, Any] = OPTIONS
    recipe: Mapping[str, Any] = {"steps": 3, "seeds": 1}

    def make(self) -> tuple[Task, Space]:
        """A new small task and a space that fits it; every call returns equal ones."""
        raise AssertionError("a conformance test defines make()")

    def foreign(self) -> Space:
        """A space that does not fit."""
        return Box([f"unknown_{k}" for k in range(self.make()[1].dimension + 1)], 0.5, 1.0)

    def configs(self) -> list[Config]:
        """Some configurations of the space."""
        return self.make()[1].sample(self.candidates, numpy_stream(0, "conformance"))

    def bound(self) -> tuple[Task, LabelledSet]:
        """The task bound to a candidate's network, and a small set to train it on."""
        task, space = self.make()
        bound, small = task.bind(space, self.configs()[0]), task.sample("train", self.size, 0)
        bound.prepare(small)
        return bound, small

    def point(self, task: Task, seed: int = 0) -> tuple[Params, Tensor]:
        """New parameters and a lambda."""
        return task.init(stream(seed, "conformance")), stack(self.make()[1], self.configs())[0]

    # --- the data -------------------------------------------------------------------------------------------

    def test_parts_are_labelled(self) -> None:
        task, _ = self.make()
        parts = {"train": task.train, "val": task.val, "test": task.test}
        for name, part in parts.items():
            if name == "test" and part is None:
                continue
            assert isinstance(part, LabelledSet)
            assert len(part) > self.size
            assert part.y.shape == (len(part),)
            assert part.y.is_floating_point() == (task.num_classes is None)
            if task.num_classes is not None:
                assert 0 <= int(part.y.min()) <= int(part.y.max()) < task.num_classes
            assert len(task.part(name)) == len(part)
        with pytest.raises(InputError, match="part 'no such part'"):
            task.part("no such part")

    def test_it_is_registered_and_told_in_one_line(self) -> None:
        task, _ = self.make()
        assert task_class(task.kind) is type(task)
        for text in (task.name, task.words(), task.sized(self.size)):
            assert text
            assert "\n" not in text

    def test_the_description_of_the_data_is_json(self) -> None:
        task, _ = self.make()
        told = task.describe()
        assert json.loads(json.dumps(told)) == told == self.make()[0].describe()
        assert (told["name"], told["num_classes"]) == (task.name, task.num_classes)
        assert told["fingerprint"] == task.fingerprint()

    def test_spec_makes_the_task_again(self) -> None:
        task, _ = self.make()
        spec = json.loads(json.dumps(task.spec()))
        assert spec["name"] == task.kind
        assert task.same_as(spec)
        assert self.make()[0].same_as(spec)
        if task.data is None:
            return  # data in memory cannot be read again
        again = task_from_spec(spec, task.data)
        assert type(again) is type(task)
        assert again.spec() == spec

    def test_it_moves(self) -> None:
        task, _ = self.make()
        moved = task.to("cpu")
        assert type(moved) is type(task)
        assert moved.spec() == task.spec()
        assert set_bytes(moved.sample("train", self.size, 0)) == set_bytes(task.sample("train", self.size, 0))

    # --- small sets -----------------------------------------------------------------------------------------

    @pytest.mark.parametrize("part", ["train", "val"])
    def test_samples_have_the_size_and_the_labels(self, part: str) -> None:
        task, _ = self.make()
        for size in {task.least, self.size, task.most(part)}:
            small = task.sample(part, size, 0)
            assert isinstance(small, LabelledSet)
            assert len(small) == size
            small.check(part, task.num_classes)
            assert set(small.y.tolist()) <= set(task.part(part).y.tolist())
            if task.num_classes is not None:
                assert len(set(small.y.tolist())) == task.num_classes

    def test_balanced_samples_have_equal_classes(self) -> None:
        task, _ = self.make()
        if task.num_classes is not None:
            y = task.sample("train", 2 * task.num_classes, 0, balanced=True).y
            assert y.bincount(minlength=task.num_classes).tolist() == [2] * task.num_classes

    def test_same_seed_same_bytes(self) -> None:
        drawn = [set_bytes(self.make()[0].sample("train", self.size, seed)) for seed in (3, 3, 4, 5)]
        assert drawn[0] == drawn[1]
        assert len(set(drawn)) > 1
        assert set_bytes(self.make()[0].sample("val", self.size, 3)) != drawn[0]

    @pytest.mark.parametrize("part", ["train", "val"])
    def test_impossible_samples_are_refused(self, part: str) -> None:
        task, _ = self.make()
        for size in (task.least - 1, len(task.part(part)) + 1):
            with pytest.raises(InputError, match=f"{part}_size {size}"):
                task.sample(part, size, 0)

    def test_sizes_are_sensible(self) -> None:
        task, _ = self.make()
        assert 1 <= task.least <= self.size
        for part in ("train", "val"):
            assert self.size <= task.most(part) <= len(task.part(part))
            task.check_size(part, self.size)
        assert task.least <= task.val_size(self.size) <= len(task.val)
        assert task.lanes(task.train, "cpu") >= 1

    def test_learnable_tensors_can_be_replaced(self) -> None:
        task, _ = self.make()
        small = task.sample("val", self.size, 0)
        tensors = task.tensors(small)
        assert tensors
        assert set_bytes(task.replace(small, tensors)) == set_bytes(small)
        moved = task.replace(small, {name: tensor + 1 for name, tensor in tensors.items()})
        assert torch.equal(moved.y, small.y)
        for name, tensor in task.tensors(moved).items():
            assert tensor.is_floating_point()
            assert tensor.shape == tensors[name].shape
            assert not torch.equal(tensor, tensors[name])

    def test_subsets_are_mini_batches(self) -> None:
        task, _ = self.make()
        small = task.sample("train", self.size, 0)
        index = torch.tensor([2, 0])
        assert torch.equal(task.subset(small, index).y, small.y[index])

    def test_weights_count_in_the_loss(self) -> None:
        task, small = self.bound()
        if task.unweighable():
            assert "\n" not in task.unweighable()
            return
        assert len(task.pool(self.size, 0)) in (self.size, len(task.val))
        params, lam = self.point(task)
        weight = torch.ones(self.size).to(small.y.device)
        equal = task.replace(small, {"weight": weight})
        torch.testing.assert_close(task.val_loss(params, lam, equal), task.val_loss(params, lam, small))
        weight = weight.scatter(0, torch.tensor(0), 5.0)
        other = task.replace(small, {"weight": weight})
        assert float(task.val_loss(params, lam, other)) != float(task.val_loss(params, lam, equal))

    # --- losses ---------------------------------------------------------------------------------------------

    def test_losses_are_finite_numbers(self) -> None:
        task, small = self.bound()
        params, lam = self.point(task)
        outputs = task.predict(params, lam, small)
        assert outputs.shape[0] == len(small)
        loss, penalty = task.loss(outputs, small), task.penalty(params, lam)
        for value in (loss, penalty, task.score(outputs, small)):
            assert value.shape == ()
            assert bool(value.isfinite())
        torch.testing.assert_close(task.train_loss(params, lam, small), loss + penalty)
        torch.testing.assert_close(task.val_loss(params, lam, small), loss)
        assert bool(task.target().val_loss(params, lam, small).isfinite())

    def test_starts_come_from_the_generator_alone(self) -> None:
        task, _ = self.bound()
        first, again, other = (self.point(task, seed)[0] for seed in (0, 0, 1))
        assert all(torch.equal(first[name], again[name]) for name in first)
        assert any(not torch.equal(first[name], other[name]) for name in first)

    def test_gradients_are_finite(self) -> None:
        task, small = self.bound()
        params, lam = self.point(task)
        slopes = grad(task.train_loss)(params, lam, small)
        assert all(bool(slope.isfinite().all()) for slope in slopes.values())
        assert any(bool(slope.abs().max() > 0) for slope in slopes.values())

        def of_examples(tensors: dict[str, Tensor]) -> Tensor:
            return task.val_loss(params, lam, task.replace(small, tensors))

        found = grad(of_examples)(task.tensors(small))
        assert all(bool(slope.isfinite().all()) for slope in found.values())

    def test_a_batch_is_its_members(self) -> None:
        task, small = self.bound()
        starts = [self.point(task, seed)[0] for seed in range(len(self.configs()))]
        params = {name: torch.stack([start[name] for start in starts]) for name in starts[0]}
        lams = stack(self.make()[1], self.configs())
        batch = vmap(task.predict, in_dims=(0, 0, None))(params, lams, small)
        for k, start in enumerate(starts):
            alone = task.predict(start, lams[k], small)
            torch.testing.assert_close(batch[k], alone, rtol=1e-4, atol=1e-5)

    # --- training and search --------------------------------------------------------------------------------

    def test_recipes_can_be_followed(self) -> None:
        task, _ = self.make()
        full, small = task.recipes(self.size, 2, "loss")
        assert small.metric == "loss"
        assert full.metric == ("loss" if task.num_classes is None else "accuracy")
        for argument, recipe in (("full_recipe", full), ("recipe", small)):
            assert Recipe.from_dict(json.loads(json.dumps(recipe.as_dict()))) == recipe
            task.check_recipe(argument, recipe)
            assert isinstance(task.by_recipe(recipe), type(task))
        around = task.recipes_around(small)
        assert around[0] == small
        assert len(around) > 1
        assert {"steps", "lr", "seeds"} <= set(task.recipe_settings)

    def test_a_space_that_does_not_fit_is_refused(self) -> None:
        task, space = self.make()
        task.fit(space)
        with pytest.raises(InputError, match=re.escape(f"space '{self.foreign().name}'")) as caught:
            task.fit(self.foreign())
        assert "\n" not in str(caught.value)
        with pytest.raises(InputError, match="space"):
            condense(task, self.foreign(), "random", train_size=self.size)

    def test_the_identity_of_a_candidate_is_stable(self) -> None:
        (one, space), (two, _) = self.make(), self.make()
        keys = [one.identity(space, config) for config in self.configs()]
        assert keys == [two.identity(space, config) for config in self.configs()]
        assert len(set(keys)) == len(keys)

    def condensed(self, way: str) -> CondensedDataset:
        """A new copy, made quickly."""
        task, space = self.make()
        method, options = ("hcdc", dict(self.options)) if way == "both" else (way, {})
        return condense(
            task, space, method, train_size=self.size, val_size=self.size, options=options,
            val_method="both" if way == "both" else "random",
            recipe=dict(self.recipe), full_recipe=dict(self.recipe),
        )  # fmt: skip

    @pytest.mark.parametrize("way", ["random", "both"])
    def test_the_whole_trip(self, way: str, tmp_path: Path) -> None:
        """Condense, save, load and evaluate."""
        made = self.condensed(way)
        again = CondensedDataset.load(made.save(tmp_path / "small.hcdc"))
        assert again.to_bytes() == made.to_bytes()
        assert len(again.train) == again.meta["train_size"] == self.size
        task, _ = self.make()
        found = evaluate(again, candidates=self.candidates, task=task, rivals=False)
        assert 2 <= found.candidates <= self.candidates
        assert len(found.proxy) == len(found.truth) == found.candidates

    def test_equal_runs_write_equal_files(self) -> None:
        assert self.condensed("random").to_bytes() == self.condensed("random").to_bytes()

    def test_copies_of_impossible_sizes_are_refused(self) -> None:
        task, space = self.make()
        for part in ("train", "val"):
            for size in (task.least - 1, len(task.part(part)) + 1):
                sizes: Any = {"train_size": self.size, "val_size": self.size, f"{part}_size": size}
                with pytest.raises(InputError, match=f"{part}_size {size}") as caught:
                    condense(task, space, "random", val_method="random", **sizes)
                assert "\n" not in str(caught.value)
