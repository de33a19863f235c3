"""Rivals: other ways to rank the same candidates, one file each.

To add your own, subclass `RivalMethod` and decorate the class with `register_rival`.
"""

from hcdc.evaluation.rivals._base import Forecast, RivalMethod, chosen_rivals, register_rival, rival_names

# isort: off
# rivals run in the order in which they are imported
from hcdc.evaluation.rivals import _random_val, _random_reach_val, _real_val, _twelve_epochs  # noqa: F401
from hcdc.evaluation.rivals import _early_stopping, _one_seed_full, _equal_cost  # noqa: F401
from hcdc.evaluation.rivals import _parameter_count, _ridge_probes, _ridge_and_real_val, _landscape_probes  # noqa: F401
from hcdc.evaluation.rivals import _model_and_real_val  # noqa: F401
# isort: on

__all__ = ["Forecast", "RivalMethod", "chosen_rivals", "register_rival", "rival_names"]
