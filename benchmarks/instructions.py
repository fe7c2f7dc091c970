"""`python -m benchmarks.instructions [VERB ...] [--functions N]`: Python instructions of a call.

The bytecode instructions that one call of a verb executes, with 32 calls in flight on the canned
server. Processor time varies by half between runs on a shared machine; this varies by a few per
cent, since the calls share iterations of the event loop, and shows what a change of the code does.
It does not count the native core, the interpreter's own functions, or the system. Nothing here is
timed.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections import Counter
from pathlib import Path
from types import FrameType
from typing import Any, Self

from benchmarks.contenders.ours import READ_FILES, Ours, client
from benchmarks.servers import Canned, canned, config_for
from s3k_async import S3kClient

VERBS = ("stat", "read", "create", "rename", "delete")
IN_FLIGHT = 32
CALLS = 320
SUFFIXES = 16
ROOT = Path(__file__).resolve().parents[1]


class Instructions:
    """Counts instructions by file and function."""

    def __init__(self) -> None:
        self._counts: Counter[tuple[str, str]] = Counter()

    def __enter__(self) -> Self:
        sys.settrace(self._trace)
        return self

    def __exit__(self, *_: object) -> None:
        sys.settrace(None)

    def _trace(self, frame: FrameType, event: str, _argument: object) -> Any:
        if event == "call":
            frame.f_trace_lines, frame.f_trace_opcodes = False, True
        elif event == "opcode":
            code = frame.f_code
            self._counts[code.co_filename, code.co_qualname] += 1
        return self._trace

    def functions(self) -> list[tuple[str, int]]:
        """Functions and their instructions, without those of this benchmark, from the most on."""
        return [
            (f"{name}  {_short(file)}", count)
            for (file, name), count in self._counts.most_common()
            if not file.startswith(str(ROOT / "benchmarks"))
        ]


def _short(file: str) -> str:
    for root in (f"{ROOT}/", "/site-packages/", "/lib/python"):
        if root in file:
            return file.partition(root)[2]
    return file


async def counted(fs: S3kClient, server: Canned, verb: str) -> list[tuple[str, int]]:
    """The functions of the calls of a verb, with their instructions."""
    server.keep_files(keep=False)
    server.reset()
    server.directory("/single", 1_000_000, SUFFIXES)
    await fs.makedirs("/single")
    if verb == "read":
        server.keep_files()
        files = [(f"{READ_FILES}{number:08}", bytes(1024)) for number in range(CALLS)]
        (await fs.write_many(files)).raise_for_failures()
    ours = Ours(fs)
    await ours.verb("stat", CALLS, IN_FLIGHT)  # opens the connections
    with Instructions() as instructions:
        await ours.verb(verb, CALLS, IN_FLIGHT)
    return instructions.functions()


async def main() -> None:
    """Print a table, and the functions with the most instructions if they are asked for."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.instructions")
    parser.add_argument("verbs", nargs="*", metavar="VERB", help=f"{', '.join(VERBS)}; default all")
    parser.add_argument("--functions", type=int, default=0, metavar="N", help="show N of each verb")
    chosen = parser.parse_args()
    unknown = sorted(set(chosen.verbs) - set(VERBS))
    if unknown:
        parser.error(f"unknown verbs: {', '.join(unknown)}")
    print(f"{'instructions of a call':<24}{'all':>10}{'event loop':>12}{'requests':>10}{'rest':>8}")
    with canned() as server:
        async with client(config_for(server.engine, server.engine)) as fs:
            for verb in chosen.verbs or VERBS:
                functions = await counted(fs, server, verb)
                loop = sum(count for name, count in functions if _is_of_loop(name))
                requests = sum(count for name, count in functions if "s3k_async/backends/" in name)
                everything = sum(count for _, count in functions)
                sums = (everything, loop, requests, everything - loop - requests)
                shown = [f"{each / CALLS:,.0f}" for each in sums]
                print(f"{verb:<24}{shown[0]:>10}{shown[1]:>12}{shown[2]:>10}{shown[3]:>8}")
                for name, count in functions[: chosen.functions]:
                    print(f"{count / CALLS:>10,.1f}  {name}")


def _is_of_loop(name: str) -> bool:
    return "/asyncio/" in name or name.endswith("selectors.py")


if __name__ == "__main__":
    asyncio.run(main())
