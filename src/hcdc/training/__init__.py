"""Training one candidate or many: jobs, and the engines that train and score them."""

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
from hcdc.training._engine import (
    ENGINES,
    Engine,
    Groups,
    engine_of,
    predictors,
    register_engine,
    run_candidates,
    score,
    train,
)
from hcdc.training._fits import Fits
from hcdc.training._gcn import GCNRecipe, gcn_accuracy, gcn_inputs, gcn_logits, train_gcn
from hcdc.training._job import Job, Predictor, Result, group_by_recipe
from hcdc.training._lanes import Lanes
from hcdc.training._many import (
    Scores,
    init_many,
    score_many,
    train_many,
)
from hcdc.training._networks import train_networks
from hcdc.training._optimizers import adam_step
from hcdc.training._streams import Streams

__all__ = [
    "ENGINES",
    "Adam",
    "Augmentation",
    "Captured",
    "CapturedMany",
    "ConvNetRecipe",
    "Engine",
    "Fits",
    "GCNRecipe",
    "Groups",
    "Job",
    "Lanes",
    "Predictor",
    "Result",
    "Scores",
    "Streams",
    "adam_step",
    "augment",
    "augment_back",
    "augment_each",
    "convnet_accuracy",
    "draw_augmentation",
    "draw_each",
    "embeddings",
    "engine_of",
    "gcn_accuracy",
    "gcn_inputs",
    "gcn_logits",
    "group_by_recipe",
    "init_many",
    "predictors",
    "recorded",
    "register_engine",
    "run_candidates",
    "score",
    "score_many",
    "shown",
    "train",
    "train_convnets",
    "train_gcn",
    "train_many",
    "train_networks",
]
