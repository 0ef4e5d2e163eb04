"""The two tasks of the DAG `protected_timestamps`: reconcile, then fail if a person has to decide something.

They are two so that what was released stays released however the second ends, and so that the first is tried again
when the store can't be reached while the second is not: it would say the same.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseOperator, Param

from sweep_tasks.clock import Clock, SystemClock
from sweep_tasks.config import Settings, load_settings
from sweep_tasks.errors import ProtectionsNeedAttention, SweepflowError
from sweep_tasks.orchestration.prepare import explained, this_try

if TYPE_CHECKING:
    from airflow.sdk import Context

    from sweep_tasks.store.contract import Store

RECONCILE = "reconcile"


def reconcile_form() -> dict[str, Param]:
    return {
        "dry_run": Param(
            False,
            type="boolean",
            title="Dry run",
            description="Ask the owners and report; release nothing, settle nothing.",
        )
    }


class ReconcileProtections(BaseOperator):
    """Its result is the report."""

    def execute(self, context: Context) -> dict[str, Any]:
        from sweep_tasks.observation.entering import enter_reconciliation, operations_entered, sample
        from sweep_tasks.opening import open_store
        from sweep_tasks.orchestration.stats import operations_told, tell_report
        from sweep_tasks.protection.report import readable

        try:
            settings = load_settings()
            with operations_told(), open_store(settings.store, settings) as store:
                by = this_try(context)
                with operations_entered(store, SystemClock(), by):
                    document = reconciled(store, settings, SystemClock(), dry_run=context["params"]["dry_run"])
                enter_reconciliation(store, SystemClock(), document, by)
                sample(store, SystemClock())
        except SweepflowError as error:
            raise explained(error) from None
        tell_report(document)
        for line in readable(document):
            self.log.info("%s", line)
        return document


class CheckProtections(BaseOperator):
    """Fails with a sentence for everything that a person has to decide or mend."""

    def execute(self, context: Context) -> None:
        problems = context["ti"].xcom_pull(task_ids=RECONCILE)["problems"]
        for each in problems:
            self.log.error("%s", each["sentence"])
        if problems:
            raise ProtectionsNeedAttention(
                [each["sentence"] for each in problems], [each["about"] for each in problems]
            )


def reconciled(store: Store, settings: Settings, clock: Clock, *, dry_run: bool = False) -> dict[str, Any]:
    """The report of one reconciliation, as a document."""
    from sweep_tasks.protection.catalog import ProtectionCatalog
    from sweep_tasks.protection.owners import Owners
    from sweep_tasks.protection.reconcile import Reconciler
    from sweep_tasks.timestamps.leases import Leases
    from sweep_tasks.transactions.commits import CommitTable
    from sweep_tasks.transactions.writers import Writers

    writers = Writers(CommitTable(store), Leases(store, settings.lease_ttl_s), clock, settings.writer_wait_s)
    catalog = ProtectionCatalog(store, settings, clock)
    with Owners(settings, clock) as owners:
        reconciler = Reconciler(catalog, owners, writers.settled_without_waiting, settings, clock, dry_run=dry_run)
        return reconciler.run().document(settings)
