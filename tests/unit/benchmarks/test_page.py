"""The page of benchmark results: written from recorded results, and from nothing else.

The samples are results of benchmarks at small sizes.
"""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import pytest

from benchmarks.__main__ import NAMES
from benchmarks.page.charts import Bars, Lines, drawn
from benchmarks.page.files import DOCS, write_page
from benchmarks.page.markdown import IMAGES, charts, page
from benchmarks.page.sections import SECTIONS
from benchmarks.shared.recorded import RESULTS, Machine, Recorded, load_all

SAMPLES = load_all(Path(__file__).parent / "samples")
MACHINE = Machine(2, "some CPU", 24, "some Linux", "6.1.0", "3.11.7", "17.0.1", "4.2.0", "5.0.9")
GOALS = [
    {"what": "fast", "measured": 0.95, "bound": "at most", "goal": 1.1},
    {"what": "faster", "measured": 1.2, "bound": "at most", "goal": 1.1},
    {"what": "many", "measured": 2.5, "bound": "at least", "goal": 2},
]
STARTS = {
    "processor_seconds": {"python": 0.01, "help": 0.05, "status": 0.4, "connect": 0.3},
    "help": 5.0,
    "status": 40.0,
    "connect": 30.0,
    "goals": GOALS,
}


@pytest.fixture
def recorded() -> Recorded:
    return Recorded("command_start", "2026-11-02", MACHINE, STARTS)


# --- the page in the documentation ------------------------------------------------------------------------------------


def test_the_page_is_what_the_recorded_results_say() -> None:
    recorded = load_all(RESULTS)
    assert (DOCS / "benchmarks.md").read_text(encoding="utf-8") == page(recorded), "run: python -m benchmarks page"
    plots = {file.stem for file in (DOCS / IMAGES).glob("*.svg")}
    assert plots == {chart.name for chart in charts(recorded)}


def test_every_benchmark_has_a_section_with_a_method_in_two_sentences() -> None:
    assert sorted(section.benchmark for section in SECTIONS) == NAMES
    assert {section.benchmark: len(re.findall(r"[.](?: |$)", section.method)) for section in SECTIONS} == dict.fromkeys(
        (section.benchmark for section in SECTIONS), 2
    )


# --- writing it -------------------------------------------------------------------------------------------------------


def test_a_goal_is_shown_with_what_was_measured_and_whether_it_was_held(recorded: Recorded) -> None:
    rows = page({recorded.benchmark: recorded}).splitlines()
    assert "| fast | at most 1.1 | 0.95 | yes |" in rows
    assert "| faster | at most 1.1 | 1.2 | **no** |" in rows
    assert "| many | at least 2 | 2.5 | yes |" in rows


def test_a_section_names_the_machine_and_the_date(recorded: Recorded) -> None:
    text = " ".join(page({recorded.benchmark: recorded}).split())
    assert "2 cores (some CPU), 24 GB of memory; some Linux, Linux 6.1.0; Python 3.11.7, Java 17.0.1" in text
    assert "measured on 2026-11-02 by `python -m benchmarks command_start`" in text
    assert text.count("measured on") == 1


def test_a_benchmark_without_a_result_says_so(recorded: Recorded) -> None:
    text = page({recorded.benchmark: recorded})
    assert text.count("No result is recorded.") == len(SECTIONS) - 1
    assert "No goal was measured yet." not in text
    assert "No goal was measured yet." in page({})


@pytest.mark.parametrize("name", NAMES)
def test_every_figure_of_a_table_was_printed_by_the_benchmark(name: str) -> None:
    sample = SAMPLES[name]
    (section,) = [section for section in SECTIONS if section.benchmark == name]
    tables, plots = section.parts(sample.result)
    shown = [cell for table in tables for row in table.rows for cell in row if not isinstance(cell, str)]
    shown += [value for plot in plots for values in plot.series.values() for value in values if value is not None]
    printed = figures(sample.result) | ({1} if name == "command_start" else set())
    assert shown
    assert set(shown) - printed == set()
    assert all(len(row) == len(table.columns) for table in tables for row in table.rows)


def figures(document: object) -> set[float]:
    """Return all numbers of a document. Some keys are numbers, such as of writers at once."""
    if isinstance(document, dict):
        keys = {float(key) for key in document if key.isdigit()}
        return keys.union(*(figures(each) for each in document.values()))
    if isinstance(document, list):
        return set().union(*(figures(each) for each in document))
    return {document} if isinstance(document, int | float) else set()


def test_a_page_has_its_plots_and_only_those(tmp_path: Path, recorded: Recorded) -> None:
    old = tmp_path / "docs" / IMAGES / "old.svg"
    old.parent.mkdir(parents=True)
    old.write_text("old")
    recorded.store(tmp_path / "results")
    written = write_page(tmp_path / "results", tmp_path / "docs")
    assert [file.name for file in written] == ["command_start.svg", "benchmarks.md"]
    assert not old.exists()
    for image in re.findall(r"!\[.+?\]\((.+?)\)", written[-1].read_text()):
        assert (tmp_path / "docs" / image).is_file()


# --- plots ------------------------------------------------------------------------------------------------------------

BARS = Bars("bars", "Some bars", "seconds", {"ours": [1.5, None], "theirs": [2, 3]}, 2.5, labels=["few", "many"])
LINES = Lines("lines", "Some lines", "ratio", {"SQLite": [3.5, 7]}, x=[1_000, 10_000], x_unit="cells", logarithmic=True)


@pytest.mark.parametrize("chart", [BARS, LINES])
def test_a_plot_is_the_same_whenever_it_is_drawn(chart: Bars | Lines) -> None:
    assert drawn(chart) == drawn(chart)
    assert not re.search(r"<metadata|<dc:date|matplotlib\.org", drawn(chart))


def test_a_plot_shows_its_figures_and_its_goal_as_text() -> None:
    shown = texts(drawn(BARS))
    assert {"Some bars", "seconds", "few", "many", "1.5", "2", "3", "ours", "theirs", "goal: 2.5"} <= shown
    assert {"Some lines", "cells", "1,000", "10,000", "3.5", "7"} <= texts(drawn(LINES))


def test_a_plot_has_a_ground_of_its_own_and_loads_nothing() -> None:
    """So it is readable on light and on dark pages."""
    drawing = drawn(replace(BARS, goal=None))
    assert drawing.count("fill: #ffffff") >= 1
    assert not re.search(r"<(?:script|image)|@import|@font-face", drawing)


def texts(drawing: str) -> set[str]:
    root = ElementTree.fromstring(drawing)  # noqa: S314 (drawn here)
    return {text.strip() for text in root.itertext() if text.strip()}
