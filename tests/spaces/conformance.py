"""What every search space must do: a test class inherits `SpaceConformance` and says how to make one."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch

from hcdc.core.configs import config_hash
from hcdc.core.errors import InputError
from hcdc.spaces import Space, from_spec, stack


class SpaceConformance:
    """Inherit, and define ``make``; ``count`` is how many configurations are drawn."""

    count = 12

    def make(self) -> Space:
        raise AssertionError("a conformance test defines make()")

    def drawn(self, seed: int = 0, count: int | None = None):
        return self.make().sample(self.count if count is None else count, np.random.default_rng(seed))

    def outside(self, rows: int = 5) -> torch.Tensor:
        """Points all over the place, most of them outside the extended space."""
        generator = torch.Generator().manual_seed(0)
        return 3 * torch.randn(rows, self.make().dimension, generator=generator, dtype=torch.float64)

    def test_encode_has_the_dimension(self):
        space = self.make()
        for config in self.drawn():
            lam = space.encode(config)
            assert lam.shape == (space.dimension,)
            assert lam.dtype == torch.float64
            assert lam.device.type == "cpu"
        assert stack(space, self.drawn()).shape == (len(self.drawn()), space.dimension)

    def test_decoding_an_encoded_configuration_returns_it(self):
        space = self.make()
        for config in self.drawn():
            assert space.decode(space.encode(config)) == config

    def test_encode_does_not_depend_on_the_order_of_keys(self):
        space = self.make()
        for config in self.drawn(count=3):
            turned = dict(reversed(config.items()))
            assert config_hash(turned) == config_hash(config)
            assert torch.equal(space.encode(turned), space.encode(config))

    def test_decode_works_anywhere(self):
        space = self.make()
        for lam in self.outside():
            config = space.decode(space.project(lam))
            assert space.decode(space.encode(config)) == config

    def test_project_leaves_members_where_they_are(self):
        space = self.make()
        members = torch.stack([space.encode(config) for config in self.drawn()])
        torch.testing.assert_close(space.project(members), members, rtol=0, atol=1e-14)

    def test_project_is_idempotent_and_keeps_dtype_and_shape(self):
        space = self.make()
        once = space.project(self.outside())
        assert once.shape == self.outside().shape
        torch.testing.assert_close(space.project(once), once, rtol=0, atol=1e-14)
        assert space.project(self.outside().float()).dtype == torch.float32

    def test_project_finds_the_nearest_member_it_can(self):
        """No sampled member is nearer to an outside point than its projection."""
        space = self.make()
        members = torch.stack([space.encode(config) for config in self.drawn()])
        for lam in self.outside():
            nearest = (space.project(lam) - lam).norm()
            assert bool(((members - lam).norm(dim=1) >= nearest - 1e-12).all())

    def test_project_of_a_batch_is_that_of_its_rows(self):
        space = self.make()
        rows = torch.stack([space.project(lam) for lam in self.outside()])
        torch.testing.assert_close(space.project(self.outside()), rows, rtol=0, atol=1e-15)

    def test_sample_is_seeded(self):
        assert self.drawn(seed=1) == self.drawn(seed=1)
        if self.make().candidates() is None or len(self.make().candidates()) > 3:
            assert self.drawn(seed=1) != self.drawn(seed=2)

    def test_sample_is_distinct_where_it_can_be(self):
        candidates = self.make().candidates()
        count = self.count if candidates is None else min(self.count, len(candidates))
        drawn = self.drawn(count=count)
        assert len(drawn) == count
        assert len({config_hash(config) for config in drawn}) == count

    def test_sample_gives_as_many_as_asked(self):
        candidates = self.make().candidates()
        more = self.count if candidates is None else len(candidates) + 3
        assert len(self.drawn(count=more)) == more
        assert self.drawn(count=0) == []

    def test_configurations_are_plain_json(self):
        for config in self.drawn():
            assert json.loads(json.dumps(config)) == config

    def test_candidates_are_all_there_is(self):
        space = self.make()
        candidates = space.candidates()
        if candidates is None:
            pytest.skip("an infinite space")
        hashes = [config_hash(config) for config in candidates]
        assert len(set(hashes)) == len(hashes)
        assert [config_hash(config) for config in space.candidates()] == hashes
        assert {config_hash(config) for config in self.drawn(count=len(hashes))} == set(hashes)

    def test_spec_makes_the_space_again(self):
        space = self.make()
        spec = json.loads(json.dumps(space.spec()))
        again = from_spec(spec)
        assert type(again) is type(space)
        assert again.spec() == space.spec()
        assert again.dimension == space.dimension
        assert again.batched == space.batched
        assert again.sample(3, np.random.default_rng(0)) == self.drawn(count=3)
        for config in self.drawn(count=3):
            assert torch.equal(again.encode(config), space.encode(config))

    def test_a_foreign_configuration_is_refused(self):
        with pytest.raises(InputError):
            self.make().encode({"no such value": 1})
