"""Readers, data sets, labelled sets of every kind, and the condensed data set with its file."""

from hcdc.datasets._budget import NO_LOADER, Effort, steps_per_epoch
from hcdc.datasets._condensed import CondensedDataset, record_path
from hcdc.datasets._dataset import Dataset, SplitData, fingerprint
from hcdc.datasets._door import NAMES, OBJECTS, register_data, reopen
from hcdc.datasets._door import load as data
from hcdc.datasets._full_data import FullData
from hcdc.datasets._graph import Graph, GraphData, Matrix, Nodes, normalise_dense
from hcdc.datasets._image_data import image_data
from hcdc.datasets._images import ImageData, Images, channel_statistics, normalised
from hcdc.datasets._labelled import Examples, LabelledSet, register_kind
from hcdc.datasets._nodes import node_data
from hcdc.datasets._table import Rows, TableData
from hcdc.datasets._trial_data import TrialData

__all__ = [
    "NAMES",
    "NO_LOADER",
    "OBJECTS",
    "CondensedDataset",
    "Dataset",
    "Effort",
    "Examples",
    "FullData",
    "Graph",
    "GraphData",
    "ImageData",
    "Images",
    "LabelledSet",
    "Matrix",
    "Nodes",
    "Rows",
    "SplitData",
    "TableData",
    "TrialData",
    "channel_statistics",
    "data",
    "fingerprint",
    "image_data",
    "node_data",
    "normalise_dense",
    "normalised",
    "record_path",
    "register_data",
    "register_kind",
    "reopen",
    "steps_per_epoch",
]
