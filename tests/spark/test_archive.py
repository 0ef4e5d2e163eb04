"""Spark's Java starts from an archive of its classes."""

from __future__ import annotations

from pathlib import Path

from pyspark.sql import SparkSession

from spark_jobs.environment import ARCHIVE


def test_the_archive_fits_the_class_path_that_spark_gives_to_java(spark: SparkSession) -> None:
    java = spark.sparkContext._jvm.java.lang.ProcessHandle.current().pid()  # type: ignore[union-attr]
    assert str(ARCHIVE) in Path(f"/proc/{java}/maps").read_text(), "Java has refused it and started without"
