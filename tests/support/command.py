"""The `sweepflow` command for tests: in this process, which takes a tenth of the time, or in a process of its own."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
from contextlib import chdir
from functools import cache
from io import BytesIO
from pathlib import Path
from typing import Any, NamedTuple, TextIO

import structlog
from typer.testing import CliRunner

from sweep_tasks.cli.main import load_all
from sweep_tasks.errors import SweepflowError
from sweep_tasks.logs import JOURNAL_LINE

COMMAND = str(Path(sys.executable).parent / "sweepflow")


class Answer(NamedTuple):
    code: int
    out: str
    err: str
    error: SweepflowError | None = None
    """The error of the command, if it ran in this process."""

    @property
    def messages(self) -> str:
        """What is for a person on stderr: all but the entries of the journal, which are logged there as well."""
        return without_journal(self.err)

    @property
    def document(self) -> dict[str, Any]:
        document: dict[str, Any] = json.loads(self.out)
        return document


def without_journal(stderr: str) -> str:
    return "".join(line for line in stderr.splitlines(keepends=True) if f"code={JOURNAL_LINE}" not in line)


def sweepflow(*arguments: str, cwd: Path | None = None, stdin: bytes = b"", **environment: str) -> Answer:
    """Run the command as a user or a script does. Its logs are written to its own stderr, and afterwards to where they
    were written before."""
    clean: dict[str, str | None] = {name: None for name in os.environ if name.startswith("SWEEPFLOW_")}
    logging = structlog.get_config()
    code, ended = 0, None
    try:
        with chdir(cwd or Path.cwd()), CliRunner().isolation(stdin, clean | environment) as (out, err, _):
            try:
                _tree().main(args=arguments, prog_name="sweepflow")
            except SystemExit as exit_:
                code, ended = _code(exit_), exit_
            answer = Answer(code, _written(sys.stdout, out), _written(sys.stderr, err), _typed_error(ended))
    finally:
        structlog.configure(**logging)
    return _checked(answer)


_tree = cache(load_all)
"""The commands with their options, built once: that takes ten times as long as most of them run."""


def _code(ended: SystemExit) -> int:
    if ended.code is None:
        return 0
    assert isinstance(ended.code, int), ended.code
    return ended.code


def _written(stream: TextIO, behind: BytesIO) -> str:
    stream.flush()
    return behind.getvalue().decode()


def _typed_error(ended: BaseException | None) -> SweepflowError | None:
    """The command converts its error into an exit code. The error is the cause of that."""
    while ended is not None and not isinstance(ended, SweepflowError):
        ended = ended.__cause__ or ended.__context__
    return ended


def sweepflow_process(*arguments: str, cwd: Path | None = None, stdin: bytes = b"", **environment: str) -> Answer:
    """Like `sweepflow`, but started from a shell."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith("SWEEPFLOW_")}
    ended = subprocess.run(
        [COMMAND, *arguments], capture_output=True, cwd=cwd, env=clean | environment, check=False, input=stdin
    )
    return _checked(Answer(ended.returncode, ended.stdout.decode(), ended.stderr.decode()))


def sweepflow_at_terminal(*arguments: str, typed: str, cwd: Path | None = None, **environment: str) -> Answer:
    """Like `sweepflow_process`, but at a terminal, with a person who answers the prompts."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith("SWEEPFLOW_")}
    controller, terminal = pty.openpty()
    try:
        os.write(controller, f"{typed}\n".encode())
        ended = subprocess.run(
            [COMMAND, *arguments], capture_output=True, cwd=cwd, env=clean | environment, check=False, stdin=terminal
        )
    finally:
        os.close(terminal)
        os.close(controller)
    return _checked(Answer(ended.returncode, ended.stdout.decode(), ended.stderr.decode()))


def _checked(answer: Answer) -> Answer:
    assert "Traceback" not in answer.out + answer.err, answer.err
    return answer
