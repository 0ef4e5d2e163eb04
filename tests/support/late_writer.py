"""A writer in its own process that stops right before the step that decides its commit."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

_WRITES = """
import sys
from sweep_tasks.config import Settings
from sweep_tasks.connections import open_store
from sweep_tasks.store.faults import FaultyStore
from sweep_tasks.store.schema import TRANSACTIONS
from sweep_tasks.transactions import TransactionManager

url, table, row, column, value = sys.argv[1:]
settings = Settings(store=url, lease_ttl_s=600)

def wait(call):
    if call.name == "put_if_absent" and call.arguments[0] == TRANSACTIONS:
        print("waits", tx.start, flush=True)
        sys.stdin.readline()

with open_store(url, settings) as inner:
    store = FaultyStore(inner)
    with TransactionManager(store, settings) as manager:
        tx = manager.transaction()
        (tx.put if value else tx.delete)(table, row.encode(), column.encode(), *([value.encode()] if value else []))
        store.before = wait
        print("committed", tx.commit(), flush=True)
"""


class LateWriter:
    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        self.start = self._read("waits")

    def commit(self) -> int:
        """Release the writer. Return the commit timestamp."""
        assert self._process.stdin
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        return self._read("committed")

    def _read(self, what: str) -> int:
        assert self._process.stdout
        line = self._process.stdout.readline()
        assert line.startswith(what), f"it printed {line!r} and not {what}"
        return int(line.split()[-1])


@contextmanager
def late_writer(url: str, table: str, row: str, column: str, value: str) -> Iterator[LateWriter]:
    """An empty value is a delete."""
    arguments = [sys.executable, "-c", _WRITES, url, table, row, column, value]
    with subprocess.Popen(arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield LateWriter(process)
        finally:
            process.kill()
