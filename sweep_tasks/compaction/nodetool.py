"""The running work of a node and the state of its tables, read from the output of nodetool.

The output is text for people. A line that can't be parsed is an error and never taken for "nothing to do": a compaction
must not start beside one that was overlooked.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Collection, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial

from sweep_tasks.compaction.proof import Blocker
from sweep_tasks.sstables.nodes import AnswerNotUnderstood, Node

_PENDING = re.compile(r"^pending tasks:?\s+(\d+)\s*$", re.MULTILINE)
_PENDING_OF = re.compile(r"(?:- )?(\w+)[.\s]\s*(\w+):?\s+(\d+)\s*")
_RUNNING = re.compile(
    r"^[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\s+(?P<kind>\S.*?)\s\s*(?P<rest>\S+\s+\S+)\s+\d+\s+\d+\s", re.M
)
_HEADER = re.compile(r"^id\s+compaction type\b.*$", re.MULTILINE)
_LAST_LINE = "active compaction remaining time"
_REPAIR_KINDS = ("Validation", "Anticompaction")
_NO_SESSIONS = "no sessions"
CHECK_AGAIN_S = 5.0
"""A check starts Java twice."""
_AUTO = re.compile(r"^(?P<keyspace>\w+)\s+(?P<table>\w+)\s+(?P<status>running|not running)\s*$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Work:
    """The server's own compactions."""

    pending: int = 0
    running: int = 0
    tables: frozenset[str] = frozenset()
    """The tables they are for, as far as nodetool names them."""
    validating: bool = False
    """A repair is reading or splitting files at this moment."""

    @property
    def busy(self) -> bool:
        return self.pending + self.running > 0


@dataclass(frozen=True, slots=True)
class NodeTableState:
    memtable_cells: int = 0
    read_tombstones: int = 0
    """The most tombstones that one read met in the last five minutes."""
    size: int = 0
    """The bytes of its files on this node."""
    compacting: bool = True
    """Automatic compaction is enabled."""


@dataclass(frozen=True, slots=True)
class ServerActivity:
    work: Work
    repairing: bool
    tables: Mapping[str, NodeTableState] = field(default_factory=dict)


def inspect_server(node: Node, tables: Collection[str]) -> ServerActivity:
    """The state that matters for compactions of some tables of one keyspace, from several calls at once."""
    (keyspace,) = {table.partition(".")[0] for table in tables}
    names = [table.partition(".")[2] for table in tables]
    with ThreadPoolExecutor(2) as pool:
        work = pool.submit(work_of, node)
        repairs = pool.submit(partial(node.nodetool, "repair_admin", "list"))
        stats = pool.submit(partial(node.nodetool, "tablestats", "-F", "json", *tables))
        auto = pool.submit(partial(node.nodetool, "statusautocompaction", "-a", keyspace, *names))
        found = work.result()
        states = table_states(stats.result(), auto.result(), keyspace)
        return ServerActivity(found, found.validating or _NO_SESSIONS not in repairs.result(), states)


def current_blocker(node: Node) -> Blocker | None:
    """Work of the server during which no compaction is started."""
    with ThreadPoolExecutor(2) as pool:
        work, repairs = pool.submit(work_of, node), pool.submit(partial(node.nodetool, "repair_admin", "list"))
        found, repairing = work.result(), _NO_SESSIONS not in repairs.result()
    return blocker_in(found, repairing or found.validating)


def blocker_in(work: Work, repairing: bool) -> Blocker | None:
    if work.busy:
        return Blocker.SERVER_BUSY
    return Blocker.REPAIR if repairing else None


def wait_until_idle(node: Node, patience_s: float) -> Blocker | None:
    """Wait for the server's own compactions, and return what still blocks after that time. A repair may take hours and
    is not waited for."""
    until = time.monotonic() + patience_s
    while (found := current_blocker(node)) is Blocker.SERVER_BUSY and time.monotonic() < until:
        time.sleep(min(CHECK_AGAIN_S, max(0.0, until - time.monotonic())))
    return found


def work_of(node: Node) -> Work:
    return work_in(node.nodetool("compactionstats"))


def work_in(output: str) -> Work:
    """Parse the output of `nodetool compactionstats`."""
    pending = _PENDING.search(output)
    if pending is None:
        raise AnswerNotUnderstood(
            "node: the output of nodetool compactionstats has no pending tasks; use the nodetool of Cassandra 5",
            tool="nodetool compactionstats",
            reason="missing",
        )
    waiting = _waiting_in(output[pending.end() :].strip().splitlines(), int(pending[1]))
    running = list(_running_in(output[pending.end() :]))
    running_tables = {".".join(found["rest"].split()) for found in running}
    kinds = [found["kind"] for found in running]
    return Work(
        pending=int(pending[1]),
        running=len(running),
        tables=frozenset(waiting | running_tables),
        validating=any(kind.startswith(_REPAIR_KINDS) for kind in kinds),
    )


def _running_in(output: str) -> Iterator[re.Match[str]]:
    """The lines of running tasks; there is no such list if nothing runs."""
    header = _HEADER.search(output)
    for line in output[header.end() :].splitlines()[1:] if header else ():
        if not line.strip() or line.startswith(_LAST_LINE):
            return
        found = _RUNNING.match(f"{line} ")
        if found is None:
            raise AnswerNotUnderstood(
                "node: nodetool compactionstats shows a running task in an unknown format; use the nodetool of "
                "Cassandra 5",
                tool="nodetool compactionstats",
                reason="unknown_line",
            )
        yield found


def _waiting_in(lines: list[str], pending: int) -> set[str]:
    """The tables of pending tasks. Their lines follow the number of tasks, until all are named; later lines look
    alike."""
    found: set[str] = set()
    for line in lines:
        task = _PENDING_OF.fullmatch(line)
        if pending <= 0 or task is None:
            break
        found.add(f"{task[1]}.{task[2]}")
        pending -= int(task[3])
    return found


def table_states(stats: str, auto: str, keyspace: str) -> dict[str, NodeTableState]:
    """Parse the output of `nodetool tablestats` and `statusautocompaction`."""
    compacting = {found["table"]: found["status"] == "running" for found in _AUTO.finditer(auto)}
    try:
        tables = json.loads(stats)[keyspace]["tables"]
        return {
            f"{keyspace}.{name}": NodeTableState(
                memtable_cells=int(each["memtable_cell_count"]),
                read_tombstones=int(each["maximum_tombstones_per_slice_last_five_minutes"]),
                size=int(each["space_used_live"]),
                compacting=compacting[name],
            )
            for name, each in tables.items()
        }
    except (LookupError, TypeError, ValueError) as error:
        raise AnswerNotUnderstood(
            "node: nodetool tablestats lacks figures that Cassandra 5's has; use the nodetool of Cassandra 5",
            tool="nodetool tablestats",
        ) from error
