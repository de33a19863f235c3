"""Markdown tables in documents, each between ``<!-- NAME -->`` and ``<!-- /NAME -->``."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

MARKED = re.compile(r"<!-- ([\w-]+) -->\n.*?<!-- /\1 -->", re.DOTALL)


def table_text(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table."""
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    return "\n".join([*lines, *("| " + " | ".join(row) + " |" for row in rows)])


def filled(text: str, table: Callable[[str], str]) -> str:
    """The document with every marked table replaced by ``table(name)``."""

    def replaced(match: re.Match[str]) -> str:
        name = match.group(1)
        return f"<!-- {name} -->\n{table(name)}\n<!-- /{name} -->"

    return MARKED.sub(replaced, text)
