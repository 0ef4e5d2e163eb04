from __future__ import annotations

from sweep_tasks.orchestration.pools import (
    MAKE_POOLS,
    SWEPT,
    compaction_pool,
    pool_name,
    pool_names,
    pool_problem,
    pools_document,
    scan_pools,
)
from sweep_tasks.queue.progress import QUEUES
from tests.support.lines import values_in


def test_every_strategy_that_has_a_queue_has_pools() -> None:
    assert SWEPT == QUEUES


def test_each_shard_has_a_pool_with_one_slot() -> None:
    document = pools_document(3)
    assert list(document) == [pool_name(strategy, shard) for strategy in QUEUES for shard in range(3)]
    assert {pool["slots"] for pool in document.values()} == {1}
    pool = document["sweep_thorough_2"]
    assert pool == {"slots": 1, "include_deferred": True, "description": pool["description"]}
    assert "thorough" in pool["description"]
    assert values_in(pool["description"]) == ["2"]


def test_each_scan_slot_has_a_pool_of_size_one() -> None:
    document = pools_document(1, scan_slots=2)
    assert list(document)[2:] == scan_pools(2) == ["legacy_0", "legacy_1"]
    assert document["legacy_1"]["slots"] == 1


def test_each_node_that_is_compacted_has_a_pool_with_one_slot() -> None:
    document = pools_document(1, nodes=["one", "10.0.0.2"])
    assert list(document)[2:] == ["compact_one", "compact_10.0.0.2"]
    assert document["compact_one"]["slots"] == 1
    problem = pool_problem([compaction_pool("one")], {})
    assert problem is not None
    assert (problem.reason, problem.pools) == ("missing", ["compact_one"])
    assert all(name in problem.sentence for name in ("compact_one", MAKE_POOLS))


def test_correct_pools_are_no_problem_and_other_pools_are_ignored() -> None:
    slots = dict.fromkeys(pools_document(2), 1)
    assert pool_problem(pool_names(2), slots | {"sweep_thorough_2": 1, "default_pool": 128}) is None


def test_missing_pools_are_named_with_the_command_that_creates_them() -> None:
    slots = dict.fromkeys(pools_document(2), 1)
    del slots["sweep_thorough_1"]
    problem = pool_problem(pool_names(2), slots)
    assert problem is not None
    assert (problem.reason, problem.pools) == ("missing", ["sweep_thorough_1"])
    assert all(name in problem.sentence for name in ("sweep_thorough_1", MAKE_POOLS))
    several = pool_problem(pool_names(3), {})
    assert several is not None
    assert (several.reason, several.pools) == ("missing", pool_names(3))
    assert values_in(several.sentence) == [*pool_names(3)[:3], "3"]


def test_a_pool_with_two_slots_is_a_problem() -> None:
    problem = pool_problem(pool_names(1), {"sweep_conservative_0": 2, "sweep_thorough_0": 1})
    assert problem is not None
    assert (problem.reason, problem.pools) == ("not_one_slot", ["sweep_conservative_0"])
    assert all(name in problem.sentence for name in ("sweep_conservative_0", MAKE_POOLS))
