"""docs/requests.md tells exactly what each verb asks of the services."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from s3k_async._core.metering import Part, Requests
from s3k_async._core.runtime import SYSTEM
from s3k_async.bulk.trash import Trash
from s3k_async.client import S3kClient
from s3k_async.config import MemoryBlobs, MemoryTable, VolumeConfig
from s3k_async.model import ChangeResult, LayoutName
from s3k_async.testing import FaultPlan
from s3k_async.volumes import init_volume
from tests.client.request_scenes import SCENES, TRASH_SCENES, Scene
from tests.client.rig import faulty_client
from tests.engines.volumes import fresh_name

PAGE = Path(__file__).resolve().parents[2] / "docs" / "requests.md"
HEAD = "| call | table | data | log | log, afterwards |"
TRASH_HEAD = "| call, layout `tree` | table | data | log | log, afterwards |"

Row = tuple[str, str, str, str]
"""The table, the data, the log before the answer, the log after it."""


def documented(head: str = HEAD) -> dict[str, Row]:
    """The rows of a table of the page, by the name of the call."""
    text = PAGE.read_text(encoding="utf-8")
    rows: dict[str, Row] = {}
    for line in text[text.index(head) :].splitlines()[2:]:
        if not line.startswith("|"):
            break
        name, table, data, log, later = [cell.strip() for cell in line.strip("|").split(" | ")][:5]
        assert name not in rows
        rows[name.strip()] = (table, data, log, later)
    return rows


def cell(requests: Requests, part: Part, *, deferred: bool) -> str:
    """Requests of one part as the page has them: `BatchGetItem, 2 PutItem`, or `-`."""
    numbers = {
        count.operation: count.deferred if deferred else count.requests - count.deferred
        for count in requests.counts
        if count.part == part
    }
    texts = [
        operation if number == 1 else f"{number} {operation}"
        for operation, number in numbers.items()
        if number
    ]
    return ", ".join(texts) or "-"


def row(requests: Requests) -> Row:
    assert cell(requests, "table", deferred=True) == cell(requests, "data", deferred=True) == "-"
    return (
        cell(requests, "table", deferred=False),
        cell(requests, "data", deferred=False),
        cell(requests, "log", deferred=False),
        cell(requests, "log", deferred=True),
    )


async def performed(scene: Scene, layout: LayoutName = "path") -> tuple[Requests, object]:
    """What a scene asks for in a volume of its own, and what its call returns."""
    volume = fresh_name("volume")
    config = VolumeConfig(volume, MemoryTable(volume), MemoryBlobs(volume), layout=layout)
    await init_volume(config, enable=scene.features)
    # What is known for some seconds is known however long the test takes.
    runtime = replace(SYSTEM, monotonic=lambda: 0.0)
    async with faulty_client(FaultPlan(), config, runtime) as before:
        await scene.before(before)
    async with faulty_client(FaultPlan(), config, runtime) as client:
        await scene.warm(client)
        opening = client.requests
        with client.count() as counter:
            result = await scene.call(client)
    assert counter.requests == client.requests - opening
    return counter.requests, result


@pytest.mark.parametrize("name", SCENES)
async def test_a_call_makes_the_requests_that_are_documented(name: str) -> None:
    requests, result = await performed(SCENES[name])
    assert row(requests) == documented()[name]
    assert requests.retries == 0
    if isinstance(result, ChangeResult):
        waited = row(result.requests)
        assert waited == (*row(requests)[:3], "-")


@pytest.mark.parametrize("name", TRASH_SCENES)
async def test_the_trash_makes_the_requests_that_are_documented(name: str) -> None:
    requests, _ = await performed(TRASH_SCENES[name], "tree")
    assert row(requests) == documented(TRASH_HEAD)[name]


def test_every_row_is_a_scene() -> None:
    assert list(documented()) == list(SCENES)
    assert list(documented(TRASH_HEAD)) == list(TRASH_SCENES)


def test_every_verb_of_the_trash_has_a_row() -> None:
    text = " ".join(TRASH_SCENES)
    assert [name for name in dir(Trash) if not name.startswith("_") and name not in text] == []


def test_every_verb_has_a_row() -> None:
    no_verbs = {"close", "open_volume", "closed", "config", "name", "requests", "count", "trash"}
    no_verbs |= {"cache_statistics", "fill_statistics"}
    verbs = {name for name in dir(S3kClient) if not name.startswith("_")} - no_verbs
    assert {name.split()[0].rstrip(",") for name in SCENES} == verbs
