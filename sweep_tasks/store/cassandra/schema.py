"""What a keyspace must hold to be a store of ours, step by step since the first version.

Nothing is created on the side: `sweepflow init` does it, as often and as many at once as one likes. Two nodes that are
asked at the same moment to create a table would each give it an identity of its own and never agree; so the identity
is derived from the name, and both create the same.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sweep_tasks.config import Settings
from sweep_tasks.errors import BadValue, ForeignStore, NewerSchema, NotInitialised, OlderSchema
from sweep_tasks.model import TableMetadata, TableRef
from sweep_tasks.store.cassandra.address import CassandraAddress
from sweep_tasks.store.cassandra.catalog import CATALOG, Catalog
from sweep_tasks.store.cassandra.connection import Connection
from sweep_tasks.store.cassandra.names import quoted
from sweep_tasks.store.system import (
    ALERT_TABLES,
    COORDINATION_TABLES,
    OBSERVATION_TABLES,
    OPERATOR_TABLES,
    QUEUE_TABLES,
)

Step = Mapping[TableRef, TableMetadata]
STEPS: Sequence[Step] = (COORDINATION_TABLES, QUEUE_TABLES, ALERT_TABLES, OBSERVATION_TABLES, OPERATOR_TABLES)
"""Only ever added to. Step n takes a store from version n to n + 1."""


def initialise(address: CassandraAddress, settings: Settings, steps: Sequence[Step] = STEPS) -> bool:
    """Make the keyspace a store, or bring it up; True if it was not one before. Safe to run many times at once."""
    connection = Connection(address, settings)
    try:
        _make_keyspace(connection, settings)
        connection.check_levels()
        catalog = Catalog(connection, settings.cassandra_gc_grace_s)
        catalog.create()
        found = catalog.version()
        if found > len(steps):
            raise NewerSchema(str(address), found, len(steps))
        new = False
        while found < len(steps):
            for table, metadata in steps[found].items():
                catalog.add(table, metadata)
            # Whoever loses this has done the same step as the one who won. The first step is what makes it a store.
            if catalog.climb(found) and found == 0:
                new = True
            found = catalog.version()
        return new
    finally:
        connection.close()


def check(connection: Connection, catalog: Catalog, steps: Sequence[Step] = STEPS) -> None:
    """On opening: only a store of exactly the version we know."""
    keyspace = connection.keyspace()
    found = catalog.version() if keyspace and CATALOG in keyspace.tables else 0
    if found == 0:
        raise NotInitialised(str(connection.address))
    if found > len(steps):
        raise NewerSchema(str(connection.address), found, len(steps))
    if found < len(steps):
        raise OlderSchema(str(connection.address), found, len(steps))


def _make_keyspace(connection: Connection, settings: Settings) -> None:
    address = connection.address
    existing = connection.keyspace()
    if existing is None:
        copies = address.replication or settings.cassandra_replication
        datacenter = address.datacenter or settings.cassandra_datacenter
        nodes = [host for host in connection.cluster.metadata.all_hosts() if datacenter in (None, host.datacenter)]
        if copies > len(nodes):
            raise BadValue(
                "setting cassandra_replication",
                f"{copies} copies need as many nodes, and there are {len(nodes)}; start more, or ask for fewer copies "
                f"with ?replication={max(1, len(nodes))} behind the keyspace",
            )
        datacenters = sorted({host.datacenter for host in nodes})
        factors = ", ".join(f"{_text(name)}: {copies}" for name in datacenters)
        connection.define(
            f"CREATE KEYSPACE IF NOT EXISTS {quoted(address.keyspace)} WITH replication = "
            f"{{'class': 'NetworkTopologyStrategy', {factors}}}"
        )
        connection.cluster.refresh_keyspace_metadata(address.keyspace)
    elif existing.tables and CATALOG not in existing.tables:
        raise ForeignStore(f"store: {address} holds tables of another program; name another keyspace")


def _text(value: str) -> str:
    """A text literal: a statement of this kind takes no parameters. Datacenters are named by the cluster itself."""
    return "'" + value.replace("'", "''") + "'"
