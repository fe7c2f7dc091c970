"""Whether the lifecycle rules were carried out during a run, and each of them once.

The version of a file does not say how often a rule has changed it: if a runner dies between its log
entry and its write, `fsck repair` logs the entry again at a higher version. So the operation log is
counted. The files that no repair has changed need both the count and the version.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import AsyncIterator
from unittest.mock import patch

from s3k_async import S3kClient
from s3k_async.backends.ports.blobs import BlobStore
from s3k_async.backends.ports.pagination import list_all
from s3k_async.backends.retrying.retrying_blobs import RetryingBlobs
from s3k_async.bulk.rule_runner import run_rules
from s3k_async.config import VolumeConfig
from s3k_async.oplog.entries import LogRecord, Operation
from s3k_async.oplog.log_reader import LogReader
from s3k_async.volumes import open_volume
from tests.torture.chaos import DUE, LIFECYCLES, RULED, Chaos
from tests.torture.processes import LATER

__all__ = ["check_rules"]

EXPIRING = ("expire", "ruled")
FIRST_VERSION = 2
"""Of a file that is written: that of its reservation is 1."""


async def check_rules(config: VolumeConfig, chaos: Chaos) -> None:
    """After one more run of the rules, everything that is due has been done, and done once. Time
    has passed for the data store, too."""

    async def later_ms(_: RetryingBlobs) -> int:
        return LATER.now_ms()

    volume = await open_volume(config, runtime=LATER)
    try:
        with patch.object(RetryingBlobs, "now_ms", later_ms):
            ended = await run_rules(volume)
            again = await run_rules(volume)
        assert volume.log_blobs is not None
        logged = [each async for each in _committed(volume.log_blobs)]
        repairs = await _repairs(volume.log_blobs)
    finally:
        await volume.close()
    assert ended.failures == ()
    assert (again.expired, again.read_only, again.failures) == (0, 0, ())
    written = {
        kind: {path for call in chaos.calls if call.kind == kind for path in call.files}
        for kind in LIFECYCLES
    }
    answered = {
        path
        for call in chaos.calls
        if call.kind in LIFECYCLES and call.outcome == "done"
        for path in call.files
    }
    expiring = {path for kind in EXPIRING for path in written[kind]}
    async with S3kClient(config=config) as fs:
        found = {status.path: status for place in (DUE, RULED) async for status in fs.list(place)}
    assert found.keys() >= answered - expiring
    assert found.keys() <= written["keep"] | written["protect"]
    for path, status in found.items():
        assert status.attributes.read_only is (path in written["protect"])
    done = _actions(logged)
    assert not done.keys() & {_name_of(path) for path in written["keep"]}, "nothing was due"
    for path in found.keys() & written["protect"] | answered & expiring:
        _check_once(path, done.get(_name_of(path), {}), repairs)
    for path, status in found.items():
        if not repairs[status.id]:
            assert status.version == FIRST_VERSION + (path in written["protect"]), path


def _name_of(path: str) -> str:
    return path.rpartition("/")[2]


def _check_once(path: str, done: dict[str, str], repairs: Counter[str]) -> None:
    """`done`: operations that a rule or a repair has made, and their objects."""
    allowed = 1 + sum(repairs[object_id] for object_id in set(done.values()))
    assert 1 <= len(done) <= allowed, f"{path}: {done}"


def _actions(logged: list[Operation]) -> dict[str, dict[str, str]]:
    """The operations that removed a file or left it read-only, by its name, which no other file of
    the rules has: their ids, and the ids of the files."""
    found: dict[str, dict[str, str]] = {}
    for operation in logged:
        entry = operation.after or operation.before
        if entry is None or entry.is_dir:
            continue
        is_deletion = operation.kind == "delete" and entry.committed
        if is_deletion or (operation.after is not None and operation.after.read_only):
            found.setdefault(_name_of(entry.path), {})[operation.id] = operation.object_id
    return found


async def _committed(log: BlobStore) -> AsyncIterator[Operation]:
    async for finding in LogReader(log).records():
        assert isinstance(finding, LogRecord)
        if finding.state == "committed":
            yield finding.operation


async def _repairs(log: BlobStore) -> Counter[str]:
    """How often fsck has begun to repair each object, according to its audit trails."""
    found: Counter[str] = Counter()
    async for info in list_all(log, "audit/"):
        for line in (await log.get(info.key)).splitlines():
            record = json.loads(line)
            found[record.get("object_id", "")] += "action" in record
    return found
