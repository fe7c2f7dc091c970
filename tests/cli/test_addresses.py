"""How volumes and paths are written."""

from __future__ import annotations

import pytest

from s3k_async.cli.volume_addresses import parse_address, parse_volume_address
from s3k_async.errors import InvalidArgumentError


@pytest.mark.parametrize(
    ("text", "volume", "path"),
    [
        ("/raw/day=1", None, "/raw/day=1"),
        ("/", None, "/"),
        (":/", None, "/"),
        (":/raw", None, "/raw"),
        (":/a:/b", None, "/a:/b"),
        ("/raw/", None, "/raw/"),
        ("./vol", "./vol", "/"),
        ("./vol/", "./vol/", "/"),
        (".", ".", "/"),
        ("..", "..", "/"),
        ("../vol", "../vol", "/"),
        ("~/vol", "~/vol", "/"),
        ("./vol:/", "./vol", "/"),
        ("./vol:/a/b", "./vol", "/a/b"),
        ("./vol:/a:/b", "./vol", "/a:/b"),
        ("/data/vol:/a", "/data/vol", "/a"),
        ("/data/vol:/", "/data/vol", "/"),
        ("sub/vol:/a", "sub/vol", "/a"),
        ("s3k://name", "s3k://name", "/"),
        ("s3k://name/", "s3k://name", "/"),
        ("s3k://name/a/b", "s3k://name", "/a/b"),
        ("s3k://name/a:/b", "s3k://name", "/a:/b"),
        ("S3K://name/a", "s3k://name", "/a"),
        ("memory://name/a", "memory://name", "/a"),
        ("file:///data/vol", "file:///data/vol", "/"),
        ("file:///data/vol:/a", "file:///data/vol", "/a"),
    ],
)
def test_a_path_argument(text: str, volume: str | None, path: str) -> None:
    address = parse_address(text)
    assert (address.volume, address.path) == (volume, path)
    assert str(address) == text


@pytest.mark.parametrize(
    ("text", "volume"),
    [("/data/vol", "/data/vol"), ("./vol", "./vol"), ("s3k://name", "s3k://name"), ("/", "/")],
)
def test_a_volume_argument(text: str, volume: str) -> None:
    assert (parse_volume_address(text).volume, parse_volume_address(text).path) == (volume, "/")


def test_a_volume_argument_may_have_a_path() -> None:
    address = parse_volume_address("/data/vol:/a")
    assert (address.volume, address.path) == ("/data/vol", "/a")


@pytest.mark.parametrize(
    "text", ["", "raw", "raw/day=1", "http://host/a", "s3://bucket/key", "s3k://", "s3k://-x/a"]
)
def test_what_is_no_address(text: str) -> None:
    with pytest.raises(InvalidArgumentError):
        parse_address(text)


def test_what_may_have_been_meant_is_said() -> None:
    with pytest.raises(
        InvalidArgumentError, match=r"Write /raw for .*, \./raw for .*, s3k://raw for"
    ):
        parse_address("raw")


@pytest.mark.parametrize(
    ("target", "name", "path"),
    [("/a/", "x", "/a/x"), ("/", "x", "/x"), ("./vol", "x", "/x"), ("/a/", "", "/a/")],
)
def test_a_target_with_a_slash_at_the_end_takes_things_below_it(
    target: str, name: str, path: str
) -> None:
    assert parse_address(target).is_into
    assert parse_address(target).below(name) == path


def test_a_target_without_a_slash_is_the_path_itself() -> None:
    assert not parse_address("/a").is_into
