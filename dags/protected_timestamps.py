"""### Protected timestamps

Asks the owner of every protection whether it is done, and releases what nobody needs any more: records whose owner has
finished, and those that have expired. What somebody left half done is finished or dropped. Nothing is released on a
guess: an owner that is gone, of a type that nobody knows, or that does not answer, keeps its record and makes the run
red.

**When it is red**

| task | what to do |
| --- | --- |
| `reconcile` | it was tried again already; its log says what could not be reached. Mend that; the next run does the rest |
| `check` | its log has a sentence for each record or limit that a person must decide about, with age and owner |

| the sentence says | what to do |
| --- | --- |
| its owner is gone | the run or application was deleted, or its history was. See that what it began is over, then `sweepflow release ID` |
| nobody answers for owners of type … | install the package that registers that type, or release the record by hand |
| its owner could not be asked | mend what it names: a connection, an address, a detail that the record lacks |
| allowed are … (protection_max_age_s) | ask whoever took it. What it holds back grows: `sweepflow protections` shows how much |
| of at most … are in use | release what is not needed, or raise the limit that it names |

A problem is alerted about once a day while it lasts (`protection_alert_again_s`), the run is red every time. To look
without changing anything, trigger it with *Dry run*. `docs/airflow.md` has the rest.
"""  # noqa: E501 (a table row is a line)

from datetime import timedelta

import pendulum
from airflow.sdk import DAG

from sweep_tasks.config import load_settings
from sweep_tasks.orchestration.alerts import failure_alert, problem_alert
from sweep_tasks.orchestration.defaults import task_defaults
from sweep_tasks.orchestration.names import PROTECTED_TIMESTAMPS
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
):
    reconcile = ReconcileProtections(
        task_id=RECONCILE,
        on_failure_callback=failure_alert(),
        doc_md="Asks every owner, releases what is no longer needed; the report is in its XComs.",
    )
    check = CheckProtections(
        task_id="check",
        retries=0,  # it would say the same again
        on_failure_callback=problem_alert(),
        doc_md="Fails if a person has to decide something; its log says what.",
    )
    reconcile >> check
