"""Lists of paths and of pairs: forms, what is refused, and that nothing is held."""

from __future__ import annotations

import io
import json
import os
import sys
import threading
import tracemalloc
from pathlib import Path

import pytest

from s3k_async.cli import path_lists
from s3k_async.cli.path_lists import open_list
from s3k_async.errors import InvalidArgumentError, PathNotFoundError

Records = list[tuple[str, ...]]


async def read(file: str, fields: int, *, null: bool = False, literal: bool = False) -> Records:
    assert fields in {1, 2}
    async with open_list(file, 1 if fields == 1 else 2, null=null, literal=literal) as records:
        found = [record async for chunk in records.chunks() for record in chunk]
        assert records.count == len(found)
        assert (records.volume is None) == (not found)
        return found


def write(listed: Path, data: bytes) -> None:
    listed.write_bytes(data)


@pytest.fixture
def listed(tmp_path: Path) -> Path:
    return tmp_path / "list"


@pytest.mark.parametrize(
    ("data", "null", "wanted"),
    [
        (b"", False, []),
        (b"/a\n/b c\n", False, [("/a",), ("/b c",)]),
        (b"/a\n//b/../c/", False, [("/a",), ("/c",)]),
        ("/é\t\r\n:/a:/b\n".encode(), False, [("/é\t\r",), ("/a:/b",)]),
        (b'"/a"\n{"path": "/b\\n", "size": 3}\n"/\\u00e9"', False, [("/a",), ("/b\n",), ("/é",)]),
        (b"/a\0/b\n\0", True, [("/a",), ("/b\n",)]),
        (b'/"a\0/{b', True, [('/"a',), ("/{b",)]),
    ],
)
async def test_paths(listed: Path, data: bytes, null: bool, wanted: Records) -> None:
    write(listed, data)
    assert await read(str(listed), 1, null=null) == wanted


@pytest.mark.parametrize(
    ("data", "null", "wanted"),
    [
        (b"/a\t/b\n/c d\t/e", False, [("/a", "/b"), ("/c d", "/e")]),
        (
            b'["/a", "/b\\t"]\n{"target": "/d", "source": "/c"}\n',
            False,
            [("/a", "/b\t"), ("/c", "/d")],
        ),
        (b"/a\0/b\0/c\t\0/d\n\0", True, [("/a", "/b"), ("/c\t", "/d\n")]),
    ],
)
async def test_pairs(listed: Path, data: bytes, null: bool, wanted: Records) -> None:
    write(listed, data)
    assert await read(str(listed), 2, null=null) == wanted


@pytest.mark.parametrize(
    ("fields", "data", "literal", "wanted"),
    [
        (1, b'{"path": "/a:/b"}\n', False, [("/a:/b",)]),
        (1, b'{"path": ":/a:/b"}\n {"path": "/c:/"}\n', False, [("/a:/b",), ("/c:",)]),
        (2, b'{"source": "/a:/b", "target": "/c:/d"}\n', False, [("/a:/b", "/c:/d")]),
        (1, b"/a:/b\n:/c:/d\n", True, [("/a:/b",), ("/c:/d",)]),
        (2, b'["/a:/b", ":/c:/d"]\n', True, [("/a:/b", "/c:/d")]),
        (1, b"/a:/b\n/a:/c\n", False, [("/b",), ("/c",)]),
        (1, b"s3k://v/b\n", True, [("/b",)]),
        (1, b'{"path": "s3k://v/b"}\n', False, [("/b",)]),
    ],
)
async def test_paths_that_look_like_addresses(
    listed: Path, fields: int, data: bytes, literal: bool, wanted: Records
) -> None:
    write(listed, data)
    assert await read(str(listed), fields, literal=literal) == wanted


@pytest.mark.parametrize(
    ("fields", "data", "null", "place"),
    [
        (1, b"/a\n\n/b\n", False, "line 2"),
        (1, b"/a\n/b\n\n", False, "line 3"),
        (1, b"/a\nb\n", False, "line 2"),
        (1, b"# /a\n", False, "line 1"),
        (1, b"/a\n/\xff\n", False, "line 2"),
        (1, b"/a/../..\n", False, "line 1"),
        (1, b'"/a"\n/b\n', False, "line 2"),
        (1, b'"/a"\n7\n', False, "line 2"),
        (1, b'{"path": null}\n', False, "line 1"),
        (1, b'{"name": "/a"}\n', False, "line 1"),
        (1, b'"/\\ud800"\n', False, "line 1"),
        (1, b'"/a"\n["/b"]\n', False, "line 2"),
        (1, b"/a\0\0/b\0", True, "record 2"),
        (1, b"/a\ns3k://other/b\n", False, "line 2"),
        (1, b"/" + b"n" * 1025 + b"\n", False, "line 1"),
        (2, b"/a\t/b\n/c\n", False, "line 2"),
        (2, b"/a\t/b\t/c\n", False, "line 1"),
        (2, b"/a /b\n", False, "line 1"),
        (2, b"/a\t\n", False, "line 1"),
        (2, b"/a\t/b/\n", False, "line 1"),
        (2, b"/a\ts3k://other/b\n", False, "line 1"),
        (2, b'["/a"]\n', False, "line 1"),
        (2, b"[" * 60_000 + b"\n", False, "line 1"),
        (2, b'["/a", "/b", "/c"]\n', False, "line 1"),
        (2, b'["/a", 3]\n', False, "line 1"),
        (2, b'{"source": "/a"}\n', False, "line 1"),
        (2, b'"/a"\n', False, "line 1"),
        (2, b"/a\0/b\0/c\0", True, "record 2"),
    ],
)
async def test_what_is_wrong_is_named(
    listed: Path, fields: int, data: bytes, null: bool, place: str
) -> None:
    write(listed, data)
    with pytest.raises(InvalidArgumentError, match=rf"{place}: ") as caught:
        await read(str(listed), fields, null=null)
    assert caught.value.path == str(listed)


async def test_no_such_list(tmp_path: Path) -> None:
    with pytest.raises(PathNotFoundError, match="none"):
        await read(str(tmp_path / "none"), 1)
    with pytest.raises(InvalidArgumentError, match="directory"):
        await read(str(tmp_path), 1)


async def test_a_line_without_an_end(listed: Path) -> None:
    write(listed, b"/" + b"x" * 3_000_000)
    with pytest.raises(InvalidArgumentError, match="more than"):
        await read(str(listed), 1)


async def test_standard_input_is_read_twice_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"/a\n/b\n")))
    assert await read("-", 1) == [("/a",), ("/b",)]


@pytest.mark.parametrize("gone", [True, False], ids=["its writer is gone", "its writer is there"])
async def test_a_pipe_is_read_twice_all_the_same(tmp_path: Path, gone: bool) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    keeping = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    writing = os.open(pipe, os.O_WRONLY)
    os.write(writing, b"/a\t/b\n" * 100)
    if gone:
        os.close(writing)
    else:

        def go_on() -> None:
            os.write(writing, b"/c\t/d\n")
            os.close(writing)

        threading.Timer(0.05, go_on).start()
    try:
        assert await read(str(pipe), 2) == [("/a", "/b")] * 100 + [("/c", "/d")] * (not gone)
    finally:
        os.close(keeping)


async def test_chunks(listed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(path_lists, "CHUNK", 3)
    write(listed, b"".join(b"/%d\n" % number for number in range(7)))
    async with open_list(str(listed), 1, null=False) as records:
        assert [len(chunk) async for chunk in records.chunks()] == [3, 3, 1]


async def test_a_long_list_does_not_pile_up_in_memory(
    listed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(path_lists, "CHUNK", 100)
    monkeypatch.setattr(path_lists, "_READ", 10_000)

    async def peak(count: int) -> int:
        write(
            listed,
            "".join(
                json.dumps([f"/from/{number}", f"/to/{number}"]) + "\n" for number in range(count)
            ).encode(),
        )
        tracemalloc.start()
        try:
            async with open_list(str(listed), 2, null=False) as records:
                assert sum([len(chunk) async for chunk in records.chunks()]) == count
            return tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()

    few, many = await peak(500), await peak(4000)
    assert many < few * 1.5
