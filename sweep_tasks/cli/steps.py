"""Progress of a command that takes its time: a line on stderr for each step that is done, a moving one for that under
way where somebody looks at it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn


class Step:
    """`done` replaces the step's name when it has ended."""

    def __init__(self, bar: Progress, name: str, total: float | None) -> None:
        self._bar = bar
        self._task = bar.add_task(name, total=total)
        self.done = name

    def reach(self, completed: float) -> None:
        self._bar.update(self._task, completed=completed)

    def now(self, doing: str) -> None:
        self._bar.update(self._task, description=doing)


class Steps:
    def __init__(self) -> None:
        self._console = Console(stderr=True, soft_wrap=True, highlight=False)

    def say(self, line: str) -> None:
        self._console.print(line)

    @contextmanager
    def step(self, name: str, total: float | None = None) -> Iterator[Step]:
        """`total` is what the step counts up to; None for one that can't tell."""
        began = time.perf_counter()
        columns = [SpinnerColumn(), TextColumn("{task.description}"), *([BarColumn()] if total else [])]
        watched = self._console.is_terminal
        if not watched:
            self.say(f"  {name} …")
        with Progress(*columns, TimeElapsedColumn(), console=self._console, transient=True, disable=not watched) as bar:
            step = Step(bar, name, total)
            yield step
        self.say(f"[green]✓[/] {step.done} [dim]({time.perf_counter() - began:.1f} s)[/]")
