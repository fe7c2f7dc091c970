"""The parser of answers: what it reads is the same however the bytes are cut, and what RFC 9112
does not allow is an error, never a body."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

import pytest

from s3k_async.backends.aws.http_answer import AnswerHeaders, AnswerParser
from s3k_async.errors import ResponseLostError

MOST = 200_000


class Seen(NamedTuple):
    status: int
    body: bytes
    is_whole: bool
    is_persistent: bool
    headers: dict[str, str]


def read(pieces: Iterable[bytes], *, head: bool = False, end: bool = False) -> Seen:
    parser = AnswerParser(is_bodiless=head, most=MOST)
    for piece in pieces:
        parser.feed(piece)
    if end:
        parser.end()
    seen = (parser.status, parser.body, parser.is_whole, parser.is_persistent)
    return Seen(*seen, dict(parser.headers))


def cuts(data: bytes) -> Iterator[list[bytes]]:
    """The bytes in two parts, cut at each place, and one by one."""
    for place in range(1, len(data)):
        yield [data[:place], data[place:]]
    yield [data[place : place + 1] for place in range(len(data))]


def head(*lines: str, start: str = "HTTP/1.1 200 OK") -> bytes:
    return "\r\n".join((start, *lines, "", "")).encode("latin-1")


CHUNKED = head("Transfer-Encoding: chunked")
FOUR = head("Content-Length: 4") + b"data"

WHOLE: Mapping[str, tuple[bytes, int, bytes, bool]] = {
    "by length": (FOUR, 200, b"data", True),
    "nothing by length": (head("Content-Length: 0"), 200, b"", True),
    "length with leading zeros": (head("Content-Length: 0004") + b"data", 200, b"data", True),
    "spaces around a value": (head("content-length: \t 4 \t") + b"data", 200, b"data", True),
    "no reason": (head("Content-Length: 0", start="HTTP/1.1 404"), 404, b"", True),
    "empty reason": (head("Content-Length: 0", start="HTTP/1.1 404 "), 404, b"", True),
    "reason that is no ASCII": (
        head("Content-Length: 0", start="HTTP/1.1 500 d\xe9fait"),
        500,
        b"",
        True,
    ),
    "no content": (head(start="HTTP/1.1 204 No Content"), 204, b"", True),
    "not modified": (head("Content-Length: 4", start="HTTP/1.1 304 X"), 304, b"", False),
    "close": (head("Content-Length: 4", "Connection: Close") + b"data", 200, b"data", False),
    "close in the second field": (
        head("Content-Length: 0", "Connection: keep-alive", "Connection: close"),
        200,
        b"",
        False,
    ),
    "version 1.0": (
        head("Content-Length: 4", start="HTTP/1.0 200 OK") + b"data",
        200,
        b"data",
        False,
    ),
    "chunks": (CHUNKED + b"4\r\ndata\r\n1;a=b\r\n!\r\n0\r\n\r\n", 200, b"data!", True),
    "chunk of ten": (CHUNKED + b"00A\r\n0123456789\r\n0;last\r\n\r\n", 200, b"0123456789", True),
    "line ends in chunks": (CHUNKED + b"4\r\n\r\n\r\n\r\n0\r\n\r\n", 200, b"\r\n\r\n", True),
    "no chunk": (CHUNKED + b"0\r\n\r\n", 200, b"", True),
    "trailers": (CHUNKED + b"1\r\n!\r\n0\r\nX-Sum: 7\r\nX: y\r\n\r\n", 200, b"!", True),
    "space before an extension": (CHUNKED + b"1 ;x\r\n!\r\n0\r\n\r\n", 200, b"!", True),
    "continue": (head(start="HTTP/1.1 100 Continue") + FOUR, 200, b"data", True),
    "hints": (
        head("Link: </a>", start="HTTP/1.1 103 Early Hints") * 3 + FOUR,
        200,
        b"data",
        True,
    ),
    "bytes that follow": (FOUR + b"x", 200, b"data", False),
    "an answer that follows": (FOUR + FOUR, 200, b"data", False),
    "bytes after chunks": (CHUNKED + b"1\r\n!\r\n0\r\n\r\nx", 200, b"!", False),
    "bytes after no content": (head(start="HTTP/1.1 204 X") + b"x", 204, b"", False),
    "a body of no content": (
        head("Content-Length: 4", start="HTTP/1.1 204 X") + b"data",
        204,
        b"",
        False,
    ),
    "a body of not modified": (
        head("Content-Length: 4", start="HTTP/1.1 304 X") + b"data",
        304,
        b"",
        False,
    ),
}


@pytest.mark.parametrize("name", WHOLE)
def test_answers(name: str) -> None:
    data, status, body, is_persistent = WHOLE[name]
    seen = read([data])
    assert seen[:4] == (status, body, True, is_persistent)
    if name.startswith(("bytes ", "an answer that")):
        return
    for pieces in cuts(data):
        assert read(pieces) == seen, pieces


def test_a_body_until_the_end() -> None:
    data = head("ETag: x") + b"data"
    assert not read([data]).is_whole
    for pieces in [[data], *cuts(data)]:
        assert read(pieces, end=True)[:4] == (200, b"data", True, False)


def test_a_body_after_an_answer_to_head_is_not_read() -> None:
    seen = read([FOUR], head=True)
    assert (seen.body, seen.is_whole, seen.is_persistent) == (b"", True, False)


def test_an_answer_to_head_has_no_body() -> None:
    for lines in (["Content-Length: 9"], ["Transfer-Encoding: chunked"], []):
        seen = read([head(*lines)], head=True)
        assert (seen.body, seen.is_whole) == (b"", True)
    assert read([head("Content-Length: 9")], head=True).is_persistent
    assert not read([head("Content-Length: 9") + b"x"], head=True).is_persistent


MALFORMED: Mapping[str, bytes] = {
    "another protocol": b"220 mail.example ESMTP\r\n",
    "TLS": b"\x15\x03\x01\x00\x02\x02\x46",
    "a request": b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
    "version 2": head(start="HTTP/2.0 200 OK"),
    "version 1.2": head(start="HTTP/1.2 200 OK"),
    "lower case": head(start="http/1.1 200 OK"),
    "status of two digits": head(start="HTTP/1.1 20 OK"),
    "status of four digits": head(start="HTTP/1.1 2000 OK"),
    "status below 100": head(start="HTTP/1.1 099 OK"),
    "status with a sign": head(start="HTTP/1.1 +20 OK"),
    "two spaces": head(start="HTTP/1.1  200 OK"),
    "line feeds alone": b"HTTP/1.1 200 OK\nContent-Length: 0\n",
    "a line feed alone": b"HTTP/1.1 200 OK\r\nA: b\nContent-Length: 0\r\n",
    "a carriage return alone": head("A: b\rc", "Content-Length: 0"),
    "NUL": head("A: b\0c", "Content-Length: 0"),
    "a folded field": head("A: b", " c", "Content-Length: 0"),
    "a space before the colon": head("Content-Length : 0"),
    "no colon": head("Content-Length 0"),
    "no name": head(": 0"),
    "a name with a space": head("Content Length: 0"),
    "a name that is no ASCII": head("\xe9: 0"),
    "two lengths": head("Content-Length: 1", "Content-Length: 2") + b"ab",
    "the same length twice": head("Content-Length: 1", "Content-Length: 1") + b"a",
    "lengths in one field": head("Content-Length: 1, 1") + b"a",
    "a negative length": head("Content-Length: -1"),
    "a length with a sign": head("Content-Length: +1") + b"a",
    "a length in hexadecimal": head("Content-Length: 0x1") + b"a",
    "a length with an underscore": head("Content-Length: 1_0") + b"0123456789",
    "another digit": head("Content-Length: \xb2") + b"ab",
    "no length": head("Content-Length:"),
    "a length without end": head("Content-Length: " + "9" * 30),
    "a length beside chunks": head("Content-Length: 1", "Transfer-Encoding: chunked"),
    "chunks twice": head("Transfer-Encoding: chunked", "Transfer-Encoding: chunked"),
    "chunks of chunks": head("Transfer-Encoding: chunked, chunked"),
    "another coding": head("Transfer-Encoding: gzip, chunked"),
    "no coding": head("Transfer-Encoding:"),
    "identity": head("Transfer-Encoding: identity"),
    "chunks of version 1.0": head("Transfer-Encoding: chunked", start="HTTP/1.0 200 OK"),
    "another protocol from now on": head("Upgrade: x", start="HTTP/1.1 101 X"),
    "a size that is none": CHUNKED + b"zz",
    "no size": CHUNKED + b"\r\n",
    "a size with a sign": CHUNKED + b"+1",
    "a size of 16 digits": CHUNKED + b"0" * 16,
    "a space after the size": CHUNKED + b"1 \r\n!\r\n0\r\n\r\n",
    "a chunk that is too short": CHUNKED + b"4\r\nabc\r\n",
    "a chunk that is too long": CHUNKED + b"4\r\ndataX",
    "a line feed after the size": CHUNKED + b"1\n",
    "a line feed after a chunk": CHUNKED + b"1\r\n!\n",
    "a trailer that is none": CHUNKED + b"0\r\nnothing\r\n\r\n",
}


@pytest.mark.parametrize("name", MALFORMED)
def test_malformed_answers(name: str) -> None:
    """Found out without another byte, and without the end of the connection."""
    data = MALFORMED[name]
    for pieces in [[data], *cuts(data)]:
        with pytest.raises(ResponseLostError, match="cannot be understood"):
            read(pieces)


@pytest.mark.parametrize("name", [name for name in WHOLE if "follow" not in name])
def test_answers_that_end_early(name: str) -> None:
    data = WHOLE[name][0]
    for place in range(len(data)):
        if not read([data[:place]]).is_whole:
            with pytest.raises(ResponseLostError, match="broke"):
                read([data[:place]], end=True)


def test_bodies_over_the_limit() -> None:
    for data in (
        head(f"Content-Length: {MOST + 1}"),
        CHUNKED + f"{MOST + 1:x}\r\n".encode(),
        CHUNKED + f"{MOST:x}\r\n".encode() + bytes(MOST) + b"\r\n1\r\n",
        head() + bytes(MOST + 1),
    ):
        with pytest.raises(ResponseLostError, match=f"more than the {MOST} bytes"):
            read([data])
    assert len(read([head(f"Content-Length: {MOST}") + bytes(MOST)]).body) == MOST
    assert read([head(f"Content-Length: {MOST + 1}")], head=True).is_whole


@pytest.mark.parametrize(
    "data",
    [
        b"HTTP/1.1 200 OK\r\nX: " + b"x" * 70_000,
        head("X: " + "x" * 70_000, "Content-Length: 0"),
        head(*["X: y"] * 129, "Content-Length: 0"),
        head(start="HTTP/1.1 100 Continue") * 17 + FOUR,
        CHUNKED + b"1;" + b"x" * 10_000,
        CHUNKED + b"0\r\n" + b"X: y\r\n" * 3_000,
    ],
)
def test_heads_over_the_limit(data: bytes) -> None:
    for size in (len(data), 1000):
        with pytest.raises(ResponseLostError, match="cannot be understood"):
            read(data[at : at + size] for at in range(0, len(data), size))


@pytest.mark.parametrize("length", [MOST, 70_000, 10])
def test_a_large_body_is_read_in_place(length: int) -> None:
    body = bytes(range(256)) * (length // 256 + 1)
    parser = AnswerParser(is_bodiless=False, most=MOST)
    assert parser.room() is None
    parser.feed(head(f"Content-Length: {length}") + body[:5])
    read_so_far = 5
    while not parser.is_whole:
        room = parser.room()
        if room is None:
            assert length < 65_536
            parser.feed(body[read_so_far:length])
        else:
            part = body[read_so_far : read_so_far + min(len(room), 30_000)]
            part = part[: length - read_so_far]
            room[: len(part)] = part
            parser.fill(len(part))
            read_so_far += len(part)
            assert parser.size == read_so_far
    assert parser.body == body[:length]
    assert type(parser.body) is bytes


@pytest.mark.parametrize("data", [head(), CHUNKED, head("Content-Length: 10")])
def test_other_bodies_are_not(data: bytes) -> None:
    parser = AnswerParser(is_bodiless=False, most=MOST)
    parser.feed(data)
    assert parser.room() is None


PARTIAL = "HTTP/1.1 206 Partial Content"


@pytest.mark.parametrize("length", [0, 1, 10, 100_000])
@pytest.mark.parametrize("first", [0, 1, 5])
def test_the_body_of_a_partial_answer_is_put_into_a_buffer(length: int, first: int) -> None:
    body = bytes(range(256)) * (length // 256 + 1)
    buffer = bytearray(b"?" * (length + 3))
    parser = AnswerParser(is_bodiless=False, most=MOST, into=memoryview(buffer))
    at = min(first, length)
    parser.feed(head(f"Content-Length: {length}", start=PARTIAL) + body[:at])
    while not parser.is_whole:
        room = parser.room()
        assert room is not None
        assert len(room) == length - at
        part = body[at : min(at + 30_000, length)]
        room[: len(part)] = part
        parser.fill(len(part))
        at += len(part)
    assert buffer == body[:length] + b"???"
    assert (parser.body, parser.size, parser.is_persistent) == (b"", length, True)


def test_bytes_after_the_body_do_not_get_into_the_buffer() -> None:
    for cut in cuts(head("Content-Length: 4", start=PARTIAL) + b"data"):
        buffer = bytearray(b"?" * 6)
        parser = AnswerParser(is_bodiless=False, most=MOST, into=memoryview(buffer))
        *before, last = cut
        for piece in before:
            parser.feed(piece)
        parser.feed(last + b"more")
        assert (parser.is_whole, parser.is_persistent) == (True, False)
        assert buffer == b"data??"


@pytest.mark.parametrize(
    ("answer", "body"),
    [
        (FOUR, b"data"),
        (head("Content-Length: 7", start=PARTIAL) + b"toolong", b"toolong"),
        (head("Content-Length: 4", start="HTTP/1.1 404 Not Found") + b"none", b"none"),
        (head("Content-Length: 4", start="HTTP/1.1 500 Error") + b"fail", b"fail"),
        (head("Transfer-Encoding: chunked", start=PARTIAL) + b"2\r\nda\r\n0\r\n\r\n", b"da"),
    ],
)
def test_other_bodies_do_not_get_into_the_buffer(answer: bytes, body: bytes) -> None:
    for cut in cuts(answer):
        buffer = bytearray(b"?" * 6)
        parser = AnswerParser(is_bodiless=False, most=MOST, into=memoryview(buffer))
        for piece in cut:
            parser.feed(piece)
        assert (parser.is_whole, parser.body) == (True, body)
        assert buffer == b"?" * 6


def test_headers_in_any_case() -> None:
    headers = AnswerHeaders({"etag": "x", "date": "y"})
    assert headers["ETag"] == headers["etag"] == headers.get("ETAG") == "x"
    assert "Date" in headers
    assert headers.get("other") is None
    assert headers.get("other", "") == ""
    assert (len(headers), list(headers)) == (2, ["etag", "date"])
    with pytest.raises(KeyError):
        headers["other"]


def test_of_a_field_that_occurs_twice_the_first_counts() -> None:
    seen = read([head("ETag: one", "etag: two", "Content-Length: 0")])
    assert seen.headers["etag"] == "one"


def test_what_the_service_asked_for() -> None:
    parser = AnswerParser(is_bodiless=False, most=MOST)
    parser.feed(head(start="HTTP/1.1 103 Early Hints"))
    assert not parser.may_continue
    parser.feed(head(start="HTTP/1.1 100 Continue"))
    assert parser.may_continue
    assert not parser.status
