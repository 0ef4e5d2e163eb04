"""One node of the local Cassandra cluster: its options, its configuration, its process and its tools."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cassandra import ConsistencyLevel, DriverException, RequestExecutionException, Unavailable
from cassandra.cluster import EXEC_PROFILE_DEFAULT, Cluster, ExecutionProfile, NoHostAvailable, Session
from cassandra.policies import FallthroughRetryPolicy, WhiteListRoundRobinPolicy

from sweep_tasks.errors import NodetoolFailed
from sweep_tasks.local.processes import ClusterState, Started, listens, start_process
from sweep_tasks.processes import inherited_environment

# ---------------------------------------------------------------------------------------------------------------------
# How Cassandra and its tools are started: the class path, and the options of Java.
#
# Cassandra uses internal packages of Java, which Java has closed by default since version 16; its own start script
# opens them with the same list. The other options are for machines with few cores: only the quick compiler, and the
# garbage collector that needs no threads.
# ---------------------------------------------------------------------------------------------------------------------

DAEMON = "org.apache.cassandra.service.CassandraDaemon"
NODETOOL = "org.apache.cassandra.tools.NodeTool"
SSTABLEDUMP = "org.apache.cassandra.tools.SSTableExport"
SSTABLEMETADATA = "org.apache.cassandra.tools.SSTableMetadataViewer"

_EXPORTS = [
    "java.base/java.lang.ref",
    "java.base/jdk.internal.misc",
    "java.base/sun.nio.ch",
    "java.management.rmi/com.sun.jmx.remote.internal.rmi",
    "java.rmi/sun.rmi.registry",
    "java.rmi/sun.rmi.server",
    "java.sql/java.sql",
    "jdk.unsupported/sun.misc",
]
_OPENS = [
    "java.base/java.io",
    "java.base/java.lang",
    "java.base/java.lang.module",
    "java.base/java.nio",
    "java.base/java.util",
    "java.base/java.util.concurrent",
    "java.base/java.util.concurrent.atomic",
    "java.base/jdk.internal.loader",
    "java.base/jdk.internal.math",
    "java.base/jdk.internal.module",
    "java.base/jdk.internal.ref",
    "java.base/jdk.internal.reflect",
    "java.base/jdk.internal.util.jar",
    "java.base/sun.nio.ch",
    "jdk.management/com.sun.management.internal",
]
_LIGHT = ["-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xshare:auto", "-XX:-UsePerfData"]


def java_command(java: str, jars: Path, main: str, options: list[str], properties: Mapping[str, object]) -> list[str]:
    """Return the command of a JVM with Cassandra on its class path; arguments of `main` are appended to it."""
    return [
        java,
        *_LIGHT,
        *options,
        *(f"--add-exports={part}=ALL-UNNAMED" for part in _EXPORTS),
        *(f"--add-opens={part}=ALL-UNNAMED" for part in _OPENS),
        *(f"-D{name}={value}" for name, value in properties.items()),
        *("-cp", f"{jars}/*", main),
    ]


def heap(nodes: int) -> list[str]:
    return ["-Xms256m", f"-Xmx{'1g' if nodes == 1 else '768m'}", "-XX:+ExitOnOutOfMemoryError"]


# ---------------------------------------------------------------------------------------------------------------------
# The configuration of a node: `cassandra.yaml` and logging.
#
# Small in everything that costs memory or disk, close to the defaults in everything that affects behaviour. Every node
# gets its tokens and joins at once instead of streaming data from the others: all nodes start on empty folders.
# ---------------------------------------------------------------------------------------------------------------------

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
"""The output of a tool is its answer, so its log goes to stderr."""
TOOL_LOGGING_FILE = "logback-tools.xml"
DATACENTER_FILE = "cassandra-rackdc.properties"
ONE_DATACENTER, BY_FILE = "SimpleSnitch", "GossipingPropertyFileSnitch"
"""How a node knows its datacenter: there is only one, or it is in the file."""

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
    "auto_snapshot": False,  # a dropped table leaves no files behind
}
_BATCHES = {
    "batch_size_warn_threshold": "64KiB",
    "batch_size_fail_threshold": "640KiB",
    "unlogged_batch_across_partitions_warn_threshold": 200,
}
_SYNC_PERIODICALLY = {"commitlog_sync": "periodic", "commitlog_sync_period": "1s"}
"""The default and the fastest: a node that is killed may lose writes that it has acknowledged in the last tenth of a
second."""
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
    snitch: str = ONE_DATACENTER,
) -> str:
    """Return the configuration. The directories are those of `-Dcassandra.storagedir`."""
    provider = {
        "class_name": "org.apache.cassandra.locator.SimpleSeedProvider",
        "parameters": [{"seeds": ",".join(f"{seed}:{storage_port}" for seed in seeds)}],
    }
    settings: dict[str, Any] = {
        "cluster_name": cluster,
        "partitioner": "org.apache.cassandra.dht.Murmur3Partitioner",
        "endpoint_snitch": snitch,
        "seed_provider": [provider],
        "listen_address": address,
        "rpc_address": address,
        "native_transport_port": native_port,
        "storage_port": storage_port,
        "num_tokens": len(tokens),
        "initial_token": ",".join(map(str, tokens)),
        "auto_bootstrap": False,
        "block_for_peers_timeout_in_secs": -1,  # the caller waits for the nodes
        "hinted_handoff_enabled": True,
        "paxos_variant": "v2",
        "memtable_allocation_type": "heap_buffers",
        **(_SYNC_BEFORE_ANSWER if survives_kill else _SYNC_PERIODICALLY),
        **_SMALL,
        **_BATCHES,
        **_PATIENCE,
    }
    return "".join(f"{name}: {json.dumps(value)}\n" for name, value in settings.items())


def tokens_of(number: int, nodes: int) -> list[int]:
    """Return the tokens of node `number` (from 1). Every node owns an equal part of the ring."""
    total = nodes * TOKENS
    return [-_RING // 2 + _RING * slot // total + 1 for slot in range(number - 1, total, nodes)]


def write_configuration(folder: Path, yaml: str, datacenter: str | None = None) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    if datacenter:
        (folder / DATACENTER_FILE).write_text(f"dc={datacenter}\nrack=rack1\n")
    (folder / "cassandra.yaml").write_text(yaml)
    (folder / "logback.xml").write_text(LOGGING)
    (folder / TOOL_LOGGING_FILE).write_text(TOOL_LOGGING)


# ---------------------------------------------------------------------------------------------------------------------
# Does this node answer, and how many nodes does it see?
#
# An open port is not an answer, and a name in gossip is not a replica that answers requests. So one node is queried
# through the driver. A query that needs every replica shows how many nodes it sees: it succeeds, or the error contains
# how many are up.
# ---------------------------------------------------------------------------------------------------------------------

_PATIENCE_S = 12.0
_THREE_REPLICAS = "SELECT parent_id FROM system_distributed.parent_repair_history WHERE parent_id = {}"
"""A query of a system table that has three replicas, or would have if there were as many nodes."""


def release_version(address: str, port: int) -> str | None:
    """Return the version of the node; None while it does not answer CQL."""
    if not listens(address, port):
        return None
    try:
        with session_with(address, port) as session:
            return str(session.execute("SELECT release_version FROM system.local").one().release_version)
    except (NoHostAvailable, DriverException, OSError):
        return None


def nodes_seen_up(address: str, port: int, patience_s: float = _PATIENCE_S) -> int:
    """Return how many nodes, of up to three, the node at `address` can reach, itself included; 0 if it does not
    answer."""
    try:
        with session_with(address, port, patience_s) as session:
            session.execute(_THREE_REPLICAS.format(uuid.uuid1()))
    except Unavailable as refused:
        return int(refused.alive_replicas)
    except (NoHostAvailable, RequestExecutionException, DriverException, OSError):
        return 0
    return 3


@contextmanager
def session_with(address: str, port: int, patience_s: float = _PATIENCE_S) -> Iterator[Session]:
    """Connect to the node at this address and to no other; every query needs every replica."""
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


# ---------------------------------------------------------------------------------------------------------------------
# One node of the local cluster: its folder, its process, and Cassandra's tools for it.
# ---------------------------------------------------------------------------------------------------------------------

PRINTED_NOTHING = "it printed nothing"
_LINES_SHOWN = 12
_CHARACTERS_SHOWN = 300
_IRRELEVANT = re.compile(r"\s+(at |\.\.\. )|\w+ +\[StorageServiceShutdownHook\]")
_TOOL_PATIENCE_S = 600
_TOOLS_FOLDER = "bin"
_FILE_TOOLS = {"sstabledump": SSTABLEDUMP, "sstablemetadata": SSTABLEMETADATA}


@dataclass(frozen=True, slots=True)
class LocalNode:
    """A node of the local cluster, running or not."""

    number: int
    folder: Path
    state: ClusterState
    jars: Path

    @property
    def address(self) -> str:
        return address_of(self.number)

    @property
    def log(self) -> Path:
        return self.folder / "log"

    def start(self, running: Sequence[str], *, dies_with_parent: bool) -> Started:
        """Start the node. `running`: the addresses of nodes that it can join."""
        yaml = cassandra_yaml(
            cluster=f"sweepflow-{self.state.storage_port}",
            address=self.address,
            seeds=[*running, self.address],
            native_port=self.state.native_port,
            storage_port=self.state.storage_port,
            tokens=tokens_of(self.number, self.state.nodes),
            survives_kill=self.state.nodes > 1,  # a quorum must not lose acknowledged writes with one node
            snitch=BY_FILE if self._datacenter else ONE_DATACENTER,
        )
        write_configuration(self.folder, yaml, self._datacenter)
        self.write_tools()
        return start_process(self.daemon_command(), self.log, dies_with_parent=dies_with_parent)

    def nodetool(self, *arguments: str) -> str:
        try:
            done = subprocess.run(  # noqa: S603
                [*self.nodetool_command(), *arguments],
                env=inherited_environment(),
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                check=False,
                timeout=_TOOL_PATIENCE_S,
            )
        except subprocess.TimeoutExpired:
            raise self._nodetool_failed(arguments, f"it did not end within {_TOOL_PATIENCE_S} s") from None
        if done.returncode:
            output = (done.stdout + done.stderr).strip().splitlines()[-_LINES_SHOWN:]
            raise self._nodetool_failed(arguments, "\n".join(output) or PRINTED_NOTHING)
        return done.stdout

    def _nodetool_failed(self, arguments: Sequence[str], output: str) -> NodetoolFailed:
        return NodetoolFailed(
            f"nodetool: {' '.join(arguments)} failed on node {self.number}: {output}",
            node=self.number,
            arguments=tuple(arguments),
            said=output,
        )

    def nodetool_command(self) -> list[str]:
        properties = {
            "logback.configurationFile": self.folder / "logback.xml",
            "user.home": self.folder,  # it keeps a history of commands there
        }
        command = java_command(_java(), self.jars, NODETOOL, ["-Xmx128m"], properties)
        return [*command, "-h", "127.0.0.1", "-p", str(self._jmx_port)]

    def for_compaction(self) -> dict[str, str]:
        """Return the entry of the setting `compaction_nodes` for this node."""
        tools = {name: str(self.folder / _TOOLS_FOLDER / name) for name in ("nodetool", *_FILE_TOOLS)}
        return {"data": str(self.folder / "data"), **tools}

    def tool(self, main: str) -> list[str]:
        """Return the command of a tool that reads the files of the node, running or not; its arguments are appended."""
        properties = {
            "cassandra.config": (self.folder / "cassandra.yaml").as_uri(),
            "cassandra.storagedir": self.folder,
            "logback.configurationFile": self.folder / TOOL_LOGGING_FILE,
        }
        return java_command(_java(), self.jars, main, ["-Xmx256m"], properties)

    def log_tail(self) -> str:
        """Return the end of its log without lines that do not show the cause: stack frames and the orderly shutdown."""
        lines = self.log.read_text(errors="replace").splitlines() if self.log.exists() else []
        relevant = [line[:_CHARACTERS_SHOWN] for line in lines if not _IRRELEVANT.match(line)]
        return "\n".join(relevant[-_LINES_SHOWN:]) or PRINTED_NOTHING

    def write_tools(self) -> None:
        """Write Cassandra's tools as programs that know where Java and the node are."""
        folder = self.folder / _TOOLS_FOLDER
        folder.mkdir(exist_ok=True)
        commands = {name: self.tool(main) for name, main in _FILE_TOOLS.items()}
        for name, command in ({"nodetool": self.nodetool_command()} | commands).items():
            (folder / name).write_text(f'#!/bin/sh\nexec {shlex.join(command)} "$@"\n')
            (folder / name).chmod(0o755)

    @property
    def _jmx_port(self) -> int:
        return self.state.jmx_ports[self.number - 1]

    @property
    def _datacenter(self) -> str | None:
        """The datacenter of this node; None if all nodes are in one, which Cassandra names."""
        return self.state.datacenters[self.number - 1] if self.state.datacenters else None

    def daemon_command(self) -> list[str]:
        properties = {
            "cassandra.config": (self.folder / "cassandra.yaml").as_uri(),
            "cassandra.storagedir": self.folder,
            "cassandra.jmx.local.port": self._jmx_port,
            "logback.configurationFile": self.folder / "logback.xml",
            "cassandra-foreground": "yes",
            "jdk.attach.allowAttachSelf": "true",
            "cassandra.skip_wait_for_gossip_to_settle": 0,
            "cassandra.ring_delay_ms": 2_000,
            "cassandra.consistent.rangemovement": "false",
            "cassandra.shutdown_announce_in_ms": 200,
            "cassandra.memtable.row_overhead_size": 181,  # it would take seconds to measure this at every start
            **({DATACENTER_FILE: (self.folder / DATACENTER_FILE).as_uri()} if self._datacenter else {}),
        }
        crash = f"-XX:ErrorFile={self.folder}/crash-%p.log"
        return java_command(_java(), self.jars, DAEMON, [*heap(self.state.nodes), crash], properties)


def address_of(number: int) -> str:
    return f"127.0.0.{number}"


def _java() -> str:
    return shutil.which("java") or "java"
