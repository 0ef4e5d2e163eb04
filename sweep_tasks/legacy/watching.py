"""How far a scan is that others work on, for a log: read from the store, where each of them enters it."""

from __future__ import annotations

import structlog

from sweep_tasks.errors import StoreError
from sweep_tasks.legacy.progress import Run, Runs, Standing
from sweep_tasks.store.contract import Store

log = structlog.get_logger(__name__)


class ScanLog:
    def __init__(self, store: Store, run: Run, dry_run: bool) -> None:
        self._store = store
        self._run = run
        self._dry_run = dry_run

    def say(self, **more: object) -> None:
        """A line of numbers; none while the store has no time for who only watches. A dry run enters none."""
        if self._dry_run:
            log.info("scanning", dry_run=True, **more)
            return
        try:
            standing = Standing(self._run, Runs(self._store).ranges(self._run))
        except StoreError as error:
            log.info("how far the scan is can't be told now", code=error.code, why=str(error))
            return
        cells, versions, deleted, *_ = standing.counts
        log.info(
            "scanning",
            done=f"{standing.passed(self._store) / len(standing.ranges):.0%}",
            ranges_done=standing.done,
            ranges=len(standing.ranges),
            cells=cells,
            versions=versions,
            deleted=deleted,
            **more,
        )
