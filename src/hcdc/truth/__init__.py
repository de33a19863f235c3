"""Full-data results behind one protocol: trained and cached, a table, a study, a CSV file, a surrogate."""

from hcdc.truth._base import ListedTruth, Truth, check_truth, full_scores
from hcdc.truth._csv import CsvTruth
from hcdc.truth._nasbench201 import COLUMNS, NASBench201Table, NATSBench
from hcdc.truth._nasbench_graph import GRAPH_COLUMNS, GRAPHS, NASBenchGraphTable, NASBenchGraphTruth
from hcdc.truth._study import StudyTruth
from hcdc.truth._surrogate import Surrogate
from hcdc.truth._table import BENCHMARKS, TableTruth
from hcdc.truth._trained import TrainedTruth, cache_folder

__all__ = [
    "BENCHMARKS",
    "COLUMNS",
    "GRAPHS",
    "GRAPH_COLUMNS",
    "CsvTruth",
    "ListedTruth",
    "NASBench201Table",
    "NASBenchGraphTable",
    "NASBenchGraphTruth",
    "NATSBench",
    "StudyTruth",
    "Surrogate",
    "TableTruth",
    "TrainedTruth",
    "Truth",
    "cache_folder",
    "check_truth",
    "full_scores",
]
