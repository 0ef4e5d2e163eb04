"""Random tables and protections that entries are judged with."""

from __future__ import annotations

from hypothesis import strategies as st

from sweep_tasks.model import Span, SweepStrategy, TableRef
from sweep_tasks.protection.records import Mode, Record, State, Target
from sweep_tasks.sweep.rules import TableView

TABLES = {1: TableRef.parse("app.items"), 2: TableRef.parse("app.other"), 300: TableRef.parse("app.third")}
SWEEP_TS = 60

spans = st.sampled_from([Span(), Span(b"a", b"b"), Span(b"b"), Span(b"", b"a")])
records = st.lists(
    st.builds(
        lambda ts, mode, table, rows: Record(f"{ts} {mode} {table}", ts, mode, (Target(table, rows),), State.ACCEPTED),
        st.integers(1, SWEEP_TS),
        st.sampled_from(Mode),
        st.sampled_from(sorted(TABLES.values())),
        spans,
    ),
    max_size=4,
    unique_by=lambda each: each.id,
)
views = st.builds(
    TableView,
    st.sampled_from(SweepStrategy),
    mark=st.sampled_from([0, 0, 10]),
    horizon=st.sampled_from([None, None, 30]),
    check_first=st.booleans(),
    paused=st.booleans(),
)
