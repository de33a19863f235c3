"""How far the ranking of a stand-in can be believed, from few candidates with both scores."""

from hcdc.core.trusted import Cut, DimensionTrust, Estimate, Trust
from hcdc.evaluation.trust._agreement import FEWEST, LEVEL, agreement, judge
from hcdc.evaluation.trust._dimensions import columns, dimension_agreement
from hcdc.evaluation.trust._intervals import RankEstimate, nearest_weights, rank_estimate

__all__ = [
    "FEWEST",
    "LEVEL",
    "Cut",
    "DimensionTrust",
    "Estimate",
    "RankEstimate",
    "Trust",
    "agreement",
    "columns",
    "dimension_agreement",
    "judge",
    "nearest_weights",
    "rank_estimate",
]
