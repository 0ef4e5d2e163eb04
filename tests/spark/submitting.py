"""A store with a past, Spark jobs as processes of their own that sweep it, and what such a sweep must leave."""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import psutil

from spark_jobs.environment import TARGETED_SWEEP, spark_environment, spark_submit
from sweep_tasks.clock import SystemClock
from sweep_tasks.config import Settings
from sweep_tasks.connections import open_store
from sweep_tasks.coordination.thresholds import Thresholds
from sweep_tasks.coordination.timestamps import TimestampService
from sweep_tasks.model import Cell, SweepStrategy, TableMetadata, TableRef
from sweep_tasks.protection.catalog import ProtectionCatalog
from sweep_tasks.protection.records import Mode, Record, Target
from sweep_tasks.queue.writer import QueueWriter
from sweep_tasks.store import Store, initialise_store
from sweep_tasks.store.schema import CLOCK_SAMPLES, PARKED
from sweep_tasks.sweep.run import Sweeper
from sweep_tasks.transactions.outcomes import CommitTable
from tests.unit.sweep.world import state_of

PATIENCE_S = 240
SWEEP_TS = 200_000
"""Where four fine partitions end."""
TRANSACTIONS, WRITES, ROWS = 60, 50, 750
LARGE_WRITES = 200
ENTRIES = TRANSACTIONS * WRITES + LARGE_WRITES
MARK = b"private"
"""Part of every row, column and value."""

T = TypeVar("T")


@dataclass(frozen=True)
class PastStore:
    """Some thousand writes of one table over four fine partitions: most cells four times, some deleted at last; some
    transactions aborted, some unfinished if asked for, one too large for a shared row, and a protection in the middle.
    """

    file: Path
    strategy: SweepStrategy

    @property
    def settings(self) -> Settings:
        return Settings(store=f"sqlite:///{self.file}", retention_s=0, sqlite_durability="normal")

    @contextmanager
    def opened(self) -> Iterator[Store]:
        with open_store(self.settings.store, self.settings) as store:
            yield store

    @classmethod
    def filled(cls, file: Path, strategy: SweepStrategy, *, unfinished: bool = False) -> PastStore:
        past = cls(file, strategy)
        initialise_store(past.settings.store, past.settings)
        table = TableRef.parse("app.items")
        with past.opened() as store:
            store.create_table(table, TableMetadata(strategy))
            ProtectionCatalog(store).protect(Record("backup", SWEEP_TS // 2, Mode.AT, (Target(table),)))
            queue, commits, metadata = QueueWriter(store), CommitTable(store), store.tables([table])
            for number in range(TRANSACTIONS + 1):
                start = number * SWEEP_TS // (TRANSACTIONS + 1) + 1
                count = WRITES if number < TRANSACTIONS else LARGE_WRITES
                values = {_cell(number * WRITES + each): _value(number) for each in range(count)}
                queue.enqueue(start, {table: values}, metadata)
                store.put(start, {table: values})
                if not unfinished or number % 7:
                    commits.decide(start, -1 if number % 11 == 5 else start + 1)
            TimestampService(store).move_past(2 * SWEEP_TS)
        return past

    def copy(self) -> PastStore:
        copied = PastStore(self.file.with_name(f"copy-of-{self.file.name}"), self.strategy)
        shutil.copy(self.file, copied.file)
        return copied

    def swept_in_process(self) -> dict[str, Any]:
        with self.opened() as store:
            (summary,) = Sweeper(store, self.settings, SystemClock()).sweep([self.strategy], [0], SWEEP_TS)
        return summary.document()

    def state(self) -> dict[str, Any]:
        """What a sweep decides. The clock samples and the waits for slow writers depend on when it ran."""
        with self.opened() as store:
            found = state_of(store)
        del found[str(CLOCK_SAMPLES)]
        found[str(PARKED)] = {(strategy, _timeless(entry)) for strategy, entry in found[str(PARKED)]}
        return found

    def threshold(self) -> int:
        with self.opened() as store:
            return Thresholds(store).of_strategy(self.strategy)

    @contextmanager
    def writers_blocked(self) -> Iterator[None]:
        """Block all writers; readers continue."""
        with closing(sqlite3.connect(self.file, timeout=PATIENCE_S, isolation_level=None)) as connection:
            connection.execute("BEGIN IMMEDIATE")
            try:
                yield
            finally:
                connection.execute("ROLLBACK")

    @contextmanager
    def workers_can_not_write(self, job: Job) -> Iterator[None]:
        """From when the driver has published the sweep timestamp, its last write before Spark is started."""
        job.wait_for("the threshold", lambda: self.threshold() == SWEEP_TS)
        with self.writers_blocked():
            yield


class Failure(NamedTuple):
    """What the log has of the error that a job ended with."""

    error: str
    kind: str
    field: str | None = None
    reason: str | None = None


class Ended(NamedTuple):
    code: int
    out: str
    err: str

    @property
    def summary(self) -> dict[str, Any]:
        assert self.code == 0, self
        document: dict[str, Any] = json.loads(self.out.splitlines()[-1])
        return document

    @property
    def error(self) -> str:
        """Our own error message. `spark-submit` prints it on stdout, like all output of its Python driver."""
        (sentence,) = [line for line in (self.out + self.err).splitlines() if line.startswith("error: ")]
        assert "Traceback" not in self.out, self.out
        return sentence.removeprefix("error: ")

    @property
    def failure(self) -> Failure:
        """The failure of a job whose log is JSON. The outcome may be missing in the journal."""
        lines = [json.loads(line) for line in (self.out + self.err).splitlines() if line.startswith("{")]
        errors = [line for line in lines if line.get("level") == "error"]
        (found,) = [line for line in errors if line.get("code") != "outcome_not_recorded"]
        return Failure(found["error"], found["kind"], found.get("field"), found.get("reason"))

    def contains_no_data(self) -> bool:
        output = self.out + self.err
        return MARK.decode() not in output and MARK.hex() not in output.lower()


class Job:
    """A process that sweeps, with all that it starts."""

    def __init__(self, command: list[str], environment: dict[str, str], folder: Path) -> None:
        self._files = [folder / f"job-{time.time_ns()}.{name}" for name in ("out", "err")]
        with ExitStack() as stack:
            out, err = (stack.enter_context(path.open("w")) for path in self._files)
            self._process = subprocess.Popen(command, env=environment, cwd=folder, stdout=out, stderr=err)
        self._orphans: list[psutil.Process] = []

    @property
    def pid(self) -> int:
        """The process id of `spark-submit`, which becomes the Java machine."""
        return self._process.pid

    def is_running(self) -> bool:
        return self._process.poll() is None

    def ended(self) -> Ended:
        code = self._process.wait(PATIENCE_S)
        return Ended(code, *(path.read_text() for path in self._files))

    def kill(self) -> list[psutil.Process]:
        """The Java machine alone. Returned is everything that it had started, the driver first of all."""
        self._orphans = self.processes()[1:]
        self._process.kill()
        return self._orphans

    def processes(self) -> list[psutil.Process]:
        return [psutil.Process(self.pid), *psutil.Process(self.pid).children(recursive=True)]

    def driver(self) -> list[psutil.Process]:
        """The Python that runs the job's file, once it is there."""
        return [each for each in self.processes()[1:] if str(TARGETED_SWEEP) in _words(each)]

    def driver_in(self, store: PastStore) -> bool:
        return any(_has_open(each, store.file) for each in self.driver())

    def workers_in(self, store: PastStore) -> list[psutil.Process]:
        """Spark's Python workers that have the store open at this moment."""
        return [
            each for each in self.processes() if "spark_jobs.daemon" in _words(each) and _has_open(each, store.file)
        ]

    def wait_for(self, what: str, found: Callable[[], T], every_s: float = 0.1) -> T:
        deadline = time.monotonic() + PATIENCE_S
        while not (answer := found()):
            assert self._process.poll() is None, f"ended before {what}: {self.ended()}"
            assert time.monotonic() < deadline, f"no sign of {what}"
            time.sleep(every_s)
        return answer

    def end(self) -> None:
        """Remove all processes of the job, also if the test failed."""
        left = self.processes() if self._process.poll() is None else self._orphans
        for each in left:
            with suppress(psutil.NoSuchProcess):
                each.kill()
        self._process.wait()
        psutil.wait_procs(left, PATIENCE_S)


class Jobs:
    """Starts jobs in a folder, with the settings of the tests and no others."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._started: list[Job] = []

    def submit(
        self,
        store: PastStore,
        *arguments: str,
        spark: tuple[str, ...] = ("--master", "local[2]"),
        shard: int = 0,
        **settings: object,
    ) -> Job:
        given = [*spark, str(TARGETED_SWEEP), *arguments_for(store, shard), *arguments]
        return self._start([str(spark_submit()), *given], spark_environment() | _variables(settings))

    def submit_file(self, job: Path, *arguments: str, **settings: object) -> Job:
        """Any job of ours."""
        return self.submit_raw("--master", "local[2]", str(job), *arguments, **settings)

    def submit_raw(self, *arguments: str, **settings: object) -> Job:
        """With further options of `spark-submit`."""
        return self._start([str(spark_submit()), *arguments], spark_environment() | _variables(settings))

    def run(self, *arguments: str, **settings: object) -> Job:
        """Without `spark-submit`, on a path where there is nothing, and no Java in particular."""
        nothing = {"PATH": str(self._folder), "JAVA_HOME": ""}
        return self._start([sys.executable, str(TARGETED_SWEEP), *arguments], nothing | _variables(settings))

    def _start(self, command: list[str], environment: dict[str, str]) -> Job:
        ours = {name: value for name, value in os.environ.items() if not name.startswith("SWEEPFLOW_")}
        job = Job(command, ours | environment, self._folder)
        self._started.append(job)
        return job

    def end(self) -> None:
        for job in self._started:
            job.end()


def arguments_for(store: PastStore, shard: int = 0) -> list[str]:
    order = {"strategy": store.strategy.value, "shard": shard, "stop_at": SWEEP_TS}
    return ["--order", json.dumps(order), "--store", f"sqlite:///{store.file}"]


def _variables(settings: dict[str, object]) -> dict[str, str]:
    return {f"SWEEPFLOW_{name.upper()}": str(value) for name, value in ({"retention_s": 0} | settings).items()}


def _cell(number: int) -> Cell:
    return Cell(b"%s-row-%04d" % (MARK, number * 7_919 % ROWS), b"%s-column" % MARK)


def _value(transaction: int) -> bytes:
    return b"" if transaction % 10 == 9 else b"%s-value-%d" % (MARK, transaction)


def _timeless(entry: Any) -> Any:
    return entry._replace(hold=entry.hold._replace(until_ms=0))


def _words(process: psutil.Process) -> list[str]:
    try:
        return process.cmdline()
    except psutil.NoSuchProcess:
        return []


def _has_open(process: psutil.Process, file: Path) -> bool:
    try:
        return any(each.path == str(file) for each in process.open_files())
    except psutil.NoSuchProcess:
        return False
