"""The page as Markdown. Pure: recorded results in, text out."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping

from benchmarks.page.charts import Bars, Lines
from benchmarks.page.sections import SECTIONS, Section, Table
from benchmarks.shared.goals import Goal
from benchmarks.shared.recorded import Machine, Recorded

IMAGES = "images/benchmarks"
"""Relative to the page."""
_INTRODUCTION = """\
# Benchmarks

What was measured, on which machine, and which goals were held. This page is generated: `python -m benchmarks --record
benchmarks/results` measures and records, and `python -m benchmarks page` writes the page and its plots from what was
recorded. A goal is a bound for a ratio of two things that were measured in one run, or for a rate per CPU second.
"""
_NO_GOALS = "No goal was measured yet.\n"
_NO_RESULT = "No result is recorded.\n"


def page(recorded: Mapping[str, Recorded]) -> str:
    parts = [_INTRODUCTION, "## Goals\n", _goals(recorded)]
    for section in SECTIONS:
        parts.append(f"## {section.title}\n")
        parts.append(f"{wrapped(section.method)}\n")
        parts += _measured(section, recorded[section.benchmark]) if section.benchmark in recorded else [_NO_RESULT]
    return "\n".join(parts)


def charts(recorded: Mapping[str, Recorded]) -> Iterator[Bars | Lines]:
    for section in SECTIONS:
        if section.benchmark in recorded:
            yield from section.parts(recorded[section.benchmark].result)[1]


def _goals(recorded: Mapping[str, Recorded]) -> str:
    rows = [
        (goal.what, f"{goal.bound.value} {_figure(goal.goal)}", _figure(goal.measured), _held(goal))
        for section in SECTIONS
        if section.benchmark in recorded
        for goal in recorded[section.benchmark].goals
    ]
    return _table(Table(("what", "goal", "measured", "held"), rows)) if rows else _NO_GOALS


def _held(goal: Goal) -> str:
    return "yes" if goal.held else "**no**"


def _measured(section: Section, recorded: Recorded) -> Iterator[str]:
    tables, charts_of_section = section.parts(recorded.result)
    for table in tables:
        yield _table(table)
    for chart in charts_of_section:
        yield f"![{chart.title}]({IMAGES}/{chart.name}.svg)\n"
    where = f"{_machine(recorded.machine)}; measured on {recorded.date} by `python -m benchmarks {section.benchmark}`."
    yield f"{wrapped(where)}\n"


def _machine(machine: Machine) -> str:
    return (
        f"{machine.cores} cores ({machine.cpu}), {machine.memory_gb} GB of memory; {machine.system}, "
        f"Linux {machine.kernel}; Python {machine.python}, Java {machine.java}, Spark {machine.spark}, "
        f"Cassandra {machine.cassandra}"
    )


def _table(table: Table) -> str:
    lines = [table.columns, ["---"] * len(table.columns), *([_figure(cell) for cell in row] for row in table.rows)]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def _figure(value: str | float) -> str:
    """Return a figure with all digits that the benchmark printed."""
    return value if isinstance(value, str) else f"{value:,}"


def wrapped(text: str) -> str:
    return textwrap.fill(text, 120, break_long_words=False, break_on_hyphens=False)
