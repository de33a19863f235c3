"""Tables, sentences, figures and an HTML page, made only from evaluations, searches and condensed files."""

from hcdc.reporting._counts import counts_figure, draw_counts
from hcdc.reporting._evaluations import belongs, evaluations_of, read_evaluation, short_names
from hcdc.reporting._figures import (
    draw_agreement,
    draw_cost,
    draw_rank_colours,
    draw_scatter,
    new_figure,
    plain,
    rank_colours,
    write_figure,
    write_figures,
)
from hcdc.reporting._found import RUNG_HEADINGS, read_found, rung_cells
from hcdc.reporting._found_figures import random_curve
from hcdc.reporting._found_page import write_search_report
from hcdc.reporting._images import draw_images, image_grid
from hcdc.reporting._page import write_report
from hcdc.reporting._report import report
from hcdc.reporting._table import COLUMNS, Column, Row, summary_table
from hcdc.reporting._words import findings, payment, validation_choice

__all__ = [
    "COLUMNS",
    "RUNG_HEADINGS",
    "Column",
    "Row",
    "belongs",
    "counts_figure",
    "draw_agreement",
    "draw_cost",
    "draw_counts",
    "draw_images",
    "draw_rank_colours",
    "draw_scatter",
    "evaluations_of",
    "findings",
    "image_grid",
    "new_figure",
    "payment",
    "plain",
    "random_curve",
    "rank_colours",
    "read_evaluation",
    "read_found",
    "report",
    "rung_cells",
    "short_names",
    "summary_table",
    "validation_choice",
    "write_figure",
    "write_figures",
    "write_report",
    "write_search_report",
]
