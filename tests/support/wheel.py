"""The wheel as it would be published, and environments that it is installed in, with no checkout on their path."""

from __future__ import annotations

import shutil
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGES = ("sweep_tasks", "spark_jobs")
FOR_AIRFLOW = ("dags", "plugins")
"""Folders of a checkout that are packages of the library in the wheel."""
_NOT_COPIED = shutil.ignore_patterns(".*", "__pycache__", "*.egg-info", "build", "*.db")
_BUILD = "import sys; from setuptools.build_meta import build_wheel; build_wheel(sys.argv[1])"


def packaged_files() -> dict[str, Path]:
    """Return the files of the checkout that belong into the wheel, by their path in it."""
    files = [file for package in PACKAGES for file in (ROOT / package).rglob("*") if file.is_file()]
    packaged = {str(file.relative_to(ROOT)): file for file in files if "__pycache__" not in file.parts}
    for folder in FOR_AIRFLOW:
        packaged |= {f"sweep_tasks/{folder}/{file.name}": file for file in (ROOT / folder).glob("*.py")}
    return packaged


def build_wheel(folder: Path) -> Path:
    """Build without a network, from a copy of the tree without generated files."""
    shutil.copytree(ROOT, folder / "tree", ignore=_NOT_COPIED)
    run(sys.executable, "-W", "error::DeprecationWarning", "-c", _BUILD, str(folder), cwd=folder / "tree")
    (built,) = folder.glob("*.whl")
    return built


def install_alone(wheel: Path, folder: Path) -> Path:
    """Install the wheel with what it requires and nothing else. Return the folder of its programs."""
    bin_folder = _create(folder)
    constraints = str(ROOT / "constraints.txt")
    run(str(bin_folder / "python"), "-m", "pip", *_QUIET, "--constraint", constraints, str(wheel), cwd=folder)
    return bin_folder


def install_beside(wheel: Path, folder: Path) -> Path:
    """Install the wheel beside all packages of this environment, but without our own code as it is installed there."""
    bin_folder = _create(folder)
    (site_packages,) = folder.glob("lib/python*/site-packages")
    for here, there in ((sysconfig.get_path("purelib"), site_packages), (sysconfig.get_path("scripts"), bin_folder)):
        for each in Path(here).iterdir():
            ours = each.name.startswith(("sweepflow", "__editable__"))
            if not ours and each.suffix != ".pth" and not (there / each.name).exists():
                (there / each.name).symlink_to(each)
    run(str(bin_folder / "python"), "-m", "pip", *_QUIET, "--no-deps", str(wheel), cwd=folder)
    return bin_folder


_QUIET = ("install", "--quiet", "--disable-pip-version-check")


def _create(folder: Path) -> Path:
    venv.create(folder, with_pip=True, symlinks=True)
    return folder / "bin"


def run(*command: str, cwd: Path) -> str:
    ended = subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=600, check=False)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return ended.stdout
