"""Images that are mapped from files stay there while candidates train on them and are scored."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

SIZE = 80 << 20
"""Bytes of the training images."""

SCRIPT = """
import re, sys, torch
from torch import nn
import hcdc
from hcdc.core.recipe import Recipe
from hcdc.datasets import Images
from hcdc.training import run_candidates

def anonymous():
    return int(re.search(r"RssAnon:\\s+(\\d+) kB", open("/proc/self/status").read())[1]) << 10

seen = []

class Watched(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.linear = nn.Linear(64, config["width"])
        self.norm, self.last = nn.BatchNorm1d(config["width"]), nn.Linear(config["width"], 10)

    def forward(self, x):
        seen.append((len(x), anonymous()))
        return self.last(self.norm(self.linear(x[:, 0, ::4, ::4].flatten(1))))

torch.set_num_threads(2)
task = hcdc.ImageTask(hcdc.data(sys.argv[1]), Watched)
space = hcdc.spaces.Finite("width", [3, 4])
recipe = Recipe(steps=2, batch=16, optimizer="sgd", lr=0.1, augment="flip-crop", seeds=2)

def run(train):
    run_candidates(task, space, space.candidates(), train, {"val": task.val}, recipe, 0, "truth", "cpu")

run(Images(torch.rand(20, 3, 32, 32), torch.arange(20) % 10))  # what the first training of all takes
before = anonymous()
seen.clear()
task.sample("train", 20, 0)
run(task.train)
assert sorted({count for count, _ in seen}) == [16, 100], seen
print(max(size for _, size in seen) - before)
"""


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="memory is read from /proc")
def test_training_on_a_mapped_set_copies_batches_alone(tmp_path):
    """Two candidates on two threads; in memory lies far less than the set, at any step and in scoring."""
    image = 32 * 32 * 3
    for part, count in (("train", SIZE // image), ("val", 100), ("test", 100)):
        x = np.lib.format.open_memmap(tmp_path / f"x_{part}.npy", "w+", np.uint8, (count, 32, 32, 3))
        x[:10] = np.arange(10)[:, None, None, None]  # the rest is a hole in the file
        np.save(tmp_path / f"y_{part}.npy", np.arange(count) % 10)
        del x
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(tmp_path)], env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) < SIZE / 4
