"""How a worker opens the store: the settings that the driver sends to it, and those that it reads itself."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from sweep_tasks.config import Settings, load_settings
from sweep_tasks.connections import borrow_store
from sweep_tasks.store import absolute_url
from sweep_tasks.store.contract import Store

_SECRETS = {"cassandra_user", "cassandra_password", "cassandra_key_password"}
"""Workers read these from their own environment or file: what is sent to a task can be seen in Spark's pages and
logs."""
_SENT = {name for name in Settings.model_fields if name.startswith(("store", "sqlite_", "cassandra_"))} - _SECRETS


@dataclass(frozen=True, slots=True)
class WorkerStoreSettings:
    """The settings that open the store, as one JSON document. It has no secrets."""

    document: str

    @classmethod
    def of(cls, settings: Settings) -> WorkerStoreSettings:
        """Return what a worker needs of these settings. Each worker of a cluster has its own working directory, so the
        path of a store is absolute."""
        sent = settings.model_copy(update={"store": absolute_url(settings.store)})
        return cls(sent.model_dump_json(include=_SENT))

    def load(self) -> Settings:
        """Return the settings of this worker, in which those of the driver take precedence."""
        return load_settings(**json.loads(self.document))

    @contextmanager
    def borrow_store(self) -> Iterator[Store]:
        with borrow_store(self.load()) as store:
            yield store
