"""Six hours in the life of a shop, the same for the same seed, with everything that makes sweeping hard.

Besides the daily business (`shop.py`): clients that die while they commit, met by a reader or never again; clients that
lose a race; whole price lists in one transaction; a delivery booked long after its transaction began; a backup that
protects what was visible two hours after the opening; a report that still runs, in a transaction that is open since
forty minutes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from random import Random

from sweep_tasks.catalog import Catalog
from sweep_tasks.clock import Clock
from sweep_tasks.config import Settings
from sweep_tasks.demo.history import History, OpenTransaction
from sweep_tasks.demo.shop import CARTS, ORDERS, STOCK, TABLES, Shop
from sweep_tasks.errors import BadValue
from sweep_tasks.model import Cell
from sweep_tasks.protection.records import Mode, Record, Target
from sweep_tasks.queue.progress import Progress
from sweep_tasks.store.contract import Store

MINUTES = 360
BACKUP_ID = "backup:shop-nightly"
BACKUP_AT = MINUTES - 240
PRICE_IMPORTS = tuple(MINUTES - ago for ago in (340, 270, 200, 130, 20))
SLOW_DELIVERY = (MINUTES - 75, MINUTES - 50)
"""Open across the moment that conservative sweeps go up to, an hour ago: it blocks its shard."""
REPORT_AT = MINUTES - 40
_A_DEATH_EVERY = 9
_A_RACE_EVERY = 25


@dataclass(frozen=True, slots=True)
class Loaded:
    transactions: int
    writes: int
    deaths: int
    lost_races: int
    backup_ts: int
    report: OpenTransaction
    """Still open: whoever loaded the store closes it."""


def load(
    store: Store,
    settings: Settings,
    clock: Clock,
    shards: int,
    seed: int = 1,
    business_every: int = 1,
    on_minute: Callable[[int], None] = lambda minute: None,
) -> Loaded:
    """Fill a store. `on_minute` hears how many minutes of history are there. With `business_every` customers
    come once in so many minutes only, for a store that takes its time over a transaction; all else happens as ever."""
    catalog = Catalog(store)
    if TABLES.keys() & catalog.list().keys():
        raise BadValue("store", "holds tables of the demo already; name an empty one")
    Progress(store).raise_shards(shards)
    for table, metadata in TABLES.items():
        catalog.create(table, metadata)
    history = History(store, settings, clock, MINUTES)
    day = _Day(history, settings, Random(seed), business_every)  # noqa: S311 - to be the same each time, not to be secret
    for minute in range(MINUTES):
        history.reach(minute)
        day.live_through(minute)
        on_minute(minute + 1)
    history.reach(MINUTES)
    history.close()
    return day.loaded()


class _Day:
    def __init__(self, history: History, settings: Settings, random: Random, business_every: int) -> None:
        self._history = history
        self._settings = settings
        self._shop = Shop(history, random)
        self._business_every = business_every
        self._deaths = self._lost_races = self._backup_ts = 0
        self._report: OpenTransaction | None = None

    def live_through(self, minute: int) -> None:
        if minute % self._business_every == 0:
            self._shop.open_for_a_minute()
        if minute % _A_DEATH_EVERY == 4:
            self._let_a_client_die()
        if minute % _A_RACE_EVERY == 7:
            self._lost_races += self._history.lose_a_race({STOCK: self._shop.sold_articles()})
        if minute in PRICE_IMPORTS:
            self._shop.import_prices()
        if minute == BACKUP_AT:
            self._protect_backup()
        if minute == SLOW_DELIVERY[0]:
            self._delivery = self._history.begin({STOCK: {Cell(b"delivery", b"list"): b"arrived"}})
        if minute == SLOW_DELIVERY[1]:
            self._delivery.commit()
        if minute == REPORT_AT:
            self._report = OpenTransaction(self._history.store, self._settings.lease_ttl_s)

    def _let_a_client_die(self) -> None:
        """In turn: with values that nobody meets again, before any value was stored, and where the next one looks."""
        kind, self._deaths = self._deaths % 3, self._deaths + 1
        writes = self._shop.abandoned_cart() if self._deaths % 2 else self._shop.abandoned_order()
        self._history.die_committing(writes, values_written=kind != 1)
        if kind == 2:
            self._history.read(writes)

    def _protect_backup(self) -> None:
        self._backup_ts = self._history.now_ts()
        record = Record(BACKUP_ID, self._backup_ts, Mode.AT, (Target(ORDERS), Target(CARTS)))
        self._history.protect(record)

    def loaded(self) -> Loaded:
        if self._report is None:
            raise RuntimeError("the day ended before the report began")
        return Loaded(
            self._history.transactions,
            self._history.writes,
            self._deaths,
            self._lost_races,
            self._backup_ts,
            self._report,
        )
