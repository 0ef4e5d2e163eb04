"""One Spark session for all tests that work inside one."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from spark_jobs.archive import make_archive
from spark_jobs.environment import ARCHIVE
from spark_jobs.job import local_session


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    if not ARCHIVE.exists():
        make_archive()
    session = local_session("tests")
    yield session
    session.stop()
