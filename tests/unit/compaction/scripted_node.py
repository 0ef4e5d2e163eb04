"""A node whose tools follow the script of a test: for what a real Cassandra does rarely, and never on request.

Its files are dumps, with the output of sstablemetadata beside them. Its tools are programs, started as real ones are.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

from sweep_tasks.compaction.execution import Patience
from sweep_tasks.compaction.node_files import RoundContext, in_threads, measure_files
from sweep_tasks.config import Settings
from sweep_tasks.model import TableRef
from sweep_tasks.sstables.dump import Tools
from sweep_tasks.sstables.files import HERE
from sweep_tasks.sstables.nodes import LogInterval, Node
from sweep_tasks.store.contract import PhysicalTable
from tests.unit.compaction.file_facts import STCS
from tests.unit.sstables.dumps import dead, live, partition, text
from tests.unit.sstables.test_encoding import statistics

TABLE, NOW_S = "ks.t", 10_000
HASTY = Patience(replaced_s=0.5, nothing_new_s=0.1, check_again_s=0.02)
IDLE = "pending tasks 0\n"
BUSY = "pending tasks 1\n- ks.other: 1\n"
REPAIRING = "ID | STATE\n1 | PREPARING\n"

_TOOLS = """\
#!{python} -SE
import json, os, pathlib, sys
folder = pathlib.Path({folder!r})
def said(what):
    queue = json.loads((folder / what).read_text())
    if len(queue) > 1:
        (folder / what).write_text(json.dumps(queue[1:]))
    return queue[0]
def sstabledump(file, *_):
    sys.stdout.write(pathlib.Path(file).with_suffix(".dump").read_text())
def sstablemetadata(*files):
    for file in map(pathlib.Path, files):
        if file.exists():
            print("SSTable: " + str(file).removesuffix("-Data.db"))
            print(file.with_suffix(".meta").read_text())
def compact(*_):
    for step in said("compactions"):
        if "fail" in step:
            sys.exit(step["fail"])
        for name in step.get("remove", ()):
            for part in pathlib.Path(name).parent.glob(pathlib.Path(name).name.removesuffix("Data.db") + "*"):
                part.unlink()
        for name in step.get("add", ()):
            for part in (folder / "made").glob(name + "*"):
                os.link(part, pathlib.Path(step["to"]) / part.name)
def nodetool(what, *rest):
    with open(folder / "asked", "a") as asked:
        asked.write(what + "\\n")
    if what == "compact":
        compact(*rest)
    elif what == "compactionstats":
        sys.stdout.write(said("work"))
    elif what == "repair_admin":
        sys.stdout.write(said("repairs"))
    elif what == "tablestats":
        state = dict.fromkeys(("memtable_cell_count", "maximum_tombstones_per_slice_last_five_minutes"), 0)
        state["space_used_live"] = 900
        names = [name.partition(".") for name in rest[2:]]
        print(json.dumps({{names[0][0]: {{"tables": {{name: state for _, _, name in names}}}}}}))
    elif what == "statusautocompaction":
        for name in rest[2:]:
            print(rest[1] + " " + name + " running")
globals()[pathlib.Path(sys.argv[0]).name](*sys.argv[1:])
"""


class ScriptedNode:
    def __init__(self, tmp: Path) -> None:
        self.folder = tmp / "node"
        self.files = self.folder / "data" / "ks" / f"t-{'0' * 32}"
        self.made = self.folder / "made"
        for folder in (self.files, self.made, tmp / "cache" / "compaction"):
            folder.mkdir(parents=True)
        for name in ("nodetool", "sstabledump", "sstablemetadata"):
            program = self.folder / name
            program.write_text(_TOOLS.format(python=sys.executable, folder=str(self.folder)))
            program.chmod(0o755)
        self.node = Node(
            "one",
            (self.folder / "data",),
            HERE,
            Tools((str(self.folder / "sstabledump"),)),
            (str(self.folder / "nodetool"),),
            (str(self.folder / "sstablemetadata"),),
        )
        table = PhysicalTable("ks", "t", 0, STCS, TableRef("shop", "orders"))
        statistics_file = tmp / "cache" / "compaction" / "one.jsonl"
        self.order = RoundContext(self.node, {TABLE: table}, NOW_S, tmp / "cache", statistics_file)
        self.settings = Settings(cache_folder=tmp / "cache", compaction_wait_s=0, compaction_dense_tombstones=5)
        self.compactions([])
        self.work(IDLE)
        self.repairs("no sessions\n")

    # --- what it does ---------------------------------------------------------------------------------------------

    def compactions(self, *each: list[dict[str, Any]]) -> None:
        """What every compaction does, one after the other; the last is repeated for all that follow."""
        (self.folder / "compactions").write_text(json.dumps(each))

    def replaces(self, gone: Iterable[Path], *created: str) -> list[dict[str, Any]]:
        return [{"remove": [str(file) for file in gone], "add": list(created), "to": str(self.files)}]

    def work(self, *output: str) -> None:
        (self.folder / "work").write_text(json.dumps(output))

    def repairs(self, *output: str) -> None:
        (self.folder / "repairs").write_text(json.dumps(output))

    @property
    def asked(self) -> list[str]:
        file = self.folder / "asked"
        return file.read_text().splitlines() if file.exists() else []

    # --- what it has ----------------------------------------------------------------------------------------------

    def file(
        self,
        number: int,
        tombstones: int = 0,
        *,
        written: int = 100,
        covers: Iterable[LogInterval] = (),
        key: bytes = b"row",
        created: bool = False,
        deleted_s: int = 1_000,
    ) -> Path:
        """`made`: not there yet, a compaction puts it there."""
        data = (self.made if created else self.files) / f"nb-{number}-big-Data.db"
        rows = [dead(20 * place + 20, deleted_s) for place in range(tombstones)]
        dump = text(partition(0, *rows, live(20 * tombstones + 20), key=key))
        metadata = _metadata(written, covers)
        parts = {"db": bytes(20 * tombstones + 60), "dump": dump.encode(), "meta": metadata.encode()}
        for suffix, content in parts.items():
            data.with_suffix(f".{suffix}").write_bytes(content)
        data.with_name(f"nb-{number}-big-Statistics.db").write_bytes(statistics(10, 500))
        data.with_name(f"nb-{number}-big-TOC.txt").touch()
        os.utime(data, ns=(1, 1_000 + number))
        return data

    def measured(self) -> RoundContext:
        """Measure the current files, as a round does first."""
        measure_files(self.order, self.settings, in_threads(1))
        return self.order

    def with_settings(self, **more: Any) -> Settings:
        return self.settings.model_copy(update=more)

    def order_at(self, now_s: int) -> RoundContext:
        return replace(self.order, now_s=now_s)


def interval(first: int, last: int) -> LogInterval:
    return (7, first), (7, last)


def _metadata(written: int, covers: Iterable[LogInterval]) -> str:
    """As sstablemetadata prints it."""
    intervals = (f"{_position(start)}={_position(end)}" for start, end in covers)
    return (
        f"Minimum timestamp: {written}\nMaximum timestamp: {written}\nSSTable Level: 0\nRepaired at: 0\n"
        f"Pending repair: --\nReplay positions covered: {{{', '.join(intervals)}}}\n"
    )


def _position(position: tuple[int, int]) -> str:
    return f"CommitLogPosition(segmentId={position[0]}, position={position[1]})"
