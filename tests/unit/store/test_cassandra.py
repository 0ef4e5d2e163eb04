"""What can be known of a Cassandra store without one: its address, its levels, the names of its tables."""

from __future__ import annotations

import pytest

from sweep_tasks.config import Consistency, Settings, load_settings
from sweep_tasks.errors import BadValue
from sweep_tasks.model import TableRef
from sweep_tasks.store.cassandra.address import CassandraAddress
from sweep_tasks.store.cassandra.connection import levels_overlap
from sweep_tasks.store.cassandra.names import identity, physical_name, quoted
from sweep_tasks.store.location import StoreLocation, from_anywhere
from sweep_tasks.store.system import QUEUE_CELLS, TRANSACTIONS


class TestAddress:
    @pytest.mark.parametrize(
        ("url", "expected"),
        [
            ("cassandra://one/shop", CassandraAddress(("one",), 9042, "shop")),
            ("cassandra://one,two:9999/shop", CassandraAddress(("one", "two"), 9999, "shop")),
            ("cassandra://one:9999,two:9999/shop", CassandraAddress(("one", "two"), 9999, "shop")),
            ("cassandra://[::1]:9999/shop", CassandraAddress(("::1",), 9999, "shop")),
            (
                "cassandra://10.0.0.1/shop?replication=2&datacenter=east",
                CassandraAddress(("10.0.0.1",), 9042, "shop", 2, "east"),
            ),
        ],
    )
    def test_names_nodes_a_port_and_a_keyspace(self, url: str, expected: CassandraAddress) -> None:
        location = StoreLocation.parse(url)
        assert location.cassandra == expected
        assert from_anywhere(url) == url

    def test_is_shown_as_it_can_be_given(self) -> None:
        url = "cassandra://one,two:9042/shop?replication=2&datacenter=east"
        assert str(StoreLocation.parse(url)) == url

    @pytest.mark.parametrize(
        ("url", "reason"),
        [
            ("cassandra:one/shop", "malformed"),
            ("cassandra:///shop", "no_node"),
            ("cassandra://one,/shop", "no_node"),
            ("cassandra://one", "bad_keyspace"),
            ("cassandra://one/shop/more", "bad_keyspace"),
            ("cassandra://one/1shop", "bad_keyspace"),
            ("cassandra://one:1,two:2/shop", "several_ports"),
            ("cassandra://one:port/shop", "bad_port"),
            ("cassandra://one:70000/shop", "bad_port"),
            ("cassandra://one/shop?replication=0", "bad_replication"),
            ("cassandra://one/shop?level=one", "unknown_parameter"),
        ],
    )
    def test_a_wrong_one_is_refused_with_what_is_wrong(self, url: str, reason: str) -> None:
        with pytest.raises(BadValue) as refused:
            StoreLocation.parse(url)
        assert (refused.value.field, refused.value.reason) == ("store", reason)

    def test_a_password_in_it_is_refused_and_not_repeated(self) -> None:
        with pytest.raises(BadValue) as refused:
            StoreLocation.parse("cassandra://anna:geheim@one/shop")
        assert (refused.value.field, refused.value.reason) == ("store", "credentials")
        assert "geheim" not in str(refused.value)
        assert "anna" not in str(refused.value)


class TestLevels:
    """A read must reach a copy that a write has reached."""

    @pytest.mark.parametrize(
        ("reading", "writing", "copies", "overlap"),
        [
            ("quorum", "quorum", {"": 3}, True),
            ("quorum", "quorum", {"": 1}, True),
            ("one", "quorum", {"": 3}, False),
            ("one", "all", {"": 3}, True),
            ("all", "one", {"": 3}, True),
            ("two", "two", {"": 3}, True),
            ("two", "two", {"": 5}, False),
            ("three", "two", {"": 4}, True),
            ("local_quorum", "local_quorum", {"east": 3}, True),
            ("local_quorum", "local_quorum", {"east": 3, "west": 3}, False),
            ("local_quorum", "each_quorum", {"east": 3, "west": 3}, True),
            ("quorum", "each_quorum", {"east": 3, "west": 3}, True),
            ("one", "each_quorum", {"east": 3, "west": 3}, False),
            ("quorum", "quorum", {"east": 3, "west": 3}, True),
        ],
    )
    def test_overlap_or_do_not(
        self, reading: Consistency, writing: Consistency, copies: dict[str, int], overlap: bool
    ) -> None:
        assert levels_overlap(reading, writing, copies) is overlap


class TestNames:
    def test_tables_are_called_as_atlasdb_calls_them(self) -> None:
        assert physical_name(QUEUE_CELLS, 1) == "sweep__sweepableCells"
        assert physical_name(TRANSACTIONS, 1) == "_transactions"

    def test_a_table_made_anew_is_another_one(self) -> None:
        table = TableRef.parse("app.items")
        names = {physical_name(table, generation) for generation in (1, 2, 3)}
        assert len(names) == 3
        assert len({identity("shop", name) for name in names}) == 3

    def test_everybody_gives_a_table_the_same_identity(self) -> None:
        assert identity("shop", "app__items") == identity("shop", "app__items") != identity("stop", "app__items")

    def test_a_quote_in_a_name_stays_in_the_name(self) -> None:
        assert quoted('a"; DROP TABLE x; --') == '"a""; DROP TABLE x; --"'


class TestSettings:
    @pytest.mark.parametrize(
        ("given", "field", "reason"),
        [
            ({"cassandra_user": "anna"}, "setting", "incomplete_login"),
            ({"cassandra_password": "geheim"}, "setting", "incomplete_login"),
            ({"cassandra_ca_file": "ca.pem"}, "setting", "needs_tls"),
            ({"cassandra_tls": True, "cassandra_key_file": "key.pem"}, "setting", "needs_certificate"),
            ({"cassandra_read_consistency": "some"}, "setting cassandra_read_consistency", "literal_error"),
        ],
    )
    def test_those_that_do_not_fit_together_are_refused(
        self, given: dict[str, object], field: str, reason: str
    ) -> None:
        with pytest.raises(BadValue) as refused:
            load_settings(**given)
        assert (refused.value.field, refused.value.reason) == (field, reason)
        assert "geheim" not in str(refused.value)

    def test_secrets_do_not_show(self) -> None:
        settings = Settings.model_validate(
            {"cassandra_user": "anna", "cassandra_password": "geheim", "cassandra_key_password": "auch geheim"}
        )
        assert "geheim" not in repr(settings) + str(settings.model_dump())
