"""The daemon that forks Spark's Python workers, with the modules of our jobs already imported.

Spark forks a worker from its daemon for each task that runs at once. The stock daemon imports next to nothing, so every
worker imports Arrow, the stores and the rules again, which takes longer than most of our tasks. Setting
`spark.python.daemon.module` names this module instead; modules that open connections or start threads when they are
imported must not be added here.
"""

from __future__ import annotations

import pyarrow  # noqa: F401
import pyspark.worker  # noqa: F401
from pyspark.daemon import manager

import spark_jobs.export_frames
import spark_jobs.legacy_ranges
import spark_jobs.workers  # noqa: F401

if __name__ == "__main__":
    manager()
