"""Condensers: one file a method; `condense` puts S_train and S_val together."""

from hcdc.condensers._base import Reducer, allocate_labels
from hcdc.condensers._condense import (
    METHODS,
    VAL_METHODS,
    Plan,
    condense,
    hcdc_presets,
    make_hcdc,
    make_probing,
    plan,
)
from hcdc.condensers._hcdc import HCDC, learn_validation
from hcdc.condensers._probing import Probing
from hcdc.condensers._registry import REDUCERS, make_reducer, reducer_presets

__all__ = [
    "HCDC",
    "METHODS",
    "REDUCERS",
    "VAL_METHODS",
    "Plan",
    "Probing",
    "Reducer",
    "allocate_labels",
    "condense",
    "hcdc_presets",
    "learn_validation",
    "make_hcdc",
    "make_probing",
    "make_reducer",
    "plan",
    "reducer_presets",
]
