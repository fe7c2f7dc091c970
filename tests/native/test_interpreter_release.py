"""Bulk functions let other threads run while they work."""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Callable, Iterator

import pytest

from s3k_async import _native
from s3k_async.backends.ports.items import Item

ROWS = 100_000
ATTEMPTS = 5000
"""Calls during which the system may let the other thread run, on a machine that is busy."""
PATHS = [f"/warehouse/date=2026-01-{row % 28 + 1:02}//part-{row:05}" for row in range(ROWS)]
PARTITIONS, SORTS = _native.item_keys("v", PATHS, 10, "xxh3")
ENTROPY = bytes(16 * ROWS)
CONTENT = bytes(20_000_000)
ITEM: Item = {
    "path": "ks://v/d-sf0",
    "children": "f",
    "isdir": False,
    "ctime": 7,
    "ver": 2,
    "id": "i",
    "physpath": "k",
}
ITEMS = _native.Rows([ITEM] * ROWS)
ENTRIES = ITEMS.entries("v")
PAGE = json.dumps(
    {"Items": [{"path": {"S": "ks://v/d-sf0"}, "children": {"S": "f"}}] * ROWS}
).encode()

BULK: dict[str, Callable[[], object]] = {
    "normalize_many": lambda: _native.normalize_many(PATHS),
    "suffix_indexes": lambda: _native.suffix_indexes(SORTS, 10, "java31"),
    "item_keys": lambda: _native.item_keys("v", PATHS, 10, "xxh3"),
    "decode_keys": lambda: _native.decode_keys("v", PARTITIONS, SORTS),
    "uuid_texts": lambda: _native.uuid_texts(ENTROPY),
    "physical_keys": lambda: _native.physical_keys(SORTS, ENTROPY),
    "decode_page": lambda: _native.decode_page(PAGE, None),
    "Rows.entries": lambda: ITEMS.entries("v"),
    "Entries.files": ENTRIES.files,
    "Entries.totals": ENTRIES.totals,
    "Entries.carrying": lambda: ENTRIES.carrying("intent"),
    "Entries.sorted": lambda: _native.Entries.sorted([ENTRIES]),
    "Entries.__arrow_c_array__": ENTRIES.__arrow_c_array__,
    "xxh3_64": lambda: _native.xxh3_64(CONTENT),
    "Xxh3_128.update": lambda: _native.Xxh3_128().update(CONTENT),
    "Xxh3_128.update, bytearray": lambda: _native.Xxh3_128().update(bytearray(CONTENT)),
}


@pytest.fixture
def no_forced_switches() -> Iterator[None]:
    """Threads change places only where one gives up the interpreter by itself."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(3600)
    yield
    sys.setswitchinterval(before)


def _another_thread_ran_during(call: Callable[[], object]) -> bool:
    ran: list[bool] = []
    go = threading.Lock()
    go.acquire()

    def wait_and_tell() -> None:
        with go:
            ran.append(True)

    thread = threading.Thread(target=wait_and_tell)
    thread.start()
    go.release()  # the thread may run from now on, once the interpreter is free
    call()
    answer = bool(ran)
    thread.join()
    return answer


@pytest.mark.usefixtures("no_forced_switches")
@pytest.mark.parametrize("name", BULK)
def test_another_thread_runs_during(name: str) -> None:
    assert any(_another_thread_ran_during(BULK[name]) for _ in range(ATTEMPTS))


@pytest.mark.usefixtures("no_forced_switches")
def test_no_other_thread_runs_without_a_release() -> None:
    """What makes the test above tell anything."""
    assert not any(
        _another_thread_ran_during(lambda: [number * number for number in range(100_000)])
        for _ in range(5)
    )
