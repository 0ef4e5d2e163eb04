"""The code blocks in the documentation, for tests that run them.

Comments in a page, directly above a block, say how it is run; a reader does not see them:

    <!-- not run: needs Docker -->                   the reason why no test runs the block here
    <!-- exit code: 5 -->                            the exit code of the last command of the block; otherwise 0
    <!-- numbers vary: timestamps and durations -->  numbers in the output may differ from those shown

A block that prepares others and is not shown is a comment too: `<!-- not shown: console`, its lines, and `-->`.
"""

from __future__ import annotations

import re
import shlex
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).parents[2]
RUNNABLE = ("console", "bash", "sh", "shell", "python")
NOT_RUN, EXIT_CODE, NUMBERS_VARY, NOT_SHOWN = "not run", "exit code", "numbers vary", "not shown"

_COMMENT = re.compile(r"<!-- *(?P<key>[a-z ]+?): *(?P<value>.*?) *-->")
_HIDDEN = re.compile(rf"<!-- *{NOT_SHOWN}: *(?P<language>\w+)")
_FENCE = re.compile(r"(?P<indent> *)```(?P<language>\S*)")
_HEREDOC = re.compile(r"<<'?(?P<end>\w+)'?")


def pages() -> list[str]:
    """All pages, by their path in the repository."""
    found = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]
    return sorted(str(page.relative_to(ROOT)) for page in found)


def fenced(page: str, language: str) -> list[str]:
    """The blocks of a page in this language, in order."""
    return [block.text for block in blocks(page) if block.language == language and block.shown]


@dataclass(frozen=True)
class Block:
    page: str
    line: int
    language: str
    text: str
    shown: bool = True
    notes: dict[str, str] = field(default_factory=dict)
    """The comments above the block, by key."""

    @property
    def place(self) -> str:
        return f"{self.page}:{self.line}"

    @property
    def is_run(self) -> bool:
        return self.language in RUNNABLE and NOT_RUN not in self.notes

    @property
    def exit_code(self) -> int:
        return int(self.notes.get(EXIT_CODE, "0"))


@dataclass(frozen=True)
class Command:
    """A command of a console block, with the output that the page shows for it."""

    text: str
    stdin: str
    output: str

    @property
    def words(self) -> list[str]:
        """Without the redirection of standard input, and without the comment at the end."""
        return shlex.split(_HEREDOC.sub("", self.text), comments=True)

    @property
    def needs_a_shell(self) -> bool:
        return any(word in {"|", ">", ">>", "&&", ";", "<"} for word in self.words)


def blocks(page: str) -> list[Block]:
    """All blocks of a page, in order, also those that are not shown."""
    return list(blocks_in((ROOT / page).read_text(encoding="utf-8"), page))


def blocks_in(text: str, page: str = "") -> Iterator[Block]:
    """The blocks of a text. A comment that does not belong to a block is an error, so that no block is left out by a
    mistake in a comment."""
    lines = text.splitlines()
    notes: dict[str, str] = {}
    at = 0
    while at < len(lines):
        line, start = lines[at], at + 1
        if hidden := _HIDDEN.match(line):
            end = lines.index("-->", at)
            yield Block(page, start, hidden["language"], _joined(lines[at + 1 : end]), shown=False, notes=notes)
            notes, at = {}, end
        elif fence := _FENCE.match(line):
            end = lines.index(f"{fence['indent']}```", at + 1)
            yield Block(page, start, fence["language"], _joined(lines[at + 1 : end]), notes=notes)
            notes, at = {}, end
        elif comment := _COMMENT.fullmatch(line.strip()):
            notes = notes | {comment["key"]: comment["value"]}
        else:
            assert "<!--" not in line, f"{page}:{start}: a comment that no test understands"
            assert not notes, f"{page}:{start}: {', '.join(notes)} is not directly above a block"
        at += 1
    assert not notes, f"{page}: {', '.join(notes)} is not directly above a block"


def _joined(lines: list[str]) -> str:
    return textwrap.dedent("".join(f"{line}\n" for line in lines))


def commands(text: str) -> Iterator[Command]:
    """The commands of a console block: each starts with `$ `, and is followed by what it reads and prints."""
    lines = text.splitlines()
    assert lines[0].startswith("$ "), f"the first line is no command: {lines[0]}"
    at = 0
    while at < len(lines):
        command = lines[at].removeprefix("$ ")
        at += 1
        while command.endswith("\\"):
            command = f"{command[:-1].rstrip()} {lines[at].strip()}"
            at += 1
        stdin = ""
        if heredoc := _HEREDOC.search(command):
            end = lines.index(heredoc["end"], at)
            stdin, at = _joined(lines[at:end]), end + 1
        following = next((index for index in range(at, len(lines)) if lines[index].startswith("$ ")), len(lines))
        yield Command(command, stdin, _joined(lines[at:following]))
        at = following


def expected(output: str, numbers_vary: bool = False) -> re.Pattern[str]:
    """What an output must match: `…` stands for some text in a line or, alone in its line, for some lines."""
    return re.compile("".join(_line(line, numbers_vary) for line in output.splitlines()))


def _line(line: str, numbers_vary: bool) -> str:
    if line.strip() == "…":
        return r"(?:.*\n)*?"
    escaped = r".*".join(re.escape(part) for part in line.rstrip().split("…"))
    if numbers_vary:
        escaped = re.sub(r"\d+", r"\\d+", escaped)
    return rf"{escaped} *\n"
