"""Does this very node answer, and whom does it see?

An open port is not an answer, and a name in gossip is not a replica that serves. So a node is asked alone, through the
driver; whom it sees is learnt from a query that needs every replica: it succeeds, or the refusal says how many are up.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from cassandra import ConsistencyLevel, DriverException, RequestExecutionException, Unavailable
from cassandra.cluster import EXEC_PROFILE_DEFAULT, Cluster, ExecutionProfile, NoHostAvailable, Session
from cassandra.policies import FallthroughRetryPolicy, WhiteListRoundRobinPolicy

from sweep_tasks.dev.ports import listens

_PATIENCE_S = 12.0
_THREE_COPIES = "SELECT parent_id FROM system_distributed.parent_repair_history WHERE parent_id = {}"
"""Of a system table that Cassandra keeps on three nodes, or would if there were as many."""


def release_version(address: str, port: int) -> str | None:
    """None as long as CQL is not answered there."""
    if not listens(address, port):
        return None
    try:
        with session_with(address, port) as session:
            return str(session.execute("SELECT release_version FROM system.local").one().release_version)
    except (NoHostAvailable, DriverException, OSError):
        return None


def nodes_seen_up(address: str, port: int, patience_s: float = _PATIENCE_S) -> int:
    """How many nodes of a cluster of up to three the one at `address` can reach, itself included; 0: it is silent."""
    try:
        with session_with(address, port, patience_s) as session:
            session.execute(_THREE_COPIES.format(uuid.uuid1()))
    except Unavailable as refused:
        return int(refused.alive_replicas)
    except (NoHostAvailable, RequestExecutionException, DriverException, OSError):
        return 0
    return 3


@contextmanager
def session_with(address: str, port: int, patience_s: float = _PATIENCE_S) -> Iterator[Session]:
    """Questions go to the node at this address and to no other, and need every replica."""
    only_this_node: Any = ExecutionProfile(
        load_balancing_policy=WhiteListRoundRobinPolicy([address]),
        retry_policy=FallthroughRetryPolicy(),
        consistency_level=ConsistencyLevel.ALL,
        request_timeout=patience_s,
    )
    cluster = Cluster(
        [address],
        port=port,
        execution_profiles={EXEC_PROFILE_DEFAULT: only_this_node},
        protocol_version=5,
        connect_timeout=patience_s,
        control_connection_timeout=patience_s,
        schema_metadata_enabled=False,
        token_metadata_enabled=False,
    )
    try:
        yield cluster.connect()
    finally:
        cluster.shutdown()
