"""Create the archive of Java classes that makes Spark start faster.

Most of the time of a short job is the start of Java: some ten thousand classes are found in 250 files, parsed and
verified. An archive contains them in the form that Java uses in memory. It belongs to one Java and one PySpark; with
another Java, or new files on the class path, Java silently starts without it.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator

from pyarrow import RecordBatch

from spark_jobs.environment import ARCHIVE, NO_ARCHIVE_MESSAGES, java_problem, spark_environment, spark_submit
from spark_jobs.job import spark_session
from sweep_tasks.processes import Needs, inherited_environment


def make_archive() -> None:
    """Run a small Spark job and write the classes that it has loaded to the archive."""
    if problem := java_problem():
        raise problem
    ARCHIVE.parent.mkdir(parents=True, exist_ok=True)
    draft = ARCHIVE.with_name(f"{ARCHIVE.name}.{os.getpid()}")
    variables = spark_environment(archive=None)
    variables["SPARK_SUBMIT_OPTS"] += f" {NO_ARCHIVE_MESSAGES} -XX:ArchiveClassesAtExit={draft}"
    try:
        subprocess.run(  # noqa: S603
            [str(spark_submit()), "--master", "local[1]", __file__, "job"],
            env=inherited_environment(Needs.SPARK) | variables,
            check=True,
        )
        draft.replace(ARCHIVE)
    finally:
        draft.unlink(missing_ok=True)


def run_job() -> None:
    """Use what our jobs use of Spark: Python workers, a shuffle, a persisted frame, a grouping."""
    session = spark_session("archive")

    def unchanged(batches: Iterator[RecordBatch]) -> Iterator[RecordBatch]:
        yield from batches

    numbers = session.range(100)
    kept = numbers.mapInArrow(unchanged, numbers.schema).repartition(2, "id").persist()
    kept.groupBy(kept.id % 7).agg({"id": "max"}).orderBy("max(id)").collect()
    kept.unpersist()
    session.stop()


if __name__ == "__main__":
    run_job() if sys.argv[1:] else make_archive()
