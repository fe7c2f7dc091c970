"""Native keys against straightforward Python.

Each pair runs interleaved, native and Python in turn, so that both meet the same machine; medians and quartiles count.
The Python side hashes with the `xxhash` package, which is C. Run: `python benchmarks/native_keys.py [--json FILE]`.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import platform
import statistics
import sys
import time
import uuid
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import xxhash

from s3k_async import _native
from s3k_async.errors import InvalidPathError, ItemFormatError
from s3k_async.model import HashName

COUNT = 10
VOLUME = "analytics"


def normalize(path: str) -> str:
    if not path:
        raise InvalidPathError("the path is empty", path=path)
    if "\0" in path:
        raise InvalidPathError("the path contains a NUL character", path=path)
    names: list[str] = []
    for name in path.split("/"):
        if name in {"", "."}:
            continue
        if name == "..":
            if not names:
                raise InvalidPathError("'..' leads above the root", path=path)
            names.pop()
            continue
        if len(name.encode()) > 1024:
            raise InvalidPathError("a name is longer than 1024 bytes", path=path)
        names.append(name)
    return "/" + "/".join(names)


def suffix_index(name: str, count: int, algorithm: HashName) -> int:
    if algorithm == "xxh3":
        return int(xxhash.xxh3_64_intdigest(name.encode())) % count
    units = name.encode("utf-16-le")
    value = 0
    for position in range(0, len(units), 2):
        value = (31 * value + units[position] + (units[position + 1] << 8)) & 0xFFFFFFFF
    signed = value - (1 << 32) if value >= 1 << 31 else value
    return signed % count if signed == -(1 << 31) else abs(signed) % count


def item_key(volume: str, path: str, count: int, algorithm: HashName) -> tuple[str, str]:
    path = normalize(path)
    parent, _, name = path.rpartition("/")
    if not name:
        raise InvalidPathError("the root has no item", path=path)
    parent = parent or "/"
    if len(f"ks://{volume}{parent}-sf{count - 1}".encode()) > 2048:
        raise InvalidPathError("the partition key is too long", path=path)
    return f"ks://{volume}{parent}-sf{suffix_index(name, count, algorithm)}", name


def decode_key(volume: str, partition: str, sort: str) -> str:
    authority = f"ks://{volume}"
    parent, hyphen, suffix = partition.removeprefix(authority).rpartition("-")
    if not partition.startswith(authority + "/") or not hyphen or not suffix.startswith("sf") or "/" in sort:
        raise ItemFormatError("not an item key", path=partition)
    if not suffix[2:].isdecimal() or normalize(parent) != parent:
        raise ItemFormatError("not an item key", path=partition)
    return f"{parent.rstrip('/')}/{sort}"


def uuid_text(entropy: bytes) -> str:
    return str(uuid.UUID(bytes=entropy, version=4))


def physical_key(object_id: str, entropy: bytes) -> str:
    return f"{uuid_text(entropy)}.id={object_id}"


def sixteens(entropy: bytes) -> list[bytes]:
    return [entropy[start : start + 16] for start in range(0, len(entropy), 16)]


@dataclass(frozen=True)
class Pair:
    """One thing done natively and in Python."""

    name: str
    rows: int
    native: Callable[[], Any]
    python: Callable[[], Any]


@dataclass(frozen=True)
class Result:
    """Nanoseconds a row: median and quartiles of each side."""

    name: str
    rows: int
    native_ns: tuple[float, float, float]
    python_ns: tuple[float, float, float]
    ratio: float


def pairs(rows: int) -> list[Pair]:
    entropy = os.urandom(16 * rows)
    ids = [uuid_text(sixteen) for sixteen in sixteens(os.urandom(16 * rows))]
    paths = [
        f"/warehouse/events/date=2026-01-{row % 28 + 1:02}/part-{row:05}-{ids[row]}.parquet" for row in range(rows)
    ]
    sorted_paths = sorted(paths)
    messy = [path.replace("/part", "//./part") for path in paths]
    names = [path.rpartition("/")[2] for path in paths]
    keys = _native.item_keys(VOLUME, paths, COUNT, "xxh3")
    partitions, sorts = [key[0] for key in keys], [key[1] for key in keys]
    xxh3: HashName = "xxh3"
    java31: HashName = "java31"
    return [
        Pair(
            "item_keys, xxh3, one directory after another",
            rows,
            lambda: _native.item_keys(VOLUME, sorted_paths, COUNT, xxh3),
            lambda: [item_key(VOLUME, path, COUNT, xxh3) for path in sorted_paths],
        ),
        Pair(
            "item_keys, xxh3, directories mixed",
            rows,
            lambda: _native.item_keys(VOLUME, paths, COUNT, xxh3),
            lambda: [item_key(VOLUME, path, COUNT, xxh3) for path in paths],
        ),
        Pair(
            "item_keys, java31, directories mixed",
            rows,
            lambda: _native.item_keys(VOLUME, paths, COUNT, java31),
            lambda: [item_key(VOLUME, path, COUNT, java31) for path in paths],
        ),
        Pair(
            "decode_keys",
            rows,
            lambda: _native.decode_keys(VOLUME, partitions, sorts),
            lambda: [decode_key(VOLUME, *key) for key in zip(partitions, sorts, strict=True)],
        ),
        Pair(
            "suffix_indexes, xxh3",
            rows,
            lambda: _native.suffix_indexes(names, COUNT, xxh3),
            lambda: [suffix_index(name, COUNT, xxh3) for name in names],
        ),
        Pair(
            "suffix_indexes, java31",
            rows,
            lambda: _native.suffix_indexes(names, COUNT, java31),
            lambda: [suffix_index(name, COUNT, java31) for name in names],
        ),
        Pair(
            "normalize_many, normalised already",
            rows,
            lambda: _native.normalize_many(paths),
            lambda: [normalize(path) for path in paths],
        ),
        Pair(
            "normalize_many, not normalised",
            rows,
            lambda: _native.normalize_many(messy),
            lambda: [normalize(path) for path in messy],
        ),
        Pair(
            "uuid_texts",
            rows,
            lambda: _native.uuid_texts(entropy),
            lambda: [uuid_text(sixteen) for sixteen in sixteens(entropy)],
        ),
        Pair(
            "physical_keys",
            rows,
            lambda: _native.physical_keys(ids, entropy),
            lambda: [physical_key(*pair) for pair in zip(ids, sixteens(entropy), strict=True)],
        ),
        Pair(
            "item_key, one call a path",
            rows,
            lambda: [_native.item_key(VOLUME, path, COUNT, xxh3) for path in paths],
            lambda: [item_key(VOLUME, path, COUNT, xxh3) for path in paths],
        ),
    ]


def seconds(run: Callable[[], Any]) -> float:
    gc.collect()
    gc.disable()
    try:
        start = time.perf_counter()
        answer = run()
        taken = time.perf_counter() - start
    finally:
        gc.enable()
    del answer
    return taken


def quartiles(times: list[float], rows: int) -> tuple[float, float, float]:
    low, middle, high = statistics.quantiles(times, n=4, method="inclusive")
    return tuple(round(time / rows * 1e9, 1) for time in (middle, low, high))  # type: ignore[return-value]


def measure(pair: Pair, rounds: int) -> Result:
    if pair.native() != pair.python():
        raise AssertionError(f"{pair.name}: native and Python differ")
    native, python = [], []
    for _ in range(rounds):
        native.append(seconds(pair.native))
        python.append(seconds(pair.python))
    ours, theirs = quartiles(native, pair.rows), quartiles(python, pair.rows)
    return Result(pair.name, pair.rows, ours, theirs, round(theirs[0] / ours[0], 1))


def environment() -> dict[str, Any]:
    return {
        "python": sys.version.split()[0],
        "system": platform.platform(),
        "processor": _processor(),
        "cpus": os.cpu_count(),
        "load": [round(load, 2) for load in os.getloadavg()],
        "xxhash": xxhash.VERSION,
    }


def _processor() -> str:
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as lines:
            return next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), "")
    except OSError:
        return platform.processor()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--rows", type=int, default=4_000)
    parser.add_argument("--rounds", type=int, default=31)
    parser.add_argument("--json", metavar="FILE", help="write the results there too; - for standard output only")
    options = parser.parse_args()
    machine = environment()
    results = [measure(pair, options.rounds) for pair in pairs(options.rows)]
    document = json.dumps({"environment": machine, "results": [asdict(result) for result in results]}, indent=2)
    if options.json == "-":
        print(document)
        return
    if options.json:
        with open(options.json, "w", encoding="utf-8") as file:
            file.write(document + "\n")
    print(", ".join(f"{key} {value}" for key, value in machine.items()))
    print(f"{options.rows} rows, {options.rounds} rounds; nanoseconds a row: median (quartiles)\n")
    print(f"{'':46}{'native':>22}{'Python':>26}{'ratio':>8}")
    for result in results:
        sides = [f"{middle:.0f} ({low:.0f}-{high:.0f})" for middle, low, high in (result.native_ns, result.python_ns)]
        print(f"{result.name:46}{sides[0]:>22}{sides[1]:>26}{result.ratio:>8.1f}")


if __name__ == "__main__":
    main()
