"""`hcdc.report`: the page about evaluations or about a search."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from hcdc.core.found import Found
from hcdc.core.results import Evaluation
from hcdc.reporting._found_page import write_search_report
from hcdc.reporting._page import write_report


def report(
    result: Evaluation | Sequence[Evaluation] | Found, path: str | os.PathLike[str] = "report.html"
) -> Path:
    """Write the page about evaluations from `hcdc.evaluate` or a search from `hcdc.search`; its path."""
    if isinstance(result, Found):
        return write_search_report(result, path)
    return write_report([result] if isinstance(result, Evaluation) else result, path)
