"""The binary entries of S3-FileSystem 1.0."""

from __future__ import annotations

import asyncio
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from s3k_async.errors import LogFormatError
from s3k_async.oplog.binary_entries import (
    JavaEntry,
    JavaEntryV1,
    JavaEntryV2,
    read_java,
    write_java,
)

DATA = Path(__file__).parent.parent / "data" / "oplog"
V1 = JavaEntryV1(logical="ks://b/f", size=100, ctime=1_600_000_000, committed=True)
V2 = JavaEntryV2(
    ctime=1_600_000_000,
    size=0,
    physical="<uncommitted>",
    logical="ks://b/f",
    committed=False,
    version=1,
    id="123e4567-e89b-12d3-a456-426614174000",
    state="PENDING",
    kind="CREATE",
)
GOLDEN: dict[str, JavaEntry] = {"java-v1.hex": V1, "java-v2.hex": V2}
LONG = replace(V2, logical="ks://b/" + "d\u00e9\0\U0001f600" * 300, physical="s3://b/" + "x" * 5000)
HEADER = b"\xac\xed\x00\x05"

int64 = st.integers(min_value=-(2**63), max_value=2**63 - 1)
text = st.text(
    st.one_of(
        st.sampled_from("\0\x7f\x80\u07ff\u0800\uffff\U00010000"), st.characters(codec="utf-8")
    )
)
v1_entries = st.builds(JavaEntryV1, logical=text, size=int64, ctime=int64, committed=st.booleans())
v2_entries = st.builds(
    JavaEntryV2,
    ctime=int64,
    size=int64,
    physical=text,
    logical=text,
    committed=st.booleans(),
    version=st.integers(min_value=-(2**31), max_value=2**31 - 1),
    id=text,
    state=st.sampled_from(["PENDING", "COMMITTED"]),
    kind=st.sampled_from(["CREATE", "UPDATE", "DELETE"]),
)


def golden(name: str) -> bytes:
    return bytes.fromhex((DATA / name).read_text())


def stream(payload: bytes) -> bytes:
    """A short payload in one block."""
    assert 0 < len(payload) <= 255
    return HEADER + bytes([0x77, len(payload)]) + payload


def blocks(data: bytes) -> list[int]:
    """The lengths of the blocks; negative for those with a length of one byte."""
    lengths, at = [], 4
    while at < len(data):
        if data[at] == 0x77:
            length, head = data[at + 1], 2
            lengths.append(-length)
        else:
            assert data[at] == 0x7A
            length, head = int.from_bytes(data[at + 1 : at + 5], "big"), 5
            lengths.append(length)
        at += head + length
    return lengths


@pytest.mark.parametrize("name", GOLDEN)
def test_golden_vectors(name: str) -> None:
    assert read_java(golden(name)) == GOLDEN[name]
    assert write_java(GOLDEN[name]) == golden(name)


@given(v1_entries | v2_entries)
def test_any_entry_survives_the_round_trip(entry: JavaEntry) -> None:
    assert read_java(write_java(entry)) == entry


@given(st.integers(min_value=0, max_value=5000))
@example(235)
@example(236)
@example(1004)
@example(1004 + 255)
@example(1004 + 256)
def test_blocks_are_cut_at_1024_bytes(length: int) -> None:
    data = write_java(replace(V1, logical="x" * length))
    payload = 1 + 2 + length + 8 + 8 + 1
    whole, rest = divmod(payload, 1024)
    assert blocks(data) == [1024] * whole + ([rest if rest > 255 else -rest] if rest else [])


def test_a_payload_over_1024_bytes_is_read_across_its_blocks() -> None:
    assert len(blocks(write_java(LONG))) > 5
    assert read_java(write_java(LONG)) == LONG


def test_blocks_may_be_cut_anywhere() -> None:
    payload = golden("java-v2.hex")[6:]
    for size in (1, 7, 64):
        parts = [payload[at : at + size] for at in range(0, len(payload), size)]
        short = HEADER + b"".join(bytes([0x77, len(part)]) + part for part in parts)
        long = HEADER + b"".join(b"\x7a" + len(part).to_bytes(4, "big") + part for part in parts)
        assert read_java(short) == read_java(long) == V2


def test_text_is_modified_utf8() -> None:
    data = write_java(replace(V1, logical="a\0\u00e9\u20ac\U0001f600"))
    assert b"\x00\x0e" + b"a\xc0\x80\xc3\xa9\xe2\x82\xac\xed\xa0\xbd\xed\xb8\x80" in data


def test_text_over_65535_bytes_is_refused() -> None:
    assert read_java(write_java(replace(V1, logical="x" * 65_535))) == replace(
        V1, logical="x" * 65_535
    )
    for logical in ("x" * 65_536, "\0" * 32_768, "\U0001f600" * 10_923):
        with pytest.raises(LogFormatError, match="at most 65535"):
            write_java(replace(V1, logical=logical))


@pytest.mark.parametrize(
    "entry",
    [
        replace(V1, logical="\ud83d"),
        replace(V1, size=2**63),
        replace(V1, ctime=-(2**63) - 1),
        replace(V2, version=2**31),
        replace(V2, id="\udc00x"),
    ],
)
def test_what_java_cannot_hold_is_refused(entry: JavaEntry) -> None:
    with pytest.raises(LogFormatError):
        write_java(entry)


@pytest.mark.parametrize("entry", [V1, V2, LONG])
def test_a_cut_at_any_byte_is_noticed(entry: JavaEntry) -> None:
    data = write_java(entry)
    for end in range(len(data)):
        with pytest.raises(LogFormatError) as caught:
            read_java(data[:end], "k.info")
        assert caught.value.path == "k.info"


@pytest.mark.parametrize("version", [0, 3, 0x7F, 0xFF])
def test_the_version_byte_is_checked(version: int) -> None:
    with pytest.raises(LogFormatError, match=f"unknown version {version}"):
        read_java(stream(bytes([version]) + golden("java-v2.hex")[7:]))


def test_a_v1_payload_is_not_taken_for_v2_nor_the_reverse() -> None:
    with pytest.raises(LogFormatError):
        read_java(stream(b"\x02" + golden("java-v1.hex")[7:]))
    with pytest.raises(LogFormatError):
        read_java(stream(b"\x01" + golden("java-v2.hex")[7:]))


@pytest.mark.parametrize("trailing", [b"\0", b"\x77\x01\0", b"\x77\0", b"\x70", HEADER])
def test_trailing_bytes_are_noticed(trailing: bytes) -> None:
    for name in GOLDEN:
        with pytest.raises(LogFormatError):
            read_java(golden(name) + trailing)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b"PENDING", b"PENDINC"),
        (b"PENDING", b"pending"),
        (b"CREATE", b"RENAME"),
        (b"ks://b/f", b"ks://b/\0"),
        (b"ks://b/f", b"ks://b/\x80"),
        (b"ks://b/f", b"ks://b/\xc3"),
        (b"ks://b/f", b"ks://b\xc1\x81"),
        (b"ks://b/f", b"ks:/\xf0\x9f\x98\x80"),
        (b"ks://b/f", b"ks://\xed\xa0\xbd"),
        (b"ks://b/f", b"ks://\xed\xb8\x80"),
        (b"f\x00\x00\x00\x00\x01", b"f\x02\x00\x00\x00\x01"),
        (b"<uncommitted>", b"<uncommitte\xff>"),
    ],
)
def test_fields_that_no_java_writer_produces_are_noticed(old: bytes, new: bytes) -> None:
    data = golden("java-v2.hex")
    assert data.count(old) == 1
    assert len(old) == len(new)
    with pytest.raises(LogFormatError):
        read_java(data.replace(old, new))


@pytest.mark.parametrize(
    "data",
    [
        b"",
        HEADER,
        b'{"s3k":"oplog-entry"}',
        b"\xac\xed\x00\x06" + golden("java-v2.hex")[4:],
        HEADER + b"\x73\x72",
        HEADER + b"\x7a\xff\xff\xff\xff\x01",
        HEADER + b"\x7a\x7f\xff\xff\xff\x01",
    ],
)
def test_foreign_bytes_are_no_entry(data: bytes) -> None:
    with pytest.raises(LogFormatError):
        read_java(data)


@given(st.binary(max_size=300))
def test_random_blocks_raise_nothing_else(payload: bytes) -> None:
    data = HEADER + b"\x7a" + len(payload).to_bytes(4, "big") + payload
    try:
        entry = read_java(data)
    except LogFormatError:
        return
    assert read_java(write_java(entry)) == entry


def java_fields(entry: JavaEntry) -> str:
    """The fields of an entry as the Java program of this test wants them."""

    def utf(value: str) -> str:
        return "s:" + value.encode("utf-16-be").hex()

    def flag(value: bool) -> str:
        return f"z:{str(value).lower()}"

    if isinstance(entry, JavaEntryV1):
        fields = [
            "b:1",
            utf(entry.logical),
            f"l:{entry.size}",
            f"l:{entry.ctime}",
            flag(entry.committed),
        ]
    else:
        fields = [
            "b:2",
            f"l:{entry.ctime}",
            f"l:{entry.size}",
            utf(entry.physical),
            utf(entry.logical),
        ]
        fields += [
            flag(entry.committed),
            f"i:{entry.version}",
            utf(entry.id),
            utf(entry.state),
            utf(entry.kind),
        ]
    return ",".join(fields)


@pytest.mark.engine
async def test_a_java_program_writes_the_same_bytes() -> None:
    java = shutil.which("java")
    if java is None:
        pytest.skip("no java on the PATH: install a JDK of version 17 or newer")
    entries: list[JavaEntry] = [V1, V2, LONG, replace(V1, logical="", size=-1)]
    # Lengths that put the end of a block before, within and after each of the fields that follow
    # the text.
    entries += [
        replace(V1, logical="x" * length)
        for length in (234, 235, 236, *range(995, 1030), 1259, 1260, 2040, 2047)
    ]
    entries += [
        replace(V2, physical="\u20ac" * length, version=-(2**31))
        for length in (320, 330, 340, 341, 342)
    ]
    entries += [
        replace(V2, logical="\0\U0001f600" * 150, physical="y" * length)
        for length in range(50, 80, 3)
    ]
    program = await asyncio.create_subprocess_exec(
        java,
        "-XX:TieredStopAtLevel=1",
        str(Path(__file__).parent / "JavaEntries.java"),
        *(java_fields(entry) for entry in entries),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    output, errors = await program.communicate()
    assert program.returncode == 0, errors.decode()
    assert [bytes.fromhex(line) for line in output.decode().split()] == [
        write_java(entry) for entry in entries
    ]
