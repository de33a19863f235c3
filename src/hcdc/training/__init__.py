"""Training one candidate or many, and full-data results with their cache."""

from hcdc.training._captured import Captured
from hcdc.training._gcn import GCNRecipe, gcn_accuracy, train_gcn
from hcdc.training._many import Scores, init_many, score_many, train_many
from hcdc.training._truth import Result, cache_folder, run_candidates, truth

__all__ = [
    "Captured",
    "GCNRecipe",
    "Result",
    "Scores",
    "cache_folder",
    "gcn_accuracy",
    "init_many",
    "run_candidates",
    "score_many",
    "train_gcn",
    "train_many",
    "truth",
]
