"""Cassandra's jars, fetched once for all checkouts of this machine.

Maven or, where that is missing, the Ivy that PySpark brings resolves one name and all it depends on, each from wherever
its own configuration says. The jars land in a draft folder which is renamed when it is complete, under a lock: a folder
that is there is whole, and of two processes that need it at once only one downloads.
"""

from __future__ import annotations

import fcntl
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from pathlib import Path

from sweep_tasks.config import inherited_environment
from sweep_tasks.errors import JarsMissing

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
    """The folder of the jars; downloads them if it is not there yet."""
    cache = cache.expanduser().absolute()
    folder = cache / NAME
    if folder.is_dir():
        return folder
    try:
        cache.mkdir(parents=True, exist_ok=True)
        with (cache / f"{NAME}.lock").open("ab") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not folder.is_dir():
                _fetch_into(folder, say, fetch or fetch_by_name)
    except OSError as error:
        raise JarsMissing(
            f"cache_folder: Cassandra's jars can't be kept in {cache}: {error.strerror}; "
            "name a folder of yours with SWEEPFLOW_CACHE_FOLDER",
            field="cache_folder",
            reason="unusable",
        ) from error
    return folder


def _fetch_into(folder: Path, say: Say, fetch: Fetch) -> None:
    """Called by one process at a time, so whatever draft is there was left by one that was killed."""
    for left in folder.parent.glob(f"{NAME}.draft*"):
        shutil.rmtree(left)
    draft = Path(tempfile.mkdtemp(prefix=f"{NAME}.draft", dir=folder.parent))
    draft.chmod(0o755)
    try:
        fetch(draft, say)
        shutil.rmtree(draft / _WORKING, ignore_errors=True)
        if not (draft / f"{ARTIFACT}-{VERSION}.jar").is_file():
            raise JarsMissing(_sentence("what was downloaded does not hold Cassandra itself"), reason="incomplete")
        draft.rename(folder)
    finally:
        shutil.rmtree(draft, ignore_errors=True)


def fetch_by_name(draft: Path, say: Say) -> None:
    complaints: dict[str, str] = {}
    for name, command in _ways(draft):
        say(
            f"downloading Cassandra {VERSION} ({GROUP}:{ARTIFACT} and what it needs, about 65 MB) with {name}: "
            f"once, to run it on this machine; kept in {draft.parent}"
        )
        if (complaint := _complaint(command)) is None:
            return
        complaints[name] = complaint
    raise JarsMissing(
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
    """The project file lies in a folder of its own, because Maven also writes beside it."""
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
    """Found without importing it, which takes a second."""
    spec = find_spec("pyspark")
    folder = Path(spec.origin).parent if spec and spec.origin else None
    return next(iter(sorted(folder.glob("jars/ivy-*.jar"))), None) if folder else None


def _complaint(command: Sequence[str]) -> str | None:
    """What a downloader that failed said last."""
    try:
        done = subprocess.run(  # noqa: S603
            command,
            env=inherited_environment(),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            timeout=_PATIENCE_S,
        )
    except subprocess.TimeoutExpired:
        return f"not done after {_PATIENCE_S} s"
    if done.returncode == 0:
        return None
    said = [line for line in (done.stdout + done.stderr).splitlines() if line.strip()]
    return next((line for line in said if "ERROR" in line), said[-1] if said else "it said nothing")


def _sentence(reason: str) -> str:
    return (
        f"cassandra: its jars could not be fetched ({reason or 'neither Maven nor the Ivy of PySpark is here'}); "
        f"check that 'mvn' can download {GROUP}:{ARTIFACT}:{VERSION}, or that this machine may reach a repository"
    )
