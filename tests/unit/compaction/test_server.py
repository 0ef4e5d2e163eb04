"""The tasks that a node reports as running or pending."""

from __future__ import annotations

import json

import pytest

from sweep_tasks.compaction.nodetool import NodeTableState, Work, table_states, work_in
from sweep_tasks.sstables.nodes import AnswerNotUnderstood
from tests.unit.sstables.answers import answer

IDLE = """\
concurrent compactors            1
pending tasks                    0
compactions completed            25
data compacted                   364948
15 minute rate                   13.26/minute
compaction throughput (MiB/s)    64.0
"""
BUSY = answer("compactionstats_of_a_busy_node.txt")
REPAIRING = BUSY.replace("Compaction      other", "Anticompaction after repair other")
AUTO = "Keyspace Table    Status\nks       t        running\nks       u        not running\n"


def stats(**tables: tuple[int, object]) -> str:
    return json.dumps(
        {
            "total_number_of_tables": len(tables),
            "ks": {
                "tables": {
                    name: {
                        "memtable_cell_count": cells,
                        "maximum_tombstones_per_slice_last_five_minutes": met,
                        "space_used_live": "1234",
                    }
                    for name, (cells, met) in tables.items()
                }
            },
        }
    )


def test_an_idle_one_has_nothing_to_do() -> None:
    assert work_in(IDLE) == Work()
    assert not work_in(IDLE).busy


def test_what_waits_and_what_runs_is_counted_and_its_tables_are_named() -> None:
    found = work_in(BUSY)
    assert (found.pending, found.running, found.busy, found.validating) == (3, 1, True, False)
    assert found.tables == {"shop.orders__big", "shop.items", "other.big"}


def test_one_that_runs_while_nothing_waits_is_work_too() -> None:
    assert work_in(BUSY.replace("pending tasks                        3", "pending tasks 0")).busy


@pytest.mark.parametrize("kind", ["Validation", "Anticompaction after repair"])
def test_a_repair_at_work_is_known_by_what_it_runs(kind: str) -> None:
    found = work_in(BUSY.replace("Compaction      other", f"{kind} other"))
    assert found.validating
    assert "other.big" in found.tables


@pytest.mark.parametrize("output", ["", "nodetool: Failed to connect", IDLE.replace("pending tasks", "pending")])
def test_an_unreadable_answer_never_counts_as_nothing_to_do(output: str) -> None:
    with pytest.raises(AnswerNotUnderstood) as refused:
        work_in(output)
    assert (refused.value.tool, refused.value.reason) == ("nodetool compactionstats", "missing")


def test_something_that_runs_and_is_not_understood_is_never_overlooked() -> None:
    with pytest.raises(AnswerNotUnderstood) as refused:
        work_in(BUSY.replace("87eee370-e25a-11f1-9f79-c938616384d4", "number-one"))
    assert (refused.value.tool, refused.value.reason) == ("nodetool compactionstats", "unknown_line")


def test_tables_report_memory_use_and_tombstones_met_by_readers() -> None:
    assert table_states(stats(t=(5, 700), u=(0, 0)), AUTO, "ks") == {
        "ks.t": NodeTableState(memtable_cells=5, read_tombstones=700, size=1_234),
        "ks.u": NodeTableState(compacting=False, size=1_234),
    }


@pytest.mark.parametrize(
    ("output", "auto"), [("no JSON", AUTO), ("{}", AUTO), (stats(t=(5, 700)), "nothing"), (stats(t=(5, "NaN")), AUTO)]
)
def test_an_answer_that_lacks_something_is_an_error(output: str, auto: str) -> None:
    with pytest.raises(AnswerNotUnderstood) as refused:
        table_states(output, auto, "ks")
    assert refused.value.tool == "nodetool tablestats"
