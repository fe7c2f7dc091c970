"""Durations and times as written on the command line."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, Final

import click

from s3k_async._core.duration_syntax import DURATION, UNITS, seconds_of
from s3k_async._core.runtime import SYSTEM

__all__ = ["duration_option", "past_time", "time_of", "time_or_age"]

_CLOCK_DIFFERENCE: Final = 60_000
"""How far the clock that a time was taken from may be ahead, milliseconds."""


def duration_option(*names: str, help: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """An option whose value is a number of whole seconds, or a number with a unit."""
    return click.option(*names, metavar="DURATION", callback=_seconds, help=help)


def _seconds(ctx: click.Context, param: click.Parameter, text: str | None) -> int | None:
    """The seconds of a duration. Raises BadParameter."""
    if text is None:
        return None
    seconds = seconds_of(text)
    if seconds is None:
        raise click.BadParameter(
            f"{text!r} is not a duration in whole seconds: write 3600, 90s, 15m, 2h, 3d or 1w",
            ctx,
            param,
        )
    return seconds


def time_of(text: str | None, flag: str) -> int | None:
    """Epoch milliseconds of a time (UTC by default). Raises UsageError."""
    if text is None:
        return None
    try:
        return _epoch_ms(text)
    except (ValueError, OverflowError) as error:
        raise click.UsageError(
            f"{flag}: {text!r} is not a time such as 2026-11-21T04:30"
        ) from error


def _epoch_ms(text: str) -> int:
    time = datetime.fromisoformat(text)
    return int((time if time.tzinfo else time.replace(tzinfo=UTC)).timestamp() * 1000)


def time_or_age(text: str | None, flag: str) -> int | None:
    """Epoch milliseconds of a time (UTC by default), or of an age before now. Raises
    UsageError."""
    if text is None:
        return None
    age = DURATION.fullmatch(text)
    try:
        if age:
            return SYSTEM.now_ms() - int(float(age[1]) * UNITS[age[2]] * 1000)
        return _epoch_ms(text)
    except (ValueError, OverflowError) as error:
        raise click.UsageError(
            f"{flag}: {text!r} is neither a time such as 2026-11-21T04:30 nor an age such as 2d"
        ) from error


def past_time(text: str | None, flag: str) -> int | None:
    """As `time_or_age`, of a state that has been: a time that is more than a minute in the future
    raises UsageError."""
    time_ms = time_or_age(text, flag)
    if time_ms is not None and time_ms > SYSTEM.now_ms() + _CLOCK_DIFFERENCE:
        raise click.UsageError(
            f"{flag}: {text} is in the future: give an earlier time (UTC, unless it has an offset "
            "such as +02:00), or an age such as 2h"
        )
    return time_ms
