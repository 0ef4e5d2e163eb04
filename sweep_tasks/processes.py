"""This process and its children: what a fork must not inherit, and which environment variables a child gets."""

from __future__ import annotations

import gc
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from enum import Enum, auto
from fnmatch import fnmatchcase
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

# ---------------------------------------------------------------------------------------------------------------------
# What a forked process must not inherit: locks, threads and connections.
#
# A forked child has a copy of everything and only one thread. A lock that another thread held at that moment is never
# released in the child, and a connection or an open transaction is still the parent's. So an object with such state
# creates it in one method, which is called again in every child before any other code runs there.
# ---------------------------------------------------------------------------------------------------------------------

T = TypeVar("T")

_generation = 0
_methods: WeakKeyDictionary[Any, Callable[[Any], None]] = WeakKeyDictionary()


def call_in_each_process(owner: T, prepare: Callable[[T], None]) -> None:
    """Call a method of an object now, and again in every child that is forked while the object lives."""
    prepare(owner)
    _methods[owner] = prepare


def generation() -> int:
    """Return a number that a forked child does not share with its parent. A process id is not enough: it may be
    reused."""
    return _generation


def _start_child() -> None:
    global _generation
    _generation += 1
    # Hold all owners first: an object that one of them drops must not be finalised before its own method was called.
    for owner, prepare in list(_methods.items()):
        prepare(owner)


os.register_at_fork(after_in_child=_start_child)


# ---------------------------------------------------------------------------------------------------------------------
# The environment variables that a child process gets: those it needs, and no others.
#
# A secret does not reach programs that do not need it: every process of the same user can read the environment of a
# process, and many programs write theirs into logs and reports. The lists say why each variable is passed on. Only the
# standard library is imported: `make java` uses this before anything is installed.
# ---------------------------------------------------------------------------------------------------------------------


class Needs(Enum):
    """The kind of a child process, which decides the variables it gets in addition to those of every program."""

    NETWORK = auto()
    """It downloads something, or connects to servers elsewhere."""
    NODE_TOOL = auto()
    """It is a tool of Cassandra, perhaps run through ssh, kubectl or docker."""
    EXECUTOR = auto()
    """It starts Spark executors, which open the store."""
    SPARK = auto()
    """It is one of our jobs, run by spark-submit."""
    AIRFLOW = auto()
    """It is a component of Airflow, or its command."""


_EVERY_CHILD = {
    "PATH": "where programs are found",
    "LD_LIBRARY_PATH": "where their libraries are found",
    "HOME": "where programs keep their own settings",
    "USER": "the user that they run as",
    "LOGNAME": "the same",
    "LANG": "their language and encoding",
    "LANGUAGE": "the same",
    "LC_*": "the same",
    "TZ": "the time zone that they show times in",
    "TMPDIR": "where temporary files are written",
    "JAVA_HOME": "which Java is used",
    "JAVA_TOOL_OPTIONS": "what Java needs on this machine, such as certificates",
    "JDK_JAVA_OPTIONS": "the same",
    "PYTHON*": "what Python needs on this machine",
    "COVERAGE_*": "what measures the coverage of tests",
    "SSL_CERT_*": "which certificates they trust",
}
_MORE = {
    Needs.NETWORK: {
        "*_PROXY": "how they reach other networks; may contain a password, so not for every program",
        "*_CA_BUNDLE": "which certificates they trust",
        "MAVEN_*": "what Maven needs on this machine",
        "M2_*": "the same",
    },
    Needs.NODE_TOOL: {
        "CASSANDRA_*": "where Cassandra is installed",
        "JVM_OPTS": "the options that its scripts pass to Java",
        "MAX_HEAP_SIZE": "the same",
        "SSH_*": "the agent that holds the keys for ssh",
        "KUBE*": "which cluster kubectl uses, and how",
        "DOCKER_*": "which daemon docker uses",
        "COMPOSE_*": "which file docker compose reads",
        "XDG_*": "where these programs keep their settings",
    },
    Needs.EXECUTOR: {
        "PYSPARK_*": "which Python they run",
        "SWEEPFLOW_CONFIG": "where the settings are",
        "SWEEPFLOW_STORE": "which store they open",
        "SWEEPFLOW_SQLITE_*": "how",
        "SWEEPFLOW_CASSANDRA_*": "how, and with which login, which is not sent to a task: Spark's pages would show it",
    },
    Needs.SPARK: {
        "SPARK_*": "what Spark needs on this machine or cluster",
        "PYSPARK_*": "the same",
        "HADOOP_*": "which file systems and resource manager it uses",
        "YARN_*": "the same",
        "KUBE*": "the same",
        "KRB5*": "how it logs in there",
        "SWEEPFLOW_*": "the settings, which our jobs load",
    },
    Needs.AIRFLOW: {
        "AIRFLOW_*": "its own settings and connections",
        "_AIRFLOW_*": "the same",
        "SWEEPFLOW_*": "its tasks are ours, and load these settings",
    },
}
_WITHOUT = {
    Needs.SPARK: ("SWEEPFLOW_ALERT_*", "SWEEPFLOW_METRICS_OTLP_*", "SWEEPFLOW_SPARK_*_URL"),
}
"""What a list above does not include, although a pattern in it matches: jobs alert no one and export no metrics."""
_IMPLIED = {Needs.SPARK: (Needs.NETWORK,), Needs.AIRFLOW: (Needs.SPARK, Needs.NETWORK, Needs.NODE_TOOL)}
"""Tasks of Airflow run our code, which starts all other kinds."""


def inherited_environment(*needs: Needs) -> dict[str, str]:
    """Return the part of our environment that a child process needs. The caller adds its own variables."""
    return {name: value for name, value in os.environ.items() if _is_passed_on(name, needs)}


def left_out_of_environment(*needs: Needs) -> list[str]:
    """Return the names of the other variables, for a child whose environment another program assembles."""
    return [name for name in os.environ if not _is_passed_on(name, needs)]


@contextmanager
def only_inherited(*needs: Needs) -> Iterator[None]:
    """Take the other variables out of our own environment for the block, in which a library starts a child process and
    passes on all that we have."""
    left_out = {name: os.environ.pop(name) for name in left_out_of_environment(*needs)}
    try:
        yield
    finally:
        os.environ.update(left_out)


def _is_passed_on(name: str, needs: Sequence[Needs]) -> bool:
    """Variables of proxies are in upper or lower case."""
    all_needs = {*needs, *(more for need in needs for more in _IMPLIED.get(need, ()))}
    patterns = [*_EVERY_CHILD]
    for need in all_needs:
        if not any(fnmatchcase(name, each) for each in _WITHOUT.get(need, ())):
            patterns += _MORE[need]
    return any(fnmatchcase(name, each) or (each == "*_PROXY" and fnmatchcase(name.upper(), each)) for each in patterns)


# ---------------------------------------------------------------------------------------------------------------------
# Fewer garbage collections while very many small values are created.
#
# A sweep creates hundreds of thousands of entries, cells and ranges: plain tuples without reference cycles, which are
# freed by reference counting. The cycle detector of Python examines them again and again all the same, and takes a
# third of the time of a sweep (measured: 0.62 s instead of 0.94 s for ten thousand entries on Cassandra).
# ---------------------------------------------------------------------------------------------------------------------

_SELDOM = (100_000, 50, 50)
"""Collect after that many new objects: about ten megabytes of possible garbage."""


@contextmanager
def collect_garbage_seldom() -> Iterator[None]:
    """Collect garbage seldom in this process until the block ends. A higher threshold, or none, stays as it is."""
    before = gc.get_threshold()
    if 0 < before[0] < _SELDOM[0]:
        gc.set_threshold(*_SELDOM)
    try:
        yield
    finally:
        gc.set_threshold(*before)
