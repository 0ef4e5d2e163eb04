"""For DAGs of applications: protect a timestamp while some tasks of a run work.

    with protect_timestamp(tables=["shop.*"]) as ts:
        export(ts)

creates a setup task, which takes a fresh timestamp and protects it, and a teardown task, which releases it when the
tasks between them have ended, successfully or not. The timestamp is the setup's XCom. The record is named after the
run: a setup that is retried or cleared keeps the record of the run, if it still exists. The record names its owner, so
that it is also released if the run ends without its teardown.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseOperator

from sweep_tasks.errors import BadValue, SweepflowError
from sweep_tasks.orchestration.prepare import task_failure, this_attempt

if TYPE_CHECKING:
    from airflow.sdk import Context, XComArg

_LONGEST_ID = 200
_HASH = 32


def protect_timestamp(
    tables: Sequence[str] | str,
    *,
    mode: str = "at",
    timestamp: int | str | None = None,
    meta: Mapping[str, str] | None = None,
    task_id: str = "protect_timestamp",
    release_task_id: str = "release_timestamp",
) -> TimestampProtection:
    """Create the pair of tasks. Tables are names, patterns (`shop.*`) or row ranges, a list or one string with commas;
    they and the timestamp may be templates. Mode `at` keeps what is visible at the timestamp, `after` everything
    since."""
    setup = ProtectTimestamp(
        task_id=task_id,
        tables=tables,
        mode=mode,
        timestamp=timestamp,
        meta=meta,
        doc_md="Protects a timestamp, which is its XCom.",
    )
    teardown = ReleaseTimestamp(
        task_id=release_task_id,
        protected_by=setup.task_id,
        doc_md="Releases the timestamp of this run.",
    )
    return TimestampProtection(setup, teardown)


class TimestampProtection:
    """The pair of tasks, for use as `setup >> work >> teardown` or with a block."""

    def __init__(self, setup: ProtectTimestamp, teardown: ReleaseTimestamp) -> None:
        self.setup = setup
        setup.as_setup()  # type: ignore[no-untyped-call]
        self.teardown = teardown
        teardown.as_teardown(setups=setup)

    @property
    def ts(self) -> XComArg:
        output: XComArg = self.setup.output
        return output

    def __enter__(self) -> XComArg:
        self.teardown.__enter__()  # type: ignore[no-untyped-call]
        return self.ts

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.teardown.__exit__(kind, error, trace)  # type: ignore[no-untyped-call]


class ProtectTimestamp(BaseOperator):
    template_fields: Sequence[str] = ("tables", "timestamp")

    def __init__(
        self,
        *,
        tables: Sequence[str] | str,
        mode: str = "at",
        timestamp: int | str | None = None,
        meta: Mapping[str, str] | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        if mode not in ("at", "after"):
            raise BadValue("mode", f"{mode!r} is neither at nor after")
        self.tables = tables
        self.mode = mode
        self.timestamp = timestamp
        self.meta = dict(meta or {})

    def execute(self, context: Context) -> int:
        """Protect a timestamp and return it."""
        from sweep_tasks.clock import SystemClock
        from sweep_tasks.config import load_settings
        from sweep_tasks.connections import open_store
        from sweep_tasks.coordination.timestamps import TimestampService
        from sweep_tasks.metrics.samples import tally_operations_in_block
        from sweep_tasks.orchestration.recording import acting_for_run
        from sweep_tasks.protection.catalog import ProtectionCatalog
        from sweep_tasks.protection.owners import AIRFLOW_RUN
        from sweep_tasks.protection.protecting import hold, parsed
        from sweep_tasks.protection.records import Mode, Record

        try:
            run = owner_of(context, self.task_id)
            targets = parsed(listed(self.tables))
            wanted = Record(record_id(run), 0, Mode(self.mode), targets, meta_type=AIRFLOW_RUN, meta=self.meta | run)
            settings = load_settings()
            with open_store(settings.store, settings) as store:
                catalog, timestamps = ProtectionCatalog(store, settings), TimestampService(store)
                with tally_operations_in_block(store, SystemClock(), this_attempt(context)), acting_for_run(context):
                    ts = hold(catalog, wanted, timestamps.fresh, _given(self.timestamp))
        except SweepflowError as error:
            raise task_failure(error) from None
        self.log.info("%s protects %s", wanted.id, ts)
        return ts


class ReleaseTimestamp(BaseOperator):
    """Releases the record that the task `protected_by` of the same run has created, if it still exists."""

    def __init__(self, *, protected_by: str, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.protected_by = protected_by

    def execute(self, context: Context) -> bool:
        """Release the record and return whether there was one."""
        from sweep_tasks.clock import SystemClock
        from sweep_tasks.config import load_settings
        from sweep_tasks.connections import open_store
        from sweep_tasks.metrics.samples import tally_operations_in_block
        from sweep_tasks.orchestration.recording import acting_for_run
        from sweep_tasks.protection.catalog import ProtectionCatalog
        from sweep_tasks.protection.protecting import release_if_exists

        try:
            settings = load_settings()
            owner = owner_of(context, self.protected_by)
            with (
                open_store(settings.store, settings) as store,
                tally_operations_in_block(store, SystemClock(), this_attempt(context)),
                acting_for_run(context),
            ):
                return release_if_exists(ProtectionCatalog(store, settings), record_id(owner))
        except SweepflowError as error:
            raise task_failure(error) from None


def owner_of(context: Context, task_id: str) -> dict[str, str]:
    """Return the owner of the record, as the reconciler asks Airflow about it."""
    ti = context["ti"]
    index = getattr(ti, "map_index", None)
    mapped = {} if index is None or index < 0 else {"map_index": str(index)}
    return {"dag_id": ti.dag_id, "run_id": ti.run_id, "task_id": task_id, **mapped}


def record_id(owner: Mapping[str, str]) -> str:
    """Return a readable id that is the same for every attempt. Names that are too long together are cut and hashed."""
    whole = "/".join(owner.values())
    if len(whole) <= _LONGEST_ID:
        return whole
    return f"{whole[: _LONGEST_ID - _HASH - 1]}~{hashlib.sha256(whole.encode()).hexdigest()[:_HASH]}"


def listed(tables: Sequence[str] | str) -> list[str]:
    given = tables.split(",") if isinstance(tables, str) else tables
    return [each.strip() for each in given if each.strip()]


def _given(timestamp: int | str | None) -> int | None:
    """Parse a timestamp that may come from a template."""
    text = "" if timestamp is None else str(timestamp).strip()
    if text in ("", "None"):
        return None
    if not text.isdecimal():
        raise BadValue("timestamp", f"{text[:40]!r} is not a timestamp; give a number, or leave it out for a fresh one")
    return int(text)
