"""The job as an operator runs it: `spark-submit`, real worker processes, real kills. Each start costs many seconds, so
that what one run shows is asserted together."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import psutil
import pytest

from spark_jobs.shard import DELETING, READING
from sweep_tasks.errors import EXIT_BAD_INPUT, EXIT_UNAVAILABLE
from sweep_tasks.metrics.tally import Tally
from sweep_tasks.model import SweepStrategy
from sweep_tasks.queue.progress import Progress
from tests.spark.event_log import EventLog
from tests.spark.submitting import ENTRIES, PATIENCE_S, SWEEP_TS, Failure, Jobs, PastStore, arguments_for

pytestmark = pytest.mark.timeout(900)

CONSERVATIVE, THOROUGH = SweepStrategy.CONSERVATIVE, SweepStrategy.THOROUGH
LOCAL = ("--master", "local[2]")


@pytest.fixture
def jobs(tmp_path: Path) -> Iterator[Jobs]:
    started = Jobs(tmp_path)
    yield started
    started.end()


def decisions(summary: dict[str, Any]) -> dict[str, Any]:
    """All fields of a summary except the engine and the durations."""
    return {name: value for name, value in summary.items() if name not in ("engine", "workers", "seconds")}


def progress(store: PastStore) -> int:
    with store.opened() as opened:
        return Progress(opened).of(store.strategy, 0)


def test_a_job_leaves_what_a_sweep_in_process_leaves_and_ends_with_its_summary(tmp_path: Path, jobs: Jobs) -> None:
    store = PastStore.filled(tmp_path / "store.db", CONSERVATIVE, unfinished=True)
    copy = store.copy()
    in_process = copy.swept_in_process()
    log = EventLog(tmp_path / "events")

    ended = jobs.submit(store, "--summary", f"{tmp_path}/summary.json", spark=(*LOCAL, *log.options())).ended()

    assert ended.summary["engine"] == "spark"
    assert decisions(ended.summary) == decisions(in_process)
    assert (ended.summary["entries"], ended.summary["progress"]) == (ENTRIES, SWEEP_TS - 1)
    assert ended.summary["range_deletes"] > 0
    assert ended.summary["workers"] >= 2
    assert len(log.readers()) >= 2
    assert len(log.deleters()) >= 2
    described = [each for each in log.described() if each.phase == "queue"]
    assert {each.group for each in described} == {"sweep conservative shard 0"}
    assert {each.step for each in described} == {READING, DELETING}
    texts = {step: {each.text for each in described if each.step == step} for step in (READING, DELETING)}
    assert all("conservative" in text and "queue" in text for each in texts.values() for text in each)
    assert texts[READING].isdisjoint(texts[DELETING])
    with store.opened() as opened:
        (series,) = Tally(opened).read().series
    assert (series.labels, series.sums["entries"]) == ({"strategy": "conservative", "shard": "0"}, ENTRIES)
    assert json.loads((tmp_path / "summary.json").read_text()) == ended.summary
    assert store.state() == copy.state()
    assert ended.contains_no_data()


def test_a_shard_with_nothing_new_needs_neither_spark_nor_java(tmp_path: Path, jobs: Jobs) -> None:
    store = PastStore.filled(tmp_path / "store.db", THOROUGH)
    store.swept_in_process()
    before = store.state()
    log = EventLog(tmp_path / "events")

    submitted = jobs.submit(store, spark=(*LOCAL, *log.options())).ended()
    without_java = jobs.run(*arguments_for(store)).ended()

    for ended in (submitted, without_java):
        assert ended.summary["engine"] == "idle"
        assert (ended.summary["entries"], ended.summary["progress"], ended.summary["workers"]) == (0, SWEEP_TS - 1, 0)
    assert log.is_empty(), "a Spark session was started"
    assert store.state() == before


def test_a_refused_order_is_one_sentence_with_its_exit_code(tmp_path: Path, jobs: Jobs) -> None:
    store = PastStore.filled(tmp_path / "store.db", THOROUGH)
    before = store.file.read_bytes()

    no_such_shard = jobs.submit(store, shard=1, log_format="json").ended()
    assert no_such_shard.code == EXIT_BAD_INPUT
    assert no_such_shard.failure == Failure("bad_value", "BadValue", "shard", "unknown")
    assert no_such_shard.error
    assert store.file.read_bytes() == before

    without_java = jobs.run(*arguments_for(store), log_format="json").ended()
    assert without_java.code == EXIT_UNAVAILABLE
    assert without_java.failure == Failure("unavailable", "ProgramMissing", "java", "missing")
    assert without_java.error
    assert progress(store) == -1


def test_an_error_in_a_worker_is_one_sentence_and_the_next_run_does_the_work(tmp_path: Path, jobs: Jobs) -> None:
    """Unfinished transactions are rolled back by their readers, which have to write for that."""
    store = PastStore.filled(tmp_path / "store.db", THOROUGH, unfinished=True)
    copy = store.copy()
    copy.swept_in_process()

    job = jobs.submit(store, sqlite_busy_timeout_s=40, log_format="json")
    with store.workers_can_not_write(job):
        job.wait_for("two workers that read", lambda: len(job.workers_in(store)) >= 2)
        failed = job.ended()
    assert failed.code == EXIT_UNAVAILABLE
    assert failed.failure == Failure("unavailable", "StoreBusy", reason="locked")
    assert str(store.file) in failed.error
    assert failed.contains_no_data()
    assert progress(store) == -1

    assert jobs.submit(store).ended().summary["entries"] == ENTRIES
    assert store.state() == copy.state()


def test_killing_the_jvm_during_deletes_ends_all_workers_and_loses_nothing(tmp_path: Path, jobs: Jobs) -> None:
    store = PastStore.filled(tmp_path / "store.db", CONSERVATIVE)
    copy = store.copy()
    copy.swept_in_process()
    log = EventLog(tmp_path / "events")

    job = jobs.submit(store, spark=(*LOCAL, *log.options()), sqlite_busy_timeout_s=2 * PATIENCE_S)
    with store.workers_can_not_write(job):
        job.wait_for("the stage that deletes", log.deleting_began)
        job.wait_for("two workers that delete", lambda: len(job.workers_in(store)) >= 2)
        _, left = psutil.wait_procs(job.kill(), PATIENCE_S)
        assert left == [], "something outlived its Java machine"
    assert progress(store) == -1
    assert store.state() != copy.state()

    assert jobs.submit(store).ended().summary["progress"] == SWEEP_TS - 1
    assert store.state() == copy.state()


def test_a_driver_that_waits_for_the_store_ends_with_its_jvm(tmp_path: Path, jobs: Jobs) -> None:
    """It is not talking to Java at that moment, so it would not notice by itself."""
    store = PastStore.filled(tmp_path / "store.db", THOROUGH)
    with store.writers_blocked():
        job = jobs.submit(store, sqlite_busy_timeout_s=2 * PATIENCE_S)
        job.wait_for("a driver that wants to write", lambda: job.driver_in(store))
        _, left = psutil.wait_procs(job.kill(), PATIENCE_S)
    assert left == []


def test_two_concurrent_jobs_on_one_shard_are_safe(tmp_path: Path, jobs: Jobs) -> None:
    store = PastStore.filled(tmp_path / "store.db", THOROUGH, unfinished=True)
    copy = store.copy()
    copy.swept_in_process()

    with store.writers_blocked():
        both = [jobs.submit(store, sqlite_busy_timeout_s=2 * PATIENCE_S) for _ in range(2)]
        for job in both:
            job.wait_for("a driver that wants to write", partial(job.driver_in, store))
    ended = [job.ended() for job in both]

    assert [each.summary["progress"] for each in ended] == [SWEEP_TS - 1, SWEEP_TS - 1]
    assert [each.summary["engine"] for each in ended] == ["spark", "spark"]
    assert store.state() == copy.state()
