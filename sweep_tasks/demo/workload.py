"""Six hours of a shop's history, the same for the same seed, and the folder of the demo."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from random import Random

from sweep_tasks.clock import Clock
from sweep_tasks.config import Settings
from sweep_tasks.connections import open_store
from sweep_tasks.demo.history import DemoHistory, LastingTransaction, Writes
from sweep_tasks.errors import BadValue, NotInitialised
from sweep_tasks.model import DELETE_MARKER, Cell, SweepStrategy, TableMetadata, TableRef
from sweep_tasks.protection.records import Mode, Record, Target
from sweep_tasks.queue.progress import Progress
from sweep_tasks.store import initialise_store
from sweep_tasks.store.contract import Store
from sweep_tasks.tables.catalog import Catalog

# ---------------------------------------------------------------------------------------------------------------------
# What customers and clerks of the shop do in a minute: every change is one transaction.
#
# | table | strategy | what happens to it |
# | --- | --- | --- |
# | shop.orders | conservative | new orders; their state is overwritten a few times |
# | shop.stock | conservative | few rows, overwritten all the time |
# | shop.prices | conservative | imported as a whole, in one large transaction |
# | shop.invoices | conservative | reissued; keeps what was overwritten for three hours, longer than the others |
# | shop.carts | thorough | filled, changed, deleted |
# | shop.sessions | thorough | touched every few minutes, deleted when they end |
# | shop.audit | nothing | append-only, never swept |
# ---------------------------------------------------------------------------------------------------------------------

ORDERS, STOCK, PRICES, INVOICES, CARTS, SESSIONS, AUDIT = (
    TableRef.parse(f"shop.{name}") for name in ("orders", "stock", "prices", "invoices", "carts", "sessions", "audit")
)
TABLES = {
    ORDERS: TableMetadata(SweepStrategy.CONSERVATIVE),
    STOCK: TableMetadata(SweepStrategy.CONSERVATIVE),
    PRICES: TableMetadata(SweepStrategy.CONSERVATIVE),
    INVOICES: TableMetadata(SweepStrategy.CONSERVATIVE, retention_s=3 * 3_600),
    CARTS: TableMetadata(SweepStrategy.THOROUGH),
    SESSIONS: TableMetadata(SweepStrategy.THOROUGH),
    AUDIT: TableMetadata(SweepStrategy.NOTHING),
}
PRICE_LIST = 1_200
_ARTICLES = 120
_STATES = ("new", "paid", "packed", "shipped", "delivered")
_STATE, _CUSTOMER, _ITEMS, _LEVEL, _SEEN = b"state", b"customer", b"items", b"level", b"last_seen"
_ORDER = (_STATE, _CUSTOMER, _ITEMS)


class Shop:
    """The daily business: writes to all tables, at random."""

    def __init__(self, history: DemoHistory, random: Random) -> None:
        self._history = history
        self._random = random
        self._numbers = 0
        self._orders: dict[bytes, int] = {}
        self._invoices: list[bytes] = []
        self._carts: list[bytes] = []
        self._sessions: list[bytes] = []

    def open_for_a_minute(self) -> None:
        for _ in range(2):
            self._sell()
            self._take_order()
        self._process_orders()
        self._invoice()
        self._fill_carts()
        self._end_sessions()

    # --- conservative tables ------------------------------------------------------------------------------------

    def _take_order(self) -> None:
        order = self._new("order")
        self._orders[order] = 0
        audit = {Cell(order, b"created"): self._text(by="web", order=order.decode())}
        self._history.write({ORDERS: self._order(order), AUDIT: audit})

    def _order(self, row: bytes) -> dict[Cell, bytes]:
        return {
            Cell(row, _STATE): self._state(0),
            Cell(row, _CUSTOMER): self._text(customer=self._random.randrange(5_000)),
            Cell(row, _ITEMS): self._items(),
        }

    def _process_orders(self) -> None:
        """Advance some orders by a step; cancel and delete a few."""
        changed: dict[Cell, bytes] = {}
        for order in self._some(list(self._orders), 6):
            self._orders[order] += 1
            if self._random.random() < 0.05:
                changed |= dict.fromkeys((Cell(order, column) for column in _ORDER), DELETE_MARKER)
                del self._orders[order]
                continue
            changed[Cell(order, _STATE)] = self._state(self._orders[order])
            if self._orders[order] == len(_STATES) - 1:
                del self._orders[order]
        self._history.write({ORDERS: changed})

    def _sell(self) -> None:
        self._history.write({STOCK: self.sold_articles()})

    def sold_articles(self) -> dict[Cell, bytes]:
        articles = self._random.sample(range(_ARTICLES), 20)
        return {Cell(_article(n), _LEVEL): self._text(left=self._random.randrange(500)) for n in articles}

    def import_prices(self) -> None:
        cents = self._random.sample(range(99_999), PRICE_LIST)
        self._history.write(
            {PRICES: {Cell(_article(n), b"price"): self._text(cents=cents[n]) for n in range(PRICE_LIST)}}
        )

    def _invoice(self) -> None:
        new = [self._new("invoice") for _ in range(2)]
        self._invoices += new
        issued = new + self._some(self._invoices[:-2], 4)
        self._history.write({INVOICES: {Cell(invoice, b"document"): self._items() for invoice in issued}})

    # --- thorough tables ----------------------------------------------------------------------------------------

    def _fill_carts(self) -> None:
        new = [self._new("cart") for _ in range(3)]
        self._carts += new
        changed = new + self._some(self._carts, 6)
        self._history.write({CARTS: {Cell(cart, _ITEMS): self._items() for cart in changed}})
        if len(self._carts) > 60:
            self._history.write(
                {CARTS: {Cell(self._take_oldest(self._carts), _ITEMS): DELETE_MARKER for _ in range(3)}}
            )

    def _end_sessions(self) -> None:
        new = [self._new("session") for _ in range(8)]
        self._sessions += new
        seen = {Cell(session, _SEEN): self._text(page=self._random.randrange(999)) for session in self._sessions[-32:]}
        ended = [self._take_oldest(self._sessions) for _ in range(8)] if len(self._sessions) > 200 else []
        over = {Cell(session, _SEEN): DELETE_MARKER for session in ended}
        self._history.write({SESSIONS: seen | over})

    # --- writes of clients that die -------------------------------------------------------------------------

    def abandoned_order(self) -> Writes:
        return {ORDERS: self._order(self._new("order"))}

    def abandoned_cart(self) -> Writes:
        return {CARTS: {Cell(self._new("cart"), _ITEMS): self._items()}}

    # --- values -------------------------------------------------------------------------------------------------

    def _new(self, kind: str) -> bytes:
        self._numbers += 1
        return f"{kind}-{self._numbers:06d}".encode()

    def _some(self, rows: list[bytes], most: int) -> list[bytes]:
        return self._random.sample(rows, min(most, len(rows)))

    def _take_oldest(self, rows: list[bytes]) -> bytes:
        """Remove and return the oldest row."""
        return rows.pop(0)

    def _items(self) -> bytes:
        count = self._random.randint(1, 5)
        return self._text(articles={f"article-{self._random.randrange(_ARTICLES):04d}": 1 for _ in range(count)})

    def _state(self, number: int) -> bytes:
        return self._text(state=_STATES[number], clerk=self._random.randrange(40))

    @staticmethod
    def _text(**fields: object) -> bytes:
        return json.dumps(fields).encode()


def _article(number: int) -> bytes:
    return b"article-%04d" % number


# ---------------------------------------------------------------------------------------------------------------------
# Six hours of a shop's history, the same for the same seed, with everything that makes sweeping hard.
#
# Besides the daily business: clients that die while they commit, whose values a reader meets or not; write conflicts;
# whole price lists in one transaction; a delivery that commits long after its transaction started; a backup that
# protects what was visible two hours after the beginning; a report that still runs, in a transaction that has been open
# for forty minutes.
# ---------------------------------------------------------------------------------------------------------------------

MINUTES = 360
BACKUP_ID = "backup:shop-nightly"
BACKUP_AT = MINUTES - 240
PRICE_IMPORTS = tuple(MINUTES - ago for ago in (340, 270, 200, 130, 20))
SLOW_DELIVERY = (MINUTES - 75, MINUTES - 50)
"""Open at the sweep timestamp of conservative sweeps, an hour ago: it blocks its shard."""
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
    report: LastingTransaction
    """Still open: the caller closes it."""


def load(
    store: Store,
    settings: Settings,
    clock: Clock,
    shards: int,
    seed: int = 1,
    business_every: int = 1,
    on_minute: Callable[[int], None] = lambda minute: None,
) -> Loaded:
    """Fill a store. `on_minute` gets how many minutes of history are written. With `business_every` the daily business
    happens only once in that many minutes, for a store with slow transactions; everything else stays the same."""
    catalog = Catalog(store)
    if TABLES.keys() & catalog.list().keys():
        raise BadValue("store", "contains tables of the demo already; name an empty store")
    Progress(store).raise_shards(shards)
    for table, metadata in TABLES.items():
        catalog.create(table, metadata)
    history = DemoHistory(store, settings, clock, MINUTES)
    day = _Day(history, settings, Random(seed), business_every)  # noqa: S311 - reproducible, not secret
    for minute in range(MINUTES):
        history.advance_to(minute)
        day.simulate(minute)
        on_minute(minute + 1)
    history.advance_to(MINUTES)
    history.close()
    return day.loaded()


class _Day:
    """Everything that happens in the six hours."""

    def __init__(self, history: DemoHistory, settings: Settings, random: Random, business_every: int) -> None:
        self._history = history
        self._settings = settings
        self._shop = Shop(history, random)
        self._business_every = business_every
        self._deaths = self._lost_races = self._backup_ts = 0
        self._report: LastingTransaction | None = None

    def simulate(self, minute: int) -> None:
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
            self._report = LastingTransaction(self._history.store, self._settings.lease_ttl_s)

    def _let_a_client_die(self) -> None:
        """Alternate: a client dies with values that no reader meets, before any value is stored, or with values that a
        reader meets."""
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
            raise RuntimeError("the history ended before the report started")
        return Loaded(
            self._history.transactions,
            self._history.writes,
            self._deaths,
            self._lost_races,
            self._backup_ts,
            self._report,
        )


# ---------------------------------------------------------------------------------------------------------------------
# The folder of the demo: its store is created again each time, and other stores are not touched.
# ---------------------------------------------------------------------------------------------------------------------

DEFAULT_FOLDER = Path(".sweepflow", "demo")


@dataclass(frozen=True, slots=True)
class DemoFolder:
    """The folder of a demo, and the store in it."""

    folder: Path

    @property
    def file(self) -> Path:
        return self.folder / "demo.db"

    @property
    def url(self) -> str:
        return f"sqlite:///{self.file}"

    def exists(self) -> bool:
        return self.file.exists()

    def recreate(self, settings: Settings) -> bool:
        """Create an empty store. Return True if it replaced the store of an earlier demo."""
        replaced = self.exists()
        if replaced:
            self._check_ours(settings)
            for file in (self.file, *(self.file.with_name(self.file.name + tail) for tail in ("-wal", "-shm"))):
                file.unlink(missing_ok=True)
        self.folder.mkdir(parents=True, exist_ok=True)
        initialise_store(self.url, settings)
        return replaced

    def _check_ours(self, settings: Settings) -> None:
        try:
            with open_store(self.url, settings) as store:
                foreign = Catalog(store).list().keys() - TABLES.keys()
        except NotInitialised:
            return
        if foreign:
            raise BadValue("folder", f"{self.file} contains tables that are not of the demo; name another folder")
