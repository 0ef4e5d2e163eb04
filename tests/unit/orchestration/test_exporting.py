from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from spark_jobs.orders import ExportOrder, ExportSummary
from sweep_tasks.config import Settings
from sweep_tasks.errors import BadValue
from sweep_tasks.export.files import ExportedCells, Manifest, manifest_of
from sweep_tasks.orchestration.exporting import (
    SnapshotExportOperator,
    export_folder,
    export_form,
    order_of,
    readable,
)
from tests.support.lines import values_in


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """With exports of shop.* at 100 and 200."""
    for ts in (100, 200):
        (tmp_path / f"{ts:019d}").mkdir()
        document = Manifest(ts, ("shop.*",), {"shop.orders": ExportedCells(1, 0)}).document()
        manifest_of(tmp_path / f"{ts:019d}").write_text(json.dumps(document))
    return tmp_path


def test_an_export_is_an_increment_since_the_last_one_of_the_same_tables(folder: Path) -> None:
    to, since = folder / f"{300:019d}", folder / f"{200:019d}"
    order = order_of(folder, ["shop.*"], 300, full=False)
    assert order == ExportOrder(("shop.*",), 300, to, since)
    assert ExportOrder.parse(order.document()) == order


@pytest.mark.parametrize(("tables", "full"), [(["shop.*"], True), (["shop.*", "billing.*"], False)])
def test_it_is_a_full_one_if_that_is_asked_for_or_there_is_none_before(
    folder: Path, tables: list[str], full: bool
) -> None:
    assert order_of(folder, tables, 300, full=full) == ExportOrder(tuple(tables), 300, folder / f"{300:019d}")


def test_a_second_attempt_does_not_build_on_the_first(folder: Path) -> None:
    """What the first has finished is found by the job itself."""
    order = order_of(folder, ["shop.*"], 200, full=False)
    assert (order.to, order.since) == (folder / f"{200:019d}", folder / f"{100:019d}")


def test_the_form_begins_with_the_tables_of_the_settings() -> None:
    form = export_form(Settings(export_tables=("shop.*", "billing.bills")))
    assert (form["tables"].value, form["full"].value) == ("shop.*, billing.bills", False)


def test_a_folder_must_be_named() -> None:
    with pytest.raises(BadValue) as refused:
        export_folder(Settings())
    assert refused.value.field == "setting export_folder"
    assert export_folder(Settings(export_folder=Path("exports"))).is_absolute()


def test_no_argument_of_a_task_carries_the_store(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SWEEPFLOW_STORE", "sqlite:////very/secret.db")
    task = SnapshotExportOperator(task_id="export", at=7)
    assert "secret" not in str({name: getattr(task, name) for name in task.template_fields})


def test_a_summary_is_a_readable_line() -> None:
    summary = ExportSummary(
        kind="increment", ts=9, folder="/x/9", since="../7", tables={"a.b": {}, "a.c": {}},
        puts=12, deletes=3, files=2, made=True, seconds={"writing": 1.25, "counting": 0.25},
    )  # fmt: skip
    assert ExportSummary.parse(summary.document()) == summary
    line = readable(summary)
    assert line.startswith("increment ")
    assert values_in(line) == ["../7", "12", "3", "2", "9", "/x/9", "1.5"]
    line = readable(replace(summary, kind="full", since=None, deletes=0, made=False))
    assert line.startswith("full ")
    assert values_in(line) == ["12", "2", "9", "/x/9"], "nothing was deleted, and it took no time: it was there"
