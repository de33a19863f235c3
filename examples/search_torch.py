"""Search your own CNN in a plain PyTorch loop, dropout included.

    python search_torch.py 1m

The budget is everything that the search can spend. `data.epochs(8)` is 8 in a full training and fewer where
the search tries a short one; `data.score` turns outputs into the number to rank by.
"""

from __future__ import annotations

import sys

import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import TensorDataset

import hcdc


def data() -> hcdc.FullData:
    """1,797 handwritten digits of 8 x 8 pixels: two thirds to train on, one third to choose by."""
    x, y = load_digits(return_X_y=True)
    images, labels = torch.tensor(x, dtype=torch.float32).view(-1, 1, 8, 8) / 16, torch.tensor(y)
    return hcdc.FullData(
        TensorDataset(images[:1200], labels[:1200]), TensorDataset(images[1200:], labels[1200:])
    )


def objective(trial, data) -> float:
    width = trial.suggest_int("width", 4, 16, log=True)
    dropout = trial.suggest_float("dropout", 0.0, 0.7)
    lr = trial.suggest_float("lr", 1e-4, 1e-1, log=True)
    model = nn.Sequential(
        nn.Conv2d(1, width, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(),
        nn.Dropout(dropout), nn.Linear(16 * width, data.num_classes),
    )  # fmt: skip
    optimizer = torch.optim.Adam(model.parameters(), lr=lr)
    train = data.loader("train", batch_size=64)
    model.train()
    for _ in range(data.epochs(8)):
        for x, y in train:
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(x), y).backward()
            optimizer.step()
    model.eval()
    with torch.no_grad():
        outputs = torch.cat([model(x) for x, _ in data.loader("val", batch_size=256)])
    return data.score(outputs)


if __name__ == "__main__":
    found = hcdc.search(objective, data(), budget=sys.argv[1] if len(sys.argv) > 1 else "1m")
    print(f"use {found.best}: accuracy {found.score}, found in {found.seconds:.0f} s")
