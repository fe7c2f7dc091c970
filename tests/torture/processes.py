"""Clients in processes of their own that are killed: `kill -9`, at a random moment."""

from __future__ import annotations

import asyncio
import multiprocessing
import random
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from multiprocessing.process import BaseProcess
from pathlib import Path

from s3k_async import S3kClient
from s3k_async._core.runtime import SYSTEM
from s3k_async.backends.redis import RedisBlobs, RedisTable
from s3k_async.config import AwsConfig, DynamoTable, S3Bucket, Secret, VolumeConfig
from s3k_async.integrity.repair import repair_volume
from s3k_async.oplog.log_reader import LogReader
from s3k_async.volumes import open_volume
from tests.integrity.verifier import Verifier
from tests.torture.ledger import Ledger, Manifest
from tests.torture.load import ROLES, perform

__all__ = ["LATER", "PRELOADED", "Keys", "Killed", "keys_of", "kill_round", "recover", "with_keys"]

PATIENCE = 600.0
"""Seconds after which a process that notes nothing is taken to hang."""
PRELOADED = [
    "pytest",
    "tests.torture.preloaded",
    "tests.torture.processes",
    "s3k_async.backends.dynamodb.dynamodb_wire",
    "s3k_async.backends.local.local_blobs",
    "s3k_async.backends.redis.redis_blobs",
    "s3k_async.backends.redis.redis_items",
    "s3k_async.backends.s3.s3_wire",
    "s3k_async.backends.sqlite.sqlite_items",
    "s3k_async.volumes",
]
"""What a client imports when it opens its volume, and the program that it comes from."""
STEPS = 100_000
"""More than anybody lives to take."""
OUTAGES = 3
"""How often the server fails in a round with outages."""
A_DAY = 86_400_000
LATER = replace(SYSTEM, now_ms=lambda: SYSTEM.now_ms() + A_DAY)
"""Every lease that the dead had is over."""
LEFT = {
    "interrupted_change",
    "log_pending",
    "stale_intent",
    "duplicate_id",
    "reservation_expired",
    "orphan_data",
    "missing_parent",
    "unreachable_entry",
}
"""What the dead may leave for fsck. Without parents, or unreachable in layout `tree`: a file whose
writer died before it looked whether its directory, which somebody moved or removed meanwhile, still
stood; it was never acknowledged."""


@dataclass(frozen=True)
class Killed:
    """What the processes of a round left behind, by role."""

    ledgers: Mapping[str, Ledger]

    @property
    def under_way(self) -> int:
        """How many calls had no answer when their process was killed."""
        return sum(
            operation.outcome == "under way"
            for each in self.ledgers.values()
            for operation in each.operations
        )

    @property
    def answered(self) -> int:
        """How many calls had one."""
        return sum(
            operation.outcome != "under way"
            for each in self.ledgers.values()
            for operation in each.operations
        )


def kill_round(
    config: VolumeConfig,
    place: str,
    seed: str,
    manifests: Path,
    *,
    outage: Callable[[], None] | None = None,
) -> Killed:
    """Let a writer, a renamer and a deleter work on `place`, and kill them one after the other.
    `outage`: kills the server of the volume and starts it again; called a few times before, while
    all of them work.

    They are forked from a server that has imported everything, so that a round is short.
    """
    chance = random.Random(seed)
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(PRELOADED)
    manifests.mkdir()
    children = {}
    for role in ROLES:
        child = context.Process(
            target=_live,
            args=(config, keys_of(config), role, place, f"{seed}-{role}", manifests / role),
            daemon=True,
        )
        child.start()
        children[role] = child
    try:
        _wait_for_work(children, manifests)
        for _ in range(OUTAGES if outage is not None else 0):
            assert outage is not None
            outage()
            _wait_for_work(children, manifests)
        order = sorted(ROLES, key=lambda _: chance.random())
        for role in order:
            time.sleep(chance.uniform(0.0, 0.1))
            assert children[role].is_alive(), f"the {role} ended by itself"
            children[role].kill()
    finally:
        for child in children.values():
            child.kill()
            child.join()
    return Killed({role: Manifest.read(manifests / role) for role in ROLES})


def _wait_for_work(children: Mapping[str, BaseProcess], manifests: Path) -> None:
    """Wait until each process has noted a call and its answer that it had not noted before."""
    before = {role: _notes(manifests / role) for role in ROLES}
    deadline = time.monotonic() + PATIENCE
    while not all(_notes(manifests / role) > before[role] + 2 for role in ROLES):
        for role, child in children.items():
            assert child.is_alive(), f"the {role} ended by itself"
        assert time.monotonic() < deadline, "a process hangs"
        time.sleep(0.01)


def _notes(manifest: Path) -> int:
    return manifest.read_bytes().count(b"\n") if manifest.exists() else 0


Keys = tuple[tuple[str, str], tuple[str, str]]


def keys_of(config: VolumeConfig) -> Keys:
    """The engines' keys, which no configuration takes along."""
    return _revealed(getattr(config.table, "aws", AwsConfig())), _revealed(
        getattr(config.data, "aws", AwsConfig())
    )


def _revealed(aws: AwsConfig) -> tuple[str, str]:
    return aws.access_key_id.reveal(), aws.secret_access_key.reveal()


def with_keys(config: VolumeConfig, keys: Keys) -> VolumeConfig:
    table, data = config.table, config.data
    if isinstance(table, DynamoTable | RedisTable):
        table = replace(table, aws=_unlocked(table.aws, keys[0]))
    if isinstance(data, S3Bucket | RedisBlobs):
        data = replace(data, aws=_unlocked(data.aws, keys[1]))
    return replace(config, table=table, data=data)


def _unlocked(aws: AwsConfig, keys: tuple[str, str]) -> AwsConfig:
    return replace(aws, access_key_id=Secret(keys[0]), secret_access_key=Secret(keys[1]))


def _live(
    config: VolumeConfig, keys: Keys, role: str, place: str, seed: str, manifest: Path
) -> None:
    async def live() -> None:
        async with S3kClient(config=with_keys(config, keys)) as fs:
            await perform(fs, role, place, seed, Manifest(manifest), STEPS)

    asyncio.run(live())


async def recover(config: VolumeConfig) -> None:
    """Repair the volume after all leases have expired: fsck can finish everything that is left."""
    volume = await open_volume(config, runtime=LATER)
    try:
        repaired = await repair_volume(volume, dry_run=False, grace=60.0)
        assert {each.finding.kind for each in repaired.repairs if each.finding.is_problem} <= LEFT
        assert repaired.left.problems == []
        assert volume.log_blobs is not None
        verifier = Verifier(
            volume.store,
            volume.blobs,
            LogReader(volume.log_blobs),
            LATER,
            grace=60.0,
            place=volume.place,
        )
        assert (await verifier.verify(deep=True)).problems == []
    finally:
        await volume.close()
