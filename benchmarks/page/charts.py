"""Charts as values, and drawing them as SVG.

A drawing depends only on its chart: no date, no random names. Its text and its lines are on a light ground of its own,
so that it is readable on light and on dark pages.
"""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure

_INCHES = (6.4, 3.4)
_COLOURS = ("#2f6fbb", "#bf8700", "#2da44e", "#8250df", "#cf222e")
_GROUND, _INK, _GRID, _GOAL = "#ffffff", "#1f2328", "#d0d7de", "#cf222e"
_STYLE: dict[Any, Any] = {
    "svg.hashsalt": "sweepflow",
    "svg.fonttype": "none",
    "font.family": "sans-serif",
    "font.size": 9,
    "text.color": _INK,
    "axes.labelcolor": _INK,
    "axes.edgecolor": _GRID,
    "xtick.color": _INK,
    "ytick.color": _INK,
    "figure.facecolor": _GROUND,
    "savefig.facecolor": _GROUND,
    "axes.facecolor": _GROUND,
}
_NO_METADATA = {"Creator": None, "Date": None, "Format": None, "Type": None}
_GROUP_WIDTH = 0.8
_LEGEND_COLUMNS = 3

Values = Sequence[float | None]


@dataclass(frozen=True)
class Chart:
    """What bars and lines have in common. A value that is None is left out."""

    name: str
    """The name of its file, without the ending."""
    title: str
    unit: str
    series: Mapping[str, Values]
    goal: float | None = None
    """A line across the chart."""
    goal_name: str = "goal"
    logarithmic: bool = False


@dataclass(frozen=True)
class Bars(Chart):
    labels: Sequence[str] = ()


@dataclass(frozen=True)
class Lines(Chart):
    x: Sequence[float] = ()
    x_unit: str = ""


def drawn(chart: Bars | Lines) -> str:
    """Return the SVG."""
    with mpl.rc_context(_STYLE):
        figure = Figure(figsize=_INCHES, layout="constrained")
        FigureCanvasSVG(figure)
        axes = figure.add_subplot()
        if isinstance(chart, Bars):
            _draw_bars(axes, chart)
        else:
            _draw_lines(axes, chart)
        _decorate(figure, axes, chart)
        buffer = io.StringIO()
        figure.savefig(buffer, format="svg", metadata=_NO_METADATA)
    return "".join(f"{line.rstrip()}\n" for line in buffer.getvalue().splitlines())


def _draw_bars(axes: Axes, chart: Bars) -> None:
    width = _GROUP_WIDTH / len(chart.series)
    for number, (name, values) in enumerate(chart.series.items()):
        offset = (number - (len(chart.series) - 1) / 2) * width
        present = [(position + offset, value) for position, value in enumerate(values) if value is not None]
        places, heights = [place for place, _ in present], [height for _, height in present]
        bars = axes.bar(places, heights, width, label=name, color=_COLOURS[number])
        axes.bar_label(bars, labels=[f"{height:,}" for height in heights], fontsize=7, padding=1)
    axes.set_xticks(range(len(chart.labels)), chart.labels)
    axes.margins(y=0.15)


def _draw_lines(axes: Axes, chart: Lines) -> None:
    for number, (name, values) in enumerate(chart.series.items()):
        present = [(x, value) for x, value in zip(chart.x, values, strict=True) if value is not None]
        axes.plot(*_columns(present), marker="o", label=name, color=_COLOURS[number])
        for x, value in present:
            axes.annotate(f"{value:,}", (x, value), (0, 5), textcoords="offset points", ha="center", fontsize=7)
    axes.set_xscale("log")
    axes.set_xlabel(chart.x_unit)
    axes.set_xticks(list(chart.x), [f"{x:,}" for x in chart.x])
    axes.minorticks_off()
    axes.margins(x=0.1, y=0.15)


def _columns(points: Sequence[tuple[float, float]]) -> tuple[list[float], list[float]]:
    return [x for x, _ in points], [y for _, y in points]


def _decorate(figure: Figure, axes: Axes, chart: Bars | Lines) -> None:
    if chart.logarithmic:
        axes.set_yscale("log")
        axes.tick_params(axis="y", which="minor", left=False, labelleft=False)
    else:
        axes.set_ylim(bottom=0)
    if chart.goal is not None:
        axes.set_ylim(top=max(axes.get_ylim()[1], 1.1 * chart.goal))
        axes.axhline(chart.goal, color=_GOAL, linestyle="--", linewidth=1, label=f"{chart.goal_name}: {chart.goal:,}")
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:,g}")
    axes.set_title(chart.title, fontsize=10)
    axes.set_ylabel(chart.unit)
    axes.grid(axis="y", color=_GRID, linewidth=0.5)
    axes.set_axisbelow(True)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    handles, labels = axes.get_legend_handles_labels()
    if len(labels) > 1:
        figure.legend(handles, labels, loc="outside lower center", ncols=_LEGEND_COLUMNS, fontsize=8, frameon=False)
