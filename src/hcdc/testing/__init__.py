"""Conformance suites for your own classes: inherit one in a pytest file and define how to make yours."""

import pytest

pytest.register_assert_rewrite("hcdc.testing._condensers", "hcdc.testing._spaces", "hcdc.testing._tasks")

from hcdc.testing._condensers import RecordingProgress, ReducerConformance, set_bytes  # noqa: E402
from hcdc.testing._spaces import SpaceConformance  # noqa: E402
from hcdc.testing._tasks import TaskConformance  # noqa: E402

__all__ = ["RecordingProgress", "ReducerConformance", "SpaceConformance", "TaskConformance", "set_bytes"]
