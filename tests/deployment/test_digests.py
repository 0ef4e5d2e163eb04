"""`make digests` prints a line for `.env` for every image that the compose file pulls.

There is no container engine here. A stub program records its arguments and prints digests in the same format.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from dotenv import dotenv_values

from tests.deployment.checks import fetched_images
from tests.deployment.compose import ROOT, Deployment, generated_variables, load
from tests.deployment.image import is_pinned

DIGEST = f"sha256:{'5c' * 32}"
DOCKER = f"""#!/bin/sh
echo "$*" >> "$ASKED"
case "$*" in *"{{UNKNOWN}}"*) exit 1;; esac
echo {DIGEST}
"""


def digests(folder: Path, unknown: str = "none of them") -> tuple[subprocess.CompletedProcess[str], list[str]]:
    engine, asked = folder / "docker", folder / "asked"
    engine.write_text(DOCKER.replace("{UNKNOWN}", unknown))
    engine.chmod(0o755)
    environment = os.environ | {"PATH": f"{folder}:{os.environ['PATH']}", "ASKED": str(asked)}
    command = ["make", "--no-print-directory", "digests"]
    ended = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=60, check=False)
    return ended, asked.read_text().splitlines()


def images() -> dict[str, str]:
    return fetched_images(Deployment(load(), "", generated_variables(), airflow=None))  # type: ignore[arg-type]


def test_every_image_gets_a_line_that_compose_accepts(tmp_path: Path) -> None:
    ended, asked = digests(tmp_path)
    assert ended.returncode == 0, ended.stderr
    (tmp_path / ".env").write_text(ended.stdout)
    assert dict(dotenv_values(tmp_path / ".env")) == {name: f"{image}@{DIGEST}" for name, image in images().items()}
    assert all(is_pinned(str(image)) for image in dotenv_values(tmp_path / ".env").values())
    assert sorted(line.split()[-1] for line in asked) == sorted(images().values())
    assert {" ".join(line.split()[:3]) for line in asked} == {"buildx imagetools inspect"}


def test_an_image_unknown_to_the_registry_is_an_error(tmp_path: Path) -> None:
    ended, _ = digests(tmp_path, unknown="postgres")
    assert ended.returncode != 0
    assert "POSTGRES_IMAGE" not in ended.stdout
