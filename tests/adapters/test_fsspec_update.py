"""fsspec's mode `r+b`: files that are read and changed in place."""

from __future__ import annotations

import asyncio
import gc
import io
import random
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from fsspec.core import OpenFile

from s3k_async.adapters import fsspec_update
from s3k_async.adapters.fsspec import S3kFileSystem
from s3k_async.errors import (
    ConflictError,
    InvalidArgumentError,
    IsDirectoryError,
    PathNotFoundError,
    StreamClosedError,
    UnsupportedError,
)
from s3k_async.volumes import init_volume
from tests.client.rig import memory_config


@pytest.fixture
def fs() -> Iterator[S3kFileSystem]:
    config = memory_config()
    asyncio.run(init_volume(config))
    fs = S3kFileSystem(config=config)
    yield fs
    fs.close_session()


def test_what_is_written_is_seen_here_at_once_and_elsewhere_after_a_flush(
    fs: S3kFileSystem,
) -> None:
    fs.pipe("/f", b"0123456789")
    with fs.open("/f", "r+b") as file:
        assert file.read(2) == b"01"
        assert file.write(b"ab") == 2
        assert file.tell() == 4
        file.seek(-1, io.SEEK_END)
        file.write(b"xyz")
        file.seek(0)
        assert file.read() == b"01ab45678xyz"
        assert file.size == 12
        assert fs.cat("/f") == b"0123456789"
        file.flush()
        assert fs.cat("/f") == b"01ab45678xyz"
        assert fs.info("/f")["size"] == 12
        file.seek(20)
        assert file.read() == b""
        file.write(b"!")
    assert fs.cat("/f") == b"01ab45678xyz" + bytes(8) + b"!"
    assert fs.info("/f")["size"] == 21


def test_random_changes_equal_those_of_a_local_file(
    fs: S3kFileSystem, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fsspec_update, "HELD_BYTES", 2000)
    draw = random.Random(3)
    (tmp_path / "f").write_bytes(b"start" * 50)
    fs.pipe("/f", b"start" * 50)
    with fs.open("/f", "r+b") as ours, open(tmp_path / "f", "r+b") as local:
        for number in range(600):
            kind, place = draw.random(), draw.randrange(600)
            if kind < 0.6:
                data = draw.randbytes(draw.choice((1, 5, 80)))
                for file in (ours, local):
                    file.seek(place)
                    file.write(data)
            elif kind < 0.9:
                size = draw.randrange(100)
                for file in (ours, local):
                    file.seek(place)
                assert ours.read(size) == local.read(size), number
                assert ours.tell() == local.tell()
            elif kind < 0.95:
                for file in (ours, local):
                    file.truncate(place)
            else:
                for file in (ours, local):
                    file.flush()
                assert fs.cat("/f") == (tmp_path / "f").read_bytes(), number
    assert fs.cat("/f") == (tmp_path / "f").read_bytes()


def test_scattered_bytes_are_applied_before_there_are_too_many(
    fs: S3kFileSystem, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One byte in each sector: 32 MiB of them would take gigabytes of memory."""
    monkeypatch.setattr(fsspec_update, "HELD_RANGES", 10)
    fs.pipe("/f", bytes(100))
    with fs.open("/f", "r+b") as file:
        for number in range(9):
            file.seek(2 * number)
            file.write(b"x")
        assert fs.cat("/f") == bytes(100)
        file.seek(18)
        file.write(b"x")
        assert fs.cat("/f") == b"x\0" * 10 + bytes(80)


def test_text_is_changed_in_place(fs: S3kFileSystem) -> None:
    fs.pipe("/f", b"one\ntwo\n")
    with fs.open("/f", "r+") as file:
        assert file.readline() == "one\n"
        file.seek(0)
        file.write("ONE")
    assert fs.cat("/f") == b"ONE\ntwo\n"


def test_what_an_exception_or_a_finaliser_ends_is_not_applied(fs: S3kFileSystem) -> None:
    fs.pipe("/f", b"old")
    with suppress(ZeroDivisionError), fs.open("/f", "r+b") as file:
        file.write(b"new")
        raise ZeroDivisionError
    with pytest.warns(ResourceWarning, match="/f"):
        forget(fs)
    file = fs.open("/f", "r+b")
    file.write(b"new")
    file.discard()
    assert fs.cat("/f") == b"old"
    for call in (file.read, file.tell, file.flush, lambda: file.write(b"x")):
        with pytest.raises(StreamClosedError):
            call()
    file.close()


def forget(fs: S3kFileSystem) -> None:
    file = fs.open("/f", "r+b")
    file.write(b"new")
    del file
    gc.collect()


def test_changes_of_others_are_kept(fs: S3kFileSystem) -> None:
    fs.pipe("/f", b"0123456789")
    with fs.open("/f", "r+b") as one, fs.open("/f", "r+b") as other:
        one.write(b"a")
        other.seek(9)
        other.write(b"z!")
    assert fs.cat("/f") == b"a12345678z!"


def test_a_file_that_was_removed_or_replaced_is_not_changed(fs: S3kFileSystem) -> None:
    fs.pipe("/f", b"old")
    file = fs.open("/f", "r+b")
    file.write(b"new")
    fs.pipe("/g", b"another")
    fs.mv("/f", "/h")
    with pytest.raises(ConflictError):
        file.flush()
    fs.mv("/g", "/f")
    with pytest.raises(ConflictError):
        file.close()
    assert file.closed
    assert fs.cat("/f") == b"another"
    assert fs.cat("/h") == b"old"


def test_what_cannot_be_changed_is_refused(fs: S3kFileSystem) -> None:
    fs.makedirs("/d")
    fs.pipe("/f", b"f")
    with pytest.raises(PathNotFoundError):
        fs.open("/missing", "r+b")
    with pytest.raises(IsDirectoryError):
        fs.open("/d", "r+b")
    with fs.open("/f", "r+b") as file:
        with pytest.raises(InvalidArgumentError):
            file.seek(-1)
        with pytest.raises(InvalidArgumentError):
            file.seek(0, 3)
        with pytest.raises(InvalidArgumentError):
            file.truncate(-1)
        with pytest.raises(TypeError):
            file.write("text")
    with fs.transaction, pytest.raises(UnsupportedError):
        fs.open("/f", "r+b")
    assert fs.cat("/f") == b"f"


@pytest.mark.parametrize("wrapper", ["text", "buffer", "open file", "finally"])
def test_what_a_wrapper_flushes_after_an_exception_is_not_applied(
    fs: S3kFileSystem, wrapper: str, caplog: pytest.LogCaptureFixture
) -> None:
    fs.pipe("/f", b"0123456789")

    def fail() -> None:
        if wrapper == "text":
            with fs.open("/f", "r+") as text:
                text.write("never")
                raise ZeroDivisionError
        if wrapper == "buffer":
            with io.BufferedRandom(fs.open("/f", "r+b")) as buffer:
                buffer.write(b"never")
                raise ZeroDivisionError
        if wrapper == "open file":
            with OpenFile(fs, "/f", "r+b") as file:
                file.write(b"never")
                raise ZeroDivisionError
        file = fs.open("/f", "r+b")
        try:
            file.write(b"never")
            raise ZeroDivisionError
        finally:
            file.close()

    with pytest.raises(ZeroDivisionError):
        fail()
    assert fs.cat("/f") == b"0123456789"
    assert "an exception closes it" in caplog.text


@pytest.mark.parametrize("wrapper", ["text", "buffer"])
def test_what_a_forgotten_wrapper_flushes_is_not_applied(fs: S3kFileSystem, wrapper: str) -> None:
    fs.pipe("/f", b"0123456789")

    def forget() -> None:
        if wrapper == "text":
            fs.open("/f", "r+").write("never")
        else:
            io.BufferedRandom(fs.open("/f", "r+b")).write(b"never")
        gc.collect()

    with pytest.warns(ResourceWarning, match="not closed: /f"):
        forget()
    assert fs.cat("/f") == b"0123456789"
