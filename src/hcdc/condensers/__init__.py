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
from hcdc.condensers._dc import ImageMatching
from hcdc.condensers._estimate import cost_words, training_seconds, training_words
from hcdc.condensers._hcdc import HCDC, learn_validation
from hcdc.condensers._probing import (
    Probing,
    Slopes,
    companion_configs,
    expectations,
    learn_examples,
    make_companions,
    mean_loss,
    probe_configs,
    rank_targets,
    ridge,
    weigh_examples,
)
from hcdc.condensers._registry import REDUCERS, make_reducer, reducer_for, reducer_presets, register_reducer
from hcdc.condensers._tm import TM

__all__ = [
    "HCDC",
    "METHODS",
    "REDUCERS",
    "TM",
    "VAL_METHODS",
    "ImageMatching",
    "Plan",
    "Probing",
    "Reducer",
    "Slopes",
    "allocate_labels",
    "companion_configs",
    "condense",
    "cost_words",
    "expectations",
    "hcdc_presets",
    "learn_examples",
    "learn_validation",
    "make_companions",
    "make_hcdc",
    "make_probing",
    "make_reducer",
    "mean_loss",
    "plan",
    "probe_configs",
    "rank_targets",
    "reducer_for",
    "reducer_presets",
    "register_reducer",
    "ridge",
    "training_seconds",
    "training_words",
    "weigh_examples",
]
