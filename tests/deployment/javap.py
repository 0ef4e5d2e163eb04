"""Facts about a server, read from its classes with the JDK's `javap`, without starting it."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

_FIELD = re.compile(r"^ +(?P<type>[^()\n]+) (?P<name>[\w$]+);$", re.MULTILINE)


def javap() -> Path:
    """Return the javap of the Java in use; a JRE has none."""
    java = shutil.which("java")
    assert java, "java is needed: install a JDK (Debian: apt install openjdk-17-jdk-headless)"
    found = Path(java).resolve().with_name("javap")
    assert found.is_file(), f"{found} is needed: install a JDK (Debian: apt install openjdk-17-jdk-headless)"
    return found


def fields_of(jar: Path, name: str) -> set[str]:
    """Return the names of the instance fields that the class declares."""
    command = [str(javap()), "-J-XX:TieredStopAtLevel=1", "-private", "-classpath", str(jar), name]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    fields = _FIELD.finditer(ended.stdout)
    return {field["name"] for field in fields if "static" not in field["type"].split()}
