"""The tasks of the DAG `legacy_sweep`: choosing the tables to scan, and the scans in each worker slot."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import mmh3
from airflow.sdk import BaseBranchOperator, Param
from airflow.sdk.exceptions import AirflowException, AirflowTaskTimeout

from spark_jobs.environment import LEGACY_SWEEP
from sweep_tasks.clock import SystemClock
from sweep_tasks.config import MAX_PAGE_VERSIONS, Settings, check_variables, load_settings
from sweep_tasks.errors import AlreadyExists, BadValue, SweepflowError
from sweep_tasks.logs import bind_log_names
from sweep_tasks.model import TableRef
from sweep_tasks.orchestration.form import dry_run_field, number_field
from sweep_tasks.orchestration.pools import SCANS, scan_pools
from sweep_tasks.orchestration.prepare import (
    airflow_connection,
    check_pools,
    spark_connection,
    task_failure,
    this_attempt,
)
from sweep_tasks.orchestration.spark_job import SparkJobOperator

if TYPE_CHECKING:
    from airflow.sdk import Context

    from sweep_tasks.clock import Clock
    from sweep_tasks.legacy.order import LegacyOrder
    from sweep_tasks.legacy.progress import RunProgress
    from sweep_tasks.legacy.run import LegacySummary
    from sweep_tasks.store.contract import Store


# ---------------------------------------------------------------------------------------------------------------------
# Which tables each worker slot scans next, and the form of a scan in the Airflow UI.
#
# Pools and tasks must exist when a DAG file is read, and tables are not known then. So there is a fixed number of
# worker slots (setting `legacy_slots`): a worker slot is a task in a pool of size one. The hash of its name always
# assigns a table to the same slot, so every scan of a table, scheduled or manual, waits for the same pool, and no
# table is scanned twice at once. If the number of slots is changed while a scan runs, the run in the store shows a
# second scan that the first is active.
#
# A scan that was requested manually waits for its slot as long as it takes. Scheduled scans do not: the next run
# schedules them again. A slot that is in use is left out, and scheduled scans that could not start in time are dropped.
# ---------------------------------------------------------------------------------------------------------------------

MANUAL = "requested manually"
"""The reason of a scan that was requested with the form."""
_WHAT, _HOW_MUCH = "What to scan", "How much"
_LATE_S = 600
"""How long the scheduled scans of a run may wait for their slot."""


class Planned(NamedTuple):
    """A planned scan of a table in its slot. 0 seconds is no limit."""

    table: str
    why: str
    seconds: float
    until_ms: int | None = None
    """When the scheduled scans of the run expire, however often they are retried. None for a manual scan."""

    @property
    def is_scheduled(self) -> bool:
        return self.why != MANUAL


def slot_task(slot: int) -> str:
    return f"slot_{slot}"


def slot_of(table: TableRef, slots: int) -> int:
    return mmh3.hash(str(table), signed=False) % slots


def legacy_form() -> dict[str, Param]:
    return {
        "table": Param(
            None,
            type=["string", "null"],
            title="Table",
            description="For example shop.orders. Empty: the tables that need a scan most.",
            section=_WHAT,
        ),
        "from_row": Param(
            "",
            type=["string", "null"],
            pattern="^([0-9a-fA-F]{2})*$",
            title="From row",
            description="In hexadecimal: start at this row of the table, in the store's own order. Empty: all rows.",
            section=_WHAT,
        ),
        "restart": Param(
            False,
            type="boolean",
            title="Restart",
            description="Start from the beginning, even if a run of the table could be resumed.",
            section=_WHAT,
        ),
        "dry_run": dry_run_field("Count what would be removed; remove nothing, publish nothing.", _WHAT),
        "max_cells": number_field(
            "Maximum cells",
            "The scan of a table stops after this many cells, and the next one resumes there. 0: no limit.",
            _HOW_MUCH,
        ),
        "max_seconds": number_field(
            "Maximum seconds",
            "For the table named above. For scheduled scans the setting legacy_budget_s applies. 0: no limit.",
            _HOW_MUCH,
            kind="number",
        ),
        "batch": number_field(
            "Versions per page",
            "Smaller pages put less load on the store. 0: the setting legacy_batch_versions.",
            _HOW_MUCH,
            maximum=MAX_PAGE_VERSIONS,
        ),
    }


def planned(store: Store, settings: Settings, clock: Clock, params: Mapping[str, Any]) -> dict[str, list[Planned]]:
    """Return the planned scans of each slot that has some, by its task."""
    if params["table"]:
        return _manual(store, settings, params)
    if params["from_row"]:
        raise BadValue("from_row", "is a row of one table; name the table, or leave it empty", reason="no_table")
    return dict(_scheduled(store, settings, clock))


def _manual(store: Store, settings: Settings, params: Mapping[str, Any]) -> dict[str, list[Planned]]:
    from sweep_tasks.legacy.order import swept_table

    table = TableRef.parse(params["table"])
    swept_table(store, table)
    scan = Planned(str(table), MANUAL, params["max_seconds"])
    return {slot_task(slot_of(table, settings.legacy_slots)): [scan]}


def _scheduled(store: Store, settings: Settings, clock: Clock) -> Iterator[tuple[str, list[Planned]]]:
    from sweep_tasks.legacy.candidates import candidates, policy
    from sweep_tasks.legacy.priority import scheduled_scans
    from sweep_tasks.tables.pauses import Pauses

    if not settings.legacy_budget_s:
        return
    paused = Pauses(store).current()
    until_ms = clock.now_ms() + 1000 * (settings.legacy_budget_s + _LATE_S)
    found = [each for each in candidates(store, settings, clock) if not paused.holds(each.table)]
    for slot in range(settings.legacy_slots):
        ours = [each for each in found if slot_of(each.table, settings.legacy_slots) == slot]
        chosen = scheduled_scans(ours, policy(settings), settings.legacy_budget_s, clock.now_ms())
        if chosen:
            yield slot_task(slot), [Planned(str(each.table), each.why.label, each.seconds, until_ms) for each in chosen]


def still_due(store: Store, settings: Settings, clock: Clock, table: TableRef) -> bool:
    """Return whether a planned scan is still needed: the table may have been scanned, paused or dropped while its slot
    was in use."""
    from sweep_tasks.legacy.candidates import candidates, policy
    from sweep_tasks.legacy.priority import reason
    from sweep_tasks.tables.pauses import Pauses

    if Pauses(store).current().holds(table):
        return False
    found = candidates(store, settings, clock, only=[table])
    return any(reason(each, policy(settings), clock.now_ms()) is not None for each in found)


# ---------------------------------------------------------------------------------------------------------------------
# The Airflow tasks: one that chooses the tables, and one for each slot that scans them.
# ---------------------------------------------------------------------------------------------------------------------

CHOOSE, PLANS, SCAN = "choose", "plans", "scan"
_CUT_SHORT = ("failed", "interrupted")


class ChooseTables(BaseBranchOperator):
    """Checks what the slots need, chooses the tables to scan, and skips slots that have nothing to do."""

    def choose_branch(self, context: Context) -> Iterable[str]:
        from sweep_tasks.connections import open_store

        params = context["params"]
        try:
            check_variables()
            settings = load_settings()
            spark_connection()
            check_pools(scan_pools(settings.legacy_slots))
            with open_store(settings.store, settings) as store:
                slots = planned(store, settings, SystemClock(), params)
            if not params["table"]:
                slots = self._without_busy(slots, settings.legacy_slots)
        except SweepflowError as error:
            raise task_failure(error) from None
        for slot, chosen in slots.items():
            for scan in chosen:
                self.log.info("%s: %s, %s", slot, scan.table, scan.why)
        context["ti"].xcom_push(key=PLANS, value={slot: [list(scan) for scan in each] for slot, each in slots.items()})
        return list(slots)

    def _without_busy(self, slots: dict[str, list[Planned]], number: int) -> dict[str, list[Planned]]:
        """Drop the plans of slots that are in use. Scheduled scans do not queue behind a long scan: they would delay
        new runs, other slots and manual scans. The next run plans them again in an hour."""
        from sweep_tasks.orchestration.airflow_api import AirflowApi

        with AirflowApi.of(airflow_connection()) as api:
            busy = api.busy_pools(SCANS)
        taken = {slot_task(slot) for slot, pool in enumerate(scan_pools(number)) if pool in busy}
        for slot in sorted(taken & slots.keys()):
            self.log.info("%s is in use; its tables are scanned in a later run", slot, code="slot_in_use", slot=slot)
        return {slot: scans for slot, scans in slots.items() if slot not in taken}


class ScanSlot(SparkJobOperator):
    """Carries out the planned scans of one slot, one after the other. A table that fails does not stop the others.

    Scheduled scans have a time limit, and the time-out of the settings ends those that exceed it. A manual scan takes
    as long as it needs."""

    def __init__(self, *, slot: int, **kwargs: Any) -> None:
        super().__init__(
            application=LEGACY_SWEEP,
            name=f"legacy-sweep-{slot}",
            task_id=slot_task(slot),
            pool=scan_pools(slot + 1)[slot],
            **kwargs | {"execution_timeout": None},
        )
        self._active: tuple[Settings, TableRef, str] | None = None
        self._killed = False

    def execute(self, context: Context) -> list[dict[str, Any]]:  # type: ignore[override]  # ours has a result
        """Scan the tables and return the documents of the summaries."""
        from airflow.sdk.execution_time.timeout import timeout

        scans = [Planned(*each) for each in context["ti"].xcom_pull(task_ids=CHOOSE, key=PLANS)[self.task_id]]
        if not all(scan.is_scheduled for scan in scans):
            return [each.document() for each in self._scan_all(scans, context)]
        try:
            with timeout(load_settings().task_timeout_s):  # type: ignore[no-untyped-call]
                return [each.document() for each in self._scan_all(scans, context)]
        except AirflowTaskTimeout:
            self.on_kill()
            raise

    def _scan_all(self, scans: list[Planned], context: Context) -> list[LegacySummary]:
        clock = SystemClock()
        until_ms = ends_ms(scans, clock.now_ms())
        done: list[LegacySummary] = []
        failed: list[str] = []
        for number, scan in enumerate(scans):
            if is_over(scan, clock.now_ms()):
                self.log.info("the time of this run is used up; %s is scanned in a later run", scan.table)
                continue
            seconds = share_s(scan, until_ms - clock.now_ms(), len(scans) - number)
            try:
                summary = self._scan(scan._replace(seconds=seconds), context)
            except (SweepflowError, AirflowException) as error:
                failure = task_failure(error) if isinstance(error, SweepflowError) else error
                if len(scans) == 1 or self._killed:
                    raise failure from None
                self.log.error("%s: %s", scan.table, failure)
                failed.append(scan.table)
            else:
                done += [summary] if summary else []
        if failed:
            raise AirflowException(f"tables: {', '.join(failed)} could not be scanned; the errors are above")
        return done

    def _scan(self, scan: Planned, context: Context) -> LegacySummary | None:
        """Scan one table. Return None if the scan is not needed any more, another process works on the table, or an
        earlier attempt has done it."""
        from spark_jobs.orders import ScanJob, Start
        from sweep_tasks.legacy.run import LegacySummary
        from sweep_tasks.orchestration.recording import acting_for_run, actor_of

        settings, params = load_settings(), context["params"]
        order = order_of(params, scan)
        owner = f"{context['dag'].dag_id} {context['run_id']} {self.task_id}"
        restart = params["restart"] and not scan.is_scheduled
        by = actor_of(context)
        with acting_for_run(context):
            run_id = self._begin(settings, order, scan, owner, restart)
        if run_id is None:
            return None
        status = f"'sweepflow legacy-sweep {scan.table} --status'"
        self.log.info("%s run %s; %s shows its progress", scan.table, run_id, status)
        context["ti"].xcom_push(key=SCAN, value={"table": scan.table, "run": run_id})
        self._active = None if order.dry_run else (settings, order.table, owner)
        job = ScanJob(
            **vars(order),
            start=Start.RESTART if restart else Start.RESUME_OR_START,
            scheduled=scan.is_scheduled,
            owner=owner,
            run_id=run_id,
            attempt=this_attempt(context),
            actor=by.name,
            reason=by.reason,
        )
        try:
            with bind_log_names(run=run_id, table=scan.table):
                summary = LegacySummary.parse(self.submit_order(settings, job, context))
        except AirflowException:
            self._release_run()  # the driver may have died without a message
            raise
        self._active = None
        self.log.info(readable(summary))
        return summary

    def _begin(self, settings: Settings, order: LegacyOrder, scan: Planned, owner: str, restart: bool) -> str | None:
        """Return the id that the run has or will have, or None if the table is not to be scanned."""
        from sweep_tasks.connections import open_store
        from sweep_tasks.legacy.progress import Runs
        from sweep_tasks.legacy.resumption import Begin, decide_start
        from sweep_tasks.legacy.run import new_run_id

        scheduled, clock = scan.is_scheduled, SystemClock()
        with open_store(settings.store, settings) as store:
            try:
                how, existing = decide_start(
                    store, settings, clock, order, restart=restart, owner=owner, scheduled=scheduled
                )
            except AlreadyExists as error:
                if not scheduled:
                    raise
                self.log.info("%s", error)
                return None
            if scheduled and was_done_before(existing, owner):
                self.log.info("%s was scanned by an earlier attempt", scan.table)
                return None
            begun_before = existing is not None and existing.run.owner == owner
            if scheduled and not begun_before and not still_due(store, settings, clock, order.table):
                self.log.info("%s needs no scan any more", scan.table)
                return None
            if existing and how is Begin.TAKE_OVER:
                self.log.info("%s", dropped(existing))
            if not order.dry_run:
                Runs(store).record_scheduled(order.table, clock.now_ms())
            return existing.run.id if existing and how is Begin.RESUME else new_run_id()

    def on_kill(self) -> None:
        """Kill the driver and release the run, so that other processes need not wait until it counts as silent. If this
        process is killed too, they wait for that."""
        self._killed = True
        super().on_kill()
        self._release_run()

    def _release_run(self) -> None:
        if self._active is None:
            return
        from sweep_tasks.connections import open_store
        from sweep_tasks.legacy.run import LegacySweep

        settings, table, owner = self._active
        try:
            with open_store(settings.store, settings) as store:
                if LegacySweep(store, settings, SystemClock(), owner).release(table):
                    self.log.info("the run of %s is paused; the next one resumes it", table)
        except SweepflowError as error:
            self.log.warning(
                "the run of %s could not be released; it counts as active until its heartbeat is too old: %s",
                table,
                error,
            )


def ends_ms(scans: Sequence[Planned], now_ms: int) -> float:
    """Return when all scans should be done: they share their time, within what is left of the time of the run."""
    given = now_ms + 1000 * sum(scan.seconds for scan in scans)
    return min([given, *(scan.until_ms for scan in scans if scan.until_ms is not None)])


def is_over(scan: Planned, now_ms: int) -> bool:
    return scan.until_ms is not None and now_ms >= scan.until_ms


def share_s(scan: Planned, left_ms: float, scans_left: int) -> float:
    """Divide the time that earlier scans have left among the remaining ones. Each gets at least half of its own time,
    even if an earlier one took too long."""
    return max(scan.seconds / 2, left_ms / 1000 / scans_left) if scan.seconds else 0.0


def was_done_before(existing: RunProgress | None, owner: str) -> bool:
    """Return whether an earlier attempt of the same task has ended this scan."""
    run = existing.run if existing else None
    return run is not None and run.owner == owner and run.ended_ms is not None and run.why not in _CUT_SHORT


def dropped(existing: RunProgress) -> str:
    """Describe a run that is dropped for a new one."""
    run = existing.run
    return (
        f"{run.table}: run {run.id} of {run.owner}, {existing.done} of {len(existing.ranges)} ranges done, is dropped: "
        "it covers other rows, was started before the table was changed, or a restart was requested"
    )


def order_of(params: Mapping[str, Any], scan: Planned) -> LegacyOrder:
    from sweep_tasks.legacy.order import LegacyOrder

    return LegacyOrder(
        TableRef.parse(scan.table),
        from_row=bytes.fromhex(params["from_row"] or ""),
        max_cells=params["max_cells"],
        max_seconds=scan.seconds,
        batch=params["batch"],
        dry_run=params["dry_run"],
    )


def readable(summary: LegacySummary) -> str:
    """Describe the scan in one line for the log of the task."""
    counts = summary.counts
    done = f"{counts.deleted} of {counts.versions} versions of {counts.cells} cells"
    dry = " (a dry run: nothing was changed)" if summary.dry_run else ""
    left = f"; stopped ({summary.stopped}), the next scan resumes there" if summary.stopped else ""
    due = summary.still_due
    still = f"; the scan after a change of strategy is still due: {due.sentence}" if due else ""
    ranges = f"{summary.ranges_done} of {summary.ranges} ranges"
    return f"{summary.table} run {summary.run}: {done} removed, {ranges}{left}{still}{dry}"
