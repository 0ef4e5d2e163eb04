"""One node of the local cluster: its folder, its process, and Cassandra's own tool for it."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from sweep_tasks.dev.configuration import TOOL_LOGGING_FILE, cassandra_yaml, tokens_of, write_configuration
from sweep_tasks.dev.options import DAEMON, NODETOOL, SSTABLEDUMP, SSTABLEMETADATA, heap, java_command
from sweep_tasks.dev.process import Started, start_process
from sweep_tasks.dev.state import ClusterState
from sweep_tasks.errors import LocalNodetoolFailed

SAID_NOTHING = "it said nothing"
_LINES_SHOWN = 12
_CHARACTERS_SHOWN = 300
_TELLS_NOTHING = re.compile(r"\s+(at |\.\.\. )|\w+ +\[StorageServiceShutdownHook\]")
_TOOL_PATIENCE_S = 600
_TOOLS_FOLDER = "bin"
_FILE_TOOLS = {"sstabledump": SSTABLEDUMP, "sstablemetadata": SSTABLEMETADATA}


@dataclass(frozen=True, slots=True)
class Node:
    number: int
    folder: Path
    state: ClusterState
    jars: Path

    @property
    def address(self) -> str:
        return address_of(self.number)

    @property
    def log(self) -> Path:
        return self.folder / "log"

    def start(self, running: Sequence[str], *, dies_with_parent: bool) -> Started:
        """`running`: the addresses of nodes that can tell this one about the cluster."""
        yaml = cassandra_yaml(
            cluster=f"sweepflow-{self.state.storage_port}",
            address=self.address,
            seeds=[*running, self.address],
            native_port=self.state.native_port,
            storage_port=self.state.storage_port,
            tokens=tokens_of(self.number, self.state.nodes),
            survives_kill=self.state.nodes > 1,  # a quorum that answered must not forget because one of it was killed
        )
        write_configuration(self.folder, yaml)
        self.write_tools()
        return start_process(self.daemon_command(), self.log, dies_with_parent=dies_with_parent)

    def nodetool(self, *arguments: str) -> str:
        try:
            done = subprocess.run(  # noqa: S603
                [*self.nodetool_command(), *arguments],
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                check=False,
                timeout=_TOOL_PATIENCE_S,
            )
        except subprocess.TimeoutExpired:
            raise LocalNodetoolFailed(self.number, arguments, f"not done after {_TOOL_PATIENCE_S} s") from None
        if done.returncode:
            said = (done.stdout + done.stderr).strip().splitlines()[-_LINES_SHOWN:]
            raise LocalNodetoolFailed(self.number, arguments, "\n".join(said) or SAID_NOTHING)
        return done.stdout

    def nodetool_command(self) -> list[str]:
        properties = {
            "logback.configurationFile": self.folder / "logback.xml",
            "user.home": self.folder,  # it keeps a history of commands there
        }
        command = java_command(_java(), self.jars, NODETOOL, ["-Xmx128m"], properties)
        return [*command, "-h", "127.0.0.1", "-p", str(self._jmx_port)]

    def for_compaction(self) -> dict[str, str]:
        """As setting `compaction_nodes` describes it."""
        tools = {name: str(self.folder / _TOOLS_FOLDER / name) for name in ("nodetool", *_FILE_TOOLS)}
        return {"data": str(self.folder / "data"), **tools}

    def tool(self, main: str) -> list[str]:
        """How to start a tool that reads the node's files, running or not; its arguments go behind."""
        properties = {
            "cassandra.config": (self.folder / "cassandra.yaml").as_uri(),
            "cassandra.storagedir": self.folder,
            "logback.configurationFile": self.folder / TOOL_LOGGING_FILE,
        }
        return java_command(_java(), self.jars, main, ["-Xmx256m"], properties)

    def last_words(self) -> str:
        """The end of its log, less what says nothing about the cause: frames of the stack, and the orderly shutdown."""
        lines = self.log.read_text(errors="replace").splitlines() if self.log.exists() else []
        telling = [line[:_CHARACTERS_SHOWN] for line in lines if not _TELLS_NOTHING.match(line)]
        return "\n".join(telling[-_LINES_SHOWN:]) or SAID_NOTHING

    def write_tools(self) -> None:
        """Cassandra's tools as programs that need to be told nothing about where Java and the node are."""
        folder = self.folder / _TOOLS_FOLDER
        folder.mkdir(exist_ok=True)
        commands = {name: self.tool(main) for name, main in _FILE_TOOLS.items()}
        for name, command in ({"nodetool": self.nodetool_command()} | commands).items():
            (folder / name).write_text(f'#!/bin/sh\nexec {shlex.join(command)} "$@"\n')
            (folder / name).chmod(0o755)

    @property
    def _jmx_port(self) -> int:
        return self.state.jmx_ports[self.number - 1]

    def daemon_command(self) -> list[str]:
        properties = {
            "cassandra.config": (self.folder / "cassandra.yaml").as_uri(),
            "cassandra.storagedir": self.folder,
            "cassandra.jmx.local.port": self._jmx_port,
            "logback.configurationFile": self.folder / "logback.xml",
            "cassandra-foreground": "yes",
            "jdk.attach.allowAttachSelf": "true",
            "cassandra.skip_wait_for_gossip_to_settle": 0,
            "cassandra.ring_delay_ms": 2_000,
            "cassandra.consistent.rangemovement": "false",
            "cassandra.shutdown_announce_in_ms": 200,
            "cassandra.memtable.row_overhead_size": 181,  # what it would measure itself, for seconds, at every start
        }
        crash = f"-XX:ErrorFile={self.folder}/crash-%p.log"
        return java_command(_java(), self.jars, DAEMON, [*heap(self.state.nodes), crash], properties)


def address_of(number: int) -> str:
    return f"127.0.0.{number}"


def _java() -> str:
    return shutil.which("java") or "java"
