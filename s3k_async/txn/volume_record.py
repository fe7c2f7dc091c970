"""The volume record: the settings that all clients of a volume share.

It is an item of the table, and a tag of the table that encodes the same fields, so that a lost item
can be restored: with a guessed suffix count every later entry would go into the wrong partition.
The rules for a missing or contradictory item or tag follow S3Guard's version marker (HADOOP-16520);
see `load_or_repair`.

The tag reads `f:1 k:native n:analytics ...`: fields in a fixed order, a space between them, a byte
that the service does not allow in a tag written as `=` and two hexadecimal digits.
"""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Collection, Mapping
from contextlib import aclosing
from dataclasses import dataclass, field, fields, replace
from typing import Any, Final, get_args

from s3k_async._core.retry import RetryPolicy, backoff, retry
from s3k_async._core.runtime import Runtime
from s3k_async.backends.ports.items import (
    ABSENT,
    OPERATION,
    PARTITION,
    SORT,
    Condition,
    Item,
    ItemStore,
    ItemTable,
    Key,
    Put,
    Update,
    Value,
)
from s3k_async.backends.ports.pagination import scan_all
from s3k_async.backends.retrying.prefixed_items import PrefixedItems
from s3k_async.config import BlobLocation, LogMode, TableLocation
from s3k_async.errors import (
    BusyError,
    ConditionFailedError,
    ConfigError,
    CredentialsError,
    InvalidArgumentError,
    NotAVolumeError,
    PermissionDeniedError,
    S3kError,
    UnsupportedError,
    VolumeExistsError,
    VolumeFormatError,
    VolumeMismatchError,
    VolumeNotFoundError,
)
from s3k_async.model import DEFAULT_FEATURES, FEATURES, Feature, HashName, LayoutName, VolumeKind
from s3k_async.permissions import DIRECTORY_MODE, NO_OWNER, Ownership
from s3k_async.table.keys import is_entry_partition
from s3k_async.txn.lease import ends_late, expired

__all__ = [
    "APPEARANCE",
    "ATTRIBUTES",
    "DESTROYING",
    "EXTENTS",
    "FLAGS",
    "FORMAT",
    "LOCK",
    "LOCK_DONE",
    "LOCK_EPOCH",
    "LOCK_LEASE",
    "LOCK_PURPOSE",
    "LOCK_SECONDS",
    "LOCK_SUBJECT",
    "PERMISSIONS",
    "PROTOCOL",
    "RECORD_KEY",
    "RETENTION",
    "ROOT_OWNER",
    "SCOPE",
    "SCOPED",
    "SHARED",
    "SHARED_FORMAT",
    "STATE",
    "TAG",
    "TIERS",
    "TRASH_RETENTION",
    "TREE",
    "UPLOADS",
    "VolumeRecord",
    "beside",
    "change_trash_retention",
    "create_record",
    "features_of",
    "find_or_repair",
    "has_entries",
    "is_empty",
    "is_locked",
    "layout_of",
    "load_or_repair",
    "location_text",
    "lock_is_held",
    "locked_message",
    "mark_destroying",
    "need_item",
    "need_retention",
    "read_trash_retention",
    "require_flags",
    "require_tag",
    "same_record",
    "scope_of",
    "with_needed",
    "write_tag",
]

FORMAT: Final = 1
"""The layout of the record itself."""
PROTOCOL: Final = 1
"""The protocol of this client; a record may require a newer one (`min_client`)."""
SCOPED: Final = "scoped"
"""The flag of a volume whose data keys and log keys lie below its own `scope` in their locations.
"""
TREE: Final = "tree"
"""The flag of a volume of layout `tree`."""
EXTENTS: Final = "extents"
"""The flag of a volume in which files may have extents (`storage.extents`)."""
ATTRIBUTES: Final = "attributes"
"""The flag of a volume whose entries may have attributes (`s3k_async.attributes`)."""
UPLOADS: Final = "uploads"
"""The flag of a volume with multipart uploads (`txn.upload_records`), whose parts no entry names.
"""
TIERS: Final = "tiers"
"""The flag of a volume with a hot data location beside the cold one (`storage.tiered_blobs`)."""
RULES: Final = "rules"
"""The flag of a volume with lifecycle rules (`s3k_async.lifecycle_rules`)."""
COUNTERS: Final = "counters"
"""The flag of a volume with maintained counters of its buckets (`txn.bucket_counters`)."""
_DRAFT: Final = "tree-draft"
"""The flag of layout `tree` before its format was final, in unreleased versions."""
NEEDED: Final[Mapping[Feature, tuple[Feature, ...]]] = {
    "uploads": ("extents",),
    "rules": ("attributes",),
    "permissions": ("attributes",),
}
"""The features without which another one cannot be: the parts of an upload become extents; rules
set read-only, and permissions are attributes."""
FLAGS: Final = frozenset({SCOPED, TREE, TIERS, *FEATURES})
"""Features that this version supports. A record with any other is refused."""
PERMISSIONS: Final = "permissions"
"""The flag of a volume that evaluates mode bits (`namespace.access_control`)."""
_IN_TAG: Final = {ATTRIBUTES: "attr", UPLOADS: "up", PERMISSIONS: "perm", TIERS: "t"}
"""Shorter names of flags in the table's tag, whose length is limited."""
SCOPE: Final = "s3k-"
"""Prefix of scopes. S3-FileSystem 1.0 lists, and deletes, only keys that begin with a hexadecimal
digit."""
RECORD_KEY: Final = Key("s3k:volume", "record")
SHARED: Final = "shared"
"""The kind in the record of a shared table, in which every volume has a prefix
(`txn.shared_table`)."""
SHARED_FORMAT: Final = 2
"""The format of that record, which clients that do not support prefixes refuse."""
TAG: Final = "s3k-volume"

TRASH_RETENTION: Final = 86_400
"""The retention of the trash unless a volume has another one, seconds."""
RETENTION: Final = "trash_retention"
"""The field of the retention of the trash."""
ROOT_OWNER: Final = "root_owner"
"""The field of the owner of the root."""
_LONGEST_RETENTION: Final = 10**10
"""Seconds; more than three hundred years."""
_ATTEMPTS: Final = 10
"""Of a change of the record, each after a concurrent one."""

APPEARANCE: Final = RetryPolicy(attempts=8, base=0.1, cap=1.0, deadline=5.0)
"""How long an empty table may wait for its creator to write the record."""

_TAG_LIMIT = 256
STATE: Final = "state"
DESTROYING: Final = "destroying"
LOCK: Final = "loading"
"""Id of the present acquisition of the exclusive lock, if any: see `txn.volume_lock`."""
LOCK_LEASE: Final = "loading_lease"
"""Expiry of its lease, epoch ms; 0 after interrupted work."""
LOCK_SECONDS: Final = 90.0
"""Duration of the lease: no other client takes the lock over before it expires."""
LOCK_PURPOSE: Final = "loading_for"
LOCK_SUBJECT: Final = "loading_of"
LOCK_DONE: Final = "loading_done"
LOCK_EPOCH: Final = "epoch"
"""Id of the last acquisition; never removed."""
_LOG = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class VolumeRecord:
    """The settings that are fixed when a volume is created."""

    name: str
    suffix_count: int
    hash: HashName
    data: str
    """The data location, as `location_text` writes it."""
    log_mode: LogMode
    log: str
    """The location of the operation log; empty when it is disabled."""
    volume_id: str
    created_ms: int
    kind: VolumeKind = "native"
    flags: tuple[str, ...] = ()
    min_client: int = PROTOCOL
    format: int = FORMAT
    hot: str = ""
    """The hot data location, as `location_text` writes it; empty unless the flag `tiers` is set."""
    epoch: str = field(default="", compare=False)
    """The id of the last exclusive lock. Not in the tag.
    """
    trash_retention: int | None = field(default=None, compare=False)
    """Seconds for which garbage collection leaves a deleted directory in the trash; None in a
    layout without a trash. The only field that can be changed while the volume is in use
    (`change_trash_retention`). Not in the tag."""

    root_owner: str = field(default="", compare=False)
    """`<uid>:<gid>` of the root in a volume that evaluates permissions; empty for the superuser.
    Not in the tag."""

    @property
    def scope(self) -> str:
        """Prefix of every key of the volume in its data and log locations; empty for a volume
        created before scopes existed. Adopted objects keep their keys.
        """
        return scope_of(self.volume_id, self.flags)

    @property
    def extents(self) -> bool:
        """Whether files may have extents."""
        return EXTENTS in self.flags

    @property
    def attributes(self) -> bool:
        """Whether entries may have attributes."""
        return ATTRIBUTES in self.flags

    @property
    def rules(self) -> bool:
        """Whether there may be lifecycle rules."""
        return RULES in self.flags

    @property
    def counters(self) -> bool:
        """Whether objects and bytes of buckets are counted."""
        return COUNTERS in self.flags

    @property
    def uploads(self) -> bool:
        """Whether there may be multipart uploads."""
        return UPLOADS in self.flags

    @property
    def permissions(self) -> bool:
        """Whether mode bits are evaluated."""
        return PERMISSIONS in self.flags

    @property
    def root(self) -> Ownership:
        """Owner and mode of the root."""
        if not self.root_owner:
            return NO_OWNER
        uid, _, gid = self.root_owner.partition(":")
        return Ownership(int(uid), int(gid), DIRECTORY_MODE)

    @property
    def layout(self) -> LayoutName:
        """What the keys of entries are made of."""
        return layout_of(self.flags)

    def to_item(self, operation: str) -> dict[str, Value]:
        """The item that stores the record, written by `operation`."""
        item: dict[str, Value] = {
            PARTITION: RECORD_KEY.partition,
            SORT: RECORD_KEY.sort,
            "format": self.format,
            "kind": self.kind,
            "name": self.name,
            "suffix_count": self.suffix_count,
            "hash": self.hash,
            "data": self.data,
            "log_mode": self.log_mode,
            "log": self.log,
            "volume_id": self.volume_id,
            "flags": " ".join(self.flags),
            "min_client": self.min_client,
            "created": self.created_ms,
            OPERATION: operation,
        }
        if self.hot:
            item[_HOT] = self.hot
        if self.layout == "tree" and self.trash_retention is not None:
            item[RETENTION] = self.trash_retention
        if self.root_owner:
            item[ROOT_OWNER] = self.root_owner
        return item

    @classmethod
    def from_item(cls, item: Item, where: str) -> VolumeRecord:
        """Read the record item of table `where`. Raises VolumeFormatError if it needs a newer
        client, NotAVolumeError if it is damaged, VolumeMismatchError if it is that of a shared
        table."""
        if item.get("kind") == SHARED and item.get("format") == SHARED_FORMAT:
            raise VolumeMismatchError(
                "the table has several volumes, each with a prefix: give the option table_prefix "
                "(s3k volumes lists them), or another table",
                path=where,
            )
        what = f"the volume record item of {where}"
        names = (*_FIELDS, _HOT) if _HOT in item else _FIELDS
        record = _checked({name: item.get(name) for name in names}, what, where)
        owner = str(item.get(ROOT_OWNER, ""))
        if owner and not re.fullmatch(r"[0-9]{1,10}:[0-9]{1,10}", owner):
            raise NotAVolumeError(f"{what} is damaged: {ROOT_OWNER} is {owner!r}", path=where)
        record = replace(record, epoch=str(item.get(LOCK_EPOCH, "")), root_owner=owner)
        if record.trash_retention is None:
            return record
        retention = item.get(RETENTION, record.trash_retention)
        if type(retention) is not int or retention < 0:
            raise NotAVolumeError(f"{what} is damaged: {RETENTION} is {retention!r}", path=where)
        return replace(record, trash_retention=retention)

    def to_tag(self) -> str:
        """The tag's value. Raises ConfigError when it would exceed the length of a tag."""
        known = {**_FIELDS, **_OPTIONAL}
        values = {name: str(value) for name, value in self.to_item("").items() if name in known}
        if self.log == beside(self.data):
            values["log"] = "."
        values["flags"] = " ".join(_IN_TAG.get(flag, flag) for flag in self.flags)
        tag = " ".join(
            f"{letter}:{_escaped(values[name])}" for name, letter in known.items() if name in values
        )
        if len(tag) > _TAG_LIMIT:
            raise ConfigError(
                f"the volume's name and locations do not fit into a table tag ({len(tag)} of "
                f"{_TAG_LIMIT} characters);"
                " choose a shorter prefix or directory",
                path=self.name,
            )
        return tag

    @classmethod
    def from_tag(cls, tag: str, where: str) -> VolumeRecord:
        """Read the tag of table `where`. Raises as `from_item`."""
        what = f"the table tag {TAG} of {where}"
        letters = {letter: name for name, letter in {**_FIELDS, **_OPTIONAL}.items()}
        values: dict[str, Any] = {}
        for part in tag.split(" "):
            letter, _, text = part.partition(":")
            name = letters.get(letter, letter)
            try:
                values[name] = _unescaped(text)
                if name in _NUMBERS:
                    values[name] = int(values[name])
            except ValueError as error:
                raise NotAVolumeError(f"{what} is damaged: {part!r}", path=where) from error
        if values.get("log") == ".":
            values["log"] = beside(str(values.get("data", "")))
        if "flags" in values:
            full = {short: flag for flag, short in _IN_TAG.items()}
            flags = str(values["flags"]).split()
            values["flags"] = " ".join(full.get(flag, flag) for flag in flags)
        return _checked(values, what, where)

    def differences(self, wanted: Mapping[str, object]) -> str:
        """The differences from the wanted fields, as `name (ours, not wanted)`; empty if there are
        none. A wanted value of None matches any."""
        return ", ".join(
            f"{name} ({getattr(self, name)!r}, not {value!r})"
            for name, value in wanted.items()
            if value is not None and getattr(self, name) != value
        )

    def require(self, wanted: Mapping[str, object], where: str) -> None:
        """Raises VolumeMismatchError when a wanted field differs from the record's."""
        difference = self.differences(wanted)
        if difference:
            raise VolumeMismatchError(
                f"the volume differs from the given settings: {difference}", path=where
            )


def require_flags(flags: Collection[str], what: str, where: str) -> None:
    """Raises VolumeFormatError for a flag that this version does not support; `what`: where it
    was found."""
    unknown = [flag for flag in flags if flag not in FLAGS]
    if unknown:
        remedy = "; dump it with the version that made it, and load the dump with this one"
        raise VolumeFormatError(
            f"{what} needs features this version lacks: {', '.join(unknown)}"
            f"{remedy if _DRAFT in unknown else ''}",
            path=where,
        )


def features_of(
    enabled: Collection[Feature], left_out: Collection[Feature], where: str
) -> tuple[Feature, ...]:
    """The features of a new volume: the default ones and those that are enabled, without those that
    are left out and those that need them. Raises InvalidArgumentError for an enabled one that is
    left out, or needs one that is."""
    wanted = with_needed(enabled)
    if both := [each for each in wanted if each in left_out]:
        raise InvalidArgumentError(
            f"{', '.join(both)} cannot be left out of a volume with {', '.join(enabled)}",
            path=where,
        )
    kept = {
        each
        for each in DEFAULT_FEATURES
        if each not in left_out and not set(NEEDED.get(each, ())) & set(left_out)
    }
    return with_needed([*kept, *wanted])


def with_needed(features: Collection[Feature]) -> tuple[Feature, ...]:
    """Features, and those that they need."""
    wanted = {*features, *(need for each in features for need in NEEDED.get(each, ()))}
    return tuple(each for each in FEATURES if each in wanted)


def layout_of(flags: Collection[str]) -> LayoutName:
    """The layout of a volume with these flags."""
    return "tree" if TREE in flags else "path"


def scope_of(volume_id: str, flags: Collection[str]) -> str:
    """Prefix of every key of a volume with these flags, in its data and log locations."""
    return f"{SCOPE}{volume_id}/" if SCOPED in flags else ""


_FIELDS: Final = {
    "format": "f",
    "kind": "k",
    "name": "n",
    "suffix_count": "s",
    "hash": "h",
    "data": "d",
    "log_mode": "m",
    "log": "l",
    "volume_id": "i",
    "flags": "g",
    "min_client": "c",
    "created": "t",
}
_HOT: Final = "hot"
_OPTIONAL: Final = {_HOT: "o"}
"""Fields that only some volumes have, so that the records and tags of others do not change."""
_NUMBERS: Final = frozenset({"format", "suffix_count", "min_client", "created"})


def _checked(values: Mapping[str, Any], what: str, where: str) -> VolumeRecord:
    """Check the format before anything else: in a later format the other fields may have another
    meaning."""
    written = values.get("format")
    if type(written) is not int or written < 1:
        raise NotAVolumeError(f"{what} has no format number", path=where)
    if written > FORMAT:
        raise VolumeFormatError(
            f"{what} has format {written}; this version reads {FORMAT}", path=where
        )
    for name in {**_FIELDS, **values}:
        if name not in _FIELDS and name not in _OPTIONAL:
            raise NotAVolumeError(f"{what} is damaged: unknown field {name!r}", path=where)
        if type(values.get(name)) is not (int if name in _NUMBERS else str):
            raise NotAVolumeError(
                f"{what} is damaged: field {name!r} is missing or of another type", path=where
            )
    known = {
        "kind": get_args(VolumeKind),
        "hash": get_args(HashName),
        "log_mode": get_args(LogMode),
    }
    for name, choices in known.items():
        if values[name] not in choices:
            raise NotAVolumeError(f"{what} is damaged: {name} is {values[name]!r}", path=where)
    if values["suffix_count"] < 1 or not values["name"] or not values["volume_id"]:
        raise NotAVolumeError(f"{what} is damaged: suffix count, name or id is empty", path=where)
    flags = tuple(values["flags"].split())
    require_flags(flags, what, where)
    if (TIERS in flags) != bool(values.get(_HOT)):
        raise NotAVolumeError(
            f"{what} is damaged: the flag {TIERS} and the field {_HOT} do not agree", path=where
        )
    if values["min_client"] > PROTOCOL:
        raise VolumeFormatError(
            f"{what} needs a client of protocol {values['min_client']}; this one speaks {PROTOCOL}",
            path=where,
        )
    others = {name: value for name, value in values.items() if name not in ("flags", "created")}
    retention = TRASH_RETENTION if layout_of(flags) == "tree" else None
    return VolumeRecord(
        flags=flags, created_ms=values["created"], trash_retention=retention, **others
    )


def _escaped(text: str) -> str:
    try:
        data = text.encode()
    except UnicodeEncodeError as error:
        raise ConfigError(
            "a name or location is not text that UTF-8 can hold", path=ascii(text)
        ) from error
    return re.sub(rb"[^A-Za-z0-9+\-._:/]", lambda match: b"=%02X" % match[0][0], data).decode(
        "ascii"
    )


def _unescaped(text: str) -> str:
    data = re.sub(rb"=([0-9A-F]{2})", lambda match: bytes.fromhex(match[1].decode()), text.encode())
    return data.decode()


def location_text(location: BlobLocation, table: TableLocation) -> str:
    """The form of a location in the record: `s3://bucket/prefix/`, `memory://name/`,
    `file:///directory/`, or, for a directory below that of the table's file, `./directory/`, so
    that such a volume can be moved."""
    return location.text(table.home)


def beside(data: str) -> str:
    """The text of the log's default location, given the data's."""
    return os.path.join(data, "oplog/")


async def is_empty(store: ItemStore, table: ItemTable) -> bool:
    """Whether the table holds no items. A prefix of a shared table always counts as empty, since
    its items could only be found by a scan of all volumes: it is free if it has neither a record
    nor an item in the catalog, the last items that `destroy` removes."""
    if isinstance(table, PrefixedItems):
        return True
    async with aclosing(scan_all(store, limit=1)) as pages:
        async for page in pages:
            if page:
                return False
    return True


async def has_entries(store: ItemStore) -> bool:
    """Whether the table holds an entry of any volume."""
    async with aclosing(scan_all(store)) as pages:
        async for page in pages:
            if any(is_entry_partition(str(item[PARTITION])) for item in page):
                return True
    return False


async def load_or_repair(
    store: ItemStore,
    table: ItemTable,
    where: str,
    *,
    runtime: Runtime,
    policy: RetryPolicy,
    patience: RetryPolicy = APPEARANCE,
    destroying: bool = False,
    locked: bool = False,
) -> VolumeRecord:
    """The record of the volume in a table, its item or tag restored from the other if one was lost.

    | tag | item | table | |
    |---|---|---|---|
    | missing | missing | has items | NotAVolumeError |
    | missing | missing | empty | waits for a creator (`patience`), then VolumeNotFoundError |
    | present | missing | any | the item is restored |
    | missing | present | any | the tag is written again; a failure is only logged |
    | present | present | any | equal, else VolumeMismatchError that names what differs |
    | unsupported or not readable | any | any | the item alone rules |

    Item or tag damaged: NotAVolumeError; in need of a newer client: VolumeFormatError; both name
    which of the two. A volume that is being destroyed raises VolumeNotFoundError, except for the
    caller that destroys it (`destroying`). An exclusively locked one raises BusyError, except for a
    caller that is about to take the lock (`locked`): then the item alone counts.
    """
    record = await find_or_repair(
        store,
        table,
        where,
        runtime=runtime,
        policy=policy,
        patience=patience,
        destroying=destroying,
        locked=locked,
    )
    if record is not None:
        return record
    if isinstance(table, PrefixedItems):
        raise VolumeNotFoundError("the table has no volume with this prefix", path=where)
    if await is_empty(store, table):
        raise VolumeNotFoundError("the table is empty: no volume was initialised in it", path=where)
    raise NotAVolumeError("the table holds items but no volume record", path=where)


async def find_or_repair(
    store: ItemStore,
    table: ItemTable,
    where: str,
    *,
    runtime: Runtime,
    policy: RetryPolicy,
    patience: RetryPolicy = APPEARANCE,
    destroying: bool = False,
    locked: bool = False,
) -> VolumeRecord | None:
    """`load_or_repair`, but None where item and tag are both missing."""
    delays = backoff(patience, runtime)
    while True:
        item = await store.get(RECORD_KEY)
        tag, tags = await _read_tag(table, runtime, policy)
        if item is None and tag is None:
            if not await is_empty(store, table):
                # The items may have been written after the first read, by a concurrent creator.
                if await store.get(RECORD_KEY) is None:
                    return None
                continue
            delay = next(delays, None)
            if delay is None:
                return None
            await runtime.sleep(delay)
            continue
        tagged = None if tag is None else VolumeRecord.from_tag(tag, where)
        if item is not None:
            stored = VolumeRecord.from_item(item, where)
            if item.get(STATE) == DESTROYING and not destroying:
                raise VolumeNotFoundError(
                    "the volume is being destroyed; repeat s3k destroy to finish", path=where
                )
            if LOCK in item:
                if locked or destroying:
                    return stored
                raise BusyError(locked_message(item, runtime.now_ms()), path=where)
            require_tag(stored, tagged, where)
            if tagged is None and tags and not destroying:
                # The volume may have been removed since the first read, and its tag with it.
                await need_item(store, stored, where)
                await _write_tag(table, stored, runtime, policy, where)
            return stored
        if tagged is not None and await _restore_item(store, tagged, runtime, where):
            return tagged


def is_locked(item: Item, now_ms: int) -> bool:
    """Whether the lease of the volume lock is valid."""
    lease = item.get(LOCK_LEASE)
    return isinstance(lease, int) and not expired(lease, now_ms)


async def lock_is_held(store: ItemStore, item: Item, runtime: Runtime) -> bool:
    """As `is_locked`. If the lease ends far later than one that begins now, the clock of its holder
    is ahead, and only a renewal shows that the holder is alive: this waits for one."""
    if not is_locked(item, runtime.now_ms()):
        return False
    if not ends_late(int(item[LOCK_LEASE]), runtime.now_ms(), LOCK_SECONDS):
        return True
    await runtime.sleep(LOCK_SECONDS)
    later = await store.get(RECORD_KEY) or {}
    return any(later.get(name) != item.get(name) for name in (LOCK, LOCK_LEASE))


def locked_message(item: Item, now_ms: int) -> str:
    """The error message for a locked volume."""
    purpose = str(item.get(LOCK_PURPOSE, ""))
    if is_locked(item, now_ms):
        return (
            f"the volume is locked by a {purpose} of another client; "
            "try again after it has finished"
        )
    subject = str(item.get(LOCK_SUBJECT, ""))
    return (
        f"a {purpose} of the volume ({subject}) was interrupted; repeat the {purpose} to finish it"
    )


def require_tag(stored: VolumeRecord, tagged: VolumeRecord | None, where: str) -> None:
    """Raises VolumeMismatchError if record item and table tag disagree."""
    if tagged is not None and tagged != stored:
        wanted = {each.name: getattr(tagged, each.name) for each in fields(tagged) if each.compare}
        raise VolumeMismatchError(
            f"the volume record item and the table tag {TAG} disagree:"
            f" {stored.differences(wanted)}",
            path=where,
        )


async def create_record(
    store: ItemStore,
    table: ItemTable,
    record: VolumeRecord,
    where: str,
    *,
    runtime: Runtime,
    policy: RetryPolicy,
    lock: Mapping[str, Value] | None = None,
) -> None:
    """Write the record of a new volume, item first; `lock`: the fields of a lock that it is created
    with.

    Raises VolumeExistsError if the table has a record by now, ConfigError before anything is
    written if the record does not fit into a tag.
    """
    record.to_tag()
    try:
        await store.write(Put({**record.to_item(runtime.uuid()), **(lock or {})}, ABSENT))
    except ConditionFailedError as error:
        raise VolumeExistsError("the table holds a volume already", path=where) from error
    await _write_tag(table, record, runtime, policy, where)


async def mark_destroying(
    store: ItemStore, record: VolumeRecord, where: str, *, runtime: Runtime
) -> None:
    """Hold the volume as being destroyed, so that no client can open it. Raises VolumeNotFoundError
    if the table has another volume by now, BusyError if another client holds its exclusive lock."""
    item = await store.get(RECORD_KEY) or {}
    seen = {name: item[name] for name in (LOCK, LOCK_LEASE) if name in item}
    if await lock_is_held(store, item, runtime):
        raise BusyError(locked_message(item, runtime.now_ms()), path=where)
    missing = tuple(name for name in (LOCK, LOCK_LEASE) if name not in seen)
    unchanged = Condition(equals={"volume_id": record.volume_id, **seen}, missing=missing)
    change = Update(RECORD_KEY, unchanged, {STATE: DESTROYING, OPERATION: runtime.uuid()})
    try:
        await store.write(change)
    except ConditionFailedError as error:
        raise VolumeNotFoundError("another client removed the volume", path=where) from error


def same_record(item: Item, other: Item) -> bool:
    """Whether nothing but the retention of the trash was changed between two reads of the record
    item."""
    changeable = (RETENTION, OPERATION)
    one, two = (
        {name: value for name, value in each.items() if name not in changeable}
        for each in (item, other)
    )
    return one == two


def need_retention(seconds: object) -> int:
    """The seconds of a retention of the trash. Raises InvalidArgumentError."""
    if type(seconds) is not int or not 0 <= seconds <= _LONGEST_RETENTION:
        raise InvalidArgumentError(
            f"the retention of the trash is 0 to {_LONGEST_RETENTION} seconds, a whole number, "
            f"not {seconds!r}"
        )
    return seconds


async def read_trash_retention(store: ItemStore, record: VolumeRecord, where: str) -> int | None:
    """The present retention of the trash, seconds; None in a layout without a trash. `record` was
    read when the volume was opened. Raises VolumeNotFoundError."""
    if record.trash_retention is None:
        return None
    item = await need_item(store, record, where)
    return VolumeRecord.from_item(item, where).trash_retention


async def change_trash_retention(
    store: ItemStore, record: VolumeRecord, seconds: int, where: str, *, runtime: Runtime
) -> int:
    """Change the retention of the trash; returns the previous one. Of concurrent changes each takes
    effect, one after the other.

    Raises InvalidArgumentError, UnsupportedError (the layout has no trash), BusyError (the volume
    is locked, or the record is changed all the time), VolumeNotFoundError.
    """
    need_retention(seconds)
    if record.trash_retention is None:
        raise UnsupportedError(
            f"the volume has layout {record.layout}, which has no trash: a retention has no effect",
            path=where,
        )
    for _ in range(_ATTEMPTS):
        item = await need_item(store, record, where)
        if LOCK in item:
            raise BusyError(locked_message(item, runtime.now_ms()), path=where)
        before = VolumeRecord.from_item(item, where).trash_retention
        unchanged = Condition(equals={OPERATION: item[OPERATION]}, missing=(STATE, LOCK))
        try:
            await store.write(
                Update(RECORD_KEY, unchanged, {RETENTION: seconds, OPERATION: runtime.uuid()})
            )
        except ConditionFailedError:
            continue
        assert before is not None
        return before
    raise BusyError("gave up: concurrent changes to the volume record", path=where)


async def need_item(store: ItemStore, record: VolumeRecord, where: str) -> Item:
    """The record item of an open volume. Raises VolumeNotFoundError if the volume was destroyed, or
    is being destroyed."""
    item = await store.get(RECORD_KEY)
    if item is None or item.get(STATE) == DESTROYING or item.get("volume_id") != record.volume_id:
        raise VolumeNotFoundError("the volume was removed since it was opened", path=where)
    return item


async def _read_tag(
    table: ItemTable, runtime: Runtime, policy: RetryPolicy
) -> tuple[str | None, bool]:
    """The tag, and whether the table supports tags and allows reading them."""
    try:
        return await retry(lambda: table.read_tag(TAG), policy, runtime), True
    except CredentialsError:
        raise
    except (UnsupportedError, PermissionDeniedError):
        return None, False


async def _restore_item(
    store: ItemStore, record: VolumeRecord, runtime: Runtime, where: str
) -> bool:
    """False when another client was faster."""
    try:
        await store.write(Put(record.to_item(runtime.uuid()), ABSENT))
    except ConditionFailedError:
        return False
    _LOG.warning(
        "the volume record item of %s was missing and has been restored from the table tag", where
    )
    return True


async def write_tag(
    table: ItemTable, record: VolumeRecord, runtime: Runtime, policy: RetryPolicy
) -> None:
    """Tag the table with the record; no effect if the engine has no tags. Raises the service's
    errors."""
    value = record.to_tag()
    try:
        await retry(lambda: table.write_tag(TAG, value), policy, runtime)
    except UnsupportedError:
        _LOG.debug("the engine has no tags")


async def _write_tag(
    table: ItemTable, record: VolumeRecord, runtime: Runtime, policy: RetryPolicy, where: str
) -> None:
    """The volume works without the tag, so a failure is only logged."""
    try:
        await write_tag(table, record, runtime, policy)
    except S3kError as error:
        _LOG.warning("the table of %s could not be tagged: %s", where, error)
