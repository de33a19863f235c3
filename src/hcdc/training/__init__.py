"""Training one candidate or many, and full-data results with their cache."""

from hcdc.training._captured import Captured, CapturedMany
from hcdc.training._convnets import ConvNetRecipe, convnet_accuracy, train_convnets
from hcdc.training._gcn import GCNRecipe, gcn_accuracy, train_gcn
from hcdc.training._many import Scores, init_many, score_many, train_many
from hcdc.training._networks import train_networks
from hcdc.training._predictors import Predictor, identity, predictors
from hcdc.training._truth import Result, cache_folder, full_scores, run_candidates, run_on_sets, truth

__all__ = [
    "Captured",
    "CapturedMany",
    "ConvNetRecipe",
    "GCNRecipe",
    "Predictor",
    "Result",
    "Scores",
    "cache_folder",
    "convnet_accuracy",
    "full_scores",
    "gcn_accuracy",
    "identity",
    "init_many",
    "predictors",
    "run_candidates",
    "run_on_sets",
    "score_many",
    "train_convnets",
    "train_gcn",
    "train_many",
    "train_networks",
    "truth",
]
