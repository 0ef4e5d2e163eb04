"""Sweep the demo's store from a terminal: in this process, or by a Spark job for each strategy and shard."""

from __future__ import annotations

import json
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from spark_jobs.environment import TARGETED_SWEEP, spark_environment, spark_submit
from sweep_tasks.clock import Clock
from sweep_tasks.config import Settings, as_environment
from sweep_tasks.errors import SweepflowError
from sweep_tasks.model import SweepStrategy
from sweep_tasks.processes import Needs, inherited_environment
from sweep_tasks.queue.progress import QUEUES, Progress
from sweep_tasks.store.contract import Store
from sweep_tasks.sweep.order import SweepOrder
from sweep_tasks.sweep.run import Sweeper
from sweep_tasks.sweep.summary import LOCAL

Say = Callable[[str], None]


def sweep_here(
    store: Store, settings: Settings, clock: Clock, leave_out: tuple[SweepStrategy, int] | None = None
) -> Iterator[dict[str, Any]]:
    for strategy in QUEUES:
        shards = [shard for shard in range(Progress(store).shards()) if (strategy, shard) != leave_out]
        for summary in Sweeper(store, settings, clock).sweep([strategy], shards):
            summary.engine = LOCAL
            yield summary.document()


def sweep_by_spark(settings: Settings, about_to: Say) -> Iterator[dict[str, Any]]:
    """Run one job after the other, as Airflow's tasks submit them; `about_to` gets each next job."""
    with tempfile.TemporaryDirectory() as folder:
        for strategy in QUEUES:
            for shard in range(settings.shards):
                about_to(f"Spark sweeps {strategy} shard {shard}")
                summary = Path(folder) / f"{strategy}-{shard}.json"
                _submit(settings, SweepOrder(strategy, shard), summary)
                document: dict[str, Any] = json.loads(summary.read_text())
                yield document


def _submit(settings: Settings, order: SweepOrder, summary: Path) -> None:
    ended = subprocess.run(  # noqa: S603
        [
            spark_submit(),
            "--master",
            "local[*]",
            TARGETED_SWEEP,
            "--order",
            order.document(),
            "--summary",
            str(summary),
        ],
        env=inherited_environment(Needs.SPARK) | spark_environment() | as_environment(settings),
        capture_output=True,
        text=True,
        check=False,
    )
    if ended.returncode:
        problem = f"the job ended with code {ended.returncode}: {_message_of(ended)}"
        raise SweepflowError(f"spark: {order.strategy} shard {order.shard}: {problem}")


def _message_of(ended: subprocess.CompletedProcess[str]) -> str:
    """Return the job's own error message, which `spark-submit` prints on its stdout; else the last line printed."""
    lines = [*ended.stderr.splitlines(), *ended.stdout.splitlines()]
    ours = [line.removeprefix("error: ") for line in lines if line.startswith("error: ")]
    return (ours or [line for line in lines if line.strip()] or ["it printed nothing"])[-1]
