"""One scene for each verb of the multipart uploads of the object API, with the actions that it
needs."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final

from s3k_async import S3kClient
from s3k_async.objects import ObjectStore
from s3k_async.storage.upload import LEAST_COPY
from tests.client.request_scenes import Scene

__all__ = ["LOOKS", "OPENING", "UPLOADS", "UploadScene"]

OPENING: Final = frozenset(
    {
        "dynamodb:DescribeTable",
        "dynamodb:GetItem",
        "dynamodb:ListTagsOfResource",
        "s3:GetObject",
    }
)
"""What opening a volume needs."""


@dataclass(frozen=True, slots=True)
class UploadScene:
    """A call for an open upload of the object `k` in the bucket `d`, which has the part 1; `f` is
    another object of the bucket."""

    verb: Callable[[ObjectStore, str], Awaitable[object]]
    needs: frozenset[str]
    """Actions without which the call fails, beside those of the opening."""
    wants: frozenset[str] = frozenset()
    """Actions without which it leaves data or items to garbage collection."""
    lifetime: float = 600.0
    """Seconds until garbage collection may abort the upload."""

    def scene(self) -> Scene:
        """Its scene, which begins an upload of its own."""
        begun: list[str] = []

        async def before(fs: S3kClient) -> None:
            objects = ObjectStore(fs)
            if not await fs.exists("/d/f"):
                await fs.write("/d/f", bytes(LEAST_COPY + 1))
            begun.append((await objects.create_upload("d", "k", lifetime=self.lifetime)).id)
            await objects.put_part(begun[-1], 1, b"part")

        return Scene(lambda fs: self.verb(ObjectStore(fs), begun[-1]), before)


def _needing(
    verb: Callable[[ObjectStore, str], Awaitable[object]],
    needs: str,
    wants: str = "",
    *,
    lifetime: float = 600.0,
) -> UploadScene:
    return UploadScene(verb, _actions(needs), _actions(wants), lifetime)


def _actions(names: str) -> frozenset[str]:
    """The actions with these names, of the service whose names they are."""
    return frozenset(
        f"{'dynamodb' if name.endswith(('Item', 'Query')) else 's3'}:{name}"
        for name in names.split()
    )


LOOKS: Final = {
    "list_uploads": _needing(lambda objects, _: objects.list_uploads("d"), "Query"),
    "list_parts": _needing(lambda objects, upload: objects.list_parts(upload), "Query"),
}
"""Those that change nothing."""
UPLOADS: Final = {
    **LOOKS,
    "create_upload": _needing(lambda objects, _: objects.create_upload("d", "new"), "PutItem"),
    "put_part": _needing(
        lambda objects, upload: objects.put_part(upload, 0, b"x"), "PutObject PutItem"
    ),
    "put_part, in place of another": _needing(
        lambda objects, upload: objects.put_part(upload, 1, b"x"),
        "PutObject PutItem",
        "DeleteObject ListBucket",
    ),
    "copy_part": _needing(
        lambda objects, upload: objects.copy_part(upload, 0, "d", "f"), "PutObject PutItem"
    ),
    "copy_part, a range inside the service": _needing(
        lambda objects, upload: objects.copy_part(upload, 0, "d", "f", offset=1),
        "PutObject PutItem",
    ),
    "complete_upload": _needing(
        lambda objects, upload: objects.complete_upload(upload),
        "BatchGetItem ConditionCheckItem PutItem PutObject Query UpdateItem",
        "DeleteItem",
    ),
    "abort_upload": _needing(
        lambda objects, upload: objects.abort_upload(upload),
        "DeleteItem DeleteObject Query UpdateItem",
        "ListBucket",
    ),
    "expire_uploads": _needing(
        lambda objects, _: objects.expire_uploads(),
        "DeleteItem Query UpdateItem",
        lifetime=0.001,
    ),
}
"""Each verb by its name."""
