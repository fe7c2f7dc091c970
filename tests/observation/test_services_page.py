"""The example of docs/services.md is run as it stands: startup, calls, probes, shutdown."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from prometheus_client import REGISTRY
from prometheus_client.parser import text_string_to_metric_families

from s3k_async.errors import ClosedClientError, ThrottledError, UnreachableError
from s3k_async.settings import resolve
from s3k_async.testing import FaultPlan
from s3k_async.volumes import init_volume
from tests.engines.process import ROOT

PAGE = ROOT / "docs" / "services.md"


@pytest.fixture
def example(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, Any]]:
    """The names of the example, whose volume is in a directory."""
    path = tmp_path / "config.toml"
    path.write_text(
        '[volumes.service]\ndirectory = "./volume"\nretry_attempts = 2\nretry_base = 0.001\n',
        encoding="utf-8",
    )
    monkeypatch.setenv("S3K_CONFIG", str(path))
    asyncio.run(init_volume(resolve("s3k://service")))
    (text,) = re.findall(
        r"^```python\n(.*?)^```", PAGE.read_text("utf-8"), re.DOTALL | re.MULTILINE
    )
    names: dict[str, Any] = {}
    exec(compile(text, PAGE.name, "exec"), names)
    yield names
    REGISTRY.unregister(names["METRICS"])


@asynccontextmanager
async def served(names: dict[str, Any], faults: FaultPlan) -> AsyncIterator[httpx.AsyncClient]:
    """A client of the running service."""
    app = names["app"]
    with faults.injected():
        context = app.router.lifespan_context(app)
        await context.__aenter__()
    try:
        transport = httpx.ASGITransport(app=app)
        async with httpx.AsyncClient(transport=transport, base_url="http://service") as http:
            yield http
    finally:
        await context.__aexit__(None, None, None)


async def test_the_example_serves_files(example: dict[str, Any]) -> None:
    content = bytes(range(256)) * 4096
    async with served(example, FaultPlan()) as http:
        assert (await http.get("/livez")).json() == {"status": "alive"}
        put = await http.put("/files/d/f", content=content)
        assert (put.status_code, put.json()) == (201, {"size": len(content)})
        got = await http.get("/files/d/f")
        assert (got.status_code, got.content) == (200, content)
        missing = await http.get("/files/d/missing")
        assert (missing.status_code, missing.json()) == (404, {"error": "not_found"})
        ready = await http.get("/readyz")
        assert ready.status_code == 200
        assert ready.json() == {"table": "healthy", "data": "healthy", "log": "healthy"}
        scraped = await http.get("/metrics")
        fs = example["app"].state.fs
    samples = {
        (sample.labels["verb"], sample.labels["error"]): sample.value
        for family in text_string_to_metric_families(scraped.text)
        for sample in family.samples
        if sample.name == "s3k_verb_duration_seconds_count"
    }
    assert samples["open", ""] == 2
    assert samples["open", "PathNotFoundError"] == 1
    assert samples["file.commit", ""] == samples["health", ""] == 1
    assert fs.closed
    with pytest.raises(ClosedClientError):
        await fs.exists("/d/f")


async def test_the_example_reports_services_that_fail(example: dict[str, Any]) -> None:
    faults = FaultPlan()
    async with served(example, faults) as http:
        await http.put("/files/f", content=b"data")
        faults.fail_when(lambda call: call.method == "get", UnreachableError("down"))
        ready = await http.get("/readyz")
        assert ready.status_code == 503
        assert ready.json() == {"table": "unreachable", "data": "healthy", "log": "healthy"}
        assert (await http.get("/readyz")).status_code == 200
        faults.fail_when(lambda call: call.method == "get", ThrottledError("slow down"), times=2)
        busy = await http.get("/files/f")
        assert (busy.status_code, busy.json()) == (503, {"error": "throttled"})


async def test_an_upload_that_is_cut_off_publishes_nothing(example: dict[str, Any]) -> None:
    async def cut_off() -> AsyncIterator[bytes]:
        yield b"half"
        raise ConnectionResetError

    async with served(example, FaultPlan()) as http:
        with pytest.raises(ConnectionResetError):
            await http.put("/files/f", content=cut_off())
        assert (await http.get("/files/f")).status_code == 404
