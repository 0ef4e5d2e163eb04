"""The export as an operator runs it, while cells are written and swept; and what it leaves when it can't be done."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.dataset as ds
import pytest

from spark_jobs.orders import ExportSummary
from sweep_tasks.coordination.thresholds import Thresholds
from sweep_tasks.local.airflow import LocalAirflow
from sweep_tasks.model import Cell, SweepStrategy
from sweep_tasks.orchestration.exporting import readable
from sweep_tasks.orchestration.names import SNAPSHOT_EXPORT, TARGETED_SWEEP
from sweep_tasks.protection.catalog import ProtectionCatalog
from tests.airflow.logs import events, failures
from tests.airflow.queued import CELLS, TABLES, QueuedStore

pytestmark = pytest.mark.timeout(900)

CONSERVATIVE = SweepStrategy.CONSERVATIVE
TABLE = str(TABLES[CONSERVATIVE])


@pytest.fixture
def exports(airflow: LocalAirflow, queued: QueuedStore, settings_file: Path, tmp_path: Path) -> Iterator[Path]:
    """The folder that the settings name."""
    folder = tmp_path / "exports"
    settings_file.write_text(f'{queued.settings_file()}export_folder = "{folder}"\n')
    airflow.unpause(SNAPSHOT_EXPORT)
    yield folder
    airflow.unpause(SNAPSHOT_EXPORT, paused=True)


def ended(airflow: LocalAirflow, run: str, expected: str, dag_id: str = SNAPSHOT_EXPORT) -> dict[str, str | None]:
    assert airflow.wait_for_run(dag_id, run) == expected, airflow.describe_run(dag_id, run)
    return airflow.task_states(dag_id, run)


def cells_in(folder: Path) -> dict[Cell, bytes]:
    rows = ds.dataset(folder / "data" / f"table={TABLE}", format="parquet").to_table().to_pylist()
    return {Cell(row["row"], row["column"]): row["value"] for row in rows if not row["deleted"]}


def test_an_export_shows_one_moment_while_cells_are_written_and_swept(
    airflow: LocalAirflow, queued: QueuedStore, exports: Path
) -> None:
    cells = queued.cells(CONSERVATIVE, 0)
    queued.write(CONSERVATIVE, 0, 4)
    run = airflow.trigger(SNAPSHOT_EXPORT, {"tables": f"{TABLE}, app.th*"})
    airflow.wait(
        "the protection",
        lambda: airflow.task_states(SNAPSHOT_EXPORT, run).get("protect") == "success",
        explain=lambda: airflow.describe_run(SNAPSHOT_EXPORT, run),
    )
    queued.write(CONSERVATIVE, 0, 2)
    sweep = airflow.trigger(TARGETED_SWEEP, {"strategies": ["conservative"], "shards": "0"})
    assert set(ended(airflow, run, "success").values()) == {"success"}
    ended(airflow, sweep, "success", TARGETED_SWEEP)

    summary: dict[str, Any] = airflow.xcom(SNAPSHOT_EXPORT, run, "export")
    ts = airflow.xcom(SNAPSHOT_EXPORT, run, "protect")
    assert (summary["kind"], summary["ts"], summary["puts"]) == ("full", ts, CELLS)
    assert set(summary["tables"]) == {str(table) for table in TABLES.values()}
    assert Path(summary["folder"]) == exports / f"{ts:019d}"
    assert cells_in(Path(summary["folder"])) == dict.fromkeys(cells, b"3")
    assert Thresholds(queued.store).of_strategy(CONSERVATIVE) > ts, "the sweep did not pass the export"
    assert ProtectionCatalog(queued.store).records() == []
    assert [task["try_number"] for task in airflow.task_instances(SNAPSHOT_EXPORT, run).values()] == [1, 1, 1]
    assert readable(ExportSummary.parse(summary)) in events(airflow, SNAPSHOT_EXPORT, run, "export")


def test_what_was_protected_is_released_though_the_export_failed(
    airflow: LocalAirflow, queued: QueuedStore, exports: Path, settings_file: Path
) -> None:
    settings_file.write_text(queued.settings_file())  # names no folder
    run = airflow.trigger(SNAPSHOT_EXPORT, {"tables": TABLE})
    assert ended(airflow, run, "failed") == {"protect": "success", "export": "failed", "release": "success"}
    assert airflow.xcom(SNAPSHOT_EXPORT, run, "protect") > 0
    assert airflow.xcom(SNAPSHOT_EXPORT, run, "release") is True
    assert ProtectionCatalog(queued.store).records() == []
    assert airflow.task_instances(SNAPSHOT_EXPORT, run)["export"]["try_number"] == 1
    assert failures(airflow, SNAPSHOT_EXPORT, run, "export") == [("bad_value", "setting export_folder", None)]
