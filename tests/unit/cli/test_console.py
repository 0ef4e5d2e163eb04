"""Printed text contains no control sequences, whatever its source."""

from __future__ import annotations

from io import StringIO

from rich.table import Table
from rich.text import Text

from sweep_tasks.cli.command import Console, escape

NASTY = "a\x1b[2J\u202eb"


def test_control_characters_are_escaped_at_any_position() -> None:
    out = StringIO()
    shown = Table("text")
    shown.add_row(NASTY)
    for each in (NASTY, Text(NASTY), shown):
        Console(file=out, soft_wrap=True).print(each)
    assert out.getvalue().count("a\\x1b") == 3
    assert [each for each in out.getvalue() if not each.isprintable() and each != "\n"] == []


def test_a_field_is_one_line_without_markup() -> None:
    assert escape("a\n\tb [red]c\x1b") == "a b \\[red]c\\x1b"
