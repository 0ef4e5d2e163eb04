"""What can be known of a Cassandra store without one: its address, its levels, the names of its tables."""

from __future__ import annotations

import re
from itertools import product

import pytest
from cassandra import AuthenticationFailed

from sweep_tasks.config import Consistency, Settings, load_settings
from sweep_tasks.errors import BadValue, StoreUnavailable
from sweep_tasks.model import TableRef
from sweep_tasks.store.cassandra.address import CassandraAddress, only_loopback
from sweep_tasks.store.cassandra.catalog import identity, physical_name, quoted
from sweep_tasks.store.cassandra.connection import Connection, LoopbackLogin, check_login, levels_overlap
from sweep_tasks.store.location import StoreLocation, absolute_url
from sweep_tasks.store.schema import QUEUE_CELLS, TRANSACTIONS


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
        assert (location.is_persistent, location.has_tombstones, location.is_slow_to_open) == (True, True, True)
        assert absolute_url(url) == url

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
    """A read must reach a replica that a write has reached."""

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
    def test_level_overlap(
        self, reading: Consistency, writing: Consistency, copies: dict[str, int], overlap: bool
    ) -> None:
        assert levels_overlap(reading, writing, copies) is overlap


class TestNames:
    def test_tables_are_called_as_atlasdb_calls_them(self) -> None:
        assert physical_name(QUEUE_CELLS, 1) == "sweep__sweepableCells"
        assert physical_name(TRANSACTIONS, 1) == "_transactions"

    @pytest.mark.parametrize(
        ("name", "physical"),
        [
            ("ns.a__b", "ns__a__b"),
            ("ns._a", "ns___a"),
            ("n_s.a_2", "n_s__a_2"),
            ("plain", "plain"),
            ("_punch", "_punch"),
        ],
    )
    def test_names_that_atlasdb_allows_are_kept(self, name: str, physical: str) -> None:
        assert physical_name(TableRef.stored(name), 1) == physical

    @pytest.mark.parametrize("name", ["ns__a.b", "ns_.a", "_ns.a", "ns.x-y", "x-y", "ns.a__2", "ns.2", "a__b", "_0a"])
    def test_a_name_that_is_another_tables_or_that_cassandra_does_not_take_is_hashed(self, name: str) -> None:
        physical = physical_name(TableRef.stored(name), 1)
        assert re.fullmatch(r"_0[0-9a-f]{16}_\w{1,20}", physical, re.ASCII)
        assert len(physical_name(TableRef("n-s", "x" * 80), 12)) <= 48

    def test_no_two_tables_share_a_physical_one(self) -> None:
        parts = ["".join(letters) for size in range(1, 5) for letters in product("a_2", repeat=size)]
        tables = [TableRef(namespace, name) for namespace in ("", *parts) for name in parts]
        names = {physical_name(table, generation) for table in tables for generation in (1, 2, 22)}
        assert len(names) == 3 * len(tables)

    def test_a_table_that_is_created_again_has_another_name(self) -> None:
        table = TableRef.parse("app.items")
        names = {physical_name(table, generation) for generation in (1, 2, 3)}
        assert len(names) == 3
        assert len({identity("shop", name) for name in names}) == 3

    def test_all_processes_give_a_table_the_same_identity(self) -> None:
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


LOGIN = {"cassandra_user": "anna", "cassandra_password": "geheim"}


class TestPasswords:
    @pytest.mark.parametrize(
        ("hosts", "here"),
        [
            (["127.0.0.1", "127.8.9.10", "::1", "localhost", "LOCALHOST"], True),
            (["127.0.0.1", "192.0.2.1"], False),
            (["::"], False),
            (["2001:db8::1"], False),
            (["localhost.example.org"], False),
            (["127.0.0.1.example.org"], False),
        ],
    )
    def test_loopback_is_recognised_by_its_address(self, hosts: list[str], here: bool) -> None:
        assert only_loopback(hosts) is here

    @pytest.mark.parametrize("hosts", [("192.0.2.1",), ("cassandra.invalid",), ("127.0.0.1", "192.0.2.1")])
    def test_a_password_without_encryption_is_refused_before_connecting(self, hosts: tuple[str, ...]) -> None:
        with pytest.raises(BadValue) as refused:
            Connection(CassandraAddress(hosts, 9042, "shop"), load_settings(**LOGIN))
        assert (refused.value.field, refused.value.reason) == ("setting cassandra_password", "password_unencrypted")
        assert all(name in str(refused.value) for name in ("cassandra_tls", "cassandra_plaintext_password"))
        assert "geheim" not in str(refused.value)

    @pytest.mark.parametrize("allowed", [{"cassandra_tls": True}, {"cassandra_plaintext_password": True}])
    def test_one_may_go_out_encrypted_or_where_the_network_is_trusted(self, allowed: dict[str, bool]) -> None:
        check_login(CassandraAddress(("192.0.2.1",), 9042, "shop"), load_settings(**LOGIN, **allowed))

    def test_a_password_is_sent_to_this_machine_without_encryption(self) -> None:
        with pytest.raises(StoreUnavailable):
            Connection(CassandraAddress(("127.0.0.1",), 1, "shop"), load_settings(**LOGIN))

    def test_without_a_password_no_encryption_is_required(self) -> None:
        check_login(CassandraAddress(("192.0.2.1",), 9042, "shop"), load_settings())

    def test_remote_nodes_named_by_a_local_node_do_not_get_the_password(self) -> None:
        login = LoopbackLogin("anna", "geheim")
        assert b"geheim" in login.new_authenticator("127.0.0.1").evaluate_challenge(b"PLAIN-START")
        with pytest.raises(AuthenticationFailed) as refused:
            login.new_authenticator("192.0.2.1")
        assert "geheim" not in str(refused.value)


@pytest.mark.parametrize("url", ["geheim", "sqlite://geheim@one/shop", "sqlite:geheim"])
def test_an_address_that_is_not_understood_is_not_repeated(url: str) -> None:
    with pytest.raises(BadValue) as refused:
        StoreLocation.parse(url)
    assert refused.value.field == "store"
    assert "geheim" not in str(refused.value)
