"""The environment of a Spark job: Java, the Python of its workers, and the options that make Java start fast."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

from sweep_tasks.errors import ProgramMissing
from sweep_tasks.processes import inherited_environment

CONF = Path(__file__).parent / "conf"
TARGETED_SWEEP = Path(__file__).parent / "targeted_sweep.py"
SNAPSHOT_EXPORT = Path(__file__).parent / "snapshot_export.py"
LEGACY_SWEEP = Path(__file__).parent / "legacy_sweep.py"
SSTABLE_STATISTICS = Path(__file__).parent / "sstable_statistics.py"
LEAST_JAVA = 17

ARCHIVE = Path(sys.prefix) / "share" / "sweepflow" / "spark.jsa"
"""The archive of Java classes that `spark_jobs.archive` writes; Spark starts without it too."""

SHORT_LIVED = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Xshare:auto"
"""A job of a few seconds ends before the optimising compiler has paid off."""
NO_ARCHIVE_MESSAGES = "-Xlog:cds=off -Xlog:cds+dynamic=off"
_NO_FOLDER = CONF / "none"
"""Java uses no archive if a folder on its class path contains a file, and Spark puts this folder there."""


def spark_environment(archive: Path | None = ARCHIVE) -> dict[str, str]:
    """Return the variables for `spark-submit`. Without the first, workers run on the Python of the system."""
    options = [SHORT_LIVED, f"-Dlog4j2.configurationFile={(CONF / 'log4j2.properties').as_uri()}", *_defaults()]
    if archive and archive.exists():
        options += [f"-XX:SharedArchiveFile={archive}", NO_ARCHIVE_MESSAGES]
    return {
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
        "SPARK_CONF_DIR": str(_NO_FOLDER),
        "SPARK_SUBMIT_OPTS": " ".join(options),
    }


def _defaults() -> list[str]:
    """Return the settings of the file as Java options; those of a job or a connection take precedence."""
    lines = (CONF / "spark-defaults.conf").read_text(encoding="utf-8").splitlines()
    settings = [line.split() for line in lines if line.strip() and not line.startswith("#")]
    return [f"-D{name}={value}" for name, value in settings]


def spark_submit() -> Path:
    """Return the program of the installed PySpark, whatever else is on the path."""
    return Path(sys.executable).parent / "spark-submit"


def java_problem(program: str = "java", needed_by: str = "Spark") -> ProgramMissing | None:
    """Return why Spark, or another Java program, can't start, and what to do; None if it can."""
    way_out = f"install Java {LEAST_JAVA} or later (Debian: apt install openjdk-{LEAST_JAVA}-jre-headless)"
    java = shutil.which(program)
    if java is None:
        message = f"java: {needed_by} needs it and it was not found; {way_out}, or put it on the PATH"
        return _java(message, "missing", program)
    version_text = subprocess.run(  # noqa: S603
        [java, "-version"], env=inherited_environment(), capture_output=True, text=True, check=False
    ).stderr
    found = re.search(r'version "(?:1\.)?(\d+)', version_text)
    if found is None:
        return _java(f"java: {java} has an unknown version; {way_out}", "unknown_version", java)
    version = int(found[1])
    if version >= LEAST_JAVA:
        return None
    return _java(f"java: {java} is Java {version}; {way_out}", "too_old", java, version)


def _java(message: str, reason: str, program: str, version: int | None = None) -> ProgramMissing:
    return ProgramMissing(message, field="java", reason=reason, program=program, version=version)
