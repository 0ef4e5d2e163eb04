"""The schema of a Cassandra store: creation of the keyspace, and migration step by step.

Only `sweepflow init` creates or migrates a store. It can be repeated, and run several times at once. Two nodes that
create the same table at the same time would give it different ids and never agree. So the id is derived from the name,
and both create the same table.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence

from sweep_tasks.config import Settings
from sweep_tasks.encoding import stored_long
from sweep_tasks.errors import BadValue, NotInitialised, OtherSchema, StoreError
from sweep_tasks.model import TableRef
from sweep_tasks.store.cassandra.address import CassandraAddress
from sweep_tasks.store.cassandra.catalog import CATALOG, CassandraCatalog, quoted
from sweep_tasks.store.cassandra.connection import Connection
from sweep_tasks.store.cassandra.registers import Registers
from sweep_tasks.store.schema import MARKS_MOVE_AT, STEPS, THRESHOLDS, Step, old_mark


def initialise(address: CassandraAddress, settings: Settings, steps: Sequence[Step] = STEPS) -> bool:
    """Create a store in the keyspace, or migrate an older one; True if it is new. Safe to run several times at once."""
    connection = Connection(address, settings)
    try:
        _create_keyspace(connection, settings)
        connection.check_levels()
        catalog = CassandraCatalog(connection, settings.cassandra_gc_grace_s)
        catalog.create()
        found = catalog.version()
        if found > len(steps):
            raise OtherSchema(str(address), found, len(steps))
        new = False
        while found < len(steps):
            for table, metadata in steps[found].items():
                catalog.add(table, metadata, None)
            if found == MARKS_MOVE_AT:
                catalog.move_marks(lambda tables: _old_marks(connection, catalog, tables))
            # A process that loses this race has done the same step as the winner. Only step 0 creates a store.
            if catalog.raise_version(found) and found == 0:
                new = True
            found = catalog.version()
        return new
    finally:
        connection.close()


def _old_marks(connection: Connection, catalog: CassandraCatalog, tables: Collection[TableRef]) -> dict[TableRef, int]:
    _, name = catalog.in_use(THRESHOLDS)
    found = Registers(connection).read(name, [old_mark(table) for table in tables])
    return {table: stored_long(found.get(old_mark(table))) for table in tables}


def check(connection: Connection, catalog: CassandraCatalog, steps: Sequence[Step] = STEPS) -> None:
    """Fail unless the store has exactly the schema version of this program."""
    keyspace = connection.keyspace()
    found = catalog.version() if keyspace and CATALOG in keyspace.tables else 0
    if found == 0:
        raise NotInitialised(str(connection.address))
    if found != len(steps):
        raise OtherSchema(str(connection.address), found, len(steps))


def _create_keyspace(connection: Connection, settings: Settings) -> None:
    address = connection.address
    existing = connection.keyspace()
    if existing is None:
        replicas = address.replication or settings.cassandra_replication
        datacenter = address.datacenter or settings.cassandra_datacenter
        nodes = [host for host in connection.cluster.metadata.all_hosts() if datacenter in (None, host.datacenter)]
        in_each = Counter(host.datacenter for host in nodes)
        fewest = min(in_each.values(), default=0)
        if replicas > fewest:
            raise BadValue(
                "setting cassandra_replication",
                f"{replicas} replicas need as many nodes in each datacenter, and there are {fewest}; start more nodes, "
                f"or use fewer replicas with ?replication={max(1, fewest)} after the keyspace",
            )
        connection.check_levels(dict.fromkeys(in_each, replicas))
        factors = ", ".join(f"{_text(name)}: {replicas}" for name in sorted(in_each))
        connection.define(
            f"CREATE KEYSPACE IF NOT EXISTS {quoted(address.keyspace)} WITH replication = "
            f"{{'class': 'NetworkTopologyStrategy', {factors}}}"
        )
        connection.cluster.refresh_keyspace_metadata(address.keyspace)
    elif existing.tables and CATALOG not in existing.tables:
        raise StoreError(f"store: {address} has tables of another program; use another keyspace")


def _text(value: str) -> str:
    """Quote a text literal, because schema statements take no parameters. The cluster provides datacenter names."""
    return "'" + value.replace("'", "''") + "'"
