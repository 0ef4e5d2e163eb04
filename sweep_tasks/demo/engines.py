"""Ways to sweep the demo's store from a terminal: in this process, or by a Spark job for each strategy and shard."""

from __future__ import annotations

import json
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from spark_jobs.environment import TARGETED_SWEEP, spark_environment, spark_submit
from sweep_tasks.clock import Clock
from sweep_tasks.config import Settings, as_environment, inherited_environment
from sweep_tasks.errors import JobFailed
from sweep_tasks.model import SweepStrategy
from sweep_tasks.queue.progress import QUEUES, Progress
from sweep_tasks.store.contract import Store
from sweep_tasks.sweep.run import Sweeper

Telling = Callable[[str], None]


def sweep_here(
    store: Store, settings: Settings, clock: Clock, leave_out: tuple[SweepStrategy, int] | None = None
) -> Iterator[dict[str, Any]]:
    for strategy in QUEUES:
        shards = [shard for shard in range(Progress(store).shards()) if (strategy, shard) != leave_out]
        for summary in Sweeper(store, settings, clock).sweep([strategy], shards):
            yield summary.document() | {"engine": "local"}


def sweep_by_spark(settings: Settings, about_to: Telling) -> Iterator[dict[str, Any]]:
    """One job after the other, as Airflow's tasks submit them; `about_to` hears which comes next."""
    with tempfile.TemporaryDirectory() as folder:
        for strategy in QUEUES:
            for shard in range(settings.shards):
                about_to(f"Spark sweeps {strategy} shard {shard}")
                summary = Path(folder) / f"{strategy}-{shard}.json"
                _submit(settings, "--strategy", strategy, "--shard", str(shard), "--summary", str(summary))
                document: dict[str, Any] = json.loads(summary.read_text())
                yield document


def _submit(settings: Settings, *arguments: str) -> None:
    ended = subprocess.run(  # noqa: S603
        [spark_submit(), "--master", "local[*]", TARGETED_SWEEP, *arguments],
        env=inherited_environment() | spark_environment() | as_environment(settings),
        capture_output=True,
        text=True,
        check=False,
    )
    if ended.returncode:
        raise JobFailed(f"spark: {' '.join(arguments[:4])} ended with code {ended.returncode}: {_last_words(ended)}")


def _last_words(ended: subprocess.CompletedProcess[str]) -> str:
    """The job's own sentence, which `spark-submit` brings out on its stdout; else the last that anybody said."""
    lines = [*ended.stderr.splitlines(), *ended.stdout.splitlines()]
    ours = [line.removeprefix("error: ") for line in lines if line.startswith("error: ")]
    return (ours or [line for line in lines if line.strip()] or ["it said nothing"])[-1]
