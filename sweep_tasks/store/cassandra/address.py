"""The URL of a Cassandra store: `cassandra://host1,host2:9042/keyspace?replication=3&datacenter=east`.

URLs appear in `ps`, in logs and in the Airflow UI, so a URL with a user or a password is refused.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from ipaddress import ip_address
from urllib.parse import parse_qsl

from sweep_tasks.errors import BadValue

DEFAULT_PORT = 9042
FORM = "cassandra://host1,host2:9042/keyspace"
_HOST = re.compile(r"[A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\]")
_KEYSPACE = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,47}")
_PARAMETERS = {"replication", "datacenter"}


@dataclass(frozen=True, slots=True)
class CassandraAddress:
    """The hosts and the keyspace of a store, and how a new keyspace is created."""

    hosts: tuple[str, ...]
    port: int
    keyspace: str
    replication: int | None = None
    """The number of replicas for a new keyspace; None: the setting applies."""
    datacenter: str | None = None

    def __str__(self) -> str:
        given = {"replication": self.replication, "datacenter": self.datacenter}
        query = "&".join(f"{name}={value}" for name, value in given.items() if value is not None)
        return f"cassandra://{','.join(self.hosts)}:{self.port}/{self.keyspace}{'?' if query else ''}{query}"

    @classmethod
    def parse(cls, rest: str) -> CassandraAddress:
        """Parse the part of a URL that follows `cassandra:`."""
        place, _, query = rest.removeprefix("//").partition("?")
        if not rest.startswith("//") or "@" in place:
            raise BadValue(
                "store",
                f"must not contain a user or a password; give {FORM} and set cassandra_user and cassandra_password"
                if "@" in place
                else f"is not the URL of a Cassandra store; give {FORM}",
                reason="credentials" if "@" in place else "malformed",
            )
        nodes, _, keyspace = place.partition("/")
        if not _KEYSPACE.fullmatch(keyspace):
            raise BadValue(
                "store",
                f"has no valid keyspace (at most 48 letters, digits and underscores); give {FORM}",
                reason="bad_keyspace",
            )
        hosts, port = _nodes(nodes)
        given = _parameters(query)
        replication = given.get("replication")
        if replication is not None and not (replication.isdecimal() and int(replication) > 0):
            raise BadValue("store", "replication must be a number of replicas, at least 1", reason="bad_replication")
        return cls(hosts, port, keyspace, int(replication) if replication else None, given.get("datacenter"))


def only_loopback(hosts: Iterable[str]) -> bool:
    """Return whether all these hosts are this machine.

    Names other than localhost are not resolved: the result could change between this check and the connection.
    """
    return all(host.lower() == "localhost" or _is_loopback(host) for host in hosts)


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


def _nodes(text: str) -> tuple[tuple[str, ...], int]:
    """Parse the hosts and their common port. Each host may be followed by the port."""
    hosts, ports = [], set()
    for node in text.split(","):
        host = _HOST.match(node)
        if not host:
            raise BadValue("store", f"has no node, or an empty one; give {FORM}", reason="no_node")
        suffix = node[host.end() :]
        if suffix:
            port = suffix.removeprefix(":")
            if not (suffix.startswith(":") and port.isdecimal() and 0 < int(port) < 65_536):
                raise BadValue("store", f"has something other than a port after a node; give {FORM}", reason="bad_port")
            ports.add(int(port))
        hosts.append(host[0].strip("[]"))
    if len(ports) > 1:
        raise BadValue("store", "has several ports; all nodes must use the same port", reason="several_ports")
    return tuple(hosts), ports.pop() if ports else DEFAULT_PORT


def _parameters(query: str) -> dict[str, str]:
    given = dict(parse_qsl(query, keep_blank_values=True))
    unknown = sorted(set(given) - _PARAMETERS)
    if unknown:
        raise BadValue(
            "store",
            f"has an unknown parameter {unknown[0][:40]!r}; known ones are {', '.join(sorted(_PARAMETERS))}",
            reason="unknown_parameter",
        )
    return given
