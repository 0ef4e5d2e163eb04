"""Exports on a real Spark: the snapshot of a reader, also during concurrent writes, and never a partial one."""

from __future__ import annotations

import json
import random
import shutil
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from pyspark.sql import SparkSession

from spark_jobs.environment import SNAPSHOT_EXPORT
from spark_jobs.orders import ExportOrder
from spark_jobs.snapshot_export import export
from sweep_tasks.config import Settings
from sweep_tasks.connections import open_store
from sweep_tasks.errors import AlreadyExists, SnapshotSwept
from sweep_tasks.export.files import ExportedCells, find_export
from sweep_tasks.model import Cell, SweepStrategy, TableMetadata
from sweep_tasks.protection.catalog import ProtectionCatalog
from sweep_tasks.protection.protecting import protect_during
from sweep_tasks.store import Store
from sweep_tasks.tables.catalog import Catalog
from tests.spark.shop import CARTS, CELLS, EMPTY, FILLED, NOTES, ORDERS, REMOTE_ROOT, Shop, exported
from tests.spark.submitting import PATIENCE_S, Jobs
from tests.support.disk import Disk

SHOP = ("shop.*",)
IN_SHOP = [ORDERS, CARTS, EMPTY, NOTES]


@pytest.fixture
def settings(sqlite_url: str) -> Settings:
    return Settings(store=sqlite_url, retention_s=0, sqlite_durability="normal")


@pytest.fixture
def shop(sqlite: Store, settings: Settings) -> Iterator[Shop]:
    shop = Shop.opened(sqlite, settings)
    with shop.manager:
        yield shop


class Exporter:
    """Exports to folders of its own, each at a timestamp that is protected for as long as that takes."""

    def __init__(self, spark: SparkSession, shop: Shop, folder: Path) -> None:
        self.spark = spark
        self.shop = shop
        self.folder = folder

    def at(self, ts: int, name: str, tables: tuple[str, ...] = SHOP, since: str | None = None) -> dict[str, Any]:
        order = ExportOrder(tables, ts, self.folder / name, self.folder / since if since else None)
        return export(order, self.shop.settings, lambda: self.spark).document()

    def now(self, name: str, tables: tuple[str, ...] = SHOP, since: str | None = None) -> dict[str, Any]:
        with protect_during(self.shop.store, self.shop.settings, tables) as ts:
            return self.at(ts, name, tables, since)

    def shown(self, name: str) -> dict[str, dict[Cell, bytes]]:
        return exported(self.spark, self.folder / name)


@pytest.fixture
def exporter(spark: SparkSession, shop: Shop, tmp_path: Path) -> Exporter:
    return Exporter(spark, shop, tmp_path / "exports")


class Busy(threading.Thread):
    """Writes and sweeps, with a connection of its own, until it is stopped."""

    def __init__(self, settings: Settings) -> None:
        super().__init__()
        self._settings = settings
        self._enough = threading.Event()
        self.rounds = 0
        self.error: BaseException | None = None

    def run(self) -> None:
        rng = random.Random(8)
        try:
            with open_store(self._settings.store, self._settings) as store:
                shop = Shop(store, self._settings)
                while not self._enough.is_set():
                    shop.write(rng, 10)
                    shop.sweep()
                    self.rounds += 1
        except BaseException as error:
            self.error = error

    def __enter__(self) -> Busy:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._enough.set()
        self.join(PATIENCE_S)
        assert self.error is None, self.error


def test_an_export_matches_a_snapshot_read_during_writes_and_sweeps(exporter: Exporter, shop: Shop) -> None:
    shop.write(random.Random(1), 60)
    with protect_during(shop.store, shop.settings, SHOP) as ts:
        seen = shop.view(ts, IN_SHOP)
        with Busy(shop.settings) as busy:
            while busy.rounds < 2 and busy.is_alive():
                busy.join(0.01)
            summary = exporter.at(ts, "export")
        assert busy.rounds > 2, "nothing ran meanwhile"
        assert shop.threshold(CARTS) > ts
        assert exporter.shown("export") == seen
        assert shop.view(ts, IN_SHOP) == seen

    assert shop.held() == 0
    assert shop.view(shop.timestamps.fresh(), IN_SHOP) != seen
    assert summary["kind"] == "full"
    assert summary["tables"] == {
        str(table): {"puts": len(seen.get(str(table), {})), "deletes": 0} for table in sorted(IN_SHOP)
    }
    assert summary["files"] <= 4 + len(IN_SHOP), "a file for each task, and one more where a table ends within it"


@pytest.mark.parametrize("seed", [3, *(pytest.param(seed, marks=pytest.mark.long) for seed in range(10, 30))])
def test_a_full_export_and_increments_show_what_a_full_one_at_the_end_shows(
    exporter: Exporter, shop: Shop, seed: int
) -> None:
    rng = random.Random(seed)
    since: str | None = None
    for number in range(4):
        shop.write(rng, 25)
        exporter.now(f"{number}", since=since)
        shop.write(rng, 5)
        assert shop.sweep() > 0
        since = f"{number}"
    with protect_during(shop.store, shop.settings, SHOP) as ts:
        last = exporter.at(ts, "last", since=since)
        exporter.at(ts, "whole")
        shop.write(rng, 20)
        shop.sweep()
        assert exporter.shown("last") == exporter.shown("whole") == shop.view(ts, IN_SHOP)
    assert last["kind"] == "increment"
    assert last["since"] == "../3"


def test_an_increment_contains_changes_and_removals_whose_markers_were_swept(exporter: Exporter, shop: Shop) -> None:
    first, second, third, *_ = CELLS
    with shop.manager.transaction() as tx:
        tx.put_many(CARTS, {first: b"stays", second: b"changes", third: b"goes"})
    exporter.now("full")
    with shop.manager.transaction() as tx:
        tx.put_many(CARTS, {second: b"changed"})
        tx.delete_many(CARTS, [third])
    shop.left_behind(CARTS, {first: b"never"}, aborted=True)
    shop.left_behind(CARTS, {first: b"never"}, aborted=False)
    shop.sweep()
    assert shop.store.timestamps(CARTS, [third]) == {}, "the marker is still there"

    exporter.now("increment", since="full")
    manifest = find_export(exporter.folder / "increment")
    assert manifest
    assert manifest.manifest.tables[str(CARTS)] == ExportedCells(puts=1, deletes=1)
    assert exporter.shown("increment") == {str(CARTS): {first: b"stays", second: b"changed"}}

    nothing = exporter.now("nothing", since="increment")
    assert (nothing["puts"], nothing["deletes"], nothing["files"]) == (0, 0, 0)
    assert exporter.shown("nothing") == exporter.shown("increment")


def test_tables_may_be_created_dropped_and_created_again_between_exports(exporter: Exporter, shop: Shop) -> None:
    catalog = Catalog(shop.store)
    rng = random.Random(5)
    shop.write(rng, 40)
    exporter.now("0", ("shop.orders", "shop.carts"))
    shop.write(rng, 20)
    exporter.now("1", ("shop.orders", "billing.*"), since="0")
    assert set(exporter.shown("1")) == {str(ORDERS), str(REMOTE_ROOT)}
    catalog.drop(ORDERS)
    catalog.create(ORDERS, TableMetadata(SweepStrategy.THOROUGH))
    shop.write(rng, 20, [CARTS, REMOTE_ROOT])
    with shop.manager.transaction() as tx:
        tx.put_many(ORDERS, {CELLS[0]: b"again"})
        tx.delete_many(CARTS, CELLS[:30])
    with protect_during(shop.store, shop.settings, ["*.*"]) as ts:
        exporter.at(ts, "2", ("shop.*", "billing.bills"), since="1")
        assert exporter.shown("2") == shop.view(ts, [*FILLED, EMPTY])
        assert exporter.shown("2")[str(ORDERS)] == {CELLS[0]: b"again"}


def test_exports_can_be_moved_together(exporter: Exporter, shop: Shop, tmp_path: Path) -> None:
    shop.write(random.Random(6), 10)
    exporter.now("a")
    shop.write(random.Random(7), 10)
    exporter.now("b", since="a")
    before = exporter.shown("b")
    exporter.folder = Path(shutil.move(exporter.folder, tmp_path / "elsewhere"))
    assert exporter.shown("b") == before


def test_a_timestamp_that_was_swept_is_refused_and_leaves_nothing(exporter: Exporter, shop: Shop) -> None:
    shop.write(random.Random(1), 10)
    ts = shop.timestamps.fresh()
    shop.sweep()
    with pytest.raises(SnapshotSwept) as refused:
        exporter.at(ts, "too-late")
    assert refused.value.at == ts < refused.value.threshold
    assert list(exporter.folder.iterdir()) == []


def test_an_existing_export_is_neither_repeated_nor_replaced(exporter: Exporter, shop: Shop) -> None:
    shop.write(random.Random(1), 10)
    with protect_during(shop.store, shop.settings, SHOP) as ts:
        created = exporter.at(ts, "export")
        again = exporter.at(ts, "export")
        assert (created["made"], again["made"]) == (True, False)
        assert {**created, "made": False, "seconds": {}} == again
        with pytest.raises(AlreadyExists) as refused:
            exporter.at(ts, "export", ("shop.orders",))
        assert (refused.value.details["folder"], refused.value.details["ts"]) == (exporter.folder / "export", ts)


def test_an_export_is_on_disk_before_it_has_its_name_and_that_before_its_timestamp_is_released(
    exporter: Exporter, shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop.write(random.Random(1), 30)
    disk = Disk.watched(monkeypatch)
    release = ProtectionCatalog.release

    def noted_release(self: ProtectionCatalog, record_id: str, version: int | None = None) -> None:
        disk.note("release")
        release(self, record_id, version)

    monkeypatch.setattr(ProtectionCatalog, "release", noted_release)
    exporter.now("export")
    folder = exporter.folder / "export"
    [manifest] = [path for call, path in disk.calls if call == "rename" and path.name == "manifest.json"]
    written = [manifest.parent / path.relative_to(folder) for path in (folder / "data").rglob("*")]
    assert sum(path.suffix == ".parquet" for path in written) >= 3
    assert max(disk.when(path, "sync") for path in written) < disk.when(manifest, "rename")
    assert disk.when(manifest, "rename") < disk.when(manifest.parent, "sync") < disk.when(folder, "rename")
    assert disk.when(folder, "rename") < disk.when(exporter.folder, "sync") < disk.calls.index(("release", Path()))


def test_a_job_that_is_killed_leaves_no_export_and_the_next_one_makes_it(
    exporter: Exporter, shop: Shop, tmp_path: Path
) -> None:
    """It waits, in its workers, for a writer that is alive and does not commit."""
    shop.write(random.Random(1), 20)
    writer = shop.committing(ORDERS, dict.fromkeys(CELLS, b"under way"))
    jobs = Jobs(tmp_path)
    folder = exporter.folder / "export"
    with protect_during(shop.store, shop.settings, SHOP) as ts:
        job = jobs.submit_file(
            SNAPSHOT_EXPORT,
            *("--order", ExportOrder(("shop.*",), ts, folder).document(), "--store", shop.settings.store),
            writer_wait_s=2 * PATIENCE_S,
        )
        try:
            job.wait_for("tasks that write", lambda: list(exporter.folder.glob("export.unfin*/data/_temporary/*/*")))
            _, left = psutil.wait_procs(job.kill(), PATIENCE_S)
            assert left == [], "something outlived its Java machine"
        finally:
            jobs.end()
        assert not folder.exists()

        shop.commits.abort([writer])
        exporter.at(ts, "export")
        assert exporter.shown("export") == shop.view(ts, IN_SHOP)
    assert [each.name for each in exporter.folder.iterdir()] == ["export"]
    document = json.loads((folder / "manifest.json").read_text())
    assert (document["ts"], document["chosen"]) == (ts, ["shop.*"])
