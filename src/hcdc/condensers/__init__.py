"""Condensers: one file per way to make S_train, and in `validation` one per way to make S_val."""

from hcdc.condensers._base import Iterate, Iterative, Reducer, allocate_labels
from hcdc.condensers._condense import condense
from hcdc.condensers._cost import Cost, Expense
from hcdc.condensers._dc import ImageMatching
from hcdc.condensers._forecast import full_trainings, training_seconds
from hcdc.condensers._plan import Plan, in_words, plan, space_words
from hcdc.condensers._registry import REDUCERS, make_reducer, reducer_for, reducer_presets, register_reducer
from hcdc.condensers._tm import TM
from hcdc.condensers.validation import (
    VALIDATIONS,
    Alignment,
    Companions,
    Made,
    Probing,
    Slopes,
    Validation,
    Work,
    companion_configs,
    expectations,
    free_figures,
    learn_examples,
    learn_validation,
    make_companions,
    make_validation,
    mean_loss,
    probe_configs,
    rank_targets,
    register_validation,
    validation_presets,
    weigh_examples,
)

__all__ = [
    "REDUCERS",
    "TM",
    "VALIDATIONS",
    "Alignment",
    "Companions",
    "Cost",
    "Expense",
    "ImageMatching",
    "Iterate",
    "Iterative",
    "Made",
    "Plan",
    "Probing",
    "Reducer",
    "Slopes",
    "Validation",
    "Work",
    "allocate_labels",
    "companion_configs",
    "condense",
    "expectations",
    "free_figures",
    "full_trainings",
    "in_words",
    "learn_examples",
    "learn_validation",
    "make_companions",
    "make_reducer",
    "make_validation",
    "mean_loss",
    "plan",
    "probe_configs",
    "rank_targets",
    "reducer_for",
    "reducer_presets",
    "register_reducer",
    "register_validation",
    "space_words",
    "training_seconds",
    "validation_presets",
    "weigh_examples",
]
