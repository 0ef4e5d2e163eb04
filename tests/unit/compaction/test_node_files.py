"""Which files of a node are measured."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from sweep_tasks.compaction.node_files import RoundContext, in_threads, measure_files
from sweep_tasks.errors import BadValue
from tests.unit.compaction.scripted_node import ScriptedNode


@pytest.fixture
def node(tmp_path: Path) -> ScriptedNode:
    node = ScriptedNode(tmp_path)
    node.file(1, 40)
    return node


def with_folders(node: ScriptedNode, *more: Path) -> RoundContext:
    return replace(node.order, node=replace(node.node, data=(*node.node.data, *more)))


def test_one_folder_of_several_that_is_not_there_is_a_wrong_setting(node: ScriptedNode, tmp_path: Path) -> None:
    missing = tmp_path / "dta2"
    with pytest.raises(BadValue) as refused:
        measure_files(with_folders(node, missing), node.settings, in_threads(1))
    assert (refused.value.field, refused.value.reason) == ("setting compaction_nodes", "missing_folder")
    assert str(missing) in str(refused.value)


def test_a_folder_without_files_is_no_error(node: ScriptedNode, tmp_path: Path) -> None:
    empty = tmp_path / "data2"
    empty.mkdir()
    assert measure_files(with_folders(node, empty), node.settings, in_threads(1)).files == 1


def test_a_node_whose_tool_fails_has_files_that_could_not_be_read(node: ScriptedNode) -> None:
    (node.folder / "sstabledump").write_text("#!/bin/sh\nexit 127\n")
    found = measure_files(node.order, node.settings, in_threads(1))
    assert found.files == 0
    file = str(node.files / "nb-1-big-Data.db")
    assert [each.document() for each in found.left_out] == [{"kind": "unreadable", "file": file, "reason": "exit_127"}]
    (problem,) = found.unreadable
    assert file in problem
