"""The flag that rewrites the expectations of scenario files."""

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
    """Off if pytest was started in a folder where the flag is unknown."""
    return bool(pytestconfig.getoption("--rewrite-scenarios", default=False))
