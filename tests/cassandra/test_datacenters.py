"""Two datacenters: consistency levels with which each could decide, read or write alone are refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from sweep_tasks.config import Settings
from sweep_tasks.connections import open_store
from sweep_tasks.coordination.timestamps import TimestampService
from sweep_tasks.errors import BadValue, NotInitialised
from sweep_tasks.local.cassandra import LocalCluster
from sweep_tasks.local.cassandra_node import session_with
from sweep_tasks.store import initialise_store

DECIDED_BY_ONE = Settings(cassandra_serial_consistency="local_serial")
SERIAL, READING = "setting cassandra_serial_consistency", "setting cassandra_read_consistency"


@pytest.fixture(scope="module")
def in_both(two_datacenters: LocalCluster) -> str:
    """The address of a store with a replica in each datacenter."""
    url = two_datacenters.url("both")
    initialise_store(url, Settings())
    return url


def refused(use: Callable[[str, Settings], object], url: str, settings: Settings) -> tuple[str, str | None, str]:
    with pytest.raises(BadValue) as error:
        use(url, settings)
    return error.value.field, error.value.reason, str(error.value)


def test_replicas_are_in_both_datacenters(two_datacenters: LocalCluster, in_both: str) -> None:
    with session_with("127.0.0.1", two_datacenters.port) as session:
        found: Any = session.execute(
            "SELECT replication FROM system_schema.keyspaces WHERE keyspace_name = 'both'"
        ).one()
    assert (found.replication["east"], found.replication["west"]) == ("1", "1")


@pytest.mark.parametrize("use", [open_store, initialise_store])
def test_a_decision_of_one_datacenter_is_refused_where_both_have_replicas(
    in_both: str, use: Callable[[str, Settings], object]
) -> None:
    field, reason, text = refused(use, in_both, DECIDED_BY_ONE)
    assert (field, reason) == (SERIAL, "several_datacenters")
    assert all(name in text for name in ("east", "west"))


def test_a_keyspace_that_would_be_refused_is_not_created(two_datacenters: LocalCluster) -> None:
    url = two_datacenters.url("never")
    assert refused(initialise_store, url, DECIDED_BY_ONE)[:2] == (SERIAL, "several_datacenters")
    with pytest.raises(NotInitialised):
        open_store(url, Settings())


def test_a_strategy_that_knows_no_datacenters_may_have_replicas_in_both(two_datacenters: LocalCluster) -> None:
    with session_with("127.0.0.1", two_datacenters.port) as session:
        session.execute(
            "CREATE KEYSPACE simple WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}", timeout=60
        )
    field, reason, _ = refused(initialise_store, two_datacenters.url("simple"), DECIDED_BY_ONE)
    assert (field, reason) == (SERIAL, "several_datacenters")


def test_one_datacenter_may_decide_where_it_has_all_replicas(two_datacenters: LocalCluster) -> None:
    url = f"{two_datacenters.url('eastern')}&datacenter=east"
    initialise_store(url, DECIDED_BY_ONE)
    with open_store(url, DECIDED_BY_ONE) as store:
        timestamps = TimestampService(store)
        assert timestamps.fresh() < timestamps.fresh()


def test_levels_that_each_stay_in_one_datacenter_are_refused(in_both: str) -> None:
    settings = Settings(cassandra_read_consistency="local_quorum", cassandra_write_consistency="local_quorum")
    assert refused(open_store, in_both, settings)[:2] == (READING, "no_overlap")


def test_a_write_in_each_datacenter_may_be_read_in_one(in_both: str) -> None:
    settings = Settings(cassandra_read_consistency="local_quorum", cassandra_write_consistency="each_quorum")
    with (
        open_store(f"{in_both}&datacenter=east", settings) as east,
        open_store(f"{in_both}&datacenter=west", settings) as west,
    ):
        assert TimestampService(east).fresh() < TimestampService(west).fresh()


def test_more_replicas_than_a_datacenter_has_nodes_are_refused(two_datacenters: LocalCluster) -> None:
    url = two_datacenters.url("toomany").replace("replication=1", "replication=2")
    field, _, text = refused(initialise_store, url, Settings())
    assert (field, "?replication=1" in text) == ("setting cassandra_replication", True)
