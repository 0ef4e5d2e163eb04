from __future__ import annotations

from dataclasses import replace

from sweep_tasks.alerts.delivery import CLAIM_MS, AlertClaim
from sweep_tasks.alerts.message import Alert, AlertKind
from sweep_tasks.store import Store
from tests.support.clock import ManualClock

ALERT = Alert("dag", "run", AlertKind.FAILED, "failed", "do", "link")


def test_one_of_two_senders_gets_the_claim(store: Store) -> None:
    first, second = AlertClaim(ALERT), AlertClaim(ALERT)
    assert first.take(store)
    assert not second.take(store)
    assert first.take(store), "asking again after a lost answer"


def test_other_runs_dags_and_attempts_are_claimed_apart(store: Store) -> None:
    others = [replace(ALERT, dag_id="dagr", run_id="un"), replace(ALERT, run_id="other"), replace(ALERT, attempt=1)]
    assert all(AlertClaim(alert).take(store) for alert in [ALERT, *others])


def test_what_was_dropped_can_be_claimed_again(store: Store) -> None:
    first = AlertClaim(ALERT)
    first.take(store)
    first.drop(store)
    assert AlertClaim(ALERT).take(store)


def test_a_crashed_sender_does_not_suppress_the_alert_permanently(store: Store, clock: ManualClock) -> None:
    AlertClaim(ALERT).take(store)
    clock.advance(CLAIM_MS / 1000 - 1)
    assert not AlertClaim(ALERT).take(store)
    clock.advance(2)
    assert AlertClaim(ALERT).take(store)


def test_what_was_sent_is_remembered_for_as_long_as_asked(store: Store, clock: ManualClock) -> None:
    first = AlertClaim(ALERT)
    first.take(store)
    first.remember(store, seconds=1_000)
    clock.advance(999)
    assert not AlertClaim(ALERT).take(store)
    clock.advance(2)
    assert AlertClaim(ALERT).take(store)


def test_a_sender_too_slow_to_keep_its_claim_does_not_touch_the_next_one(store: Store, clock: ManualClock) -> None:
    slow, next_one = AlertClaim(ALERT), AlertClaim(ALERT)
    slow.take(store)
    clock.advance(CLAIM_MS / 1000 + 1)
    assert next_one.take(store)
    slow.drop(store)
    assert not AlertClaim(ALERT).take(store)
