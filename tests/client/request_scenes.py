"""One scene for each row of the table in docs/requests.md: what is there before, and the call that
is counted."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from s3k_async.client import S3kClient
from s3k_async.errors import UnsupportedError
from s3k_async.model import Feature, StagedFile

__all__ = ["SCENES", "TRASH_SCENES", "Scene"]

DATA = b"twelve bytes"
PARTS = [f"/d/part-{number:05}" for number in range(100)]


RULES: Sequence[Feature] = ("rules",)


async def _nothing(fs: S3kClient) -> None:
    pass


@dataclass(frozen=True, slots=True)
class Scene:
    """`before` is not counted, nor are the marks that it leaves to be written."""

    call: Callable[[S3kClient], Awaitable[object]]
    before: Callable[[S3kClient], Awaitable[object]] = _nothing
    warm: Callable[[S3kClient], Awaitable[object]] = _nothing
    """What the client itself did just before, not counted either."""
    features: Sequence[Feature] = ()
    """What the volume has beside the features of every new one."""


async def drained(stream: AsyncIterator[object]) -> int:
    number = 0
    async for _ in stream:
        number += 1
    return number


async def file(fs: S3kClient) -> None:
    await fs.makedirs("/d")
    await fs.makedirs("/e")
    await fs.write("/d/f", DATA)


async def uploaded(fs: S3kClient, files: int) -> None:
    """A local directory of small files, uploaded to `/d`."""
    with TemporaryDirectory() as local:
        for number in range(files):
            (Path(local) / f"part-{number:05}").write_bytes(DATA)
        await fs.upload(local, "/d")


async def downloaded(fs: S3kClient, path: str) -> None:
    with TemporaryDirectory() as local:
        await fs.download(path, Path(local) / "new")


async def two_files(fs: S3kClient) -> None:
    await file(fs)
    await fs.write("/e/g", DATA)


async def removed(fs: S3kClient) -> None:
    """`/d` with a file that was deleted."""
    await file(fs)
    await fs.delete("/d/f")


async def hundred(fs: S3kClient) -> None:
    """`/d` with a hundred files; a directory was renamed in the root before."""
    await fs.makedirs("/x")
    await fs.rename("/x", "/e")
    for number in range(100):
        await fs.write(f"/d/part-{number:05}", DATA)


async def one_of_hundred(fs: S3kClient) -> None:
    """The same, and one file has a value of the name `name`."""
    await hundred(fs)
    await fs.set_attributes("/d/part-00007", metadata={"name": b"value"})


async def ruled(fs: S3kClient) -> None:
    """`/d` with a file that has expired."""
    await file(fs)
    await fs.set_rule("/d", expire_at=1)


async def two_files_ruled(fs: S3kClient) -> None:
    """A rule for `/d`, and a file in `/e`."""
    await two_files(fs)
    await fs.set_rule("/d", expire_at=1)


async def hundred_ruled(fs: S3kClient) -> None:
    """A rule for `/e`, and a hundred files in `/d`."""
    await hundred(fs)
    await fs.set_rule("/e", expire_at=1)


async def settled(fs: S3kClient) -> None:
    """The same, after a run."""
    await ruled(fs)
    await fs.run_rules()


async def one_expired(fs: S3kClient) -> None:
    """A file in `/d` that has expired, after a run."""
    await settled(fs)
    await fs.write("/d/g", DATA)


async def three_levels(fs: S3kClient) -> None:
    """`/d` with two directories, each of which has five files."""
    for directory in ("a", "b"):
        for number in range(5):
            await fs.write(f"/d/{directory}/part-{number}", DATA)


async def directory(fs: S3kClient) -> None:
    await fs.makedirs("/d")


async def written(fs: S3kClient, path: str, mode: str) -> None:
    async with fs.open(path, mode) as writer:
        await writer.write(DATA)  # type: ignore[union-attr]


async def extents(fs: S3kClient) -> None:
    await fs.write("/d/f", DATA)
    await fs.append("/d/f", b"x")


async def searched(fs: S3kClient, name: str) -> None:
    assert len([each async for each in fs.find(metadata=name)]) == 1


async def read_through(fs: S3kClient, path: str) -> None:
    async with fs.open(path) as reader:
        await reader.read()


async def transaction(fs: S3kClient, number: int = 1) -> object:
    """So many files written over, as many new ones, one moved and one deleted."""
    async with fs.transaction() as tx:
        for each in range(number):
            await tx.write(f"/d/part-{each:05}", DATA)
            await tx.write(f"/e/part-{each:05}", DATA)
        await tx.rename("/d/part-00098", "/e/part-00098")
        await tx.delete("/d/part-00099")
    return tx.result


async def staged(fs: S3kClient, number: int) -> list[StagedFile]:
    """So many files that were uploaded and not published."""
    files = []
    for _ in range(number):
        async with fs.stage() as writer:
            await writer.write(DATA)
        files.append(writer.staged)
    return files


async def publish(fs: S3kClient, number: int) -> object:
    files = await staged(fs, number)
    async with fs.transaction() as tx:
        for each, file in enumerate(files):
            await tx.publish(f"/d/part-{each:05}", file)
    return None


async def discard_staged(fs: S3kClient, number: int) -> None:
    await fs.discard_staged(await staged(fs, number))


async def foreign(fs: S3kClient) -> None:
    """A directory, and a hundred objects that somebody else has put where the data is."""
    await directory(fs)
    for number in range(100):
        await fs._volume().place.put(f"bronze/{number}", DATA)


def adoptable(fs: S3kClient, number: int) -> list[tuple[str, str]]:
    return [
        (f"/d/part-{each:05}", fs._volume().place.uri(f"bronze/{each}")) for each in range(number)
    ]


async def adopt(fs: S3kClient, number: int) -> object:
    async with fs.transaction() as tx:
        for path, uri in adoptable(fs, number):
            await tx.adopt(path, uri)
    return tx.result


def pairs_of(number: int) -> list[tuple[str, str]]:
    """Files of `/d` and where they go to."""
    return [(f"/d/part-{each:05}", f"/e/part-{each:05}") for each in range(number)]


async def nested(fs: S3kClient) -> None:
    """`/p/d` with a hundred files."""
    await fs.write_many([(f"/p/d/part-{number:05}", DATA) for number in range(100)])


async def deleted(fs: S3kClient) -> None:
    """The same in the trash."""
    await nested(fs)
    await fs.delete("/p/d", recursive=True)


async def restore(fs: S3kClient) -> None:
    (item,) = await fs.trash().list()
    await fs.trash().restore(item)


async def walk(fs: S3kClient) -> None:
    (item,) = await fs.trash().list()
    await drained(fs.trash().walk(item))


async def presigned(fs: S3kClient, path: str) -> None:
    """presign in any volume: where data is not in S3, it is refused after the file was read."""
    with suppress(UnsupportedError):
        await fs.presign(path)


SCENES: dict[str, Scene] = {
    "stat": Scene(lambda fs: fs.stat("/d/f"), file),
    "stat of the root": Scene(lambda fs: fs.stat("/")),
    "exists": Scene(lambda fs: fs.exists("/d/f"), file),
    "is_file": Scene(lambda fs: fs.is_file("/d/f"), file),
    "is_dir": Scene(lambda fs: fs.is_dir("/d"), directory),
    "physical_path": Scene(lambda fs: fs.physical_path("/d/f"), file),
    "presign": Scene(lambda fs: presigned(fs, "/d/f"), file),
    "physical_paths, 3 directories": Scene(
        lambda fs: drained(fs.physical_paths("/d")), three_levels
    ),
    "checksum": Scene(lambda fs: fs.checksum("/d/f"), file),
    "stat_many, 100 paths": Scene(lambda fs: fs.stat_many(PARTS), hundred),
    "exists_many, 250 paths": Scene(
        lambda fs: fs.exists_many([f"/d/{number}" for number in range(250)]), directory
    ),
    "list, 100 files": Scene(lambda fs: drained(fs.list("/d")), hundred),
    "list_batches, 100 files": Scene(lambda fs: drained(fs.list_batches("/d")), hundred),
    "list of the root": Scene(lambda fs: drained(fs.list("/")), directory),
    "list, recursive, 3 directories": Scene(
        lambda fs: drained(fs.list("/d", recursive=True)), three_levels
    ),
    "walk, 3 directories": Scene(lambda fs: drained(fs.walk("/d")), three_levels),
    "find, 3 directories": Scene(lambda fs: drained(fs.find("/d", pattern="part-1")), three_levels),
    "glob, `/d/a/*`": Scene(lambda fs: drained(fs.glob("/d/a/*")), three_levels),
    "content_summary of a file": Scene(lambda fs: fs.content_summary("/d/f"), file),
    "content_summary, 3 directories": Scene(lambda fs: fs.content_summary("/d"), three_levels),
    "storage_info": Scene(lambda fs: fs.storage_info()),
    "transactions": Scene(lambda fs: fs.transactions(), file),
    "health": Scene(lambda fs: fs.health()),
    "read": Scene(lambda fs: fs.read("/d/f"), file),
    "read_ranges, 3 ranges": Scene(
        lambda fs: fs.read_ranges("/d/f", [(0, 1), (4, 6), (9, 12)]), file
    ),
    "read_many, 100 files": Scene(lambda fs: fs.read_many(PARTS), hundred),
    "read_each, 100 files": Scene(lambda fs: fs.read_each(PARTS), hundred),
    "open `rb`, read to the end": Scene(lambda fs: read_through(fs, "/d/f"), file),
    "write a new file": Scene(lambda fs: fs.write("/d/f", DATA), directory),
    "write another one there": Scene(lambda fs: fs.write("/d/g", DATA), file),
    "write, 3 parents missing": Scene(lambda fs: fs.write("/a/b/c/f", DATA)),
    "write into a directory seen just now": Scene(
        lambda fs: fs.write("/d/f", DATA), directory, warm=directory
    ),
    "write_many, 100 new files": Scene(
        lambda fs: fs.write_many([(f"/d/part-{number:05}", DATA) for number in range(100)]),
        directory,
    ),
    "write over a file": Scene(lambda fs: fs.write("/d/f", DATA), file),
    "open `wb`, a new file": Scene(lambda fs: written(fs, "/d/f", "wb"), directory),
    "open `xb`, a new file": Scene(lambda fs: written(fs, "/d/f", "xb"), directory),
    "open `wb` over a file": Scene(lambda fs: written(fs, "/d/f", "wb"), file),
    "append to a file": Scene(lambda fs: fs.append("/d/f", DATA * 2), file),
    "append a byte to a file": Scene(lambda fs: fs.append("/d/f", b"x"), file),
    "append to a new file": Scene(lambda fs: fs.append("/d/f", DATA), directory),
    "open `ab`, a file": Scene(lambda fs: written(fs, "/d/f", "ab"), file),
    "write_range": Scene(lambda fs: fs.write_range("/d/f", 2, b"x"), file),
    "truncate": Scene(lambda fs: fs.truncate("/d/f", 2), file),
    "set_attributes, mode of a file": Scene(lambda fs: fs.set_attributes("/d/f", mode=0o600), file),
    "set_attributes, metadata of a file": Scene(
        lambda fs: fs.set_attributes("/d/f", metadata={"name": b"value"}), file
    ),
    "find by metadata, 1 file of 100": Scene(lambda fs: searched(fs, "name"), one_of_hundred),
    "set_rule": Scene(lambda fs: fs.set_rule("/d", expire_at=1), file, features=RULES),
    "remove_rule": Scene(lambda fs: fs.remove_rule("/d"), ruled, features=RULES),
    "rules": Scene(lambda fs: fs.rules(), ruled, features=RULES),
    "write a new file, with lifecycle rules, the first of a client": Scene(
        lambda fs: fs.write("/d/g", DATA), ruled, features=RULES
    ),
    "write a new file below a rule": Scene(
        lambda fs: fs.write("/d/g", DATA), ruled, lambda fs: fs.rules(), features=RULES
    ),
    "write_many, 100 new files below a rule": Scene(
        lambda fs: fs.write_many([(f"/d/part-{number:05}", DATA) for number in range(100)]),
        ruled,
        lambda fs: fs.rules(),
        features=RULES,
    ),
    "rename a file to below a rule": Scene(
        lambda fs: fs.rename("/e/g", "/d/g"), two_files_ruled, lambda fs: fs.rules(), features=RULES
    ),
    "rename a directory of 100 files to below a rule": Scene(
        lambda fs: fs.rename("/d", "/e/d"), hundred_ruled, lambda fs: fs.rules(), features=RULES
    ),
    "due_actions, nothing is due": Scene(
        lambda fs: drained(fs.due_actions()), settled, features=RULES
    ),
    "run_rules, nothing is due": Scene(lambda fs: fs.run_rules(), settled, features=RULES),
    "run_rules, a file has expired": Scene(lambda fs: fs.run_rules(), one_expired, features=RULES),
    "concat, a file to another one": Scene(lambda fs: fs.concat("/d/f", ["/e/g"]), two_files),
    "compact `whole`, 2 extents": Scene(lambda fs: fs.compact("/d/f", whole=True), extents),
    "touch a new file": Scene(lambda fs: fs.touch("/d/f"), directory),
    "touch a file": Scene(lambda fs: fs.touch("/d/f"), file),
    "makedirs, it exists": Scene(lambda fs: fs.makedirs("/d"), directory),
    "makedirs, 1 level": Scene(lambda fs: fs.makedirs("/d/e"), directory),
    "makedirs, 5 levels": Scene(lambda fs: fs.makedirs("/a/b/c/d/e")),
    "rename a file": Scene(lambda fs: fs.rename("/d/f", "/e/g"), file),
    "rename over a file": Scene(lambda fs: fs.rename("/d/f", "/e/g", overwrite=True), two_files),
    "exchange two files": Scene(lambda fs: fs.exchange("/d/f", "/e/g"), two_files),
    "rename a directory of 100 files": Scene(lambda fs: fs.rename("/d", "/e/d"), hundred),
    "rename a directory of 100 files, not `atomic`": Scene(
        lambda fs: fs.rename("/d", "/e/d", atomic=False), hundred
    ),
    "rename_many, 100 files": Scene(lambda fs: fs.rename_many(pairs_of(100)), hundred),
    "delete a file": Scene(lambda fs: fs.delete("/d/f"), file),
    "delete what is missing": Scene(lambda fs: fs.delete("/d/f", missing_ok=True), directory),
    "delete an empty directory": Scene(lambda fs: fs.delete("/d"), directory),
    "delete a directory of 100 files": Scene(lambda fs: fs.delete("/d", recursive=True), hundred),
    "delete a directory of 100 files, not `atomic`": Scene(
        lambda fs: fs.delete("/d", recursive=True, atomic=False), hundred
    ),
    "delete_many, 100 files": Scene(
        lambda fs: fs.delete_many([old for old, _ in pairs_of(100)]), hundred
    ),
    "delete a file, `permanently`": Scene(lambda fs: fs.delete("/d/f", permanently=True), file),
    "versions, of 1 deleted file": Scene(lambda fs: fs.versions("/d/f"), removed),
    "undelete a file": Scene(lambda fs: fs.undelete("/d/f"), removed),
    "restore, no difference": Scene(lambda fs: fs.restore("/d", 2**42), removed),
    "transaction of 4 files": Scene(transaction, hundred),
    "transaction of 102 files": Scene(lambda fs: transaction(fs, 50), hundred),
    "stage a file": Scene(lambda fs: staged(fs, 1)),
    "stage 10 files, publish them in a transaction": Scene(lambda fs: publish(fs, 10), directory),
    "discard_staged, 10 files that were staged before": Scene(lambda fs: discard_staged(fs, 10)),
    "adopt_many, 100 objects": Scene(lambda fs: fs.adopt_many(adoptable(fs, 100)), foreign),
    "transaction that adopts 4 objects": Scene(lambda fs: adopt(fs, 4), foreign),
    "copy a file": Scene(lambda fs: fs.copy("/d/f", "/e/g"), file),
    "copy over a file": Scene(lambda fs: fs.copy("/d/f", "/e/g", overwrite=True), two_files),
    "copy a directory of 100 files": Scene(
        lambda fs: fs.copy("/d", "/e/d", recursive=True), hundred
    ),
    "copy_to another client": Scene(lambda fs: fs.copy_to(fs, "/d/f", "/e/g"), file),
    "upload a file": Scene(lambda fs: fs.upload(__file__, "/d/f"), directory),
    "upload a directory of 100 files": Scene(lambda fs: uploaded(fs, 100), directory),
    "download a file": Scene(lambda fs: downloaded(fs, "/d/f"), file),
    "download a directory of 100 files": Scene(lambda fs: downloaded(fs, "/d"), hundred),
}

TRASH_SCENES: dict[str, Scene] = {
    "delete a directory of 100 files": Scene(lambda fs: fs.delete("/p/d", recursive=True), nested),
    "delete a directory of 100 files, `wait`": Scene(
        lambda fs: fs.delete("/p/d", recursive=True, wait=True), nested
    ),
    "list": Scene(lambda fs: fs.trash().list(), deleted),
    "restore, by path": Scene(lambda fs: fs.trash().restore("/p/d"), deleted),
    "list, and restore one of its items": Scene(restore, deleted),
    "list, and walk below one of its items": Scene(walk, deleted),
    "summary, a directory of 100 files": Scene(lambda fs: fs.trash().summary(), deleted),
    "empty, a directory of 100 files": Scene(lambda fs: fs.trash().empty(), deleted),
    "retention": Scene(lambda fs: fs.trash().retention()),
    "set_retention": Scene(lambda fs: fs.trash().set_retention(0)),
}
"""Of `delete` and of the verbs of `Trash`, in a volume of layout `tree`."""
