"""Data: graphs, tables, the doors to them, the embedded graph, and the condensed data set with its file."""

from hcdc.datasets._condensed import CondensedDataset
from hcdc.datasets._door import NAMES, describe, reopen
from hcdc.datasets._door import load as data
from hcdc.datasets._graph import Graph, GraphData, Matrix, Nodes, normalise_dense
from hcdc.datasets._images import ImageData, Images, normalised
from hcdc.datasets._table import Rows, TableData

__all__ = [
    "NAMES",
    "CondensedDataset",
    "Graph",
    "GraphData",
    "ImageData",
    "Images",
    "Matrix",
    "Nodes",
    "Rows",
    "TableData",
    "data",
    "describe",
    "normalise_dense",
    "normalised",
    "reopen",
]
