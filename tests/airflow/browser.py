"""Debian's Chromium, driven headless: somebody in front of the Airflow UI.

What they see is kept as pictures in `build/screenshots`.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

from playwright.sync_api import Browser, Error, FrameLocator, Page, expect, sync_playwright

from sweep_tasks.orchestration.local_airflow import LocalAirflow
from sweep_tasks.orchestration.local_environment import Login

SCREENSHOTS = Path(__file__).parents[2] / "build" / "screenshots"
PATIENCE_MS = 90_000
_FLAGS = (
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync",
)  # fmt: skip


@contextmanager
def chromium() -> Iterator[Browser]:
    found = shutil.which("chromium")
    assert found, "Chromium is needed: 'make browser' installs it"
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=found, args=_FLAGS)
        try:
            yield browser
        finally:
            browser.close()


class Person:
    """Logged in, with the page of the sweep in front of them."""

    def __init__(self, page: Page, airflow: LocalAirflow) -> None:
        self.page = page
        self.complaints: list[str] = []
        self._address = airflow.address
        page.on("console", lambda said: self.complaints.append(said.text) if said.type == "error" else None)
        page.on("pageerror", lambda error: self.complaints.append(str(error)))

    def log_in(self, login: Login) -> None:
        self.page.goto(self._address)
        self.page.locator("input").nth(0).fill(login.user)
        self.page.locator("input[type=password]").fill(login.password)
        self.page.get_by_role("button", name="Sign in").click()
        self.page.wait_for_url(lambda url: "login" not in url)
        self.complaints.clear()  # Airflow's own, on being asked without a login

    @property
    def sweeping(self) -> FrameLocator:
        return self.page.frame_locator("iframe")

    def open_sweeping(self) -> None:
        """By the navigation, as anybody would."""
        self.page.get_by_role("link", name="Sweeping").click()
        self.sweeping.get_by_role("heading", name="Sweeping").wait_for()

    def keep(self, name: str) -> None:
        SCREENSHOTS.mkdir(parents=True, exist_ok=True)
        self.page.screenshot(path=SCREENSHOTS / f"{name}.png")

    def keep_whole(self, name: str) -> None:
        """The page outside of its frame, from top to bottom."""
        SCREENSHOTS.mkdir(parents=True, exist_ok=True)
        self.page.goto(f"{self._address}/sweepflow/")
        self.page.get_by_text(re.compile("No compaction has reported yet|As told by")).wait_for()  # comes last
        self.page.screenshot(path=SCREENSHOTS / f"{name}.png", full_page=True)


@contextmanager
def somebody(
    browser: Browser,
    airflow: LocalAirflow,
    login: Login,
    colours: Literal["light", "dark"] = "light",
    width: int = 1280,
) -> Iterator[Person]:
    context = browser.new_context(color_scheme=colours, viewport={"width": width, "height": 900})
    context.set_default_timeout(PATIENCE_MS)
    expect.set_options(timeout=PATIENCE_MS)
    try:
        person = Person(context.new_page(), airflow)
        person.log_in(login)
        yield person
    except Error:
        person.keep("failed")
        raise
    finally:
        context.close()
