"""The program that lists many entries and says how much memory that took: `memory ENDPOINT ENTRIES
MODE`."""

from __future__ import annotations

import asyncio
import json
import sys

from benchmarks.contenders.ours import Ours, client
from benchmarks.servers import Canned, config_for
from tests.engines.process import Engine


def _resident(name: str) -> float:
    """MiB of this process: `VmRSS` now, `VmHWM` at most."""
    with open("/proc/self/status", encoding="utf-8") as lines:
        return next(int(line.split()[1]) / 1024 for line in lines if line.startswith(name))


async def _list(server: Canned, entries: int, mode: str) -> dict[str, float]:
    async with client(config_for(server.engine, server.engine, log=False, connections=64)) as fs:
        await fs.makedirs("/many")
        await fs.makedirs("/few")
        ours = Ours(fs)
        work = ours.list_batches if mode == "Arrow" else ours.list
        server.directory("/few", 1, 16)
        await work("/few")  # what is loaded at the first call is not a listing's
        server.directory("/many", entries, 16)
        idle = _resident("VmRSS")
        if await work("/many") != entries:
            raise AssertionError("entries are missing")
        return {
            "idle": round(idle, 1),
            "peak": round(_resident("VmHWM"), 1),
            "above": round(_resident("VmHWM") - idle, 1),
        }


def main() -> None:
    """Print the figures as JSON."""
    endpoint, entries, mode = sys.argv[1:]
    server = Canned(Engine(endpoint, "test", "test", "us-east-1", 0))
    print(json.dumps(asyncio.run(_list(server, int(entries), mode))))


if __name__ == "__main__":
    main()
