"""Whether a Spark application is over: asked of a real master, a real history server and a driver's own page."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

import psutil
import pytest

from spark_jobs.environment import SHORT_LIVED, spark_environment
from sweep_tasks.config import Settings
from sweep_tasks.local.processes import Server
from sweep_tasks.local.spark import HERE
from sweep_tasks.model import TableRef
from sweep_tasks.orchestration.owners import SparkAppOwner
from sweep_tasks.protection.owners import SPARK_APP, Answer
from sweep_tasks.protection.records import Mode, Record, Target
from tests.spark.cluster import Cluster
from tests.spark.submitting import PATIENCE_S
from tests.support.waiting import eventually

pytestmark = pytest.mark.timeout(900)

AT = re.compile(r"(?:MasterWebUI|HistoryServer) to \S+, and started at http://\S+:(\d+)")
DRIVER = """
import json, sys
from pyspark import SparkConf, SparkContext

conf = SparkConf().setAll(json.loads(sys.argv[1]).items())
with SparkContext(conf=conf) as context:
    print(json.dumps([context.applicationId, context.uiWebUrl]), flush=True)
    sys.stdin.readline()
"""


class Application(NamedTuple):
    """A driver that does nothing until it is signalled to end."""

    process: subprocess.Popen[str]
    app_id: str
    page: str

    def end(self) -> None:
        self.process.communicate("end\n", timeout=PATIENCE_S)

    def die(self) -> None:
        """The Java machine first: it would end the application well if it saw its parent die."""
        for child in psutil.Process(self.process.pid).children(recursive=True):
            with suppress(psutil.NoSuchProcess):  # it may end with the one before it
                child.kill()
        self.process.kill()
        self.process.wait(PATIENCE_S)


@contextmanager
def applications(count: int, master: str, events: Path) -> Iterator[list[Application]]:
    """Started together; what is left of them is ended."""
    given = {
        "spark.master": master,
        "spark.app.name": "owner",
        "spark.driver.host": HERE,
        "spark.ui.enabled": "true",
        "spark.ui.port": "0",
        "spark.eventLog.enabled": "true",
        "spark.eventLog.dir": events.as_uri(),
    }
    environment = os.environ | spark_environment() | {"SPARK_LOCAL_IP": HERE}
    command = [sys.executable, "-c", DRIVER, json.dumps(given)]
    processes = [
        subprocess.Popen(command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        for _ in range(count)
    ]
    try:
        yield [Application(process, *json.loads(_first_line(process))) for process in processes]
    finally:
        for process in processes:
            process.kill()
            process.communicate()


def _first_line(process: subprocess.Popen[str]) -> str:
    assert process.stdout
    return process.stdout.readline()


@contextmanager
def history_server(folder: Path, events: Path) -> Iterator[str]:
    options = {"fs.logDirectory": events.as_uri(), "ui.port": 0, "fs.update.interval": "1s"}
    environment = os.environ | {
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_LOCAL_IP": HERE,
        "SPARK_CONF_DIR": str(folder),
        "JAVA_TOOL_OPTIONS": SHORT_LIVED,
        "SPARK_HISTORY_OPTS": " ".join(f"-Dspark.history.{name}={value}" for name, value in options.items()),
    }
    command = [str(Path(sys.executable).with_name("spark-class")), "org.apache.spark.deploy.history.HistoryServer"]
    child = Server.start("spark history", command, folder / "history.log", environment=environment, folder=folder)
    try:
        yield f"http://{HERE}:{child.wait_for('its address', AT.search)[1]}"
    finally:
        child.stop()


def asked(app_id: str, **pages: str) -> Answer:
    owner = SparkAppOwner(Settings(**pages))  # type: ignore[arg-type]
    try:
        targets = (Target(TableRef.parse("app.items")),)
        return owner.answer(Record("a", 50, Mode.AT, targets, meta_type=SPARK_APP, meta={"app_id": app_id}))
    finally:
        owner.close()


def until(answer: Answer, app_id: str, **pages: str) -> None:
    """A master notices the end of a driver, and a history server a new log, a little later."""
    assert eventually(lambda: asked(app_id, **pages) is answer), asked(app_id, **pages)


def test_running_ended_dead_and_unknown_applications_are_distinguished(tmp_path: Path) -> None:
    events = tmp_path / "events"
    events.mkdir()
    with ExitStack() as running:
        cluster = running.enter_context(Cluster(tmp_path / "cluster", workers=0))
        master = f"http://{HERE}:{web_port(tmp_path / 'cluster' / 'master.log')}"
        ending, dying = running.enter_context(applications(2, cluster.address, events))
        history = running.enter_context(history_server(tmp_path, events))

        for each in (ending, dying):
            assert asked(each.app_id, spark_master_ui_url=master) is Answer.RUNNING
            assert asked(each.app_id, spark_history_url=each.page) is Answer.RUNNING
            until(Answer.RUNNING, each.app_id, spark_history_url=history)
        ending.end()
        dying.die()
        for each in (ending, dying):
            until(Answer.FINISHED, each.app_id, spark_master_ui_url=master)
        until(Answer.FINISHED, ending.app_id, spark_history_url=history)

        both = {"spark_master_ui_url": master, "spark_history_url": history}
        assert asked(dying.app_id, spark_history_url=history) is Answer.RUNNING, "its log has no end"
        assert asked(dying.app_id, **both) is Answer.FINISHED, "and its master knows better"
        assert asked("app-20260101000000-0000", **both) is Answer.GONE


def web_port(log: Path) -> int:
    found = eventually(lambda: AT.search(log.read_text()))
    assert found
    return int(found[1])
