"""The optional requirements: which extra of the distribution brings which package.

`pip install sweepflow` is enough for transactions and sweeps on SQLite. What needs more is imported where it is used,
and a package that is missing there is reported as the extra to install.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec

from sweep_tasks.errors import ProgramMissing

EXTRAS = {
    "airflow": ("airflow", "fastapi", "httpx", "itsdangerous", "jinja2"),
    "cassandra": ("cassandra",),
    "otel": ("opentelemetry",),
    "spark": ("pandas", "py4j", "pyarrow", "pyspark"),
}
"""The top-level packages that each extra is needed for."""


@contextmanager
def name_missing_extra() -> Iterator[None]:
    """Turn the error about a missing package into one that names its extra."""
    try:
        yield
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if not any(package in packages for packages in EXTRAS.values()):
            raise
        raise _missing(package) from error


def require(package: str) -> None:
    """Raise an error if a package is missing that only a child process imports, where the error would be a line of its
    log."""
    found = find_spec(package)
    if found is None or found.origin is None:  # a folder of that name is no package
        raise _missing(package)


def _missing(package: str) -> ProgramMissing:
    extra = next(extra for extra, packages in EXTRAS.items() if package in packages)
    problem = f"{package} is not installed; run: pip install 'sweepflow[{extra}]'"
    return ProgramMissing(problem, field=extra, reason="extra_missing", package=package)
