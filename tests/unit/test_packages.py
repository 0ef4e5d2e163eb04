"""What is installed is what was meant."""

from __future__ import annotations

import re
from importlib.metadata import distribution, distributions, version
from pathlib import Path

import pyspark
import pytest

ROOT = Path(__file__).parents[2]


def test_pyspark_is_the_version_it_says_it_is() -> None:
    """The Spark provider brings pyspark-client, which writes into the folder of pyspark: a mix of two versions passes
    every check of the package manager and then fails in the JVM."""
    assert version("pyspark") == version("pyspark-client") == pyspark.__version__


def test_no_file_of_pyspark_was_overwritten_by_another_version() -> None:
    files = {str(file): file.hash for file in distribution("pyspark").files or [] if file.hash}
    shared = [file for file in distribution("pyspark-client").files or [] if file.hash and str(file) in files]
    assert shared, "the two no longer share a folder: this test can go"
    assert [str(file) for file in shared if file.hash.value != files[str(file)].value] == []  # type: ignore[union-attr]


def test_every_installed_package_is_pinned_exactly() -> None:
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    pins = dict(line.split("==") for line in lines if line and not line.startswith("#"))
    pinned = {canonical(name): pin for name, pin in pins.items()}
    ours = {"sweepflow", "pip", "setuptools", "fastapi"}
    installed = {canonical(each.metadata["Name"]): each.version for each in distributions()}
    assert {name: v for name, v in installed.items() if name not in ours and pinned.get(name) != v} == {}


def test_the_pins_name_no_address() -> None:
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    assert [line for line in lines if not re.fullmatch(r"#.*|[A-Za-z0-9_.-]+==[a-z0-9.]+", line)] == []
    assert "://" not in "".join(lines)


def canonical(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


@pytest.mark.parametrize("package", ["airflow", "pyspark", "cassandra", "pendulum"])
def test_the_packages_it_stands_on_import(package: str) -> None:
    __import__(package)
