"""Writes the page and its plots into the documentation."""

from __future__ import annotations

from pathlib import Path

from benchmarks.page.charts import drawn
from benchmarks.page.markdown import IMAGES, charts, page
from benchmarks.shared.recorded import load_all

DOCS = Path(__file__).parents[2] / "docs"
PAGE = "benchmarks.md"


def write_page(results: Path, docs: Path = DOCS) -> list[Path]:
    """Write the page, replace its plots, and return the files."""
    recorded = load_all(results)
    images = docs / IMAGES
    images.mkdir(parents=True, exist_ok=True)
    for old in images.glob("*.svg"):
        old.unlink()
    written = {images / f"{chart.name}.svg": drawn(chart) for chart in charts(recorded)}
    written[docs / PAGE] = page(recorded)
    for file, text in written.items():
        file.write_text(text, encoding="utf-8")
    return list(written)
