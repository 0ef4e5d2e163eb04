from __future__ import annotations

from pathlib import Path

import pytest

from sweep_tasks.config import FILE_VARIABLE, Settings, as_environment, load_settings
from sweep_tasks.errors import BadValue


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


class TestNodes:
    @staticmethod
    def given(monkeypatch: pytest.MonkeyPatch, nodes: str) -> Settings:
        monkeypatch.setenv("SWEEPFLOW_COMPACTION_NODES", nodes)
        return load_settings()

    def test_commands_are_words_and_only_the_folders_are_needed(self, monkeypatch: pytest.MonkeyPatch) -> None:
        settings = self.given(
            monkeypatch,
            '{"c1": {"data": "/a, /b", "prefix": "ssh -p 22 \'c 1\'", "nodetool": ["nodetool", "-pwf", "/etc/jmx"]}}',
        )
        node = settings.compaction_nodes["c1"]
        assert (node.data, node.prefix) == (("/a", "/b"), ("ssh", "-p", "22", "c 1"))
        assert (node.nodetool, node.sstabledump) == (("nodetool", "-pwf", "/etc/jmx"), ("sstabledump",))
        assert hash(settings) == hash(load_settings())

    def test_a_child_process_gets_them_as_they_are(self, monkeypatch: pytest.MonkeyPatch) -> None:
        settings = self.given(monkeypatch, '{"c1": {"data": "/a", "prefix": "ssh c1"}}')
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

    def test_one_whose_files_are_out_of_reach_says_so_in_so_many_words(self, monkeypatch: pytest.MonkeyPatch) -> None:
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
        settings = self.given(monkeypatch, f'{{"c1": {{"data": "/a", "prefix": "{prefix}"}}}}')
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
