"""Deliver an alert once, by every channel. No exception leaves this module: it runs inside Airflow's processes."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Collection
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import TypeVar

import structlog

from sweep_tasks.alerts.channels import configured, deliver, write_to_log
from sweep_tasks.alerts.message import Alert, AlertKind
from sweep_tasks.config import Settings, load_settings
from sweep_tasks.connections import open_store
from sweep_tasks.encoding import sized
from sweep_tasks.errors import SweepflowError
from sweep_tasks.model import Cell
from sweep_tasks.orchestration.names import COMPACTION, PROTECTED_TIMESTAMPS
from sweep_tasks.store.contract import Change, Store
from sweep_tasks.store.schema import ALERTS

# ---------------------------------------------------------------------------------------------------------------------
# The runs for which alerts were sent, so that each alert is sent once.
#
# A callback may run twice (after a lost heartbeat), and different processes report the failure and the missed deadline
# of one run. So a process claims the run in the store before it sends, and one of them wins. The claim lasts two
# minutes, longer than sending can take: a process that dies while it sends does not silence the run for good. When a
# message has been sent the claim becomes a record of that; if none was sent, the claim is dropped.
# ---------------------------------------------------------------------------------------------------------------------

CLAIM_MS = 120_000
_SENT = b"sent"


class AlertClaim:
    """The right to send one alert."""

    def __init__(self, alert: Alert) -> None:
        self._cell = Cell(sized(alert.dag_id.encode()) + sized(alert.run_id.encode()), b"%d" % alert.attempt)
        self._mark = uuid.uuid4().bytes

    def take(self, store: Store) -> bool:
        """Return False if another process sends it or has sent it."""
        return store.put_if_absent(ALERTS, {self._cell: self._mark}, CLAIM_MS)[self._cell] == self._mark

    def remember(self, store: Store, seconds: int) -> None:
        self._become(store, _SENT, seconds * 1000)

    def drop(self, store: Store) -> None:
        self._become(store, None)

    def _become(self, store: Store, value: bytes | None, ttl_ms: int | None = None) -> None:
        """Change the claim unless it has expired: then another process may have it."""
        store.compare_and_set(ALERTS, self._cell.row, {self._cell.column: Change(self._mark, value)}, ttl_ms)


# ---------------------------------------------------------------------------------------------------------------------
# The problems for which alerts were sent recently.
#
# A protection without an owner is found again in every run, every ten minutes. The run fails each time; an alert is
# sent the first time, for a new problem beside it, and again after `protection_alert_again_s`. The same holds for a
# partition whose reads will soon fail (`compaction_alert_again_s`). If the store does not answer, alerts are sent.
# ---------------------------------------------------------------------------------------------------------------------

log = structlog.get_logger(__name__)


def send_if_new(about: Collection[str], send: Callable[[], bool], dag_id: str = PROTECTED_TIMESTAMPS) -> None:
    """Send an alert unless all of its problems were reported recently. `send` returns whether a message was sent. If
    not, the problems count as new at the next call."""
    try:
        settings = load_settings()
        with open_store(settings.store, settings) as store:
            again_s = _again_s(dag_id, settings)
            claims = [_claim(dag_id, each) for each in about] if again_s else []
            new = [claim for claim in claims if claim.take(store)]
            if claims and not new:
                log.info("alerts about all of these problems were sent already", code="already_sent")
                return
            out = send()
            for claim in new:
                claim.remember(store, again_s) if out else claim.drop(store)
    except SweepflowError as error:
        log.warning(
            f"earlier alerts can't be looked up, so alerts may be sent twice: {error}",
            code="memory_unavailable",
            error=error.code,
        )
        send()


def _claim(dag_id: str, about: str) -> AlertClaim:
    return AlertClaim(Alert(dag_id, about, AlertKind.NEEDS_ATTENTION, "needs attention", "", ""))


def _again_s(dag_id: str, settings: Settings) -> int:
    return settings.compaction_alert_again_s if dag_id == COMPACTION else settings.protection_alert_again_s


# ---------------------------------------------------------------------------------------------------------------------
# One alert, once, by every configured channel, without exceptions: this runs inside Airflow's own processes.
#
# Claim, send, remember. A process that finds the run claimed logs that and sends nothing. If the store does not answer,
# the alert is sent all the same: an alert that may come twice is better than none.
# ---------------------------------------------------------------------------------------------------------------------

T = TypeVar("T")
STORE_PATIENCE_S = 5.0
"""Less than a sweep waits: a callback has 50 s for everything."""
MAY_COME_TWICE = "The store did not answer, so it is not known whether this alert was sent before."


def send_once(alert: Alert) -> bool:
    """Send an alert unless it was sent before. Return True if it was sent now: by mail or webhook if one is configured,
    else to the log."""
    try:
        settings = load_settings()
    except SweepflowError as error:
        write_to_log(alert)
        log.error(
            f"the alert about {alert.key} is in this log only: {error}",
            code="only_logged",
            alert=alert.key,
            field=error.field,
        )
        return False
    claim = AlertClaim(alert)
    mine = _in_store(settings, claim.take)
    if mine is False:
        log.info(f"the alert about {alert.key} was sent already", code="already_sent", alert=alert.key)
        return False
    out = _send(alert if mine else replace(alert, note=MAY_COME_TWICE), settings)
    if mine:
        _in_store(settings, lambda store: claim.remember(store, settings.alert_memory_s) if out else claim.drop(store))
    return out


def _send(alert: Alert, settings: Settings) -> bool:
    """Send by all channels at the same time: a slow one does not delay another."""
    write_to_log(alert)
    channels = configured(settings)
    if not channels:
        return True
    with ThreadPoolExecutor(len(channels)) as pool:
        return any(list(pool.map(lambda channel: deliver(channel, alert, settings.alert_attempts), channels)))


def _in_store(settings: Settings, work: Callable[[Store], T]) -> T | None:
    """Return the result of `work`; None, with a line in the log, if the store does not answer."""
    patience = {
        "sqlite_busy_timeout_s": min(STORE_PATIENCE_S, settings.sqlite_busy_timeout_s),
        "cassandra_timeout_s": min(STORE_PATIENCE_S, settings.cassandra_timeout_s),
        "cassandra_attempts": 1,
    }
    try:
        with open_store(settings.store, settings.model_copy(update=patience)) as store:
            return work(store)
    except SweepflowError as error:
        log.warning(
            f"earlier alerts can't be looked up or recorded, so alerts may be sent twice: {error}",
            code="memory_unavailable",
            error=error.code,
        )
    except Exception as error:
        log.warning(
            f"earlier alerts can't be looked up or recorded: a defect ({type(error).__name__})",
            code="memory_defect",
        )
    return None
