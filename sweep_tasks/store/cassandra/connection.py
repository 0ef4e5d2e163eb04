"""The connection to a cluster: one session per process, with login, encryption and consistency levels.

A forked child opens its own session when it needs one: the driver's threads do not exist there, and what it reads from
the inherited sockets would be missing in the parent.

Reads and writes must overlap in at least one replica (R + W > N). Otherwise a sweep could miss a queue entry, a lease
or a protection that was confirmed to its owner. Compare-and-set must be decided by one group of replicas: at
LOCAL_SERIAL each datacenter decides separately, and two of them could hand out the same timestamp. Levels that do not
fit the keyspace are refused before any data is read or written.
"""

from __future__ import annotations

import ssl
import sys
import threading
from collections.abc import Mapping
from typing import Any

from cassandra import (
    AuthenticationFailed,
    ConsistencyLevel,
    DriverException,
    ProtocolVersion,
    UnresolvableContactPoints,
)
from cassandra import cluster as driver
from cassandra.auth import PlainTextAuthenticator, PlainTextAuthProvider
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
from sweep_tasks.processes import call_in_each_process
from sweep_tasks.store.cassandra.address import CassandraAddress, only_loopback
from sweep_tasks.store.cassandra.requests import FailedRequest, Meters, Requests
from sweep_tasks.store.cassandra.ring import Ring

_DDL_TIMEOUT_S = 60
_ANY_DATACENTER = ""


class _Session:
    """The state that belongs to one process: the driver's objects and the prepared statements."""

    def __init__(self, address: CassandraAddress, settings: Settings, meters: Meters) -> None:
        try:
            self.cluster = _cluster(address, settings)
        except UnresolvableContactPoints as error:
            raise StoreUnavailable(
                f"store: no host name in {address} can be resolved; correct the host names, or use IP addresses"
            ) from error
        try:
            self.session: Session = self.cluster.connect()
        except (NoHostAvailable, DriverException) as error:
            self.cluster.shutdown()
            explained = FailedRequest(error, refused=True).explained()
            raise StoreUnavailable(f"{explained} ({address})", reason=explained.reason) from error
        self.ring = Ring(self.cluster, address.keyspace)
        meters.watch(self.session)
        self.requests = Requests(self.session, settings.cassandra_attempts, settings.cassandra_in_flight, meters)
        self.prepared: dict[tuple[str, int, bool], PreparedStatement] = {}


class Connection:
    """A session with its consistency levels and prepared statements."""

    def __init__(self, address: CassandraAddress, settings: Settings) -> None:
        check_login(address, settings)
        self.address = address
        self.read_level = level(settings.cassandra_read_consistency)
        self.write_level = level(settings.cassandra_write_consistency)
        self.serial_level = level(settings.cassandra_serial_consistency)
        self.meters = Meters()
        self._settings = settings
        self._opened: _Session | None = None
        call_in_each_process(self, Connection._reset)
        self._open()

    def _reset(self) -> None:
        self._opening = threading.Lock()
        if self._opened:
            _leave_to_parent(self._opened)
            self._opened = None

    def _open(self) -> _Session:
        """Return the session of this process; the first thread that needs it opens it."""
        with self._opening:
            if self._opened is None:
                self._opened = _Session(self.address, self._settings, self.meters)
            return self._opened

    @property
    def _own(self) -> _Session:
        return self._opened or self._open()

    @property
    def cluster(self) -> Cluster:
        return self._own.cluster

    @property
    def session(self) -> Session:
        return self._own.session

    @property
    def ring(self) -> Ring:
        return self._own.ring

    @property
    def requests(self) -> Requests:
        return self._own.requests

    def keyspace(self) -> KeyspaceMetadata | None:
        return self.cluster.metadata.keyspaces.get(self.address.keyspace)

    def check_levels(self, replicas: Mapping[str, int] | None = None) -> None:
        """Check that reads and earlier writes overlap in a replica, and that one group of replicas decides.

        `replicas` has the number by datacenter for a keyspace that does not exist yet.
        """
        if replicas is None:
            keyspace = self.keyspace()
            if keyspace is None:
                raise NotInitialised(str(self.address))
            replicas = _replicas_by_datacenter(keyspace)
        self._check_overlap(replicas)
        datacenters = self._datacenters(replicas)
        if self._settings.cassandra_serial_consistency == "local_serial" and len(datacenters) != 1:
            raise BadValue(
                "setting cassandra_serial_consistency",
                "at 'local_serial' each datacenter decides separately, and the keyspace has replicas in "
                f"{', '.join(datacenters) or 'none'}; use serial, or keep replicas in one datacenter only (with "
                "?datacenter=NAME after the keyspace when it is created, or with ALTER KEYSPACE)",
                reason="several_datacenters",
            )

    def _datacenters(self, replicas: Mapping[str, int]) -> list[str]:
        """Return the datacenters with replicas; all of them for a replication strategy without datacenters."""
        if _ANY_DATACENTER in replicas:
            return sorted({host.datacenter for host in self.cluster.metadata.all_hosts()})
        return sorted(name for name, number in replicas.items() if number)

    def _check_overlap(self, replicas: Mapping[str, int]) -> None:
        reading, writing = self._settings.cassandra_read_consistency, self._settings.cassandra_write_consistency
        if not levels_overlap(reading, writing, replicas):
            raise BadValue(
                "setting cassandra_read_consistency",
                f"with {sum(replicas.values())} replicas, a read at {reading!r} may miss a write at {writing!r}; use "
                "quorum for both",
                reason="no_overlap",
            )

    def prepare(self, query: str, consistency: int, may_repeat: bool = True) -> PreparedStatement:
        """Return a prepared statement. Values are passed only as parameters of prepared statements."""
        own, key = self._own, (query, consistency, may_repeat)
        statement = own.prepared.get(key)
        if statement is None:
            statement = own.requests.prepare(query)
            statement.consistency_level = consistency
            statement.serial_consistency_level = None if _is_serial(consistency) else self.serial_level
            statement.is_idempotent = may_repeat
            statement.fetch_size = self._settings.cassandra_page_rows
            own.prepared[key] = statement
        return statement

    def define(self, statement: str) -> None:
        """Change the schema, and wait until all reachable nodes agree."""
        self.requests.define(statement, _DDL_TIMEOUT_S)

    def close(self) -> None:
        if self._opened:
            self._opened.cluster.shutdown()


_inherited: list[object] = []
"""The driver's objects of the parent. A reference to them prevents that the child finalises, and so closes, them."""


def _leave_to_parent(session: _Session) -> None:
    """Give up the parent's session in a forked child, without using or closing its sockets.

    The driver would close them at the end of the process, and at its next use, when it stops the event loop it finds.
    """
    _inherited.append(session)
    driver._discard_cluster_shutdown(session.cluster)
    reactor: Any = sys.modules[session.cluster.connection_class.__module__]
    if loop := getattr(reactor, "_global_loop", None):
        _inherited.append(loop)
        reactor._global_loop = None


def level(name: str) -> int:
    found: int = ConsistencyLevel.name_to_value[name.upper()]
    return found


def _is_serial(consistency: int) -> bool:
    return bool(ConsistencyLevel.is_serial(consistency))


def _cluster(address: CassandraAddress, settings: Settings) -> Cluster:
    profile = ExecutionProfile(
        load_balancing_policy=TokenAwarePolicy(_nodes_to_ask(address.datacenter or settings.cassandra_datacenter)),
        retry_policy=FallthroughRetryPolicy(),  # `Requests` does the retries
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
    """Return the policy. The driver sends only statements that are marked idempotent to a second node."""
    return ConstantSpeculativeExecutionPolicy(delay_ms / 1000, 1) if delay_ms else NoSpeculativeExecutionPolicy()


def check_login(address: CassandraAddress, settings: Settings) -> None:
    """Refuse to send a password over a network unencrypted, unless the setting allows it."""
    if settings.cassandra_password and not _may_be_sent(settings) and not only_loopback(address.hosts):
        raise BadValue(
            "setting cassandra_password",
            f"would be sent unencrypted to {', '.join(address.hosts)}; set cassandra_tls to true, or "
            "cassandra_plaintext_password if the network is trusted",
            reason="password_unencrypted",
        )


def _may_be_sent(settings: Settings) -> bool:
    return settings.cassandra_tls or settings.cassandra_plaintext_password


class LoopbackLogin(PlainTextAuthProvider):  # type: ignore[misc]  # the driver has no types
    """A login that sends the password only to nodes on this machine: the driver also connects to discovered nodes."""

    def new_authenticator(self, host: str) -> PlainTextAuthenticator:
        if not only_loopback([host]):
            raise AuthenticationFailed(f"the password is not sent unencrypted to {host}")
        return super().new_authenticator(host)


def _login(settings: Settings) -> PlainTextAuthProvider | None:
    if not (settings.cassandra_user and settings.cassandra_password):
        return None
    provider = PlainTextAuthProvider if _may_be_sent(settings) else LoopbackLogin
    return provider(settings.cassandra_user, settings.cassandra_password.get_secret_value())


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
            "this file, cassandra_cert_file or its key can't be loaded; check that the files exist and are PEM files",
        ) from error
    return context


def _replicas_by_datacenter(keyspace: KeyspaceMetadata) -> dict[str, int]:
    strategy: Any = keyspace.replication_strategy
    by_datacenter = getattr(strategy, "dc_replication_factors", None)
    return dict(by_datacenter) if by_datacenter else {_ANY_DATACENTER: int(getattr(strategy, "replication_factor", 1))}


def levels_overlap(reading: Consistency, writing: Consistency, replicas: Mapping[str, int]) -> bool:
    """Return whether every read reaches a replica that a write has reached, from any datacenters."""
    if writing == "each_quorum" and reading == "local_quorum":
        return True
    return _reached(reading, replicas) + _reached(writing, replicas) > sum(replicas.values())


def _reached(consistency: Consistency, replicas: Mapping[str, int]) -> int:
    total = sum(replicas.values())
    reached = {
        "one": 1,
        "two": 2,
        "three": 3,
        "quorum": _majority(total),
        "local_quorum": min(map(_majority, replicas.values())),
        "each_quorum": sum(map(_majority, replicas.values())),
        "all": total,
    }
    return reached[consistency]


def _majority(replicas: int) -> int:
    return replicas // 2 + 1
