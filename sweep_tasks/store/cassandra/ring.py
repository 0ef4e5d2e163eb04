"""Which rows live on the same nodes, and in which order a scan meets them.

Writes that go to the same copies travel together: a batch over rows of several places would make one node pass most
of it on. Within a place they are ordered like the ring, so that neighbours in a partition become one mutation.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from struct import Struct
from typing import Any, TypeVar

from cassandra.cluster import Cluster
from cassandra.metadata import Murmur3Token

from sweep_tasks.model import LEAST_TOKEN
from sweep_tasks.store.contract import Stretch

Keyed = TypeVar("Keyed", bound=tuple[Any, ...])

_TOKENS = 2**64
_token = Struct(">q")


def token_of(row: bytes) -> int:
    token: int = Murmur3Token.hash_fn(row)
    return token


def equal_stretches(parts: int, since: bytes = b"") -> list[Stretch]:
    """Tokens are hashes, so equal stretches of the ring hold about as many rows. From the place of a row on, if one is
    given."""
    first = token_of(since) if since else LEAST_TOKEN
    tokens = LEAST_TOKEN + _TOKENS - first
    edges = sorted({first + tokens * number // parts for number in range(1, parts)} - {first})
    return Stretch.between((_token.pack(edge) for edge in edges), _token.pack(first) if since else b"")


def tokens_of(stretch: Stretch) -> tuple[int, int | None]:
    """Its first token, and the one it ends before; None: it goes on to the last."""
    (first,) = _token.unpack(stretch.first) if stretch.first else (LEAST_TOKEN,)
    (end,) = _token.unpack(stretch.end) if stretch.end else (None,)
    return first, end


class Ring:
    """The places of one keyspace, as the driver knows them now."""

    def __init__(self, cluster: Cluster, keyspace: str) -> None:
        self._cluster = cluster
        self._keyspace = keyspace
        self._made_from: object = None
        self._tokens: list[int] = []
        self._places: list[int] = []

    def by_place(self, items: Iterable[Keyed]) -> Iterator[list[Keyed]]:
        """Items, each beginning with its row, as one list for each set of copies, in the order of the ring."""
        self._look()
        places: dict[int, list[tuple[int, Keyed]]] = {}
        for item in items:
            token = token_of(item[0])
            places.setdefault(self._place(token), []).append((token, item))
        for found in places.values():
            found.sort(key=lambda each: each[0])
            yield [item for _, item in found]

    def _place(self, token: int) -> int:
        if not self._tokens:
            return 0
        return self._places[bisect_left(self._tokens, token) % len(self._tokens)]

    def _look(self) -> None:
        """The driver makes a new map when nodes come or go."""
        known = self._cluster.metadata.token_map
        if known is self._made_from or known is None:
            return
        numbers: dict[frozenset[Any], int] = {}
        places = []
        for token in known.ring:
            copies: Sequence[Any] = known.get_replicas(self._keyspace, token)
            places.append(numbers.setdefault(frozenset(host.endpoint for host in copies), len(numbers)))
        self._made_from, self._tokens, self._places = known, [token.value for token in known.ring], places
