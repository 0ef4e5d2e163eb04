"""What must be true of the image that the containers share."""

from __future__ import annotations

import re
import shlex
from fnmatch import fnmatch

from tests.deployment.compose import ROOT, Deployment

_EXACT = re.compile(r"\d+(\.\d+)+(-[a-z0-9-]+)?")


def is_pinned(image: str) -> bool:
    """A tag with a full version; `latest` and `17` move."""
    name, _, tag = image.partition(":")
    return bool(name) and bool(_EXACT.fullmatch(tag))


def instructions(dockerfile: str) -> list[list[str]]:
    joined = re.sub(r"\\\n", " ", re.sub(r"(?m)^\s*#.*\n", "", dockerfile))
    return [shlex.split(line) for line in joined.splitlines() if line.strip()]


def folders_made(dockerfile: str) -> set[str]:
    return {word for line in instructions(dockerfile) if "--directory" in line for word in line if word.startswith("/")}


def scripts(dockerfile: str) -> dict[str, str]:
    """By their path in the image: the shell scripts of the project."""
    copied = [line for line in instructions(dockerfile) if line[0] == "COPY"]
    return {
        f"/opt/sweepflow/{target}{source.rsplit('/', 1)[-1]}": source
        for _, *sources, target in copied
        for source in sources
        if source.endswith(".sh")
    }


def the_base_has_an_exact_version(deployment: Deployment) -> list[str]:
    bases = [line[1] for line in instructions(deployment.dockerfile) if line[0] == "FROM"]
    return [f"FROM {base} is not pinned" for base in bases if not is_pinned(base)] or ([] if bases else ["no FROM"])


def the_python_is_the_one_that_workers_are_told(deployment: Deployment) -> list[str]:
    minor = re.search(r"FROM python:(3\.\d+)", deployment.dockerfile)
    told = re.search(r"PYSPARK_PYTHON=/usr/local/bin/python(\S+)", deployment.dockerfile)
    same = minor and told and minor[1] == told[1] == "3.11"
    return [] if same else ["the base, PYSPARK_PYTHON and the project's Python differ"]


def every_copied_file_exists_and_is_sent(deployment: Deployment) -> list[str]:
    allowed = [line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")]
    found = []
    for line in instructions(deployment.dockerfile):
        if line[0] != "COPY":
            continue
        for source in line[1:-1]:
            if not (ROOT / source).exists():
                found.append(f"COPY {source} does not exist")
            if not any(fnmatch(source, pattern) for pattern in allowed):
                found.append(f"COPY {source} is not sent to the builder")
    return found


def every_package_is_pinned(deployment: Deployment) -> list[str]:
    """Installed with the constraints, or without any dependency."""
    runs = [line for line in instructions(deployment.dockerfile) if line[:3] == ["RUN", "pip", "install"]]
    loose = [line for line in runs if not ("--no-deps" in line or "constraints.txt" in line)]
    found = [f"{' '.join(line)} takes whatever is newest" for line in loose]
    return found if runs else ["nothing is installed"]


def nothing_runs_as_root(deployment: Deployment) -> list[str]:
    users = [line[1] for line in instructions(deployment.dockerfile) if line[0] == "USER"]
    return [] if users and users[-1] not in ("root", "0") else ["the image runs as root"]
