"""The command run inside the test process, an objective for it, and what a refusal looks like."""

import pytest

import hcdc.cli

OBJECTIVE = """
import numpy as np
import hcdc

x, y = np.zeros((40, 1), np.float32), np.arange(40) % 2

def data():
    return hcdc.FullData((x, y), (x, y))

def objective(trial, data):
    return trial.suggest_float("x", 0.0, 1.0) * data.epochs(10) / 10

def no_data(trial, data):
    return 0.0
"""
"""A file for ``--objective``: the score grows with the parameter and with the training."""


def hcdc_run(capsys, *arguments):
    """``(exit code, stdout, stderr)`` of the command."""
    with pytest.raises(SystemExit) as left:
        hcdc.cli.main([str(a) for a in arguments])
    captured = capsys.readouterr()
    code = left.value.code
    return (0 if code is None else code), captured.out, captured.err


def files(place):
    """Names of what lies in a folder."""
    return sorted(path.name for path in place.iterdir())


def assert_refused(place, before, code, out, err, said):
    """One sentence on stderr, exit code 2, nothing written; the test data is small, which is warned of."""
    err = "".join(line for line in err.splitlines(True) if "validation images were set apart" not in line)
    assert code == 2, err
    assert said in err
    assert len(err.strip().splitlines()) == 1
    assert err.startswith("hcdc: ")
    assert "Traceback" not in err
    assert out == ""
    assert files(place) == before
