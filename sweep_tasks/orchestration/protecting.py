"""For other people's DAGs: keep what a timestamp shows while some tasks of a run work.

    with protect_timestamp(tables=["shop.*"]) as ts:
        export(ts)

makes a setup task, which takes a fresh timestamp and protects it, and a teardown task, which releases it when the tasks
between them are done, well or not. The timestamp is the setup's XCom. The record is named after the run: a setup that
is tried again or cleared goes on with the record of the run, if that still stands. It tells whose it is, so that it is
released too if the run ends without its teardown.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseOperator

from sweep_tasks.errors import BadValue, SweepflowError
from sweep_tasks.orchestration.prepare import explained, this_try

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
    """Tables are names, patterns (`shop.*`) or row ranges, a list or one string with commas; they and the timestamp may
    be templates. Mode `at` keeps what is visible at the timestamp, `after` everything since."""
    setup = ProtectTimestamp(
        task_id=task_id,
        tables=tables,
        mode=mode,
        timestamp=timestamp,
        meta=meta,
        doc_md="Keeps what its timestamp shows; the timestamp is its XCom.",
    )
    teardown = ReleaseTimestamp(
        task_id=release_task_id,
        protected_by=setup.task_id,
        doc_md="Lets sweeps have what was kept for this run.",
    )
    return TimestampProtection(setup, teardown)


class TimestampProtection:
    """The pair, to be put around tasks by hand (`setup >> work >> teardown`) or with a block."""

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
        """The timestamp that is protected."""
        from sweep_tasks.clock import SystemClock
        from sweep_tasks.config import load_settings
        from sweep_tasks.observation.entering import operations_entered
        from sweep_tasks.opening import open_store
        from sweep_tasks.protection.catalog import ProtectionCatalog
        from sweep_tasks.protection.owners import AIRFLOW_RUN
        from sweep_tasks.protection.protecting import hold, parsed
        from sweep_tasks.protection.records import Mode, Record
        from sweep_tasks.timestamps.service import TimestampService

        try:
            run = owner_of(context, self.task_id)
            targets = parsed(listed(self.tables))
            wanted = Record(record_id(run), 0, Mode(self.mode), targets, meta_type=AIRFLOW_RUN, meta=self.meta | run)
            settings = load_settings()
            with open_store(settings.store, settings) as store:
                catalog, timestamps = ProtectionCatalog(store, settings), TimestampService(store)
                with operations_entered(store, SystemClock(), this_try(context)):
                    ts = hold(catalog, wanted, timestamps.fresh, _given(self.timestamp))
        except SweepflowError as error:
            raise explained(error) from None
        self.log.info("%s protects %s", wanted.id, ts)
        return ts


class ReleaseTimestamp(BaseOperator):
    """Releases what the task `protected_by` of the same run has protected; nothing, if that is gone already."""

    def __init__(self, *, protected_by: str, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.protected_by = protected_by

    def execute(self, context: Context) -> bool:
        """Whether there was something to release."""
        from sweep_tasks.clock import SystemClock
        from sweep_tasks.config import load_settings
        from sweep_tasks.observation.entering import operations_entered
        from sweep_tasks.opening import open_store
        from sweep_tasks.protection.catalog import ProtectionCatalog
        from sweep_tasks.protection.protecting import let_go

        try:
            settings = load_settings()
            owner = owner_of(context, self.protected_by)
            with (
                open_store(settings.store, settings) as store,
                operations_entered(store, SystemClock(), this_try(context)),
            ):
                return let_go(ProtectionCatalog(store, settings), record_id(owner))
        except SweepflowError as error:
            raise explained(error) from None


def owner_of(context: Context, task_id: str) -> dict[str, str]:
    """Whose record it is, in the words that the reconciler asks Airflow with."""
    ti = context["ti"]
    index = getattr(ti, "map_index", None)
    mapped = {} if index is None or index < 0 else {"map_index": str(index)}
    return {"dag_id": ti.dag_id, "run_id": ti.run_id, "task_id": task_id, **mapped}


def record_id(owner: Mapping[str, str]) -> str:
    """Readable, and the same for every try. Where Airflow's names are too long together they are cut and hashed."""
    whole = "/".join(owner.values())
    if len(whole) <= _LONGEST_ID:
        return whole
    return f"{whole[: _LONGEST_ID - _HASH - 1]}~{hashlib.sha256(whole.encode()).hexdigest()[:_HASH]}"


def listed(tables: Sequence[str] | str) -> list[str]:
    given = tables.split(",") if isinstance(tables, str) else tables
    return [each.strip() for each in given if each.strip()]


def _given(timestamp: int | str | None) -> int | None:
    """As it is, or as a template wrote it."""
    text = "" if timestamp is None else str(timestamp).strip()
    if text in ("", "None"):
        return None
    if not text.isdecimal():
        raise BadValue("timestamp", f"{text[:40]!r} is not a timestamp; give a number, or leave it out for a fresh one")
    return int(text)
