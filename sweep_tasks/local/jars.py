"""Cassandra's jars, downloaded once for all checkouts on this machine.

Maven, or the Ivy of PySpark if there is no Maven, resolves one artifact and its dependencies, from the repositories of
its own configuration. The jars are written to a draft folder, which is renamed when it is complete, under a lock: an
existing folder is complete, and of two processes that need it at the same time only one downloads.
"""

from __future__ import annotations

import fcntl
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from pathlib import Path

from sweep_tasks.errors import ProgramMissing
from sweep_tasks.files import make_private_folder, put_in_place, sync_tree
from sweep_tasks.processes import Needs, inherited_environment

GROUP, ARTIFACT, VERSION = "org.apache.cassandra", "cassandra-all", "5.0.9"
NAME = f"cassandra-{VERSION}"
_WORKING = "working"
_PATIENCE_S = 1_200
_POM = f"""<project>
  <modelVersion>4.0.0</modelVersion>
  <groupId>sweepflow</groupId>
  <artifactId>local-cassandra</artifactId>
  <version>1</version>
  <dependencies>
    <dependency><groupId>{GROUP}</groupId><artifactId>{ARTIFACT}</artifactId><version>{VERSION}</version></dependency>
  </dependencies>
</project>
"""

Say = Callable[[str], None]
Fetch = Callable[[Path, Say], None]


def cassandra_jars(cache: Path, say: Say, fetch: Fetch | None = None) -> Path:
    """Return the folder of the jars; download them if it does not exist yet."""
    cache = cache.expanduser().absolute()
    folder = cache / NAME
    if folder.is_dir():
        return folder
    try:
        make_private_folder(cache)
        with (cache / f"{NAME}.lock").open("ab") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not folder.is_dir():
                _fetch_into(folder, say, fetch or fetch_by_name)
    except OSError as error:
        raise ProgramMissing(
            f"cache_folder: Cassandra's jars can't be kept in {cache}: {error.strerror}; "
            "name a folder that you can write with SWEEPFLOW_CACHE_FOLDER",
            field="cache_folder",
            reason="unusable",
        ) from error
    return folder


def _fetch_into(folder: Path, say: Say, fetch: Fetch) -> None:
    """Download into a draft. One process at a time does this, so an existing draft is of a process that was killed."""
    for left in folder.parent.glob(f"{NAME}.draft*"):
        shutil.rmtree(left)
    draft = Path(tempfile.mkdtemp(prefix=f"{NAME}.draft", dir=folder.parent))
    draft.chmod(0o755)
    try:
        fetch(draft, say)
        shutil.rmtree(draft / _WORKING, ignore_errors=True)
        if not (draft / f"{ARTIFACT}-{VERSION}.jar").is_file():
            raise ProgramMissing(_sentence("the download does not contain Cassandra itself"), reason="incomplete")
        sync_tree(draft)
        put_in_place(draft, folder)
    finally:
        shutil.rmtree(draft, ignore_errors=True)


def fetch_by_name(draft: Path, say: Say) -> None:
    complaints: dict[str, str] = {}
    for name, command in _ways(draft):
        say(
            f"downloading Cassandra {VERSION} ({GROUP}:{ARTIFACT} and its dependencies, about 65 MB) with {name}: "
            f"once, to run it on this machine; kept in {draft.parent}"
        )
        if (complaint := _run_downloader(command)) is None:
            return
        complaints[name] = complaint
    raise ProgramMissing(
        _sentence("; ".join(f"{name}: {complaint}" for name, complaint in complaints.items())),
        reason="download_failed" if complaints else "no_downloader",
        complaints=complaints,
    )


def _ways(draft: Path) -> list[tuple[str, Sequence[str]]]:
    ways: list[tuple[str, Sequence[str]]] = []
    if maven := shutil.which("mvn"):
        ways.append(("Maven", _maven(maven, draft)))
    if (ivy := _ivy_of_pyspark()) and (java := shutil.which("java")):
        ways.append(("Ivy", _ivy(java, ivy, draft)))
    return ways


def _maven(program: str, draft: Path) -> list[str]:
    """Write the project file to its own folder, because Maven writes files beside it."""
    pom = draft / _WORKING / "pom.xml"
    pom.parent.mkdir()
    pom.write_text(_POM)
    return [
        *(program, "--batch-mode", "--quiet", "--file", str(pom)),
        *("dependency:copy-dependencies", "-DincludeScope=runtime", f"-DoutputDirectory={draft}"),
    ]


def _ivy(java: str, ivy: Path, draft: Path) -> list[str]:
    return [
        *(java, "-jar", str(ivy), "-warn", "-confs", "default", "-types", "jar", "bundle"),
        *("-dependency", GROUP, ARTIFACT, VERSION),
        *("-retrieve", f"{draft}/[artifact]-[revision](-[classifier]).[ext]"),
    ]


def _ivy_of_pyspark() -> Path | None:
    """Find it without importing PySpark, which takes a second."""
    spec = find_spec("pyspark")
    folder = Path(spec.origin).parent if spec and spec.origin else None
    return next(iter(sorted(folder.glob("jars/ivy-*.jar"))), None) if folder else None


def _run_downloader(command: Sequence[str]) -> str | None:
    """Run a downloader. Return what it printed last if it failed, None if it succeeded."""
    try:
        done = subprocess.run(  # noqa: S603
            command,
            env=inherited_environment(Needs.NETWORK),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            timeout=_PATIENCE_S,
        )
    except subprocess.TimeoutExpired:
        return f"it did not end within {_PATIENCE_S} s"
    if done.returncode == 0:
        return None
    output = [line for line in (done.stdout + done.stderr).splitlines() if line.strip()]
    return next((line for line in output if "ERROR" in line), output[-1] if output else "it printed nothing")


def _sentence(reason: str) -> str:
    return (
        f"cassandra: its jars could not be downloaded ({reason or 'neither Maven nor the Ivy of PySpark was found'}); "
        f"check that 'mvn' can download {GROUP}:{ARTIFACT}:{VERSION}, or that this machine can reach a Maven repository"
    )
