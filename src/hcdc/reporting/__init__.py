"""Tables, sentences, figures and one HTML page, from evaluations and condensed files only."""

from hcdc.reporting._evaluations import (
    belongs,
    evaluations_of,
    read_evaluation,
    short_names,
)
from hcdc.reporting._figures import (
    draw_agreement,
    draw_cost,
    draw_rank_colours,
    draw_scatter,
    rank_colours,
    write_figures,
)
from hcdc.reporting._images import draw_images, image_grid
from hcdc.reporting._page import report, write_report
from hcdc.reporting._table import COLUMNS, Column, Row, summary_table
from hcdc.reporting._words import findings, payment, validation_choice

__all__ = [
    "COLUMNS",
    "Column",
    "Row",
    "belongs",
    "draw_agreement",
    "draw_cost",
    "draw_images",
    "draw_rank_colours",
    "draw_scatter",
    "evaluations_of",
    "findings",
    "image_grid",
    "payment",
    "rank_colours",
    "read_evaluation",
    "report",
    "short_names",
    "summary_table",
    "validation_choice",
    "write_figures",
    "write_report",
]
