"""An export of tables at a protected timestamp, as an Airflow task: the form, the Spark job, what its log says."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from airflow.sdk import Param

from spark_jobs.environment import SNAPSHOT_EXPORT
from spark_jobs.exports import last_export
from sweep_tasks.config import Settings, load_settings
from sweep_tasks.errors import BadValue, SweepflowError
from sweep_tasks.orchestration.prepare import explained, spark_connection
from sweep_tasks.orchestration.protecting import listed
from sweep_tasks.orchestration.spark_job import SparkJobOperator

if TYPE_CHECKING:
    from pathlib import Path

    from airflow.sdk import Context, XComArg

TABLES = "{{ params.tables }}"


def export_form(settings: Settings) -> dict[str, Param]:
    return {
        "tables": Param(
            ", ".join(settings.export_tables),
            type="string",
            minLength=1,
            title="Tables",
            description="Names and patterns, separated by commas: shop.orders, billing.*",
        ),
        "full": Param(
            False,
            type="boolean",
            title="Full",
            description="All cells. Otherwise only what has changed since the last export of the same tables, if any.",
        ),
    }


class SnapshotExportOperator(SparkJobOperator):
    template_fields: Sequence[str] = (*SparkJobOperator.template_fields, "at", "tables")

    def __init__(self, *, at: XComArg | int | str, tables: Sequence[str] | str = TABLES, **kwargs: Any) -> None:
        super().__init__(application=SNAPSHOT_EXPORT, name="snapshot-export", **kwargs)
        self.at = at
        self.tables = tables

    def execute(self, context: Context) -> dict[str, Any]:  # type: ignore[override]  # ours has a result
        """The summary of the export."""
        try:
            settings = load_settings()
            folder = export_folder(settings)
            spark_connection()
            order = arguments(folder, listed(self.tables), int(str(self.at)), full=context["params"]["full"])
        except SweepflowError as error:
            raise explained(error) from None
        summary = self.submit(settings, order, context)
        self.log.info(readable(summary))
        return summary


def export_folder(settings: Settings) -> Path:
    if settings.export_folder is None:
        raise BadValue("setting export_folder", "is not given; name the folder that exports go to, then clear this run")
    return settings.export_folder.absolute()


def arguments(folder: Path, tables: list[str], at: int, *, full: bool) -> list[str]:
    """Each export in a folder of its own, named so that they sort by their timestamps."""
    to = folder / f"{at:019d}"
    since = None if full else last_export(folder, tables, before=at)
    given = {"--tables": ",".join(tables), "--at": str(at), "--to": str(to)}
    return [word for pair in (given | ({"--since": str(since)} if since else {})).items() for word in pair]


def readable(summary: Mapping[str, Any]) -> str:
    """One line that a person reads in the log of the task."""
    since = f" since {summary['since']}" if summary["since"] else ""
    deleted = f", {summary['deletes']} deleted" if summary["deletes"] else ""
    done = f"{summary['puts']} cells{deleted} of {len(summary['tables'])} tables as of {summary['ts']}"
    took = f" in {sum(summary['seconds'].values()):.1f} s" if summary["made"] else ", which was there already"
    return f"{summary['kind']} export{since}: {done} in {summary['folder']}{took}"
