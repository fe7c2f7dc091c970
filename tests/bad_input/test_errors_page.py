"""docs/errors.md and the code agree: every class, its builtin, its code, its exit code."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

from s3k_async import errors
from s3k_async.cli.exit_codes import exit_code
from s3k_async.errors import S3kError
from s3k_async.objects import ObjectStore

DOCS = Path(__file__).resolve().parents[2] / "docs"
PAGE = DOCS / "errors.md"
ROW = re.compile(r"\| `(\w+)` \| ((?:`[\w.]+` ?)+) \| `(\w+)` \| (\d+) \| (.+) \|")


OF_THE_COMMAND = {"CrossVolumeError", "OverlapError", "RenameIntoSelfError"}
"""Of `s3k object`, not of the object API."""
NOT_OF_OBJECTS = {
    "S3kError",
    # Between the stores and the rest of the package.
    "BlobChangedError",
    "BlobExistsError",
    "BlobNotFoundError",
    "ConditionFailedError",
    "ResponseLostError",
    "TransactionConflictError",
    # Of verbs, modes and files that the object API does not have.
    "MetadataExistsError",
    "StreamClosedError",
    "VolumeExistsError",
    *OF_THE_COMMAND,
}


def builtins_of(error: type[S3kError]) -> list[str]:
    """The builtins that the class is, without those that follow from another one."""
    foreign = [
        base for base in error.__mro__ if base.__module__ != errors.__name__ and base is not object
    ]
    nearest = [
        base
        for base in foreign
        if not any(other is not base and issubclass(other, base) for other in foreign)
    ]
    return [
        base.__name__ if base.__module__ == "builtins" else f"{base.__module__}.{base.__name__}"
        for base in nearest
    ]


def rows() -> dict[str, tuple[list[str], str, int, str]]:
    found = {}
    for line in PAGE.read_text(encoding="utf-8").splitlines():
        if line.startswith("| `"):
            row = ROW.fullmatch(line)
            assert row is not None, line
            name, builtins, code, number, meaning = row.groups()
            assert name not in found, name
            found[name] = (re.findall(r"`([\w.]+)`", builtins), code, int(number), meaning)
    return found


def test_the_page_has_every_class_and_no_other() -> None:
    assert rows().keys() == set(errors.__all__)
    defined = {
        name
        for name, each in inspect.getmembers(errors, inspect.isclass)
        if issubclass(each, S3kError) and each.__module__ == errors.__name__
    }
    assert defined == set(errors.__all__)


def test_the_page_says_what_the_classes_are() -> None:
    page = rows()
    wrong = []
    for name in errors.__all__:
        error: type[S3kError] = getattr(errors, name)
        number = int(exit_code(error("what happened", path="/path")))
        real = (builtins_of(error), error.code, number)
        *told, meaning = page[name]
        if tuple(told) != real:
            wrong.append(f"{name} is {real}, and on the page {told}")
        if not meaning.strip():
            wrong.append(f"{name} has no meaning on the page")
    assert not wrong, "\n".join(wrong)


def test_the_page_of_the_object_api_has_one_row_for_every_error() -> None:
    page = (DOCS / "objects.md").read_text(encoding="utf-8")
    lines = page.partition("\n## Errors\n")[2].partition("\n## ")[0].splitlines()
    statuses = dict(line.strip("| ").split(" | ", 1) for line in lines if line.startswith("| "))
    # "`X`, an `Y`" names the base of X, which has its own place.
    named = {
        status: re.findall(r"(?<! an )(?<! a )`(\w+Error)`", text)
        for status, text in statuses.items()
    }
    assert sorted(name for each in named.values() for name in each) == sorted(
        set(errors.__all__) - {S3kError.__name__}
    )
    assert {*named["none: not of objects"]} == NOT_OF_OBJECTS - OF_THE_COMMAND - {"S3kError"}
    assert {*named["INVALID_ARGS"]} >= OF_THE_COMMAND
    documented = {
        name
        for verb in vars(ObjectStore).values()
        for name in re.findall(r"\w+Error\b", getattr(verb, "__doc__", None) or "")
    }
    assert not documented & NOT_OF_OBJECTS


def test_codes_are_distinct() -> None:
    codes = [getattr(errors, name).code for name in errors.__all__]
    assert len(set(codes)) == len(codes)
