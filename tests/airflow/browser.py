"""Debian's Chromium, driven headless, like a user of the Airflow UI.

What they see is kept as pictures in `build/screenshots`.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

from playwright.sync_api import Browser, Error, FrameLocator, Locator, Page, expect, sync_playwright

from sweep_tasks.local.airflow import LocalAirflow
from sweep_tasks.local.airflow_environment import Login

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
        page.on("console", lambda output: self.complaints.append(output.text) if output.type == "error" else None)
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
        """Through the navigation, as users do."""
        self.page.locator("a[href$='/sweeping']").click()
        self.sweeping.locator("#overview h1").wait_for()

    def question(self) -> Locator:
        """The open dialog, once it has the focus; every field in it has a label."""
        dialog = self.sweeping.locator("dialog[open]")
        expect(dialog.locator("#reason")).to_be_focused()
        unlabelled = "fields => fields.filter(field => !field.labels.length).map(field => field.name)"
        assert dialog.locator("input:not([type=hidden]), select, textarea").evaluate_all(unlabelled) == []
        return dialog

    def answers(self, reason: str) -> None:
        dialog = self.sweeping.locator("dialog[open]")
        dialog.locator("#reason").fill(reason)
        dialog.locator("button[type=submit]").click()

    def reads_of(self, what: str, *values: str) -> None:
        """The page reports the result and names its object."""
        message = self.sweeping.locator("#message")
        expect(message).to_have_attribute("data-what", what)
        for value in values:
            expect(message).to_contain_text(value)

    def walk_to(self, name: str, most: int = 60) -> bool:
        """With the tab key alone, from the current focus."""
        frame = self.page.frames[-1]
        for _ in range(most):
            self.page.keyboard.press("Tab")
            if frame.evaluate("document.activeElement?.id") == name:
                return True
        return False

    def keep(self, name: str) -> None:
        SCREENSHOTS.mkdir(parents=True, exist_ok=True)
        self.page.screenshot(path=SCREENSHOTS / f"{name}.png")

    def keep_whole(self, name: str) -> None:
        """The page outside of its frame, from top to bottom."""
        SCREENSHOTS.mkdir(parents=True, exist_ok=True)
        self.page.goto(f"{self._address}/sweepflow/")
        expect(self.page.locator("#reported, #not-reported").first).to_be_visible()  # comes last
        self.page.screenshot(path=SCREENSHOTS / f"{name}.png", full_page=True)


@contextmanager
def logged_in(
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
    except (Error, AssertionError) as error:
        person.keep("failed")
        error.add_note(f"{[frame.url for frame in person.page.frames]}, console: {person.complaints}")
        raise
    finally:
        context.close()
