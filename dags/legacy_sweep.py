"""### Legacy sweep

Removes versions without a queue entry by scanning tables: data from before the queue, and what remains after a change of
strategy. Scheduled runs scan all tables in rotation: tables that were never scanned first, then tables whose strategy was
changed, then by the number of writes since the last scan and by how much that scan found. Each run has a time budget; a
scan that does not finish resumes in a later run. If triggered with a **Table**, it scans that table.

**When a task fails**

| task | what to do |
| --- | --- |
| `choose` | its log names what is missing (a pool, a connection, the store, a table) and the command that fixes it; then clear it |
| `slot_…` | it was retried already; its log names the tables and the reasons. Fix the cause; the next run resumes each scan |
| `announce_tombstones` | skipped, unless the scans wrote more tombstones than `compaction_after_tombstones`: then it triggers the DAG `compaction` |
| `finish` | it only reports that another task failed |

A table always uses the same worker slot, a pool of size one, so it is never scanned twice at the same time. Scheduled runs
leave out a slot that is in use. If a table is reported as being swept by another run, that run is outside Airflow, or was
killed without releasing the table: use `sweepflow legacy-sweep TABLE --status`, or `--cancel`. After a cancellation,
scheduled runs skip the table until a scan of it is started manually. A task can be killed, cleared and run twice safely.
See `docs/airflow.md` for details.
"""  # noqa: E501 (a table row is a line)

from datetime import timedelta

import pendulum
from airflow.providers.standard.operators.empty import EmptyOperator
from airflow.sdk import DAG

from sweep_tasks.alerts.notifier import failure_alert
from sweep_tasks.config import load_settings
from sweep_tasks.orchestration.names import LEGACY_SWEEP, task_defaults
from sweep_tasks.orchestration.scanning import CHOOSE, ChooseTables, ScanSlot, legacy_form
from sweep_tasks.orchestration.sweeping import AnnounceTombstones

settings = load_settings()

with DAG(
    LEGACY_SWEEP,
    schedule=settings.legacy_schedule,
    start_date=settings.catch_up_from or pendulum.datetime(2024, 1, 1),
    catchup=False,
    max_active_runs=16,  # for manual runs: scheduled ones do not wait for a slot that is in use
    params=legacy_form(),
    default_args=task_defaults(settings, longest_pause=timedelta(minutes=15)),
    on_failure_callback=failure_alert(),
    tags=["sweep"],
    doc_md=__doc__,
) as dag:
    choose = ChooseTables(task_id=CHOOSE, doc_md="Checks prerequisites and selects the tables to scan.")
    announce = AnnounceTombstones(
        task_id="announce_tombstones",
        trigger_rule="all_done",
        doc_md="Triggers the DAG compaction if the run wrote many tombstones; otherwise skipped.",
    )
    finish = EmptyOperator(task_id="finish", trigger_rule="none_failed", doc_md="Fails if any other task failed.")
    for slot in range(settings.legacy_slots):
        scan = ScanSlot(
            slot=slot, doc_md=f"Scans the tables of worker slot {slot} in order; summaries are in its XComs."
        )
        choose >> scan >> [announce, finish]
    announce >> finish
