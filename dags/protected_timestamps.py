"""### Protected timestamps

Asks the owner of every protection whether it has finished. Releases the records of finished owners and expired records.
Unfinished operations on records are completed or dropped. Nothing is released on a guess: if an owner is gone, is of an
unknown type or does not answer, its record is kept and the run fails. The run also takes a clock sample, and fails if the
clock of a host is wrong.

**When a task fails**

| task | what to do |
| --- | --- |
| `reconcile` | it was retried already; its log says what could not be reached. Fix that; the next run does the rest |
| `check` | its log has a message for each record or limit that needs a decision, with age and owner |

| problem | what to do |
| --- | --- |
| the owner is gone | the run or application was deleted, or its history was. Make sure that its work is over, then run `sweepflow release ID` |
| the owner type is unknown | install the package that registers that type, or release the record manually |
| the owner could not be asked | fix what the message names: a connection, an address, a detail that the record lacks |
| the record is too old (protection_max_age_s) | ask its owner. The data that it holds back grows: `sweepflow protections` shows how much |
| a limit is almost used up | release records that are not needed, or raise the limit that the message names |
| the clock of a host is ahead or behind | correct that clock; `sweepflow clock show` lists all, `docs/sweeping.md` says when to confirm or discard a sample |

A problem is alerted once a day while it lasts (`protection_alert_again_s`); the run fails every time. To check without
changing anything, trigger a *Dry run*, which alerts no one. See `docs/airflow.md` for details.
"""  # noqa: E501 (a table row is a line)

from datetime import timedelta

import pendulum
from airflow.sdk import DAG

from sweep_tasks.alerts.notifier import failure_alert, problem_alert
from sweep_tasks.config import load_settings
from sweep_tasks.orchestration.names import PROTECTED_TIMESTAMPS, task_defaults
from sweep_tasks.orchestration.reconciling import (
    RECONCILE,
    CheckProtections,
    ReconcileProtections,
    reconcile_form,
)

settings = load_settings()

with DAG(
    PROTECTED_TIMESTAMPS,
    schedule=settings.protections_schedule,
    start_date=settings.catch_up_from or pendulum.datetime(2024, 1, 1),
    catchup=False,
    max_active_runs=1,
    params=reconcile_form(),
    default_args=task_defaults(settings, longest_pause=timedelta(minutes=5), timeout_s=600),
    tags=["protection"],
    doc_md=__doc__,
) as dag:
    reconcile = ReconcileProtections(
        task_id=RECONCILE,
        on_failure_callback=failure_alert(),
        doc_md="Asks every owner and releases records that are no longer needed; the report is in its XComs.",
    )
    check = CheckProtections(
        task_id="check",
        retries=0,  # a retry would report the same
        on_failure_callback=problem_alert(),
        doc_md="Fails if a record or a limit needs a decision; its log says which.",
    )
    reconcile >> check
