"""What the native functions should answer, in plain Python: slow, and written from the rules
alone."""

from __future__ import annotations

import xxhash

from s3k_async.model import HashName


class RefusedError(Exception):
    """The input names nothing."""


def normalize(path: str) -> str:
    try:
        path.encode()
    except UnicodeEncodeError as error:
        raise RefusedError from error
    if not path or "\0" in path:
        raise RefusedError
    names: list[str] = []
    for name in path.split("/"):
        if len(name.encode()) > 1024:
            raise RefusedError
        if name == "..":
            if not names:
                raise RefusedError
            del names[-1]
        elif name not in {"", "."}:
            names.append(name)
    return "/" + "/".join(names)


def split(path: str) -> tuple[str, str]:
    names = normalize(path).split("/")[1:]
    if names == [""]:
        raise RefusedError
    return "/" + "/".join(names[:-1]), names[-1]


def is_name(name: str) -> bool:
    try:
        return normalize("/" + name) == "/" + name and name != "" and "/" not in name
    except RefusedError:
        return False


def join(parent: str, name: str) -> str:
    if not is_name(name):
        raise RefusedError
    return normalize(normalize(parent) + "/" + name)


def java31(text: str) -> int:
    """`java.lang.String.hashCode`."""
    data = text.encode("utf-16-be")
    value = 0
    for high, low in zip(data[::2], data[1::2], strict=True):
        value = (31 * value + 256 * high + low) % 2**32
    return value - 2**32 if value >= 2**31 else value


def suffix_index(name: str, count: int, algorithm: HashName) -> int:
    if not is_name(name):
        raise RefusedError
    if algorithm == "xxh3":
        return int(xxhash.xxh3_64_intdigest(name.encode())) % count
    value = java31(name)
    return value % count if value == -(2**31) else abs(value) % count


def item_key(volume: str | None, text: str, count: int, algorithm: HashName) -> tuple[str, str]:
    directory, name = entry_key_parts(volume, text)
    prefix = "s3k:tree/" if volume is None else f"ks://{volume}"
    if len(f"{prefix}{directory}-sf{count - 1}".encode()) > 2048:
        raise RefusedError
    return f"{prefix}{directory}-sf{suffix_index(name, count, algorithm)}", name


def entry_key_parts(volume: str | None, text: str) -> tuple[str, str]:
    """Directory key and name."""
    if volume is not None:
        if not text.startswith("/"):
            raise RefusedError
        return split(text)
    directory, slash, name = text.partition("/")
    if not is_directory_id(directory) or not slash or not is_name(name):
        raise RefusedError
    return directory, name


def is_directory_id(text: str) -> bool:
    letters = set("0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ_abcdefghijklmnopqrstuvwxyz-")
    return 1 <= len(text) <= 64 and set(text) <= letters


def decode_key(volume: str | None, partition: str, sort: str) -> str:
    directory, separator, number = partition.rpartition("-sf")
    prefix = "s3k:tree/" if volume is None else f"ks://{volume}"
    is_number = number.isascii() and number.isdigit() and number == str(int(number))
    if not separator or not is_number or int(number) >= 65_536:
        raise RefusedError
    if not directory.startswith(prefix) or not is_name(sort):
        raise RefusedError
    directory = directory.removeprefix(prefix)
    if volume is None:
        if not is_directory_id(directory):
            raise RefusedError
        return f"{directory}/{sort}"
    if normalize(directory) != directory:
        raise RefusedError
    return join(directory, sort)
