"""Releasing a protection on the page."""

from __future__ import annotations

from typing import Any, NamedTuple, cast

import pytest
from fastapi import Request

from sweep_tasks.errors import NotFound
from sweep_tasks.metrics.samples import history
from sweep_tasks.metrics.tally import Tally
from sweep_tasks.model import TableMetadata, TableRef
from sweep_tasks.protection.catalog import ProtectionCatalog
from sweep_tasks.protection.records import Mode, Record, Target
from sweep_tasks.store import Store
from sweep_tasks.web.action_routes import release
from sweep_tasks.web.rights import new_form

TABLE = TableRef.parse("app.items")


class Ada(NamedTuple):
    def get_name(self) -> str:
        return "ada"


def press(record: str, version: int) -> None:
    request = Request({"type": "http", "root_path": "/sweepflow", "path": "/protections/release", "headers": []})
    release(request, cast(Any, Ada()), new_form(), record, version, "no longer needed")


def test_every_outcome_is_counted_in_the_store(sqlite: Store, sqlite_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SWEEPFLOW_STORE", sqlite_url)
    sqlite.create_table(TABLE, TableMetadata())
    ProtectionCatalog(sqlite).protect(Record("backup", 5, Mode.AT, (Target(TABLE),)))
    (record,) = ProtectionCatalog(sqlite).records()
    press("backup", record.version)
    with pytest.raises(NotFound):
        press("backup", record.version)
    (series,) = Tally(sqlite).read().series
    assert series.sums == {"release.ok": 1, "release.refused": 1}
    assert {run.dag for run in history(sqlite).runs} == {"page"}
