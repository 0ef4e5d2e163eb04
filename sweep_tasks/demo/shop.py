"""What customers and clerks of the demo's shop do in a minute: every change is one transaction of the client.

| table | strategy | what happens to it |
| --- | --- | --- |
| shop.orders | conservative | new orders; their state is overwritten a few times |
| shop.stock | conservative | few rows, overwritten all the time |
| shop.prices | conservative | imported as a whole, in one large transaction |
| shop.invoices | conservative | reissued; keeps what was overwritten for three hours, longer than the others |
| shop.carts | thorough | filled, changed, deleted |
| shop.sessions | thorough | touched every few minutes, deleted when they end |
| shop.audit | nothing | only ever added to, never swept |
"""

from __future__ import annotations

import json
from random import Random

from sweep_tasks.demo.history import History, Writes
from sweep_tasks.model import DELETE_MARKER, Cell, SweepStrategy, TableMetadata, TableRef

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
    def __init__(self, history: History, random: Random) -> None:
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
        """Most come a step further, a few are cancelled and deleted."""
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
            self._history.write({CARTS: {Cell(self._taken(self._carts), _ITEMS): DELETE_MARKER for _ in range(3)}})

    def _end_sessions(self) -> None:
        new = [self._new("session") for _ in range(8)]
        self._sessions += new
        seen = {Cell(session, _SEEN): self._text(page=self._random.randrange(999)) for session in self._sessions[-32:]}
        ended = [self._taken(self._sessions) for _ in range(8)] if len(self._sessions) > 200 else []
        over = {Cell(session, _SEEN): DELETE_MARKER for session in ended}
        self._history.write({SESSIONS: seen | over})

    # --- what nobody will look at again -------------------------------------------------------------------------

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

    def _taken(self, rows: list[bytes]) -> bytes:
        """The oldest goes first."""
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
