"""The two tasks of the DAG `protected_timestamps`: reconcile, then fail if something needs attention.

The first also takes a clock sample, so that a store that is rarely used has one every ten minutes, and finds hosts
whose clocks are wrong. There are two tasks so that releases are kept however the second ends, and so that the first is
retried if the store can't be reached while the second is not: its result would be the same.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseOperator, Param

from sweep_tasks.clock import Clock, SystemClock
from sweep_tasks.config import Settings, load_settings
from sweep_tasks.errors import NeedsAttention, SweepflowError
from sweep_tasks.orchestration.prepare import task_failure, this_attempt

if TYPE_CHECKING:
    from airflow.sdk import Context

    from sweep_tasks.protection.reconciliation import ReportDocument, ReportedClock, ReportedProblem
    from sweep_tasks.store.contract import Store

RECONCILE = "reconcile"


def reconcile_form() -> dict[str, Param]:
    return {
        "dry_run": Param(
            False,
            type="boolean",
            title="Dry run",
            description="Ask the owners and report; release and resolve nothing.",
        )
    }


class ReconcileProtections(BaseOperator):
    """Reconciles all protections. Its result is the report."""

    def execute(self, context: Context) -> dict[str, Any]:
        from sweep_tasks.connections import open_store
        from sweep_tasks.metrics.samples import sample, tally_operations_in_block, tally_reconciliation
        from sweep_tasks.orchestration.recording import acting_for_run
        from sweep_tasks.orchestration.stats import send_operations, send_report
        from sweep_tasks.protection.reconciliation import TaskReport, readable

        try:
            settings = load_settings()
            with send_operations(), open_store(settings.store, settings) as store:
                by, dry_run = this_attempt(context), bool(context["params"]["dry_run"])
                with tally_operations_in_block(store, SystemClock(), by), acting_for_run(context):
                    report = reconcile(store, settings, SystemClock(), dry_run=dry_run)
                tally_reconciliation(store, SystemClock(), report, by)
                sample(store, SystemClock())
                with acting_for_run(context):
                    clocks = check_clocks(store, settings, SystemClock(), dry_run=dry_run)
        except SweepflowError as error:
            raise task_failure(error) from None
        send_report(report)
        for line in readable(report):
            self.log.info("%s", line)
        return TaskReport(**dict(report), clocks=clocks).model_dump(mode="json")


class CheckProtections(BaseOperator):
    """Fails with a sentence for everything that needs attention."""

    def execute(self, context: Context) -> None:
        from sweep_tasks.protection.reconciliation import TaskReport

        report = TaskReport.model_validate(context["ti"].xcom_pull(task_ids=RECONCILE))
        problems: list[ReportedProblem | ReportedClock] = [*report.problems, *report.clocks]
        for each in problems:
            self.log.error("%s", each.sentence)
        if problems:
            code, reason = (None, "protections") if report.problems else ("clock", None)
            sentences, about = [each.sentence for each in problems], [each.about for each in problems]
            raise NeedsAttention(sentences, about, code=code, reason=reason)


def check_clocks(store: Store, settings: Settings, clock: Clock, *, dry_run: bool = False) -> list[ReportedClock]:
    """Take a clock sample, unless this is a dry run, and return the hosts whose clocks are wrong."""
    from sweep_tasks.coordination.clock_history import ClockHistory
    from sweep_tasks.coordination.clock_problems import clock_problems
    from sweep_tasks.coordination.timestamps import TimestampService
    from sweep_tasks.protection.reconciliation import ReportedClock

    clock_history, step_max_s = ClockHistory(store), settings.clock_step_max_s
    if not dry_run:
        clock_history.record_now(TimestampService(store), clock, step_max_s)
    found = clock_problems(clock_history.clock_record(), clock.now_ms(), clock.uptime().host, step_max_s)
    return [
        ReportedClock.model_validate(
            each.document() | {"about": f"{each.code.value} {each.host}", "sentence": f"{each.sentence}; {each.do}"}
        )
        for each in found
    ]


def reconcile(store: Store, settings: Settings, clock: Clock, *, dry_run: bool = False) -> ReportDocument:
    """Reconcile once and return the report."""
    from sweep_tasks.coordination.leases import Leases
    from sweep_tasks.protection.catalog import ProtectionCatalog
    from sweep_tasks.protection.owners import Owners
    from sweep_tasks.protection.reconciliation import Reconciler
    from sweep_tasks.transactions.outcomes import CommitTable, Writers

    writers = Writers(CommitTable(store), Leases(store, settings.lease_ttl_s), clock, settings.writer_wait_s)
    catalog = ProtectionCatalog(store, settings, clock)
    with Owners(settings, clock) as owners:
        reconciler = Reconciler(catalog, owners, writers.settle_without_waiting, settings, clock, dry_run=dry_run)
        return reconciler.run().document(settings)
