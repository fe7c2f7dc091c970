"""The verbs of `ObjectStore` that change something in a way of their own, as scenarios of a crash;
and what the others are built from. With those of the client they are all scenarios that there
are."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from io import BytesIO

from s3k_async.attributes import Attributes
from s3k_async.backends.ports.items import ABSENT, Put
from s3k_async.client import S3kClient
from s3k_async.objects import ObjectStore
from s3k_async.txn.upload_items import MultipartUpload, upload_item
from tests.torture.crash import Marks, Parts, Paths, Scenario
from tests.torture.crash_scenarios import SCENARIOS, whole

__all__ = [
    "EVERY",
    "OBJECT_BUILT",
    "OBJECT_LOOKS",
    "OBJECT_SCENARIOS",
    "OBJECT_UPLOADS",
    "ON_STORES",
]

OBJECT_LOOKS = frozenset(
    {
        "bucket_info",
        "exists",
        "get_metadata",
        "info",
        "iterate",
        "list",
        "list_buckets",
        "list_metadata",
        "list_parts",
        "list_uploads",
        "list_with_metadata",
        "read",
        "read_dummy",
        "read_to_file",
        "rules",
        "storage_info",
    }
)
"""The verbs that change nothing."""
OBJECT_BUILT: Mapping[str, str] = {
    "copy": "copy:file",
    "copy_metadata": "set_attributes",
    "create": "write:new",
    "delete": "delete:file",
    "delete_metadata": "set_attributes",
    "exchange": "exchange:files",
    "move": "rename:over",
    "put": "write:over",
    "remove_rule": "remove_rule",
    "set_attributes": "set_attributes:read-only",
    "set_metadata": "set_attributes",
    "set_rule": "set_rule",
    "touch": "set_attributes",
    "truncate": "truncate:shorter",
}
"""The verbs that find an object and then make one change of the client: a scenario of this
change."""
DATA = bytes(range(100))
BUCKET: Paths = {"/b": None, "/b/k": DATA, "/b/t": b"target"}
TREE: Paths = {**BUCKET, "/b/x": None, "/b/x/y": b"more"}


def by(verb: Callable[[ObjectStore], Awaitable[object]]) -> Callable[..., Awaitable[object]]:
    """What a scenario runs."""

    async def run(fs: S3kClient, _: S3kClient) -> None:
        await verb(ObjectStore(fs))

    return run


async def purge(store: ObjectStore) -> None:
    whole(await store.purge_bucket("b"))


async def give_metadata(fs: S3kClient) -> None:
    await fs.set_attributes("/b/k", mode=0o600, metadata={"n": b"1", "m": b"2"})
    await fs.set_attributes("/b/t", uid=7, metadata={"n": b"0", "o": b"3"})


OBJECT_SCENARIOS: Mapping[str, Scenario] = {
    "create_bucket": Scenario(
        BUCKET,
        by(lambda store: store.create_bucket("n", uid=3)),
        {**BUCKET, "/n": None},
        once=True,
        marks=(Marks(), Marks({"/n": Attributes(uid=3)})),
    ),
    "delete_bucket": Scenario(
        {"/b": None, "/b/x": None, "/b/x/y": None},
        by(lambda store: store.delete_bucket("b")),
        {},
        rule="by_file",
        gone=True,
    ),
    "delete_bucket:force": Scenario(
        TREE, by(lambda store: store.delete_bucket("b", force=True)), {}, gone=True
    ),
    "purge_bucket": Scenario(TREE, by(purge), {"/b": None}, rule="by_file"),
    "create_from_file": Scenario(
        BUCKET,
        by(lambda store: store.create_from_file("b", "new", BytesIO(DATA))),
        {**BUCKET, "/b/new": DATA},
        once=True,
    ),
    "create_copy": Scenario(
        BUCKET,
        by(lambda store: store.create_copy("b", "k", "new", offset=10, size=70)),
        {**BUCKET, "/b/new": DATA[10:80]},
        once=True,
    ),
    "create_copy:whole": Scenario(
        BUCKET,
        by(lambda store: store.create_copy("b", "k", "new")),
        {**BUCKET, "/b/new": DATA},
        once=True,
    ),
    "create_pseudo": Scenario(
        BUCKET,
        by(lambda store: store.create_pseudo("b", "new", 50)),
        {**BUCKET, "/b/new": bytes(50)},
        once=True,
    ),
    "create_dummy": Scenario(
        BUCKET,
        by(lambda store: store.create_dummy("b", "new", b"ab", 80)),
        {**BUCKET, "/b/new": b"ab" * 40},
        once=True,
    ),
    "write": Scenario(
        BUCKET,
        by(lambda store: store.write("b", "new", DATA, offset=10)),
        {**BUCKET, "/b/new": bytes(10) + DATA},
    ),
    "write_copy": Scenario(
        BUCKET,
        by(lambda store: store.write_copy("b", "k", "t", source_offset=5, size=70, offset=3)),
        {**BUCKET, "/b/t": b"tar" + DATA[5:75]},
    ),
    "write_from_file": Scenario(
        BUCKET,
        by(lambda store: store.write_from_file("b", "t", BytesIO(DATA), offset=3)),
        {**BUCKET, "/b/t": b"tar" + DATA},
    ),
    "write_from_file:new": Scenario(
        BUCKET,
        by(lambda store: store.write_from_file("b", "new", BytesIO(DATA), offset=3)),
        {**BUCKET, "/b/new": bytes(3) + DATA},
    ),
    "move_metadata": Scenario(
        BUCKET,
        by(lambda store: store.move_metadata("b", "k", "t")),
        BUCKET,
        prepare=give_metadata,
        marks=(
            Marks(
                {
                    "/b/k": Attributes(mode=0o600, metadata={"n": b"1", "m": b"2"}),
                    "/b/t": Attributes(uid=7, metadata={"n": b"0", "o": b"3"}),
                }
            ),
            Marks(
                {
                    "/b/k": Attributes(mode=0o600),
                    "/b/t": Attributes(uid=7, metadata={"n": b"1", "m": b"2", "o": b"3"}),
                }
            ),
        ),
    ),
}

TWO = {1: b"one, ", 2: b"two" * 20}
"""The parts of an upload."""


UPLOAD = "01234567-89ab-4cde-8f01-23456789abcd"
"""Its id, so that no call is made to find it."""


def uploading(lifetime: float = 10**6) -> Callable[[S3kClient], Awaitable[None]]:
    """What begins an upload of `/b/new`, with two parts."""

    async def prepare(fs: S3kClient) -> None:
        volume, bucket = fs._volume(), (await fs.stat("/b")).id
        now_ms = volume.store.runtime.now_ms()
        expires_ms = now_ms + int(lifetime * 1000)
        upload = MultipartUpload(UPLOAD, "/b/new", now_ms, expires_ms, bucket=bucket)
        await volume.items.write(Put(upload_item(upload), ABSENT))
        for number, data in TWO.items():
            await ObjectStore(fs).put_part(UPLOAD, number, data)

    return prepare


def open_with(parts: Mapping[int, bytes]) -> Marks:
    """What there is of an upload of `/b/new`."""
    sizes = tuple((number, len(data)) for number, data in sorted(parts.items()))
    uploads: set[Parts] = {("/b/new", sizes)}
    return Marks(uploads=frozenset(uploads))


OF_UPLOADS = Scenario(
    BUCKET,
    by(lambda store: store.put_part(UPLOAD, 3, b"more")),
    BUCKET,
    features=("uploads",),
    prepare=uploading(),
    marks=(open_with(TWO), open_with({**TWO, 3: b"more"})),
)
OBJECT_UPLOADS: Mapping[str, Scenario] = {
    "create_upload": replace(
        OF_UPLOADS,
        run=by(lambda store: store.create_upload("b", "new")),
        prepare=None,
        marks=(Marks(), open_with({})),
    ),
    "put_part": OF_UPLOADS,
    "put_part:again": replace(
        OF_UPLOADS,
        run=by(lambda store: store.put_part(UPLOAD, 1, DATA)),
        marks=(open_with(TWO), open_with({**TWO, 1: DATA})),
    ),
    "copy_part": replace(
        OF_UPLOADS,
        run=by(lambda store: store.copy_part(UPLOAD, 2, "b", "k", offset=3, size=9)),
        marks=(open_with(TWO), open_with({**TWO, 2: DATA[3:12]})),
    ),
    "complete_upload": replace(
        OF_UPLOADS,
        run=by(lambda store: store.complete_upload(UPLOAD)),
        after={**BUCKET, "/b/new": b"".join(TWO.values())},
        gone=True,
        marks=(open_with(TWO), Marks()),
    ),
    "abort_upload": replace(
        OF_UPLOADS,
        run=by(lambda store: store.abort_upload(UPLOAD)),
        gone=True,
        implied=True,  # its data is left if it cannot be deleted
        marks=(open_with(TWO), Marks()),
    ),
    "expire_uploads": replace(
        OF_UPLOADS,
        run=by(lambda store: store.expire_uploads()),
        prepare=uploading(lifetime=1),
        implied=True,  # it goes on to other uploads
        marks=(open_with(TWO), Marks()),
    ),
}
"""The verbs of multipart uploads, whose crashes in memory are in
tests/faults/test_multipart_faults.py."""
EVERY: Mapping[str, Scenario] = {
    **SCENARIOS,
    **{f"objects.{name}": scenario for name, scenario in OBJECT_SCENARIOS.items()},
}
"""The scenarios of the client and of the object store."""
ON_STORES: Mapping[str, Scenario] = {
    **EVERY,
    **{f"objects.{name}": scenario for name, scenario in OBJECT_UPLOADS.items()},
}
"""Those that run on real stores."""
