"""Training-free scores: statistics of an untrained candidate; one file each."""

from hcdc.training.free._base import FreeScore, Untrained, free_names, free_score, register_free
from hcdc.training.free._scores import free_scores, untrained
from hcdc.training.free.aznas import AZNAS
from hcdc.training.free.flops import Flops
from hcdc.training.free.jacov import Jacov
from hcdc.training.free.naswot import NASWOT
from hcdc.training.free.parameters import Parameters
from hcdc.training.free.synflow import Synflow

__all__ = [
    "AZNAS",
    "NASWOT",
    "Flops",
    "FreeScore",
    "Jacov",
    "Parameters",
    "Synflow",
    "Untrained",
    "free_names",
    "free_score",
    "free_scores",
    "register_free",
    "untrained",
]
