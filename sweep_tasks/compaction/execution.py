"""Compacting what was planned, one set of files after the other, and measuring what came of it.

Before each the server is asked again, since its own compactions go first, and the files are looked for, since it may
have compacted them itself. Nothing that runs is ever interrupted: a user-defined compaction takes its place in the
server's queue. Cassandra removes the files it replaced a moment after it is done.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import Any

from sweep_tasks.compaction.facts import Facts
from sweep_tasks.compaction.looking import table_facts
from sweep_tasks.compaction.node_files import Order, remembered
from sweep_tasks.compaction.planning import Compaction, cause_of
from sweep_tasks.compaction.proof import Blocker, TableFacts, droppable_in
from sweep_tasks.compaction.server import look_at
from sweep_tasks.compaction.sstables import Identity, SSTable

_PATIENCE_S = 60.0
_LOOK_AGAIN_S = 0.2


class Outcome(StrEnum):
    DONE = "done"
    FRUITLESS = "fruitless"
    GONE = "gone"
    DECLINED = "declined"
    PLANNED = "planned"


@dataclass(frozen=True, slots=True)
class Result:
    compaction: Compaction
    outcome: Outcome
    before: tuple[Facts, ...] = ()
    after: tuple[Facts, ...] = ()
    kept: Mapping[str, int] | None = None
    made: tuple[str, ...] = ()

    @property
    def dropped(self) -> int:
        return max(0, _tombstones(self.before) - _tombstones(self.after))

    def document(self) -> dict[str, Any]:
        compaction = self.compaction
        return {
            "candidate": compaction.candidate,
            "table": compaction.table,
            "reason": compaction.reason.value,
            "files": list(compaction.files),
            "outcome": self.outcome.value,
            "bytes_expected": compaction.bytes,
            "bytes_read": sum(each.identity.size for each in self.before),
            "bytes_written": sum(each.identity.size for each in self.after),
            "tombstones_expected": compaction.tombstones,
            "tombstones_before": _tombstones(self.before),
            "tombstones_after": _tombstones(self.after),
            "dropped": self.dropped,
            "kept": dict(self.kept or {}),
            "points_before": sum(each.keys for each in self.before),
            "points_after": sum(each.keys for each in self.after),
            "made": list(self.made),
        }


def carried_out(order: Order, compaction: Compaction, table: TableFacts) -> Result:
    """`table`: as it was when this was proven. The files that stand there by now must be the same."""
    before = _standing(order, compaction.table)
    known = [table.files[name] for name in compaction.files]
    if [before.get(name) for name in compaction.files] != [each.identity for each in known]:
        return Result(compaction, Outcome.GONE)
    order.node.nodetool("compact", "--user-defined", *compaction.files, changes=True)
    made = _made(order, compaction, before)
    was = tuple(each.facts for each in known if each.facts is not None)
    if made is None:
        return Result(compaction, Outcome.DECLINED, was, was)
    after = _measured(order, made)
    kept = _kept(order, compaction, table, after)
    result = Result(compaction, Outcome.DONE, was, tuple(after.values()), kept, tuple(made))
    return result if result.dropped else _fruitless(order, result, after)


def _made(order: Order, compaction: Compaction, before: Mapping[str, Identity]) -> dict[str, Identity] | None:
    """The files that took the place of the others; None if those are still there, all of them."""
    until = time.monotonic() + _PATIENCE_S
    while True:
        standing = _standing(order, compaction.table)
        left = [name for name in compaction.files if name in standing]
        if not left or time.monotonic() > until:
            made = {name: identity for name, identity in standing.items() if name not in before}
            return None if len(left) == len(compaction.files) else made
        time.sleep(_LOOK_AGAIN_S)


def _measured(order: Order, files: Mapping[str, Identity]) -> dict[str, Facts]:
    """Files that were replaced once more meanwhile are left out."""
    outcomes = {
        name: order.measured(SSTable.at(Path(name), order.node.reach), identity) for name, identity in files.items()
    }
    return {name: Facts.from_json(json.loads(each.line)["proof"]) for name, each in outcomes.items() if each.line}


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
    now = table_facts(order, look_at(order.node, [name]), [name], made.values())[name]
    remembered(order).add({file: cause_of(file, now) for file in made if file in now.files})
    return replace(result, outcome=Outcome.FRUITLESS)


def _standing(order: Order, table: str) -> dict[str, Identity]:
    files = replace(order, tables={table: order.tables[table]}).files()
    return {str(sstable.data): identity for sstable, identity in files.items()}


def _tombstones(files: tuple[Facts, ...]) -> int:
    return sum(each.tombstones + each.waiting for each in files)
