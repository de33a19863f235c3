"""Rivals: other ways to rank the same candidates, one file each.

A rival from outside the package is a subclass of `RivalMethod` that `register_rival` decorates.
"""

# isort: off
# rivals run in the order in which they are imported
from hcdc.evaluation.rivals._base import Forecast, RivalMethod, chosen_rivals, register_rival, rival_names
from hcdc.evaluation.rivals._random_val import RandomVal, RandomValLoss
from hcdc.evaluation.rivals._random_reach_val import RandomReachVal
from hcdc.evaluation.rivals._real_val import RealVal, RealValLoss
from hcdc.evaluation.rivals._twelve_epochs import TwelveEpochs
from hcdc.evaluation.rivals._early_stopping import EarlyStopping
from hcdc.evaluation.rivals._one_seed_full import OneSeedFull
from hcdc.evaluation.rivals._equal_cost import EqualCost
from hcdc.evaluation.rivals._parameter_count import ParameterCount
from hcdc.evaluation.rivals._ridge_probes import RidgeProbes
from hcdc.evaluation.rivals._ridge_and_real_val import RidgeAndRealVal
# isort: on

__all__ = [
    "EarlyStopping",
    "EqualCost",
    "Forecast",
    "OneSeedFull",
    "ParameterCount",
    "RandomReachVal",
    "RandomVal",
    "RandomValLoss",
    "RealVal",
    "RealValLoss",
    "RidgeAndRealVal",
    "RidgeProbes",
    "RivalMethod",
    "TwelveEpochs",
    "chosen_rivals",
    "register_rival",
    "rival_names",
]
