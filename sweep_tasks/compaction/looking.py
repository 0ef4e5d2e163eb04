"""Everything that a plan needs to know about a node at one moment: its files, its tables, and what it is busy with."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from sweep_tasks.compaction.facts import Facts
from sweep_tasks.compaction.metadata import metadata_of
from sweep_tasks.compaction.node_files import Order, remembered
from sweep_tasks.compaction.planning import Plan, Tried, all_stopped, planned
from sweep_tasks.compaction.proof import Known, TableFacts
from sweep_tasks.compaction.remembered import DECLINED
from sweep_tasks.compaction.rules import FileStatistics, Verdict, plan
from sweep_tasks.compaction.server import Server, TableState, blocker_in, look_at
from sweep_tasks.compaction.statistics_file import read_statistics
from sweep_tasks.compaction.thresholds import ThresholdsByTable
from sweep_tasks.errors import BadValue


@dataclass(frozen=True, slots=True)
class Look:
    server: Server
    verdicts: list[Verdict]
    tables: dict[str, TableFacts]
    """Those with a candidate."""
    plan: Plan


def look_and_plan(order: Order, thresholds: ThresholdsByTable, budget: int) -> Look:
    """Nothing is planned while the server has compactions of its own to do, or a repair runs: those go first."""
    server = look_at(order.node, order.tables)
    measured: list[Facts] = []
    verdicts = plan(_statistics(order, server, measured), thresholds)
    tables = {verdict.table for verdict in verdicts if verdict.worth_it and verdict.table}
    facts = table_facts(order, server, tables, measured)
    tried = Tried(remembered(order).causes(), remembered(order, DECLINED).causes(), order.now_s)
    found = planned(verdicts, facts, budget, tried)
    blocker = blocker_in(server.work, server.repairing)
    return Look(server, verdicts, facts, all_stopped(found, blocker) if blocker else found)


def table_facts(
    order: Order, server: Server, tables: Collection[str], measured: Iterable[Facts]
) -> dict[str, TableFacts]:
    """Of the files that stand there now; what was measured of one that is another by now does not count."""
    if not tables:
        return {}
    standing = replace(order, tables={name: order.tables[name] for name in tables}).files()
    facts = {each.identity: each for each in measured}
    metadata = metadata_of(order.node, [sstable.data for sstable in standing])
    files: dict[str, dict[str, Known]] = {name: {} for name in tables}
    for sstable, identity in standing.items():
        if sstable.data in metadata:
            known = Known(identity, metadata[sstable.data], facts.get(identity))
            files[sstable.qualified_table][str(sstable.data)] = known
    return {name: _table(order, server.tables.get(name, TableState()), name, files[name]) for name in tables}


def _table(order: Order, state: TableState, name: str, files: dict[str, Known]) -> TableFacts:
    table = order.tables[name]
    return TableFacts(name, table.gc_grace_s, table.compaction, state.compacting, files)


def known_facts(order: Order) -> Iterator[Facts]:
    """Of all files that were measured last."""
    return (Facts.from_json(each.proof) for each in read_statistics(_lines(order.statistics)) if each.proof)


def _statistics(order: Order, server: Server, measured: list[Facts]) -> Iterator[FileStatistics]:
    """Those of these tables, one by one, as they may be many and each as large as its file has blocks; what a proof
    needs of them is little, and is put by."""
    for each in read_statistics(_lines(order.statistics)):
        state = server.tables.get(each.table or "")
        if each.table in order.tables and state is not None:
            pending = each.table in server.work.tables
            if each.proof is not None:
                measured.append(Facts.from_json(each.proof))
            yield replace(each, pending=pending, read_tombstones=state.read_tombstones, proof=None)


def _lines(statistics: Path) -> Iterator[str]:
    try:
        with statistics.open(encoding="utf-8") as lines:
            yield from lines
    except FileNotFoundError:
        raise BadValue("statistics", f"{statistics} is not there; measure the node first") from None
