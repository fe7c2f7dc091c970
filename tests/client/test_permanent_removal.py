"""Permanent removal: the data of a file and of its versions is deleted at once."""

from __future__ import annotations

from dataclasses import replace

import pytest

from s3k_async.backends.ports.pagination import list_all
from s3k_async.errors import (
    BusyError,
    DataMissingError,
    PartialFailureError,
    PathNotFoundError,
    ResponseLostError,
    ServiceError,
)
from s3k_async.model import ChangeResult, LayoutName
from s3k_async.testing import Call, FaultPlan
from s3k_async.volumes import init_volume
from tests.client.rig import faulty_client, memory_config
from tests.client.versioned import Place

pytestmark = pytest.mark.layouts("path", "tree")


async def test_permanently(place: Place) -> None:
    fs = place.fs
    for data in (b"1", b"22"):
        await fs.write("/d/f", data)
        await fs.write("/d/g", data)
    await fs.append("/d/f", b"3")
    await fs.delete("/d/f")
    await fs.write("/d/f", b"4444")
    others = {each.key async for each in list_all(fs._volume().blobs)}
    assert len(others) == 6
    assert await fs.delete("/d/f", permanently=True) == ChangeResult(1, 0, 4)
    assert len(await place.data()) == 2
    assert {data for _, _, data in await place.states("/d/f")} == {False}
    with pytest.raises(DataMissingError):
        await fs.undelete("/d/f")
    assert await place.states("/d/g") == [
        ("current", 2, True),
        ("overwritten", 1, True),
    ]
    await fs.delete("/d/g")
    assert await fs.delete("/d/g", permanently=True) == ChangeResult(1, 0, 3)
    assert await place.data() == set()
    with pytest.raises(PathNotFoundError):
        await fs.delete("/d/g", permanently=True)
    assert await fs.delete("/d/g", permanently=True, missing_ok=True) == ChangeResult()
    await place.check()


async def test_an_empty_file_without_an_object(place: Place) -> None:
    """There is nothing to delete, so no call fails, and the log still describes the file."""
    fs = place.fs
    (await fs.write_many([("/d/empty", b""), ("/d/f", b"1")])).raise_for_failures()
    assert len(await place.data()) == 1
    await fs.delete("/d/empty")
    for _ in range(2):
        assert await fs.delete("/d/empty", permanently=True) == ChangeResult(1, 0, 0)
    with pytest.raises(PathNotFoundError, match="no deleted one has data"):
        await fs.delete("/d/missing", permanently=True)
    await fs.undelete("/d/empty")
    assert await place.contents() == {"/d/empty": b"", "/d/f": b"1"}
    await place.check()


async def test_a_directory_permanently(place: Place) -> None:
    fs = place.fs
    for path in ("/d/e/f", "/d/g", "/kept"):
        await fs.write(path, b"1")
        await fs.write(path, b"22")
    await fs.write("/d/moved", b"here")
    await fs.rename("/d/moved", "/elsewhere")
    await fs.delete("/d/e", recursive=True)
    await fs.write("/d/e/f", b"333")
    done = await fs.delete("/d", recursive=True, permanently=True)
    assert (done.files, done.directories) == (2, 2)
    assert await place.contents() == {"/kept": b"22", "/elsewhere": b"here"}
    assert len(await place.data()) == 3
    with pytest.raises((DataMissingError, PathNotFoundError)):
        await fs.undelete("/d/e/f")
    await place.check()


async def test_permanently_after_the_directory_was_renamed(place: Place) -> None:
    fs = place.fs
    await fs.makedirs("/b/empty")
    for path in ("/a/f", "/a/s/g", "/a/s/h", "/b/empty/i"):
        await fs.write(path, b"secret")
        await fs.delete(path)
    await fs.write("/a/s/kept", b"1")
    await fs.rename("/a", "/new")
    await fs.rename("/b/empty", "/away")
    if fs.config.layout == "path":  # which finds versions by their paths alone
        for path in ("/a/f", "/a/s/g", "/a/s/h", "/b/empty/i"):
            await fs.delete(path, permanently=True)
    else:
        await fs.delete("/new/f", permanently=True)
    with pytest.raises(DataMissingError):
        await fs.undelete("/a/f")
    await fs.delete("/new", recursive=True, permanently=True)
    await fs.delete("/away", recursive=True, permanently=True)
    for path in ("/a/s/g", "/a/s/h", "/b/empty/i"):
        with pytest.raises(DataMissingError):
            await fs.undelete(path)
    assert await place.data() == set()


async def test_an_undecided_deletion_is_not_completed(layout: LayoutName) -> None:
    """Its record could not be committed, so only fsck can tell whether it happened."""
    faults = FaultPlan()
    config = replace(memory_config(), layout=layout)
    await init_volume(config)
    async with faulty_client(faults, config) as fs:
        await fs.write("/f", b"1")
        await fs._volume().log.drained()
        faults.fail_when(
            lambda call: call.method == "put" and call.key.endswith(".committed"),
            ServiceError("no", service_code="X"),
            times=100,
        )
        with pytest.raises(PartialFailureError) as caught:
            await fs.delete("/f", permanently=True)
        (failure,) = caught.value.failures
        assert isinstance(failure[1], BusyError)
        assert len([each async for each in list_all(fs._volume().blobs)]) == 1


async def test_a_file_that_its_writer_creates_again_keeps_its_data(layout: LayoutName) -> None:
    """The answer to its creation was lost, and it is removed before the request is repeated."""
    faults, sent = FaultPlan(), list[Call]()
    config = replace(memory_config(), layout=layout)
    await init_volume(config)
    async with faulty_client(FaultPlan(), config) as other, faulty_client(faults, config) as fs:
        await other.makedirs("/d")

        async def gate(call: Call) -> None:
            if (call.store, call.method) != ("items", "write"):
                return
            sent.append(call)
            if len(sent) == 2:
                with pytest.raises(PartialFailureError) as caught:
                    await other.delete("/d/f", permanently=True)
                ((path, reason),) = caught.value.failures
                assert (path, type(reason)) == ("/d/f", BusyError)
                assert not await other.exists("/d/f")

        faults.gate = gate
        faults.fail_when(lambda call: call in sent, ResponseLostError("lost"), when="after")
        await fs.write("/d/f", b"1")
        assert len(sent) == 2
        assert await other.read("/d/f") == b"1"
        await fs._volume().log.drained()
        await other.delete("/d/f", permanently=True)
        assert [each async for each in list_all(fs._volume().blobs)] == []
