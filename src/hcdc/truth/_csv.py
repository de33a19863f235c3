"""Full-data results from a CSV file."""

from __future__ import annotations

import csv
import hashlib
import math
import os
from pathlib import Path
from typing import Any

from hcdc.core.errors import InputError
from hcdc.truth._base import ListedTruth

FIGURES = ("val", "test", "seconds")


class CsvTruth(ListedTruth):
    """Results from a file with one line per configuration.

    It has one column per key of a configuration, ``val`` (the validation score, higher is better) and
    optionally ``test`` and ``seconds``, separated by commas or semicolons.

    Args:
        path: The file.
    """

    def __init__(self, path: str | os.PathLike[str]):
        self.path = Path(path)
        try:
            text = self.path.read_text(encoding="utf-8-sig")
        except (OSError, UnicodeDecodeError) as error:
            why = getattr(error, "strerror", None) or error
            raise InputError(f"the file '{self.path}' cannot be read as CSV: {why}") from error
        first = text.partition("\n")[0]
        reader = csv.DictReader(
            text.splitlines(), delimiter=";" if first.count(";") > first.count(",") else ","
        )
        names = [name.strip() for name in reader.fieldnames or ()]
        reader.fieldnames = names
        keys = [name for name in names if name not in FIGURES]
        if "val" not in names or not keys:
            raise InputError(
                f"'{self.path}' has the columns {', '.join(names) or 'none'}; it needs 'val' and one "
                "per key of a configuration, and may have 'test' and 'seconds'"
            )
        rows = []
        for line, row in enumerate(reader, 2):
            config = {key: row[key] for key in keys}
            figures = {name: self._number(row[name], name, line) for name in FIGURES if name in names}
            rows.append((config, figures))
        super().__init__(rows, f"'{self.path}'")
        self._digest = hashlib.sha256(text.encode()).hexdigest()[:16]

    def _number(self, text: str | None, name: str, line: int) -> float:
        try:
            value = float(text or "")
        except ValueError:
            value = math.nan
        if not math.isfinite(value):
            raise InputError(f"line {line} of '{self.path}': {name} is '{text}', not a finite number")
        return value

    def spec(self) -> dict[str, Any]:
        return {"name": "csv", "file": self.path.name, "rows": len(self), "content": self._digest}

    def words(self) -> str:
        return f"{self.path.name} ({len(self):,} configurations)"
