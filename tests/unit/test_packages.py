"""The locks pin everything that is installed, down to the bytes, and the wheel holds everything that runs.

Neither is a check of the machine that runs the tests: the lock is held against what the locked distributions declare,
and the wheel is built from a copy of the tree.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
import tomllib
import zipfile
from collections import defaultdict
from collections.abc import Iterable, Iterator
from importlib.metadata import Distribution, PathDistribution, distribution
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.support.wheel import PACKAGES, build_wheel, packaged_files

ROOT = Path(__file__).parents[2]
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())
OURS = PROJECT["project"]["name"]
LOCKS = ("requirements.txt", "requirements/build.txt", "requirements/deploy.txt", "requirements/tools.txt")
"""With hashes; `make lock` writes them."""
RESOLVE = """
import sys
from importlib.metadata import EntryPoint
import json
found = [EntryPoint(*point).load() for point in json.loads(sys.argv[1])]
print(json.dumps([sys.modules[kind.__module__].__file__ for kind in found]))
"""


# --- the lock -------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def pins() -> dict[str, list[str]]:
    """By canonical name, as often as it is pinned."""
    found: dict[str, list[str]] = defaultdict(list)
    for line in (ROOT / "constraints.txt").read_text().splitlines():
        if not line.startswith("#"):
            name, _, version = line.partition("==")
            found[canonicalize_name(name)].append(version)
    return dict(found)


def test_the_lock_holds_exact_versions_and_names_no_address() -> None:
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    assert [line for line in lines if not re.fullmatch(r"#.*|[A-Za-z0-9_.-]+==[a-z0-9.]+", line)] == []
    assert "://" not in "".join(lines)


def test_every_requirement_has_one_pin_that_satisfies_it(pins: dict[str, list[str]]) -> None:
    """Direct ones, with all extras, and the transitive ones of the locked distributions."""
    unsatisfied = [
        (needed_by, str(requirement), versions)
        for needed_by, requirement in requirements(pins)
        if len(versions := pins.get(canonicalize_name(requirement.name), [])) != 1
        or not requirement.specifier.contains(versions[0], prereleases=True)
    ]
    assert unsatisfied == []


def test_no_pin_is_left_from_a_package_that_is_no_longer_required(pins: dict[str, list[str]]) -> None:
    assert set(pins) - {canonicalize_name(requirement.name) for _, requirement in requirements(pins)} == set()


def test_the_wheel_is_built_with_the_locked_setuptools(pins: dict[str, list[str]]) -> None:
    assert PROJECT["build-system"]["requires"] == [f"setuptools=={version}" for version in pins["setuptools"]]


def test_pyspark_and_its_client_are_one_version(pins: dict[str, list[str]]) -> None:
    """The Spark provider brings pyspark-client, which writes into the folder of pyspark: a mix of two versions passes
    every check of the package manager and then fails in the JVM."""
    assert len(pins["pyspark"]) == 1
    assert pins["pyspark"] == pins["pyspark-client"]
    asked = {f"{name}=={pins['pyspark'][0]}" for name in ("pyspark", "pyspark-client")}
    extras = PROJECT["project"]["optional-dependencies"]
    assert asked <= {*extras["airflow"], *extras["spark"]}, "the resolver is free to mix them"


def test_pyspark_and_its_client_agree_on_every_file_they_share(pins: dict[str, list[str]]) -> None:
    files = {str(file): file.hash for file in locked("pyspark", pins).files or [] if file.hash}
    shared = [file for file in locked("pyspark-client", pins).files or [] if file.hash and str(file) in files]
    assert shared, "the two no longer share a folder: this test can be removed"
    assert [str(file) for file in shared if file.hash.value != files[str(file)].value] == []  # type: ignore[union-attr]


def requirements(
    pins: dict[str, list[str]], extras: Iterable[str] = ("", *PROJECT["project"]["optional-dependencies"])
) -> Iterator[tuple[str, Requirement]]:
    """Every requirement below the project with these extras, with the distribution that declares it."""
    ahead = [(OURS, extra) for extra in extras]
    seen = set(ahead)
    while ahead:
        name, extra = ahead.pop()
        for requirement in project_requirements() if name == OURS else declared(locked(name, pins)):
            if requirement.marker and not requirement.marker.evaluate({"extra": extra}):
                continue
            needed = canonicalize_name(requirement.name)
            if needed != OURS:
                yield name, requirement
            for each in ((needed, ""), *((needed, wanted) for wanted in requirement.extras)):
                if each not in seen and (needed in pins or needed == OURS):
                    seen.add(each)
                    ahead.append(each)


def project_requirements() -> list[Requirement]:
    extras: dict[str, list[str]] = PROJECT["project"]["optional-dependencies"]
    marked = [f'{text}; extra == "{extra}"' for extra, texts in extras.items() for text in texts]
    return [Requirement(text) for text in (*PROJECT["project"]["dependencies"], *marked)]


def declared(found: Distribution) -> list[Requirement]:
    return [Requirement(text) for text in found.requires or []]


def locked(name: str, pins: dict[str, list[str]]) -> Distribution:
    """The distribution whose metadata is read is the one that is pinned."""
    found = distribution(name)
    assert [found.version] == pins[name], f"{name} is not installed as it is locked: run 'make setup'"
    return found


# --- the locks with hashes ------------------------------------------------------------------------------------------


class Locked(NamedTuple):
    version: str
    hashes: frozenset[str]


def lock(file: str) -> dict[str, Locked]:
    """By canonical name. Anything that is not a pin with hashes fails here: an address, an option, a path."""
    found: dict[str, Locked] = {}
    for entry in (ROOT / file).read_text().replace("\\\n", " ").splitlines():
        pin, *hashes = entry.split()
        name, equal, version = pin.partition("==")
        assert equal, entry
        assert all(re.fullmatch(r"--hash=sha256:[0-9a-f]{64}", each) for each in hashes), entry
        assert canonicalize_name(name) not in found, name
        found[canonicalize_name(name)] = Locked(version, frozenset(hashes))
    return found


@pytest.mark.parametrize("file", LOCKS)
def test_every_package_of_a_lock_has_hashes_and_none_an_address(file: str) -> None:
    assert [name for name, entry in lock(file).items() if not entry.hashes] == []
    assert "://" not in (ROOT / file).read_text()


def test_the_lock_with_hashes_holds_exactly_the_pins(pins: dict[str, list[str]]) -> None:
    assert {name: [entry.version] for name, entry in lock("requirements.txt").items()} == pins


@pytest.mark.parametrize("file", ["requirements/build.txt", "requirements/deploy.txt"])
def test_a_part_of_the_lock_is_as_the_whole(file: str) -> None:
    whole, part = lock("requirements.txt"), lock(file)
    assert part == {name: whole[name] for name in part}


def test_the_image_gets_what_it_requires_and_no_tool_of_developers(pins: dict[str, list[str]]) -> None:
    needed = {canonicalize_name(requirement.name) for _, requirement in requirements(pins, ("", "deploy"))}
    assert set(lock("requirements/deploy.txt")) == needed
    assert "pytest" not in needed


def test_the_builder_is_the_one_that_the_project_names(pins: dict[str, list[str]]) -> None:
    assert {name: [entry.version] for name, entry in lock("requirements/build.txt").items()} == {
        "setuptools": pins["setuptools"]
    }


def test_the_tools_are_the_versions_that_were_asked_for() -> None:
    lines = (ROOT / "requirements" / "tools.in").read_text().splitlines()
    asked = dict(line.split("==") for line in lines if not line.startswith("#"))
    locked_tools = lock("requirements/tools.txt")
    assert {name: locked_tools[name].version for name in asked} == asked
    assert set(asked) == {"uv", "pip-audit", "pre-commit"}


def test_setup_installs_by_hash_and_our_own_code_without_anything_else() -> None:
    installs = [words for words in planned("setup") if "install" in words]
    by_lock = {words[-1]: words for words in installs if "--requirement" in words}
    assert list(by_lock) == ["requirements/build.txt", "requirements.txt"], "what builds comes before what is built"
    assert all("--require-hashes" in words for words in by_lock.values())
    assert "--only-binary" in by_lock["requirements/build.txt"]
    assert "--no-build-isolation" in by_lock["requirements.txt"]
    (own,) = [words for words in installs if "--requirement" not in words]
    assert {"--no-deps", "--no-build-isolation", "--editable"} <= set(own)


def test_the_audit_reads_the_lock_and_installs_nothing_of_it() -> None:
    *_, audit = planned("audit")
    assert audit[0].endswith("/pip-audit")
    assert audit[audit.index("--requirement") + 1] == "requirements.txt"
    assert {"--require-hashes", "--disable-pip"} <= set(audit)
    assert "--strict" in audit, "a package that the service does not know is no clean one"


def test_the_locks_are_written_from_the_constraints_and_name_no_index() -> None:
    compiled = {words[words.index("--output-file") + 1]: words for words in planned("lock") if "compile" in words}
    assert set(compiled) == set(LOCKS)
    assert all("--generate-hashes" in words for words in compiled.values())
    assert not any("--emit-index-url" in words for words in compiled.values())
    for file in LOCKS[:-1]:
        assert "constraints.txt" in compiled[file]


def planned(target: str) -> list[list[str]]:
    """The words of each command that make would run, on a machine where nothing was done yet."""
    command = ["make", "--dry-run", "--always-make", "--no-print-directory", target]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=True)
    return [shlex.split(line) for line in ended.stdout.replace("\\\n", " ").splitlines() if line.strip()]


# --- the wheel ------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def wheel_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_wheel(tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="module")
def wheel(wheel_file: Path) -> Iterator[zipfile.ZipFile]:
    with zipfile.ZipFile(wheel_file) as opened:
        yield opened


@pytest.fixture(scope="module")
def built(wheel_file: Path) -> Distribution:
    return PathDistribution(zipfile.Path(wheel_file, f"{metadata_folder()}/"))


def metadata_folder() -> str:
    return f"{OURS}-{PROJECT['project']['version']}.dist-info"


def test_the_wheel_declares_what_the_project_requires(built: Distribution) -> None:
    assert (built.name, built.version) == (OURS, PROJECT["project"]["version"])
    assert built.metadata["Requires-Python"] == PROJECT["project"]["requires-python"]
    assert sorted(map(str, declared(built))) == sorted(map(str, project_requirements()))
    assert set(built.metadata.get_all("Provides-Extra") or []) == set(PROJECT["project"]["optional-dependencies"])


def test_the_wheel_has_a_licence_addresses_a_description_and_its_types(
    wheel: zipfile.ZipFile, built: Distribution
) -> None:
    assert built.metadata["License-Expression"] == "Apache-2.0"
    assert wheel.read(f"{metadata_folder()}/licenses/LICENSE") == (ROOT / "LICENSE").read_bytes()
    addresses = dict(each.split(", ") for each in built.metadata.get_all("Project-URL") or [])
    assert {"Homepage", "Documentation", "Changelog", "Issues"} <= addresses.keys()
    assert built.metadata["Description-Content-Type"] == "text/markdown"
    assert "Typing :: Typed" in (built.metadata.get_all("Classifier") or [])
    assert {f"{package}/py.typed" for package in PACKAGES} <= set(wheel.namelist())


def test_types_are_checked_strictly_in_every_folder_with_code() -> None:
    checked = PROJECT["tool"]["mypy"]
    folders = {file.parent.name for file in ROOT.glob("*/*.py") if not file.parent.name.startswith(".")}
    assert {"sweep_tasks", "dags", "plugins"} <= folders
    assert checked["strict"] is True
    assert folders - {"build"} <= set(checked["files"])
    weakened = [each for each in checked["overrides"] if each.keys() - {"module", "ignore_missing_imports"}]
    assert weakened == []


def test_the_wheel_holds_every_file_of_the_packages_and_nothing_else(wheel: zipfile.ZipFile) -> None:
    ours = packaged_files()
    inside = {name for name in wheel.namelist() if not name.startswith(f"{metadata_folder()}/")}
    assert inside == set(ours)
    assert [name for name, file in ours.items() if wheel.read(name) != file.read_bytes()] == []


def test_no_test_is_in_the_wheel(wheel: zipfile.ZipFile) -> None:
    assert {name.split("/")[0] for name in wheel.namelist()} == {*PACKAGES, metadata_folder()}
    assert [name for name in wheel.namelist() if "test" in Path(name).name and name.endswith(".py")] == []


def test_every_kind_of_package_data_is_in_the_wheel(wheel: zipfile.ZipFile) -> None:
    declared_data: dict[str, list[str]] = PROJECT["tool"]["setuptools"]["package-data"]
    names = [Path(name) for name in wheel.namelist()]
    patterns = [f"{package.replace('.', '/')}/{each}" for package, given in declared_data.items() for each in given]
    assert [pattern for pattern in patterns if not any(name.match(pattern) for name in names)] == []
    assert {"templates", "assets", "conf"} <= {name.parent.name for name in names}


def test_the_guarded_submit_is_executable_in_the_wheel(wheel: zipfile.ZipFile) -> None:
    (script,) = [each for each in wheel.infolist() if each.filename.endswith("/spark-submit-guarded")]
    assert script.external_attr >> 16 & 0o111 == 0o111


def test_every_entry_point_resolves_to_an_object_in_the_wheel(
    wheel: zipfile.ZipFile, built: Distribution, tmp_path: Path
) -> None:
    given = {"console_scripts": PROJECT["project"]["scripts"], **PROJECT["project"]["entry-points"]}
    expected = sorted((name, value, group) for group, each in given.items() for name, value in each.items())
    assert sorted((each.name, each.value, each.group) for each in built.entry_points) == expected
    wheel.extractall(tmp_path)
    ended = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", RESOLVE, json.dumps(expected)],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(tmp_path), "AIRFLOW_HOME": str(tmp_path / "airflow")},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    modules = [Path(file) for file in json.loads(ended.stdout.splitlines()[-1])]
    assert [str(file.relative_to(tmp_path)) for file in modules] == [
        f"{value.split(':')[0].replace('.', '/')}.py" for _, value, _ in expected
    ]
