"""Ports that nobody uses now, and that the kernel will not give away later; and whether somebody listens at one."""

from __future__ import annotations

import random
import socket
from collections.abc import Iterable, Sequence
from contextlib import ExitStack

from sweep_tasks.errors import ClusterNotReady

_CANDIDATES = range(15_000, 32_000)
"""Below those that outgoing connections get: a node that is down for a while must find its port free again."""
_ATTEMPTS = 200


def free_ports(count: int, addresses: Sequence[str]) -> list[int]:
    """Each free on all the addresses at once."""
    drawn = random.SystemRandom().sample(_CANDIDATES, _ATTEMPTS)
    found = [port for port in drawn if _is_free(port, addresses)]
    if len(found) < count:
        missing = [address for address in addresses if not _is_free(0, [address])]
        problem = f"{', '.join(missing)} is no address of this machine" if missing else "all ports tried are in use"
        raise ClusterNotReady(
            f"cassandra: {problem}, so no node can listen there; 'sweepflow dev cassandra up --nodes 1' "
            "needs 127.0.0.1 alone",
            reason="no_address" if missing else "no_port",
        )
    return found[:count]


def listens(address: str, port: int) -> bool:
    """Is somebody there?"""
    try:
        socket.create_connection((address, port), timeout=1).close()
    except OSError:
        return False
    return True


def _is_free(port: int, addresses: Iterable[str]) -> bool:
    with ExitStack() as open_sockets:
        try:
            for address in addresses:
                tried = open_sockets.enter_context(socket.socket())
                tried.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                tried.bind((address, port))
        except OSError:
            return False
    return True
