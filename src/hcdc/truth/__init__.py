"""Full-data results behind one protocol: trained and cached, a table, a finished study, a CSV file."""

from hcdc.truth._base import Truth, check_truth, full_scores
from hcdc.truth._csv import CsvTruth
from hcdc.truth._nasbench201 import COLUMNS, NASBench201Table, NATSBench
from hcdc.truth._study import StudyTruth
from hcdc.truth._table import BENCHMARKS, TableTruth
from hcdc.truth._trained import TrainedTruth, cache_folder

__all__ = [
    "BENCHMARKS",
    "COLUMNS",
    "CsvTruth",
    "NASBench201Table",
    "NATSBench",
    "StudyTruth",
    "TableTruth",
    "TrainedTruth",
    "Truth",
    "cache_folder",
    "check_truth",
    "full_scores",
]
