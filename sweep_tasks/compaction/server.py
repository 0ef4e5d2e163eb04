"""What a node is busy with, and what it says about tables: asked through nodetool, understood here.

Its answers come as text made for people. What is not understood is an error and never taken for "nothing to do":
a compaction must not start beside one that was overlooked.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Collection, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial

from sweep_tasks.compaction.nodes import AnswerNotUnderstood, Node
from sweep_tasks.compaction.proof import Blocker

_PENDING = re.compile(r"^pending tasks:?\s+(\d+)\s*$", re.MULTILINE)
_PENDING_OF = re.compile(r"(?:- )?(\w+)[.\s]\s*(\w+):?\s+(\d+)\s*")
_RUNNING = re.compile(
    r"^[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\s+(?P<kind>\S.*?)\s\s*(?P<rest>\S+\s+\S+)\s+\d+\s+\d+\s", re.M
)
_HEADER = re.compile(r"^id\s+compaction type\b.*$", re.MULTILINE)
_BEHIND_THEM = "active compaction remaining time"
_REPAIR_KINDS = ("Validation", "Anticompaction")
_NO_SESSIONS = "no sessions"
LOOK_AGAIN_S = 5.0
"""A look is two starts of Java."""
_AUTO = re.compile(r"^(?P<keyspace>\w+)\s+(?P<table>\w+)\s+(?P<status>running|not running)\s*$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Work:
    """The server's own compactions."""

    pending: int = 0
    running: int = 0
    tables: frozenset[str] = frozenset()
    """Those that they are for, as far as it is told."""
    validating: bool = False
    """A repair reads files, or takes them apart, at this moment."""

    @property
    def busy(self) -> bool:
        return self.pending + self.running > 0


@dataclass(frozen=True, slots=True)
class TableState:
    memtable_cells: int = 0
    read_tombstones: int = 0
    """The most that one read met in the last five minutes."""
    size: int = 0
    """Of its files on this node, in bytes."""
    compacting: bool = True
    """The server compacts it of itself; somebody may have switched that off."""


@dataclass(frozen=True, slots=True)
class Server:
    work: Work
    repairing: bool
    tables: Mapping[str, TableState] = field(default_factory=dict)


def look_at(node: Node, tables: Collection[str]) -> Server:
    """What matters for compactions of some tables of one keyspace, all asked at once."""
    (keyspace,) = {table.partition(".")[0] for table in tables}
    names = [table.partition(".")[2] for table in tables]
    with ThreadPoolExecutor(2) as pool:
        work = pool.submit(work_of, node)
        repairs = pool.submit(partial(node.nodetool, "repair_admin", "list"))
        stats = pool.submit(partial(node.nodetool, "tablestats", "-F", "json", *tables))
        auto = pool.submit(partial(node.nodetool, "statusautocompaction", "-a", keyspace, *names))
        found = work.result()
        states = table_states(stats.result(), auto.result(), keyspace)
        return Server(found, found.validating or _NO_SESSIONS not in repairs.result(), states)


def busy_with(node: Node) -> Blocker | None:
    """What of its own the server is busy with, at which nothing is begun here."""
    with ThreadPoolExecutor(2) as pool:
        work, repairs = pool.submit(work_of, node), pool.submit(partial(node.nodetool, "repair_admin", "list"))
        found, repairing = work.result(), _NO_SESSIONS not in repairs.result()
    return blocker_in(found, repairing or found.validating)


def blocker_in(work: Work, repairing: bool) -> Blocker | None:
    if work.busy:
        return Blocker.SERVER_BUSY
    return Blocker.REPAIR if repairing else None


def awaited(node: Node, patience_s: float) -> Blocker | None:
    """What is still in the way when that time is over. A compaction of the server's is waited for; a repair may take
    hours, and is not."""
    until = time.monotonic() + patience_s
    while (found := busy_with(node)) is Blocker.SERVER_BUSY and time.monotonic() < until:
        time.sleep(min(LOOK_AGAIN_S, max(0.0, until - time.monotonic())))
    return found


def work_of(node: Node) -> Work:
    return work_in(node.nodetool("compactionstats"))


def work_in(said: str) -> Work:
    """As `nodetool compactionstats` tells it."""
    pending = _PENDING.search(said)
    if pending is None:
        raise AnswerNotUnderstood(
            "node: nodetool compactionstats does not say what is pending; is it that of Cassandra 5?",
            tool="nodetool compactionstats",
            reason="missing",
        )
    waiting = _waiting_in(said[pending.end() :].strip().splitlines(), int(pending[1]))
    running = list(_running_in(said[pending.end() :]))
    under_way = {".".join(found["rest"].split()) for found in running}
    kinds = [found["kind"] for found in running]
    return Work(
        pending=int(pending[1]),
        running=len(running),
        tables=frozenset(waiting | under_way),
        validating=any(kind.startswith(_REPAIR_KINDS) for kind in kinds),
    )


def _running_in(said: str) -> Iterator[re.Match[str]]:
    """Every line of the list of those that run; there is none if nothing does."""
    header = _HEADER.search(said)
    for line in said[header.end() :].splitlines()[1:] if header else ():
        if not line.strip() or line.startswith(_BEHIND_THEM):
            return
        found = _RUNNING.match(f"{line} ")
        if found is None:
            raise AnswerNotUnderstood(
                "node: nodetool compactionstats tells of something that runs in a way not known here; is it that of "
                "Cassandra 5?",
                tool="nodetool compactionstats",
                reason="unknown_line",
            )
        yield found


def _waiting_in(lines: list[str], pending: int) -> set[str]:
    """The lines below the number say whose they are, until all are told; what follows looks much the same."""
    found: set[str] = set()
    for line in lines:
        told = _PENDING_OF.fullmatch(line)
        if pending <= 0 or told is None:
            break
        found.add(f"{told[1]}.{told[2]}")
        pending -= int(told[3])
    return found


def table_states(stats: str, auto: str, keyspace: str) -> dict[str, TableState]:
    """As `nodetool tablestats` and `statusautocompaction` tell it."""
    compacting = {found["table"]: found["status"] == "running" for found in _AUTO.finditer(auto)}
    try:
        tables = json.loads(stats)[keyspace]["tables"]
        return {
            f"{keyspace}.{name}": TableState(
                memtable_cells=int(each["memtable_cell_count"]),
                read_tombstones=int(each["maximum_tombstones_per_slice_last_five_minutes"]),
                size=int(each["space_used_live"]),
                compacting=compacting[name],
            )
            for name, each in tables.items()
        }
    except (LookupError, TypeError, ValueError) as error:
        raise AnswerNotUnderstood(
            "node: nodetool tablestats does not tell what Cassandra 5's does; use that one", tool="nodetool tablestats"
        ) from error
