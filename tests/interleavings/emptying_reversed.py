"""Orders and rules of truncate and drop, each reversed or removed in the real code, and the broken invariant."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

import pytest

from sweep_tasks.coordination.thresholds import Announcements, TableThreshold
from sweep_tasks.model import Cell, TableMetadata, TableRef, TableState
from sweep_tasks.protection.catalog import ProtectionCatalog, ProtectionVerdict
from sweep_tasks.store.memory import MemoryStore, MemoryTable
from sweep_tasks.tables.catalog import Catalog
from sweep_tasks.transactions.commit import Committer
from sweep_tasks.transactions.outcomes import ABORTED, CommitTable
from sweep_tasks.transactions.snapshot import Snapshot
from tests.interleavings.world import TABLE

Patch = pytest.MonkeyPatch


class Reversal(NamedTuple):
    scenario: str
    """The scenario in which it is found."""
    plant: Callable[[Patch], None]
    lost_answers: int = 0


REVERSED: dict[str, Reversal] = {}


def found_in(scenario: str, lost_answers: int = 0) -> Callable[[Callable[[Patch], None]], Callable[[Patch], None]]:
    def note(plant: Callable[[Patch], None]) -> Callable[[Patch], None]:
        REVERSED[plant.__name__] = Reversal(scenario, plant, lost_answers)
        return plant

    return note


def _emptying_in_the_order(patch: Patch, order: Callable[[Catalog, TableRef, TableState, bool], TableMetadata]) -> None:
    patch.setattr(Catalog, "_empty", order)


@found_in("truncate and read twice")
def the_timestamp_is_taken_before_the_announcement(patch: Patch) -> None:
    def empty(self: Catalog, table: TableRef, state: TableState, force: bool) -> TableMetadata:
        mark = self._timestamps.fresh()
        announced = self._announce(table, state, None)
        if not force:
            self._check_unprotected(announced, table)
        decided = announced.decided(mark)
        self._store.alter_table(table, announced, decided)
        return decided

    _emptying_in_the_order(patch, empty)


@found_in("truncate and protect")
def the_protections_are_read_before_the_announcement(patch: Patch) -> None:
    def empty(self: Catalog, table: TableRef, state: TableState, force: bool) -> TableMetadata:
        while True:
            self._check_unprotected(self._metadata(table), table)
            announced = self._announce(table, state, None)
            decided = announced.decided(self._timestamps.fresh())
            if self._store.alter_table(table, announced, decided):
                return decided

    _emptying_in_the_order(patch, empty)


@found_in("truncate and protect")
def the_decision_is_not_compared_with_the_announcement(patch: Patch) -> None:
    def empty(self: Catalog, table: TableRef, state: TableState, force: bool) -> TableMetadata:
        announced = self._announce(table, state, None)
        mark = self._timestamps.fresh()
        if not force:
            self._check_unprotected(announced, table)
        decided = announced.decided(mark)
        while not self._store.alter_table(table, self._store.catalog_rows([table])[table], decided):
            pass
        return decided

    _emptying_in_the_order(patch, empty)


@found_in("truncate and protect")
def a_refused_truncation_leaves_its_mark(patch: Patch) -> None:
    def empty(self: Catalog, table: TableRef, state: TableState, force: bool) -> TableMetadata:
        announced = self._announce(table, state, None)
        decided = announced.decided(self._timestamps.fresh())
        self._store.alter_table(table, announced, decided)
        self._check_unprotected(decided, table)
        return decided

    _emptying_in_the_order(patch, empty)


@found_in("truncate and read twice")
def it_is_deleted_before_it_is_decided(patch: Patch) -> None:
    decide = Catalog._check_unprotected

    def hasty(self: Catalog, announced: TableMetadata, table: TableRef) -> None:
        self._store.truncate(table, before=self._timestamps.greatest())
        decide(self, announced, table)

    patch.setattr(Catalog, "_check_unprotected", hasty)


@found_in("truncate and read twice")
def a_reader_does_not_mind_an_announcement(patch: Patch) -> None:
    patch.setattr(Announcements, "resolve", lambda self, tables: self._thresholds.of_tables(tables))


@found_in("truncate and protect")
def a_protector_does_not_mind_an_announcement(patch: Patch) -> None:
    def look(self: ProtectionCatalog, record: Any) -> ProtectionVerdict:
        found = self._thresholds.of_tables(self._covered(record)[0]).values()
        earliest = max((each.for_readers for each in found), default=0)
        return ProtectionVerdict(True) if record.ts >= earliest else ProtectionVerdict(False, earliest)

    patch.setattr(ProtectionCatalog, "check_thresholds", look)


@found_in("truncate and protect")
def a_protector_checks_before_it_is_recorded(patch: Patch) -> None:
    begin, look = ProtectionCatalog.begin, ProtectionCatalog.check_thresholds
    checked: dict[str, ProtectionVerdict] = {}

    def early(self: ProtectionCatalog, record: Any) -> Any:
        checked[record.id] = look(self, record)
        return begin(self, record)

    patch.setattr(ProtectionCatalog, "begin", early)
    patch.setattr(ProtectionCatalog, "check_thresholds", lambda self, record: checked[record.id])


@found_in("truncate and read twice")
def a_reader_sees_what_started_below_the_mark(patch: Patch) -> None:
    check = Snapshot._check_not_swept

    def blind(self: Snapshot, *of: Any) -> Any:
        known = check(self, *of)
        return _WithoutMark(known.metadata)

    patch.setattr(Snapshot, "_check_not_swept", blind)


class _WithoutMark(NamedTuple):
    metadata: TableMetadata
    mark: int = 0


@found_in("truncate and read twice")
def a_reader_below_the_mark_is_admitted(patch: Patch) -> None:
    patch.setattr(TableThreshold, "for_readers", property(lambda self: self.swept))
    check = Snapshot._check_not_swept

    def lenient(self: Snapshot, table: TableRef, rows: Any, lone_sentinel: bool) -> Any:
        known = self._reading.announcements.resolve([table])[table]
        return check(self, table, rows, lone_sentinel) if self.at >= known.mark else _WithoutMark(known.metadata)

    patch.setattr(Snapshot, "_check_not_swept", lenient)


@found_in("drop and write")
def a_writer_does_not_mind_an_announcement(patch: Patch) -> None:
    patch.setattr(TableMetadata, "is_announced", property(lambda self: False))


@found_in("drop, create and write")
def a_writer_does_not_mind_another_incarnation(patch: Patch) -> None:
    """Also, a table that is created again has no mark of its own."""
    look = Committer._check_tables

    def blind(self: Committer, start: int, tables: Any) -> None:
        existing = self.store.tables(tables.keys())
        look(self, start, {table: existing.get(table, metadata) for table, metadata in tables.items()})

    patch.setattr(Committer, "_check_tables", blind)
    a_table_created_again_has_no_mark(patch)


@found_in("drop, create and read twice")
def a_table_created_again_has_no_mark(patch: Patch) -> None:
    create = MemoryStore.create_table

    def unmarked(
        self: MemoryStore, table: TableRef, metadata: TableMetadata, gone: TableMetadata | None = None
    ) -> bool:
        return create(self, table, replace(metadata, mark=0), gone)

    patch.setattr(MemoryStore, "create_table", unmarked)


@found_in("drop, and create and write")
def a_removal_hits_whatever_table_has_the_name(patch: Patch) -> None:
    def hit(self: MemoryStore, table: TableRef, incarnation: int) -> bool:
        found = self.contents[table]
        self.contents[table] = MemoryTable(found.metadata)
        return True

    patch.setattr(MemoryStore, "remove_table", hit)


@found_in("drop and drop")
def a_removed_table_is_active_again(patch: Patch) -> None:
    decided = TableMetadata.decided

    def revived(self: TableMetadata, mark: int) -> TableMetadata:
        found = decided(self, mark)
        return replace(found, state=TableState.ACTIVE, mark=0) if found.is_gone else found

    patch.setattr(TableMetadata, "decided", revived)


@found_in("create, and create and count")
def records_of_scans_are_read_after_the_catalog_row(patch: Patch) -> None:
    forget, scans = Catalog._forget, Catalog._scans

    def late(self: Catalog, _: Mapping[Cell, bytes]) -> None:
        forget(self, scans(self, TABLE))

    patch.setattr(Catalog, "_scans", lambda self, table: {})
    patch.setattr(Catalog, "_forget", late)


@found_in("drop and write", lost_answers=1)
def a_commit_without_an_answer_is_treated_as_an_abort(patch: Patch) -> None:
    abort = CommitTable.abort
    patch.setattr(CommitTable, "abort", lambda self, starts: dict.fromkeys(abort(self, starts), ABORTED))
