"""One case of the fork matrix, as a program: `fork_case.py METHOD STATE DIRECTORY`.

A parent with a client in some state starts children, which use that client (or make their own);
then the parent goes on. It ends with 0 if everybody could do everything, and says on standard error
what could not be done.
"""

from __future__ import annotations

import asyncio
import itertools
import multiprocessing
import sys
import threading
from collections.abc import Callable
from typing import Any

from s3k_async._sync.sync_client import S3kSyncClient
from s3k_async.client import S3kClient
from s3k_async.errors import ForkedClientError
from s3k_async.settings import resolve
from s3k_async.volumes import init_volume

CHILDREN = 3
FORKS_WITH_A_BUSY_THREAD = 12


_turns = itertools.count()


def use(client: S3kSyncClient, name: str) -> None:
    """Everything a client is for: whole files, open files, listings, a rename."""
    data = name.encode() * 1000
    client.write(f"/{name}/whole", data)
    assert client.read(f"/{name}/whole") == data
    with client.open(f"/{name}/streamed", "wb") as writer:
        for _ in range(10):
            writer.write(data)
    with client.open(f"/{name}/streamed") as reader:
        assert reader.read(10) == (data * 10)[:10]
        reader.seek(-5, 2)
        assert reader.read() == data[-5:]
    client.rename(f"/{name}/whole", f"/{name}/moved")
    assert {status.name for status in client.list(f"/{name}")} == {"streamed", "moved"}
    assert client.read("/before") == b"before"


def child(client: S3kSyncClient, name: str) -> None:
    use(client, name)


def child_that_closes(client: S3kSyncClient, name: str) -> None:
    with client:
        use(client, name)


def child_with_its_own(directory: str, name: str) -> None:
    with S3kSyncClient(directory) as client:
        use(client, name)


def child_with_an_async_client(client: S3kClient, forked: bool, name: str) -> None:
    async def work() -> None:
        if forked:
            try:
                await client.stat("/before")
            except ForkedClientError:
                await client.close()
            else:
                raise AssertionError("a client that the parent had entered worked in the child")
            return
        async with client:
            await client.write(f"/{name}/whole", b"1")
            assert await client.read("/before") == b"before"

    asyncio.run(work())


def run_children(
    context: Any, target: Callable[..., None], *given: object, count: int = CHILDREN
) -> None:
    """Children side by side, each under its own name."""
    children = [
        context.Process(target=target, args=(*given, f"child-{next(_turns)}")) for _ in range(count)
    ]
    for each in children:
        each.start()
    for each in children:
        each.join()
    failed = [each.exitcode for each in children if each.exitcode != 0]
    assert not failed, f"children ended with {failed}"


def unused(context: Any, directory: str) -> None:
    client = S3kSyncClient(directory)
    run_children(context, child, client)
    use(client, "parent")


def used(context: Any, directory: str) -> None:
    client = S3kSyncClient(directory)
    use(client, "first")
    listing, reader = client.list("/", recursive=True), client.open("/before")
    next(listing)
    writer = client.open("/half", "wb")
    writer.write(b"half")
    run_children(context, child, client, count=2)
    run_children(context, child_that_closes, client, count=2)
    assert len(list(listing)) >= 3
    assert reader.read() == b"before"
    writer.write(b" and half")
    writer.close()
    assert client.read("/half") == b"half and half"
    use(client, "parent")


def in_use(context: Any, directory: str) -> None:
    client = S3kSyncClient(directory)
    ending = threading.Event()
    failures: list[BaseException] = []

    def busy(number: int) -> None:
        turn = 0
        while not ending.is_set():
            turn += 1
            try:
                client.write(f"/busy-{number}", bytes(turn))
                assert len(client.read(f"/busy-{number}")) == turn
            except BaseException as error:
                failures.append(error)
                raise

    threads = [threading.Thread(target=busy, args=(number,)) for number in range(2)]
    for thread in threads:
        thread.start()
    try:
        use(client, "first")
        rounds = FORKS_WITH_A_BUSY_THREAD if context.get_start_method() == "fork" else 2
        for _ in range(rounds // 2):
            run_children(context, child, client, count=1)
            run_children(context, child_that_closes, client, count=1)
    finally:
        ending.set()
        for thread in threads:
            thread.join()
    assert not failures, failures
    use(client, "parent")


def after(context: Any, directory: str) -> None:
    client = S3kSyncClient(directory)
    use(client, "first")
    run_children(context, child_with_its_own, directory)
    use(client, "parent")


def entered_async(context: Any, directory: str) -> None:
    client = S3kClient(directory)
    forked = context.get_start_method() == "fork"

    async def enter() -> None:
        await client.open_volume()
        await client.write("/async", b"1")

    async def leave() -> None:
        assert await client.read("/async") == b"1"
        await client.close()

    with asyncio.Runner() as runner:
        runner.run(enter())
        run_children(context, child_with_an_async_client, client, forked, count=2)
        runner.run(leave())


CASES = {"unused": unused, "used": used, "in use": in_use, "after": after, "async": entered_async}


def main(method: str, state: str, directory: str) -> None:
    asyncio.run(init_volume(resolve(directory)))
    with S3kSyncClient(directory) as client:
        client.write("/before", b"before")
    CASES[state](multiprocessing.get_context(method), directory)


if __name__ == "__main__":
    main(*sys.argv[1:])
