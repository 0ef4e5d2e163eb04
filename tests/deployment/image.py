"""Checks of the image that the containers share."""

from __future__ import annotations

import re
import shlex
from fnmatch import fnmatch

from tests.deployment.compose import ROOT, Deployment

_EXACT = re.compile(r"\d+(\.\d+)+(-[a-z0-9-]+)?")
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")


def is_pinned(image: str) -> bool:
    """Check the tag: it needs a full version, because `latest` and `17` move; an additional digest is better."""
    tagged, at, digest = image.partition("@")
    name, _, tag = tagged.partition(":")
    return bool(name) and bool(_EXACT.fullmatch(tag)) and (not at or bool(_DIGEST.fullmatch(digest)))


def version_of(image: str) -> str:
    return image.partition("@")[0].partition(":")[2]


def instructions(dockerfile: str) -> list[list[str]]:
    joined = re.sub(r"\\\n", " ", re.sub(r"(?m)^\s*#.*\n", "", dockerfile))
    return [shlex.split(line) for line in joined.splitlines() if line.strip()]


def bases_of(dockerfile: str) -> dict[str, str]:
    """Return the base image of each stage, by the build argument that can replace it."""
    lines = instructions(dockerfile)
    defaults = dict(line[1].split("=", 1) for line in lines if line[0] == "ARG")
    named = [line[1].removeprefix("${").removesuffix("}") for line in lines if line[0] == "FROM"]
    return {name: defaults.get(name, name) for name in named}


def folders_created(dockerfile: str) -> set[str]:
    return {word for line in instructions(dockerfile) if "--directory" in line for word in line if word.startswith("/")}


def scripts(dockerfile: str) -> dict[str, str]:
    """Return the shell scripts of the project by their path in the image."""
    copied = [line for line in instructions(dockerfile) if line[0] == "COPY"]
    return {
        f"/opt/sweepflow/{target}{source.rsplit('/', 1)[-1]}": source
        for _, *sources, target in copied
        for source in sources
        if source.endswith(".sh")
    }


def the_base_has_an_exact_version(deployment: Deployment) -> list[str]:
    bases = bases_of(deployment.dockerfile).values()
    return [f"FROM {base} is not pinned" for base in bases if not is_pinned(base)] or ([] if bases else ["no FROM"])


def the_python_is_the_one_configured_for_workers(deployment: Deployment) -> list[str]:
    minor = re.match(r"python:(3\.\d+)", next(iter(bases_of(deployment.dockerfile).values()), ""))
    reported = re.search(r"PYSPARK_PYTHON=/usr/local/bin/python(\S+)", deployment.dockerfile)
    same = minor and reported and minor[1] == reported[1] == "3.11"
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
    """Check that packages are installed by hash, or ours without dependencies, and that no build tool is downloaded."""
    runs = [line for line in instructions(deployment.dockerfile) if line[:3] == ["RUN", "pip", "install"]]
    locked = [line for line in runs if {"--require-hashes", "--requirement"} <= {*line}]
    ours = [line for line in runs if "--no-deps" in line and line[-1] == "."]
    builds = [line for line in runs if not {"--no-build-isolation", "--only-binary"} & {*line}]
    loose = [line for line in runs if line not in locked + ours or line in builds]
    found = [f"{' '.join(line)} is not pinned" for line in loose]
    return found if runs else ["nothing is installed"]


def nothing_runs_as_root(deployment: Deployment) -> list[str]:
    users = [line[1] for line in instructions(deployment.dockerfile) if line[0] == "USER"]
    return [] if users and users[-1] not in ("root", "0") else ["the image runs as root"]
