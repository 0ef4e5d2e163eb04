from __future__ import annotations

import traceback
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from sweep_tasks.config import FILE_VARIABLE, Settings, as_environment, check_variables, load_settings
from sweep_tasks.errors import BadValue
from tests.support.errors import having


def test_the_environment_wins_over_the_file_and_overrides_over_both(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "sweepflow.toml"
    file.write_text('store = "sqlite:///from-file.db"\nretention_s = 60\nlease_ttl_s = 5\n')
    monkeypatch.setenv(FILE_VARIABLE, str(file))
    monkeypatch.setenv("SWEEPFLOW_RETENTION_S", "120")
    settings = load_settings(lease_ttl_s=7)
    assert (settings.store, settings.retention_s, settings.lease_ttl_s) == ("sqlite:///from-file.db", 120, 7)


@pytest.mark.parametrize(
    ("content", "field", "reason"),
    [
        ("retention_s = -1", "setting retention_s", "greater_than_equal"),
        ("retension_s = 1", "setting retension_s", "extra_forbidden"),
        ("store = ", FILE_VARIABLE, "not_toml"),
    ],
)
def test_a_bad_file_is_explained(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: str, field: str, reason: str
) -> None:
    file = tmp_path / "sweepflow.toml"
    file.write_text(content)
    monkeypatch.setenv(FILE_VARIABLE, str(file))
    with pytest.raises(BadValue) as refused:
        load_settings()
    assert (refused.value.field, refused.value.reason) == (field, reason)


def test_a_missing_file_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(FILE_VARIABLE, "/nowhere/sweepflow.toml")
    with pytest.raises(BadValue) as refused:
        load_settings()
    assert (refused.value.field, refused.value.reason) == (FILE_VARIABLE, "not_a_file")
    assert "/nowhere/sweepflow.toml" in str(refused.value)


def test_a_bad_variable_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SWEEPFLOW_LEASE_TTL_S", "soon")
    with pytest.raises(BadValue) as refused:
        load_settings()
    assert refused.value.field == "setting lease_ttl_s"


class TestVariables:
    def test_one_that_names_no_setting_is_refused_with_the_nearest_name(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("SWEEPFLOW_SHARDES", "s3cret")
        with pytest.raises(BadValue, check=having(reason="unknown_variable")) as refused:
            check_variables()
        assert (refused.value.field, refused.value.reason) == ("SWEEPFLOW_SHARDES", "unknown_variable")
        assert refused.value.details["nearest"] == "SWEEPFLOW_SHARDS"
        assert "s3cret" not in str(refused.value)

    def test_one_that_is_like_no_other_is_refused_without_a_guess(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("SWEEPFLOW_XYZZY_QUUX_FROB", "1")
        with pytest.raises(BadValue, check=having(reason="unknown_variable")) as refused:
            check_variables()
        assert refused.value.details["nearest"] is None

    def test_a_running_process_logs_it_once_and_continues(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("SWEEPFLOW_RETENTION_OF_TOMORROW_S", "s3cret")
        monkeypatch.setenv("SWEEPFLOW_SHARDS", "7")
        with capture_logs() as lines:
            assert [load_settings().shards for _ in range(3)] == [7, 7, 7]
        (line,) = lines
        assert (line["log_level"], line["code"]) == ("warning", "unknown_variable")
        assert line["variable"] == "SWEEPFLOW_RETENTION_OF_TOMORROW_S"
        assert "s3cret" not in str(line)

    @pytest.mark.parametrize(
        ("name", "value"),
        [
            (FILE_VARIABLE, ""),
            ("SWEEPFLOW_TEST_EXAMPLES", "9"),
            ("sweepflow_shards", "9"),
            ("SWEEPFLOW_SERVICE_HOST", "10.0.0.7"),
            ("SWEEPFLOW_API_SERVICE_PORT_HTTP", "8080"),
            ("SWEEPFLOW_PORT", "tcp://10.0.0.7:8080"),
            ("SWEEPFLOW_PORT_8080_TCP_ADDR", "10.0.0.7"),
        ],
    )
    def test_those_of_settings_tests_and_kubernetes_are_known(
        self, monkeypatch: pytest.MonkeyPatch, name: str, value: str
    ) -> None:
        monkeypatch.setenv(name, value)
        check_variables()

    def test_a_port_that_is_no_service_of_kubernetes_is_not(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("SWEEPFLOW_ALERT_SMPT_PORT", "25")
        with pytest.raises(BadValue, check=having(reason="unknown_variable")) as refused:
            check_variables()
        assert refused.value.details["nearest"] == "SWEEPFLOW_ALERT_SMTP_PORT"

    def test_a_setting_of_the_file_that_does_not_exist_is_refused_with_the_nearest_name_too(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        file = tmp_path / "sweepflow.toml"
        file.write_text("retension_s = 1")
        monkeypatch.setenv(FILE_VARIABLE, str(file))
        with pytest.raises(BadValue) as refused:
            load_settings()
        assert "retention_s" in str(refused.value)


class TestNodes:
    @staticmethod
    def given(monkeypatch: pytest.MonkeyPatch, nodes: str) -> Settings:
        monkeypatch.setenv("SWEEPFLOW_COMPACTION_NODES", nodes)
        return load_settings()

    def test_commands_are_words_and_only_the_folders_are_needed(self, monkeypatch: pytest.MonkeyPatch) -> None:
        settings = self.given(
            monkeypatch,
            '{"c1": {"data": "/a, /b", "prefix": "ssh -p 22 \'c 1\'", "remote_shell": true, '
            '"nodetool": ["nodetool", "-pwf", "/etc/jmx"]}}',
        )
        node = settings.compaction_nodes["c1"]
        assert (node.data, node.prefix) == (("/a", "/b"), ("ssh", "-p", "22", "c 1"))
        assert (node.nodetool, node.sstabledump) == (("nodetool", "-pwf", "/etc/jmx"), ("sstabledump",))
        assert hash(settings) == hash(load_settings())

    def test_a_child_process_gets_them_as_they_are(self, monkeypatch: pytest.MonkeyPatch) -> None:
        settings = self.given(monkeypatch, '{"c1": {"data": "/a", "prefix": "ssh c1", "remote_shell": true}}')
        inherited = as_environment(settings)["SWEEPFLOW_COMPACTION_NODES"]
        assert self.given(monkeypatch, inherited).compaction_nodes == settings.compaction_nodes

    @pytest.mark.parametrize(
        ("nodes", "where", "reason"),
        [
            ("c1", "", "not_json"),
            ('{"c1": {}}', ".c1.data", "missing"),
            ('{"c1": {"data": ""}}', ".c1", "not_absolute"),
            ('{"c1": {"data": "relative"}}', ".c1", "not_absolute"),
            ('{"c1": {"data": "/a", "nodetol": "x"}}', ".c1.nodetol", "extra_forbidden"),
            ('{"c1": {"data": "/a", "nodetool": ""}}', ".c1", "empty"),
            ('{"c1": {"data": "/a", "prefix": "ssh \'c1"}}', ".c1.prefix", "not_a_command"),
            ('{"c1": {"data": "/a", "prefix": "ssh c1"}}', ".c1", "no_remote_shell"),
            ('{"c1": {"data": "/a", "prefix": "kubectl exec c1 --"}}', ".c1", "no_remote_shell"),
            ('{"../c1": {"data": "/a"}}', "", "bad_name"),
        ],
    )
    def test_what_cannot_be_used_is_explained(
        self, monkeypatch: pytest.MonkeyPatch, nodes: str, where: str, reason: str
    ) -> None:
        with pytest.raises(BadValue) as refused:
            self.given(monkeypatch, nodes)
        assert (refused.value.field, refused.value.reason) == (f"setting compaction_nodes{where}", reason)

    def test_a_valid_example_is_in_the_error(self, monkeypatch: pytest.MonkeyPatch) -> None:
        with pytest.raises(BadValue) as refused:
            self.given(monkeypatch, "c1")
        example = str(refused.value)[str(refused.value).index("{") :]
        assert self.given(monkeypatch, example).compaction_nodes

    def test_a_node_with_unreachable_files_is_marked_explicitly(self, monkeypatch: pytest.MonkeyPatch) -> None:
        settings = self.given(monkeypatch, '{"c1": {"data": [], "nodetool": "nodetool -h c1"}}')
        assert settings.compaction_nodes["c1"].data == ()
        inherited = as_environment(settings)["SWEEPFLOW_COMPACTION_NODES"]
        assert self.given(monkeypatch, inherited).compaction_nodes == settings.compaction_nodes

    @pytest.mark.parametrize(
        ("field", "words"),
        [
            ("prefix", "sshpass -p s3cret ssh c1"),
            ("prefix", "/usr/bin/sshpass -v -ps3cret ssh c1"),
            ("prefix", "env SSHPASS=s3cret sshpass -e ssh c1"),
            ("prefix", "kubectl --token=s3cret exec c1 --"),
            ("sstabledump", "sstabledump --password s3cret"),
        ],
    )
    def test_a_password_anywhere_else_is_refused_too(
        self, monkeypatch: pytest.MonkeyPatch, field: str, words: str
    ) -> None:
        with pytest.raises(BadValue) as caught:
            self.given(monkeypatch, f'{{"c1": {{"data": "/a", "{field}": "{words}"}}}}')
        assert (caught.value.field, caught.value.reason) == ("setting compaction_nodes.c1", "password")
        assert field in str(caught.value)
        assert "s3cret" not in str(caught.value)

    @pytest.mark.parametrize("prefix", ["ssh -p 22 c1", "sshpass -f /etc/pass ssh -p 22 c1", "kubectl exec -i c1 --"])
    def test_a_port_is_no_password(self, monkeypatch: pytest.MonkeyPatch, prefix: str) -> None:
        settings = self.given(monkeypatch, f'{{"c1": {{"data": "/a", "prefix": "{prefix}", "remote_shell": true}}}}')
        assert " ".join(settings.compaction_nodes["c1"].prefix) == prefix

    @pytest.mark.parametrize("word", ["-pw s3cret", "--password s3cret", "--password=s3cret"])
    def test_a_password_in_a_command_is_refused_and_not_repeated(
        self, monkeypatch: pytest.MonkeyPatch, word: str
    ) -> None:
        with pytest.raises(BadValue) as caught:
            self.given(monkeypatch, f'{{"c1": {{"data": "/a", "nodetool": "nodetool -u ops {word}"}}}}')
        assert (caught.value.field, caught.value.reason) == ("setting compaction_nodes.c1", "password")
        assert all(given in str(caught.value) for given in ("nodetool", "-pwf"))
        assert "s3cret" not in str(caught.value)


class TestAddressesWithSecrets:
    HIDDEN = "geheim"
    SETTINGS = ("metrics_otlp_url", "spark_master_ui_url", "spark_history_url", "alert_webhook_url")

    @pytest.mark.parametrize("setting", SETTINGS)
    def test_are_not_shown(self, setting: str) -> None:
        url = f"https://anna:{self.HIDDEN}@example.org/{self.HIDDEN}?key={self.HIDDEN}"
        settings = load_settings(**{setting: url})
        assert getattr(settings, setting).get_secret_value() == url
        shown = (repr(settings), str(settings), str(settings.model_dump()), settings.model_dump_json())
        assert self.HIDDEN not in " ".join(shown)
        assert as_environment(settings)[f"SWEEPFLOW_{setting.upper()}"] == url, "a child of ours gets it as it is"

    @pytest.mark.parametrize(
        "store",
        [
            "cassandra://anna:geheim@one/shop",
            "cassandra://one,anna:geheim@two/shop",
            "cassandra://anna:ge/heim@one/shop",
            "cassandra:anna:geheim@one/shop",
            "sqlite://anna:geheim@one/shop",
            "anna:geheim@one",
        ],
    )
    def test_a_store_that_is_given_with_a_login_is_refused_and_not_repeated(
        self, monkeypatch: pytest.MonkeyPatch, store: str
    ) -> None:
        monkeypatch.setenv("SWEEPFLOW_STORE", store)
        with pytest.raises(BadValue) as refused:
            load_settings()
        assert (refused.value.field, refused.value.reason) == ("setting store", "credentials")
        assert all(name in str(refused.value) for name in ("cassandra_user", "cassandra_password"))
        shown = "".join(traceback.format_exception(refused.value))
        assert not any(secret in shown for secret in ("geheim", "ge/heim", "anna"))

    def test_a_file_may_have_any_name(self) -> None:
        assert load_settings(store="sqlite:////data/a@b.db").store == "sqlite:////data/a@b.db"
