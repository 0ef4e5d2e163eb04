"""Settings of compaction: thresholds of files and tables, nodes and limits of a run."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Sequence
from decimal import Decimal
from itertools import takewhile
from pathlib import Path
from typing import Annotated, Any, Self

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    model_validator,
)
from pydantic_core import PydanticCustomError
from pydantic_settings import NoDecode

from sweep_tasks.config.values import (
    MIB,
    ByName,
    Share,
    listed,
    refused,
)


class TableThresholds(BaseModel, defer_build=True):
    """Thresholds of one table that replace the general `compaction_…` settings of the same names."""

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)

    dense_tombstones: int | None = None
    dense_share: Share | None = None
    eligible_share: Share | None = None
    run_warn: int | None = None
    run_fail: int | None = None
    overlap_share: Share | None = None
    read_tombstones: int | None = None


def _words(given: Any) -> Any:
    """Split a command that is given as one string as a shell would. It is never run by a shell."""
    try:
        return shlex.split(given) if isinstance(given, str) else given
    except ValueError as error:
        raise PydanticCustomError("not_a_command", "is not a command: {problem}", {"problem": str(error)}) from None


def _folders(given: Any) -> Any:
    """Split a list of folders that is given as one string; an empty string is kept, and refused later."""
    return listed(given) or [""] if isinstance(given, str) else given


Words = Annotated[tuple[str, ...], BeforeValidator(_words)]
_PASSWORDS = ("-pw", "--password", "--token")
_PASSWORD_GIVEN = re.compile(r"\w*(PASS|PASSWORD|SECRET|TOKEN)\w*=.", re.IGNORECASE)
"""An assignment of an environment variable, as in the arguments of `env`."""


class CompactionNode(BaseModel, defer_build=True):
    """One node: its data folders, and the commands that run Cassandra's tools there."""

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)

    data: Annotated[tuple[str, ...], BeforeValidator(_folders)]
    """The data folders. An explicitly empty list means that the files of the node can't be read from here."""
    prefix: Words = ()
    remote_shell: bool | None = None
    """True if a shell on the node interprets what follows the prefix, as with ssh, so that it must be quoted. Required
    with a prefix, because a wrong guess would split file names or make quotes part of them."""
    nodetool: Words = ("nodetool",)
    sstabledump: Words = ("sstabledump",)
    sstablemetadata: Words = ("sstablemetadata",)

    @model_validator(mode="after")
    def _can_be_used(self) -> Self:
        _check_node(self)
        return self


class ByTable(ByName):
    """Thresholds by table name."""


class ByNode(ByName):
    """Nodes by name."""


def _from_json(given: Any, example: str) -> Any:
    """Parse a value that is given as a JSON string; the TOML file may contain a table instead."""
    if not isinstance(given, str):
        return given
    try:
        return json.loads(given, parse_float=Decimal) if given.strip() else {}
    except (ValueError, RecursionError):
        raise PydanticCustomError("not_json", "is not JSON; write it like {example}", {"example": example}) from None


def _named(nodes: dict[str, CompactionNode]) -> ByNode:
    for name in nodes:
        if not _NODE_NAME.fullmatch(name):
            raise PydanticCustomError("bad_name", "a node's name is letters, digits, dots, dashes and underscores")
    return ByNode(nodes)


_NODE_NAME = re.compile(r"\w[\w.-]{0,63}")
_TABLE_EXAMPLE = '{"shop.orders": {"eligible_share": 0.1}}'
_NODE_EXAMPLE = '{"cassandra1": {"data": "/var/lib/cassandra/data", "prefix": "ssh cassandra1", "remote_shell": true}}'
TablesSetting = Annotated[
    dict[str, TableThresholds],
    NoDecode,
    BeforeValidator(lambda given: _from_json(given, _TABLE_EXAMPLE)),
    AfterValidator(ByTable),
]
Nodes = Annotated[
    dict[str, CompactionNode],
    NoDecode,
    BeforeValidator(lambda given: _from_json(given, _NODE_EXAMPLE)),
    AfterValidator(_named),
]


class CompactionSettings(BaseModel, defer_build=True):
    compaction_dense_tombstones: int = Field(
        default=100, description="a block with this many tombstones is dense; 0 or less: their number is ignored"
    )
    compaction_dense_share: Share = Field(
        default=Decimal("0.5"),
        description="a block is dense if tombstones are this share of its bytes; 0 or less: their size is ignored",
    )
    compaction_eligible_share: Share = Field(
        default=Decimal("0.05"),
        description="a file with this share of dense blocks is compacted; 0 or less: no file ever is",
    )
    compaction_run_warn: int = Field(
        default=1_000,
        description="a file with this many consecutive dead cells, where the server warns, is compacted; 0 "
        "or less: ignored",
    )
    compaction_run_fail: int = Field(
        default=100_000,
        description="consecutive dead cells at which the server fails a read; 0 or less: it never fails",
    )
    compaction_overlap_share: Share = Field(
        default=Decimal("0.5"),
        description="a file with this many tombstones per key around them is compacted; 0 or less: ignored",
    )
    compaction_tables: TablesSetting = Field(
        default=ByTable(), description="settings that differ for a table, by table name, as JSON or a TOML table"
    )
    compaction_nodes: Nodes = Field(
        default=ByNode(), description="nodes to compact, by name, as JSON or a TOML table; none: compaction is off"
    )
    compaction_budget_bytes: int = Field(
        default=50 * 1024 * MIB, gt=0, description="bytes that one run may rewrite on one node"
    )
    compaction_wait_s: float = Field(
        default=300.0, ge=0, description="how long a run waits for the server's own compactions before it gives up"
    )
    compaction_read_tombstones: int = Field(
        default=1_000,
        description="a table in which one read met this many tombstones has its files added at the end of the plan; "
        "0 or less: never",
    )
    compaction_near_fail_share: Share = Field(
        default=Decimal("0.5"),
        description="share of compaction_run_fail at which an alert is sent for a partition; 0 or less: no alert",
    )
    compaction_files_at_once: int = Field(
        default=2, ge=1, description="files of a node that are measured at the same time, without Spark"
    )
    compaction_schedule: str = Field(
        default="0 3 * * *", description="cron schedule of compactions; empty: no schedule"
    )
    compaction_after_tombstones: int = Field(
        default=1_000_000,
        ge=0,
        description="a sweep or scan that writes more tombstones than this starts a compaction; 0: never",
    )
    compaction_alert_again_s: int = Field(
        default=86_400, ge=0, description="minimum time between two alerts about the same partition; 0: every run"
    )


def _check_node(node: CompactionNode) -> None:
    if not all(folder.startswith("/") for folder in node.data):
        raise refused(
            "not_absolute",
            "data must list the node's data folders by absolute path: /var/lib/cassandra/data; [] if none can be read",
        )
    for name in ("nodetool", "sstabledump", "sstablemetadata"):
        if not getattr(node, name):
            raise refused("empty", f"{name} is empty; set a command, or omit it")
    for name in ("prefix", "nodetool", "sstabledump", "sstablemetadata"):
        if _has_password(getattr(node, name)):
            raise refused(
                "password",
                f"{name} contains a password, which every user of the machine could see; use -pwf and a file, or a key",
            )
    if node.prefix and node.remote_shell is None:
        raise refused(
            "no_remote_shell",
            "a prefix requires remote_shell: true if a shell on the node interprets the command, as with ssh; false if "
            "not, as with kubectl exec and docker exec",
        )


def _has_password(words: Sequence[str]) -> bool:
    if any(word.partition("=")[0] in _PASSWORDS or _PASSWORD_GIVEN.match(word) for word in words):
        return True
    arguments = words[1 + next((at for at, word in enumerate(words) if Path(word).name == "sshpass"), len(words)) :]
    return any(word.startswith("-p") for word in takewhile(lambda word: word.startswith("-"), arguments))
