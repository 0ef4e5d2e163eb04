"""What is known of a local cluster between two commands: its ports and its processes, in a file of its folder."""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Self

from sweep_tasks.dev.ports import free_ports
from sweep_tasks.dev.process import Started
from sweep_tasks.errors import ClusterNotReady

FILE = "cluster.json"


@dataclass(slots=True)
class ClusterState:
    """Ports are chosen once, because data and addresses given to others refer to them."""

    nodes: int
    native_port: int
    storage_port: int
    jmx_ports: list[int]
    started: dict[int, Started] = field(default_factory=dict)

    @classmethod
    def new(cls, nodes: int, addresses: list[str]) -> Self:
        native, storage, *jmx = free_ports(2 + nodes, addresses)
        return cls(nodes, native, storage, jmx)

    @classmethod
    def read(cls, folder: Path) -> Self | None:
        try:
            kept = json.loads((folder / FILE).read_text())
            started = {int(number): Started(*each) for number, each in kept.pop("started").items()}
            return cls(**kept, started=started)
        except FileNotFoundError:
            return None
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise ClusterNotReady(
                f"folder: {folder / FILE} can't be read as the state of a local cluster; end its Java processes by "
                "hand if there are any, remove the folder and start again",
                field="folder",
                reason="unreadable",
            ) from error

    def write(self, folder: Path) -> None:
        """Whole or not at all: whoever reads it meanwhile gets the former one."""
        draft = folder / f"{FILE}.draft"
        draft.write_text(json.dumps(asdict(self), indent=2) + "\n")
        os.replace(draft, folder / FILE)

    def running(self) -> dict[int, Started]:
        return {number: each for number, each in sorted(self.started.items()) if each.alive}
