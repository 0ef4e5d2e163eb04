"""What the job makes of its arguments, where nothing is exported: no Spark is started here."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from spark_jobs.export_frames import ExportContext, ExportPart, reading
from spark_jobs.snapshot_export import _chosen, main
from spark_jobs.store_settings import WorkerStoreSettings
from spark_jobs.worker_errors import WorkerError
from sweep_tasks.config import load_settings
from sweep_tasks.coordination.thresholds import Thresholds
from sweep_tasks.coordination.timestamps import TimestampService
from sweep_tasks.errors import (
    EXIT_BAD_INPUT,
    EXIT_CONFLICT,
    EXIT_NOT_FOUND,
    EXIT_UNAVAILABLE,
    AlreadyExists,
    BadValue,
    NotFound,
    SnapshotSwept,
    StoreMissing,
    SweepflowError,
    UnknownTable,
)
from sweep_tasks.export.files import ExportedCells, Manifest, manifest_of
from sweep_tasks.model import SweepStrategy, TableMetadata, TableRef
from sweep_tasks.protection.catalog import ProtectionCatalog
from sweep_tasks.protection.records import Mode, Record, Target
from sweep_tasks.store import Store
from sweep_tasks.tables.catalog import Catalog
from sweep_tasks.transactions import TransactionManager
from tests.unit.spark_jobs.failing import failure_of

ORDERS = TableRef.parse("shop.orders")
AT = 200


@pytest.fixture
def swept(sqlite: Store, sqlite_url: str, monkeypatch: pytest.MonkeyPatch) -> Store:
    """Timestamps were handed out up to 100, and conservative tables swept up to 50."""
    sqlite.create_table(TableRef.parse("shop.orders"), TableMetadata())
    TimestampService(sqlite).move_past(100)
    Thresholds(sqlite).raise_strategy(SweepStrategy.CONSERVATIVE, 50)
    monkeypatch.setenv("SWEEPFLOW_STORE", sqlite_url)
    return sqlite


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """With an export of timestamp 60."""
    folder = tmp_path / "60"
    folder.mkdir()
    document = Manifest(60, ("shop.*",), {"shop.orders": ExportedCells(2, 0)}).document()
    manifest_of(folder).write_text(json.dumps(document))
    return tmp_path


@pytest.mark.parametrize(
    ("given", "kind", "exit_code", "field", "reason"),
    [
        ({"at": 40}, SnapshotSwept, EXIT_CONFLICT, None, None),
        ({"at": 101}, BadValue, EXIT_BAD_INPUT, "timestamp", "in_the_future"),
        ({"at": -1}, BadValue, EXIT_BAD_INPUT, "timestamp", "out_of_range"),
        ({"tables": ["shop.none"]}, UnknownTable, EXIT_NOT_FOUND, None, None),
        ({"tables": ["shop.*", "billing.*"]}, UnknownTable, EXIT_NOT_FOUND, None, None),
        ({"tables": ["shop.orders[61:62)"]}, BadValue, EXIT_BAD_INPUT, "tables", "has_rows"),
        ({"tables": ["shop"]}, BadValue, EXIT_BAD_INPUT, "table", "malformed"),
        ({"tables": []}, BadValue, EXIT_BAD_INPUT, "tables", "empty"),
        ({"to": "s3a://bucket/70"}, BadValue, EXIT_BAD_INPUT, "to", "not_a_folder"),
        ({"to": "{folder}/60"}, AlreadyExists, EXIT_CONFLICT, "to", None),
        ({"to": "{folder}"}, BadValue, EXIT_BAD_INPUT, "to", "not_empty"),
        ({"since": "{folder}/50"}, NotFound, EXIT_NOT_FOUND, None, None),
        ({"at": 55, "since": "{folder}/60"}, BadValue, EXIT_BAD_INPUT, "since", "too_late"),
        ("--summary /no/such/folder/s.json", BadValue, EXIT_BAD_INPUT, "summary", None),
        ("--store sqlite:////no/such/store.db", StoreMissing, EXIT_UNAVAILABLE, "store", "missing_file"),
    ],
)
def test_a_refused_export_is_one_sentence_and_leaves_no_files(
    swept: Store,
    folder: Path,
    capsys: pytest.CaptureFixture[str],
    given: dict[str, Any] | str,
    kind: type[SweepflowError],
    exit_code: int,
    field: str | None,
    reason: str | None,
) -> None:
    error = failure_of(main, arguments(folder, given))
    assert (type(error), error.exit_code, error.field, error.reason) == (kind, exit_code, field, reason)
    output = capsys.readouterr()
    assert output.err == f"error: {error}\n"
    assert len(output.err.splitlines()) == 1
    assert output.out == ""
    assert [each.parent.name for each in folder.glob("*/manifest.json")] == ["60"]


@pytest.mark.parametrize(
    ("given", "names"),
    [
        ({"at": 40}, {"at": 40, "threshold": 50}),
        ({"tables": ["shop.none"]}, {"table": TableRef("shop", "none")}),
        ({"tables": ["shop.*", "billing.*"]}, {"table": TableRef("billing", "*")}),
        ({"to": "{folder}/60"}, {"folder": "{folder}/60", "ts": 60}),
        ({"since": "{folder}/50"}, {"folder": "{folder}/50", "needed_by": None}),
    ],
)
def test_the_error_names_the_obstacle(
    swept: Store, folder: Path, given: dict[str, Any], names: dict[str, object]
) -> None:
    error = failure_of(main, arguments(folder, given))
    found = {name: getattr(error, name, error.details.get(name)) for name in names}
    expected = {
        name: Path(value.format(folder=folder)) if isinstance(value, str) else value for name, value in names.items()
    }
    assert found == expected


def test_after_a_forced_truncation_an_accepted_protection_does_not_lead_to_an_empty_export(
    protected: Store, folder: Path
) -> None:
    Catalog(protected).truncate(ORDERS, force=True)
    error = failure_of(main, arguments(folder, {"at": AT}))
    assert (type(error), error.exit_code) == (SnapshotSwept, EXIT_CONFLICT)
    assert [each.parent.name for each in folder.glob("*/manifest.json")] == ["60"]


@pytest.mark.parametrize("again", [False, True], ids=["dropped", "created again"])
def test_after_a_forced_drop_a_pattern_does_not_lead_to_an_export_without_the_table(
    protected: Store, folder: Path, again: bool
) -> None:
    """Its manifest would be valid."""
    Catalog(protected).create(TableRef.parse("shop.carts"), TableMetadata())
    Catalog(protected).drop(ORDERS, force=True)
    if again:
        Catalog(protected).create(ORDERS, TableMetadata())
    error = failure_of(main, arguments(folder, {"at": AT}))
    assert isinstance(error, SnapshotSwept)
    mark = protected.catalog_rows([ORDERS])[ORDERS].mark
    assert (error.table, error.at, error.threshold) == (ORDERS, AT, mark)
    assert [each.parent.name for each in folder.glob("*/manifest.json")] == ["60"]


def test_a_table_that_was_dropped_before_the_timestamp_is_not_part_of_an_export(protected: Store) -> None:
    carts = TableRef.parse("shop.carts")
    Catalog(protected).create(carts, TableMetadata())
    Catalog(protected).drop(ORDERS, force=True)
    at = TimestampService(protected).fresh()
    assert _chosen(protected, ("shop.*",), at) == {carts}
    assert _chosen(protected, ("shop.carts",), AT) == {carts}, "a table that is named, whatever else was dropped"


def test_an_export_during_which_a_table_is_truncated_by_force_fails(protected: Store, sqlite_url: str) -> None:
    """Between two ranges. What was read before that is complete."""
    (part,) = [ExportPart(str(ORDERS), scan_range) for scan_range in protected.scan_ranges(ORDERS, 1)]
    read = reading(ExportContext(WorkerStoreSettings.of(load_settings(store=sqlite_url)), AT, [part, part]))
    pages = read(iter([pa.RecordBatch.from_pydict({"id": [number]}) for number in range(2)]))
    assert next(pages).column("value").to_pylist() == [b"paid"]
    Catalog(protected).truncate(ORDERS, force=True)
    with pytest.raises(WorkerError) as failed:
        list(pages)
    assert isinstance(failed.value.__cause__, SnapshotSwept)


@pytest.fixture
def protected(swept: Store) -> Store:
    """With a cell, and an accepted protection."""
    with TransactionManager(swept, renew_leases=False).transaction() as tx:
        tx.put(ORDERS, b"1", b"state", b"paid")
    TimestampService(swept).move_past(AT)
    assert ProtectionCatalog(swept).protect(Record("backup", AT, Mode.AT, (Target(ORDERS),))).accepted
    return swept


def arguments(folder: Path, given: dict[str, Any] | str) -> list[str]:
    """An order that could be carried out, but for these fields or arguments."""
    fields, others = (given, []) if isinstance(given, dict) else ({}, given.split())
    order = {"tables": ["shop.*"], "at": 70, "to": "{folder}/70"} | fields
    return ["--order", json.dumps(order).replace("{folder}", str(folder)), *others]


def test_an_existing_export_is_reported_again(swept: Store, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Its timestamp need not be readable any more."""
    Thresholds(swept).raise_strategy(SweepStrategy.CONSERVATIVE, 90)
    file = folder / "summary.json"
    assert main([*arguments(folder, {"at": 60, "to": "{folder}/60"}), "--summary", str(file)]) == 0
    summary = json.loads(capsys.readouterr().out)
    assert (summary["kind"], summary["ts"], summary["puts"], summary["made"]) == ("full", 60, 2, False)
    assert json.loads(file.read_text()) == summary
