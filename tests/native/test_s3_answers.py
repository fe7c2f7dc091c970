"""The native reader of S3's XML, beside Python's."""

from __future__ import annotations

from datetime import UTC, datetime
from urllib.parse import quote_plus
from xml.etree import ElementTree as ET
from xml.sax.saxutils import escape

import pytest
from hypothesis import given
from hypothesis import strategies as st

from s3k_async import _native
from s3k_async.errors import InvalidPathError, ResponseLostError

KEYS = st.text(
    st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1, max_size=20
)
IN_XML = st.text(
    st.characters(min_codepoint=0x20, exclude_categories=["Cs"], exclude_characters="\ufffe\uffff"),
    max_size=20,
)
TIMES = st.integers(0, 2**32 * 1000)
OBJECTS = st.lists(st.tuples(KEYS, st.integers(0, 2**42), TIMES), max_size=5)


def iso(ms: int) -> str:
    seconds, rest = divmod(ms, 1000)
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%S}.{rest:03}Z"


def listing(objects: list[tuple[str, int, int]], token: str) -> bytes:
    contents = "".join(
        f"<Contents><Key>{quote_plus(key)}</Key><LastModified>{iso(when)}"
        f"</LastModified><ETag>&quot;e&quot;</ETag><Size>{size}</Size></Contents>"
        for key, size, when in objects
    )
    return (
        '<?xml version="1.0" encoding="UTF-8"?><ListBucketResult xmlns="http://s3.amazonaws.com/doc/2006-03-01/">'
        f"<EncodingType>url</EncodingType><IsTruncated>true</IsTruncated>{contents}"
        f"<NextContinuationToken>{escape(token)}</NextContinuationToken></ListBucketResult>"
    ).encode()


@given(OBJECTS, IN_XML.filter(bool))
def test_a_listing_reads_back(objects: list[tuple[str, int, int]], token: str) -> None:
    rows, following, truncated = _native.decode_listing(listing(objects, token), "s3://b/")
    assert rows == [(key, size, "e", when) for key, size, when in objects]
    assert (following, truncated) == (token, True)


@given(OBJECTS, st.data())
def test_a_listing_that_breaks_off_is_never_believed(
    objects: list[tuple[str, int, int]], data: st.DataObject
) -> None:
    body = listing(objects, "t")
    with pytest.raises(ResponseLostError) as caught:
        _native.decode_listing(body[: data.draw(st.integers(0, len(body) - 1))], "s3://b/")
    assert caught.value.path == "s3://b/"


@given(st.binary(max_size=200))
def test_no_body_does_harm(body: bytes) -> None:
    _native.decode_refusal(body)
    for read in (_native.decode_listing, _native.decode_copied, _native.decode_refused):
        with pytest.raises(ResponseLostError):
            read(body, "p")


@given(
    st.lists(
        st.sampled_from(
            [b"<", b"/", b">", b"Error", b"Code", b"&", b";", b"#x41", b" ", b"DeleteResult"]
        )
    )
)
def test_no_document_does_harm(pieces: list[bytes]) -> None:
    body = b"".join(pieces)
    _native.decode_refusal(body)
    try:
        _native.decode_refused(body, "p")
    except ResponseLostError:
        return
    assert ET.fromstring(body).tag == "DeleteResult"


@given(st.lists(st.tuples(IN_XML, IN_XML), max_size=4))
def test_refused_keys_read_back(refused: list[tuple[str, str]]) -> None:
    errors = "".join(
        f"<Error><Key>{escape(key)}</Key><Code>C</Code><Message>{escape(text)}</Message></Error>"
        for key, text in refused
    )
    body = f"<DeleteResult><Deleted><Key>gone</Key></Deleted>{errors}</DeleteResult>".encode()
    assert _native.decode_refused(body, "p") == [(key, "C", text) for key, text in refused]


@given(
    st.lists(
        st.text(
            st.characters(
                codec="utf-8", exclude_categories=["Cs", "Cc"], exclude_characters="\ufffe\uffff"
            )
        )
    )
)
def test_deletions_name_their_keys(keys: list[str]) -> None:
    keys += ["tab\t", "line\nbreak\r", "<&>\"']]>"]
    found = ET.fromstring(_native.encode_deletions(keys))
    space = "{http://s3.amazonaws.com/doc/2006-03-01/}"
    assert [each.text or "" for each in found.iter(f"{space}Key")] == keys
    assert found.findtext(f"{space}Quiet") == "true"


def test_keys_that_no_document_can_hold() -> None:
    with pytest.raises(InvalidPathError):
        _native.encode_deletions(["\ud800"])


def test_a_refusal() -> None:
    body = b"<Error><Code>NoSuchKey</Code><Message>none &amp; nothing</Message><Key>k</Key></Error>"
    assert _native.decode_refusal(body) == ("NoSuchKey", "none & nothing")
    for other in (b"", body[:-3], b"<Error/>", b"<html/>", b"{}"):
        assert _native.decode_refusal(other) is None


def test_a_copy() -> None:
    assert (
        _native.decode_copied(b'<CopyObjectResult><ETag>"e-2"</ETag></CopyObjectResult>', "p")
        == "e-2"
    )
    with pytest.raises(ResponseLostError):
        _native.decode_copied(b"<CopyObjectResult/>", "p")
