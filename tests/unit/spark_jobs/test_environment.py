"""The environment that a Spark job needs, and how it reports what is missing."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from spark_jobs.environment import TARGETED_SWEEP, java_problem, spark_environment, spark_submit


def program_that_prints(version: str, folder: Path) -> str:
    """It answers as `java -version` does: on stderr."""
    program = folder / "java"
    program.write_text(f"#!/bin/sh\necho '{version}' >&2\n")
    program.chmod(0o755)
    return str(program)


def test_the_java_of_this_machine_is_sufficient() -> None:
    assert java_problem() is None


def test_a_missing_java_is_a_problem() -> None:
    problem = java_problem("no-such-java")
    assert problem is not None
    assert (problem.reason, problem.details["program"], problem.details["version"]) == ("missing", "no-such-java", None)


@pytest.mark.parametrize(
    ("version", "reason", "found"),
    [
        ('openjdk version "11.0.22" 2024-01-16', "too_old", 11),
        ('java version "1.8.0_402"', "too_old", 8),
        ("who knows", "unknown_version", None),
    ],
)
def test_a_java_that_is_too_old_is_named(version: str, reason: str, found: int | None, tmp_path: Path) -> None:
    program = program_that_prints(version, tmp_path)
    problem = java_problem(program)
    assert problem is not None
    assert (problem.reason, problem.details["program"], problem.details["version"]) == (reason, program, found)


@pytest.mark.parametrize("version", ['openjdk version "17.0.10" 2024-01-16', 'openjdk version "21" 2023-09-19'])
def test_a_java_that_is_new_enough_is_accepted(version: str, tmp_path: Path) -> None:
    assert java_problem(program_that_prints(version, tmp_path)) is None


def test_workers_run_on_the_python_of_the_driver() -> None:
    environment = spark_environment()
    assert {environment["PYSPARK_PYTHON"], environment["PYSPARK_DRIVER_PYTHON"]} == {sys.executable}


def test_everything_that_is_named_exists() -> None:
    options = options_of(spark_environment())
    assert Path(urlsplit(options["-Dlog4j2.configurationFile"]).path).is_file()
    assert options["-Dspark.ui.enabled"] == "false"
    assert TARGETED_SWEEP.is_file()
    assert os.access(spark_submit(), os.X_OK)


def test_no_file_of_a_folder_on_the_class_path_keeps_java_from_its_archive() -> None:
    assert not Path(spark_environment()["SPARK_CONF_DIR"]).exists()


def test_an_archive_of_classes_is_used_where_there_is_one(tmp_path: Path) -> None:
    archive = tmp_path / "spark.jsa"
    assert "-XX:SharedArchiveFile" not in options_of(spark_environment(archive))
    archive.touch()
    assert options_of(spark_environment(archive))["-XX:SharedArchiveFile"] == str(archive)


def options_of(environment: dict[str, str]) -> dict[str, str]:
    """Options of Java, with the text after the first equals sign."""
    parts = (option.partition("=") for option in environment["SPARK_SUBMIT_OPTS"].split())
    return {name: value for name, _, value in parts}
