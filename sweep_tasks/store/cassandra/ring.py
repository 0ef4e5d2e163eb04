"""The token ring: which rows have the same replicas, and the scan order of rows.

Writes to the same replicas are sent in one batch. With rows of different replicas, the coordinator would have to
forward most of the batch. Within a batch, writes are in the order of the ring, so that writes to one partition become
one mutation.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from struct import Struct
from typing import Any, TypeVar

from cassandra.cluster import Cluster
from cassandra.metadata import Murmur3Token

from sweep_tasks.model import LEAST_TOKEN
from sweep_tasks.store.contract import ScanRange

Keyed = TypeVar("Keyed", bound=tuple[Any, ...])

_TOKENS = 2**64
_token = Struct(">q")


def token_of(row: bytes) -> int:
    token: int = Murmur3Token.hash_fn(row)
    return token


def equal_ranges(parts: int, since: bytes = b"") -> list[ScanRange]:
    """Split the ring, or the part from a row on, into equal ranges.

    Tokens are hashes, so equal ranges have about the same number of rows.
    """
    first = token_of(since) if since else LEAST_TOKEN
    tokens = LEAST_TOKEN + _TOKENS - first
    edges = sorted({first + tokens * number // parts for number in range(1, parts)} - {first})
    return ScanRange.between((_token.pack(edge) for edge in edges), _token.pack(first) if since else b"")


def tokens_of(scan_range: ScanRange) -> tuple[int, int | None]:
    """Return the first token of a range and its exclusive end; None if it extends to the last token."""
    (first,) = _token.unpack(scan_range.first) if scan_range.first else (LEAST_TOKEN,)
    (end,) = _token.unpack(scan_range.end) if scan_range.end else (None,)
    return first, end


class Ring:
    """Groups the rows of one keyspace by their replicas, as the driver currently knows them."""

    def __init__(self, cluster: Cluster, keyspace: str) -> None:
        self._cluster = cluster
        self._keyspace = keyspace
        self._built_from: object = None
        self._tokens: list[int] = []
        self._groups: list[int] = []

    def by_replicas(self, items: Iterable[Keyed]) -> Iterator[list[Keyed]]:
        """Yield items, each of which starts with its row, as one list per set of replicas, in token order."""
        self._refresh()
        groups: dict[int, list[tuple[int, Keyed]]] = {}
        for item in items:
            token = token_of(item[0])
            groups.setdefault(self._group(token), []).append((token, item))
        for found in groups.values():
            found.sort(key=lambda each: each[0])
            yield [item for _, item in found]

    def _group(self, token: int) -> int:
        if not self._tokens:
            return 0
        return self._groups[bisect_left(self._tokens, token) % len(self._tokens)]

    def _refresh(self) -> None:
        """Rebuild the groups if the driver has a new token map, as after a change of nodes."""
        known = self._cluster.metadata.token_map
        if known is self._built_from or known is None:
            return
        numbers: dict[frozenset[Any], int] = {}
        groups = []
        for token in known.ring:
            replicas: Sequence[Any] = known.get_replicas(self._keyspace, token)
            groups.append(numbers.setdefault(frozenset(host.endpoint for host in replicas), len(numbers)))
        self._built_from, self._tokens, self._groups = known, [token.value for token in known.ring], groups
