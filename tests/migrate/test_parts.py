"""Dumps that are a directory of parts."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from s3k_async import S3kClient
from s3k_async.config import VolumeConfig
from s3k_async.errors import CorruptDataError, InvalidArgumentError, VolumeNotFoundError
from s3k_async.migrate import LoadResult, dump_volume, load_volume
from s3k_async.migrate.dump import dump_top
from s3k_async.migrate.dump_parts import (
    MANIFEST,
    Manifest,
    PartWriter,
    make_room,
    part_chunks,
    read_manifest,
    sweep_parts,
    write_manifest,
)
from s3k_async.migrate.dump_reader import open_dump
from s3k_async.model import Entry
from s3k_async.table.codec import in_columns
from tests.migrate.rig import FILES, HURRIED, config, entries, keys, made, opened

pytestmark = pytest.mark.layouts("path", "tree")


async def dump(settings: VolumeConfig, target: str) -> Manifest:
    """The whole volume in parts: a writer for the directories of each depth, and two for files."""
    make_room(target)
    found = sorted((await entries(settings)).values(), key=lambda entry: entry.path)
    async with opened(settings) as volume:
        _, header = await dump_top(volume, "/", include_uncommitted=False)
        writers: dict[tuple[bool, int], PartWriter] = {}
        for number, entry in enumerate(found):
            depth = entry.path.count("/") if entry.is_dir else number % 2
            kind = entry.is_dir, depth
            if kind not in writers:
                name = f"{number:06d}-{depth}"
                writers[kind] = PartWriter(
                    target, header, name, "directories" if entry.is_dir else "files", depth
                )
            writers[kind].write(in_columns([entry], volume.store.keys))
    # The tasks end in any order.
    manifest = Manifest.of(
        header, [part for writer in reversed(writers.values()) for part in writer.finish()]
    )
    write_manifest(target, manifest)
    return manifest


async def load(source: str, settings: VolumeConfig, **options: Any) -> LoadResult:
    return await load_volume(source, settings, runtime=HURRIED, **options)


def read(source: str) -> list[Entry]:
    return [entry for chunk in open_dump(source).chunks() for entry in chunk]


def bytes_of(*path: str) -> bytes:
    return Path(*path).read_bytes()


def put(data: bytes, *path: str) -> None:
    Path(*path).write_bytes(data)


@pytest.fixture
def target(tmp_path: Path) -> str:
    return str(tmp_path / "dump")


async def test_a_dump_in_parts_holds_what_a_dump_in_a_file_holds(
    target: str, monkeypatch: Any
) -> None:
    monkeypatch.setattr("s3k_async.migrate.dump_parts.PART_ENTRIES", 3)
    source = await made(config(4))
    manifest = await dump(source, target)
    assert max(part.entries for part in manifest.parts) == 3
    async with opened(source) as volume:
        await dump_volume(volume, f"{target}.parquet", form="parquet")
    found = read(target)
    assert sorted(found, key=lambda entry: entry.path) == sorted(
        read(f"{target}.parquet"), key=lambda entry: entry.path
    )
    assert [entry.is_dir for entry in found] == sorted(
        (entry.is_dir for entry in found), reverse=True
    )
    for place, entry in enumerate(found):
        parent = os.path.dirname(entry.path)
        assert parent == "/" or parent in {before.path for before in found[:place]}
    one, other = open_dump(target), open_dump(f"{target}.parquet")
    assert one.verify() == other.verify() == manifest.end
    assert replace(one.header, time_ms=0) == replace(other.header, time_ms=0)
    assert one.digest() != other.digest()


async def test_a_volume_is_loaded_from_parts(target: str) -> None:
    source, other = await made(config(4)), config(7)
    await dump(source, target)
    async with opened(source) as volume:
        done = await load(target, other, bytes_from=volume)
    wanted, found = await entries(source), await entries(other)
    assert {path: (entry.id, entry.version, entry.mtime_ms) for path, entry in found.items()} == {
        path: (entry.id, entry.version, entry.mtime_ms) for path, entry in wanted.items()
    }
    assert (done.entries, done.made) == (len(wanted), 0)
    await keys(other)
    async with S3kClient(config=other) as fs:
        assert await fs.read("/a/deep/er/3") == FILES["/a/deep/er/3"]


async def test_a_part_is_read_by_itself(target: str) -> None:
    manifest = await dump(await made(config()), target)
    found = [
        entry
        for part in read_manifest(target).parts
        for chunk in part_chunks(target, manifest.header, part)
        for entry in chunk
    ]
    assert found == read(target)


async def test_what_is_no_whole_dump_is_refused(target: str, tmp_path: Path) -> None:
    """Without its manifest, cut or changed anywhere, with a part that is missing, or another
    dump's."""
    source, other = await made(config()), config()
    manifest = await dump(source, target)
    bad = str(tmp_path / "bad")

    def changed(name: str, data: bytes | None) -> None:
        shutil.rmtree(bad, ignore_errors=True)
        shutil.copytree(target, bad)
        os.unlink(os.path.join(bad, name))
        if data is not None:
            put(data, bad, name)

    async def refused(reason: str = "cut|another|damaged|JSON") -> None:
        with pytest.raises(CorruptDataError, match=reason) as caught:
            await load(bad, other)
        assert str(caught.value.path).startswith(bad)

    changed(MANIFEST, None)
    await refused("interrupted")
    for name in (MANIFEST, *(part.name for part in manifest.parts)):
        whole = bytes_of(target, name)
        for place in {0, 1, len(whole) // 2, len(whole) - 1}:
            changed(name, whole[:place])
            await refused()
            changed(name, whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
            await refused()
        changed(name, whole + b"more\n")
        await refused()
    for part in manifest.parts:
        changed(part.name, None)
        await refused("missing")
    shutil.rmtree(bad)
    await dump(await made(config()), bad)
    for part in read_manifest(bad).parts:
        shutil.copy(os.path.join(bad, part.name), os.path.join(target, part.name))
    bad = target
    await refused("is another")
    with pytest.raises(VolumeNotFoundError):
        await entries(other)


async def test_names_of_a_manifest_lead_nowhere_else(target: str) -> None:
    await dump(await made(config()), target)
    lines = [json.loads(line) for line in bytes_of(target, MANIFEST).splitlines()]
    lines[1]["name"] = f"../{lines[1]['name']}"
    body = b"".join(json.dumps(line).encode() + b"\n" for line in lines[:-1])
    lines[-1]["sha256"] = hashlib.sha256(body).hexdigest()
    put(body + json.dumps(lines[-1]).encode() + b"\n", target, MANIFEST)
    with pytest.raises(CorruptDataError, match="damaged"):
        open_dump(target)


async def test_room_is_made_only_of_what_a_dump_has_left(target: str) -> None:
    manifest = await dump(await made(config()), target)
    with pytest.raises(InvalidArgumentError, match="already"):
        make_room(target)
    os.unlink(os.path.join(target, MANIFEST))
    strange = "part-0000.parquet"
    put(b"somebody's", target, strange)
    with pytest.raises(InvalidArgumentError, match=r"part-0000.parquet"):
        make_room(target)
    assert set(os.listdir(target)) == {strange, *(part.name for part in manifest.parts)}
    sweep_parts(target, keep=manifest.parts[:1])
    assert set(os.listdir(target)) == {strange, manifest.parts[0].name}
    os.unlink(os.path.join(target, strange))
    make_room(target)
    assert os.listdir(target) == []
    put(b"", target, strange)
    with pytest.raises(InvalidArgumentError, match="needs a directory"):
        make_room(os.path.join(target, strange))


async def test_a_manifest_is_of_parts_that_are_there(target: str) -> None:
    """A directory of the same name on each machine is not one that they share."""
    manifest = await dump(await made(config()), target)
    os.unlink(os.path.join(target, MANIFEST))
    os.unlink(os.path.join(target, manifest.parts[-1].name))
    with pytest.raises(InvalidArgumentError, match="share"):
        write_manifest(target, manifest)
    assert MANIFEST not in os.listdir(target)


async def test_a_writer_that_fails_leaves_nothing(target: str, monkeypatch: Any) -> None:
    monkeypatch.setattr("s3k_async.migrate.dump_parts.PART_ENTRIES", 1)
    make_room(target)
    async with opened(await made(config())) as volume:
        top, header = await dump_top(volume, "/a", include_uncommitted=False)
        page = in_columns([top], volume.store.keys)
        writer = PartWriter(target, header, "one", "directories")
        writer.write(page)
        monkeypatch.undo()
        writer.write(page)
    assert len(os.listdir(target)) == 2
    writer.drop()
    assert os.listdir(target) == []
