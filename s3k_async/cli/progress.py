"""Progress of long work, on standard error if it is a terminal."""

from __future__ import annotations

from contextlib import ExitStack
from types import TracebackType
from typing import TYPE_CHECKING, Self

from s3k_async._core.runtime import SYSTEM
from s3k_async.model import Progress

if TYPE_CHECKING:
    from rich.progress import Progress as Display
    from rich.progress import Task, TaskID

__all__ = ["ProgressMeter"]

PATIENCE = 0.5
"""Seconds before the progress is shown: most commands end earlier."""


class ProgressMeter:
    """Shows phase, counts with their unit, bytes, rate and remaining time of work by callbacks;
    nothing unless `shown`. The rate is that of the phase, in bytes if they are known, else in the
    unit of the count.

    One meter can show several pieces of work: `part()` returns the callback of each, and their
    numbers are added.
    """

    def __init__(self, title: str, *, shown: bool, total: int | None = None) -> None:
        self.shown = shown
        self._title = title
        self._total = total
        self._parts: list[Progress] = []
        self._start = self._phase_start = SYSTEM.monotonic()
        self._stack = ExitStack()
        self._display: Display | None = None
        self._task: TaskID | None = None
        self._phase = ""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stack.close()

    @property
    def tasks(self) -> list[Task]:
        """The displayed tasks."""
        return [] if self._display is None else self._display.tasks

    def part(self) -> ProgressPart | None:
        """A callback for one piece of the work; None if nothing is shown."""
        if not self.shown:
            return None
        self._parts.append(Progress(self._title, 0))
        return ProgressPart(self, len(self._parts) - 1)

    def report(self, index: int, progress: Progress) -> None:
        """Record the progress of one part."""
        if progress.phase != self._phase:
            self._begin(progress.phase)
        self._parts[index] = progress
        if self._display is None:
            if SYSTEM.monotonic() - self._start < PATIENCE:
                return
            self._display = self._open()
            self._task = self._display.add_task(
                self._name(), total=None, unit="", moved="", speed=""
            )
        assert self._task is not None
        totals = [part.total for part in self._parts]
        known = (
            sum(total or 0 for total in totals)
            if all(total is not None for total in totals)
            else None
        )
        moved = sum(part.bytes for part in self._parts)
        done = sum(part.done for part in self._parts)
        seconds = SYSTEM.monotonic() - self._phase_start
        self._display.update(
            self._task,
            description=self._name(),
            completed=done,
            unit=progress.unit,
            total=self._total if self._total is not None else known,
            moved=f"{moved / 1e6:,.1f} MB" if moved else "",
            speed=_rate(done, moved, seconds),
        )

    def _name(self) -> str:
        return f"{self._title}: {self._phase}" if self._phase else self._title

    def _begin(self, phase: str) -> None:
        """Start a phase, with counts of its own."""
        self._phase = phase
        self._phase_start = SYSTEM.monotonic()
        self._parts = [Progress(self._title, 0) for _ in self._parts]
        if self._display is not None and self._task is not None:
            self._display.reset(self._task, total=None)

    def _open(self) -> Display:
        from rich.console import Console
        from rich.progress import (
            BarColumn,
            MofNCompleteColumn,
            TextColumn,
            TimeElapsedColumn,
            TimeRemainingColumn,
        )
        from rich.progress import Progress as Display

        display = Display(
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[unit]}"),
            TextColumn("{task.fields[moved]}"),
            TextColumn("{task.fields[speed]}"),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
            console=Console(stderr=True),
            transient=True,
        )
        display.start()
        self._stack.callback(display.stop)
        return display


class ProgressPart:
    """The progress callback of one piece of work."""

    def __init__(self, meter: ProgressMeter, index: int) -> None:
        self._meter = meter
        self._index = index

    def __call__(self, progress: Progress) -> None:
        """The callback of the client."""
        self._meter.report(self._index, progress)


def _rate(done: int, moved: int, seconds: float) -> str:
    """The rate of a phase; empty in its first moments."""
    if seconds < PATIENCE or seconds == 0:
        return ""
    return f"{moved / 1e6 / seconds:,.1f} MB/s" if moved else f"{done / seconds:,.0f}/s"
