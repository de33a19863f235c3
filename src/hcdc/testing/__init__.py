"""Conformance suites for other people's spaces: inherit one in a pytest file, and say how to make yours."""

import pytest

pytest.register_assert_rewrite("hcdc.testing._spaces")

from hcdc.testing._spaces import SpaceConformance  # noqa: E402

__all__ = ["SpaceConformance"]
