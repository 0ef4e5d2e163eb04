"""The grants in docs/grants.md are enough for each role, and no more than that: its CQL is what is run here.

On the node of `secured.py`, which asks for passwords, checks rights and encrypts. The server itself refuses.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import pytest
from cassandra import InvalidRequest, Unauthorized

from sweep_tasks.clock import SystemClock
from sweep_tasks.config import Settings, as_environment
from sweep_tasks.connections import open_store
from sweep_tasks.coordination.timestamps import TimestampService
from sweep_tasks.errors import StoreUnavailable, WriteConflict
from sweep_tasks.model import Cell, SweepStrategy, TableMetadata, TableRef
from sweep_tasks.protection.catalog import ProtectionCatalog
from sweep_tasks.protection.owners import Owners
from sweep_tasks.protection.protecting import protect_during
from sweep_tasks.protection.reconciliation import Reconciler
from sweep_tasks.queue.parking import Quarantine, Quarantined
from sweep_tasks.queue.progress import Progress
from sweep_tasks.store import initialise_store
from sweep_tasks.store.cassandra.address import CassandraAddress
from sweep_tasks.store.cassandra.catalog import CATALOG, physical_name
from sweep_tasks.store.cassandra.connection import Connection
from sweep_tasks.store.cassandra.store import CassandraStore
from sweep_tasks.store.contract import Change
from sweep_tasks.store.schema import ALERTS, SYSTEM_TABLES, THRESHOLDS
from sweep_tasks.sweep.run import Sweeper
from sweep_tasks.tables.catalog import Catalog
from sweep_tasks.transactions import TransactionManager
from sweep_tasks.transactions.outcomes import CommitTable
from tests.cassandra.secured import GRANTS, PASSWORD, USER, SecuredNode
from tests.support.command import Answer, sweepflow
from tests.support.documents import fenced

KEYSPACE = "shop"
OWNER, SWEEPER, WRITER, EXPORTER, READER = (
    f"{KEYSPACE}_{name}" for name in ("owner", "sweeper", "writer", "exporter", "reader")
)
BY_SUPERUSER, ON_SYSTEM_TABLES, ON_A_TABLE, ON_THE_KEYSPACE = fenced(GRANTS, "cql")
DOCUMENTED = TableRef.parse("shop.orders")
"""The table that the page grants on."""
ORDERS, NOTES = DOCUMENTED, TableRef.parse("shop.notes")
CELLS = [Cell(b"row %d" % number, b"column") for number in range(5)]


class Shop:
    """A store whose users have the documented roles; each stays open once it was used."""

    def __init__(self, node: SecuredNode, until_the_end: ExitStack) -> None:
        self.node = node
        self._until_the_end = until_the_end
        self._stores: dict[str, CassandraStore] = {}
        self._connections: dict[str, Connection] = {}

    def settings(self, role: str) -> Settings:
        return self.node.settings(
            store=self.node.keyspace(KEYSPACE),
            cassandra_user=role,
            cassandra_password=PASSWORD,
            legacy_versions_per_s=0,
        )

    def store(self, role: str) -> CassandraStore:
        if role not in self._stores:
            settings = self.settings(role)
            opened = self._until_the_end.enter_context(open_store(settings.store, settings))
            assert isinstance(opened, CassandraStore)
            self._stores[role] = opened
        return self._stores[role]

    @contextmanager
    def manager(self, role: str) -> Iterator[TransactionManager]:
        with TransactionManager(self.store(role), self.settings(role)) as manager:
            yield manager

    def command(self, role: str, *arguments: str) -> Answer:
        environment: dict[str, Any] = as_environment(self.settings(role))
        return sweepflow(*arguments, "--json", **environment)

    def run(self, role: str, cql: str) -> list[Any]:
        """One statement after the other; the rows of the last."""
        if role not in self._connections:
            settings = self.settings(role)
            address = CassandraAddress.parse(settings.store.removeprefix("cassandra:"))
            self._connections[role] = Connection(address, settings)
            self._until_the_end.callback(self._connections[role].close)
        session = self._connections[role].session
        return [list(session.execute(each)) for each in cql.split(";") if each.strip()][-1]

    def allows(self, role: str, cql: str) -> bool:
        try:
            self.run(role, cql)
        except Unauthorized:
            return False
        return True

    def create(self, table: TableRef, strategy: SweepStrategy, *, grants: bool = True) -> None:
        Catalog(self.store(OWNER)).create(table, TableMetadata(strategy))
        if grants:
            self.run(OWNER, grants_on(table))

    def write(self, table: TableRef, times: int = 3, role: str = WRITER) -> None:
        with self.manager(role) as manager:
            for number in range(times):
                with manager.transaction() as tx:
                    tx.put_many(table, dict.fromkeys(CELLS, b"%d" % number))

    def versions(self, table: TableRef) -> set[int]:
        """How many each cell has."""
        return {len(found) for found in self.store(OWNER).timestamps(table, CELLS).values()}


def grants_on(table: TableRef) -> str:
    return ON_A_TABLE.replace(physical_name(DOCUMENTED, 1), physical_name(table, 1))


@pytest.fixture(scope="module")
def shop(secured: SecuredNode) -> Iterator[Shop]:
    with ExitStack() as until_the_end:
        yield built(Shop(secured, until_the_end))


def built(shop: Shop) -> Shop:
    """The steps of the documentation, in order."""
    by_superuser = BY_SUPERUSER.replace("'change me'", f"'{PASSWORD}'").replace("'datacenter1': 3", "'datacenter1': 1")
    assert by_superuser.count(PASSWORD) == 5
    shop.run(USER, by_superuser)
    initialise_store(shop.node.keyspace(KEYSPACE), shop.settings(OWNER))
    shop.run(OWNER, ON_SYSTEM_TABLES)
    shop.create(ORDERS, SweepStrategy.THOROUGH)
    shop.create(NOTES, SweepStrategy.CONSERVATIVE)
    return shop


# --- all roles --------------------------------------------------------------------------------------------------------

OTHER_TABLE = f"CREATE TABLE {KEYSPACE}.other (key int PRIMARY KEY)"
ORDERS_IN_CQL = f'{KEYSPACE}."{physical_name(ORDERS, 1)}"'


CHANGES = [
    OTHER_TABLE,
    f"ALTER TABLE {ORDERS_IN_CQL} WITH gc_grace_seconds = 0",
    f"DROP TABLE {ORDERS_IN_CQL}",
    f"DROP KEYSPACE {KEYSPACE}",
    "CREATE KEYSPACE other WITH replication = {'class': 'NetworkTopologyStrategy', 'datacenter1': 1}",
    f"GRANT SELECT ON {ORDERS_IN_CQL} TO {READER}",
    f"GRANT {OWNER} TO {READER}",
    "CREATE ROLE other",
    f"ALTER ROLE {OWNER} WITH PASSWORD = 'mine now'",
    "SELECT * FROM system_auth.roles",
]


@pytest.mark.parametrize("role", [SWEEPER, WRITER, EXPORTER, READER])
def test_tables_rights_and_roles_are_changed_by_none_of_them(shop: Shop, role: str) -> None:
    assert [cql for cql in CHANGES if shop.allows(role, cql)] == []


@pytest.mark.parametrize(
    ("role", "refusal"),
    [(SWEEPER, InvalidRequest), (WRITER, InvalidRequest), (EXPORTER, Unauthorized), (READER, Unauthorized)],
)
def test_no_role_may_truncate_a_table(shop: Shop, role: str, refusal: type[Exception]) -> None:
    """A guardrail prevents it for roles that may delete: no grant distinguishes the two."""
    shop.write(ORDERS)
    with pytest.raises(refusal):
        shop.run(role, f"TRUNCATE {ORDERS_IN_CQL}")
    assert min(shop.versions(ORDERS)) > 0


def test_the_server_lists_no_more_rights_than_a_role_should_have(shop: Shop) -> None:
    def rights(role: str) -> set[str]:
        return {row.permission for row in shop.run(USER, f"LIST ALL PERMISSIONS OF {role}")}

    assert {role: rights(role) for role in (SWEEPER, WRITER, EXPORTER, READER)} == {
        SWEEPER: {"SELECT", "MODIFY"},
        WRITER: {"SELECT", "MODIFY"},
        EXPORTER: {"SELECT", "MODIFY"},
        READER: {"SELECT"},
    }


def test_every_system_table_is_granted() -> None:
    """This includes tables of later versions: each new table states here which roles may change it."""
    names = {CATALOG, *(physical_name(table, 1) for table in SYSTEM_TABLES)}
    assert set(re.findall(rf'GRANT SELECT ON \w+\."(\w+)" TO {READER};', ON_SYSTEM_TABLES)) == names
    assert set(re.findall(r'\."(\w+)"', ON_SYSTEM_TABLES)) == names


# --- the owner --------------------------------------------------------------------------------------------------------


def test_the_owner_changes_tables_of_the_keyspace_and_of_no_other(shop: Shop) -> None:
    table = TableRef.parse("shop.settings")
    shop.create(table, SweepStrategy.CONSERVATIVE)
    catalog = Catalog(shop.store(OWNER))
    catalog.set_strategy(table, SweepStrategy.THOROUGH)
    catalog.truncate(table)
    assert catalog.list()[table].strategy is SweepStrategy.THOROUGH
    with pytest.raises(Unauthorized):
        shop.run(OWNER, OTHER_TABLE.replace(KEYSPACE, "secured"))


def test_a_drop_that_the_guardrail_stops_is_finished_by_a_superuser(shop: Shop) -> None:
    table = TableRef.parse("shop.leaving")
    shop.create(table, SweepStrategy.THOROUGH)
    there = f"SELECT * FROM system_schema.tables WHERE keyspace_name = '{KEYSPACE}' AND table_name = 'shop__leaving'"
    with pytest.raises(StoreUnavailable) as stopped:
        Catalog(shop.store(OWNER)).drop(table)
    assert stopped.value.reason == "guardrail"
    assert table not in Catalog(shop.store(OWNER)).list()
    assert shop.run(USER, there)
    Catalog(shop.store(USER)).drop(table)
    assert not shop.run(USER, there)


# --- the sweeper ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("table", [ORDERS, NOTES], ids=str)
def test_the_sweeper_sweeps(shop: Shop, table: TableRef) -> None:
    shop.write(table)
    assert max(shop.versions(table)) >= 3
    summaries = list(Sweeper(shop.store(SWEEPER), shop.settings(SWEEPER), SystemClock()).sweep())
    assert sum(summary.entries for summary in summaries) > 0
    kept = {1} if table is ORDERS else {2}  # a conservative table keeps a sentinel as well
    assert shop.versions(table) == kept


def test_what_the_command_sweeps_is_counted(shop: Shop) -> None:
    shop.write(ORDERS)
    answer = shop.command(SWEEPER, "sweep")
    assert answer.code == 0
    assert [word for word in ("run_lost", "sample_lost") if word in answer.err] == []
    assert shop.versions(ORDERS) == {1}


def test_the_sweeper_scans_a_table_that_changes_its_strategy(shop: Shop) -> None:
    """Which ends with a change of the catalog: the scan is no longer due."""
    table = TableRef.parse("shop.changing")
    shop.create(table, SweepStrategy.NOTHING)
    shop.write(table)
    Catalog(shop.store(OWNER)).set_strategy(table, SweepStrategy.THOROUGH)
    answer = shop.command(SWEEPER, "legacy-sweep", str(table))
    assert answer.code == 0
    assert "run_lost" not in answer.err
    assert answer.document["deleted"] == 2 * len(CELLS)
    assert shop.versions(table) == {1}
    assert Catalog(shop.store(OWNER)).list()[table].scan_due is None


def test_the_sweeper_parks_what_is_protected_and_removes_it_later(shop: Shop) -> None:
    shop.write(ORDERS, times=1)
    with protect_during(shop.store(EXPORTER), shop.settings(EXPORTER), [str(ORDERS)]):
        shop.write(ORDERS, times=2)
        assert shop.command(SWEEPER, "sweep").code == 0
        assert shop.versions(ORDERS) == {2}
    assert shop.command(SWEEPER, "sweep").code == 0
    assert shop.versions(ORDERS) == {1}


def test_the_sweeper_keeps_the_records_of_airflows_tasks_and_of_the_page(shop: Shop) -> None:
    store, settings, alert = shop.store(SWEEPER), shop.settings(SWEEPER), Cell(b"a run", b"1")
    for arguments in (
        ("pause", str(NOTES), "--reason", "a test"),
        ("resume", str(NOTES), "--reason", "a test", "--yes"),
        ("protect", str(ORDERS), "--id", "held"),
        ("release", "held", "--yes"),
    ):
        assert shop.command(SWEEPER, *arguments).code == 0, arguments
    Progress(store).raise_shards(2)
    assert store.put_if_absent(ALERTS, {alert: b"mine"}, 1_000) == {alert: b"mine"}
    assert store.compare_and_set(ALERTS, alert.row, {alert.column: Change(b"mine", None)})
    aside = Quarantined(SweepStrategy.THOROUGH, 0, None, Cell(b"row", b"column"), b"?", "unreadable")
    quarantine = Quarantine(store, TimestampService(store))
    quarantine.add([aside])
    quarantine.remove([aside])
    catalog, commits = ProtectionCatalog(store, settings), CommitTable(store)
    assert Reconciler(catalog, Owners(settings, registered=[]), commits.outcomes, settings).run().findings == ()


# --- the writer -------------------------------------------------------------------------------------------------------


def test_the_writer_commits_and_aborts(shop: Shop) -> None:
    cell = CELLS[0]
    with shop.manager(WRITER) as manager:
        with manager.transaction() as tx:
            tx.put(NOTES, *cell, b"kept")
        with pytest.raises(ZeroDivisionError), manager.transaction() as tx:
            tx.put(NOTES, *cell, b"%d" % (1 // 0))
        stopped = manager.transaction()
        stopped.put(NOTES, *cell, b"dropped")
        stopped.abort()
        with manager.transaction() as tx:
            assert tx.get(NOTES, *cell) == b"kept"
            tx.delete(NOTES, *cell)
        with manager.transaction(read_only=True) as tx:
            assert tx.get(NOTES, *cell) is None


def test_a_writer_that_meets_cells_of_another_one_aborts(shop: Shop) -> None:
    """Which removes values and queue entries that were written before."""
    with shop.manager(WRITER) as manager:
        late, early = manager.transaction(), manager.transaction()
        for tx, value in ((late, b"late"), (early, b"early")):
            tx.put(ORDERS, *CELLS[0], value)
        early.commit()
        with pytest.raises(WriteConflict):
            late.commit()
        with manager.transaction() as tx:
            assert tx.get(ORDERS, *CELLS[0]) == b"early"


def test_the_writer_changes_nothing_that_decides_what_is_swept(shop: Shop) -> None:
    names = ["_thresholds", "_protections", "_pauses", "_journal", "sweep__sweepProgressPerShard", "sweep__parked"]
    deletes = [f'DELETE FROM {KEYSPACE}."{name}" WHERE key = 0x00' for name in names]
    deletes.append(f"DELETE FROM {KEYSPACE}.\"{CATALOG}\" WHERE scope = 'tables'")
    assert [cql for cql in deletes if shop.allows(WRITER, cql)] == []


# --- the exporter -----------------------------------------------------------------------------------------------------


def test_the_exporter_protects_reads_and_releases(shop: Shop) -> None:
    shop.write(ORDERS, times=1)
    with shop.manager(EXPORTER) as manager:
        with protect_during(manager.store, shop.settings(EXPORTER), ["shop.*"]) as ts:
            assert dict(manager.read_at(ts).scan(ORDERS)) == dict.fromkeys(CELLS, b"0")
            assert len(manager.protections.records()) == 1
        assert manager.protections.records() == []


def test_the_exporter_rolls_back_a_dead_writer_in_its_way(shop: Shop) -> None:
    table = TableRef.parse("shop.left")
    shop.create(table, SweepStrategy.THOROUGH)
    writing = shop.store(WRITER)
    dead, later = TimestampService(writing).fresh_many(2)
    writing.put(dead, {table: {CELLS[0]: b"never committed"}})
    with shop.manager(EXPORTER) as manager:
        assert manager.read_at(later).get(table, *CELLS[0]) is None
    assert CommitTable(writing).outcomes([dead]) == {dead: -1}


def test_the_exporter_protects_and_releases_by_the_command(shop: Shop) -> None:
    """While something is parked, which is counted before the protection is released."""
    shop.write(ORDERS, times=1)
    assert shop.command(EXPORTER, "protect", "shop.*", "--id", "backup").code == 0
    shop.write(ORDERS, times=2)
    assert shop.command(SWEEPER, "sweep").code == 0
    released = shop.command(EXPORTER, "release", "backup", "--reason", "done", "--yes")
    assert released.code == 0
    assert released.document["entries"] > 0
    assert "run_lost" not in released.err


@pytest.mark.parametrize("table", [ORDERS, NOTES, THRESHOLDS], ids=str)
def test_the_exporter_writes_to_no_table_of_users_and_moves_no_threshold(shop: Shop, table: TableRef) -> None:
    with pytest.raises(Unauthorized):
        shop.run(EXPORTER, f'DELETE FROM {KEYSPACE}."{physical_name(table, 1)}" WHERE key = 0x00')


def test_the_exporter_commits_nothing(shop: Shop) -> None:
    before = shop.versions(ORDERS)
    with pytest.raises(StoreUnavailable) as refused:
        shop.write(ORDERS, role=EXPORTER)
    assert (refused.value.reason, refused.value.field) == ("not_granted", "cassandra_user")
    assert shop.versions(ORDERS) == before


# --- the reader -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "codes"),
    [
        (("status",), {0, 6, 7}),
        (("explain", str(ORDERS)), {0}),
        (("explain", str(ORDERS), "row 0", "column"), {0}),
        (("explain", "--strategy", "thorough", "--shard", "0"), {0}),
        (("metrics",), {0}),
        (("doctor",), {0, 1}),
        (("protections",), {0}),
        (("journal",), {0}),
        (("tables", "list"), {0}),
        (("tables", "show", str(ORDERS)), {0}),
        (("legacy-sweep", str(ORDERS), "--status"), {0, 3}),
        (("queue", "show"), {0}),
    ],
    ids=lambda value: " ".join(value[:2]) if isinstance(value, tuple) else "",
)
def test_the_reader_sees_everything(shop: Shop, arguments: tuple[str, ...], codes: set[int]) -> None:
    shop.write(ORDERS, times=1)
    answer = shop.command(READER, *arguments)
    assert answer.code in codes
    assert answer.error is None or answer.error.reason != "not_granted"


def test_the_reader_reads_at_a_timestamp(shop: Shop) -> None:
    shop.write(ORDERS, times=1)
    later = TimestampService(shop.store(WRITER)).fresh()
    with shop.manager(READER) as manager:
        assert manager.read_at(later).get(ORDERS, *CELLS[0]) == b"0"


@pytest.mark.parametrize(
    "arguments",
    [
        ("sweep",),
        ("legacy-sweep", str(ORDERS)),
        ("protect", str(ORDERS)),
        ("pause", str(ORDERS), "--reason", "a test"),
        ("tables", "create", "shop.more", "--strategy", "thorough"),
        ("tables", "set-strategy", str(ORDERS), "conservative", "--yes"),
        ("tables", "truncate", str(ORDERS), "--yes"),
        ("tables", "drop", str(ORDERS), "--yes"),
    ],
    ids=lambda arguments: " ".join(arguments[:2]),
)
def test_the_reader_changes_nothing(shop: Shop, arguments: tuple[str, ...]) -> None:
    answer = shop.command(READER, *arguments)
    assert answer.code == 4
    assert answer.error is not None
    assert answer.error.reason == "not_granted"
    assert Catalog(shop.store(OWNER)).list()[ORDERS].strategy is SweepStrategy.THOROUGH


def test_the_server_refuses_changes_by_the_reader(shop: Shop) -> None:
    names = [physical_name(table, 1) for table in (*SYSTEM_TABLES, ORDERS, NOTES)]
    deletes = [f'DELETE FROM {KEYSPACE}."{name}" WHERE key = 0x00' for name in names]
    deletes.append(f"DELETE FROM {KEYSPACE}.\"{CATALOG}\" WHERE scope = 'tables'")
    assert [cql for cql in deletes if shop.allows(READER, cql)] == []


# --- tables that come later -------------------------------------------------------------------------------------------


def test_a_table_created_later_needs_its_grants(shop: Shop) -> None:
    table = TableRef.parse("shop.later")
    shop.create(table, SweepStrategy.THOROUGH, grants=False)
    with pytest.raises(StoreUnavailable) as refused:
        shop.write(table)
    assert refused.value.reason == "not_granted"
    shop.run(OWNER, grants_on(table))
    shop.write(table)
    assert shop.command(SWEEPER, "sweep").code == 0
    assert shop.versions(table) == {1}


def test_a_sweep_that_lacks_a_grant_removes_nothing_and_resumes_with_it(shop: Shop) -> None:
    table = TableRef.parse("shop.unswept")
    shop.create(table, SweepStrategy.THOROUGH)
    revoke = f'REVOKE MODIFY ON {KEYSPACE}."{physical_name(table, 1)}" FROM {SWEEPER}'
    shop.run(OWNER, revoke)
    try:
        shop.write(table)
        answer = shop.command(SWEEPER, "sweep")
        assert answer.error is not None
        assert answer.error.reason == "not_granted"
        assert shop.versions(table) == {3}
    finally:
        shop.run(OWNER, grants_on(table))
    assert shop.command(SWEEPER, "sweep").code == 0
    assert shop.versions(table) == {1}


def test_grants_on_the_keyspace_cover_later_tables(shop: Shop) -> None:
    table = TableRef.parse("shop.future")
    shop.run(USER, ON_THE_KEYSPACE)
    try:
        shop.create(table, SweepStrategy.THOROUGH, grants=False)
        shop.write(table)
        with protect_during(shop.store(EXPORTER), shop.settings(EXPORTER), [str(table)]) as ts:
            assert ts > 0
        assert shop.command(SWEEPER, "sweep").code == 0
        assert shop.versions(table) == {1}
        assert shop.command(READER, "explain", str(table), "row 0", "column").code == 0
        with pytest.raises(Unauthorized):
            shop.run(SWEEPER, OTHER_TABLE)
    finally:
        shop.run(USER, ON_THE_KEYSPACE.replace("GRANT", "REVOKE").replace(" TO ", " FROM "))
        shop.run(OWNER, grants_on(table))
