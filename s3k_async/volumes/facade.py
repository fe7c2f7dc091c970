"""Public functions that create and remove a volume, with settings instead of a configuration."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Unpack

from s3k_async.config import VolumeConfig
from s3k_async.model import Feature
from s3k_async.namespace.addresses import Path
from s3k_async.settings import resolve
from s3k_async.settings.keywords import Settings
from s3k_async.volumes import creation, destruction
from s3k_async.volumes.volume import recorded

__all__ = ["destroy_volume", "init_volume"]


async def init_volume(
    volume: Path | None = None,
    *,
    config: VolumeConfig | Path | None = None,
    context: str | None = None,
    hadoop: Mapping[str, object] | None = None,
    session: object | Mapping[str, object] | None = None,
    exist_ok: bool = False,
    take_over: bool = False,
    trash_retention: int | None = None,
    enable: Collection[Feature] = (),
    without: Collection[Feature] = (),
    hot: str = "",
    hot_on_this_machine: bool = False,
    **settings: Unpack[Settings],
) -> VolumeConfig:
    """Create a volume, with missing buckets, directories and table, and return the configuration
    that opens it.

    The volume is given as to `S3kClient`. Of concurrent calls exactly one creates it. An existing
    volume raises VolumeExistsError, unless `exist_ok` and it agrees with the settings. `take_over`
    is for a table that was restored or renamed: it replaces the table in the marks of its
    locations, which must no longer be used. `trash_retention`: how long garbage collection leaves a
    deleted directory in the trash, seconds, by default one day; `Trash.set_retention` changes it.
    Layout `path` has no trash, and refuses it. `without`: features that the volume does not get, so
    that clients of versions that do not know them can open it, too: `extents`, by which files can
    be appended to and changed in place, `uploads`, multipart uploads, which need extents, and
    `attributes`, mode, owner and user metadata of entries; `s3k migrate --enable` adds them later.
    `enable`: features that it gets beside these, each of which costs requests: `rules`, lifecycle
    rules, `permissions`, mode bits that are evaluated, and `counters`, the objects and bytes of
    buckets.
    `hot`: a second data location, which gets what is written until `s3k tier run` moves it to the
    first one: `s3://BUCKET/PREFIX` with the service settings of the data, or a directory
    (docs/tiers.md). A directory of a volume whose data is not on this machine is refused without
    `hot_on_this_machine`, since only clients of this machine can use the volume then.
    `layout` is by default `tree` in an embedded volume and `path` in any other. After a failure,
    call it again.

    Raises ConfigError, InvalidArgumentError (a retention that is not a whole number of seconds, or
    features that contradict each other),
    VolumeExistsError (also if a location belongs to another volume), VolumeMismatchError,
    NotAVolumeError (the table holds something else), VolumeNotFoundError (`take_over` without a
    volume), UnsupportedError (kind `s3k-1.0`), and the services' errors.
    """
    resolved = resolve(volume, config=config, context=context, hadoop=hadoop, **settings)
    if trash_retention is not None:
        resolved = replace(resolved, trash_retention=trash_retention)
    record = await creation.init_volume(
        resolved,
        exist_ok=exist_ok,
        take_over=take_over,
        enable=enable,
        without=without,
        hot=hot,
        hot_on_this_machine=hot_on_this_machine,
        session=session,
    )
    return recorded(resolved, record)


async def destroy_volume(
    volume: Path | None = None,
    *,
    config: VolumeConfig | Path | None = None,
    context: str | None = None,
    hadoop: Mapping[str, object] | None = None,
    session: object | Mapping[str, object] | None = None,
    force: bool = False,
    **settings: Unpack[Settings],
) -> int:
    """Remove a volume with all its data; return the number of foreign objects, which are kept.

    The volume is given as to `S3kClient`, and cannot be opened from then on; clients that have it
    open notice within seconds. Without `force` only a volume without files and directories is
    removed. Only objects of the volume are deleted; a bucket is kept. In a shared table only its
    items are removed, after a wait of 40 seconds for such clients to stop.

    Raises ConfigError, DirectoryNotEmptyError (not `force`), VolumeNotFoundError, NotAVolumeError,
    VolumeMismatchError, ReadOnlyVolumeError (kind `s3k-1.0`), PartialFailureError (objects that
    could not be deleted), and the services' errors. After a failure, call it again.
    """
    return await destruction.destroy_volume(
        resolve(volume, config=config, context=context, hadoop=hadoop, **settings),
        force=force,
        session=session,
    )
