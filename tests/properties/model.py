"""The answers of a store that is never swept. Shares no code with the product: dictionaries and `max`.

The journal holds every write that was ever attempted, and the outcomes come from outside. A reader at t sees, of the
transactions that started and committed before t, the write with the greatest start.
"""

from __future__ import annotations

from dataclasses import dataclass, field

Place = tuple[str, bytes, bytes]
"""Table, row, column."""


@dataclass
class Journal:
    writes: dict[int, dict[Place, bytes]] = field(default_factory=dict)
    """By start timestamp; an empty value is a delete."""
    emptied: dict[str, int] = field(default_factory=dict)
    """Truncated tables and their marks: what started below the mark is removed."""

    def seen(self, place: Place, t: int, commits: dict[int, int]) -> bytes:
        """What a reader at t sees, empty for nothing or a delete."""
        start = self.newest(place, t, commits)
        return b"" if start is None else self.writes[start][place]

    def of(self, place: Place) -> dict[int, bytes]:
        """Every write of a cell that no truncation has removed."""
        gone = self.emptied.get(place[0], 0)
        return {start: written[place] for start, written in self.writes.items() if place in written and start >= gone}

    def newest(self, place: Place, t: int, commits: dict[int, int]) -> int | None:
        visible = [start for start in self.of(place) if start < t and -1 < commits.get(start, -1) < t]
        return max(visible, default=None)


def seen_in(versions: dict[int, bytes], t: int, commits: dict[int, int]) -> bytes:
    """The same answer, from what is really stored for a cell."""
    visible = [ts for ts in versions if -1 < ts < t and -1 < commits.get(ts, -1) < t]
    return versions[max(visible)] if visible else b""
