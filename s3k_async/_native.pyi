"""Paths, table keys, physical keys, digests and signed requests.

Pure functions. Those with many values release the interpreter while they work; the error of the
first invalid value contains it. A `count` outside 1 to 65,536 and an unknown `hash` are
ValueErrors.

Where a function takes a `volume`, its name means layout `path`, and None layout `tree`. An entry
key, what the keys of an item are made of, is in layout `path` the path, which begins with `/`, and
in layout `tree` `<directory id>/<name>`, which does not; a directory key is in layout `path` the
path of the directory, in layout `tree` its id, of 1 to 64 ASCII letters, digits, `-` and `_`.
Entry and directory keys of the other layout raise InvalidPathError. A path is normalised; an entry
key of layout `tree` must be exactly of its form.
"""

from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from datetime import datetime
from typing import ClassVar, final, overload

from typing_extensions import Buffer

from s3k_async.attributes import Attributes
from s3k_async.backends.ports.blobs import BlobInfo
from s3k_async.backends.ports.items import Action, Delete, Item, Put, Update, Value
from s3k_async.model import Entry, HashName
from s3k_async.oplog.entries import LogState, Operation

__all__ = [
    "Deletes",
    "Entries",
    "EntryFacts",
    "FactLines",
    "FileStatus",
    "Moves",
    "Operations",
    "Page",
    "PartLines",
    "Resolutions",
    "Rows",
    "Signer",
    "Xxh3_128",
    "ancestors",
    "answer_head",
    "blob_facts",
    "committed_claims",
    "committed_facts",
    "crc32",
    "decode_batch",
    "decode_copied",
    "decode_item",
    "decode_key",
    "decode_keys",
    "decode_listing",
    "decode_page",
    "decode_refusal",
    "decode_refused",
    "encode_batch_get",
    "encode_deletions",
    "encode_get",
    "encode_load",
    "encode_query",
    "encode_scan",
    "encode_transaction",
    "encode_write",
    "entry_facts",
    "has_directories",
    "item_key",
    "item_keys",
    "join",
    "lonely_children",
    "named_facts",
    "normalize",
    "normalize_many",
    "object_id_of",
    "old_blob_facts",
    "operation_line",
    "partition_key",
    "partition_keys",
    "physical_key",
    "physical_keys",
    "record_facts",
    "request_head",
    "sha256_hex",
    "split",
    "status_of",
    "suffix_index",
    "suffix_indexes",
    "undecided_facts",
    "unnamed_blobs",
    "uuid_text",
    "uuid_texts",
    "xxh3_64",
]

def normalize(path: str) -> str:
    """Normalised absolute form of a path: one `/` between names, `.` and `..` resolved, none at the
    end.

    A path without a leading `/` is one below the root. Raises InvalidPathError for an empty path,
    NUL, `..` above the root, a name over 1,024 bytes of UTF-8, and text that UTF-8 cannot encode.
    """

def normalize_many(paths: Sequence[str]) -> list[str]:
    """`normalize` for each path."""

def split(path: str) -> tuple[str, str]:
    """Parent and name of a path, after normalisation. Raises InvalidPathError, also for the
    root."""

def join(parent: str, name: str) -> str:
    """Path of the child `name`, a single component. Raises InvalidPathError."""

def ancestors(path: str) -> list[str]:
    """The ancestors of a path, topmost first, without the root. Raises InvalidPathError for a path
    that is too long for a key.
    """

def suffix_index(name: str, count: int, hash: HashName) -> int:
    """The suffix of a name, from 0 to `count` - 1.

    `xxh3`: XXH3 of 64 bits, seed 0, of the UTF-8 bytes, modulo `count`. `java31`: the Java string
    hash over UTF-16 code units, its absolute value modulo `count`; floor modulo for -2**31, which
    has no absolute value of 32 bits. Raises InvalidPathError for anything but one component.
    """

def suffix_indexes(names: Sequence[str], count: int, hash: HashName) -> list[int]:
    """`suffix_index` of each name."""

def partition_key(volume: str | None, parent: str, index: int) -> str:
    """Partition key of one suffix of a directory, by its directory key:
    `ks://<volume>/<parent>-sf<index>`, or in layout `tree` `s3k:tree/<parent>-sf<index>`.

    Raises InvalidPathError for a volume name that is empty or contains `/` or NUL, and for a key
    over 2,048 bytes.
    """

def partition_keys(volume: str | None, parent: str, count: int) -> list[str]:
    """Partition keys of all suffixes of a directory, in order. Raises InvalidPathError if the
    longest is too long."""

def item_key(volume: str | None, path: str, count: int, hash: HashName) -> tuple[str, str]:
    """Partition and sort key of an entry key. Raises InvalidPathError, also for the root, which has
    no item.

    The length of a key is checked with the longest suffix of the directory, not with the name's
    own.
    """

def item_keys(
    volume: str | None, paths: Sequence[str], count: int, hash: HashName
) -> tuple[list[str], list[str]]:
    """`item_key` of each entry key: all partition keys, and all sort keys."""

def decode_key(volume: str | None, partition: str, sort: str) -> str:
    """Entry key of an item, the inverse of `item_key`. Raises ItemFormatError for keys that
    `item_key` does not make, those of the other layout included."""

def decode_keys(volume: str | None, partitions: Sequence[str], sorts: Sequence[str]) -> list[str]:
    """`decode_key` of each pair. Raises ValueError for different numbers of them."""

def encode_get(table: str, partition: str, sort: str) -> bytes:
    """Body of a strongly consistent GetItem.

    This and the other `encode` functions raise InvalidPathError for a key and InvalidArgumentError
    for other text that UTF-8 cannot encode, TypeError for an attribute that is no str, int or bool.
    Nothing else is checked: see `backends.ports.item_semantics.validate`.
    """

def encode_batch_get(table: str, keys: Sequence[tuple[str, str]]) -> bytes:
    """Body of a strongly consistent BatchGetItem of one table."""

def encode_load(table: str, items: Sequence[Item]) -> bytes:
    """Body of a BatchWriteItem that puts whole items into one table."""

def encode_query(
    table: str, partition: str, start: tuple[str, str] | None, limit: int | None
) -> bytes:
    """Body of a strongly consistent Query of one partition, after the key `start`."""

def encode_scan(
    table: str, segment: int, segments: int, start: tuple[str, str] | None, limit: int | None
) -> bytes:
    """Body of a strongly consistent Scan of one segment, after the key `start`."""

def encode_write(table: str, action: Put | Update | Delete) -> bytes:
    """Body of a PutItem, UpdateItem or DeleteItem; if the condition fails, the stored item is
    returned."""

def encode_transaction(table: str, actions: Sequence[Action], token: str) -> bytes:
    """Body of a TransactWriteItems; for failed conditions the stored items are returned."""

def uuid_text(entropy: bytes) -> str:
    """A UUID of version 4 (RFC 9562), lower case, from 16 bytes of entropy. Raises ValueError for
    another length."""

def uuid_texts(entropy: bytes) -> list[str]:
    """A UUID from each 16 bytes of entropy."""

def physical_key(object_id: str, entropy: bytes) -> str:
    """A physical key: `<uuid of the entropy>.id=<object id>`.

    Raises InvalidPathError for an object id that is empty, contains `/`, NUL or `.id=`, or makes
    the key longer than the 1,024 bytes that S3 allows.
    """

def physical_keys(object_ids: Sequence[str], entropy: bytes) -> list[str]:
    """`physical_key` of each object id, with 16 bytes of the entropy each."""

def object_id_of(physical_key: str) -> str | None:
    """The object id in a physical key or URI: the text after the last `.id=`. None without one, or
    if it has a `/`."""

def xxh3_64(data: Buffer) -> int:
    """XXH3 of 64 bits, seed 0."""

def sha256_hex(data: Buffer) -> str:
    """SHA-256, as 64 lower-case hex digits."""

def crc32(data: Buffer) -> int:
    """CRC-32 as zlib's: what DynamoDB sends as `x-amz-crc32`."""

@final
class Moves(Sequence[Action]):
    """Moves of entries into a directory: for each a Delete of the stored item, if it is unchanged,
    and a Put of the next version below `target`, if no item is there. `encode_transaction` writes
    the bodies from the columns.

    `entropy` is 16 bytes for each entry, for its operation id. Raises InvalidPathError for an
    invalid or too long target, ValueError for another amount of entropy, and for layout `tree`,
    where the items below a moved directory stay as they are.

    With `intents`, one for the source and one for the target, the stored item is not deleted: an
    Update sets its write intent and, for a directory, the operation id; the item at the target has
    the other write intent. Raises ValueError for an empty intent.
    """

    __hash__: ClassVar[None]  # type: ignore[assignment]
    def __new__(
        cls,
        entries: Entries,
        volume: str | None,
        target: str,
        suffix_count: int,
        hash: HashName,
        entropy: bytes,
        intents: tuple[str, str] | None = None,
    ) -> Moves: ...
    def __len__(self) -> int: ...
    @overload
    def __getitem__(self, key: int, /) -> Action: ...
    @overload
    def __getitem__(self, key: slice, /) -> list[Action]: ...
    def __eq__(self, value: object, /) -> bool: ...
    def index(self, value: object, start: int = 0, stop: int | None = None) -> int:
        """Place of the first equal element from `start` up to `stop`. Raises ValueError if there is
        none."""

    def count(self, value: object) -> int:
        """How many elements are equal."""

    def take(self, rows: Sequence[int]) -> Moves:
        """The moves of some entries, by index. Raises ValueError for an index out of range."""

    def operations(self, time_ms: int) -> Operations:
        """What the log says of them, begun at a time in epoch milliseconds."""

@final
class Deletes(Sequence[Action]):
    """Removals of entries: for each a Delete of the stored item, if it is unchanged. With `intent`,
    an Update that sets its write intent instead, as for `Moves`. `entropy` and errors are those of
    `Moves`.
    """

    __hash__: ClassVar[None]  # type: ignore[assignment]
    def __new__(cls, entries: Entries, entropy: bytes, intent: str | None = None) -> Deletes: ...
    def __len__(self) -> int: ...
    @overload
    def __getitem__(self, key: int, /) -> Action: ...
    @overload
    def __getitem__(self, key: slice, /) -> list[Action]: ...
    def __eq__(self, value: object, /) -> bool: ...
    def index(self, value: object, start: int = 0, stop: int | None = None) -> int:
        """Place of the first equal element from `start` up to `stop`. Raises ValueError if there is
        none."""

    def count(self, value: object) -> int:
        """How many elements are equal."""

    def take(self, rows: Sequence[int]) -> Deletes:
        """The removals of some entries, by index. Raises ValueError for an index out of range."""

    def operations(self, time_ms: int) -> Operations:
        """What the log says of them, begun at a time in epoch milliseconds."""

@final
class Resolutions(Sequence[Action]):
    """Resolutions of write intents, which are already logged: for each entry a Delete of the stored
    item, if it is unchanged, or, unless `remove`, an Update that removes its `next`.
    """

    __hash__: ClassVar[None]  # type: ignore[assignment]
    def __new__(cls, entries: Entries, remove: bool) -> Resolutions: ...
    def __len__(self) -> int: ...
    @overload
    def __getitem__(self, key: int, /) -> Action: ...
    @overload
    def __getitem__(self, key: slice, /) -> list[Action]: ...
    def __eq__(self, value: object, /) -> bool: ...
    def index(self, value: object, start: int = 0, stop: int | None = None) -> int:
        """Place of the first equal element from `start` up to `stop`. Raises ValueError if there is
        none."""

    def count(self, value: object) -> int:
        """How many elements are equal."""

    def take(self, rows: Sequence[int]) -> Resolutions:
        """The resolutions of some entries, by index. Raises ValueError for an index out of
        range."""

@final
class Operations(Sequence[Operation]):
    """The log records of `Moves` or `Deletes`; an Operation is created on each access. A slice
    shares the columns.
    """

    __hash__: ClassVar[None]  # type: ignore[assignment]
    def __len__(self) -> int: ...
    @overload
    def __getitem__(self, key: int, /) -> Operation: ...
    @overload
    def __getitem__(self, key: slice, /) -> Operations: ...
    def __eq__(self, value: object, /) -> bool: ...
    def index(self, value: object, start: int = 0, stop: int | None = None) -> int:
        """Place of the first equal element from `start` up to `stop`. Raises ValueError if there is
        none."""

    def count(self, value: object) -> int:
        """How many elements are equal."""

    def with_metadata(self) -> list[int]:
        """Indexes of the operations that give an entry with user metadata another place."""

    def ids(self) -> list[str]:
        """The operation ids."""

    def lines(self, start: int, end: int) -> bytes:
        """The lines of the operations [start, end), as `oplog.entries.operation_line`, each ended
        by a newline.

        An entry of layout `tree` has its directory key as `directory`, after its path. Raises
        LogFormatError, with the entry's path, for an object id or a version that the log cannot
        hold, and for an entry whose path is not known.
        """

@final
class Signer:
    """AWS Signature Version 4, in the `Authorization` header. Safe to share between threads.

    For one service (`dynamodb`, `s3`), region and set of credentials; `token` is a session token or
    None. The derived key is cached for the day. Its repr and errors contain no secret, and it
    cannot be pickled. Raises CredentialsError for credentials that UTF-8 cannot encode.

    Source: "AWS Signature Version 4 for API requests", AWS IAM User Guide.
    """

    def __new__(
        cls, access_key: str, secret_key: str, token: str | None, region: str, service: str
    ) -> Signer: ...
    def headers(
        self,
        method: str,
        host: str,
        path: str,
        query: str,
        headers: list[tuple[str, str]],
        body_sha256: str,
        time_ms: int,
    ) -> list[tuple[str, str]]:
        """The headers to send: the given ones, then `Host`, `X-Amz-Date`, for S3
        `X-Amz-Content-SHA256`, with a token `X-Amz-Security-Token`, and `Authorization`. The given
        ones must not include any of these.

        All are signed except those that proxies change. `host` includes the port unless it is the
        default of the scheme. `path` and `query` are signed unchanged: the caller has URI-encoded
        them and sorted the query. `body_sha256` is 64 hex digits, or for S3 also
        `UNSIGNED-PAYLOAD`; `time_ms` is epoch milliseconds. Raises InvalidArgumentError for text
        that UTF-8 cannot encode, and for years before 1970 and after 9999.
        """

    def dynamodb(self, host: str, target: str, body: bytes, time_ms: int) -> list[tuple[str, str]]:
        """All headers of a DynamoDB call except the content length. `target` is the complete
        `X-Amz-Target`, such as `DynamoDB_20120810.GetItem`. Requests uncompressed responses. Raises
        InvalidArgumentError as `headers`.
        """

def has_directories(lines: bytes) -> bool:
    """Whether a state in lines of operations has a directory key: then they need the newest format
    of what contains them."""

def operation_line(operation: Operation) -> bytes | None:
    """An operation as a line of the log, without the newline. None for one that concerns the trash,
    has a field of a wrong type or that UTF-8 cannot encode, contradicts itself, or has a state that
    no item of any volume can have."""

def answer_head(
    data: bytes, at: int
) -> tuple[int, int, dict[str, str], int | None, bool, bool] | None:
    """The head of an HTTP/1.1 answer that begins at a position: its status; where it ends; the
    fields by name in lower case, the first value of each; the announced length of the body in
    bytes; whether the body is chunked; whether another request may follow on the connection.
    Of an informational answer (1xx) only the first two.

    None if the head is not whole or malformed. Read strictly, as in RFC 9112. Raises
    ResponseLostError for two lengths or codings, a length that is no number, a coding that is
    unknown or beside a length, and for more than 128 fields.
    """

def request_head(
    method: str,
    target: str,
    fixed: str,
    headers: list[tuple[str, str]],
    length: int | None,
) -> bytes:
    """The head of an HTTP/1.1 request, its end included, in UTF-8. `fixed`: further fields, as
    lines with their ends; `length`: the bytes of the body, None for no such field. Raises
    InvalidArgumentError for a line break in another argument."""

def decode_listing(
    body: bytes, path: str
) -> tuple[list[tuple[str, int, str, int]], str | None, bool]:
    """A page of S3's ListObjectsV2: objects as (key, bytes, entity tag without quotes, epoch
    milliseconds), the token of the next page, and whether there is one. URL-encoded keys are
    decoded.

    Elements as in the Amazon S3 API Reference. Raises ResponseLostError, with `path`, for a
    truncated document or one that is no listing.
    """

def decode_copied(body: bytes, path: str) -> str:
    """The entity tag in the answer to S3's CopyObject, without quotes. Raises ResponseLostError as
    `decode_listing`."""

def decode_refused(body: bytes, path: str) -> list[tuple[str, str, str]]:
    """The keys that S3's DeleteObjects did not delete, as (key, code, message). Raises
    ResponseLostError as `decode_listing`."""

def decode_refusal(body: bytes) -> tuple[str, str] | None:
    """Code and message of S3's error document; None for every other body, a damaged one
    included."""

def encode_deletions(keys: Sequence[str]) -> bytes:
    """The body of a DeleteObjects request for these keys, in quiet mode: the response lists only
    keys that were not deleted.

    Raises InvalidPathError for text that UTF-8 cannot encode. Characters that XML 1.0 cannot
    represent are written unchanged.
    """

@final
class Xxh3_128:
    """XXH3 of 128 bits, seed 0, computed incrementally. Safe to share between threads."""

    def __new__(cls) -> Xxh3_128: ...
    def update(self, data: Buffer) -> None:
        """Adds the bytes of a contiguous buffer; the interpreter is released for all but small
        ones."""

    def hexdigest(self) -> str:
        """The digest so far, as 32 hex digits in the canonical (big-endian) form."""

    def copy(self) -> Xxh3_128:
        """An independent digest with the same content so far."""

def decode_page(body: bytes, crc32: int | None) -> Page:
    """The answer to a Query or Scan.

    `crc32` is the checksum in the response (`x-amz-crc32`), None without one. Raises
    ResponseLostError for another checksum, and for a damaged body: no JSON object in UTF-8, an
    attribute that is no AttributeValue, values nested more than 64 deep, a duplicate name, half of
    a surrogate pair (which is invalid text and which DynamoDB does not store).
    """

def decode_batch(body: bytes, table: str, crc32: int | None) -> tuple[Rows, list[tuple[str, str]]]:
    """The answer to a BatchGetItem of one table: the returned items, and the unprocessed keys.
    Raises as `decode_page`."""

def decode_item(body: bytes, crc32: int | None) -> Rows:
    """The answer to a GetItem: the item, or no row. Raises as `decode_page`."""

@final
class Page:
    """A page of a query or scan."""

    @property
    def rows(self) -> Rows:
        """Its items."""

    @property
    def next(self) -> tuple[str, str] | None:
        """Partition and sort key of the last item, to continue from; None at the end."""

    @property
    def count(self) -> int:
        """Items in the page, as counted by the service."""

    @property
    def scanned(self) -> int:
        """Items scanned for it."""

    @property
    def capacity(self) -> float:
        """Consumed capacity units; 0.0 if the response has none."""

@final
class Rows(Sequence[Item]):
    """Items of a table in columns; a mapping is created on each access. A slice shares the columns.

    From mappings: raises ItemFormatError for a value that is neither text, integer nor boolean, and
    for text that UTF-8 cannot encode. Equal to any sequence of equal items.
    """

    __hash__: ClassVar[None]  # type: ignore[assignment]
    def __new__(cls, items: Iterable[Mapping[str, Value]]) -> Rows: ...
    def __len__(self) -> int: ...
    @overload
    def __getitem__(self, key: int, /) -> Item: ...
    @overload
    def __getitem__(self, key: slice, /) -> Rows: ...
    def __eq__(self, value: object, /) -> bool: ...
    def entries(
        self,
        volume: str | None,
        *,
        records: bool = False,
        paths: dict[str, str] | None = None,
    ) -> Entries:
        """The entries of the items; with `records`, without items that are no entries (their
        partition key is of neither layout: it begins with neither `ks://` nor `s3k:tree/`).

        In layout `tree` the keys of an item do not tell its path. `paths` has the normalised paths
        of directories that the caller knows, by directory key; an entry of any other directory has
        its entry key as `path`, which begins with no `/`. In layout `path` they are not needed, and
        not read.

        Raises ItemFormatError for the first item that S3-FileSystem 1.0 would refuse, for an item
        of the other layout, and for a number that does not fit into 64 bits. In layout `tree` also
        for the id of the root or of the trash, and for a directory whose id is no directory key.
        Unknown attributes are ignored. Raises InvalidPathError for one of `paths` that is not
        normalised.
        """

    def index(self, value: object, start: int = 0, stop: int | None = None) -> int:
        """Place of the first equal element from `start` up to `stop`. Raises ValueError if there is
        none."""

    def count(self, value: object) -> int:
        """How many elements are equal."""

@final
class Entries(Sequence[Entry]):
    """Entries of a volume in columns; an `Entry` is created on each access. Slices and selections
    share the columns. Equal to any sequence of equal entries. By Arrow's PyCapsule interface
    (`pyarrow.record_batch`), a record batch of the schema
    `s3k_async.listing.listings.arrow_schema`.
    """

    __hash__: ClassVar[None]  # type: ignore[assignment]
    def __len__(self) -> int: ...
    @overload
    def __getitem__(self, key: int, /) -> Entry: ...
    @overload
    def __getitem__(self, key: slice, /) -> Entries: ...
    def __eq__(self, value: object, /) -> bool: ...
    def index(self, value: object, start: int = 0, stop: int | None = None) -> int:
        """Place of the first equal element from `start` up to `stop`. Raises ValueError if there is
        none."""

    def count(self, value: object) -> int:
        """How many elements are equal."""

    def statuses(self) -> list[FileStatus]:
        """The public statuses of the entries, in their order."""

    def paths(self) -> list[str]:
        """Their paths."""

    def directory_keys(self) -> list[str]:
        """The directory key of each entry's parent: in layout `path` the path of its directory, in
        layout `tree` the id."""

    def entry_keys(self) -> list[str]:
        """Their entry keys: in layout `path` their paths, in layout `tree`
        `<directory id>/<name>`."""

    def files(self) -> Entries:
        """The files, reservations included."""

    def directories(self) -> Entries:
        """The directories."""

    def without_reservations(self) -> Entries:
        """All but the reservations."""

    def carrying(self, intent: str) -> Entries:
        """The entries with this write intent."""

    def below(self, prefix: str) -> Entries:
        """The entries whose path begins with this text: `/` or `/a/b/`. In layout `tree` none whose
        path is not known."""

    def take(self, indices: Sequence[int]) -> Entries:
        """The entries at these indexes, in this order. Raises IndexError."""

    def totals(self) -> tuple[int, int, int]:
        """Committed files, directories, and the bytes of those files."""

    def newest(self) -> int | None:
        """The latest modification of a committed file, epoch ms; None if there is none."""

    @staticmethod
    def sorted(parts: Sequence[Entries]) -> Entries:
        """The entries of all parts, sorted by path, component by component, by UTF-8 bytes. In new
        columns."""

    @staticmethod
    def joined(parts: Sequence[Entries]) -> Entries:
        """The entries of all parts, concatenated in new columns."""

    @staticmethod
    def merged(parts: Sequence[Entries], ended: Sequence[bool]) -> tuple[Entries, list[Entries]]:
        """Merge parts that are each sorted by path: returns the sorted rows that precede all later
        rows of unfinished parts, and the rest of each part. Raises ValueError for arguments of
        different lengths.
        """

    def read_only(self) -> list[int]:
        """Indexes of the read-only entries, in their order."""

    def with_intents(self) -> list[tuple[int, str]]:
        """Index and write intent of each entry that has one, in their order."""

    def next_directory(self, start: int) -> int | None:
        """Index of the first directory from an index on."""

    def __arrow_c_array__(self, requested_schema: object | None = None) -> tuple[object, object]:
        """Capsules of schema and array. `requested_schema` is ignored."""

    @staticmethod
    def __arrow_c_schema__() -> object:
        """Capsule of the schema."""

@final
class FactLines:
    """Facts of fsck of one kind, as lines of its shuffle (`integrity.shuffle.to_line`), each ended
    by a newline, with the hash of its shuffle key (`integrity.shuffle.hash_of`)."""

    def __len__(self) -> int: ...
    def rows(self) -> list[tuple[int, bytes]]:
        """Hash and line of each fact."""

    def columns(self) -> tuple[bytes, bytes, bytes]:
        """Buffers of Arrow arrays: the hashes as int64, the offsets (int32) and the bytes of the
        lines. Raises OverflowError for more than 2 GiB."""

    def among(self, filter: bytes) -> list[bytes]:
        """The lines whose hash may be in a set: `filter` has a bit for each value of the highest
        bits of a hash, the least significant bit of a byte first. Raises ValueError unless the
        number of bits is a power of two."""

@final
class PartLines:
    """Lines of facts of one kind, each ended by a newline, by the part of a shuffle that they
    belong to; in no particular order. Its length is the number of bytes held.

    Parts are numbered from 0 to `count` - 1. Raises ValueError for a count of 0, and IndexError for
    other numbers.
    """

    def __new__(cls, count: int) -> PartLines: ...
    def __len__(self) -> int: ...
    def add(self, lines: FactLines) -> None:
        """Add each line to the part that is the remainder of its hash divided by `count`."""

    def add_to_part(self, number: int, text: bytes) -> None:
        """Add lines to a part."""

    def take(self, number: int) -> bytes:
        """Remove the lines of a part, and return them."""

    def text(self) -> bytes:
        """The lines of all parts."""

@final
class EntryFacts:
    """The facts about the ordinary entries among some items."""

    @property
    def entries(self) -> FactLines:
        """The entries, by object id."""

    @property
    def directories(self) -> FactLines:
        """The directories among them, by directory key."""

    @property
    def children(self) -> FactLines:
        """The entries that need a directory, by its key."""

    @property
    def totals(self) -> tuple[int, int, int, int]:
        """Committed files, directories, reservations, and the bytes of those files."""

    @property
    def others(self) -> list[int]:
        """Indexes of the other items."""

def entry_facts(
    items: Rows,
    volume: str | None,
    count: int,
    hash: HashName,
    roots: AbstractSet[str],
    every_child: bool,
) -> EntryFacts:
    """The facts about the ordinary entries among items of a scan: valid entries of the volume under
    their own keys, with an id that the log can hold, without a write intent, without an adopted
    object, and not in the trash.

    `roots`: keys of directories that exist without an item. Without `every_child` only the first
    child of each directory among the items, by name, is one that needs it.
    """

def named_facts(
    items: Rows, volume: str | None, count: int, hash: HashName
) -> tuple[FactLines, list[int]]:
    """The data keys that ordinary committed files reference, by the object id in the key, and the
    indexes of the other items, directories excepted. Ordinary as for `entry_facts`, with a data key
    of the form `physical_key`, a UUID in it."""

def record_facts(
    lines: Sequence[bytes], key: str, volume: str | None, count: int
) -> FactLines | None:
    """The facts about committed operations, by object id: lines of one log object, whose `key` the
    facts have.

    None if a line is not exactly as `oplog.entries.operation_line` writes it, if an operation
    contradicts itself, concerns the trash, occurs twice, or if no item of the volume can have its
    place: then the reader of the log decides.
    """

def blob_facts(blobs: Sequence[BlobInfo]) -> tuple[FactLines, list[int]]:
    """The facts about physical objects, by the object id in their key, or without one by the key;
    and the indexes of objects whose key is not UTF-8, which are left out."""

def old_blob_facts(blobs: Sequence[BlobInfo], before_ms: int) -> tuple[FactLines, list[int]]:
    """As `blob_facts`, of the objects with a data key of the form `physical_key`, a UUID in it,
    that are older than a time, epoch milliseconds; without their etags."""

def undecided_facts(
    entries: Sequence[bytes],
    records: Sequence[bytes],
    blobs: Sequence[bytes],
    adopted: AbstractSet[str],
    doubtful: Sequence[str],
    is_logged: bool,
) -> tuple[bytes, bytes, bytes] | None:
    """The lines of one part of the shuffle, of each kind, without those of objects that are
    certainly clean: none of the rules finds anything about them. None if a line is not in the
    expected form, so that nothing is decided.

    Clean is an object with one entry, without a write intent, equal to the state after the highest
    committed operation; a file with exactly one physical object, of its size; and an object that
    was removed, if nothing is left of it. `adopted`: keys of adopted objects, whose keys have no
    object id; `doubtful`: ids of objects for the rules; `is_logged`: whether the volume has a log.
    """

def committed_claims(
    records: Sequence[tuple[str, LogState, str, bytes]],
    sizes: Mapping[str, int],
    present: AbstractSet[str],
    within: str,
    volume: str | None,
    count: int,
) -> tuple[
    list[tuple[str, str, str, int | None, bool, int | None, int, str, int]], list[tuple[int, int]]
]:
    """The claims of the objects that a restore certainly restores as the log has them, and the
    place of the records of each object that is left to the rules: its first index, and the index
    after its last one. The records of one object are adjacent: object id, state, key of the log
    object, and line, as of `oplog.entries.operation_line`.

    Such an object has committed records alone, each exactly as `operation_line` writes it; one of
    them has the highest version; and the state after it is a directory, or a file whose bytes are
    one physical object of its own, of its size. It has no write intent and no attributes, an item
    of the volume can have its place, and the table does not have it (`present`). Such objects
    outside of the path `within` are in neither result.

    `sizes`: of data objects, by key. A claim is object id, entry key, directory key, depth in
    layout `path`, whether it is a directory, bytes of a file, ctime, the entry as in the log, and
    its version.
    """

def committed_facts(
    records: Sequence[bytes],
    blobs: Sequence[bytes],
    present: AbstractSet[str],
    within: str,
    volume: str | None,
    count: int,
) -> (
    tuple[
        tuple[
            list[str],
            list[str],
            list[str],
            list[str],
            list[bool],
            list[int],
            list[int],
            list[str],
            list[int],
        ],
        bytes,
    ]
    | None
):
    """As `committed_claims`, of the lines of one part of the shuffle: the claims in columns, and
    the lines of the records that are left to the rules. None if the object of a record is not
    known, so that nothing is decided.

    The columns are object ids, entry keys, paths, directory keys, whether they are directories,
    bytes, ctimes, the entries as in the log, and their versions.
    """

def unnamed_blobs(named: Sequence[bytes], blobs: Sequence[bytes]) -> tuple[bytes, int, int]:
    """The lines of physical objects whose keys are not among the named ones, and the number and the
    bytes of the others."""

def lonely_children(directories: Sequence[bytes], children: Sequence[bytes]) -> bytes:
    """The lines of entries that need a directory, without those whose directory is there."""

def status_of(entry: Entry) -> FileStatus:
    """The public view of an entry."""

@final
class FileStatus:
    """The status of one path, immutable. Sizes are bytes; times are epoch milliseconds, or
    `datetime` in UTC.

    A status from a listing is a row of a page, and keeps that page in memory (about a megabyte for
    3,000 entries). `copy.copy` and pickling return an independent one.
    """

    __match_args__ = (
        "path",
        "is_dir",
        "size",
        "mtime_ms",
        "ctime_ms",
        "id",
        "version",
        "committed",
        "etag",
        "checksum",
        "physical",
        "attributes_json",
    )
    def __new__(
        cls,
        path: str,
        is_dir: bool,
        size: int,
        mtime_ms: int,
        ctime_ms: int,
        id: str,
        version: int,
        committed: bool,
        etag: str = "",
        checksum: str = "",
        physical: str | None = None,
        attributes_json: str = "",
    ) -> FileStatus: ...
    @property
    def path(self) -> str:
        """Logical path, normalised, absolute."""

    @property
    def is_dir(self) -> bool:
        """Whether this is a directory."""

    @property
    def size(self) -> int:
        """Bytes of a file; 0 for a directory."""

    @property
    def mtime_ms(self) -> int:
        """Modification time, epoch milliseconds."""

    @property
    def ctime_ms(self) -> int:
        """Creation time, epoch milliseconds."""

    @property
    def modified(self) -> datetime:
        """Modification time, in UTC. Raises OverflowError outside of the years 1 to 9999."""

    @property
    def created(self) -> datetime:
        """Creation time, in UTC. Raises OverflowError outside of the years 1 to 9999."""

    @property
    def id(self) -> str:
        """Object id, kept for life."""

    @property
    def version(self) -> int:
        """1 at creation, one more at every change."""

    @property
    def committed(self) -> bool:
        """False only for a reservation: a file whose writer has not finished."""

    @property
    def etag(self) -> str:
        """Etag of the bytes, empty if unknown."""

    @property
    def checksum(self) -> str:
        """`xxh128:` and 32 hex digits over the bytes, empty if unknown."""

    @property
    def object_version(self) -> str:
        """The version id of the adopted object in its bucket, empty if none is recorded."""

    @property
    def physical(self) -> str | None:
        """Physical key or URI of a committed file's bytes, else None."""

    @property
    def attributes_json(self) -> str:
        """The attributes in their stored form, canonical JSON; empty if there are none."""

    @property
    def attributes(self) -> Attributes:
        """Mode, owner, read-only and user metadata. Raises ItemFormatError if they are damaged."""

    @property
    def name(self) -> str:
        """Last component of the path; empty for the root."""

    @property
    def is_file(self) -> bool:
        """Whether this is a file."""

    def __eq__(self, value: object, /) -> bool: ...
    def __hash__(self) -> int: ...
