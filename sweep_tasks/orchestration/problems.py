"""Which problems somebody was told about lately.

A record that nobody answers for is found again in every run, ten minutes after the last. The run is red each time; the
message goes out for the first, for a new problem beside it, and again after `protection_alert_again_s`. It is the same
with a partition that reads soon give up on (`compaction_alert_again_s`). A store that can't be asked silences nobody.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

import structlog

from sweep_tasks.config import Settings, load_settings
from sweep_tasks.errors import SweepflowError
from sweep_tasks.opening import open_store
from sweep_tasks.orchestration.alert import Alert
from sweep_tasks.orchestration.names import COMPACTION, PROTECTED_TIMESTAMPS
from sweep_tasks.orchestration.sent import Claim

log = structlog.get_logger(__name__)


def send_if_new(about: Collection[str], send: Callable[[], bool], dag_id: str = PROTECTED_TIMESTAMPS) -> None:
    """`send` says whether the message went out: what did not is still to be told."""
    try:
        settings = load_settings()
        with open_store(settings.store, settings) as store:
            again_s = _again_s(dag_id, settings)
            claims = [_claim(dag_id, each) for each in about] if again_s else []
            new = [claim for claim in claims if claim.take(store)]
            if claims and not new:
                log.info("all of this was alerted about already", code="already_sent")
                return
            out = send()
            for claim in new:
                claim.remember(store, again_s) if out else claim.drop(store)
    except SweepflowError as error:
        log.warning(f"what was alerted about can't be looked up, alerts may come twice: {error}")
        send()


def _claim(dag_id: str, about: str) -> Claim:
    return Claim(Alert(dag_id, about, "needs attention", "", ""))


def _again_s(dag_id: str, settings: Settings) -> int:
    return settings.compaction_alert_again_s if dag_id == COMPACTION else settings.protection_alert_again_s
