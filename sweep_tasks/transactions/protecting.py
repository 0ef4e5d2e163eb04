"""Protections that a transaction makes and releases: they stand or fall with its commit.

What is made holds at once, as pending, and names the transaction; it is verified before the commit is decided. What is
released is announced before that, and holds until it is. If we die in between, the commit table tells how it ended, and
whoever reconciles finishes what we began.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import structlog

from sweep_tasks.errors import AlreadySwept, NotFound, StoreError
from sweep_tasks.protection.catalog import ProtectionCatalog
from sweep_tasks.protection.metrics import counted
from sweep_tasks.protection.records import Record

log = structlog.get_logger(__name__)


class Protecting:
    def __init__(self, catalog: ProtectionCatalog, start: int) -> None:
        self._catalog = catalog
        self._start = start
        self._made: list[Record] = []
        self._to_release: list[str] = []
        self._announced: list[Record] = []

    def __bool__(self) -> bool:
        return bool(self._made or self._to_release)

    def protect(self, record: Record) -> None:
        with counted("protect"):
            made = self._catalog.begin(replace(record, transaction=self._start))
            self._made.append(made)
            self._check(made)

    def release(self, record_id: str) -> None:
        """Asked for now, so that a wrong name fails here and not at the commit."""
        ours = [made for made in self._made if made.id == record_id]
        if ours:
            self._catalog.drop(ours[0])
            self._made.remove(ours[0])
        elif record_id not in self._to_release:
            self._catalog.get(record_id)
            self._to_release.append(record_id)

    def prepare(self) -> None:
        """The last step before the commit is decided. Whatever sweep publishes later reads the records later."""
        for record_id in self._to_release:
            with counted("release"):
                self._announced.append(self._catalog.announce_release(record_id, self._start))
        for made in self._made:
            self._check(made)

    def committed(self) -> None:
        self._finish(self._catalog.accept, self._made)
        self._finish(self._catalog.drop, self._announced)

    def aborted(self) -> None:
        self._finish(self._catalog.drop, self._made)
        self._finish(self._catalog.keep, self._announced)

    def _check(self, made: Record) -> None:
        verdict = self._catalog.look(made)
        if verdict.earliest is not None:
            raise AlreadySwept(made.ts, verdict.earliest)

    def _finish(self, step: Callable[[Record], None], records: list[Record]) -> None:
        for record in records:
            try:
                step(record)
            except NotFound:
                log.info("a protection was released by somebody else meanwhile", record=record.id)
            except StoreError as error:
                log.warning("a protection is left for reconciling", record=record.id, reason=error.code)
