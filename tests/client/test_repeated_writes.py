"""Creations that are sent again after their answer was lost, and what others did in between."""

from __future__ import annotations

import pytest

from s3k_async.errors import OutcomeUnknownError, PathExistsError, ResponseLostError
from s3k_async.testing import Call, FaultPlan
from s3k_async.volumes import init_volume
from tests.client.rig import faulty_client, memory_config

WRITE = ("items", "write")


async def outcome_of_write(*, lost: bool, taken: bool) -> tuple[object, bytes | None]:
    """The outcome of an exclusive write, and what is at its path afterwards. While it is sent, the
    directory is removed as empty and created again, with another file at the path if `taken`.
    `lost`: the write was made, and its answer lost; others read and removed the file."""
    config = memory_config(layout="tree")
    await init_volume(config)
    faults = FaultPlan()
    seen: list[bytes] = []
    sent: list[Call] = []
    async with (
        faulty_client(faults, config) as fs,
        faulty_client(FaultPlan(), config) as other,
    ):
        await other.makedirs("/d")
        await fs.stat("/d")

        async def gate(call: Call) -> None:
            if (call.store, call.method) != WRITE:
                return
            sent.append(call)
            if len(sent) == (2 if lost else 1):
                if lost:
                    seen.append(await other.read("/d/f"))
                    await other.delete("/d/f")
                await other.delete("/d")
                await other.makedirs("/d")
                if taken:
                    await other.write("/d/f", b"other")

        faults.gate = gate
        if lost:
            faults.fail_when(
                lambda call: (call.store, call.method) == WRITE,
                ResponseLostError("lost"),
                when="after",
                times=1,
            )
        outcome: object = None
        try:
            await fs.write("/d/f", b"new", overwrite=False)
        except (OutcomeUnknownError, PathExistsError) as error:
            outcome = type(error)
        assert seen == ([b"new"] if lost else [])
        return outcome, await other.read("/d/f")


@pytest.mark.parametrize(
    ("lost", "taken", "outcome", "content"),
    [
        (False, True, PathExistsError, b"other"),
        (True, True, OutcomeUnknownError, b"other"),
        (False, False, None, b"new"),
        (True, False, None, b"new"),
    ],
)
async def test_a_file_that_was_seen_is_not_reported_as_refused(
    lost: bool, taken: bool, outcome: object, content: bytes
) -> None:
    assert await outcome_of_write(lost=lost, taken=taken) == (outcome, content)
