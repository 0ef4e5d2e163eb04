"""An export of tables at a protected timestamp, as an Airflow task: the form, the order, and the line in its log."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from airflow.sdk import Param

from spark_jobs.environment import SNAPSHOT_EXPORT
from sweep_tasks.config import Settings, load_settings
from sweep_tasks.errors import BadValue, SweepflowError
from sweep_tasks.export.files import last_export
from sweep_tasks.orchestration.prepare import spark_connection, task_failure
from sweep_tasks.orchestration.protecting import listed
from sweep_tasks.orchestration.spark_job import SparkJobOperator

if TYPE_CHECKING:
    from pathlib import Path

    from airflow.sdk import Context, XComArg

    from spark_jobs.orders import ExportOrder, ExportSummary

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
            description="All cells. Otherwise only what changed since the last export of the same tables, if any.",
        ),
    }


class SnapshotExportOperator(SparkJobOperator):
    template_fields: Sequence[str] = (*SparkJobOperator.template_fields, "at", "tables")

    def __init__(self, *, at: XComArg | int | str, tables: Sequence[str] | str = TABLES, **kwargs: Any) -> None:
        super().__init__(application=SNAPSHOT_EXPORT, name="snapshot-export", **kwargs)
        self.at = at
        self.tables = tables

    def execute(self, context: Context) -> dict[str, Any]:  # type: ignore[override]  # ours has a result
        """Export the tables and return the document of the summary."""
        from spark_jobs.orders import ExportSummary

        try:
            settings = load_settings()
            folder = export_folder(settings)
            spark_connection()
            order = order_of(folder, listed(self.tables), int(str(self.at)), full=context["params"]["full"])
        except SweepflowError as error:
            raise task_failure(error) from None
        summary = ExportSummary.parse(self.submit_order(settings, order, context))
        self.log.info(readable(summary))
        return summary.document()


def export_folder(settings: Settings) -> Path:
    if settings.export_folder is None:
        raise BadValue("setting export_folder", "is not set; name the folder for exports, then clear this run")
    return settings.export_folder.absolute()


def order_of(folder: Path, tables: list[str], at: int, *, full: bool) -> ExportOrder:
    """Return the order of an export. Each has its own folder, named so that they sort by their timestamps."""
    from spark_jobs.orders import ExportOrder

    since = None if full else last_export(folder, tables, before=at)
    return ExportOrder(tuple(tables), at, folder / f"{at:019d}", since)


def readable(summary: ExportSummary) -> str:
    """Describe the export in one line for the log of the task."""
    since = f" since {summary.since}" if summary.since else ""
    deleted = f", {summary.deletes} deleted" if summary.deletes else ""
    done = f"{summary.puts} cells{deleted} of {len(summary.tables)} tables as of {summary.ts}"
    took = f" in {sum(summary.seconds.values()):.1f} s" if summary.made else ", which existed already"
    return f"{summary.kind} export{since}: {done} in {summary.folder}{took}"
