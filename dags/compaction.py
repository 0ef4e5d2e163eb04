"""### Compaction

Drops dense tombstones from the files of Cassandra's nodes. On each node of the setting `compaction_nodes` it measures the
files, plans, compacts what is proven to drop tombstones, measures again, and reports. It runs by `compaction_schedule`,
after a sweep or a scan that wrote more tombstones than `compaction_after_tombstones`, and on demand. It can be killed,
cleared and run twice: Cassandra keeps its old files until the new ones are complete, and every attempt starts with a new
check.

**When a task fails**

| task | what to do |
| --- | --- |
| `prepare` | its log names what is missing (a pool, a connection) and the command that fixes it; then clear it |
| `….measure` | it was retried already; its log says which file or program could not be reached: correct `compaction_nodes`, clear it |
| `….plan`, `….compact` | its log has the output of `nodetool`; check that the node is up, clear it. Other nodes are not delayed |
| `check` | reads of a partition are close to failing: its log names table, token and the number of dead cells; see below. Or a compaction failed: it has the output of `nodetool`. Or files could not be read: it says why, and how many |
| `finish` | it only reports that another task failed |

| the report says that tombstones are kept by | what to do |
| --- | --- |
| gc_grace | wait until the reported time; or repair more often and lower gc_grace_seconds of the table |
| an overlap that is too large, the budget | raise `compaction_budget_bytes`, or run `sweepflow compaction run --budget` at a quiet hour |
| a repair, a busy server | nothing: it waited for `compaction_wait_s`, and the next run checks again |
| anything else | the message names the command that fixes it, where there is one |

A partition close to failing is alerted once a day while it lasts (`compaction_alert_again_s`); the run fails every time.
To check without changing anything, trigger a *Dry run*, which alerts no one. On SQLite there is nothing to compact: all
tasks but `prepare` are skipped. See `docs/compaction.md` for details.
"""  # noqa: E501 (a table row is a line)

from datetime import timedelta

import pendulum
from airflow.providers.standard.operators.empty import EmptyOperator
from airflow.sdk import DAG, AssetOrTimeSchedule, CronTriggerTimetable, TaskGroup

from sweep_tasks.alerts.notifier import failure_alert, problem_alert
from sweep_tasks.config import load_settings
from sweep_tasks.orchestration.compacting import (
    COMPACT,
    MEASURE,
    MEASURE_AGAIN,
    PLAN,
    REPORT,
    CheckReads,
    CompactNode,
    MeasureAgain,
    MeasureNode,
    PlanNode,
    PrepareCompaction,
    ReportNode,
    compaction_form,
    group_of,
)
from sweep_tasks.orchestration.names import COMPACTION, task_defaults
from sweep_tasks.orchestration.sweeping import tombstones_asset

settings = load_settings()
nodes = list(settings.compaction_nodes)
asset = tombstones_asset()

with DAG(
    COMPACTION,
    schedule=AssetOrTimeSchedule(
        timetable=CronTriggerTimetable(settings.compaction_schedule, timezone="UTC"), assets=[asset]
    )
    if settings.compaction_schedule
    else [asset],
    start_date=settings.catch_up_from or pendulum.datetime(2024, 1, 1),
    catchup=False,
    max_active_runs=1,
    params=compaction_form(settings.compaction_budget_bytes),
    default_args=task_defaults(settings, longest_pause=timedelta(minutes=15))
    | {"on_failure_callback": failure_alert()},
    tags=["compaction"],
    doc_md=__doc__,
) as dag:
    prepare = PrepareCompaction(
        task_id="prepare", nodes=nodes, doc_md="Checks prerequisites; skips the other tasks if there is nothing to do."
    )
    check = CheckReads(
        task_id="check",
        nodes=nodes,
        trigger_rule="all_done",
        retries=0,  # a retry would report the same
        on_failure_callback=problem_alert(),
        doc_md="Fails if reads of a partition are close to failing, or a compaction or a read of files failed.",
    )
    finish = EmptyOperator(task_id="finish", trigger_rule="none_failed", doc_md="Fails if any other task failed.")

    for node in nodes:
        with TaskGroup(group_of(node), tooltip=f"A round on node {node}"):
            measure = MeasureNode(task_id=MEASURE, node=node, doc_md="Reads the node's files.")
            plan = PlanNode(
                task_id=PLAN, node=node, doc_md="Selects files to compact, and says what blocks the others."
            )
            compact = CompactNode(task_id=COMPACT, node=node, doc_md="Compacts one set of files at a time.")
            again = MeasureAgain(task_id=MEASURE_AGAIN, node=node, doc_md="Measures the new files.")
            report = ReportNode(
                task_id=REPORT, node=node, doc_md="Reports what was dropped, and what was kept and why."
            )
        prepare >> measure >> plan >> compact >> again >> report >> [check, finish]
    if not nodes:
        prepare >> check
    check >> finish
