"""The tasks of the DAG `compaction`: for each node measure, plan, compact, measure again, report; then the check.

What a task finds goes to the next as a document, its XCom. Each looks anew at what may have changed since: a plan is
proved once more before a file is rewritten. The check comes last and fails alone, so that what was compacted stays so.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from airflow.sdk import BaseBranchOperator, BaseOperator, Param

from spark_jobs.environment import SSTABLE_STATISTICS
from sweep_tasks.clock import SystemClock
from sweep_tasks.config import CompactionNode, Settings, load_settings
from sweep_tasks.errors import CompactionFailed, FilesUnreadable, ReadsNearFailing, SweepflowError
from sweep_tasks.orchestration.pools import compaction_pool
from sweep_tasks.orchestration.prepare import check_pools, explained, spark_connection, this_try
from sweep_tasks.orchestration.protecting import listed
from sweep_tasks.orchestration.spark_job import SparkJobOperator

if TYPE_CHECKING:
    from airflow.sdk import Context

MEASURE, PLAN, COMPACT, MEASURE_AGAIN, REPORT = "measure", "plan", "compact", "measure_again", "report"
SHOW_RANGES = "sweepflow compaction ranges"


def compaction_form() -> dict[str, Param]:
    return {
        "dry_run": Param(
            False,
            type="boolean",
            title="Dry run",
            description="Measure, plan and say what would be compacted; rewrite nothing, flush nothing.",
        ),
        "tables": Param(
            "",
            type=["string", "null"],
            title="Tables",
            description="Separated by commas: shop.orders, shop.items. Empty: all of them, the sweep's own too.",
        ),
        "budget_bytes": Param(
            0,
            type="integer",
            minimum=0,
            title="Bytes at most",
            description="That each node may rewrite in this run, planned for and done. 0: what the setting "
            "compaction_budget_bytes says.",
        ),
    }


def group_of(node: str) -> str:
    """The task group of a node: its name, without the dots, which Airflow keeps for itself."""
    return node.replace(".", "-")


def task_of(node: str, name: str) -> str:
    return f"{group_of(node)}.{name}"


class PrepareCompaction(BaseBranchOperator):
    """Is there anything to compact, and everything there that it needs? Where there is nothing, all others are skipped
    and the run is green."""

    def __init__(self, *, nodes: Sequence[str], **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.nodes = list(nodes)

    def choose_branch(self, context: Context) -> Iterable[str]:
        for line in _asked_for(context):
            self.log.info("%s", line)
        try:
            settings = load_settings()
            if nothing := nothing_to_compact(settings):
                for note in (nothing, *left_by_sweeps(settings)):
                    self.log.info("%s", note.sentence)
                return []
            if any(measured_by_spark(settings.compaction_nodes[node]) for node in self.nodes):
                spark_connection()
            check_pools([compaction_pool(node) for node in self.nodes])
        except SweepflowError as error:
            raise explained(error) from None
        return [task_of(node, MEASURE) for node in self.nodes]


class Note(NamedTuple):
    """Of a run that has nothing to do: what people read in its log."""

    code: str
    sentence: str


def nothing_to_compact(settings: Settings) -> Note | None:
    """Why there is nothing to do."""
    from sweep_tasks.store import StoreLocation

    location = StoreLocation.parse(settings.store)
    if not location.cassandra:
        return Note(
            "no_tombstones",
            f"nothing to compact: a store of kind {location.scheme} has no tombstones, what is deleted is gone; "
            "'sweepflow compaction vacuum --dry-run' says whether its file has room to give back",
        )
    if not settings.compaction_nodes:
        return Note(
            "no_nodes",
            f"nothing to compact: the setting compaction_nodes names no node; '{SHOW_RANGES}' shows where sweeps have "
            "left tombstones",
        )
    return None


def left_by_sweeps(settings: Settings) -> list[Note]:
    """Where no node is described, what an operator may run on each: by what sweeps have counted. It is a hint, and a
    run that has nothing to do does not fail for the want of it."""
    from sweep_tasks.compaction.by_ranges import told_of_all
    from sweep_tasks.store import StoreLocation

    if not StoreLocation.parse(settings.store).cassandra:
        return []
    try:
        ranges = told_of_all(settings)
    except SweepflowError as error:
        return [Note(error.code, f"what sweeps have left can't be told: {error}")]
    return [
        Note(
            "tombstones_left",
            f"{each['table']}: sweeps have left {each['tombstones']} tombstones between tokens {each['first_token']} "
            f"and {each['last_token']}, {each['droppable']} of them past gc_grace: {each['command']}",
        )
        for each in ranges
    ]


def measured_by_spark(node: CompactionNode) -> bool:
    """Where its files can be read directly."""
    return bool(node.data) and not node.prefix


def _asked_for(context: Context) -> Iterable[str]:
    for events in context["triggering_asset_events"].values():
        for event in events:
            extra = event.extra
            yield f"started by run {extra.get('run_id')} of the sweep, which wrote {extra.get('tombstones')} tombstones"


class _OfNode(BaseOperator):
    """A step of a node's round; its result is a document."""

    def __init__(self, *, node: str, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.node = node

    def execute(self, context: Context) -> dict[str, Any]:
        try:
            return self.step(load_settings(), context)
        except SweepflowError as error:
            raise explained(error) from None

    @abstractmethod
    def step(self, settings: Settings, context: Context) -> dict[str, Any]: ...

    def found(self, context: Context, name: str) -> dict[str, Any]:
        """What another step of this node has found."""
        document: dict[str, Any] = context["ti"].xcom_pull(task_ids=task_of(self.node, name))
        return document


class MeasureNode(SparkJobOperator):
    """By Spark where the node's files can be read directly; through the node's prefix in this process."""

    def __init__(self, *, node: str, **kwargs: Any) -> None:
        super().__init__(application=SSTABLE_STATISTICS, name=f"measure-{node}", **kwargs)
        self.node = node

    def execute(self, context: Context) -> dict[str, Any]:  # type: ignore[override]  # ours has a result
        from sweep_tasks.compaction import rounds

        tables = _tables(context)
        try:
            settings = load_settings()
            if measured_by_spark(settings.compaction_nodes[self.node]):
                named = ["--tables", ",".join(tables)] if tables else []
                document = self.submit(settings, ["--node", self.node, *named], context)
            else:
                document = rounds.measure(settings, self.node, tables)
        except SweepflowError as error:
            raise explained(error) from None
        self.log.info("%s", measured_line(document))
        return document


class PlanNode(_OfNode):
    def step(self, settings: Settings, context: Context) -> dict[str, Any]:
        from sweep_tasks.compaction import rounds

        measured = self.found(context, MEASURE)
        document = rounds.plan(settings, self.node, measured, _tables(context), _budget(context))
        for each in document["compactions"]:
            self.log.info("would compact %s files of %s (%s)", len(each["files"]), each["table"], each["reason"])
        for each in document["blocked"]:
            self.log.info("%s: %s", each["table"], each["sentence"])
        for each in document.get("ranges", ()):
            self.log.info("%s: %s tombstones by sweeps: %s", each["table"], each["tombstones"], each["command"])
        return document


class CompactNode(_OfNode):
    """In the node's own pool: two compactions of one node would wait for each other inside Cassandra anyway."""

    def __init__(self, *, node: str, **kwargs: Any) -> None:
        super().__init__(node=node, pool=compaction_pool(node), **kwargs)

    def step(self, settings: Settings, context: Context) -> dict[str, Any]:
        from sweep_tasks.compaction import rounds

        planned, dry_run = self.found(context, PLAN), context["params"]["dry_run"]
        return rounds.compact(settings, self.node, planned, _budget(context), dry_run=dry_run)


class MeasureAgain(_OfNode):
    """In this process: what was not rewritten is known already."""

    def step(self, settings: Settings, context: Context) -> dict[str, Any]:
        from sweep_tasks.compaction import rounds

        document = rounds.measure(settings, self.node, _tables(context))
        self.log.info("%s", measured_line(document))
        return document


class ReportNode(_OfNode):
    def step(self, settings: Settings, context: Context) -> dict[str, Any]:
        from sweep_tasks.compaction import rounds
        from sweep_tasks.observation.entering import enter_compaction
        from sweep_tasks.opening import open_store
        from sweep_tasks.orchestration.stats import tell_compaction

        document = rounds.report(*(self.found(context, name) for name in (MEASURE, PLAN, COMPACT, MEASURE_AGAIN)))
        for line in document["sentences"]:
            self.log.info("%s", line)
        tell_compaction(document)
        with open_store(settings.store, settings) as store:
            enter_compaction(store, SystemClock(), document, this_try(context))
        return document


class CheckReads(BaseOperator):
    """Fails if a read comes near the number of dead cells at which the server gives up, a compaction has failed, or
    files could not be read. Of a node whose round did not get to its report its last measurement counts."""

    def __init__(self, *, nodes: Sequence[str], **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.nodes = list(nodes)

    def execute(self, context: Context) -> None:
        found = {
            error: [told for node in self.nodes for told in look(node, context)]
            for error, look in (
                (ReadsNearFailing, self._near),
                (CompactionFailed, self._failed),
                (FilesUnreadable, self._unread),
            )
        }
        told = [each for problems in found.values() for each in problems]
        for sentence, _ in told:
            self.log.error("%s", sentence)
        for error, problems in found.items():
            if problems:  # the worst of them gives the name, and tells of all
                raise error(*zip(*told, strict=True))

    def _near(self, node: str, context: Context) -> Iterator[tuple[str, str]]:
        from sweep_tasks.compaction.reporting import near_in

        report = self._found(context, node, REPORT)
        for run in report["near_failing"] if report else near_in(self._measured(context, node)):
            yield near_failing(node, run)

    def _failed(self, node: str, context: Context) -> Iterator[tuple[str, str]]:
        for problem in self._found(context, node, REPORT).get("failed", ()):
            yield f"node {node}: {problem}", about_failed(node)

    def _unread(self, node: str, context: Context) -> Iterator[tuple[str, str]]:
        from sweep_tasks.compaction.sentences import unread

        told = self._found(context, node, REPORT) or self._measured(context, node)
        if problems := told.get("unreadable"):
            way_out = "where it is all of them, see how compaction_nodes has sstabledump started"
            yield f"node {node}: {unread(problems)}; {way_out}", about_unread(node)

    def _measured(self, context: Context, node: str) -> dict[str, Any]:
        return self._found(context, node, MEASURE_AGAIN) or self._found(context, node, MEASURE)

    @staticmethod
    def _found(context: Context, node: str, step: str) -> dict[str, Any]:
        """What a step has told; nothing if it did not get that far."""
        told: Any = context["ti"].xcom_pull(task_ids=[task_of(node, step)])
        return next((each for each in told or () if each), {})


def near_failing(node: str, run: Mapping[str, Any]) -> tuple[str, str]:
    """A sentence for people, and what it is about, the same in every run."""
    from sweep_tasks.compaction import sentences

    sentence = f"node {node}, {sentences.near_failing(run)}; the report of the run says what keeps them"
    return sentence, f"node {node}, table {run['table']}, token {run['token']}"


def about_failed(node: str) -> str:
    """What a failed compaction is about, the same in every run."""
    return f"node {node}, a compaction failed"


def about_unread(node: str) -> str:
    """What files that could not be read are about, the same in every run."""
    return f"node {node}, files that can't be read"


def measured_line(document: Mapping[str, Any]) -> str:
    return (
        f"{document['files']} files of {document['bytes']} bytes: {document['droppable']} tombstones can be dropped, "
        f"{document['waiting']} wait for gc_grace{_left_out(document)}"
    )


def _left_out(document: Mapping[str, Any]) -> str:
    words = {"unreadable": "files that could not be read", "gone": "files replaced meanwhile"}
    return "".join(f"; {words[what]}: {len(document[what])}" for what in words if document[what])


def _budget(context: Context) -> int | None:
    return context["params"]["budget_bytes"] or None


def _tables(context: Context) -> list[str]:
    return listed(context["params"]["tables"] or "")
