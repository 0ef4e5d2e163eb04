"""### Legacy sweep

Removes what no queue entry leads to, by scanning tables: data from before the queue, and what a change of a table's
strategy has left. By itself it goes through all tables by turns: those never scanned first, then those whose strategy
was changed, then by what was written since the last scan and how much that one found. An hour's time is shared; what
does not fit goes on in the next. Triggered with a **Table** it scans that one.

**When it is red**

| task | what to do |
| --- | --- |
| `choose` | its log says what is missing (a pool, a connection, the store, a table) and the command that mends it; then clear it |
| `lane_…` | it was tried again already; its log names the tables and why. Mend the cause; the next run goes on where each scan was |
| `announce_tombstones` | skipped, unless the scans wrote more tombstones than `compaction_after_tombstones`: then it starts the DAG `compaction` |
| `finish` | says only that something above is red |

A table always falls to the same lane, a pool with one slot, so that it is never scanned twice at once; turns leave out
a lane that is in use. *is being swept by run … of …* means that somebody does it outside Airflow, or was killed without a
word: `sweepflow legacy-sweep TABLE --status`, or `--cancel`: then turns leave the table alone until somebody asks for it. A
task is safe to kill, to clear and to run twice.
`docs/airflow.md` has the rest.
"""  # noqa: E501 (a table row is a line)

from datetime import timedelta

import pendulum
from airflow.providers.standard.operators.empty import EmptyOperator
from airflow.sdk import DAG

from sweep_tasks.config import load_settings
from sweep_tasks.orchestration.alerts import failure_alert
from sweep_tasks.orchestration.announcing import AnnounceTombstones
from sweep_tasks.orchestration.defaults import task_defaults
from sweep_tasks.orchestration.lanes import legacy_form
from sweep_tasks.orchestration.names import LEGACY_SWEEP
from sweep_tasks.orchestration.scanning import CHOOSE, ChooseTables, ScanLane

settings = load_settings()

with DAG(
    LEGACY_SWEEP,
    schedule=settings.legacy_schedule,
    start_date=settings.catch_up_from or pendulum.datetime(2024, 1, 1),
    catchup=False,
    max_active_runs=16,  # by hand: turns do not wait for a lane that is in use
    params=legacy_form(),
    default_args=task_defaults(settings, longest_pause=timedelta(minutes=15)),
    on_failure_callback=failure_alert(),
    tags=["sweep"],
    doc_md=__doc__,
):
    choose = ChooseTables(task_id=CHOOSE, doc_md="Checks what the lanes need, and decides whose turn it is.")
    announce = AnnounceTombstones(
        task_id="announce_tombstones",
        trigger_rule="all_done",
        doc_md="Starts the DAG compaction if the run wrote many tombstones; else skipped.",
    )
    finish = EmptyOperator(task_id="finish", trigger_rule="none_failed", doc_md="Red if anything above is red.")
    for lane in range(settings.legacy_lanes):
        scan = ScanLane(lane=lane, doc_md=f"Scans the tables of lane {lane}, by turns; summaries are in its XComs.")
        choose >> scan >> [announce, finish]
    announce >> finish
