"""Where the page is, and where Airflow is: light enough for every task to import."""

from __future__ import annotations

from urllib.parse import urlsplit

from airflow.configuration import conf

PREFIX = "/sweepflow"


def public_address() -> str:
    """As browsers know Airflow; empty if nobody told."""
    return conf.get("api", "base_url", fallback="") or ""


def airflow_path() -> str:
    """What Airflow's own addresses begin with, without the host."""
    return urlsplit(public_address()).path.rstrip("/")
