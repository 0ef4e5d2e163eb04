"""One alert, once, by every way that is configured, and never an exception: it runs inside Airflow's own processes.

Claim, send, remember. Whoever finds the run claimed says so in the log and sends nothing. A store that can't be
asked does not silence anybody: an alert that may come twice is better than none.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import TypeVar

import structlog

from sweep_tasks.config import Settings, load_settings
from sweep_tasks.errors import SweepflowError
from sweep_tasks.opening import open_store
from sweep_tasks.orchestration.alert import Alert
from sweep_tasks.orchestration.channels import configured, deliver, write_to_log
from sweep_tasks.orchestration.sent import Claim
from sweep_tasks.store import Store

T = TypeVar("T")
log = structlog.get_logger(__name__)

STORE_PATIENCE_S = 5.0
"""Less than a sweep would wait: a callback has 50 s for everything."""
MAY_COME_TWICE = "The store did not answer when asked whether this was told already, so it may come more than once."


def send_once(alert: Alert) -> bool:
    """True if it went out now: by mail or webhook if either is configured, else in the log."""
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
    claim = Claim(alert)
    mine = _in_store(settings, claim.take)
    if mine is False:
        log.info(f"{alert.key} was alerted about already", code="already_sent", alert=alert.key)
        return False
    out = _send(alert if mine else replace(alert, note=MAY_COME_TWICE), settings)
    if mine:
        _in_store(settings, lambda store: claim.remember(store, settings.alert_memory_s) if out else claim.drop(store))
    return out


def _send(alert: Alert, settings: Settings) -> bool:
    """By all channels at once: one that hangs takes no time from another."""
    write_to_log(alert)
    channels = configured(settings)
    if not channels:
        return True
    with ThreadPoolExecutor(len(channels)) as pool:
        return any(list(pool.map(lambda channel: deliver(channel, alert, settings.alert_attempts), channels)))


def _in_store(settings: Settings, work: Callable[[Store], T]) -> T | None:
    """None, and a line in the log, if the store can't be asked."""
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
            f"what was alerted about can't be looked up or remembered, alerts may come twice: {error}",
            code="memory_unavailable",
            error=error.code,
        )
    except Exception as error:
        log.warning(
            f"what was alerted about can't be looked up or remembered: a defect ({type(error).__name__})",
            code="memory_defect",
        )
    return None
