"""What a scan asks for, as conditions in SQL. Values are always parameters."""

from __future__ import annotations

from typing import Any

from sweep_tasks.model import Cell, ColumnChoice, Span

Part = tuple[str, list[Any]]
"""A condition and its parameters."""


def scan_parts(rows: Span, columns: ColumnChoice, after: Cell | None) -> list[Part]:
    """A scan as conditions that the primary key serves from their first row to their last.

    Going on in the middle of a row takes two: the rest of that row, then the rows behind it. A single comparison of
    both columns would read a wide row from its start again for every page.
    """
    chosen, choices = _within("col", columns)
    if after is None:
        where, bounds = _within("row", rows)
        return [(f"{where} AND {chosen}", bounds + choices)]
    behind, bounds = _within("row", Span(after.row + b"\0", rows.end))
    return [
        (f"row = ? AND col > ? AND {chosen}", [after.row, after.column, *choices]),
        (f"{behind} AND {chosen}", bounds + choices),
    ]


def _within(column: str, keys: ColumnChoice) -> Part:
    if not isinstance(keys, Span):
        return f"{column} IN ({', '.join('?' * len(keys))})", list(keys)
    if keys.is_one:
        return f"{column} = ?", [keys.start]
    if keys.end:
        return f"{column} >= ? AND {column} < ?", [keys.start, keys.end]
    return f"{column} >= ?", [keys.start]
