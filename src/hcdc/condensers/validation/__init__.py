"""Ways to make S_val, one file each; register others with `register_validation`."""

from hcdc.condensers.validation._alignment import learn_validation
from hcdc.condensers.validation._base import (
    VALIDATIONS,
    Made,
    Validation,
    Work,
    make_validation,
    register_validation,
    validation_presets,
)
from hcdc.condensers.validation._examples import Slopes, learn_examples
from hcdc.condensers.validation._following import Company, Following, Survey, misorder
from hcdc.condensers.validation._probing import (
    Companions,
    companion_configs,
    expectations,
    free_figures,
    mean_loss,
    probe_configs,
    rank_targets,
)
from hcdc.condensers.validation._settings import Alignment, Learning, Probing
from hcdc.condensers.validation._targets import make_companions, modelled
from hcdc.condensers.validation._weights import weigh_examples
from hcdc.condensers.validation.aligned import Aligned
from hcdc.condensers.validation.both import Anchored, Both
from hcdc.condensers.validation.landscape import FollowsLandscape
from hcdc.condensers.validation.probes import Probes
from hcdc.condensers.validation.random import Random
from hcdc.condensers.validation.real import Real
from hcdc.condensers.validation.same import Same
from hcdc.condensers.validation.weighted import Weighted

__all__ = [
    "VALIDATIONS",
    "Aligned",
    "Alignment",
    "Anchored",
    "Both",
    "Companions",
    "Company",
    "Following",
    "FollowsLandscape",
    "Learning",
    "Made",
    "Probes",
    "Probing",
    "Random",
    "Real",
    "Same",
    "Slopes",
    "Survey",
    "Validation",
    "Weighted",
    "Work",
    "companion_configs",
    "expectations",
    "free_figures",
    "learn_examples",
    "learn_validation",
    "make_companions",
    "make_validation",
    "mean_loss",
    "misorder",
    "modelled",
    "probe_configs",
    "rank_targets",
    "register_validation",
    "validation_presets",
    "weigh_examples",
]
