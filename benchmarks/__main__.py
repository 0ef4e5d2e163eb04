"""Run benchmarks, or write the page of their results.

`python -m benchmarks [--record FOLDER] [--sizes N,N] [NAME …]` prints one JSON line for each benchmark.
`python -m benchmarks page [--results FOLDER]` writes `docs/benchmarks.md` and its plots from recorded results.
"""

from __future__ import annotations

import argparse
import importlib
import inspect
import json
import pkgutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import benchmarks
from benchmarks.shared.recorded import RESULTS, Recorded
from sweep_tasks.logs import configure_logs

NAMES = sorted(m.name for m in pkgutil.iter_modules(benchmarks.__path__) if not m.ispkg and m.name != "__main__")
PAGE = "page"


def main(arguments: Sequence[str]) -> None:
    if arguments[:1] == [PAGE]:
        _write_page(arguments[1:])
    else:
        _measure(arguments)


def _measure(arguments: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description="Run benchmarks. "
        "'python -m benchmarks page' writes the page of their recorded results.")  # fmt: skip
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(NAMES)}; all if none is named")
    parser.add_argument("--record", type=Path, metavar="FOLDER", help=f"also store each result, such as in {_shown()}")
    parser.add_argument(
        "--sizes", type=_sizes, metavar="N,N", help="instead of the default sizes; for all that are named"
    )
    given = parser.parse_args(arguments)
    names = given.names or NAMES
    for name in names:
        if name not in NAMES:
            parser.error(f"there is no benchmark {name!r}; there are {', '.join(NAMES)}")
        if given.sizes and "sizes" not in inspect.signature(_module(name).measure).parameters:
            parser.error(f"the benchmark {name!r} has no sizes")
    for name in names:
        result = _module(name).measure(**({"sizes": given.sizes} if given.sizes else {}))
        print(json.dumps({"benchmark": name, **result}), flush=True)
        if given.record:
            Recorded.now(name, result).store(given.record)


def _write_page(arguments: Sequence[str]) -> None:
    from benchmarks.page.files import write_page  # needs the packages of developers

    parser = argparse.ArgumentParser(
        prog="python -m benchmarks page", description="Write the page of recorded results."
    )
    parser.add_argument("--results", type=Path, default=RESULTS, metavar="FOLDER", help=f"default: {_shown()}")
    results = parser.parse_args(arguments).results
    if not results.is_dir():
        parser.error(f"{results} is no folder: record results first")
    for file in write_page(results):
        print(file)


def _module(name: str) -> Any:
    return importlib.import_module(f"benchmarks.{name}")


def _sizes(text: str) -> tuple[int, ...]:
    sizes = tuple(int(each.replace("_", "")) for each in text.split(","))
    if min(sizes) < 1:
        raise argparse.ArgumentTypeError(f"{text}: sizes are positive")
    return sizes


def _shown() -> str:
    return str(RESULTS.relative_to(RESULTS.parents[1]))


if __name__ == "__main__":
    configure_logs()
    main(sys.argv[1:])
