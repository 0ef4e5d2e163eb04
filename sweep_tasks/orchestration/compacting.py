"""The tasks of the DAG `compaction`: for each node measure, plan, compact, measure again, report; then the check.

A task hands its result to the next as a document, its XCom. Each task checks again what may have changed since: a plan
is proven once more before a file is rewritten. The check is the last task and fails on its own, so that a failing check
does not repeat the compactions.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from airflow.sdk import BaseBranchOperator, BaseOperator, Param

from spark_jobs.environment import SSTABLE_STATISTICS
from sweep_tasks.clock import SystemClock
from sweep_tasks.config import CompactionNode, Settings, check_variables, load_settings
from sweep_tasks.errors import NeedsAttention, SweepflowError
from sweep_tasks.orchestration.pools import compaction_pool
from sweep_tasks.orchestration.prepare import check_pools, spark_connection, task_failure, this_attempt
from sweep_tasks.orchestration.protecting import listed
from sweep_tasks.orchestration.spark_job import SparkJobOperator

if TYPE_CHECKING:
    from airflow.sdk import Context

    from sweep_tasks.compaction.documents import DeadRun, Document, Measurement, RoundPlan, RoundReport, RoundResult

D = TypeVar("D", bound="Document")

MEASURE, PLAN, COMPACT, MEASURE_AGAIN, REPORT = "measure", "plan", "compact", "measure_again", "report"
SHOW_RANGES = "sweepflow compaction ranges"


def compaction_form(most_bytes: int) -> dict[str, Param]:
    """The form of a run. `most_bytes`: the setting compaction_budget_bytes, which a run can lower but not raise."""
    return {
        "dry_run": Param(
            False,
            type="boolean",
            title="Dry run",
            description="Measure, plan and show what would be compacted; rewrite nothing, flush nothing.",
        ),
        "tables": Param(
            "",
            type=["string", "null"],
            title="Tables",
            description="Separated by commas: shop.orders, shop.items. Empty: all, including those of the sweep.",
        ),
        "budget_bytes": Param(
            0,
            type="integer",
            minimum=0,
            maximum=most_bytes,
            title="Budget in bytes",
            description="The bytes that each node may rewrite in this run. 0: the setting "
            f"compaction_budget_bytes, {most_bytes:,}; more than that is not allowed.",
        ),
    }


def group_of(node: str) -> str:
    """The task group of a node: its name without dots, which Airflow reserves."""
    return node.replace(".", "-")


def task_of(node: str, name: str) -> str:
    return f"{group_of(node)}.{name}"


class PrepareCompaction(BaseBranchOperator):
    """Check that there is something to compact and that everything it needs exists. If there is nothing to compact, all
    other tasks are skipped and the run succeeds."""

    def __init__(self, *, nodes: Sequence[str], **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.nodes = list(nodes)

    def choose_branch(self, context: Context) -> Iterable[str]:
        for line in _triggers(context):
            self.log.info("%s", line)
        try:
            check_variables()
            settings = load_settings()
            if nothing := nothing_to_compact(settings):
                for note in (nothing, *left_by_sweeps(settings)):
                    self.log.info("%s", note.sentence)
                return []
            if any(measured_by_spark(settings.compaction_nodes[node]) for node in self.nodes):
                spark_connection()
            check_pools([compaction_pool(node) for node in self.nodes])
        except SweepflowError as error:
            raise task_failure(error) from None
        return [task_of(node, MEASURE) for node in self.nodes]


class SkipNote(NamedTuple):
    """A line in the log of a run that has nothing to do, with a code."""

    code: str
    sentence: str


def nothing_to_compact(settings: Settings) -> SkipNote | None:
    """Why there is nothing to do; None if there is something."""
    from sweep_tasks.store import StoreLocation

    location = StoreLocation.parse(settings.store)
    if not location.has_tombstones:
        return SkipNote(
            "no_tombstones",
            f"nothing to compact: a store of kind {location.scheme} has no tombstones; "
            "'sweepflow compaction vacuum --dry-run' shows how much free space its file has",
        )
    if not settings.compaction_nodes:
        return SkipNote(
            "no_nodes",
            f"nothing to compact: the setting compaction_nodes names no node; '{SHOW_RANGES}' shows where sweeps have "
            "left tombstones",
        )
    return None


def left_by_sweeps(settings: Settings) -> list[SkipNote]:
    """The commands that an operator may run on nodes that the settings do not describe, from what sweeps have counted.
    They are a hint: a run that has nothing to do does not fail without them."""
    from sweep_tasks.compaction.ranges import densest_ranges
    from sweep_tasks.store import StoreLocation

    if not StoreLocation.parse(settings.store).has_tombstones:
        return []
    try:
        ranges = densest_ranges(settings)
    except SweepflowError as error:
        return [SkipNote(error.code, f"the tombstones that sweeps have left are not known: {error}")]
    return [
        SkipNote(
            "tombstones_left",
            f"{each.table}: sweeps have left {each.tombstones} tombstones between tokens {each.first_token} "
            f"and {each.last_token}, {each.droppable} of them past gc_grace: {each.command}",
        )
        for each in ranges
    ]


def measured_by_spark(node: CompactionNode) -> bool:
    """Whether the files of the node can be read directly."""
    return bool(node.data) and not node.prefix


def _triggers(context: Context) -> Iterable[str]:
    from sweep_tasks.orchestration.sweeping import TombstonesWritten

    for events in context["triggering_asset_events"].values():
        for event in events:
            written = TombstonesWritten.parse(event.extra)
            if written is None:
                yield "started by an event that no sweep or scan has created"
            else:
                yield f"started by run {written.run_id} of the sweep, which wrote {written.tombstones} tombstones"


class _NodeStep(BaseOperator):
    """A step of a node's round; its result is a document."""

    def __init__(self, *, node: str, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.node = node

    def execute(self, context: Context) -> dict[str, Any]:
        """The document of the step as Airflow keeps it, in its XCom."""
        try:
            return self.step(load_settings(), context).document()
        except SweepflowError as error:
            raise task_failure(error) from None

    @abstractmethod
    def step(self, settings: Settings, context: Context) -> Document: ...

    def budget(self, settings: Settings, context: Context) -> int:
        """The bytes that this run may have the node rewrite. The setting limits what the form and the previous step
        ask for: it may have been lowered since, and anyone who may edit the DAG can change an XCom."""
        asked, most = context["params"]["budget_bytes"], settings.compaction_budget_bytes
        if asked > most:
            self.log.warning("%s bytes were asked for, the setting compaction_budget_bytes allows %s", asked, most)
        return min(asked, most) if asked > 0 else most

    def result_of(self, context: Context, name: str, model: type[D]) -> D:
        """The document of another step of this node."""
        return model.model_validate(context["ti"].xcom_pull(task_ids=task_of(self.node, name)))


class MeasureNode(SparkJobOperator):
    """Measure with Spark where the node's files can be read directly, otherwise in this process."""

    def __init__(self, *, node: str, **kwargs: Any) -> None:
        super().__init__(application=SSTABLE_STATISTICS, name=f"measure-{node}", **kwargs)
        self.node = node

    def execute(self, context: Context) -> dict[str, Any]:  # type: ignore[override]  # ours has a result
        from spark_jobs.orders import MeasureJob
        from sweep_tasks.compaction import rounds
        from sweep_tasks.compaction.documents import Measurement

        tables = _tables(context)
        try:
            settings = load_settings()
            if measured_by_spark(settings.compaction_nodes[self.node]):
                job = MeasureJob(node=self.node, tables=tuple(tables))
                measured = Measurement.model_validate(self.submit_order(settings, job, context))
            else:
                measured = rounds.measure(settings, self.node, tables)
        except SweepflowError as error:
            raise task_failure(error) from None
        self.log.info("%s", measured_line(measured))
        return measured.document()


class PlanNode(_NodeStep):
    def step(self, settings: Settings, context: Context) -> RoundPlan:
        from sweep_tasks.compaction import rounds
        from sweep_tasks.compaction.documents import Measurement

        measured = self.result_of(context, MEASURE, Measurement)
        planned = rounds.plan(settings, self.node, measured, _tables(context), self.budget(settings, context))
        for each in planned.compactions:
            self.log.info("would compact %s files of %s (%s)", len(each.files), each.table, each.reason)
        for blocked in planned.blocked:
            self.log.info("%s: %s", blocked.table, blocked.sentence)
        for found in planned.ranges or ():
            self.log.info("%s: %s tombstones by sweeps: %s", found.table, found.tombstones, found.command)
        return planned


class CompactNode(_NodeStep):
    """Compact in the node's own pool: Cassandra would run two compactions of one node one after the other anyway."""

    def __init__(self, *, node: str, **kwargs: Any) -> None:
        super().__init__(node=node, pool=compaction_pool(node), **kwargs)

    def step(self, settings: Settings, context: Context) -> RoundResult:
        from sweep_tasks.compaction import rounds
        from sweep_tasks.compaction.documents import RoundPlan

        planned, dry_run = self.result_of(context, PLAN, RoundPlan), context["params"]["dry_run"]
        return rounds.compact(settings, self.node, planned, self.budget(settings, context), dry_run=dry_run)


class MeasureAgain(_NodeStep):
    """Measure in this process: the cache knows all files that were not rewritten."""

    def step(self, settings: Settings, context: Context) -> Measurement:
        from sweep_tasks.compaction import rounds

        measured = rounds.measure(settings, self.node, _tables(context))
        self.log.info("%s", measured_line(measured))
        return measured


class ReportNode(_NodeStep):
    def step(self, settings: Settings, context: Context) -> RoundReport:
        from sweep_tasks.compaction import rounds
        from sweep_tasks.compaction.documents import Measurement, RoundPlan, RoundResult
        from sweep_tasks.connections import open_store
        from sweep_tasks.metrics.samples import tally_compaction
        from sweep_tasks.orchestration.stats import send_compaction

        report = rounds.report(
            self.result_of(context, MEASURE, Measurement),
            self.result_of(context, PLAN, RoundPlan),
            self.result_of(context, COMPACT, RoundResult),
            self.result_of(context, MEASURE_AGAIN, Measurement),
        )
        for line in report.sentences:
            self.log.info("%s", line)
        send_compaction(report)
        with open_store(settings.store, settings) as store:
            tally_compaction(store, SystemClock(), report, this_attempt(context))
        return report


class NodeProblem(NamedTuple):
    """A problem of a node that fails the check."""

    sentence: str
    about: str
    """What it is about, the same in every run, so that an alert is not repeated."""


class CheckReads(BaseOperator):
    """Fail if a read comes near the number of dead cells at which the server gives up, a compaction has failed, or
    files could not be read. For a node whose round did not reach its report the last measurement counts."""

    def __init__(self, *, nodes: Sequence[str], **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.nodes = list(nodes)

    def execute(self, context: Context) -> None:
        found = {
            reason: [problem for node in self.nodes for problem in check(node, context)]
            for reason, check in (
                ("reads_near_failing", self._near_failing),
                ("compaction_failed", self._failed),
                ("files_unreadable", self._unreadable),
            )
        }
        all_problems = [each for problems in found.values() for each in problems]
        for sentence, _ in all_problems:
            self.log.error("%s", sentence)
        for reason, problems in found.items():
            if problems:  # the most serious of them is the reason, and the message reports all
                raise NeedsAttention(*zip(*all_problems, strict=True), reason=reason)

    def _near_failing(self, node: str, context: Context) -> Iterator[NodeProblem]:
        from sweep_tasks.compaction.reports import near_failing_runs

        if report := self._report(context, node):
            runs = report.near_failing
        else:
            measured = self._measured(context, node)
            runs = near_failing_runs(measured) if measured else ()
        for run in runs:
            yield near_failing(node, run)

    def _failed(self, node: str, context: Context) -> Iterator[NodeProblem]:
        report = self._report(context, node)
        for problem in report.failed if report else ():
            yield NodeProblem(f"node {node}: {problem}", about_failed(node))

    def _unreadable(self, node: str, context: Context) -> Iterator[NodeProblem]:
        from sweep_tasks.compaction.reports import unread

        found = self._report(context, node) or self._measured(context, node)
        if found and found.unreadable:
            remedy = "if it is all of them, check how compaction_nodes starts sstabledump"
            yield NodeProblem(f"node {node}: {unread(found.unreadable)}; {remedy}", about_unread(node))

    def _report(self, context: Context, node: str) -> RoundReport | None:
        from sweep_tasks.compaction.documents import RoundReport

        return self._result_of(context, node, REPORT, RoundReport)

    def _measured(self, context: Context, node: str) -> Measurement | None:
        from sweep_tasks.compaction.documents import Measurement

        again = self._result_of(context, node, MEASURE_AGAIN, Measurement)
        return again or self._result_of(context, node, MEASURE, Measurement)

    @staticmethod
    def _result_of(context: Context, node: str, step: str, model: type[D]) -> D | None:
        """The document of a step; None if the round did not get that far."""
        found: Any = context["ti"].xcom_pull(task_ids=[task_of(node, step)])
        return next((model.model_validate(each) for each in found or () if each), None)


def near_failing(node: str, run: DeadRun) -> NodeProblem:
    from sweep_tasks.compaction import reports

    sentence = f"node {node}, {reports.near_failing(run)}; the report of the run says what keeps them"
    return NodeProblem(sentence, f"node {node}, table {run.table}, token {run.token}")


def about_failed(node: str) -> str:
    return f"node {node}, a compaction failed"


def about_unread(node: str) -> str:
    return f"node {node}, files that can't be read"


def measured_line(measured: Measurement) -> str:
    left_out = {"files that could not be read": measured.unreadable, "files replaced meanwhile": measured.gone}
    return (
        f"{measured.files} files of {measured.bytes} bytes: {measured.droppable} tombstones can be dropped, "
        f"{measured.waiting} wait for gc_grace"
        + "".join(f"; {what}: {len(files)}" for what, files in left_out.items() if files)
    )


def _tables(context: Context) -> list[str]:
    return listed(context["params"]["tables"] or "")
