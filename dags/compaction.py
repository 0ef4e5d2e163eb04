"""### Compaction

Removes tombstones that lie dense in a node's files. On each node of the setting `compaction_nodes`: measure the files,
plan, compact what is proved to drop something, measure again, report. It runs by `compaction_schedule`, after a sweep
or a scan that wrote more tombstones than `compaction_after_tombstones`, and when somebody triggers it. It may be killed, cleared
and run twice: Cassandra keeps its old files until the new ones are complete, and every try looks anew.

**When it is red**

| task | what to do |
| --- | --- |
| `prepare` | its log says what is missing (a pool, a connection) and the command that mends it; then clear it |
| `….measure` | it was tried again already; its log says which file or program could not be reached: mend `compaction_nodes`, clear it |
| `….plan`, `….compact` | its log says what `nodetool` answered; see that the node is up, clear it. Other nodes are not held up |
| `check` | reads of a partition are about to fail: its log names table, token and the number of dead cells; see below. Or a compaction failed: it says what `nodetool` answered. Or files could not be read: it says why, and of how many |
| `finish` | says only that something above is red |

| the report says that tombstones are kept by | what to do |
| --- | --- |
| gc_grace | wait until the time it names; or repair more often and lower gc_grace_seconds of the table |
| an overlap that is too large, the budget | trigger it with more *Bytes at most* at a quiet hour |
| a repair, a busy server | nothing: it waited for `compaction_wait_s`, and the next run looks again |
| anything else | the sentence names the command that mends it, where there is one |

A partition near failing is alerted about once a day while it lasts (`compaction_alert_again_s`), the run is red every
time. To look without changing anything, trigger it with *Dry run*. On SQLite there is nothing to compact: all but
`prepare` is skipped. `docs/compaction.md` has the rest.
"""  # noqa: E501 (a table row is a line)

from datetime import timedelta

import pendulum
from airflow.providers.standard.operators.empty import EmptyOperator
from airflow.sdk import DAG, AssetOrTimeSchedule, CronTriggerTimetable, TaskGroup

from sweep_tasks.config import load_settings
from sweep_tasks.orchestration.alerts import failure_alert, problem_alert
from sweep_tasks.orchestration.announcing import tombstones_asset
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
from sweep_tasks.orchestration.defaults import task_defaults
from sweep_tasks.orchestration.names import COMPACTION

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
    params=compaction_form(),
    default_args=task_defaults(settings, longest_pause=timedelta(minutes=15))
    | {"on_failure_callback": failure_alert()},
    tags=["compaction"],
    doc_md=__doc__,
):
    prepare = PrepareCompaction(
        task_id="prepare", nodes=nodes, doc_md="Checks what the others need; skips them if nothing is to be compacted."
    )
    check = CheckReads(
        task_id="check",
        nodes=nodes,
        trigger_rule="all_done",
        retries=0,  # it would say the same again
        on_failure_callback=problem_alert(),
        doc_md="Fails if reads of a partition are about to, a compaction has failed or files could not be read.",
    )
    finish = EmptyOperator(task_id="finish", trigger_rule="none_failed", doc_md="Red if anything above is red.")

    for node in nodes:
        with TaskGroup(group_of(node), tooltip=f"A round on node {node}"):
            measure = MeasureNode(task_id=MEASURE, node=node, doc_md="Reads the node's files.")
            plan = PlanNode(task_id=PLAN, node=node, doc_md="What is worth it, and what keeps the rest from it.")
            compact = CompactNode(task_id=COMPACT, node=node, doc_md="One set of files at a time.")
            again = MeasureAgain(task_id=MEASURE_AGAIN, node=node, doc_md="What came out.")
            report = ReportNode(task_id=REPORT, node=node, doc_md="What went, and what stays and why.")
        prepare >> measure >> plan >> compact >> again >> report >> [check, finish]
    if not nodes:
        prepare >> check
    check >> finish
