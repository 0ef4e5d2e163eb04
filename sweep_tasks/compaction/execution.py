"""Compacting what was planned, one set of files after the other, and measuring what came of it.

Before each the files are looked for, since the server may have compacted them itself. Nothing that runs is ever
interrupted: a user-defined compaction takes its place in the server's queue. Cassandra removes the files it replaced a
moment after it is done.

Which files came of a compaction Cassandra does not say; flushes and other compactions of the table make new ones at the
same time. But each file tells which stretches of the commit log it covers, and what is compacted covers what its
sources covered, all of it and nothing else (`descent.py`). Where that leaves a doubt, the outcome is called unknown.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import Any

from sweep_tasks.compaction.descent import Descent, descent_of
from sweep_tasks.compaction.facts import Facts
from sweep_tasks.compaction.looking import known_facts, table_facts
from sweep_tasks.compaction.metadata import metadata_of
from sweep_tasks.compaction.node_files import Order, remembered
from sweep_tasks.compaction.planning import Compaction, cause_of, declined_cause
from sweep_tasks.compaction.proof import Blocker, Known, TableFacts, droppable_in
from sweep_tasks.compaction.remembered import DECLINED
from sweep_tasks.compaction.server import look_at
from sweep_tasks.compaction.sstables import Identity, SSTable
from sweep_tasks.errors import NodetoolFailed

WORTH_IT = 10
"""A compaction that drops less than one in so many of the tombstones that were to go was fruitless."""


@dataclass(frozen=True, slots=True)
class Patience:
    """How long the files that were compacted may stay. A reader may hold them; and where nothing new has appeared
    either, the server has declined."""

    replaced_s: float = 60.0
    nothing_new_s: float = 10.0
    look_again_s: float = 0.2


PATIENT = Patience()


class Outcome(StrEnum):
    DONE = "done"
    FRUITLESS = "fruitless"
    GONE = "gone"
    DECLINED = "declined"
    UNKNOWN = "unknown"
    """Compacted, but what came of it can't be told from what others made, or was compacted again at once."""
    FAILED = "failed"
    PLANNED = "planned"


@dataclass(frozen=True, slots=True)
class Result:
    compaction: Compaction
    outcome: Outcome
    before: tuple[Facts, ...] | None = ()
    after: tuple[Facts, ...] | None = ()
    """None: not known."""
    kept: Mapping[str, int] | None = None
    made: tuple[str, ...] = ()
    problem: str | None = None

    @property
    def dropped(self) -> int | None:
        if self.before is None or self.after is None:
            return None
        return max(0, _tombstones(self.before) - _tombstones(self.after))

    def document(self) -> dict[str, Any]:
        compaction, before, after = self.compaction, self.before, self.after
        return {
            "candidate": compaction.candidate,
            "table": compaction.table,
            "reason": compaction.reason.value,
            "files": list(compaction.files),
            "outcome": self.outcome.value,
            "problem": self.problem,
            "bytes_expected": compaction.bytes,
            "bytes_read": compaction.bytes if before is None else _bytes(before),
            "bytes_written": None if after is None else _bytes(after),
            "tombstones_expected": compaction.tombstones,
            "tombstones_before": None if before is None else _tombstones(before),
            "tombstones_after": None if after is None else _tombstones(after),
            "dropped": self.dropped,
            "kept": dict(self.kept or {}),
            "points_expected": compaction.points,
            "points_before": None if before is None else _points(before),
            "points_after": None if after is None else _points(after),
            "made": list(self.made),
        }


def carried_out(order: Order, compaction: Compaction, table: TableFacts, patience: Patience = PATIENT) -> Result:
    """`table`: as it was when this was proven. The files that stand there by now must be the same."""
    before = _standing(order, compaction.table)
    known = [table.files[name] for name in compaction.files]
    if [before.get(name) for name in compaction.files] != [each.identity for each in known]:
        return Result(compaction, Outcome.GONE)
    try:
        order.node.nodetool("compact", "--user-defined", *compaction.files, changes=True)
    except NodetoolFailed:
        _not_so_soon(order, compaction, table)  # it would be the first again, and fail before the others
        raise
    descent = _descent(order, compaction, known, before, patience)
    if descent.none_of_it:
        _not_so_soon(order, compaction, table)
        return Result(compaction, Outcome.DECLINED)
    was = tuple(each.facts for each in known if each.facts is not None)
    after = None if descent.unclear else _measured(order, descent.made)
    if after is None:
        return Result(compaction, Outcome.UNKNOWN, was, None, made=tuple(descent.made))
    kept = _kept(order, compaction, table, after)
    result = Result(compaction, Outcome.DONE, was, tuple(after.values()), kept, tuple(after))
    return _fruitless(order, result, after) if _for_nothing(result) and descent.certain else result


def _not_so_soon(order: Order, compaction: Compaction, table: TableFacts) -> None:
    candidate = compaction.candidate
    remembered(order, DECLINED).add({candidate: declined_cause(candidate, table, order.now_s)})


def _for_nothing(result: Result) -> bool:
    return (result.dropped or 0) * WORTH_IT < result.compaction.tombstones


def _descent(
    order: Order, compaction: Compaction, known: list[Known], before: Mapping[str, Identity], patience: Patience
) -> Descent:
    """When those that were compacted are gone, or have stayed for long enough."""
    began = time.monotonic()
    while True:
        standing = _standing(order, compaction.table)
        left = [name for name in compaction.files if name in standing]
        new = {name: identity for name, identity in standing.items() if name not in before}
        waited_s = time.monotonic() - began
        if not left or waited_s > (patience.replaced_s if new else patience.nothing_new_s):
            break
        time.sleep(patience.look_again_s)
    told = metadata_of(order.node, [Path(name) for name in new]) if new else {}
    made_of = {name: told.get(Path(name)) for name in new}
    return descent_of(len(left), [each.metadata for each in known], new, made_of)


def _measured(order: Order, files: Mapping[str, Identity]) -> dict[str, Facts] | None:
    """None if one was replaced once more meanwhile, or can't be read: then nothing is known of all."""
    found: dict[str, Facts] = {}
    for name, identity in files.items():
        line = order.measured(SSTable.at(Path(name), order.node.reach), identity).line
        if line is None:
            return None
        found[name] = Facts.from_json(json.loads(line)["proof"])
    return found


def _kept(order: Order, compaction: Compaction, table: TableFacts, after: Mapping[str, Facts]) -> dict[str, int]:
    """Tombstones that are still there, by what keeps them."""
    waiting = sum(each.waiting for each in after.values())
    droppable = sum(each.tombstones for each in after.values())
    kept = {Blocker.GC_GRACE.value: waiting} if waiting else {}
    if droppable:
        kept[_keeper(order, compaction, table)] = droppable
    return kept


def _keeper(order: Order, compaction: Compaction, table: TableFacts) -> str:
    """What was proven to go and stayed is kept by what no proof can see: cells in memory, or a filter's error."""
    if droppable_in(compaction.files, table) < droppable_in(table.files, table):
        return "overlap"
    in_memory = look_at(order.node, [compaction.table]).tables[compaction.table].memtable_cells
    return "memtable" if in_memory else "unknown"


def _fruitless(order: Order, result: Result, made: Mapping[str, Facts]) -> Result:
    """What came of it is not tried again until something changes."""
    name = result.compaction.table
    measured = (*known_facts(order), *made.values())
    now = table_facts(order, look_at(order.node, [name]), [name], measured)[name]
    remembered(order).add({file: cause_of(file, now) for file in made if file in now.files})
    return replace(result, outcome=Outcome.FRUITLESS)


def _standing(order: Order, table: str) -> dict[str, Identity]:
    files = replace(order, tables={table: order.tables[table]}).files()
    return {str(sstable.data): identity for sstable, identity in files.items()}


def _bytes(files: tuple[Facts, ...]) -> int:
    return sum(each.identity.size for each in files)


def _tombstones(files: tuple[Facts, ...]) -> int:
    return sum(each.tombstones + each.waiting for each in files)


def _points(files: tuple[Facts, ...]) -> int:
    return sum(each.keys for each in files)
