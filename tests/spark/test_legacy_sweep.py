"""The scan as a job: the same as in process, and an interrupted scan resumes at its position."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from spark_jobs.environment import LEGACY_SWEEP
from sweep_tasks.clock import SystemClock
from sweep_tasks.errors import AlreadyExists
from sweep_tasks.legacy.order import LegacyOrder
from sweep_tasks.legacy.progress import RunProgress, Runs, RunState
from sweep_tasks.legacy.run import LegacySweep
from sweep_tasks.metrics.tally import Tally
from sweep_tasks.model import Cell, SweepStrategy, TableMetadata, TableRef
from sweep_tasks.store import initialise_store
from sweep_tasks.store.sqlite import SQLiteStore
from tests.spark.submitting import PATIENCE_S, SWEEP_TS, Job, Jobs, PastStore
from tests.support.deep_cell import deep_cell

pytestmark = pytest.mark.timeout(900)

TABLE = TableRef.parse("app.items")


@pytest.fixture
def jobs(tmp_path: Path) -> Iterator[Jobs]:
    started = Jobs(tmp_path)
    yield started
    started.end()


def submit(jobs: Jobs, store: PastStore, order: dict[str, Any], **settings: object) -> Job:
    document = json.dumps({"table": str(TABLE), "stop_at": SWEEP_TS} | order)
    return jobs.submit_file(LEGACY_SWEEP, "--order", document, "--store", store.settings.store, **settings)


def swept_in_process(store: PastStore) -> dict[str, Any]:
    with store.opened() as opened:
        order = LegacyOrder(TABLE, stop_at=SWEEP_TS, ranges=16)
        return LegacySweep(opened, store.settings, SystemClock()).sweep(order).document()


def existing(store: PastStore) -> RunProgress:
    with store.opened() as opened:
        found = Runs(opened).progress(TABLE)
    assert found
    return found


SURE = ("cells", "held", "waiting", "ranges", "ranges_done", "stopped")
"""Deletes of a page that was not recorded before the end are not counted."""


def test_the_run_of_a_killed_driver_is_resumed_and_no_finished_range_is_scanned_again(
    tmp_path: Path, jobs: Jobs
) -> None:
    store = PastStore.filled(tmp_path / "store.db", SweepStrategy.CONSERVATIVE, unfinished=True)
    copy = store.copy()
    in_process = swept_in_process(copy)

    # So slow that it is caught with some ranges done and some not.
    job = submit(jobs, store, {"ranges": 16, "owner": "tests"}, legacy_versions_per_s=200)
    job.wait_for("a range that is done", lambda: _begun(store) and existing(store).done >= 2)
    _, left = psutil.wait_procs(job.kill(), PATIENCE_S)
    assert left == [], "something outlived its Java machine"
    before = existing(store)
    done = [number for number, state in enumerate(before.ranges) if state.done]
    assert before.run.state is RunState.RUNNING
    assert 2 <= len(done) < len(before.ranges)
    assert store.state() != copy.state()

    with pytest.raises(AlreadyExists) as refused:
        swept_in_process(store)
    assert (refused.value.details["run"], refused.value.details["owner"]) == (before.run.id, "tests")

    ended = submit(jobs, store, {"start": "resume"}).ended()
    assert ended.summary["run"] == before.run.id
    assert ended.summary["attempt"] == 2
    assert {name: ended.summary[name] for name in SURE} == {name: in_process[name] for name in SURE}
    assert 0 < ended.summary["deleted"] <= in_process["deleted"]
    assert ended.summary["this_time"]["cells"] <= ended.summary["cells"] - sum(
        before.ranges[number].counts.cells for number in done
    )
    assert ended.summary["workers"] >= 2
    assert store.state() == copy.state()
    assert ended.contains_no_data()
    for output in (job.ended().out, ended.out):
        assert f"run={before.run.id} " in output, "the id is reported at once, not only at the end"
    with store.opened() as opened:
        counted = [series for series in Tally(opened).read().series if series.job == "legacy"]
    assert [series.sums["runs"] for series in counted] == [1], "of the job that came to its end"


def _begun(store: PastStore) -> bool:
    with store.opened() as opened:
        return Runs(opened).of(TABLE) is not None


MANY = 1_000_000
MEMORY = 512 * 1024 * 1024


@pytest.mark.long
def test_a_row_with_a_million_versions_is_swept_within_512_megabytes(
    tmp_path: Path, jobs: Jobs, record_property: Callable[[str, object], None]
) -> None:
    """The limit holds for the Java machine and for each Python worker, at any time."""
    store = PastStore(tmp_path / "store.db", SweepStrategy.THOROUGH)
    initialise_store(store.settings.store, store.settings)
    with store.opened() as opened:
        assert isinstance(opened, SQLiteStore)
        opened.create_table(TABLE, TableMetadata(SweepStrategy.THOROUGH))
        deep_cell(opened, TABLE, Cell(b"row", b"column"), MANY, b"v" * 100)
        opened.put(1, {TABLE: {Cell(b"other", b"column"): b"v"}})

    order = ["--order", json.dumps({"table": str(TABLE)})]
    command = ["--conf", "spark.driver.memory=512m", "--master", "local[2]", str(LEGACY_SWEEP), *order]
    job = jobs.submit_raw(*command, "--store", store.settings.store, legacy_versions_per_s=0)
    most = 0
    while job.is_running():
        most = max([most, *(_peak(each) for each in job.workers_in(store))])
        time.sleep(0.2)
    ended = job.ended()
    assert ended.summary["deleted"] == MANY + 1, "the other one was never committed"
    assert 0 < most < MEMORY
    record_property("mib_of_a_worker", most // 2**20)
    record_property("seconds", ended.summary["seconds"])
    with store.opened() as opened:
        assert opened.scan_versions(TABLE).items == []


def _peak(process: psutil.Process) -> int:
    """Bytes in memory, the most it ever had."""
    try:
        status = Path(f"/proc/{process.pid}/status").read_text(encoding="utf-8")
    except (FileNotFoundError, ProcessLookupError):
        return 0
    return sum(1024 * int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM"))
