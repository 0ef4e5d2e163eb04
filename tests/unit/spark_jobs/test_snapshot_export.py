"""What the job makes of its arguments, where nothing is exported: no Spark is started here."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from spark_jobs.exports import Manifest, Written, manifest_of
from spark_jobs.snapshot_export import main
from sweep_tasks.errors import EXIT_BAD_INPUT, EXIT_CONFLICT, EXIT_NOT_FOUND, EXIT_UNAVAILABLE
from sweep_tasks.model import SweepStrategy, TableMetadata, TableRef
from sweep_tasks.store import Store
from sweep_tasks.timestamps.service import TimestampService
from sweep_tasks.timestamps.thresholds import Thresholds


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
    document = Manifest(60, ("shop.*",), {"shop.orders": Written(2, 0)}).document()
    manifest_of(folder).write_text(json.dumps(document))
    return tmp_path


@pytest.mark.parametrize(
    ("arguments", "code", "sentence"),
    [
        ("--at 40", EXIT_CONFLICT, "table: shop.orders was swept up to 50, a snapshot at 40 can no longer be read"),
        ("--at 101", EXIT_BAD_INPUT, "timestamp: 101 has not been handed out yet"),
        ("--at -1", EXIT_BAD_INPUT, "timestamp: -1 is out of range"),
        ("--tables shop.none", EXIT_NOT_FOUND, "table: shop.none does not exist"),
        ("--tables shop.*,billing.*", EXIT_NOT_FOUND, "table: billing.* does not exist"),
        ("--tables shop.orders[61:62)", EXIT_BAD_INPUT, "tables: shop.orders: whole tables are exported"),
        ("--tables shop", EXIT_BAD_INPUT, "table: 'shop' is not a table name"),
        ("--tables ,", EXIT_BAD_INPUT, "tables: names none"),
        ("--to s3a://bucket/70", EXIT_BAD_INPUT, "to: is an address; name a folder"),
        ("--to {folder}/60", EXIT_CONFLICT, "to: {folder}/60 holds another export already, of 60"),
        ("--to {folder}", EXIT_BAD_INPUT, "to: {folder} holds something that is no export"),
        ("--since {folder}/50", EXIT_NOT_FOUND, "export: there is none in {folder}/50"),
        ("--at 55 --since {folder}/60", EXIT_BAD_INPUT, "since: {folder}/60 is of 60, which is later than 55"),
        ("--summary /no/such/folder/s.json", EXIT_BAD_INPUT, "summary: /no/such/folder/s.json can't be written"),
        ("--store sqlite:////no/such/store.db", EXIT_UNAVAILABLE, "store: "),
    ],
)
def test_what_can_not_be_exported_is_one_sentence_and_leaves_no_export(
    swept: Store, folder: Path, capsys: pytest.CaptureFixture[str], arguments: str, code: int, sentence: str
) -> None:
    given = ["--tables", "shop.*", "--at", "70", "--to", f"{folder}/70", *arguments.format(folder=folder).split()]
    assert main(given) == code
    said = capsys.readouterr()
    assert said.err.startswith(f"error: {sentence.format(folder=folder)}"), said.err
    assert len(said.err.splitlines()) == 1
    assert said.out == ""
    assert [each.parent.name for each in folder.glob("*/manifest.json")] == ["60"]


def test_an_export_that_is_there_is_told_about_again(
    swept: Store, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its timestamp need not be readable any more."""
    Thresholds(swept).raise_strategy(SweepStrategy.CONSERVATIVE, 90)
    file = folder / "summary.json"
    arguments = ["--tables", "shop.*", "--at", "60", "--to", f"{folder}/60", "--summary", str(file)]
    assert main(arguments) == 0
    summary = json.loads(capsys.readouterr().out)
    assert (summary["kind"], summary["ts"], summary["puts"], summary["made"]) == ("full", 60, 2, False)
    assert json.loads(file.read_text()) == summary
