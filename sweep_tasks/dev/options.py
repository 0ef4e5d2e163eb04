"""How Cassandra and its tools are started: the class path, and what Java must be told for them.

Cassandra reaches into Java's inner parts, which Java has closed by default since version 16; its own start script opens
them with the same list. The rest of the flags is for machines with few cores: the quick compiler alone, and the
collector that needs no threads.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

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
    """One JVM with Cassandra on its class path; arguments of `main` go behind it."""
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
