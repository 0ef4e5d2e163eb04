"""The flag that rewrites what scenario files expect."""

from __future__ import annotations

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--rewrite-scenarios",
        action="store_true",
        help="put what really happened into the scenario files; read the difference before you keep it",
    )


@pytest.fixture
def rewrite(pytestconfig: pytest.Config) -> bool:
    """Off where pytest was started too far up to know the flag."""
    return bool(pytestconfig.getoption("--rewrite-scenarios", default=False))
