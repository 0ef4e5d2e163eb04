"""The code blocks in the documentation are run, or say why not."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Callable
from contextlib import chdir
from pathlib import Path
from string import Template
from typing import Any

import pytest
from ruamel.yaml import YAML

from sweep_tasks.config import Settings, load_settings
from tests.support.command import sweepflow
from tests.support.documents import (
    EXIT_CODE,
    NOT_RUN,
    NUMBERS_VARY,
    ROOT,
    RUNNABLE,
    Block,
    Command,
    blocks,
    blocks_in,
    commands,
    expected,
    pages,
)

PARSERS: dict[str, Callable[[str], object]] = {"toml": tomllib.loads, "yaml": YAML(typ="safe").load, "json": json.loads}
OTHERS = ("cql", "sql", "text")
ALL_BLOCKS = [block for page in pages() for block in blocks(page)]
PAGES_THAT_RUN = sorted({block.page for block in ALL_BLOCKS if block.is_run and block.shown})
TERMINAL = {"COLUMNS": "120", "LINES": "50"}


def test_every_block_names_its_language() -> None:
    known = {*RUNNABLE, *PARSERS, *OTHERS}
    assert [block.place for block in ALL_BLOCKS if block.language not in known] == []


def test_commands_are_in_blocks_that_are_run_or_say_why_not() -> None:
    for page in pages():
        text = (ROOT / page).read_text(encoding="utf-8")
        assert not re.search(r"^    +\$ ", text, re.MULTILINE), f"{page} has a command in an indented block"
    assert [block.place for block in ALL_BLOCKS if block.language not in RUNNABLE and "\n$ " in f"\n{block.text}"] == []


def test_a_block_that_is_not_run_says_why() -> None:
    left_out = [block for block in ALL_BLOCKS if NOT_RUN in block.notes]
    assert left_out
    assert [block.place for block in left_out if len(block.notes[NOT_RUN].split()) < 2] == []
    assert [block.place for block in left_out if block.language not in RUNNABLE] == []
    named = {(block.place, test) for block in left_out for test in re.findall(r"tests/[\w/.]+", block.notes[NOT_RUN])}
    assert [place for place, test in named if not (ROOT / test).exists()] == []


def test_comments_above_blocks_are_understood() -> None:
    known = {NOT_RUN, EXIT_CODE, NUMBERS_VARY}
    assert [(block.place, key) for block in ALL_BLOCKS for key in block.notes if key not in known] == []


@pytest.mark.parametrize("block", [b for b in ALL_BLOCKS if b.language in PARSERS], ids=lambda block: block.place)
def test_a_block_of_data_can_be_parsed(block: Block) -> None:
    parsed = PARSERS[block.language](block.text)
    assert parsed
    if isinstance(parsed, dict) and parsed.keys() <= Settings.model_fields.keys():
        load_settings(**parsed)


def test_every_python_block_is_a_program() -> None:
    for block in ALL_BLOCKS:
        if block.language == "python":
            compile(block.text, block.place, "exec")


@pytest.mark.parametrize("page", PAGES_THAT_RUN)
def test_the_blocks_of_a_page_run_one_after_the_other(page: str, tmp_path: Path) -> None:
    reader = Reader(tmp_path)
    for block in blocks(page):
        if block.is_run:
            reader.run(block)


class TestReadingPages:
    PAGE = """
<!-- not shown: console
$ sweepflow init
-->
<!-- exit code: 5 -->
<!-- numbers vary: timestamps -->
```console
$ sweepflow protect shop.orders \\
    --at 3
$ sweepflow scenario run - <<'END'
{"op":"commits"}
END
{"commits": {}}
```
"""

    def test_blocks_come_in_order_with_the_comments_above_them(self) -> None:
        hidden, shown = blocks_in(self.PAGE)
        assert (hidden.shown, hidden.language, hidden.text) == (False, "console", "$ sweepflow init\n")
        assert (shown.shown, shown.exit_code, shown.is_run) == (True, 5, True)
        assert shown.notes == {EXIT_CODE: "5", NUMBERS_VARY: "timestamps"}

    def test_a_command_has_its_input_and_its_output(self) -> None:
        _, shown = blocks_in(self.PAGE)
        protect, scenario = commands(shown.text)
        assert protect.words == ["sweepflow", "protect", "shop.orders", "--at", "3"]
        assert scenario.words == ["sweepflow", "scenario", "run", "-"]
        assert (scenario.stdin, scenario.output) == ('{"op":"commits"}\n', '{"commits": {}}\n')

    @pytest.mark.parametrize(
        "text",
        ["<!-- not run -->", "<!-- not run: needs Docker -->\nText.\n", "Text <!-- exit code: 1 -->"],
        ids=["without a reason", "without a block", "within a line"],
    )
    def test_a_comment_that_would_be_ignored_is_an_error(self, text: str) -> None:
        with pytest.raises(AssertionError):
            list(blocks_in(text))

    @pytest.mark.parametrize(
        ("shown", "printed", "numbers_vary", "matches"),
        [
            ("swept to 5\n", "swept to 5\n", False, True),
            ("swept to 5\n", "swept to 17\n", False, False),
            ("swept to 5\n", "swept to 17\n", True, True),
            ("swept to 5\n", "swept to nothing\n", True, False),
            ("swept to …\n", "swept to nothing\n", False, True),
            ("first\n…\nlast\n", "first\na\nb\nlast\n", False, True),
            ("first\n…\nlast\n", "first\nlast\nmore\n", False, False),
        ],
    )
    def test_shown_output_must_equal_printed_output(
        self, shown: str, printed: str, numbers_vary: bool, matches: bool
    ) -> None:
        assert bool(expected(shown, numbers_vary).fullmatch(printed)) is matches


class Reader:
    """A reader who runs the blocks of a page in one folder, in one terminal and one Python session."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.environment = dict(TERMINAL)
        self.names: dict[str, Any] = {"__name__": "documentation"}

    def run(self, block: Block) -> None:
        if block.language == "python":
            with chdir(self.folder):
                exec(compile(block.text, block.place, "exec"), self.names)  # noqa: S102
        elif block.language == "console":
            self._run_commands(block)
        else:
            self._run_script(block)

    def _run_commands(self, block: Block) -> None:
        listed = list(commands(block.text))
        for number, command in enumerate(listed, start=1):
            code, output = self._answer(command)
            wanted = block.exit_code if number == len(listed) else 0
            assert code == wanted, f"{block.place}: {command.text}: exit code {code}\n{output}"
            if command.output:
                pattern = expected(command.output, NUMBERS_VARY in block.notes)
                assert pattern.fullmatch(output), f"{block.place}: {command.text} printed\n{output}"

    def _answer(self, command: Command) -> tuple[int, str]:
        if command.words[0] == "export":
            self.environment |= dict(word.split("=", 1) for word in command.words[1:])
            return 0, ""
        if command.words[0] == "sweepflow" and not command.needs_a_shell:
            words = [Template(word).safe_substitute(self.environment) for word in command.words[1:]]
            answer = sweepflow(*words, cwd=self.folder, stdin=command.stdin.encode(), **self.environment)
            return answer.code, answer.out + (answer.err if answer.code else "")
        ended = self._shell(command.text.partition("<<")[0], command.stdin)
        return ended.returncode, ended.stdout

    def _run_script(self, block: Block) -> None:
        """What a script sets is set for the blocks that follow."""
        ended = self._shell(f"set -ea\n{block.text}\nenv -0 > variables")
        assert ended.returncode == block.exit_code, f"{block.place}: exit code {ended.returncode}\n{ended.stdout}"
        variables = dict(
            each.split("=", 1) for each in (self.folder / "variables").read_text().split("\0") if "=" in each
        )
        self.environment |= {name: value for name, value in variables.items() if os.environ.get(name) != value}

    def _shell(self, text: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
        environment = {name: value for name, value in os.environ.items() if not name.startswith("SWEEPFLOW_")}
        path = f"{Path(sys.executable).parent}{os.pathsep}{environment['PATH']}"
        return subprocess.run(
            ["/bin/bash", "-c", text],
            cwd=self.folder,
            env=environment | {"PATH": path} | self.environment,
            input=stdin,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=60,
            check=False,
        )
