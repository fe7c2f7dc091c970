"""Each call of a verb is observed once, with its outcome and its requests."""

from __future__ import annotations

import asyncio
import gc
import logging
from collections.abc import Callable
from typing import Any, Literal

import pytest

from s3k_async._core.observation import VerbCall
from s3k_async._sync.sync_client import S3kSyncClient
from s3k_async.adapters.fsspec import S3kFileSystem
from s3k_async.adapters.prometheus import PrometheusMetrics
from s3k_async.backends.ports.items import Condition, Delete, Update
from s3k_async.client import S3kClient, volume_of
from s3k_async.errors import ClosedClientError, CrossVolumeError, PathNotFoundError, ServiceError
from s3k_async.integrity.repair import repair_volume, verify_volume
from s3k_async.objects import ObjectStore
from s3k_async.table.codec import NEXT
from s3k_async.testing import Call, FaultPlan
from s3k_async.txn.write_intent import REMOVED, WriteIntent
from s3k_async.volumes import init_volume
from tests.client.request_scenes import SCENES, TRASH_SCENES, Scene
from tests.client.rig import faulty_client, memory_config
from tests.namespace.dying import rename_and_die
from tests.observation.recorder import Recorder, observed_client

SEVERAL: dict[str, set[str]] = {
    "open": {"open", "file.read", "file.write", "file.commit"},
    "stage": {"stage", "file.write", "file.commit"},
    "discard_staged": {"stage", "file.write", "file.commit", "discard_staged"},
    "transaction": {
        "transaction.write",
        "transaction.rename",
        "transaction.delete",
        "transaction.commit",
    },
}
"""What a scene consists of that is more than one call of its verb."""


def first_scenes() -> dict[str, Scene]:
    """One scene of each verb of the client."""
    found: dict[str, Scene] = {}
    for name, scene in SCENES.items():
        found.setdefault(name.split()[0].rstrip(","), scene)
    return found


VERBS = first_scenes()


async def observed(scene: Scene, layout: Any = "path") -> Recorder:
    """What is observed of the call of a scene. Its requests are those that are counted."""
    config = memory_config(layout=layout)
    await init_volume(config, enable=scene.features)
    async with faulty_client(FaultPlan(), config) as before:
        await scene.before(before)
    recorder = Recorder()
    async with observed_client(recorder, config=config) as client:
        await scene.warm(client)
        recorder.clear()
        with client.count() as counter:
            await scene.call(client)
            await client._volume().log.drained()
    assert len(recorder.sent) == len(recorder.requests) == counter.requests.total
    assert [each.operation for each in recorder.sent if each.is_deferred] == (
        ["PutObject"] * counter.requests.deferred
    )
    sizes = sum(result.sent + result.received for _, result in recorder.requests)
    assert sizes == counter.requests.bytes
    waited = sum(result.requests.total for _, result in recorder.verbs)
    assert waited == counter.requests.total - counter.requests.deferred
    assert all(request.volume == config.name for request in recorder.sent)
    return recorder


@pytest.mark.parametrize("verb", VERBS)
async def test_every_verb_is_observed_once_with_all_of_its_requests(verb: str) -> None:
    recorder = await observed(VERBS[verb])
    # The data of these volumes is not in S3.
    outcome = "error" if verb == "presign" else "success"
    assert {result.outcome for _, result in recorder.verbs} == {outcome}
    names = [call.verb for call, _ in recorder.verbs]
    if verb in SEVERAL:
        assert set(names) <= SEVERAL[verb]
        assert (
            names.count(
                {"discard_staged": verb, "transaction": "transaction.commit"}.get(verb, verb)
            )
            == 1
        )
    else:
        assert names == [verb]
    assert [call.id for call in recorder.started] != [""]
    assert {request.verb for request in recorder.sent} <= set(recorder.started)


@pytest.mark.parametrize("name", TRASH_SCENES)
async def test_verbs_of_the_trash_are_observed(name: str) -> None:
    verb = name.split(maxsplit=1)[0].rstrip(",")
    recorder = await observed(TRASH_SCENES[name], "tree")
    assert recorder.outcomes[-1][0].removeprefix("trash.") in name
    assert recorder.outcomes[0] == ("delete" if verb == "delete" else f"trash.{verb}", "success")


async def test_the_object_store_is_observed_by_its_own_verbs() -> None:
    recorder = Recorder()
    async with observed_client(recorder) as client:
        store = ObjectStore(client)
        await store.create_bucket("bucket")
        await store.create("bucket", "key", b"data")
        assert [each.name async for each in store.list_buckets()] == ["bucket"]
        with pytest.raises(PathNotFoundError):
            await store.info("bucket", "missing")
    assert recorder.outcomes == [
        ("objects.create_bucket", "success"),
        ("objects.create", "success"),
        ("objects.list_buckets", "success"),
        ("objects.info", "error"),
    ]


async def test_an_error_is_observed_by_its_class() -> None:
    recorder = Recorder()
    async with observed_client(recorder) as client:
        with pytest.raises(PathNotFoundError) as raised:
            await client.stat("/missing")
        with pytest.raises(PathNotFoundError):
            async for _ in client.list("/missing"):
                pass
    assert recorder.outcomes == [("stat", "error"), ("list", "error")]
    assert recorder.verbs[0][1].error is raised.value


async def test_a_path_is_observed_without_the_authority_of_a_url() -> None:
    recorder = Recorder()
    async with observed_client(recorder) as client:
        await client.exists(f"s3k://{client.name}/d/f")
        await client.exists(path="/d/f")
        with pytest.raises(CrossVolumeError):
            await client.exists("s3k://user:hush@other/d/f")
        await client.stat_many(["/d/f"])
    assert [call.path for call, _ in recorder.verbs] == ["/d/f", "/d/f", "/d/f", None]


async def test_a_cancelled_call_is_observed_as_cancelled() -> None:
    held = asyncio.Event()

    async def gate(call: Call) -> None:
        if call.method == "get":
            held.set()
            await asyncio.Event().wait()

    recorder, faults = Recorder(), FaultPlan()
    async with observed_client(recorder, faults) as client:
        faults.gate = gate
        task = asyncio.create_task(client.stat("/d"))
        await held.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        faults.gate = None
    assert recorder.outcomes == [("stat", "cancelled")]
    assert [result.outcome for _, result in recorder.requests][-1] == "cancelled"


async def test_a_call_that_closing_ends_is_observed_by_the_error_of_its_caller() -> None:
    held = asyncio.Event()

    async def gate(call: Call) -> None:
        held.set()
        await asyncio.Event().wait()

    recorder, faults = Recorder(), FaultPlan()
    async with observed_client(recorder, faults) as client:
        faults.gate = gate
        task = asyncio.create_task(client.stat("/d"))
        await held.wait()
        await client.close(timeout=0)
        with pytest.raises(ClosedClientError):
            await task
        faults.gate = None
    ((_, result),) = recorder.verbs
    assert result.outcome == "error"
    assert isinstance(result.error, ClosedClientError)


@pytest.mark.parametrize("how", ["closed", "forgotten", "left by the client"])
async def test_a_listing_that_is_left_is_observed_as_abandoned(how: str) -> None:
    recorder = Recorder()
    async with observed_client(recorder) as client:
        for number in range(3):
            await client.write(f"/d{number}/f", b"")
        recorder.clear()
        walk: Any = client.walk("/")
        assert (await anext(walk))[0] == "/"
        assert recorder.verbs == []
        if how == "closed":
            await walk.pages.aclose()
        elif how == "forgotten":
            del walk
            gc.collect()
            await asyncio.sleep(0)
            await asyncio.sleep(0)
    assert recorder.outcomes == [("walk", "abandoned")]


async def test_a_listing_is_observed_once_and_not_with_the_time_of_its_caller() -> None:
    recorder = Recorder()
    async with observed_client(recorder) as client:
        await client.write("/d/f", b"")
        recorder.clear()
        walk = client.walk("/")
        await anext(walk)
        ((call, _),) = [(each, None) for each in recorder.started]
        began = asyncio.get_running_loop().time()
        await asyncio.sleep(0.2)
        with client.count() as rest:
            assert [each[0] async for each in walk] == ["/d"]
        passed = asyncio.get_running_loop().time() - began
    ((ended, result),) = recorder.verbs
    assert ended is call
    assert result.outcome == "success"
    assert result.seconds < passed
    assert rest.requests.total < result.requests.total


async def test_a_listing_within_another_verb_is_a_part_of_that() -> None:
    recorder = Recorder()
    async with observed_client(recorder) as client:
        await client.write("/d/f", b"data")
        recorder.clear()
        with client._volume().calls.running("outer"):
            assert [each.path async for each in client.list("/d")] == ["/d/f"]
            await client.read("/d/f")
    assert recorder.outcomes == [("outer", "success")]


async def test_concurrent_calls_have_their_own_requests() -> None:
    """Also those that are sent in tasks of the calls."""
    recorder = Recorder()
    async with observed_client(recorder) as client:

        async def listed() -> None:
            async for _ in client.list("/"):
                pass

        await asyncio.gather(client.write("/a/f", b"1"), listed(), client.exists("/missing"))
    found = {verb.verb: result.requests.as_dict() for verb, result in recorder.verbs}
    assert set(found) == {"write", "list", "exists"}
    assert found["exists"] == {"table": {"GetItem": 1}}
    assert found["list"] == {"table": {"BatchGetItem": 1, "GetItem": 1, "Query": 10}}
    for verb, result in recorder.verbs:
        own = [each for each in recorder.sent if each.verb is verb and not each.is_deferred]
        assert len(own) == result.requests.total


async def test_a_receiver_that_fails_affects_no_call(caplog: pytest.LogCaptureFixture) -> None:
    class Broken(Recorder):
        def verb_started(self, verb: VerbCall) -> object:
            raise RuntimeError("no space")

        def request_ended(self, *arguments: Any) -> None:
            raise RuntimeError("no space")

    recorder = Recorder()
    async with observed_client([Broken(), recorder]) as client:
        await client.write("/f", b"data")
        assert await client.read("/f") == b"data"
    assert recorder.outcomes == [("write", "success"), ("read", "success")]
    assert len(recorder.sent) == len(recorder.requests)
    warnings = [each for each in caplog.records if each.levelno == logging.WARNING]
    assert len(warnings) == 1
    assert "Broken failed in request_ended" in warnings[0].getMessage()


def test_the_blocking_client_is_observed() -> None:
    config = memory_config()
    asyncio.run(init_volume(config))
    recorder = Recorder()
    with S3kSyncClient(config=config, metrics=recorder) as fs:
        fs.write("/d/f", b"data")
        with fs.open("/d/f") as reader:
            assert reader.read() == b"data"
        assert [each.path for each in fs.list("/d")] == ["/d/f"]
    assert [verb for verb, _ in recorder.outcomes] == ["write", "open", "file.read", "list"]


USES: dict[str, tuple[Callable[[Any], object], list[str]]] = {
    "cat": (lambda fs: fs.cat_file("/d/f"), ["read"]),
    "info": (lambda fs: fs.info("/d/f"), ["stat"]),
    "ls": (lambda fs: fs.ls("/d"), ["list"]),
    "pipe": (lambda fs: fs.pipe_file("/d/g", b"x"), ["write"]),
    "mkdir": (lambda fs: fs.makedirs("/e"), ["makedirs"]),
    "mv": (lambda fs: fs.mv("/d/f", "/d/h"), ["stat", "stat", "rename"]),
}


def test_the_filesystem_of_fsspec_is_observed() -> None:
    config = memory_config()
    asyncio.run(init_volume(config))
    recorder = Recorder()
    fs = S3kFileSystem(config=config, metrics=recorder)
    fs.pipe_file("/d/f", b"data")
    for name, (use, verbs) in USES.items():
        recorder.clear()
        use(fs)
        assert [verb for verb, _ in recorder.outcomes] == verbs, name
    recorder.clear()
    with fs.transaction:
        fs.pipe_file("/d/t", b"data")
    assert ("transaction.write", "success") in recorder.outcomes
    assert recorder.outcomes[-1] == ("transaction.commit", "success")
    fs.close_session()


async def test_events_are_reported_for_the_client_that_has_them() -> None:
    """An operation that cannot be committed in the log, after the verb; and one that is rolled
    back."""
    recorder, other, faults = Recorder(), Recorder(), FaultPlan()
    async with observed_client(recorder, faults) as client, observed_client(other) as second:
        await second.write("/f", b"")
        faults.fail_when(
            lambda call: call.method == "put" and call.key.endswith(".committed"),
            ServiceError("refused"),
        )
        await client.write("/f", b"data")
        await client._volume().log.drained()
        assert recorder.events == ["log.commit_failed"]
        faults.fail_when(lambda call: call.method == "write", ServiceError("refused"))
        with pytest.raises(ServiceError):
            await client.write("/g", b"data")
        assert recorder.events[1:] == ["log.rolled_back"]
        faults.fail_when(
            lambda call: call.method == "put" and call.key.endswith(".pending"),
            ServiceError("refused"),
        )
        with pytest.raises(ServiceError):
            await client.write("/h", b"data")
        assert "log.pending_failed" in recorder.events
    assert other.events == []


@pytest.mark.parametrize(
    ("when", "event"),
    [("before", "transaction.rolled_back"), ("after", "transaction.rolled_forward")],
)
async def test_the_end_of_a_dead_clients_transaction_is_an_event(
    when: Literal["before", "after"], event: str
) -> None:
    config = memory_config()
    await init_volume(config)
    recorder = Recorder()
    async with observed_client(recorder, config=config) as client:
        await client.write("/d/f", b"data")
        await rename_and_die(config, "/d", "/e", when)
        await client.write("/d/g" if when == "before" else "/e/g", b"data")
        assert recorder.events == [event]


async def test_a_resolved_intent_is_an_event() -> None:
    """The write intent of a finished transaction."""
    recorder = Recorder()
    async with observed_client(recorder) as client:
        volume = volume_of(client)
        await client.write("/f", b"data")
        stored = await volume.store.get("/f")
        assert stored is not None
        held = WriteIntent(volume.store.runtime.uuid(), REMOVED).text()
        await volume.items.write(
            Update(volume.store.keys.of(stored), Condition(), set={NEXT: held})
        )
        await client.write("/f", b"new")
        assert recorder.events == ["intent.removed"]


async def test_each_repair_is_an_event_of_its_kind() -> None:
    recorder = Recorder()
    totals = PrometheusMetrics(registry=None)
    async with observed_client([recorder, totals]) as client:
        volume = volume_of(client)
        for path in ("/f", "/g"):
            await client.write(path, b"data")
            stored = await volume.store.get(path)
            assert stored is not None
            await volume.items.write(Delete(volume.store.keys.of(stored), Condition()))
        recorder.clear()
        await repair_volume(volume, grace=0)
        assert (recorder.events, recorder.outcomes) == ([], [("fsck.repair", "success")])
        report = await repair_volume(volume, dry_run=False, grace=0)
        assert report.done == 2
        assert recorder.events == ["fsck.repaired.entry_missing"] * 2
        assert (await verify_volume(volume, grace=0)).clean
        assert recorder.outcomes[1:] == [("fsck.repair", "success"), ("fsck.verify", "success")]
        (counted,) = [each for each in totals.collect() if each.name == "s3k_events"]
        assert [(each.labels["event"], each.value) for each in counted.samples] == [
            ("fsck.repaired.entry_missing", 2.0)
        ]


async def test_a_conflict_is_an_event() -> None:
    """Another client writes the path while this one writes it."""
    config = memory_config()
    await init_volume(config)
    recorder, faults = Recorder(), FaultPlan()
    async with (
        S3kClient(config=config) as other,
        observed_client(recorder, faults, config=config) as client,
    ):
        await other.write("/f", b"first")

        async def gate(call: Call) -> None:
            if call.method == "write":
                faults.gate = None
                await other.write("/f", b"second")

        faults.gate = gate
        await client.write("/f", b"third")
        assert await other.read("/f") == b"third"
    assert recorder.events.count("conflict") == 1
    assert recorder.outcomes == [("write", "success")]


async def test_a_client_without_receivers_observes_nothing() -> None:
    config = memory_config()
    await init_volume(config)
    async with S3kClient(config=config) as client:
        assert client._observer is None
        assert client._volume().calls.observer is None
        assert client._volume().items._sender.observer is None
