"""What a Spark job needs around it, and how it says that something is missing."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from spark_jobs.environment import TARGETED_SWEEP, java_problem, spark_environment, spark_submit


def program_that_says(version: str, folder: Path) -> str:
    """It answers as `java -version` does: on stderr."""
    program = folder / "java"
    program.write_text(f"#!/bin/sh\necho '{version}' >&2\n")
    program.chmod(0o755)
    return str(program)


def test_the_java_of_this_machine_will_do() -> None:
    assert java_problem() is None


def test_a_missing_java_is_a_problem() -> None:
    problem = java_problem("no-such-java")
    assert problem is not None
    assert (problem.reason, problem.program, problem.version) == ("missing", "no-such-java", None)


@pytest.mark.parametrize(
    ("version", "reason", "found"),
    [
        ('openjdk version "11.0.22" 2024-01-16', "too_old", 11),
        ('java version "1.8.0_402"', "too_old", 8),
        ("who knows", "unknown_version", None),
    ],
)
def test_a_java_that_is_too_old_is_named(version: str, reason: str, found: int | None, tmp_path: Path) -> None:
    program = program_that_says(version, tmp_path)
    problem = java_problem(program)
    assert problem is not None
    assert (problem.reason, problem.program, problem.version) == (reason, program, found)


@pytest.mark.parametrize("version", ['openjdk version "17.0.10" 2024-01-16', 'openjdk version "21" 2023-09-19'])
def test_a_java_that_is_new_enough_will_do(version: str, tmp_path: Path) -> None:
    assert java_problem(program_that_says(version, tmp_path)) is None


def test_workers_run_on_the_python_of_the_driver() -> None:
    environment = spark_environment()
    assert {environment["PYSPARK_PYTHON"], environment["PYSPARK_DRIVER_PYTHON"]} == {sys.executable}


def test_everything_that_is_named_exists() -> None:
    conf = Path(spark_environment()["SPARK_CONF_DIR"])
    assert {"log4j2.properties", "spark-defaults.conf"} <= {file.name for file in conf.iterdir()}
    assert TARGETED_SWEEP.is_file()
    assert os.access(spark_submit(), os.X_OK)
