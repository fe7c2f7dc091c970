"""The rows of layouts: the work that is timed, and the page that is written."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from benchmarks.contenders.layouts import DATA, Chain, Deletion, Swing
from benchmarks.contenders.ours import Ours, client, fill
from benchmarks.goals import layout_verdicts
from benchmarks.layout_report import write_layouts
from benchmarks.measuring import Result
from s3k_async import S3kClient
from s3k_async.config import MemoryBlobs, MemoryTable, VolumeConfig
from s3k_async.errors import PathNotFoundError
from s3k_async.integrity.repair import verify_volume
from s3k_async.model import LayoutName
from tests.engines.volumes import fresh_name

PAGE = Path(__file__).parents[2] / "docs/layouts.md"
FILES = 12


@pytest.fixture(params=["path", "tree"])
async def fs(request: pytest.FixtureRequest) -> AsyncIterator[S3kClient]:
    """A client of a volume in memory, of each layout."""
    layout: LayoutName = request.param
    name = fresh_name("layouts")
    config = VolumeConfig(name, MemoryTable(name), MemoryBlobs(name), layout=layout)
    async with AsyncExitStack() as stack:
        yield await stack.enter_async_context(client(config))


async def test_a_filled_directory_has_its_files_and_no_defects(fs: S3kClient) -> None:
    await fill(fs, "/a/b", FILES)
    assert await Ours(fs).list("/a/b") == FILES
    assert (await fs.stat("/a/b/part-00000011")).size > 0
    report = await verify_volume(fs._volume(), grace=0.0)
    kinds = {each.kind for each in report.findings}
    assert kinds == {"data_missing", "log_missing"}  # filled past both


async def test_a_directory_swings_between_two_paths(fs: S3kClient) -> None:
    swing = Swing(fs.rename, "/a")
    await fill(fs, swing.here, FILES)
    seen = []
    for _ in range(3):
        await swing()
        seen.append((swing.here, await Ours(fs).list(swing.here)))
    assert seen == [("/a/there", FILES), ("/a/here", FILES), ("/a/there", FILES)]


@pytest.mark.parametrize("wait", [False, True])
async def test_a_deleted_directory_is_there_again_for_the_next_repetition(
    fs: S3kClient, wait: bool
) -> None:
    deletion = Deletion(fs, "/a/b", FILES, wait=wait)
    for _ in range(3):
        await deletion.ready()
        assert await Ours(fs).list("/a/b") == FILES
        await deletion()
        with pytest.raises(PathNotFoundError):
            await fs.stat("/a/b")


@pytest.mark.parametrize("in_flight", [1, 4])
async def test_a_chain_does_its_work_for_each_file(fs: S3kClient, in_flight: int) -> None:
    chain = Chain(fs, 3, "/top")
    await chain.put(FILES)
    assert chain.path.count("/") == 3
    assert await chain.stat(FILES, in_flight) == FILES * len(DATA)
    assert await chain.read(FILES, in_flight) == FILES * len(DATA)
    await chain.create(FILES, in_flight)
    await chain.write_many(FILES)
    assert await Ours(fs).list(chain.path) == 3 * FILES


def result(row: str, case: str, contender: str, seconds: list[float], **facts: int) -> Result:
    return Result(
        f"layout {row}", case, contender, 1, "files", seconds, seconds, "path", facts=facts
    )


RESULTS = [
    result("rename", "1 file, memory", "path", [0.02, 0.04], files=1, table=47, log=4),
    result("rename", "1 file, memory", "tree", [0.001, 0.001], files=1, table=3, log=2),
    result("rename", "10 files, embedded", "path", [0.1, 0.2], files=10, table=50, log=4),
    result("rename", "10 files, embedded", "tree", [0.03, 0.01], files=10, table=4, log=2),
    result("stat, cold", "depth 6, 1 in flight, embedded", "path", [1.0, 1.0], table=1),
    result("stat, cold", "depth 6, 1 in flight, embedded", "tree", [3.0, 1.5], table=7),
]


def test_the_goals_are_decided_by_the_worst_size_and_place() -> None:
    lines = {line.work: (line.measured, line.met) for line in layout_verdicts(RESULTS)}
    assert lines["rename of a directory of 1 to 10 files: table requests"] == ("3 to 4", False)
    assert lines["rename of a directory of 1 to 10 files, on local engines: ms"] == ("20", True)
    assert lines["stat, cold, depth 6: table requests"] == ("7", False)
    assert lines["stat, warm, depth 6: table requests"] == ("not measured", None)


def test_the_page_gets_every_section(tmp_path: Path) -> None:
    page = tmp_path / "layouts.md"
    page.write_text(PAGE.read_text(encoding="utf-8"), encoding="utf-8")
    for _ in range(2):
        write_layouts(page, RESULTS, {"python": "3.11"}, "the command", [tmp_path / "plot.svg"])
    text = page.read_text(encoding="utf-8")
    assert "![plot](plot.svg)" in text
    assert (
        "| 10 | embedded | 150 ms (100 to 200) | 20 ms (10.0 to 30) |  |  | 11.7× (3.3 to 20) |"
        in text
    )
    assert (
        text.count("| stat, cold | depth 6, 1 in flight, embedded | 2.2× (1.50 to 3.0) | 2 of 2")
        == 1
    )
    assert "| rename |" not in text.partition("begin: slower")[2]
