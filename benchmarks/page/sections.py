"""The sections of the page: for each benchmark its method, its tables and its charts, from a recorded result.

Figures are shown as the benchmark printed them. Nothing is computed here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks.page.charts import Bars, Lines

Result = Mapping[str, Any]
Cell = str | float
Parts = tuple[Sequence["Table"], Sequence[Bars | Lines]]


@dataclass(frozen=True)
class Table:
    columns: Sequence[str]
    rows: Sequence[Sequence[Cell]]


@dataclass(frozen=True)
class Section:
    benchmark: str
    title: str
    method: str
    parts: Callable[[Result], Parts]
    """The tables and the charts of a result."""


# --- Spark and growth -------------------------------------------------------------------------------------------------


def _growth(result: Result) -> Parts:
    sizes = result["sizes"]
    memory = [each["memory"] for each in sizes]
    entries = [each["entries"] for each in sizes]
    time = Table(
        ("entries", "seconds", "without the start", "Java, MB", "Python driver, MB", "largest worker, MB"),
        [
            (each["entries"], each["job_s"], each["without_start_s"], *(each["memory"][name] for name in _PROCESSES))
            for each in sizes
        ],
    )
    growth = Table(
        ("from", "to", "relative to linear growth"),
        [(*each["entries"], each["relative_to_linear"]) for each in result["growth"]],
    )
    used = {_PROCESSES[name]: [each[name] for each in memory] for name in _PROCESSES}
    seconds = {"without the start": [each["without_start_s"] for each in sizes]}
    limit = result["worker_limit_mb"]
    labels = [f"{each:,} entries" for each in entries]
    return [time, growth], [
        Lines("growth", "The whole Spark job", "seconds", seconds, logarithmic=True, x=entries, x_unit="queue entries"),
        Bars("growth-memory", "Peak resident memory", "MB", used, limit, "limit of a worker", labels=labels),
    ]


_PROCESSES = {"java_mb": "Java", "driver_mb": "Python driver", "worker_mb": "largest Python worker"}


def _spark(result: Result) -> Parts:
    trivial, sizes = result["trivial"], result["sizes"]
    little = Table(
        ("entries", "job, seconds", "bare spark-submit, seconds", "ratio", "nothing to do, seconds"),
        [(trivial["entries"], trivial["job_s"], trivial["bare_s"], trivial["ratio"], result["idle_s"])],
    )
    much = Table(
        ("entries", "job, seconds", "without the start", "in one process, seconds", "ratio without the start"),
        [
            (each["entries"], each["job_s"], each["without_start_s"], each["in_process_s"], each["ratio_without_start"])
            for each in sizes
        ],
    )
    series = {
        "job without its start": [each["without_start_s"] for each in sizes],
        "in one process": [each["in_process_s"] for each in sizes],
    }
    labels = [f"{each['entries']:,} entries" for each in sizes]
    return [little, much], [Bars("spark", "Spark and one process, on SQLite", "seconds", series, labels=labels)]


def _spark_start(result: Result) -> Parts:
    kinds = {"seconds": "seconds", "processor_seconds": "CPU seconds"}
    table = Table(
        ("", "with the archive", "without"),
        [(kinds[name], result[name]["with"], result[name]["without"]) for name in kinds],
    )
    worker = result["worker_processor_seconds"]
    workers = Table(
        ("first task of a worker, CPU seconds, with our daemon", "with Spark's own", "ratio"),
        [(worker["ours"], worker["stock"], result["worker_processor_ratio"])],
    )
    series = {f"{name} the archive": [result[kind][name] for kind in kinds] for name in ("with", "without")}
    return [table, workers], [Bars("spark_start", "Start of a Spark job", "seconds", series, labels=[*kinds.values()])]


# --- Cassandra --------------------------------------------------------------------------------------------------------


def _deleting(result: Sequence[Result], first: str) -> Table:
    return Table(
        (
            first,
            "rounds",
            "best loop, seconds",
            "deleting, seconds",
            "job without its start, seconds",
            "start, seconds",
        ),
        [
            (
                each[first],
                each["rounds"],
                each["loop_s"],
                each["deleting_s"],
                each["without_start_s"],
                each["start_s"],
            )
            for each in result
        ],
    )


def _loop_and_job(name: str, title: str, sizes: Sequence[Result], first: str) -> Bars:
    series = {
        "loop of range deletes": [each["loop_s"] for each in sizes],
        "deleting of the job": [each["deleting_s"] for each in sizes],
        "job without its start": [each["without_start_s"] for each in sizes],
    }
    return Bars(name, title, "seconds", series, labels=[f"{each[first]:,} {first}" for each in sizes])


def _cassandra(result: Result) -> Parts:
    counting, writes = result["counting"], result["write_path"]
    counted = Table(
        ("range deletes", "deleting one, microseconds", "counting it, microseconds", "ratio"),
        [(counting["cells"], counting["delete_us"], counting["count_us"], counting["ratio"])],
    )
    path = Table(
        ("writes per transaction", "with the queue, per second", "without, per second", "ratio"),
        [(each["writes"], each["with_queue_per_s"], each["without_per_s"], each["ratio"]) for each in writes],
    )
    speeds = {
        "with the queue": [each["with_queue_per_s"] for each in writes],
        "without": [each["without_per_s"] for each in writes],
    }
    labels = [f"{each['writes']} writes" for each in writes]
    deletes = result["range_deletes"]
    return [_deleting(deletes, "cells"), counted, path], [
        _loop_and_job("cassandra", "Deleting on Cassandra", deletes, "cells"),
        Bars("cassandra-writes", "Transactions on Cassandra", "per second", speeds, labels=labels),
    ]


def _overwritten(result: Result) -> Parts:
    sizes = result["sizes"]
    title = f"Every cell written {result['times']} times"
    return [_deleting(sizes, "entries")], [_loop_and_job("overwritten", title, sizes, "entries")]


def _compaction(result: Result) -> Parts:
    names = {
        "stcs_compacted": "compacted, size-tiered",
        "ucs_compacted": "compacted, unified",
        "stcs_left": "left alone, size-tiered",
        "ucs_left": "left alone, unified",
    }
    sizes = result["value_bytes"]
    table = Table(
        ("bytes of a value", *names.values()),
        [(int(size), *(each["ratio"][name] for name in names)) for size, each in sizes.items()],
    )
    series = {shown: [each["ratio"][name] for each in sizes.values()] for name, shown in names.items()}
    title = "Reading the head of a queue, relative to one never filled"
    goal = _goal_of(result)
    labels = [f"{size} bytes" for size in sizes]
    return [table], [Bars("compaction", title, "ratio", series, goal, logarithmic=True, labels=labels)]


# --- in one process ---------------------------------------------------------------------------------------------------


def _legacy(result: Result) -> Parts:
    rows = result["sizes"]
    table = Table(
        (
            "store",
            "cells",
            "overwritten",
            "scan, seconds",
            "targeted sweep, seconds",
            "ratio",
            "ratio of the first round",
        ),
        [
            (
                _STORES[each["store"]],
                each["cells"],
                each["overwritten"],
                each["legacy_s"],
                each["targeted_s"],
                each["ratio"],
                each["first"]["ratio"],
            )
            for each in rows
        ],
    )
    sizes = sorted({each["cells"] for each in rows})
    ratios = {(each["store"], each["cells"]): each["ratio"] for each in rows}
    series = {shown: [ratios.get((store, size)) for size in sizes] for store, shown in _STORES.items()}
    title = "A scan, relative to a targeted sweep"
    goal = _goal_of(result)
    return [table], [Lines("legacy", title, "ratio", series, goal, x=sizes, x_unit="cells in the table")]


_STORES = {"sqlite": "SQLite", "cassandra": "Cassandra"}


def _sweeping(result: Result) -> Parts:
    cost, engine = result["queue_cost"], result["engine"]
    queue = Table(
        ("writes per transaction", "with the queue, per second", "without, per second", "ratio"),
        [(cost["writes"], cost["with_queue_per_s"], cost["without_per_s"], cost["ratio"])],
    )
    rates = Table(
        ("strategy", "rows of the queue", "entries per CPU second"),
        [(each["strategy"], each["rows"], each["entries_per_cpu_s"]) for each in engine],
    )
    labels = [f"{each['strategy']},\n{each['rows']} rows" for each in engine]
    series = {"entries per CPU second": [each["entries_per_cpu_s"] for each in engine]}
    goal = result["goal_entries_per_cpu_s"]
    return [rates, queue], [Bars("sweeping", "The engine, on one core", "per CPU second", series, goal, labels=labels)]


def _protections(result: Result) -> Parts:
    table = Table(
        ("store", "records", "number", "parked", "ratio", "next sweep, ms"),
        [
            (store, _words(each["records"]), each["count"], each["parked"], each["ratio"], each["rejudged_ms"])
            for store in ("memory", "sqlite")
            for each in result[store]
        ],
    )
    kinds = list(dict.fromkeys(each["records"] for each in result["memory"]))
    counts = list(dict.fromkeys(each["count"] for each in result["memory"]))
    ratios = {(each["records"], each["count"]): each["ratio"] for each in result["memory"]}
    series = {f"{count} records": [ratios[kind, count] for kind in kinds] for count in counts}
    title = "A sweep with records, relative to one with none (memory store)"
    owners = result["protect_and_release"]
    rate = Table(
        ("owners at once", "protect and release, per second"),
        [(int(number), each) for number, each in owners["per_s"].items()],
    )
    return [table, rate], [Bars("protections", title, "ratio", series, labels=[_words(kind) for kind in kinds])]


def _transactions(result: Result) -> Parts:
    commits, reads, conflicts = result["commits"], result["reads"], result["conflicts"]
    table = Table(
        ("writes per transaction", "transactions per second", "bare statements, per second", "ratio"),
        [(each["writes"], each["transactions_per_s"], each["bare_per_s"], each["ratio_to_bare"]) for each in commits],
    )
    read = Table(
        ("point reads per second", "cells per second in one call", "scanned cells per second"),
        [(reads["point_reads_per_s"], reads["cells_per_s_in_one_call"], reads["scanned_cells_per_s"])],
    )
    cases = {"one_cell": "one cell", "own_cells": "a cell each"}
    contended = Table(
        (f"{conflicts['writers']} writers increment", "retries per commit", "commits per second"),
        [
            (shown, *(conflicts[name][key] for key in ("retries_per_commit", "commits_per_s")))
            for name, shown in cases.items()
        ],
    )
    series = {
        "transactions": [each["transactions_per_s"] for each in commits],
        "bare statements": [each["bare_per_s"] for each in commits],
    }
    labels = [f"{each['writes']:,} writes" for each in commits]
    chart = Bars("transactions", "Transactions on SQLite", "per second", series, logarithmic=True, labels=labels)
    return [table, read, contended], [chart]


def _journal(result: Result) -> Parts:
    table = Table(
        ("writers at once", "acts per second", "relative to one writer"),
        [
            (int(writers), rate, result["ratio_to_one_writer"][writers])
            for writers, rate in result["acts_per_s"].items()
        ],
    )
    pair = result["protect_and_release"]
    cost = Table(
        ("protect and release with entries, ms", "without, ms", "ratio"),
        [(pair["milliseconds"]["with_entries"], pair["milliseconds"]["records_alone"], pair["ratio"])],
    )
    series = {"acts": list(result["acts_per_s"].values())}
    labels = [f"{writers} at once" for writers in result["acts_per_s"]]
    return [table, cost], [Bars("journal", "Acts recorded in the journal", "per second", series, labels=labels)]


def _command_start(result: Result) -> Parts:
    used = result["processor_seconds"]
    names = {
        "python": "python -c pass",
        "help": "sweepflow --help",
        "status": "sweepflow status",
        "connect": "sweep_tasks.connect()",
    }
    table = Table(
        ("program", "CPU seconds", "relative to Python"),
        [(shown, used[name], result.get(name, 1)) for name, shown in names.items()],
    )
    series = {"CPU seconds": [used[name] for name in names]}
    return [table], [Bars("command_start", "Starting", "CPU seconds", series, labels=[*names.values()])]


def _goal_of(result: Result) -> float | None:
    """Return the goal that all goals of a benchmark share, if it has any."""
    goals = {each["goal"] for each in result["goals"]}
    return goals.pop() if len(goals) == 1 else None


def _words(name: str) -> str:
    return name.replace("_", " ")


SECTIONS = (
    Section(
        "sweeping",
        "Sweeping in one process",
        "The engine sweeps a queue in a memory store, in which every cell was written four times, in one thread. "
        "Transactions on SQLite are measured with the queue and without, alternately.",
        _sweeping,
    ),
    Section(
        "growth",
        "Growth of the Spark job",
        "The whole job sweeps SQLite stores of several sizes, with a heap of 512 MB and an enforced limit for each "
        "Python worker. The start is what a bare `spark-submit` takes, and peak memory is what the kernel counted.",
        _growth,
    ),
    Section(
        "spark",
        "Spark and one process",
        "The job and the in-process sweep each sweep a copy of the same SQLite store. "
        "A job with next to nothing to do is measured beside a bare `spark-submit`, alternately.",
        _spark,
    ),
    Section(
        "spark_start",
        "Start of a Spark job",
        "A small job is started with the archive of Java classes and without, alternately. "
        "The first task of a Python worker is measured with our daemon and with Spark's own.",
        _spark_start,
    ),
    Section(
        "cassandra",
        "Deleting and writing on Cassandra",
        "The whole Spark job is measured beside the fastest loop that only sends its range deletes, in interleaved "
        "rounds on one node. Transactions are measured with the queue and without, alternately.",
        _cassandra,
    ),
    Section(
        "overwritten",
        "Cells that were overwritten",
        "Every cell is in the queue ten times, and the job deletes with one range tombstone for each cell. "
        "The loop sends a range delete for each entry.",
        _overwritten,
    ),
    Section(
        "legacy",
        "Scan and targeted sweep",
        "One in a hundred cells of a table is written again; a scan examines all of them, a targeted sweep only the "
        "queue. Both run in one process, and the targeted sweep several times, of which the median counts.",
        _legacy,
    ),
    Section(
        "compaction",
        "Compaction by tombstone density",
        "Items are put into ten rows, nearly all are deleted as a sweep does it, and the head of each row is read. "
        "The ratios are to the same read of a table that never held the deleted items.",
        _compaction,
    ),
    Section(
        "protections",
        "Protections",
        "A shard is swept with records of several kinds and with none, in interleaved rounds and in CPU seconds. "
        "Owners protect and release concurrently, each with its own connection.",
        _protections,
    ),
    Section(
        "transactions",
        "Transactions on SQLite",
        "Transactions are measured beside the bare statements that do the same, alternately. "
        "Eight processes increment one cell, then one cell each.",
        _transactions,
    ),
    Section(
        "journal",
        "Journal",
        "Writers record acts concurrently, each with its own connection, on SQLite. "
        "Protecting and releasing is measured with journal entries and without, alternately.",
        _journal,
    ),
    Section(
        "command_start",
        "Start of the command",
        "The command and the library are started alternately with `python -c pass`. "
        "The least CPU seconds of several rounds count.",
        _command_start,
    ),
)
"""In the order of the page."""
