"""Table keys and physical keys, natively and in straightforward Python."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Callable
from typing import Any

from benchmarks.contenders import plain_python as python
from benchmarks.measuring import Case, Result, measure
from benchmarks.rows.scope import Scope, several
from s3k_async import _native
from s3k_async.model import HashName

__all__ = ["results"]

COUNT = 10
VOLUME = "analytics"
ROWS = 4_000
TIMES = 10
XXH3: HashName = "xxh3"
JAVA31: HashName = "java31"

Pair = tuple[str, Callable[[], Any], Callable[[], Any]]


def _pairs() -> list[Pair]:
    entropy = os.urandom(16 * ROWS)
    ids = [python.uuid_text(sixteen) for sixteen in python.sixteens(os.urandom(16 * ROWS))]
    paths = [
        f"/warehouse/events/date=2026-01-{row % 28 + 1:02}/part-{row:05}-{ids[row]}.parquet"
        for row in range(ROWS)
    ]
    in_order = sorted(paths)
    messy = [path.replace("/part", "//./part") for path in paths]
    names = [path.rpartition("/")[2] for path in paths]
    partitions, sorts = _native.item_keys(VOLUME, paths, COUNT, XXH3)
    return [
        (
            "item keys in a batch, one directory after another",
            lambda: _native.item_keys(VOLUME, in_order, COUNT, XXH3),
            lambda: python.item_keys(VOLUME, in_order, COUNT, XXH3),
        ),
        (
            "item keys in a batch, directories mixed",
            lambda: _native.item_keys(VOLUME, paths, COUNT, XXH3),
            lambda: python.item_keys(VOLUME, paths, COUNT, XXH3),
        ),
        (
            "item keys of java31 in a batch",
            lambda: _native.item_keys(VOLUME, paths, COUNT, JAVA31),
            lambda: python.item_keys(VOLUME, paths, COUNT, JAVA31),
        ),
        (
            "paths of keys in a batch",
            lambda: _native.decode_keys(VOLUME, partitions, sorts),
            lambda: [
                python.decode_key(VOLUME, *key) for key in zip(partitions, sorts, strict=True)
            ],
        ),
        (
            "suffixes in a batch",
            lambda: _native.suffix_indexes(names, COUNT, XXH3),
            lambda: [python.suffix_index(name, COUNT, XXH3) for name in names],
        ),
        (
            "normal forms in a batch",
            lambda: _native.normalize_many(messy),
            lambda: [python.normalize(path) for path in messy],
        ),
        (
            "UUIDs in a batch",
            lambda: _native.uuid_texts(entropy),
            lambda: [python.uuid_text(sixteen) for sixteen in python.sixteens(entropy)],
        ),
        (
            "physical keys in a batch",
            lambda: _native.physical_keys(ids, entropy),
            lambda: [
                python.physical_key(*pair)
                for pair in zip(ids, python.sixteens(entropy), strict=True)
            ],
        ),
        (
            "item keys, one call each",
            lambda: [_native.item_key(VOLUME, path, COUNT, XXH3) for path in paths],
            lambda: [python.item_key(VOLUME, path, COUNT, XXH3) for path in paths],
        ),
    ]


async def results(scope: Scope) -> AsyncIterator[Result]:
    """Each pair, checked to be equal first."""
    for name, native, plainly in _pairs():
        if native() != plainly():
            raise AssertionError(f"{name}: native and Python differ")
        contenders = {"plain Python": several(TIMES, plainly), "ours": several(TIMES, native)}
        rounds = scope.pick(3, 21)
        case = Case(
            "keys",
            name,
            ROWS * TIMES,
            "keys",
            contenders,
            "plain Python",
            rounds,
            clock="processor",
            collector=False,
        )
        for result in await measure(case):
            yield result
