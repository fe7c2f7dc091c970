"""The logger `s3k_async.operations`: one record for each verb, at the configured level."""

from __future__ import annotations

import logging
from dataclasses import replace

import pytest

from s3k_async.client import S3kClient
from s3k_async.errors import PathNotFoundError, ThrottledError
from s3k_async.testing import FaultPlan
from s3k_async.volumes import init_volume
from tests.client.rig import TUNING, memory_config
from tests.observation.recorder import observed_client

NAME = "s3k_async.operations"


async def test_a_verb_is_one_record_with_fields(caplog: pytest.LogCaptureFixture) -> None:
    config = replace(memory_config(), tuning=replace(TUNING, log_verbs="info"))
    await init_volume(config)
    caplog.set_level(logging.INFO, NAME)
    async with S3kClient(config=config) as client:
        await client.write("/d/f", b"data")
        with pytest.raises(PathNotFoundError):
            await client.read("/missing")
    wrote, failed = [each for each in caplog.records if each.name == NAME]
    fields = vars(wrote)
    assert wrote.levelno == logging.INFO
    assert wrote.getMessage().startswith("write /d/f: success, ")
    assert (fields["verb"], fields["path"], fields["outcome"]) == ("write", "/d/f", "success")
    assert (fields["volume"], fields["error"]) == (config.name, "")
    assert fields["requests"] > 3
    assert fields["bytes"] > 4
    assert fields["duration"] > 0
    assert vars(failed)["error"] == "PathNotFoundError"
    assert vars(failed)["request_id"] != fields["request_id"]


async def test_a_throttled_request_is_logged_with_its_partition(
    caplog: pytest.LogCaptureFixture,
) -> None:
    config = replace(memory_config(), tuning=replace(TUNING, log_verbs="debug"))
    await init_volume(config)
    caplog.set_level(logging.DEBUG, NAME)
    faults = FaultPlan()
    async with observed_client([], faults, config=config) as client:
        faults.fail_when(lambda call: call.method == "get", ThrottledError("slow down"))
        await client.exists("/d/f")
    throttled, verb = [each for each in caplog.records if each.name == NAME]
    assert vars(throttled)["partitions"][0].startswith(f"ks://{config.name}/d-sf")
    assert vars(throttled)["request_id"] == vars(verb)["request_id"]
    assert vars(verb)["retries"] == 1
    assert verb.levelno == logging.DEBUG


@pytest.mark.parametrize("setting", ["off", "debug"])
async def test_nothing_is_logged_that_is_not_asked_for(
    setting: str, caplog: pytest.LogCaptureFixture
) -> None:
    config = replace(memory_config(), tuning=replace(TUNING, log_verbs=setting))  # type: ignore[arg-type]
    await init_volume(config)
    caplog.set_level(logging.DEBUG if setting == "off" else logging.INFO, NAME)
    async with S3kClient(config=config) as client:
        await client.write("/d/f", b"data")
    assert [each for each in caplog.records if each.name == NAME] == []
