"""Every verb of the client that changes something: what it starts from, what it does, what it leads
to."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from s3k_async.attributes import Attributes
from s3k_async.client import S3kClient
from s3k_async.errors import OutcomeUnknownError, PartialFailureError, PathExistsError
from s3k_async.layouts.tree import staged_commit
from s3k_async.lifecycle_rules import LifecycleRule
from s3k_async.model import ChangeResult
from s3k_async.namespace import multi_path_commit
from s3k_async.transaction import Transaction
from s3k_async.txn import txn_manifest
from tests.torture.crash import Marks, Paths, Scenario

__all__ = ["LOOKS", "OWN", "SCENARIOS", "verb_of"]

LOOKS = frozenset(
    {
        "checksum",
        "content_summary",
        "download",
        "due_actions",
        "exists",
        "exists_many",
        "find",
        "glob",
        "health",
        "is_dir",
        "is_file",
        "transactions",
        "versions",
        "list",
        "list_batches",
        "physical_path",
        "physical_paths",
        "presign",
        "read",
        "read_each",
        "read_many",
        "read_ranges",
        "rules",
        "stat",
        "stat_many",
        "storage_info",
        "walk",
    }
)
"""The verbs that change nothing."""
OWN = frozenset(
    {
        "cache_statistics",
        "close",
        "closed",
        "config",
        "count",
        "fill_statistics",
        "name",
        "open_volume",
        "requests",
    }
)
"""What is about the client itself."""

LONG = b"new" * 50


def verb_of(scenario: str) -> str:
    """The client's verb that a scenario runs: its name up to the colon."""
    return scenario.partition(":")[0]


async def save(fs: S3kClient, mode: str) -> None:
    async with fs.open("/d/f", mode) as file:
        await file.write(LONG)  # type: ignore[union-attr]


async def empty_trash(fs: S3kClient) -> None:
    await fs.delete("/d", recursive=True, missing_ok=True)
    await fs.trash().empty()


async def write_twice(fs: S3kClient, path: str, other: str = "") -> None:
    """Write a file whose data is uploaded while the write is logged, after an earlier one, which
    changes no bytes, has shown the entity tags of the store."""
    await fs.write(path, b"old")
    await fs.write(other or path, b"new")


async def undelete(fs: S3kClient) -> None:
    """Undelete a file that was just deleted, unless an earlier call has done it."""
    await fs.write("/d/t", b"one")
    await fs.delete("/d/t")
    with suppress(PathExistsError):
        await fs.undelete("/d/t", target="/d/f")


async def undelete_tree(fs: S3kClient) -> None:
    await fs.delete("/d/t", recursive=True, missing_ok=True, atomic=False)
    await fs.undelete("/d/t", target="/d/u", recursive=True)


async def delete_permanently(fs: S3kClient) -> None:
    """If an earlier call has died, the deletion may be pending, so that its data is left to gc."""
    try:
        await fs.delete("/d/f", permanently=True)
    except PartialFailureError:
        assert not await fs.exists("/d/f")


async def restore(fs: S3kClient) -> None:
    """Bring a file back that was just deleted."""
    runtime = fs._volume().store.runtime
    await fs.write("/d/x", b"new")
    await runtime.sleep(1)
    at = runtime.now_ms()
    await runtime.sleep(1)
    await fs.delete("/d/x")
    whole((await fs.restore("/d", at, dry_run=False)).done)


async def discard(fs: S3kClient) -> None:
    file = await fs.open("/d/f", "wb")
    await file.write(b"new")
    await file.discard()


def whole(result: ChangeResult) -> None:
    """Raise what failed in a list: a failure that is definite rather than one that is not."""
    failures = [error for _, error in result.failures]
    for error in sorted(failures, key=lambda one: isinstance(one, OutcomeUnknownError)):
        raise error


async def run_rules(fs: S3kClient) -> None:
    await fs.set_rule("/d", expire_at=1)
    result = await fs.run_rules()
    whole(ChangeResult(failures=result.failures))


async def write_many(fs: S3kClient) -> None:
    whole(await fs.write_many([("/d/f", b"new"), ("/d/g", b"more"), ("/e/h", b"third" * 20)]))


async def rename_many(fs: S3kClient) -> None:
    whole(
        await fs.rename_many(
            [("/d/f", "/e/f"), ("/d/g", "/e/h"), ("/e/k", "/d/k")], missing_ok=True
        )
    )


async def delete_many(fs: S3kClient) -> None:
    whole(await fs.delete_many(["/d/f", "/d/g", "/e/k"], missing_ok=True))


async def transaction(fs: S3kClient) -> None:
    async with fs.transaction() as tx:
        await tx.write("/d/f", b"new")
        async with tx.open("/n/m/x", "wb") as file:
            await file.write(LONG)
        await tx.rename("/d/g", "/e/k", overwrite=True)
        await tx.delete("/d/h")


async def transaction_by_record(fs: S3kClient) -> None:
    """With a transaction record, whose paths do not fit into one item here."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(txn_manifest, "PART_ENTRIES", 5)
        patched.setattr(multi_path_commit, "AT_ONCE", 0)
        async with fs.transaction() as tx:
            await change_trees(tx)
            await tx.delete("/u")


async def transaction_of_trees(fs: S3kClient) -> None:
    async with fs.transaction() as tx:
        await change_trees(tx)


async def transaction_with_new_directories(fs: S3kClient) -> None:
    """They are filled by several transactions of the table before they are published."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(multi_path_commit, "AT_ONCE", 0)
        patched.setattr(staged_commit, "STORED_AT_ONCE", 2)
        async with fs.transaction() as tx:
            await tx.write("/n/x/f", b"new")
            await tx.write("/n/x/g", LONG)
            await tx.write("/n/h", b"more")
            await tx.rename("/d/g", "/n/g")


async def replace_directory(fs: S3kClient) -> None:
    """In layout `tree` by a staged directory, in layout `path` by intents."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(multi_path_commit, "AT_ONCE", 0)
        patched.setattr(staged_commit, "STORED_AT_ONCE", 2)
        async with fs.transaction() as tx:
            await tx.replace("/d")
            await tx.write("/d/f", b"new")
            await tx.write("/d/x/k", LONG)
            await tx.write("/d/z/k", b"more")


async def change_trees(tx: Transaction) -> None:
    await tx.write("/d/f", b"new")
    await tx.rename("/d/g", "/e/k", overwrite=True)
    await tx.rename("/s", "/n/s")
    await tx.makedirs("/n")
    await tx.delete("/t", recursive=True)


async def stage_and_publish(fs: S3kClient) -> None:
    async with fs.stage() as one, fs.stage() as other:
        await one.write(b"new")
        await other.write(LONG)
    async with fs.transaction() as tx:
        await tx.publish("/d/f", one.staged, overwrite=True)
        await tx.publish("/n/g", other.staged, overwrite=True)


async def discard_staged(fs: S3kClient) -> None:
    async with fs.stage() as one, fs.stage() as other:
        await one.write(b"new")
        await other.write(LONG)
    await fs.discard_staged([one.staged, other.staged])


async def adopt_many(fs: S3kClient) -> None:
    uris = await stored_elsewhere(fs)
    whole(await fs.adopt_many([("/d/f", uris[0]), ("/n/g", uris[1])], overwrite=True))


async def adopt_together(fs: S3kClient) -> None:
    uris = await stored_elsewhere(fs)
    async with fs.transaction() as tx:
        await tx.adopt("/d/f", uris[0], overwrite=True)
        await tx.adopt("/n/g", uris[1], overwrite=True)


async def stored_elsewhere(fs: S3kClient) -> list[str]:
    """Objects that somebody else has put where the data is; their URIs."""
    blobs = fs._volume().place
    for key, data in {"z/1": b"new", "z/2": LONG}.items():
        await blobs.put(key, data)
    return [blobs.uri("z/1"), blobs.uri("z/2")]


FLAT: Paths = {"/d": None, "/d/f": b"one", "/d/g": b"two", "/e": None, "/e/k": b"three"}
GROWN: Paths = {
    "/d": None,
    "/d/f": b"one",
    "/d/x": None,
    "/d/x/h": b"three",
    "/d/y": None,
    "/e": None,
    "/e/k": b"four",
}
SMALL: Paths = {"/d": None, "/d/f": b"one", "/d/x": None, "/d/x/h": b"three", "/e": None}
MIXED: Paths = {
    "/d": None,
    "/d/f": b"one",
    "/d/g": b"two",
    "/d/h": b"three",
    "/e": None,
    "/e/k": b"four",
}
CHANGED: Paths = {
    "/d": None,
    "/d/f": b"new",
    "/e": None,
    "/e/k": b"two",
    "/n": None,
    "/n/m": None,
    "/n/m/x": LONG,
}
TREES: Paths = {
    "/d": None,
    "/d/f": b"one",
    "/d/g": b"two",
    "/e": None,
    "/e/k": b"four",
    "/s": None,
    "/s/f": b"five",
    "/t": None,
    "/t/f": b"six",
}
TREES_CHANGED: Paths = {
    "/d": None,
    "/d/f": b"new",
    "/e": None,
    "/e/k": b"two",
    "/n": None,
    "/n/s": None,
    "/n/s/f": b"five",
}


def _plant(local: Path, paths: Paths) -> None:
    for path, data in paths.items():
        if data is None:
            (local / path[1:]).mkdir()
        else:
            (local / path[1:]).write_bytes(data)


async def upload(fs: S3kClient) -> ChangeResult:
    """Upload SOURCE from local files."""
    with TemporaryDirectory() as local:
        _plant(Path(local), SOURCE)
        return await fs.upload(Path(local, "s"), "/t")


SOURCE: Paths = {"/s": None, "/s/f": b"one", "/s/x": None, "/s/x/g": b"two"}


def moved(paths: Paths, source: str, target: str) -> Paths:
    return {
        target + path[len(source) :] if path.startswith(source) else path: data
        for path, data in paths.items()
    }


SCENARIOS: Mapping[str, Scenario] = {
    "write:new": Scenario(
        {},
        lambda fs, _: fs.write("/d/f", b"new"),
        {"/d": None, "/d/f": b"new"},
        between={"/d": None},
    ),
    "write:over": Scenario(
        {"/d": None, "/d/f": b"old"},
        lambda fs, _: fs.write("/d/f", b"new"),
        {"/d": None, "/d/f": b"new"},
    ),
    "write:second": Scenario(
        {"/d": None, "/d/f": b"old"},
        lambda fs, _: write_twice(fs, "/d/f"),
        {"/d": None, "/d/f": b"new"},
    ),
    "write:second new": Scenario(
        {"/d": None, "/d/g": b"old"},
        lambda fs, _: write_twice(fs, "/d/g", "/d/f"),
        {"/d": None, "/d/f": b"new", "/d/g": b"old"},
    ),
    "write:in parts": Scenario(
        {"/d": None, "/d/f": b"old"},
        lambda fs, _: fs.write("/d/f", LONG),
        {"/d": None, "/d/f": LONG},
    ),
    "write_many": Scenario(
        {"/d": None, "/d/f": b"old"},
        lambda fs, _: write_many(fs),
        {"/d": None, "/d/f": b"new", "/d/g": b"more", "/e": None, "/e/h": b"third" * 20},
        rule="by_file",
    ),
    "open:new": Scenario({"/d": None}, lambda fs, _: save(fs, "wb"), {"/d": None, "/d/f": LONG}),
    "open:over": Scenario(
        {"/d": None, "/d/f": b"old"}, lambda fs, _: save(fs, "wb"), {"/d": None, "/d/f": LONG}
    ),
    "open:discarded": Scenario({"/d": None}, lambda fs, _: discard(fs), {"/d": None}),
    "open:append": Scenario(
        {"/d": None, "/d/f": b"old"},
        lambda fs, _: save(fs, "ab"),
        {"/d": None, "/d/f": b"old" + LONG},
        again={"/d": None, "/d/f": b"old" + LONG + LONG},
    ),
    "append:new": Scenario(
        {"/d": None},
        lambda fs, _: fs.append("/d/f", b"new"),
        {"/d": None, "/d/f": b"new"},
        again={"/d": None, "/d/f": b"newnew"},
    ),
    "append:whole": Scenario(
        {"/d": None, "/d/f": b"old file"},
        lambda fs, _: fs.append("/d/f", b"new"),
        {"/d": None, "/d/f": b"old filenew"},
        again={"/d": None, "/d/f": b"old filenewnew"},
    ),
    "append:extents": Scenario(
        {"/d": None, "/d/f": b"old file"},
        lambda fs, _: fs.append("/d/f", b"new"),
        {"/d": None, "/d/f": b"old filenew"},
        again={"/d": None, "/d/f": b"old filenewnew"},
        grown=("/d/f",),
    ),
    "write_range": Scenario(
        {"/d": None, "/d/f": b"old file"},
        lambda fs, _: fs.write_range("/d/f", 4, b"F" * 90),
        {"/d": None, "/d/f": b"old " + b"F" * 90},
        grown=("/d/f",),
    ),
    "truncate:shorter": Scenario(
        {"/d": None, "/d/f": b"old file"},
        lambda fs, _: fs.truncate("/d/f", 3),
        {"/d": None, "/d/f": b"old"},
        grown=("/d/f",),
    ),
    "truncate:longer": Scenario(
        {"/d": None, "/d/f": b"old file"},
        lambda fs, _: fs.truncate("/d/f", 100),
        {"/d": None, "/d/f": b"old file" + bytes(92)},
    ),
    "truncate:empty": Scenario(
        {"/d": None, "/d/f": b"old file"},
        lambda fs, _: fs.truncate("/d/f", 0),
        {"/d": None, "/d/f": b""},
        grown=("/d/f",),
    ),
    "set_attributes": Scenario(
        {"/d": None, "/d/f": b"one"},
        lambda fs, _: fs.set_attributes("/d/f", mode=0o600, metadata={"name": b"value"}),
        {"/d": None, "/d/f": b"one"},
        prepare=lambda fs: fs.set_attributes("/d/f", mode=0o644, uid=7, metadata={"was": b"old"}),
        marks=(
            Marks({"/d/f": Attributes(mode=0o644, uid=7, metadata={"was": b"old"})}),
            Marks(
                {"/d/f": Attributes(mode=0o600, uid=7, metadata={"was": b"old", "name": b"value"})}
            ),
        ),
    ),
    "set_attributes:of a directory": Scenario(
        {"/d": None, "/d/f": b"one"},
        lambda fs, _: fs.set_attributes("/d", uid=7, metadata={"name": b"value"}),
        {"/d": None, "/d/f": b"one"},
        marks=(Marks(), Marks({"/d": Attributes(uid=7, metadata={"name": b"value"})})),
    ),
    "set_attributes:read-only": Scenario(
        {"/d": None, "/d/f": b"one"},
        lambda fs, _: fs.set_attributes("/d/f", read_only=True),
        {"/d": None, "/d/f": b"one"},
        marks=(Marks(), Marks({"/d/f": Attributes(read_only=True)})),
    ),
    "set_rule": Scenario(
        {"/d": None, "/d/f": b"one"},
        lambda fs, _: fs.set_rule("/d", expire_after=10**9),
        {"/d": None, "/d/f": b"one"},
        features=("rules",),
        prepare=lambda fs: fs.set_rule("/d", read_only_after=10**9),
        marks=(
            Marks(rules=(LifecycleRule("/d", read_only_after=10**9),)),
            Marks(rules=(LifecycleRule("/d", expire_after=10**9),)),
        ),
    ),
    "remove_rule": Scenario(
        {"/d": None, "/d/f": b"one"},
        lambda fs, _: fs.remove_rule("/d"),
        {"/d": None, "/d/f": b"one"},
        gone=True,
        features=("rules",),
        prepare=lambda fs: fs.set_rule("/d", expire_after=10**9),
        marks=(Marks(rules=(LifecycleRule("/d", expire_after=10**9),)), Marks()),
    ),
    "run_rules": Scenario(
        {"/d": None, "/d/f": b"one", "/d/g": b"two", "/e": None, "/e/h": b"three"},
        lambda fs, _: run_rules(fs),
        {"/d": None, "/e": None, "/e/h": b"three"},
        rule="by_file",
        implied=True,
        features=("rules",),
        marks=(Marks(), Marks(rules=(LifecycleRule("/d", expire_at=1),))),
    ),
    "concat": Scenario(
        {"/d": None, "/d/f": b"old file", "/d/g": b"second", "/e": None, "/e/h": LONG},
        lambda fs, _: fs.concat("/d/f", ["/d/g", "/e/h"]),
        {"/d": None, "/d/f": b"old filesecond" + LONG, "/e": None},
        grown=("/d/f", "/d/g"),
        gone=True,
    ),
    "compact": Scenario(
        {"/d": None, "/d/f": b"old file"},
        lambda fs, _: fs.compact("/d/f", whole=True),
        {"/d": None, "/d/f": b"old file"},
        grown=("/d/f",),
    ),
    "compact:copied": Scenario(
        {"/d": None, "/d/f": LONG * 2},
        lambda fs, _: fs.compact("/d/f", whole=True),
        {"/d": None, "/d/f": LONG * 2},
        grown=("/d/f",),
    ),
    "touch:new": Scenario({"/d": None}, lambda fs, _: fs.touch("/d/f"), {"/d": None, "/d/f": b""}),
    "touch:again": Scenario(
        {"/d": None, "/d/f": b"old"}, lambda fs, _: fs.touch("/d/f"), {"/d": None, "/d/f": b"old"}
    ),
    "makedirs": Scenario(
        {"/d": None},
        lambda fs, _: fs.makedirs("/d/x/y/z"),
        {"/d": None, "/d/x": None, "/d/x/y": None, "/d/x/y/z": None},
    ),
    "rename:file": Scenario(
        {"/d": None, "/d/f": b"one", "/e": None},
        lambda fs, _: fs.rename("/d/f", "/e/g"),
        {"/d": None, "/e": None, "/e/g": b"one"},
        gone=True,
    ),
    "rename:over": Scenario(
        {"/d": None, "/d/f": b"one", "/e": None, "/e/g": b"two"},
        lambda fs, _: fs.rename("/d/f", "/e/g", overwrite=True),
        {"/d": None, "/e": None, "/e/g": b"one"},
        gone=True,
    ),
    "rename:tree": Scenario(
        GROWN, lambda fs, _: fs.rename("/d", "/e/z"), moved(GROWN, "/d", "/e/z"), gone=True
    ),
    "rename:not atomic": Scenario(
        SMALL,
        lambda fs, _: fs.rename("/d", "/e/z", atomic=False),
        moved(SMALL, "/d", "/e/z"),
        rule="moves",
        gone=True,
    ),
    "exchange:files": Scenario(
        {"/d": None, "/d/f": b"one", "/e": None, "/e/g": b"two"},
        lambda fs, _: fs.exchange("/d/f", "/e/g"),
        {"/d": None, "/d/f": b"two", "/e": None, "/e/g": b"one"},
        again={"/d": None, "/d/f": b"one", "/e": None, "/e/g": b"two"},
    ),
    "exchange:trees": Scenario(
        {"/d": None, "/d/x": None, "/d/x/f": b"one", "/e": None, "/e/y": None, "/e/y/g": b"two"},
        lambda fs, _: fs.exchange("/d/x", "/e/y"),
        {"/d": None, "/d/x": None, "/d/x/g": b"two", "/e": None, "/e/y": None, "/e/y/f": b"one"},
        again={
            "/d": None,
            "/d/x": None,
            "/d/x/f": b"one",
            "/e": None,
            "/e/y": None,
            "/e/y/g": b"two",
        },
        layouts=("tree",),
    ),
    "rename_many": Scenario(
        FLAT,
        lambda fs, _: rename_many(fs),
        {"/d": None, "/d/k": b"three", "/e": None, "/e/f": b"one", "/e/h": b"two"},
        rule="moves",
    ),
    "delete:file": Scenario(
        {"/d": None, "/d/f": b"one"}, lambda fs, _: fs.delete("/d/f"), {"/d": None}, gone=True
    ),
    "delete:directory": Scenario(
        {"/d": None, "/d/x": None}, lambda fs, _: fs.delete("/d/x"), {"/d": None}, gone=True
    ),
    "delete:tree": Scenario(
        GROWN,
        lambda fs, _: fs.delete("/d", recursive=True),
        {"/e": None, "/e/k": b"four"},
        gone=True,
    ),
    "delete:not atomic": Scenario(
        SMALL,
        lambda fs, _: fs.delete("/d", recursive=True, atomic=False),
        {"/e": None},
        rule="by_file",
        gone=True,
    ),
    "delete:waiting": Scenario(
        GROWN,
        lambda fs, _: fs.delete("/d", recursive=True, wait=True),
        {"/e": None, "/e/k": b"four"},
        gone=True,
    ),
    "delete:permanently": Scenario(
        FLAT,
        lambda fs, _: delete_permanently(fs),
        {path: data for path, data in FLAT.items() if path != "/d/f"},
        gone=True,
        implied=True,
    ),
    "undelete": Scenario(
        {"/d": None},
        lambda fs, _: undelete(fs),
        {"/d": None, "/d/f": b"one"},
        between={"/d/t": b"one"},
    ),
    "undelete:directory": Scenario(
        {"/d": None, "/d/t": None, "/d/t/f": b"one", "/d/t/s": None, "/d/t/s/g": b"two"},
        lambda fs, _: undelete_tree(fs),
        {"/d": None, "/d/u": None, "/d/u/f": b"one", "/d/u/s": None, "/d/u/s/g": b"two"},
        rule="by_file",
        gone=True,
    ),
    "restore": Scenario(
        {"/d": None, "/d/f": b"one"},
        lambda fs, _: restore(fs),
        {"/d": None, "/d/f": b"one", "/d/x": b"new"},
        implied=True,  # it was there before
    ),
    "trash:emptied": Scenario(
        GROWN,
        lambda fs, _: empty_trash(fs),
        {"/e": None, "/e/k": b"four"},
        rule="by_file",
        implied=True,
        layouts=("tree",),
    ),
    "delete_many": Scenario(
        FLAT, lambda fs, _: delete_many(fs), {"/d": None, "/e": None}, rule="by_file"
    ),
    "transaction:in one": Scenario(MIXED, lambda fs, _: transaction(fs), CHANGED, gone=True),
    "transaction:by a record": Scenario(
        {**TREES, "/u": None}, lambda fs, _: transaction_by_record(fs), TREES_CHANGED, gone=True
    ),
    "transaction:of trees": Scenario(
        TREES,
        lambda fs, _: transaction_of_trees(fs),
        TREES_CHANGED,
        gone=True,
        layouts=("tree",),  # in layout `path` this needs a record
    ),
    "transaction:new directories": Scenario(
        FLAT,
        lambda fs, _: transaction_with_new_directories(fs),
        {
            "/d": None,
            "/d/f": b"one",
            "/e": None,
            "/e/k": b"three",
            "/n": None,
            "/n/g": b"two",
            "/n/h": b"more",
            "/n/x": None,
            "/n/x/f": b"new",
            "/n/x/g": LONG,
        },
        gone=True,
        layouts=("tree",),
    ),
    "transaction:replacing": Scenario(
        GROWN,
        lambda fs, _: replace_directory(fs),
        {
            "/d": None,
            "/d/f": b"new",
            "/d/x": None,
            "/d/x/k": LONG,
            "/d/z": None,
            "/d/z/k": b"more",
            "/e": None,
            "/e/k": b"four",
        },
    ),
    "stage:published": Scenario(
        {"/d": None, "/d/f": b"old"},
        lambda fs, _: stage_and_publish(fs),
        {"/d": None, "/d/f": b"new", "/n": None, "/n/g": LONG},
    ),
    "adopt_many": Scenario(
        {"/d": None, "/d/f": b"old"},
        lambda fs, _: adopt_many(fs),
        {"/d": None, "/d/f": b"new", "/n": None, "/n/g": LONG},
        rule="by_file",
    ),
    "transaction:adopting": Scenario(
        {"/d": None, "/d/f": b"old"},
        lambda fs, _: adopt_together(fs),
        {"/d": None, "/d/f": b"new", "/n": None, "/n/g": LONG},
    ),
    "discard_staged": Scenario({"/d": None}, lambda fs, _: discard_staged(fs), {"/d": None}),
    "copy:file": Scenario(
        {"/d": None, "/d/f": LONG},
        lambda fs, _: fs.copy("/d/f", "/d/g", overwrite=True),
        {"/d": None, "/d/f": LONG, "/d/g": LONG},
    ),
    "copy:tree": Scenario(
        SOURCE,
        lambda fs, _: fs.copy("/s", "/t", recursive=True, overwrite=True),
        {**SOURCE, **moved(SOURCE, "/s", "/t")},
        rule="by_file",
        implied=True,
    ),
    "upload": Scenario(
        {"/t": None, "/t/f": b"old", "/t/k": LONG},
        lambda fs, _: upload(fs),
        {"/t": None, "/t/k": LONG, **moved(SOURCE, "/s", "/t")},
        rule="by_file",
        implied=True,
    ),
    "copy_to": Scenario(
        {"/t": None},
        lambda fs, origin: origin.copy_to(fs, "/s", "/t/s", recursive=True, overwrite=True),
        {"/t": None, **moved(SOURCE, "/s", "/t/s")},
        rule="by_file",
        implied=True,
        origin=SOURCE,
    ),
}
