"""The image installs all of the project's code, and drivers for the database of the compose file."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from sqlalchemy.engine import make_url

from tests.deployment.compose import DOCKERFILE, ROOT, Deployment, generated_variables, installed_airflow, load
from tests.deployment.image import instructions
from tests.support.wheel import packaged_files


def copied_before(installed: str) -> list[str]:
    """Return what has been copied when pip installs this; `.` for our own code."""
    copied: list[str] = []
    for line in instructions(DOCKERFILE.read_text()):
        if line[:3] == ["RUN", "pip", "install"] and line[-1] == installed:
            return copied
        if line[0] == "COPY":
            copied += line[1:-1]
    raise AssertionError(f"{installed} is not installed")


def built_from(names: list[str], folder: Path) -> set[str]:
    """Return the files of the package that is built from these project files."""
    project, result = folder / "project", folder / "result"
    for name in names:
        target = project / name
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, target, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, target)
    build = [sys.executable, "-c", "import setuptools; setuptools.setup()", "--quiet", "build"]
    subprocess.run([*build, "--build-lib", str(result)], cwd=project, check=True, capture_output=True, timeout=240)
    return {str(file.relative_to(result)) for file in result.rglob("*") if file.is_file()}


def test_the_installed_package_holds_every_file_of_the_project(tmp_path: Path) -> None:
    assert built_from(copied_before("."), tmp_path) == set(packaged_files())


def test_what_is_executable_stays_so(tmp_path: Path) -> None:
    built_from(copied_before("."), tmp_path)
    for name, file in packaged_files().items():
        if file.suffix != ".py":
            built = tmp_path / "result" / name
            assert os.access(built, os.X_OK) == os.access(file, os.X_OK), built


def test_dependencies_are_installed_from_the_locks_only() -> None:
    """A change of our own code must not download them again."""
    assert copied_before("requirements/deploy.txt") == ["requirements/build.txt", "requirements/deploy.txt"]


@pytest.mark.parametrize("asynchronous", [False, True], ids=["psycopg2", "asyncpg"])
def test_the_driver_for_the_database_is_installed(asynchronous: bool) -> None:
    """Airflow also opens the database with asyncpg."""
    deployment = Deployment(load(), DOCKERFILE.read_text(), generated_variables(), installed_airflow())
    address = deployment.services["airflow-scheduler"].environment["AIRFLOW__DATABASE__SQL_ALCHEMY_CONN"]
    url = make_url(address.replace("+psycopg2", "+asyncpg") if asynchronous else address)
    assert url.get_dialect().import_dbapi() is not None
    assert url.password == deployment.variables["POSTGRES_PASSWORD"]
