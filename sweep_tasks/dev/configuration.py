"""What a node of the local cluster is told: `cassandra.yaml` and where it logs.

Small in everything that costs memory or disk, close to the defaults in everything that decides how it behaves. Every
node gets its tokens and joins at once instead of asking the others for data: all nodes start on empty folders.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

TOKENS = 4
_RING = 2**64

LOGGING = """<configuration>
  <appender name="console" class="ch.qos.logback.core.ConsoleAppender">
    <encoder><pattern>%-5level [%thread] %date{ISO8601} %logger{0} - %msg%n</pattern></encoder>
  </appender>
  <root level="INFO"><appender-ref ref="console"/></root>
</configuration>
"""

TOOL_LOGGING = """<configuration>
  <appender name="console" class="ch.qos.logback.core.ConsoleAppender">
    <target>System.err</target>
    <encoder><pattern>%-5level %date{ISO8601} %msg%n</pattern></encoder>
  </appender>
  <root level="WARN"><appender-ref ref="console"/></root>
</configuration>
"""
"""What a tool prints is its answer, so what it logs goes elsewhere."""
TOOL_LOGGING_FILE = "logback-tools.xml"

_SMALL = {
    "memtable_heap_space": "128MiB",
    "memtable_offheap_space": "64MiB",
    "commitlog_total_space": "256MiB",
    "key_cache_size": "16MiB",
    "counter_cache_size": "0MiB",
    "file_cache_size": "64MiB",
    "concurrent_compactors": 1,
    "cdc_enabled": False,
    "materialized_views_enabled": False,
    "auto_snapshot": False,  # a dropped table leaves nothing behind
}
_BATCHES = {
    "batch_size_warn_threshold": "64KiB",
    "batch_size_fail_threshold": "640KiB",
    "unlogged_batch_across_partitions_warn_threshold": 200,
}
_SYNC_NOW_AND_THEN = {"commitlog_sync": "periodic", "commitlog_sync_period": "1s"}
"""The default way and the fastest: a node that is killed may lose what it answered in its last tenth of a second."""
_SYNC_BEFORE_ANSWER = {"commitlog_sync": "group", "commitlog_sync_group_window": "2ms"}
_PATIENCE = {  # longer than the defaults where a machine with two busy cores needs it
    "read_request_timeout": "5s",
    "range_request_timeout": "10s",
    "write_request_timeout": "4s",
    "cas_contention_timeout": "4s",
    "truncate_request_timeout": "60s",
    "request_timeout": "10s",
}


def cassandra_yaml(
    *,
    cluster: str,
    address: str,
    seeds: Sequence[str],
    native_port: int,
    storage_port: int,
    tokens: Sequence[int],
    survives_kill: bool,
) -> str:
    """The directories are those of `-Dcassandra.storagedir`."""
    provider = {
        "class_name": "org.apache.cassandra.locator.SimpleSeedProvider",
        "parameters": [{"seeds": ",".join(f"{seed}:{storage_port}" for seed in seeds)}],
    }
    settings: dict[str, Any] = {
        "cluster_name": cluster,
        "partitioner": "org.apache.cassandra.dht.Murmur3Partitioner",
        "endpoint_snitch": "SimpleSnitch",
        "seed_provider": [provider],
        "listen_address": address,
        "rpc_address": address,
        "native_transport_port": native_port,
        "storage_port": storage_port,
        "num_tokens": len(tokens),
        "initial_token": ",".join(map(str, tokens)),
        "auto_bootstrap": False,
        "block_for_peers_timeout_in_secs": -1,  # whoever starts the nodes waits for them
        "hinted_handoff_enabled": True,
        "paxos_variant": "v2",
        "memtable_allocation_type": "heap_buffers",
        **(_SYNC_BEFORE_ANSWER if survives_kill else _SYNC_NOW_AND_THEN),
        **_SMALL,
        **_BATCHES,
        **_PATIENCE,
    }
    return "".join(f"{name}: {json.dumps(value)}\n" for name, value in settings.items())


def tokens_of(number: int, nodes: int) -> list[int]:
    """Of node `number` (from 1): every node owns as much of the ring as every other."""
    total = nodes * TOKENS
    return [-_RING // 2 + _RING * slot // total + 1 for slot in range(number - 1, total, nodes)]


def write_configuration(folder: Path, yaml: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "cassandra.yaml").write_text(yaml)
    (folder / "logback.xml").write_text(LOGGING)
    (folder / TOOL_LOGGING_FILE).write_text(TOOL_LOGGING)
