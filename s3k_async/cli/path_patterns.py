"""Glob patterns in path arguments: a pattern stands for the paths that match, in order.

An argument with `*`, `?`, `[` or `{` is a path if that path exists, and otherwise a pattern as in
`s3k_async.listing.globbing`, where `[[]` stands for `[`. With a `/` at the end it matches only
directories. A pattern that matches nothing is kept: its command reports it as missing, or creates a
file of that name. With `--literal` no argument is a pattern: a command can be repeated after it has
removed the path.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

from s3k_async.cli.command import for_each
from s3k_async.cli.invocation import Clients
from s3k_async.cli.volume_addresses import Address, parse_address
from s3k_async.errors import S3kError
from s3k_async.listing.globbing import WILDCARDS

__all__ = ["expanded", "for_each_path", "is_pattern"]


def is_pattern(path: str) -> bool:
    """Whether a path in a volume is a pattern, unless it exists."""
    return not WILDCARDS.isdisjoint(path)


async def expanded(clients: Clients, paths: Sequence[str]) -> list[str]:
    """The arguments, each pattern replaced by addresses of the paths that match."""
    found: list[str] = []
    for text in paths:
        found += await _matches(clients, text) or [text]
    return found


async def for_each_path(
    clients: Clients, paths: Sequence[str], work: Callable[[Clients, str], Awaitable[object]]
) -> None:
    """As `for_each`, for the arguments and the paths that match patterns among them."""
    await for_each(await expanded(clients, paths), lambda path: work(clients, path))


async def _matches(clients: Clients, text: str) -> list[str]:
    """Addresses of the paths that match; none if the argument is literal, is a path that exists,
    matches nothing, or is no address of a volume, which its command reports. Raises the errors of
    `S3kClient.glob`."""
    try:
        address = parse_address(text)
        if clients.literal or not is_pattern(address.path):
            return []
        client = await clients.of(address)
    except S3kError:
        return []
    if await client.exists(address.path):
        return []
    pattern = address.path.rstrip("/")
    matches = sorted(
        [
            status.path
            async for status in client.glob(pattern)
            if status.is_dir or not address.is_into
        ]
    )
    return [_address(address, path) for path in matches]


def _address(like: Address, path: str) -> str:
    """A path in the volume of an address, as an argument."""
    if like.volume is None:
        return f":{path}"
    return f"{like.volume}{path}" if "://" in like.volume else f"{like.volume}:{path}"
