"""Fixtures that all tests share, and the rule that in CI a skipped test is a failed one."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from shutil import copyfile

import pytest
from hypothesis import HealthCheck, settings

from sweep_tasks.config import Settings
from sweep_tasks.connections import open_store
from sweep_tasks.model import TableMetadata, TableRef
from sweep_tasks.store import Store
from sweep_tasks.store.memory import MemoryStore
from sweep_tasks.store.schema import SYSTEM_TABLES
from sweep_tasks.store.sqlite import SQLiteStore
from tests.support.clock import ManualClock

IN_CI = bool(os.environ.get("CI"))

# Who is started in the background by a shell ignores interrupts, and so does all that it starts: tests that interrupt a
# command would wait forever.
signal.signal(signal.SIGINT, signal.default_int_handler)

settings.register_profile("default", deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True)
settings.register_profile("ci", settings.get_profile("default"), derandomize=True)
settings.load_profile("ci" if IN_CI else "default")

STORES = ["memory", "sqlite"]
StoreMaker = Callable[[str], Store]


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture(scope="session")
def empty_sqlite(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An initialised store that is never opened: most tests need one, and a copy is faster than creating it."""
    file = tmp_path_factory.mktemp("empty") / "store.db"
    SQLiteStore.initialise(file)
    return file


@pytest.fixture(params=STORES)
def store(request: pytest.FixtureRequest, tmp_path: Path, clock: ManualClock, empty_sqlite: Path) -> Iterator[Store]:
    """A store of each kind, initialised and empty, with a clock that the test moves."""
    created: Store
    if request.param == "memory":
        created = memory_store(clock)
    else:
        created = SQLiteStore(copyfile(empty_sqlite, tmp_path / "store.db"), clock=clock)
    with created:
        yield created


@pytest.fixture
def memory(clock: ManualClock) -> MemoryStore:
    return memory_store(clock)


@pytest.fixture
def sqlite_url(tmp_path: Path, empty_sqlite: Path) -> str:
    """The address of an initialised SQLite store, for tests with several processes."""
    return f"sqlite:///{copyfile(empty_sqlite, tmp_path / 'store.db')}"


@pytest.fixture
def sqlite(sqlite_url: str) -> Iterator[Store]:
    with open_store(sqlite_url, Settings()) as opened:
        yield opened


@pytest.fixture
def table(store: Store) -> TableRef:
    ref = TableRef.parse("app.items")
    store.create_table(ref, TableMetadata())
    return ref


def memory_store(clock: ManualClock | None = None) -> MemoryStore:
    created = MemoryStore(clock)
    for system_table, metadata in SYSTEM_TABLES.items():
        created.create_table(system_table, metadata)
    return created


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if IN_CI and exitstatus == 0 and reporter and reporter.stats.get("skipped"):
        reporter.write_line("in CI a skipped test is a failure", red=True)
        session.exitstatus = pytest.ExitCode.TESTS_FAILED
