"""What stands around a Spark job: Java, the Python of its workers, and a Java machine that starts fast."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

from sweep_tasks.errors import JavaMissing

CONF = Path(__file__).parent / "conf"
TARGETED_SWEEP = Path(__file__).parent / "targeted_sweep.py"
SNAPSHOT_EXPORT = Path(__file__).parent / "snapshot_export.py"
LEGACY_SWEEP = Path(__file__).parent / "legacy_sweep.py"
SSTABLE_STATISTICS = Path(__file__).parent / "sstable_statistics.py"
LEAST_JAVA = 17

_SHORT_LIVED = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Xshare:auto"
"""A job of seconds ends before the slower compiler has paid for itself."""


def spark_environment() -> dict[str, str]:
    """Variables for `spark-submit`. Without the first, workers run on whatever Python the system has."""
    return {
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
        "SPARK_CONF_DIR": str(CONF),
        "SPARK_SUBMIT_OPTS": _SHORT_LIVED,
    }


def spark_submit() -> Path:
    """The one that belongs to the installed PySpark, whatever else is on the path."""
    return Path(sys.executable).parent / "spark-submit"


def java_problem(program: str = "java", needed_by: str = "Spark") -> JavaMissing | None:
    """What keeps Spark, or what else runs on Java, from starting, with the way out; None if nothing does."""
    way_out = f"install Java {LEAST_JAVA} or later (Debian: apt install openjdk-{LEAST_JAVA}-jre-headless)"
    java = shutil.which(program)
    if java is None:
        message = f"java: {needed_by} needs it and it was not found; {way_out}, or put it on the PATH"
        return JavaMissing(message, reason="missing", program=program)
    said = subprocess.run([java, "-version"], capture_output=True, text=True, check=False).stderr  # noqa: S603
    found = re.search(r'version "(?:1\.)?(\d+)', said)
    if found is None:
        return JavaMissing(f"java: {java} is of an unknown version; {way_out}", reason="unknown_version", program=java)
    version = int(found[1])
    if version >= LEAST_JAVA:
        return None
    return JavaMissing(f"java: {java} is Java {version}; {way_out}", reason="too_old", program=java, version=version)
