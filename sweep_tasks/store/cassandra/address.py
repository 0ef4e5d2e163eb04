"""`cassandra://host1,host2:9042/keyspace?replication=3&datacenter=east`, and nothing secret in it.

Addresses are shown by `ps`, in logs and in the Airflow UI, so a user or a password has no place there.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from urllib.parse import parse_qsl

from sweep_tasks.errors import BadValue

DEFAULT_PORT = 9042
FORM = "cassandra://host1,host2:9042/keyspace"
_HOST = re.compile(r"[A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\]")
_KEYSPACE = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,47}")
_PARAMETERS = {"replication", "datacenter"}


@dataclass(frozen=True, slots=True)
class CassandraAddress:
    hosts: tuple[str, ...]
    port: int
    keyspace: str
    replication: int | None = None
    """How many copies, for a keyspace that is yet to be made; None: the setting decides."""
    datacenter: str | None = None

    def __str__(self) -> str:
        given = {"replication": self.replication, "datacenter": self.datacenter}
        query = "&".join(f"{name}={value}" for name, value in given.items() if value is not None)
        return f"cassandra://{','.join(self.hosts)}:{self.port}/{self.keyspace}{'?' if query else ''}{query}"

    @classmethod
    def parse(cls, rest: str) -> CassandraAddress:
        """`rest` is what follows `cassandra:`."""
        place, _, query = rest.removeprefix("//").partition("?")
        if not rest.startswith("//") or "@" in place:
            raise BadValue(
                "store",
                f"give {FORM}; user and password are settings, cassandra_user and cassandra_password"
                if "@" in place
                else f"a Cassandra store is named like {FORM}",
                reason="credentials" if "@" in place else "malformed",
            )
        nodes, _, keyspace = place.partition("/")
        if not _KEYSPACE.fullmatch(keyspace):
            raise BadValue(
                "store",
                f"names no keyspace of letters, digits and underscores, 48 at most; give {FORM}",
                reason="bad_keyspace",
            )
        hosts, port = _nodes(nodes)
        given = _parameters(query)
        replication = given.get("replication")
        if replication is not None and not (replication.isdecimal() and int(replication) > 0):
            raise BadValue("store", "replication is a number of copies, at least 1", reason="bad_replication")
        return cls(hosts, port, keyspace, int(replication) if replication else None, given.get("datacenter"))


def _nodes(text: str) -> tuple[tuple[str, ...], int]:
    """Each host may have the port behind it; there is one port for all."""
    hosts, ports = [], set()
    for node in text.split(","):
        host = _HOST.match(node)
        if not host:
            raise BadValue("store", f"names no node, or an empty one; give {FORM}", reason="no_node")
        behind = node[host.end() :]
        if behind:
            port = behind.removeprefix(":")
            if not (behind.startswith(":") and port.isdecimal() and 0 < int(port) < 65_536):
                raise BadValue(
                    "store", f"has something other than a port behind a node; give {FORM}", reason="bad_port"
                )
            ports.add(int(port))
        hosts.append(host[0].strip("[]"))
    if len(ports) > 1:
        raise BadValue("store", "names several ports; all nodes must listen on the same", reason="several_ports")
    return tuple(hosts), ports.pop() if ports else DEFAULT_PORT


def _parameters(query: str) -> dict[str, str]:
    given = dict(parse_qsl(query, keep_blank_values=True))
    unknown = sorted(set(given) - _PARAMETERS)
    if unknown:
        raise BadValue(
            "store",
            f"knows no parameter {unknown[0][:40]!r}; there are {', '.join(sorted(_PARAMETERS))}",
            reason="unknown_parameter",
        )
    return given
