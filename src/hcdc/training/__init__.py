"""Training one candidate or many, and full-data results with their cache."""

from hcdc.training._adam import Adam
from hcdc.training._augment import (
    Augmentation,
    augment,
    augment_back,
    augment_each,
    draw_augmentation,
    draw_each,
    shown,
)
from hcdc.training._captured import Captured, CapturedMany
from hcdc.training._convnets import (
    ConvNetRecipe,
    convnet_accuracy,
    embeddings,
    recorded,
    train_convnets,
)
from hcdc.training._gcn import GCNRecipe, gcn_accuracy, gcn_inputs, gcn_logits, train_gcn
from hcdc.training._many import (
    Scores,
    adam_step,
    init_many,
    score_many,
    train_many,
)
from hcdc.training._networks import train_networks
from hcdc.training._predictors import Predictor, predictors
from hcdc.training._truth import Result, cache_folder, full_scores, run_candidates, run_on_sets, truth

__all__ = [
    "Adam",
    "Augmentation",
    "Captured",
    "CapturedMany",
    "ConvNetRecipe",
    "GCNRecipe",
    "Predictor",
    "Result",
    "Scores",
    "adam_step",
    "augment",
    "augment_back",
    "augment_each",
    "cache_folder",
    "convnet_accuracy",
    "draw_augmentation",
    "draw_each",
    "embeddings",
    "full_scores",
    "gcn_accuracy",
    "gcn_inputs",
    "gcn_logits",
    "init_many",
    "predictors",
    "recorded",
    "run_candidates",
    "run_on_sets",
    "score_many",
    "shown",
    "train_convnets",
    "train_gcn",
    "train_many",
    "train_networks",
    "truth",
]
