"""What a transaction refuses to write or to name, and that nothing is changed by it."""

from __future__ import annotations

import pytest

from sweep_tasks.config import Settings
from sweep_tasks.errors import BadValue, UnknownTable
from sweep_tasks.model import Cell, Span, TableRef
from sweep_tasks.store import Store
from sweep_tasks.transactions import TransactionManager

R, C = b"row", b"col"


@pytest.mark.parametrize(
    ("row", "column", "value", "field", "reason"),
    [
        (b"", C, b"v", "row", "empty"),
        (R, b"", b"v", "column", "empty"),
        (b"r" * 1501, C, b"v", "row", "too_long"),
        (R, b"c" * 1501, b"v", "column", "too_long"),
        (R, C, b"", "value", "empty"),
        (R, C, b"v" * 101, "value", "too_long"),
        ("text", C, b"v", "row", "wrong_type"),
        (R, C, "text", "value", "wrong_type"),
    ],
)
def test_what_cannot_be_stored_is_named_and_changes_nothing(
    store: Store, table: TableRef, row: bytes, column: bytes, value: bytes, field: str, reason: str
) -> None:
    manager = TransactionManager(store, Settings(max_value_bytes=100), renew_leases=False)
    tx = manager.transaction()
    with pytest.raises(BadValue) as refused:
        tx.put(table, row, column, value)
    assert (refused.value.field, refused.value.reason) == (field, reason)
    tx.put(table, R, C, b"v" * 100)
    tx.commit()
    assert len(store.scan_versions(table).items) == 1


def test_an_unknown_table_is_named_at_once(manager: TransactionManager) -> None:
    tx = manager.transaction()
    for use in (
        lambda: tx.get("app.nowhere", R, C),
        lambda: tx.put("app.nowhere", R, C, b"v"),
        lambda: tx.delete("app.nowhere", R, C),
        lambda: list(tx.scan("app.nowhere")),
    ):
        with pytest.raises(UnknownTable) as unknown:
            use()
        assert unknown.value.table == TableRef.parse("app.nowhere")


@pytest.mark.parametrize("name", ["items", "app.", ".items", "app.it ems", "app.é", "a.b.c", "app.x!", "sweep.x"])
def test_a_bad_table_name_is_explained(manager: TransactionManager, name: str) -> None:
    with pytest.raises(BadValue) as refused:
        manager.transaction().put(name, R, C, b"v")
    assert refused.value.field == "table"


def test_no_row_column_or_value_shows_in_a_repr() -> None:
    shown = repr((Cell(b"secret-row", b"secret-col"), Span(b"secret-a", b"secret-b")))
    assert "secret" not in shown
