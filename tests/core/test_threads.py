"""How long threads wait for work before they sleep."""

import os
import subprocess
import sys

import pytest

COMMAND = (
    "import os, sys\n"
    "from hcdc.cli import main\n"
    "try:\n"
    "    main(['--help'])\n"
    "except SystemExit:\n"
    "    print(os.environ.get('GOMP_SPINCOUNT'), 'torch' in sys.modules)\n"
)


@pytest.mark.parametrize(
    ("own", "expected"),
    [({}, "1000"), ({"GOMP_SPINCOUNT": "7"}, "7"), ({"OMP_WAIT_POLICY": "ACTIVE"}, "None")],
    ids=["default", "own count", "own policy"],
)
def test_the_command_lets_threads_sleep_before_torch_is_loaded(own, expected):
    env = {
        name: value for name, value in os.environ.items() if name not in ("GOMP_SPINCOUNT", "OMP_WAIT_POLICY")
    }
    done = subprocess.run(
        [sys.executable, "-c", COMMAND], env={**env, **own}, capture_output=True, text=True, check=True
    )
    assert done.stdout.splitlines()[-1] == f"{expected} False"
