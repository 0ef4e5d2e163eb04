"""The public API: a handle on a store, for applications, jobs and scripts.

    with sweep_tasks.connect("sqlite:///shop.db") as db:
        with db.transaction() as tx:
            tx.put("shop.orders", b"order-1", b"state", b"paid")

The handle joins what the packages below it offer; it has no rules of its own. Threads may share it. After a `fork` both
processes may go on using it: each opens its own connections. Transactions belong to the process that began them.

Once a store is open, nothing is imported: a child that is forked while a thread of its parent imports a module could
never import it, because the lock of that import is never released there.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from datetime import datetime
from enum import StrEnum
from typing import Any, Literal, NamedTuple, TypeVar, overload

import pendulum
import tenacity  # noqa: F401 (imported on first use elsewhere, which is too late here)
from pydantic import BaseModel

from sweep_tasks.clock import SystemClock
from sweep_tasks.config import Settings, load_settings
from sweep_tasks.connections import open_store
from sweep_tasks.coordination.thresholds import TableThreshold
from sweep_tasks.diagnosis.explain import explain_cell, explain_table
from sweep_tasks.diagnosis.explanation import CellExplanation, QueueExplanation
from sweep_tasks.diagnosis.status import Status
from sweep_tasks.diagnosis.status import status as read_status
from sweep_tasks.errors import BadValue, StoreError
from sweep_tasks.journal.actors import acting_for
from sweep_tasks.legacy.progress import forget_dropped
from sweep_tasks.logs import log_to_application
from sweep_tasks.metrics.samples import tally_sweeps
from sweep_tasks.metrics.tally import LIBRARY
from sweep_tasks.model import ConflictHandling, SweepStrategy, TableMetadata, TableRef
from sweep_tasks.protection.catalog import ProtectionCatalog, Tracker
from sweep_tasks.protection.ledger import ProtectionMetadata
from sweep_tasks.protection.protecting import AnyTarget, create_record, new_record
from sweep_tasks.protection.records import Mode, Record
from sweep_tasks.queue.progress import QUEUES
from sweep_tasks.store import Store, initialise_store
from sweep_tasks.sweep.order import SweepOptions, checked_swept
from sweep_tasks.sweep.run import Sweeper
from sweep_tasks.sweep.summary import Summary
from sweep_tasks.tables.catalog import Catalog
from sweep_tasks.transactions import Snapshot, Transaction, TransactionManager
from sweep_tasks.transactions.snapshot import checked_cell

T = TypeVar("T")
Table = TableRef | str


def connect(url: str | None = None, *, create: bool = False, **settings: Any) -> Database:
    """Open a store and return a handle on it.

    `url` is `memory:`, `sqlite:///path` or `cassandra://hosts/keyspace`; without one, the setting `store` names it.
    `create` creates the store if it does not exist, and upgrades one of an older version. Further arguments are
    settings (docs/settings.md); they take precedence over the environment and the configuration file.
    """
    _load_all()
    log_to_application()
    loaded = load_settings(**settings, **({} if url is None else {"store": url}))
    if create:
        initialise_store(loaded.store, loaded)
    return Database(open_store(loaded.store, loaded), loaded)


def _load_all() -> None:
    """Load the locale of times and build the validators, which would otherwise happen on first use."""
    pendulum.locale("en")
    for model in _models(BaseModel):
        model.model_rebuild(raise_errors=False)


def _models(base: type[BaseModel]) -> Iterator[type[BaseModel]]:
    for model in base.__subclasses__():
        if model.__module__.startswith("sweep_tasks."):
            yield model
        yield from _models(model)


class _Parts(NamedTuple):
    store: Store
    transactions: TransactionManager
    protections: ProtectionCatalog
    tables: Tables
    tracker: Tracker


class Database:
    """An open store: transactions, tables, protections, sweeps and diagnosis. Close it, or use it in a `with` block."""

    def __init__(self, store: Store, settings: Settings) -> None:
        self.settings = settings
        self._clock = SystemClock()
        protections = ProtectionCatalog(store, settings)
        self._parts: _Parts | None = _Parts(
            store,
            TransactionManager(store, settings),
            protections,
            Tables(store, settings),
            Tracker(protections, refresh_s=settings.protection_refresh_s),
        )

    @property
    def _opened(self) -> _Parts:
        if self._parts is None:
            raise StoreError(
                "store: this handle is closed; open another with sweep_tasks.connect()", field="store", reason="closed"
            )
        return self._parts

    @property
    def _store(self) -> Store:
        return self._opened.store

    @property
    def _transactions(self) -> TransactionManager:
        return self._opened.transactions

    @property
    def _protections(self) -> ProtectionCatalog:
        return self._opened.protections

    @property
    def tables(self) -> Tables:
        """The tables of the store."""
        return self._opened.tables

    @property
    def tracker(self) -> Tracker:
        """The protections as of a known moment, read again only if they have changed."""
        return self._opened.tracker

    # --- transactions ---------------------------------------------------------------------------------------------

    def transaction(self, *, read_only: bool = False) -> Transaction:
        """Begin a transaction, to be used in a `with` block: it commits at the end, and aborts on an exception.

        A read-only transaction never delays a sweep. It fails if its snapshot is swept meanwhile, and is refused on
        thorough tables.
        """
        return self._transactions.transaction(read_only=read_only)

    def run(self, work: Callable[[Transaction], T], attempts: int | None = None) -> T:
        """Run `work` in a transaction and commit it. After a conflict, or if the store is busy, it is run again."""
        return self._transactions.run(work, attempts)

    def read_at(self, ts: int) -> Snapshot:
        """Return the snapshot at a timestamp. Reads fail with `SnapshotSwept` where it was swept."""
        return self._transactions.read_at(ts)

    def fresh_timestamp(self) -> int:
        """Return a timestamp above all that were handed out before, by any process."""
        return self._transactions.timestamps.fresh()

    # --- protected timestamps -------------------------------------------------------------------------------------

    def protect(
        self,
        *targets: AnyTarget,
        id: str | None = None,  # noqa: A002 (as in `release(id)` and in the record)
        ts: int | None = None,
        mode: Mode | str = Mode.AT,
        owner: str | None = None,
        meta: Mapping[str, str] | None = None,
        expires_at: datetime | None = None,
    ) -> Record:
        """Keep what is visible at a timestamp until it is released; by default at a fresh one.

        A target is a table, a pattern such as `shop.*`, or rows of a table. With the mode `after`, what becomes visible
        later is kept too. Raises `AlreadySwept` if the timestamp is too old, `AlreadyExists` for a known id.
        """
        wanted = new_record(targets, record_id=id, mode=mode, owner=owner, meta=meta, expires_at=expires_at)
        return create_record(self._protections, wanted, self.fresh_timestamp, ts)

    def release(self, id: str, version: int | None = None) -> None:  # noqa: A002
        """Release a protection. With `version`, only if it has not changed since: otherwise `RecordChanged`."""
        self._protections.release(id, version)

    def move(self, id: str, ts: int) -> Record:  # noqa: A002
        """Move a protection to a later timestamp. It holds both until the new one is known to be safe."""
        self._protections.move(id, ts).raise_if_refused(ts)
        return self._protections.get(id)

    def protections(self) -> list[Record]:
        """Return all protections as they are now."""
        return self._protections.records()

    def protection(self, id: str) -> Record:  # noqa: A002
        """Return one protection."""
        return self._protections.get(id)

    def protection_state(self) -> tuple[ProtectionMetadata, list[Record]]:
        """Return the version and the counts of the protections, and all of them, as of the same moment."""
        return self._protections.state()

    def protection_metadata(self) -> ProtectionMetadata:
        """Return the version and the counts of the protections, with one cheap read."""
        return self._protections.metadata()

    # --- sweeping -------------------------------------------------------------------------------------------------

    def sweep(
        self,
        strategies: Collection[SweepStrategy | str] | SweepStrategy | str = QUEUES,
        shards: Collection[int] | None = None,
        *,
        stop_at: int | None = None,
        max_entries: int = 0,
        max_seconds: float = 0,
        dry_run: bool = False,
    ) -> list[Summary]:
        """Sweep in this process, and return a summary of each shard. The limits are for each shard; 0 is none."""
        wanted = [_swept(each) for each in ([strategies] if isinstance(strategies, str) else strategies)]
        options = SweepOptions.of(self.settings, max_entries=max_entries, max_seconds=max_seconds, dry_run=dry_run)
        sweeper = Sweeper(self._store, self.settings, self._clock)
        return list(tally_sweeps(self._store, self._clock, sweeper.sweep(wanted, shards, stop_at, options), LIBRARY))

    # --- diagnosis ------------------------------------------------------------------------------------------------

    def status(self) -> Status:
        """Return up to when the store is swept, what is behind, and what to do about it."""
        return read_status(self._store, self.settings, self._clock)

    @overload
    def explain(self, table: Table) -> QueueExplanation: ...

    @overload
    def explain(self, table: Table, row: bytes, column: bytes) -> CellExplanation: ...

    def explain(
        self, table: Table, row: bytes | None = None, column: bytes | None = None
    ) -> CellExplanation | QueueExplanation:
        """Explain why each version of a cell still exists, or what the queue entries of a table wait for."""
        ref = TableRef.of(table)
        if row is None and column is None:
            return explain_table(self._store, self.settings, self._clock, ref)
        if row is None or column is None:
            raise BadValue("column", "a cell is a row and a column; give both, or the table alone", reason="incomplete")
        return explain_cell(self._store, self.settings, self._clock, ref, checked_cell(row, column))

    # --- the end --------------------------------------------------------------------------------------------------

    def close(self) -> None:
        """Stop renewing leases and close the store. End all transactions first. Closing it again has no effect."""
        if self._parts is not None:
            parts, self._parts = self._parts, None
            parts.transactions.close()
            parts.store.close()

    def __enter__(self) -> Database:
        _ = self._opened
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


class Tables:
    """The tables of a store. What removes data or changes what may be removed is recorded with its `reason`."""

    def __init__(self, store: Store, settings: Settings) -> None:
        self._store = store
        self._catalog = Catalog(store, patience_s=settings.emptying_wait_s)

    def create(
        self,
        table: Table,
        strategy: SweepStrategy | str = SweepStrategy.CONSERVATIVE,
        *,
        conflicts: ConflictHandling | str = ConflictHandling.FIRST_COMMITTER_WINS,
        retention_s: int | None = None,
        look_before_delete: bool = False,
    ) -> TableMetadata:
        """Create a table. Raises `AlreadyExists` if there is one."""
        metadata = TableMetadata(
            _choice(SweepStrategy, strategy, "strategy"),
            _choice(ConflictHandling, conflicts, "conflicts"),
            retention_s,
            look_before_delete,
        )
        self._catalog.create(TableRef.parse(str(TableRef.of(table))), metadata)
        return self.show(table).metadata

    def list(self) -> dict[TableRef, TableMetadata]:
        """Return all tables with their properties."""
        return self._catalog.list()

    def show(self, table: Table) -> TableThreshold:
        """Return the properties and the thresholds of a table."""
        return self._catalog.show(TableRef.of(table))

    def change(
        self,
        table: Table,
        *,
        strategy: SweepStrategy | str | None = None,
        retention_s: int | Literal["unchanged"] | None = "unchanged",
        reason: str = "",
    ) -> TableMetadata:
        """Change the strategy of a table, its retention, or both at once. Safe at any time.

        The retention is how long overwritten versions are kept; None is as long as the strategy keeps them.
        """
        ref, chosen = TableRef.of(table), None if strategy is None else _choice(SweepStrategy, strategy, "strategy")
        with acting_for(reason=reason):
            if retention_s != "unchanged":
                self._catalog.change(ref, chosen, retention_s)
            elif chosen is not None:
                self._catalog.set_strategy(ref, chosen)
            else:
                raise BadValue("strategy", "nothing to change; give a strategy, retention_s or both", reason="missing")
        return self.show(ref).metadata

    def truncate(self, table: Table, *, force: bool = False, reason: str = "") -> None:
        """Remove everything that a table holds now. Refused if a protection covers it, unless `force`."""
        with acting_for(reason=reason):
            self._catalog.truncate(TableRef.of(table), force)

    def drop(self, table: Table, *, force: bool = False, reason: str = "") -> None:
        """Drop a table. Refused if a protection covers it, unless `force`."""
        with acting_for(reason=reason):
            self._catalog.drop(ref := TableRef.of(table), force)
        forget_dropped(self._store, ref)


C = TypeVar("C", bound=StrEnum)


def _choice(kind: type[C], given: C | str, field: str) -> C:
    try:
        return kind(given)
    except ValueError:
        raise BadValue(field, f"must be one of {', '.join(kind)}", reason="unknown") from None


def _swept(strategy: SweepStrategy | str) -> SweepStrategy:
    return checked_swept(_choice(SweepStrategy, strategy, "strategy"))
