"""One session with a cluster: who we are, whom we ask, and how many copies must answer.

Reads and writes must overlap in at least one copy (R + W > N), or a sweep could miss the very entry, lease or
protection that somebody was told is safe. Levels that do not are refused before anything is done.
"""

from __future__ import annotations

import ssl
from typing import Any

from cassandra import ConsistencyLevel, DriverException, ProtocolVersion, UnresolvableContactPoints
from cassandra.auth import PlainTextAuthProvider
from cassandra.cluster import EXEC_PROFILE_DEFAULT, Cluster, ExecutionProfile, NoHostAvailable, Session
from cassandra.metadata import KeyspaceMetadata
from cassandra.policies import (
    ConstantSpeculativeExecutionPolicy,
    DCAwareRoundRobinPolicy,
    FallthroughRetryPolicy,
    LoadBalancingPolicy,
    NoSpeculativeExecutionPolicy,
    RoundRobinPolicy,
    SpeculativeExecutionPolicy,
    TokenAwarePolicy,
)
from cassandra.query import PreparedStatement

from sweep_tasks.config import Consistency, Settings
from sweep_tasks.errors import BadValue, NotInitialised, StoreUnavailable
from sweep_tasks.store.cassandra.address import CassandraAddress
from sweep_tasks.store.cassandra.meters import Meters
from sweep_tasks.store.cassandra.requests import Failed, Requests
from sweep_tasks.store.cassandra.ring import Ring

_DDL_TIMEOUT_S = 60


class Connection:
    """A session, the levels it works at, and the statements it has prepared."""

    def __init__(self, address: CassandraAddress, settings: Settings) -> None:
        self.address = address
        self.read_level = level(settings.cassandra_read_consistency)
        self.write_level = level(settings.cassandra_write_consistency)
        self.serial_level = level(settings.cassandra_serial_consistency)
        self.meters = Meters()
        self._settings = settings
        self._prepared: dict[tuple[str, int, bool], PreparedStatement] = {}
        try:
            self.cluster = _cluster(address, settings)
        except UnresolvableContactPoints as error:
            raise StoreUnavailable(
                f"store: none of the nodes in {address} is known here by that name; correct the address, or name "
                "addresses"
            ) from error
        try:
            self.session: Session = self.cluster.connect()
        except (NoHostAvailable, DriverException) as error:
            self.cluster.shutdown()
            explained = Failed(error, refused=True).explained()
            raise StoreUnavailable(f"{explained} ({address})", reason=explained.reason) from error
        self.ring = Ring(self.cluster, address.keyspace)
        self.meters.watch(self.session)
        self.requests = Requests(self.session, settings.cassandra_attempts, settings.cassandra_in_flight, self.meters)

    def keyspace(self) -> KeyspaceMetadata | None:
        return self.cluster.metadata.keyspaces.get(self.address.keyspace)

    def check_levels(self) -> None:
        """That whoever reads meets at least one copy that whoever wrote before has reached."""
        keyspace = self.keyspace()
        if keyspace is None:
            raise NotInitialised(str(self.address))
        copies = _copies_by_datacenter(keyspace)
        reading, writing = self._settings.cassandra_read_consistency, self._settings.cassandra_write_consistency
        if not levels_overlap(reading, writing, copies):
            raise BadValue(
                "setting cassandra_read_consistency",
                f"a read at {reading!r} may miss what was written at {writing!r} to {sum(copies.values())} copies; use "
                "quorum for both",
                reason="no_overlap",
            )

    def prepared(self, query: str, consistency: int, may_repeat: bool = True) -> PreparedStatement:
        """Values only ever reach a query as parameters of one of these."""
        key = (query, consistency, may_repeat)
        statement = self._prepared.get(key)
        if statement is None:
            statement = self.requests.prepared(query)
            statement.consistency_level = consistency
            statement.serial_consistency_level = None if _is_serial(consistency) else self.serial_level
            statement.is_idempotent = may_repeat
            statement.fetch_size = self._settings.cassandra_page_rows
            self._prepared[key] = statement
        return statement

    def define(self, statement: str) -> None:
        """A change of the schema, agreed on by every node that can be reached."""
        self.requests.define(statement, _DDL_TIMEOUT_S)

    def close(self) -> None:
        self.cluster.shutdown()


def level(name: str) -> int:
    found: int = ConsistencyLevel.name_to_value[name.upper()]
    return found


def _is_serial(consistency: int) -> bool:
    return bool(ConsistencyLevel.is_serial(consistency))


def _cluster(address: CassandraAddress, settings: Settings) -> Cluster:
    profile = ExecutionProfile(
        load_balancing_policy=TokenAwarePolicy(_nodes_to_ask(address.datacenter or settings.cassandra_datacenter)),
        retry_policy=FallthroughRetryPolicy(),  # what may be repeated is repeated by `Requests`
        request_timeout=settings.cassandra_timeout_s,
        consistency_level=level(settings.cassandra_write_consistency),
        serial_consistency_level=level(settings.cassandra_serial_consistency),
        speculative_execution_policy=_speculation(settings.cassandra_speculative_ms),
    )
    return Cluster(
        address.hosts,
        port=address.port,
        protocol_version=ProtocolVersion.V5,
        execution_profiles={EXEC_PROFILE_DEFAULT: profile},
        auth_provider=_login(settings),
        ssl_context=_encryption(settings),
        connect_timeout=settings.cassandra_timeout_s,
        control_connection_timeout=settings.cassandra_timeout_s,
        max_schema_agreement_wait=30,
    )


def _nodes_to_ask(datacenter: str | None) -> LoadBalancingPolicy:
    return DCAwareRoundRobinPolicy(local_dc=datacenter) if datacenter else RoundRobinPolicy()


def _speculation(delay_ms: int) -> SpeculativeExecutionPolicy:
    """The driver asks a second node only for statements that say they may be repeated."""
    return ConstantSpeculativeExecutionPolicy(delay_ms / 1000, 1) if delay_ms else NoSpeculativeExecutionPolicy()


def _login(settings: Settings) -> PlainTextAuthProvider | None:
    if not (settings.cassandra_user and settings.cassandra_password):
        return None
    return PlainTextAuthProvider(settings.cassandra_user, settings.cassandra_password.get_secret_value())


def _encryption(settings: Settings) -> ssl.SSLContext | None:
    if not settings.cassandra_tls:
        return None
    try:
        context = ssl.create_default_context(cafile=settings.cassandra_ca_file)
        if settings.cassandra_cert_file:
            password = settings.cassandra_key_password
            context.load_cert_chain(
                settings.cassandra_cert_file,
                settings.cassandra_key_file,
                password.get_secret_value() if password else None,
            )
    except (OSError, ssl.SSLError) as error:
        raise BadValue(
            "setting cassandra_ca_file",
            "or cassandra_cert_file, or its key, can't be used as it is; check that they exist and are PEM files",
        ) from error
    return context


def _copies_by_datacenter(keyspace: KeyspaceMetadata) -> dict[str, int]:
    strategy: Any = keyspace.replication_strategy
    by_datacenter = getattr(strategy, "dc_replication_factors", None)
    return dict(by_datacenter) if by_datacenter else {"": int(getattr(strategy, "replication_factor", 1))}


def levels_overlap(reading: Consistency, writing: Consistency, copies: dict[str, int]) -> bool:
    """Whether a read reaches a copy that a write has reached, whichever datacenters they are made in."""
    if writing == "each_quorum" and reading == "local_quorum":
        return True
    return _reached(reading, copies) + _reached(writing, copies) > sum(copies.values())


def _reached(consistency: Consistency, copies: dict[str, int]) -> int:
    total = sum(copies.values())
    reached = {
        "one": 1,
        "two": 2,
        "three": 3,
        "quorum": _majority(total),
        "local_quorum": min(map(_majority, copies.values())),
        "each_quorum": sum(map(_majority, copies.values())),
        "all": total,
    }
    return reached[consistency]


def _majority(copies: int) -> int:
    return copies // 2 + 1
