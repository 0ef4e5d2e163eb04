"""The same job, unchanged, on a Spark standalone cluster."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from sweep_tasks.model import SweepStrategy
from tests.spark.cluster import Cluster
from tests.spark.event_log import EventLog
from tests.spark.submitting import ENTRIES, SWEEP_TS, Jobs, PastStore

pytestmark = pytest.mark.timeout(900)


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    folder = tmp_path / "cluster"
    folder.mkdir()
    with Cluster(folder, workers=2) as running:
        yield running


def test_both_workers_of_a_cluster_read_and_delete_and_leave_what_a_sweep_in_process_leaves(
    tmp_path: Path, cluster: Cluster
) -> None:
    """The store is named as one in the driver's folder; executors work in folders of their own."""
    store = PastStore.filled(tmp_path / "store.db", SweepStrategy.CONSERVATIVE, unfinished=True)
    copy = store.copy()
    copy.swept_in_process()
    log, jobs = EventLog(tmp_path / "events"), Jobs(tmp_path)
    try:
        ended = jobs.submit(store, "--store", "sqlite:///store.db", spark=(*cluster.options(), *log.options())).ended()
    finally:
        jobs.end()

    assert ended.summary["engine"] == "spark"
    assert (ended.summary["entries"], ended.summary["progress"]) == (ENTRIES, SWEEP_TS - 1)
    assert ended.summary["workers"] >= 2
    assert set(log.readers()) == {"0", "1"}
    assert set(log.deleters()) == {"0", "1"}
    assert ended.contains_no_data()
    assert store.state() == copy.state()
