"""A sweep or a scan that wrote many tombstones says so, by an asset, and the DAG `compaction` is started by that.

A task with an outlet tells of it whenever it succeeds. So this one is skipped unless there is something to tell: a
skipped task tells nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from airflow.sdk import Asset, BaseOperator
from airflow.sdk.exceptions import AirflowSkipException

from sweep_tasks.config import load_settings
from sweep_tasks.orchestration.names import TOMBSTONES_ASSET

if TYPE_CHECKING:
    from airflow.sdk import Context

_TABLES_TOLD = 50


def tombstones_asset() -> Asset:
    return Asset(TOMBSTONES_ASSET)


class TooFewTombstones(AirflowSkipException):
    """No compaction is started; `allowed` is the setting, 0 if none ever is."""

    def __init__(self, tombstones: int, allowed: int) -> None:
        super().__init__(
            f"{tombstones} tombstones were written; a compaction is started after more than {allowed}"
            if allowed
            else f"{tombstones} tombstones were written; compaction_after_tombstones is 0, so nothing is started"
        )
        self.tombstones = tombstones
        self.allowed = allowed


class AnnounceTombstones(BaseOperator):
    """After all shards or lanes of a run, whatever became of them: those that failed may have written some before."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(outlets=[tombstones_asset()], **kwargs)

    def execute(self, context: Context) -> dict[str, Any]:
        allowed = load_settings().compaction_after_tombstones
        written = by_table(context["ti"].xcom_pull(task_ids=sorted(self.upstream_task_ids)) or [])
        total = written.total()
        if not worth_telling(total, allowed):
            raise TooFewTombstones(total, allowed)
        told: dict[str, Any] = {"tombstones": total, "tables": dict(written.most_common(_TABLES_TOLD))}
        context["outlet_events"][tombstones_asset()].extra = {**told, "run_id": context["run_id"]}
        self.log.info("%s tombstones were written, more than %s: the DAG compaction is told", total, allowed)
        return told


Summary = Mapping[str, Any]


def by_table(summaries: Iterable[Summary | Sequence[Summary] | None]) -> Counter[str]:
    """Over all shards of a sweep, or all lanes of a scan; one that was skipped or failed has no summary."""
    written: Counter[str] = Counter()
    for summary in summaries:
        if isinstance(summary, Mapping):
            written.update(summary["tombstones"])
        else:  # a lane has one for each of its scans
            for each in summary or ():
                written[each["table"]] += each["this_time"]["tombstones"]
    return written


def worth_telling(tombstones: int, allowed: int) -> bool:
    return 0 < allowed < tombstones
