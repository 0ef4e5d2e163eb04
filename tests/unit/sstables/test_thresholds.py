"""Thresholds as operators give them: in variables, in a file, for all tables or for one."""

from __future__ import annotations

from decimal import Decimal
from fractions import Fraction
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sweep_tasks.config import FILE_VARIABLE, Settings, as_environment, load_settings
from sweep_tasks.errors import BadValue
from sweep_tasks.model import TableRef
from sweep_tasks.sstables.statistics import FileThresholds, check_tables, reaches, thresholds_in
from sweep_tasks.store.contract import PhysicalTable

TABLES = "SWEEPFLOW_COMPACTION_TABLES"


def test_settings_and_rules_have_the_same_defaults() -> None:
    found = thresholds_in(Settings())
    assert found.of(None) == found.of("shop.orders") == FileThresholds()


def test_a_share_is_exactly_what_was_written(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("SWEEPFLOW_COMPACTION_ELIGIBLE_SHARE", "0.1")
    monkeypatch.setenv(TABLES, '{"shop.orders": {"dense_share": 0.3}}')
    assert thresholds_in(load_settings()).of("shop.orders").eligible_share == Fraction(1, 10)
    assert thresholds_in(load_settings()).of("shop.orders").dense_share == Fraction(3, 10)
    file = tmp_path / "sweepflow.toml"
    file.write_text('compaction_overlap_share = 0.7\n[compaction_tables."shop.bills"]\ndense_share = 0.7\n')
    monkeypatch.delenv(TABLES)
    monkeypatch.setenv(FILE_VARIABLE, str(file))
    found = thresholds_in(load_settings())
    assert found.of("shop.orders").overlap_share == found.of("shop.bills").dense_share == Fraction(7, 10)


def test_a_table_keeps_the_general_thresholds_that_it_does_not_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SWEEPFLOW_COMPACTION_DENSE_TOMBSTONES", "7")
    monkeypatch.setenv(TABLES, '{"shop.orders": {"eligible_share": -1, "run_warn": 0}, "shop.bills": {}}')
    found = thresholds_in(load_settings())
    assert found.of("shop.orders") == FileThresholds(7, run_warn=0, eligible_share=Fraction(0))
    assert found.of("shop.bills") == found.of("shop.others") == found.of(None) == FileThresholds(7)
    assert found.of("shop.orders").off


ORDERS = PhysicalTable("sweepflow", "shop__orders", 0, {}, TableRef("shop", "orders"))


@pytest.mark.parametrize("name", ["shop.orders", "sweepflow.shop__orders"])
def test_a_table_may_be_named_as_the_store_does_or_as_cassandra_does(
    monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setenv(TABLES, f'{{"{name}": {{"eligible_share": 0}}}}')
    check_tables(load_settings(), [ORDERS])
    assert thresholds_in(load_settings(), [ORDERS]).of(ORDERS.qualified).off


def test_a_missing_table_is_reported_before_another_one_is_compacted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(TABLES, '{"shop.oders": {"eligible_share": 0}, "shop.orders": {}}')
    with pytest.raises(BadValue) as refused:
        check_tables(load_settings(), [ORDERS])
    assert (refused.value.field, refused.value.reason) == ("setting compaction_tables", "unknown_table")
    assert "shop.oders" in str(refused.value)
    assert str(ORDERS.table) not in str(refused.value)


@pytest.mark.parametrize("nothing", ["", "  ", "{}"])
def test_no_tables_is_valid(nothing: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(TABLES, nothing)
    assert load_settings().compaction_tables == {}


@pytest.mark.parametrize(
    ("variable", "value", "field", "reason"),
    [
        (TABLES, "{", "tables", "not_json"),
        (TABLES, "[]", "tables", "dict_type"),
        (TABLES, '{"shop.orders": 1}', "tables.shop.orders", "model_type"),
        (TABLES, '{"shop.orders": {"share": 1}}', "tables.shop.orders.share", "extra_forbidden"),
        (TABLES, '{"shop.orders": {"dense_share": 5}}', "tables.shop.orders.dense_share", "less_than_equal"),
        (TABLES, '{"shop.orders": {"dense_share": NaN}}', "tables.shop.orders.dense_share", "finite_number"),
        ("SWEEPFLOW_COMPACTION_ELIGIBLE_SHARE", "5", "eligible_share", "less_than_equal"),
        ("SWEEPFLOW_COMPACTION_ELIGIBLE_SHARE", "1e-99999", "eligible_share", "decimal_max_places"),
        ("SWEEPFLOW_COMPACTION_DENSE_TOMBSTONES", "1.5", "dense_tombstones", "int_parsing"),
    ],
)
def test_an_invalid_value_is_named(
    variable: str, value: str, field: str, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(variable, value)
    with pytest.raises(BadValue) as refused:
        load_settings()
    assert (refused.value.field, refused.value.reason) == (f"setting compaction_{field}", reason)


def test_thresholds_are_unchanged_after_passing_through_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    tables = {"shop.orders": {"eligible_share": "0.1", "run_warn": -1}, "shop.bills": {}}
    reported = load_settings(compaction_dense_share=Decimal("0.25"), compaction_tables=tables)
    for name, value in as_environment(reported).items():
        monkeypatch.setenv(name, value)
    assert load_settings() == reported
    assert thresholds_in(load_settings()) == thresholds_in(reported)


def test_settings_are_distinguished_by_their_hash() -> None:
    with_tables = [load_settings(compaction_tables={"a.b": {"run_warn": number}}) for number in (1, 1, 2)]
    assert len({*with_tables, load_settings()}) == 3


@given(st.integers(0, 10**30), st.integers(0, 10**30), st.integers(1, 1000), st.integers(1, 1000))
def test_a_share_is_reached_by_what_is_equal_to_it(part: int, whole: int, numerator: int, denominator: int) -> None:
    share = Fraction(numerator, denominator)
    assert reaches(numerator * (part + 1), denominator * (part + 1), share)
    assert not reaches(numerator * (part + 1), denominator * (part + 1) + 1, share)
    assert reaches(part, whole, share) == (part > 0 and (not whole or Fraction(part, whole) >= share))
    assert not reaches(part, whole, Fraction(0))
    assert not reaches(part, whole, -share)
