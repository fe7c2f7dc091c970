"""One scene for each row of the table in docs/permissions.md: the call, and what it needs of which
entries."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass

from s3k_async.client import S3kClient, volume_of
from s3k_async.model import StagedFile
from s3k_async.permissions import EXECUTE, READ, WRITE
from tests.client.request_scenes import downloaded, presigned

__all__ = ["DATA", "SCENES", "TRASH_SCENES", "AccessScene", "prepare", "staged_file"]

DATA = b"twelve bytes"
CHANGE = WRITE | EXECUTE
LIST = READ | EXECUTE


@dataclass(frozen=True, slots=True)
class AccessScene:
    """A call by somebody, with the permissions that it needs by path, all others being there."""

    call: Callable[[S3kClient], Awaitable[object]]
    needs: dict[str, int]
    before: Callable[[S3kClient], Awaitable[object]] | None = None
    """What the superuser does first, after `prepare`."""
    layouts: tuple[str, ...] = ("path", "tree")
    in_part: bool = False
    """Whether a refusal of one entry leaves what was done with others."""


async def prepare(fs: S3kClient) -> None:
    """`/d` with the file `f` and the directory `s` with the file `g`; `/e` with the file `h`."""
    for path in ("/d/f", "/d/s/g", "/e/h"):
        await fs.write(path, DATA)


async def staged_file(fs: S3kClient) -> StagedFile:
    async with fs.stage() as file:
        await file.write(DATA)
    return file.staged


async def drained(stream: AsyncIterator[object]) -> None:
    async for _ in stream:
        pass


async def opened(fs: S3kClient, path: str, mode: str) -> None:
    async with fs.open(path, mode) as file:
        if mode == "rb":
            await file.read()  # type: ignore[union-attr]
        else:
            await file.write(DATA)  # type: ignore[union-attr]


async def read_each(fs: S3kClient, path: str) -> None:
    for found in await fs.read_each([path]):
        if isinstance(found, Exception):
            raise found


async def many(result: Awaitable[object]) -> None:
    """Raise the first failure of a result."""
    for _, error in (await result).failures:  # type: ignore[attr-defined]
        raise error


async def in_transaction(fs: S3kClient, verb: str, *arguments: object, **named: object) -> None:
    async with fs.transaction() as transaction:
        await getattr(transaction, verb)(*arguments, **named)


async def opened_in_transaction(fs: S3kClient, path: str) -> None:
    async with fs.transaction() as transaction, transaction.open(path) as file:
        await file.write(DATA)


async def published(fs: S3kClient, path: str) -> None:
    await in_transaction(fs, "publish", path, await staged_file(fs), overwrite=True)


async def named(fs: S3kClient) -> None:
    await fs.set_attributes("/d/f", metadata={"name": b"value"})


async def extended(fs: S3kClient) -> None:
    await fs.append("/d/f", b"x")


async def overwritten(fs: S3kClient) -> None:
    await fs.write("/d/f", b"new")


async def discarded(fs: S3kClient) -> None:
    await fs.discard_staged([await staged_file(fs)])


async def copied(fs: S3kClient) -> None:
    await fs.copy("/d/s", "/e/new", recursive=True)


async def objects(fs: S3kClient) -> list[str]:
    """Two objects of the data location that the volume does not own."""
    place = volume_of(fs).place
    for name in ("foreign-1", "foreign-2"):
        await place.put(name, DATA)
    return [place.uri(name) for name in ("foreign-1", "foreign-2")]


async def adopted(fs: S3kClient) -> None:
    one, two = await objects(fs)
    await many(fs.adopt_many([("/d/new", one), ("/d/f", two)], overwrite=True))


async def adopted_one(fs: S3kClient) -> None:
    await in_transaction(fs, "adopt", "/d/new", (await objects(fs))[0])


async def replaced(fs: S3kClient) -> None:
    async with fs.transaction() as transaction:
        await transaction.replace("/d/s")
        await transaction.write("/d/s/new", DATA)


SCENES: dict[str, AccessScene] = {
    # Metadata
    "stat": AccessScene(lambda fs: fs.stat("/d/f"), {"/d": EXECUTE}),
    "exists": AccessScene(lambda fs: fs.exists("/d/f"), {"/d": EXECUTE}),
    "is_file": AccessScene(lambda fs: fs.is_file("/d/f"), {"/d": EXECUTE}),
    "is_dir": AccessScene(lambda fs: fs.is_dir("/d/s"), {"/d": EXECUTE}),
    "stat_many": AccessScene(lambda fs: fs.stat_many(["/e/h", "/d/f"]), {"/d": EXECUTE}),
    "exists_many": AccessScene(lambda fs: fs.exists_many(["/e/h", "/d/f"]), {"/d": EXECUTE}),
    "list": AccessScene(lambda fs: drained(fs.list("/d")), {"/d": LIST}),
    "list, recursive": AccessScene(
        lambda fs: drained(fs.list("/d", recursive=True)), {"/d": LIST, "/d/s": LIST}
    ),
    "list, sorted": AccessScene(
        lambda fs: drained(fs.list("/d", recursive=True, sorted=True)), {"/d": LIST, "/d/s": LIST}
    ),
    "list_batches": AccessScene(lambda fs: drained(fs.list_batches("/d")), {"/d": LIST}),
    "walk": AccessScene(lambda fs: drained(fs.walk("/d")), {"/d": LIST, "/d/s": LIST}),
    "find": AccessScene(lambda fs: drained(fs.find("/d")), {"/d": LIST, "/d/s": LIST}),
    "find by metadata": AccessScene(
        lambda fs: drained(fs.find(metadata="name")), {"/d": EXECUTE}, named
    ),
    "glob": AccessScene(lambda fs: drained(fs.glob("/d/*/g")), {"/d": LIST, "/d/s": EXECUTE}),
    "content_summary": AccessScene(lambda fs: fs.content_summary("/d"), {"/d": LIST, "/d/s": LIST}),
    "versions": AccessScene(lambda fs: fs.versions("/d/f"), {"/d": LIST}, overwritten),
    "storage_info": AccessScene(lambda fs: fs.storage_info(), {}),
    "transactions": AccessScene(lambda fs: fs.transactions(), {}),
    "health": AccessScene(lambda fs: fs.health(), {}),
    # Reading
    "checksum": AccessScene(lambda fs: fs.checksum("/d/f"), {"/d": EXECUTE, "/d/f": READ}),
    "physical_path": AccessScene(
        lambda fs: fs.physical_path("/d/f"), {"/d": EXECUTE, "/d/f": READ}
    ),
    "presign": AccessScene(lambda fs: presigned(fs, "/d/f"), {"/d": EXECUTE, "/d/f": READ}),
    "physical_paths": AccessScene(
        lambda fs: drained(fs.physical_paths("/d")), {"/d": LIST, "/d/f": READ, "/d/s": LIST}
    ),
    "read": AccessScene(lambda fs: fs.read("/d/f"), {"/d": EXECUTE, "/d/f": READ}),
    "read_ranges": AccessScene(
        lambda fs: fs.read_ranges("/d/f", [(0, 3)]), {"/d": EXECUTE, "/d/f": READ}
    ),
    "read_many": AccessScene(lambda fs: fs.read_many(["/d/f"]), {"/d": EXECUTE, "/d/f": READ}),
    "read_each": AccessScene(lambda fs: read_each(fs, "/d/f"), {"/d": EXECUTE, "/d/f": READ}),
    "open, rb": AccessScene(lambda fs: opened(fs, "/d/f", "rb"), {"/d": EXECUTE, "/d/f": READ}),
    # Writing
    "write, new file": AccessScene(lambda fs: fs.write("/d/new", DATA), {"/d": CHANGE}),
    "write, new directories": AccessScene(lambda fs: fs.write("/d/a/b/new", DATA), {"/d": CHANGE}),
    "write, existing file": AccessScene(
        lambda fs: fs.write("/d/f", b"other"), {"/d": EXECUTE, "/d/f": WRITE}
    ),
    "write_many": AccessScene(
        lambda fs: many(fs.write_many([("/d/new", DATA), ("/d/f", b"other")])),
        {"/d": CHANGE, "/d/f": WRITE},
        in_part=True,
    ),
    "open, wb of a new file": AccessScene(lambda fs: opened(fs, "/d/new", "wb"), {"/d": CHANGE}),
    "open, wb": AccessScene(lambda fs: opened(fs, "/d/f", "wb"), {"/d": EXECUTE, "/d/f": WRITE}),
    "open, xb": AccessScene(lambda fs: opened(fs, "/d/new", "xb"), {"/d": CHANGE}),
    "open, ab": AccessScene(lambda fs: opened(fs, "/d/f", "ab"), {"/d": EXECUTE, "/d/f": WRITE}),
    "undelete": AccessScene(
        lambda fs: fs.undelete("/d/f", target="/e/new"), {"/d": LIST, "/e": CHANGE}, overwritten
    ),
    "append": AccessScene(lambda fs: fs.append("/d/f", b"x"), {"/d": EXECUTE, "/d/f": WRITE}),
    "append, new file": AccessScene(lambda fs: fs.append("/d/new", b"x"), {"/d": CHANGE}),
    "write_range": AccessScene(
        lambda fs: fs.write_range("/d/f", 2, b"x"), {"/d": EXECUTE, "/d/f": WRITE}
    ),
    "truncate": AccessScene(lambda fs: fs.truncate("/d/f", 2), {"/d": EXECUTE, "/d/f": WRITE}),
    "compact": AccessScene(
        lambda fs: fs.compact("/d/f", whole=True), {"/d": EXECUTE, "/d/f": WRITE}, extended
    ),
    "concat": AccessScene(
        lambda fs: fs.concat("/d/f", ["/e/h"]),
        {"/d": EXECUTE, "/d/f": WRITE, "/e": CHANGE, "/e/h": READ},
    ),
    "touch": AccessScene(lambda fs: fs.touch("/d/f"), {"/d": EXECUTE, "/d/f": WRITE}),
    "touch, new file": AccessScene(lambda fs: fs.touch("/d/new"), {"/d": CHANGE}),
    "set_attributes, metadata": AccessScene(
        lambda fs: fs.set_attributes("/d/f", metadata={"a": b"1"}), {"/d": EXECUTE, "/d/f": WRITE}
    ),
    "stage": AccessScene(staged_file, {}),
    "discard_staged": AccessScene(discarded, {}),
    # Changing the tree
    "makedirs": AccessScene(lambda fs: fs.makedirs("/d/a/b"), {"/d": CHANGE}),
    "makedirs, existing": AccessScene(lambda fs: fs.makedirs("/d/s"), {"/d": EXECUTE}),
    "rename": AccessScene(lambda fs: fs.rename("/d/f", "/e/new"), {"/d": CHANGE, "/e": CHANGE}),
    "rename, replacing": AccessScene(
        lambda fs: fs.rename("/d/f", "/e/h", overwrite=True), {"/d": CHANGE, "/e": CHANGE}
    ),
    "rename, directory": AccessScene(
        lambda fs: fs.rename("/d/s", "/e/new"), {"/d": CHANGE, "/e": CHANGE}
    ),
    "rename, directory, not atomic": AccessScene(
        lambda fs: fs.rename("/d/s", "/e/new", atomic=False), {"/d": CHANGE, "/e": CHANGE}
    ),
    "rename_many": AccessScene(
        lambda fs: many(fs.rename_many([("/d/f", "/e/new")])), {"/d": CHANGE, "/e": CHANGE}
    ),
    "exchange": AccessScene(lambda fs: fs.exchange("/d/f", "/e/h"), {"/d": CHANGE, "/e": CHANGE}),
    "delete": AccessScene(lambda fs: fs.delete("/d/f"), {"/d": CHANGE}),
    "delete, empty directory": AccessScene(
        lambda fs: fs.delete("/d/s"), {"/d": CHANGE}, lambda fs: fs.delete("/d/s/g")
    ),
    "delete, recursive": AccessScene(
        lambda fs: fs.delete("/d/s", recursive=True), {"/d": CHANGE, "/d/s": CHANGE}
    ),
    "delete, recursive, not atomic": AccessScene(
        lambda fs: fs.delete("/d/s", recursive=True, atomic=False), {"/d": CHANGE, "/d/s": CHANGE}
    ),
    "delete_many": AccessScene(
        lambda fs: many(fs.delete_many(["/d/f", "/d/s"], recursive=True)),
        {"/d": CHANGE, "/d/s": CHANGE},
        in_part=True,
    ),
    "copy": AccessScene(
        lambda fs: fs.copy("/d/f", "/e/new"), {"/d": EXECUTE, "/d/f": READ, "/e": CHANGE}
    ),
    "copy, replacing": AccessScene(
        lambda fs: fs.copy("/d/f", "/e/h", overwrite=True),
        {"/d": EXECUTE, "/d/f": READ, "/e": EXECUTE, "/e/h": WRITE},
    ),
    "copy, recursive": AccessScene(
        copied,
        {"/d": EXECUTE, "/d/s": LIST, "/d/s/g": READ, "/e": CHANGE},
        in_part=True,
    ),
    "copy_to": AccessScene(
        lambda fs: fs.copy_to(fs, "/d/f", "/e/new"), {"/d": EXECUTE, "/d/f": READ, "/e": CHANGE}
    ),
    "upload": AccessScene(lambda fs: fs.upload(__file__, "/d/new"), {"/d": CHANGE}),
    "download": AccessScene(lambda fs: downloaded(fs, "/d/f"), {"/d": EXECUTE, "/d/f": READ}),
    "adopt_many": AccessScene(adopted, {"/d": CHANGE, "/d/f": WRITE}, in_part=True),
    # Transactions
    "transaction, write": AccessScene(
        lambda fs: in_transaction(fs, "write", "/d/f", b"other"), {"/d": EXECUTE, "/d/f": WRITE}
    ),
    "transaction, write of a new file": AccessScene(
        lambda fs: in_transaction(fs, "write", "/d/a/new", b"other"), {"/d": CHANGE}
    ),
    "transaction, open": AccessScene(
        lambda fs: opened_in_transaction(fs, "/d/new"), {"/d": CHANGE}
    ),
    "transaction, publish": AccessScene(
        lambda fs: published(fs, "/d/f"), {"/d": EXECUTE, "/d/f": WRITE}
    ),
    "transaction, adopt": AccessScene(adopted_one, {"/d": CHANGE}),
    "transaction, rename": AccessScene(
        lambda fs: in_transaction(fs, "rename", "/d/f", "/e/h", overwrite=True),
        {"/d": CHANGE, "/e": CHANGE},
    ),
    "transaction, rename of a directory": AccessScene(
        lambda fs: in_transaction(fs, "rename", "/d/s", "/e/new"), {"/d": CHANGE, "/e": CHANGE}
    ),
    "transaction, exchange": AccessScene(
        lambda fs: in_transaction(fs, "exchange", "/d/f", "/e/h"), {"/d": CHANGE, "/e": CHANGE}
    ),
    "transaction, delete": AccessScene(
        lambda fs: in_transaction(fs, "delete", "/d/f"), {"/d": CHANGE}
    ),
    "transaction, delete of a directory": AccessScene(
        lambda fs: in_transaction(fs, "delete", "/d/s", recursive=True),
        {"/d": CHANGE, "/d/s": CHANGE},
    ),
    "transaction, makedirs": AccessScene(
        lambda fs: in_transaction(fs, "makedirs", "/d/a/b"), {"/d": CHANGE}
    ),
    "transaction, replace": AccessScene(replaced, {"/d": CHANGE, "/d/s": CHANGE}),
}

TRASH_SCENES: dict[str, AccessScene] = {
    "restore": AccessScene(
        lambda fs: fs.trash().restore("/d/s", "/e/back"),
        {"/e": CHANGE},
        lambda fs: fs.delete("/d/s", recursive=True),
        ("tree",),
    ),
}
