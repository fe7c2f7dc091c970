"""Checks of the permissions of a role, one for each action of its policy.

Writes to the table have a condition that cannot hold, so that nothing is written: IAM is evaluated
first. What cannot be tested in this way (writing objects, and BatchWriteItem) is written under a
separate key and removed afterwards, unless the diagnosis is read-only.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Sequence
from functools import partial
from typing import Final, TypeAlias

from s3k_async.backends.ports.blobs import Unfinished
from s3k_async.backends.ports.items import (
    ABSENT,
    OPERATION,
    PARTITION,
    SORT,
    Condition,
    Delete,
    Key,
    Put,
    Update,
)
from s3k_async.backends.ports.items import (
    Check as Absence,
)
from s3k_async.backends.ports.object_versions import at_version
from s3k_async.backends.ports.service_inspection import DiskInspection
from s3k_async.backends.retrying.retrying_blobs import RetryingBlobs
from s3k_async.config import S3Bucket
from s3k_async.diagnosis.check_result import CheckResult, HealthCheck, failed, passed, skipped
from s3k_async.diagnosis.volume_parts import BlobPart, TablePart, VolumeParts
from s3k_async.errors import (
    BlobExistsError,
    BlobNotFoundError,
    ConditionFailedError,
    CredentialsError,
    PermissionDeniedError,
    UnsupportedError,
    VolumeNotFoundError,
)
from s3k_async.txn.volume_record import RECORD_KEY, TAG
from s3k_async.volumes.claims import CLAIM
from s3k_async.volumes.iam_policies import Role, needs_of

__all__ = ["adopted_checks", "permission_checks", "write_checks"]

_Probe: TypeAlias = Callable[[], Awaitable[object]]

_WRITTEN: Final = frozenset({"PutObject", "DeleteObject"})
"""Tested by `write_checks`."""
_OF_SETTINGS: Final = frozenset(
    {
        "DescribeContinuousBackups",
        "DescribeTimeToLive",
        "GetBucketVersioning",
        "GetEncryptionConfiguration",
        "GetLifecycleConfiguration",
    }
)
"""Tested by the checks of settings."""


def permission_checks(parts: VolumeParts, role: Role, *, read_only: bool) -> Iterator[HealthCheck]:
    """The checks of a role's actions, where IAM applies."""
    needs = needs_of(role)
    if parts.config.table.iam_resource("aws", "*") is not None:
        for action in sorted(needs.table - _OF_SETTINGS):
            yield _check(
                f"table dynamodb:{action}",
                parts.table,
                role,
                _table_probe(parts, action, read_only=read_only),
            )
    for part in parts.blobs:
        if part.location.iam_objects is None:
            continue
        actions = {*(needs.log if part.name == "log" else needs.data), *needs.buckets, "ListBucket"}
        if part.name == "log" and not needs.log:
            continue
        for action in sorted(actions - _OF_SETTINGS - _WRITTEN):
            wide = action in needs.buckets
            yield _check(
                f"{part.name} s3:{action}", part, role, _blob_probe(parts, part, action, wide=wide)
            )


def adopted_checks(
    parts: VolumeParts, role: Role, places: Sequence[S3Bucket]
) -> Iterator[HealthCheck]:
    """The checks that a role can list and read the objects of other buckets, of which files are
    adopted, with the actions of its policy there."""
    data = parts.blobs[0]
    for place in places:
        where = f"{place.bucket}/{place.prefix}".rstrip("/")
        name = f"adopted {where}"
        if data.location.iam_objects is None:
            yield HealthCheck(name, partial(_skip, "only data in S3 adopts from other buckets"))
        elif role == "gc":
            yield HealthCheck(name, partial(_skip, "the role gc does not read adopted objects"))
        else:
            for action in ("ListBucket", *sorted(needs_of("reader").data)):
                probe = partial(_read_adopted, data, place, action)
                yield _check(f"{name} s3:{action}", data, f"{role} --adopted {where}", probe)


def write_checks(parts: VolumeParts, role: Role, *, read_only: bool) -> Iterator[HealthCheck]:
    """The checks that write, read and remove an object of their own, of a role that writes."""
    if role == "reader":
        return
    for part in parts.blobs:
        yield HealthCheck(
            f"{part.name} write",
            partial(_skip, "it writes, and the diagnosis is read-only")
            if read_only
            else partial(_write_object, parts, part),
            "change the owner or mode of the directory"
            if isinstance(part.inspection, DiskInspection)
            else f"grant s3:PutObject and s3:DeleteObject: s3k policy {role}",
        )


def _check(name: str, part: TablePart | BlobPart, policy: str, probe: _Probe | str) -> HealthCheck:
    """`policy`: the arguments of `s3k policy`; `probe`: what shows the permission, or why there is
    nothing."""

    async def run() -> CheckResult:
        if part.blocked:
            return skipped(part.blocked)
        if isinstance(probe, str):
            return skipped(probe)
        try:
            await probe()
        except CredentialsError:
            raise
        except PermissionDeniedError as error:
            return failed(error, f"grant it: s3k policy {policy} prints the policy of the role")
        except (BlobNotFoundError, ConditionFailedError):
            pass
        return passed("allowed")

    return HealthCheck(name, run)


async def _skip(reason: str) -> CheckResult:
    return skipped(reason)


def _table_probe(parts: VolumeParts, action: str, *, read_only: bool) -> _Probe | str:
    """A call that needs the action and changes nothing."""
    items, store = parts.table.items, parts.table.store
    key = Key(RECORD_KEY.partition, f"doctor-{parts.runtime.uuid()}")
    operation = parts.runtime.uuid()
    never = Condition(equals={OPERATION: operation})
    item = {PARTITION: key.partition, SORT: key.sort, OPERATION: operation}

    async def load() -> None:
        await store.load([item])
        await items.write(Delete(key, never))

    async def tag() -> None:
        if parts.record is not None:
            await store.write_tag(TAG, parts.record.to_tag())

    probes: dict[str, _Probe] = {
        "BatchGetItem": partial(items.get_many, [RECORD_KEY, key]),
        "ConditionCheckItem": partial(items.transact, [Absence(key, ABSENT)], operation),
        "DeleteItem": partial(store.write, Delete(key, never)),
        "DescribeTable": store.exists,
        "GetItem": partial(items.get, RECORD_KEY),
        "ListTagsOfResource": partial(store.read_tag, TAG),
        "PutItem": partial(store.write, Put(item, never)),
        "Query": partial(items.query, RECORD_KEY.partition, limit=1),
        "Scan": partial(items.scan, 0, 1, limit=1),
        "UpdateItem": partial(store.write, Update(key, never, {SORT + "_": ""})),
    }
    if parts.config.table_prefix and action in ("ListTagsOfResource", "TagResource"):
        return "the table has a catalog of its volumes in place of a tag"
    writing: dict[str, _Probe] = {"BatchWriteItem": load, "TagResource": tag}
    if action in writing:
        return "it writes, and the diagnosis is read-only" if read_only else writing[action]
    if action in probes:
        return probes[action]
    return "only the creation, change or deletion itself shows it"


def _blob_probe(parts: VolumeParts, part: BlobPart, action: str, *, wide: bool) -> _Probe | str:
    """A call that needs the action and changes nothing. `wide`: on the whole bucket."""
    place = part.blobs
    key = _own_key(parts)
    probes: dict[str, _Probe] = {
        "AbortMultipartUpload": partial(place.abort_upload, Unfinished(key, "0" * 32, 0)),
        "GetObject": partial(place.get, CLAIM, 0, 1),
        "GetObjectVersion": partial(_read_version, place, CLAIM),
        "ListBucket": place.now_ms if wide else partial(_scoped(parts, place).list, limit=1),
        "ListBucketMultipartUploads": partial(_first_upload, place),
    }
    return probes.get(action, "only the creation, change or deletion itself shows it")


def _own_key(parts: VolumeParts) -> str:
    """A key below the scope of the volume, of no file and of no log entry."""
    scope = "" if parts.record is None else parts.record.scope
    return f"{scope}doctor-{parts.runtime.uuid()}"


def _scoped(parts: VolumeParts, place: RetryingBlobs) -> RetryingBlobs:
    return place if parts.record is None else place.below(parts.record.scope)


async def _read_version(place: RetryingBlobs, key: str) -> None:
    """Read a version that exists: without ListBucketVersions, S3 may forbid what is missing."""
    try:
        found = await place.head(key)
    except PermissionDeniedError as error:
        raise UnsupportedError("no version is known without s3:GetObject") from error
    version = found.version if found is not None else ""
    await at_version(place, version or "null").get(key, 0, 1)


async def _read_adopted(data: BlobPart, place: S3Bucket, action: str) -> None:
    """A call that needs the action on the first object below a prefix of another bucket. Raises
    UnsupportedError if no object to read is known."""
    objects = data.blobs.in_bucket(place.bucket)
    if objects is None:
        raise VolumeNotFoundError("no bucket can have this name", path=place.bucket)
    try:
        found = (await objects.list(place.prefix, limit=1)).blobs
    except (PermissionDeniedError, VolumeNotFoundError) as error:
        if action == "ListBucket":
            raise
        raise UnsupportedError("the objects cannot be listed") from error
    if action == "ListBucket":
        return
    if not found:
        raise UnsupportedError("there is no object to read")
    if action == "GetObject":
        await objects.get(found[0].key, 0, 1)
    else:
        await _read_version(objects, found[0].key)


async def _first_upload(place: RetryingBlobs) -> None:
    async for _ in place.list_uploads():
        return


async def _write_object(parts: VolumeParts, part: BlobPart) -> CheckResult:
    if part.blocked:
        return skipped(part.blocked)
    key, data = _own_key(parts), parts.runtime.uuid().encode()
    await part.blobs.put(key, data, if_absent=True)
    try:
        found = await part.blobs.get(key)
        try:
            # Other bytes: equal ones count as success after a lost answer.
            await part.blobs.put(key, b"", if_absent=True)
            is_conditional = False
        except BlobExistsError:
            is_conditional = True
    finally:
        await part.blobs.delete(key)
    uri = part.blobs.uri(key)
    if found != data or not is_conditional:
        what = "another content than was written" if found != data else "no conditional writes"
        return failed(
            UnsupportedError(f"the service has {what}", path=uri),
            "use a service that keeps what S3 promises; docs/reliability.md names tested ones",
        )
    return passed("an object was written, read and removed; conditions hold")
