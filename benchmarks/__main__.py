"""`python -m benchmarks [NAME …]`: runs benchmarks and prints one JSON line for each."""

from __future__ import annotations

import argparse
import importlib
import json
import pkgutil

import benchmarks
from sweep_tasks.logs import configure_logs

NAMES = sorted(m.name for m in pkgutil.iter_modules(benchmarks.__path__) if not m.ispkg and m.name != "__main__")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(NAMES)}; all if none is named")
    configure_logs()
    for name in parser.parse_args().names or NAMES:
        if name not in NAMES:
            parser.error(f"there is no benchmark {name!r}; there are {', '.join(NAMES)}")
        print(json.dumps({"benchmark": name, **importlib.import_module(f"benchmarks.{name}").measure()}), flush=True)


if __name__ == "__main__":
    main()
