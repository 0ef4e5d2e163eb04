"""What the image installs: all of the project's code, and drivers for the database that the compose file names."""

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

PACKAGES = ("sweep_tasks", "spark_jobs")


def copied_before(second: bool) -> list[str]:
    """What has been copied when pip runs for the first or for the second time."""
    copied: list[str] = []
    installs = 0
    for line in instructions(DOCKERFILE.read_text()):
        if line[:3] == ["RUN", "pip", "install"]:
            if installs == int(second):
                break
            installs += 1
        if line[0] == "COPY":
            copied += line[1:-1]
    return copied


def built_from(names: list[str], folder: Path) -> set[str]:
    """The files of the package that is built from these files of the project."""
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
    files = [file for package in PACKAGES for file in (ROOT / package).rglob("*") if file.is_file()]
    ours = {str(file.relative_to(ROOT)) for file in files if "__pycache__" not in file.parts}
    assert built_from(copied_before(second=True), tmp_path) == ours


def test_what_is_executable_stays_so(tmp_path: Path) -> None:
    built_from(copied_before(second=True), tmp_path)
    for package in PACKAGES:
        for file in (ROOT / package).rglob("*"):
            if file.is_file() and file.suffix != ".py" and "__pycache__" not in file.parts:
                built = tmp_path / "result" / file.relative_to(ROOT)
                assert os.access(built, os.X_OK) == os.access(file, os.X_OK), built


def test_the_packages_it_stands_on_can_be_installed_before_its_own_code_is_there(tmp_path: Path) -> None:
    assert built_from(copied_before(second=False), tmp_path) == set()


@pytest.mark.parametrize("asynchronous", [False, True], ids=["psycopg2", "asyncpg"])
def test_the_driver_for_the_database_is_installed(asynchronous: bool) -> None:
    """Airflow opens the same database a second time with asyncpg."""
    deployment = Deployment(load(), DOCKERFILE.read_text(), generated_variables(), installed_airflow())
    address = deployment.services["airflow-scheduler"].environment["AIRFLOW__DATABASE__SQL_ALCHEMY_CONN"]
    url = make_url(address.replace("+psycopg2", "+asyncpg") if asynchronous else address)
    assert url.get_dialect().import_dbapi() is not None
    assert url.password == deployment.variables["POSTGRES_PASSWORD"]
