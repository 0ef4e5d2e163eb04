"""Measures what the journal costs on SQLite, and how it scales with concurrent writers.

Acts with one, four and sixteen writers at once; and protecting and releasing, with journal entries and without. All
writers of a store share the head of the chain, so more writers do not record more acts per second. The ratio to one
writer shows how much is lost to attempts that another writer overtook.
"""

from __future__ import annotations

import tempfile
import threading
import time
from pathlib import Path
from typing import Any

from benchmarks.shared.timing import alternately
from sweep_tasks.config import Settings
from sweep_tasks.connections import open_store
from sweep_tasks.journal.journal import Journal
from sweep_tasks.model import TableMetadata, TableRef
from sweep_tasks.protection.catalog import ProtectionCatalog
from sweep_tasks.protection.records import Mode, Record, Target
from sweep_tasks.store import Store, initialise_store

TABLE = TableRef.parse("bench.cells")
WRITERS = (1, 4, 16)
ACTS = 320
PAIRS = 60


def measure() -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        rates = {writers: _acts_per_s(Path(folder), writers) for writers in WRITERS}
        return {
            "acts": ACTS,
            "acts_per_s": {str(writers): round(rate) for writers, rate in rates.items()},
            "ratio_to_one_writer": {str(writers): round(rate / rates[1], 2) for writers, rate in rates.items()},
            "protect_and_release": _protecting(Path(folder)),
        }


def _opened(folder: Path, name: str) -> tuple[str, Store]:
    url = f"sqlite:///{folder}/{name}.db"
    initialise_store(url, Settings())
    return url, open_store(url, Settings())


def _acts_per_s(folder: Path, writers: int) -> float:
    """Run writers concurrently, each with its own connection, as processes have."""
    url, store = _opened(folder, f"acts-{writers}")
    store.close()

    def write() -> None:
        with open_store(url, Settings()) as own:
            for number in range(ACTS // writers):
                with Journal(own).record_as("bench", "pause", str(number), "to see how long it takes"):
                    pass

    threads = [threading.Thread(target=write) for _ in range(writers)]
    began = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    took = time.perf_counter() - began
    with open_store(url, Settings()) as opened:
        recorded = Journal(opened).verify().entries
    if recorded != 2 * ACTS:
        raise RuntimeError(f"{recorded} entries were recorded, {2 * ACTS} were expected")
    return ACTS / took


def _protecting(folder: Path) -> dict[str, Any]:
    _, store = _opened(folder, "protecting")
    with store:
        store.create_table(TABLE, TableMetadata())
        catalog = ProtectionCatalog(store, Settings())
        record = Record("bench", 1, Mode.AT, (Target(TABLE),))

        def with_entries() -> None:
            for _ in range(PAIRS):
                catalog.protect(record)
                catalog.release("bench")

        def records_alone() -> None:
            for _ in range(PAIRS):
                written = catalog.begin(record)
                catalog.check_thresholds(written)
                catalog.accept(written)
                catalog.drop(written)

        ours, alone = alternately(with_entries, records_alone)
    return {
        "milliseconds": {
            "with_entries": round(1000 * ours / PAIRS, 2),
            "records_alone": round(1000 * alone / PAIRS, 2),
        },
        "ratio": round(ours / alone, 2),
    }
