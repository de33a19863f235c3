"""The conformance suite for search spaces."""

from __future__ import annotations

import json
import math
import re
from typing import Any

import pytest
import torch

from hcdc.core.configs import Config, config_hash
from hcdc.core.errors import InputError
from hcdc.core.recipe import Recipe
from hcdc.core.seeds import numpy_stream
from hcdc.spaces import Candidate, Space, from_spec, stack


class SpaceConformance:
    """Inherit from it and define ``make``; pytest then runs every test.

    Attributes:
        count: How many configurations to draw.
        features, classes: Sizes of the networks to build.

    Example:
        class TestDepths(SpaceConformance):
            def make(self):
                return Finite("depth", [2, 4, 8])
    """

    count = 12
    features = 3
    classes = 2

    def make(self) -> Space:
        """A space; every call returns an equal one."""
        raise AssertionError("a conformance test defines make()")

    def drawn(self, seed: int = 0, count: int | None = None) -> list[Config]:
        """Configurations of the space."""
        return self.make().sample(self.count if count is None else count, numpy_stream(seed, "conformance"))

    def built(self, config: Config) -> Candidate:
        """The candidate of a configuration."""
        return self.make().candidate(config, self.features, self.classes)

    def outside(self, rows: int = 5) -> torch.Tensor:
        """Random points, most of them outside the extended space."""
        generator = torch.Generator().manual_seed(0)
        return 3 * torch.randn(rows, self.make().dimension, generator=generator, dtype=torch.float64)

    def test_encode_has_the_dimension(self) -> None:
        space = self.make()
        for config in self.drawn():
            lam = space.encode(config)
            assert lam.shape == (space.dimension,)
            assert lam.dtype == torch.float64
            assert lam.device.type == "cpu"
        assert stack(space, self.drawn()).shape == (len(self.drawn()), space.dimension)

    def test_decoding_an_encoded_configuration_returns_it(self) -> None:
        space = self.make()
        for config in self.drawn():
            assert space.decode(space.encode(config)) == config

    def test_encode_does_not_depend_on_the_order_of_keys(self) -> None:
        space = self.make()
        for config in self.drawn(count=3):
            turned = dict(reversed(config.items()))
            assert config_hash(turned) == config_hash(config)
            assert torch.equal(space.encode(turned), space.encode(config))

    def test_decode_works_anywhere(self) -> None:
        space = self.make()
        for lam in self.outside():
            config = space.decode(space.project(lam))
            assert space.decode(space.encode(config)) == config

    def test_project_leaves_members_where_they_are(self) -> None:
        space = self.make()
        members = torch.stack([space.encode(config) for config in self.drawn()])
        torch.testing.assert_close(space.project(members), members, rtol=0, atol=1e-14)

    def test_project_is_idempotent_and_keeps_dtype_and_shape(self) -> None:
        space = self.make()
        once = space.project(self.outside())
        assert once.shape == self.outside().shape
        torch.testing.assert_close(space.project(once), once, rtol=0, atol=1e-14)
        assert space.project(self.outside().float()).dtype == torch.float32

    def test_project_finds_the_nearest_member_it_can(self) -> None:
        """No sampled member is nearer to an outside point than its projection."""
        space = self.make()
        members = torch.stack([space.encode(config) for config in self.drawn()])
        for lam in self.outside():
            nearest = (space.project(lam) - lam).norm()
            assert bool(((members - lam).norm(dim=1) >= nearest - 1e-12).all())

    def test_project_of_a_batch_is_that_of_its_rows(self) -> None:
        space = self.make()
        rows = torch.stack([space.project(lam) for lam in self.outside()])
        torch.testing.assert_close(space.project(self.outside()), rows, rtol=0, atol=1e-15)

    def test_sample_is_seeded(self) -> None:
        assert self.drawn(seed=1) == self.drawn(seed=1)
        candidates = self.make().candidates()
        if candidates is None or len(candidates) > 3:
            assert self.drawn(seed=1) != self.drawn(seed=2)

    def test_sample_is_distinct_where_it_can_be(self) -> None:
        candidates = self.make().candidates()
        count = self.count if candidates is None else min(self.count, len(candidates))
        drawn = self.drawn(count=count)
        assert len(drawn) == count
        assert len({config_hash(config) for config in drawn}) == count

    def test_sample_gives_as_many_as_asked(self) -> None:
        candidates = self.make().candidates()
        more = self.count if candidates is None else len(candidates) + 3
        assert len(self.drawn(count=more)) == more
        assert self.drawn(count=0) == []

    def test_configurations_are_plain_json(self) -> None:
        for config in self.drawn():
            assert json.loads(json.dumps(config)) == config

    def test_candidates_are_all_there_is(self) -> None:
        space = self.make()
        candidates = space.candidates()
        if candidates is None:
            pytest.skip("an infinite space")
        hashes = [config_hash(config) for config in candidates]
        assert len(set(hashes)) == len(hashes)
        assert [config_hash(config) for config in space.candidates() or []] == hashes
        assert {config_hash(config) for config in self.drawn(count=len(hashes))} == set(hashes)

    def test_spec_makes_the_space_again(self) -> None:
        space = self.make()
        spec = json.loads(json.dumps(space.spec()))
        again = from_spec(spec)
        assert type(again) is type(space)
        assert again.spec() == space.spec()
        assert again.dimension == space.dimension
        assert again.batched == space.batched
        assert again.dimensions() == space.dimensions()
        assert again.sample(3, numpy_stream(0, "conformance")) == self.drawn(count=3)
        for config in self.drawn(count=3):
            assert torch.equal(again.encode(config), space.encode(config))

    def test_dimensions_are_the_keys_of_configurations(self) -> None:
        dimensions = {d.name: d for d in self.make().dimensions()}
        assert len(dimensions) == len(self.make().dimensions())
        for config in self.drawn():
            assert set(config) <= set(dimensions)
            for name, value in config.items():
                dimensions[name].check(value)

    def refused(self, config: Any, key: str) -> None:
        """``config`` is refused by everything that takes one, in a sentence that names ``key``."""
        space = self.make()
        for use in (
            space.check,
            space.encode,
            lambda given: space.network(self.features, self.classes, given),
            lambda given: space.candidate(given, self.features, self.classes),
        ):
            with pytest.raises(InputError, match=re.escape(key)) as caught:
                use(config)
            assert "\n" not in str(caught.value)

    def test_a_wrong_key_is_refused_by_its_name(self) -> None:
        for config in self.drawn(count=2):
            self.refused({**config, "no such key": 1}, "'no such key'")
        self.refused({"no such key": 1}, "'no such key'")

    def test_a_missing_key_is_refused_by_its_name(self) -> None:
        needed = set.intersection(*(set(config) for config in self.make().candidates() or self.drawn()))
        for config in self.drawn(count=1):
            for key in sorted(needed):
                self.refused({name: value for name, value in config.items() if name != key}, f"'{key}'")

    def test_a_configuration_is_a_dict(self) -> None:
        self.refused([1, 2], "dict")

    def test_a_wrong_value_is_refused_by_its_name(self) -> None:
        for config in self.drawn(count=1):
            for key in config:
                self.refused({**config, key: {"no": {"such": "value"}}}, key)

    def test_a_candidate_is_a_network_and_its_training(self) -> None:
        space = self.make()
        training = {d.name for d in space.dimensions() if d.read_by == "recipe"}
        for config in self.drawn(count=3):
            candidate = self.built(config)
            assert candidate.config == config
            network = space.network(self.features, self.classes, config)
            assert (candidate.network is None) == (network is None)
            assert set(candidate.recipe) >= training & set(config)
            fields = Recipe().as_dict()
            Recipe.from_dict({k: v for k, v in candidate.recipe.items() if k in fields})

    def test_candidates_that_agree_share_a_group(self) -> None:
        first, *others = [self.built(config) for config in self.drawn()]
        assert self.built(first.config).group == first.group
        for other in others:
            agree = other.recipe == first.recipe and (self.make().batched or other.config == first.config)
            assert not agree or other.group == first.group
            assert other.recipe == first.recipe or other.group != first.group

    def test_what_nothing_reads_is_named(self) -> None:
        space = self.make()
        names = [d.name for d in space.dimensions() if d.read_by != "network"]
        assert space.unread((), ()) == names
        assert space.unread(names, ()) == []
        if names:
            with pytest.raises(InputError, match=f"hyperparameter '{re.escape(names[0])}': nothing reads it"):
                space.check_read((), ())

    def test_configurations_are_described_by_numbers(self) -> None:
        rows = [self.make().features(config) for config in self.drawn()]
        assert len({len(row) for row in rows}) == 1
        assert all(math.isfinite(value) for row in rows for value in row)

    def test_the_counterpart_of_a_candidate_is_a_configuration(self) -> None:
        for config in self.drawn(count=3):
            self.make().check(self.make().counterpart(config))

    def test_decisions_describe_a_configuration(self) -> None:
        space = self.make()
        sizes = space.decisions()
        if sizes is None:
            with pytest.raises(InputError, match="neighbours"):
                space.neighbours(self.drawn(count=1)[0])
            return
        for config in self.drawn():
            numbers = space.to_numbers(config)
            assert all(0 <= number < size for number, size in zip(numbers, sizes, strict=True))
            assert space.from_numbers(numbers) == config

    def test_neighbours_are_other_configurations(self) -> None:
        space = self.make()
        if space.decisions() is None:
            pytest.skip("a space with continuous hyperparameters")
        for config in self.drawn(count=3):
            near = space.neighbours(config)
            for other in near:
                space.check(other)
            hashes = {config_hash(other) for other in near}
            assert len(hashes) == len(near)
            assert config_hash(config) not in hashes

    def test_a_mutation_is_a_configuration_and_seeded(self) -> None:
        space = self.make()
        for config in self.drawn(count=3):
            before = config_hash(config)
            moved = space.mutate(config, numpy_stream(0, "conformance"))
            space.check(moved)
            assert config_hash(config) == before
            assert moved == space.mutate(config, numpy_stream(0, "conformance"))
        alone = len(space.candidates() or self.drawn()) == 1
        assert alone or any(space.mutate(c, numpy_stream(0, "conformance")) != c for c in self.drawn(count=3))

    def test_it_is_printed_in_one_line(self) -> None:
        for text in (self.make().words(), repr(self.make())):
            assert 0 < len(text) <= 160
            assert "\n" not in text
