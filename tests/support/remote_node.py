"""A command like ssh: what it runs sees the files of another machine, under paths that do not exist here."""

from __future__ import annotations

from pathlib import Path

REMOTE_ROOT = "/remote"
_SCRIPT = """\
#!/usr/bin/env python3
import subprocess, sys
here, log = {here!r}, {log!r}
command = [word.replace({root!r}, here) for word in sys.argv[1:]]
through_a_shell = command[:2] == ["sh", "-c"] and command[3:4] == ["sh"]
with open(log, "a") as out:
    out.write(command[4 if through_a_shell else 0].rpartition("/")[2] + "\\n")
try:
    done = subprocess.run(command, capture_output=True)
except FileNotFoundError:
    sys.exit("wrapper: " + sys.argv[1] + ": command not found")
sys.stdout.buffer.write(done.stdout.replace(here.encode(), {root!r}.encode()))
sys.stderr.buffer.write(done.stderr.replace(here.encode(), {root!r}.encode()))
sys.exit(done.returncode)
"""


class RemoteNode:
    def __init__(self, tmp: Path, here: Path) -> None:
        self.program = tmp / "elsewhere"
        self._log = tmp / "elsewhere.log"
        self.program.write_text(_SCRIPT.format(here=str(here), log=str(self._log), root=REMOTE_ROOT))
        self.program.chmod(0o755)

    @property
    def ran(self) -> list[str]:
        """The programs that were run there."""
        return self._log.read_text().splitlines() if self._log.exists() else []
