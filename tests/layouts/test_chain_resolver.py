"""Path resolution in layout `tree`, against every interleaving with changes of the directories."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations_with_replacement

import pytest

from s3k_async import _native
from s3k_async._core.runtime import SYSTEM
from s3k_async.errors import BusyError, ItemFormatError
from s3k_async.layouts.tree.chain_resolver import ChainResolver
from s3k_async.layouts.tree.resolved_path import ResolvedPath
from s3k_async.model import ROOT, Entry
from s3k_async.table.stored_reader import ROOT_ENTRY
from s3k_async.txn.intent_view import Seeing

Tree = Mapping[str, Entry]
"""Entries by entry key."""
Change = Callable[["Table"], None]


@dataclass(slots=True)
class Table:
    """A table whose items are read one by one, in an order of its own, as a BatchGetItem may do,
    and which changes right before chosen reads of items. Remembers every state."""

    items: dict[str, Entry] = field(default_factory=dict)
    changes: list[tuple[int, Change]] = field(default_factory=list)
    """The number of the item read before which each change happens."""
    backwards: bool = False
    """Whether the last key of a request is read first."""
    states: list[Tree] = field(default_factory=list)
    """The states since the resolution began."""
    requests: list[list[str]] = field(default_factory=list)
    reads: int = 0
    made: int = 0

    def add(self, directory: str, name: str, *, is_dir: bool = True) -> Entry:
        self.made += 1
        entry = Entry(
            f"{directory}/{name}", is_dir, f"id-{self.made}", 2, 1, 1, directory=directory
        )
        self.items[entry.entry_key] = entry
        return entry

    def move(self, entry_key: str, target: str) -> None:
        """Move an entry, if it is there, unless another is at the target."""
        entry = self.items.get(entry_key)
        if entry is None or target in self.items:
            return
        del self.items[entry_key]
        moved = replace(entry, path=target, directory=target.partition("/")[0])
        self.items[target] = replace(moved, version=entry.version + 1)

    async def read(
        self, entry_keys: Sequence[str], see: Seeing | None, paths: Mapping[str, str] | None
    ) -> Mapping[str, Entry | ItemFormatError]:
        assert see is None
        self.requests.append(list(entry_keys))
        found = {}
        for key in reversed(entry_keys) if self.backwards else entry_keys:
            for when, change in self.changes:
                if when == self.reads:
                    change(self)
                    self.states.append(dict(self.items))
            self.reads += 1
            if key in self.items:
                found[key] = _named(self.items[key], paths or {})
        await asyncio.sleep(0)
        return found


def _named(entry: Entry, paths: Mapping[str, str]) -> Entry:
    """The entry as it is decoded, given the paths of directories by id."""
    directory, _, name = entry.entry_key.partition("/")
    if directory not in paths:
        return entry
    return replace(entry, path=_native.join(paths[directory], name))


def resolver(table: Table, *, busy_timeout: float = 10.0) -> ChainResolver:
    return ChainResolver(table.read, SYSTEM, busy_timeout)


async def resolved(resolver: ChainResolver, *paths: str) -> list[ResolvedPath]:
    chains = await resolver.resolve(paths)
    assert all(isinstance(chain, ResolvedPath) for chain in chains)
    return [chain for chain in chains if isinstance(chain, ResolvedPath)]


def walk(tree: Tree, path: str) -> list[str | None]:
    """The object ids of the steps of a path in one state of the table."""
    ids: list[str | None] = []
    at: Entry | None = ROOT_ENTRY
    for step in [*_native.ancestors(path), path]:
        name = _native.split(step)[1]
        at = tree.get(f"{at.id}/{name}") if at is not None and at.is_dir else None
        ids.append(None if at is None else at.id)
    return ids


def three_levels() -> Table:
    """`/a/b/c/f`, and `/z`."""
    table = Table()
    a = table.add(ROOT_ENTRY.id, "a")
    b = table.add(a.id, "b")
    c = table.add(b.id, "c")
    table.add(c.id, "f", is_dir=False)
    table.add(ROOT_ENTRY.id, "z")
    return table


A, B, C, F, Z = "id-1", "id-2", "id-3", "id-4", "id-5"
RENAME_A: Change = lambda table: table.move(f"{ROOT_ENTRY.id}/a", f"{ROOT_ENTRY.id}/q")  # noqa: E731
BACK_A: Change = lambda table: table.move(f"{ROOT_ENTRY.id}/q", f"{ROOT_ENTRY.id}/a")  # noqa: E731
RENAME_B: Change = lambda table: table.move(f"{A}/b", f"{Z}/b")  # noqa: E731
BACK_B: Change = lambda table: table.move(f"{Z}/b", f"{A}/b")  # noqa: E731
RENAME_C: Change = lambda table: table.move(f"{B}/c", f"{Z}/c")  # noqa: E731
BACK_C: Change = lambda table: table.move(f"{Z}/c", f"{B}/c")  # noqa: E731
Z_AS_A: Change = lambda table: table.move(f"{ROOT_ENTRY.id}/z", f"{ROOT_ENTRY.id}/a")  # noqa: E731


async def test_a_cold_client_reads_a_level_a_request_and_a_warm_one_everything_in_one() -> None:
    table = three_levels()
    resolving = resolver(table)
    (cold,) = await resolved(resolving, "/a/b/c/f")
    assert [len(keys) for keys in table.requests] == [1, 1, 1, 4]
    table.requests.clear()
    (warm,) = await resolved(resolving, "/a/b/c/f")
    assert [len(keys) for keys in table.requests] == [4]
    assert warm.chain[1:] == cold.chain[1:]
    assert [step for step, _ in warm.chain[1:]] == ["/a", "/a/b", "/a/b/c", "/a/b/c/f"]
    assert [entry and entry.path for _, entry in warm.chain[1:]] == [
        step for step, _ in warm.chain[1:]
    ]
    assert warm.entry is not None
    assert warm.entry.entry_key == f"{C}/f"


async def test_entries_of_the_root_are_one_request_and_the_root_is_none() -> None:
    table = three_levels()
    root, a, missing = await resolved(resolver(table), ROOT, "/a", "/nothing")
    assert [len(keys) for keys in table.requests] == [2]
    assert root.chain == [(ROOT, ROOT_ENTRY)]
    assert a.entry is not None
    assert (a.entry.id, a.entry.path, a.parent) == (A, "/a", ROOT_ENTRY)
    assert missing.chain[1:] == [("/nothing", None)]


async def test_a_missing_path_is_read_down_to_its_first_missing_directory() -> None:
    table = three_levels()
    (chain,) = await resolved(resolver(table), "/a/x/y/z")
    assert [entry and entry.id for _, entry in chain.chain[1:]] == [A, None, None, None]
    assert [len(keys) for keys in table.requests] == [1, 1, 2]


async def test_nothing_is_below_a_file() -> None:
    (chain,) = await resolved(resolver(three_levels()), "/a/b/c/f/g/h")
    assert [entry and entry.id for _, entry in chain.chain[1:]] == [A, B, C, F, None, None]


async def test_paths_of_one_directory_share_its_reads() -> None:
    table = three_levels()
    resolving = resolver(table)
    paths = [f"/a/b/c/{name}" for name in range(150)]
    chains = await resolved(resolving, *paths, "/a/b/c/f")
    assert [len(keys) for keys in table.requests] == [1, 1, 1, 100, 57]
    assert chains[-1].entry is not None
    for keys in table.requests[3:]:
        assert {f"{ROOT_ENTRY.id}/a", f"{A}/b", f"{B}/c"} < set(keys)


@pytest.mark.parametrize("new_first", [False, True])
async def test_one_directory_under_its_old_and_its_new_path(*, new_first: bool) -> None:
    table = three_levels()
    resolving = resolver(table)
    await resolved(resolving, "/a/b/c/f", "/z/b")
    RENAME_B(table)
    paths = ["/a/b/c/f", "/z/b/c/f"]
    chains = await resolved(resolving, *(reversed(paths) if new_first else paths))
    old, new = reversed(chains) if new_first else chains
    assert [entry and entry.id for _, entry in old.chain[1:]] == [A, None, None, None]
    assert [entry and entry.id for _, entry in new.chain[1:]] == [Z, B, C, F]
    assert [entry and entry.path for _, entry in new.chain[1:]] == [
        "/z",
        "/z/b",
        "/z/b/c",
        "/z/b/c/f",
    ]


async def test_an_item_that_cannot_be_read_is_the_error_of_its_paths_alone() -> None:
    table = three_levels()
    broken = ItemFormatError("damaged", path=f"{A}/b")

    async def read(
        keys: Sequence[str], see: Seeing | None, paths: Mapping[str, str] | None
    ) -> Mapping[str, Entry | ItemFormatError]:
        found = dict(await table.read(keys, see, paths))
        return {key: broken if key == f"{A}/b" else entry for key, entry in found.items()}

    resolving = ChainResolver(read, SYSTEM, 10.0)
    below, itself, other = await resolving.resolve(["/a/b/c/f", "/a/b", "/a"])
    assert below is broken
    assert itself is broken
    assert broken.path == "/a/b"
    assert isinstance(other, ResolvedPath)


def interleavings(reads: int, changes: Sequence[Change]) -> Iterator[list[tuple[int, Change]]]:
    """Every way to make the changes, in their order, before some of the reads of items."""
    for places in combinations_with_replacement(range(reads), len(changes)):
        yield list(zip(places, changes, strict=True))


@pytest.mark.parametrize("warm", [False, True], ids=["cold", "warm"])
@pytest.mark.parametrize(
    ("before", "changes"),
    [
        ([], [RENAME_A]),
        ([], [RENAME_B]),
        ([], [RENAME_C]),
        ([], [RENAME_A, BACK_A]),
        ([], [RENAME_A, Z_AS_A]),
        ([], [RENAME_A, RENAME_B, BACK_A]),
        ([], [RENAME_B, RENAME_A, BACK_B]),
        ([], [RENAME_C, RENAME_A, Z_AS_A]),
        ([], [RENAME_B, RENAME_A, BACK_A, BACK_B]),
        ([], [RENAME_B, RENAME_C, BACK_B, RENAME_A]),
        # What the cache knows was true before the call, and each of it again within the call.
        ([RENAME_B], [RENAME_A, BACK_B]),
        ([RENAME_A], [RENAME_B, BACK_A]),
        ([RENAME_C], [RENAME_A, BACK_C]),
        ([RENAME_A], [RENAME_C, BACK_A]),
        ([RENAME_C], [RENAME_B, BACK_C, BACK_B]),
    ],
    ids=lambda changes: str(len(changes)),
)
async def test_the_directories_of_a_chain_were_in_place_at_one_moment(
    before: Sequence[Change], changes: Sequence[Change], *, warm: bool
) -> None:
    for backwards in (False, True):
        for plan in interleavings(4 if warm else 7, changes):
            table = three_levels()
            resolving = resolver(table)
            if warm:
                await resolved(resolving, PATH)
            for change in before:
                change(table)
            table.backwards = backwards
            table.reads, table.changes, table.states = 0, plan, [dict(table.items)]
            (chain,) = await resolved(resolving, PATH)
            require_one_moment(chain, table.states)


PATH = "/a/b/c/f"


def require_one_moment(chain: ResolvedPath, states: Sequence[Tree]) -> None:
    """The directories of the chain were in place in one state, and what is below them, or that
    nothing is, was true in one state."""
    ids = [entry and entry.id for _, entry in chain.chain[1:]]
    above = ids[: ids.index(None)] if None in ids else ids[:-1]
    assert any(walk(tree, PATH)[: len(above)] == above for tree in states), ids
    name = _native.split(chain.chain[1:][len(above)][0])[1]
    key = f"{above[-1] if above else ROOT_ENTRY.id}/{name}"
    below = ids[len(above)]
    assert any((tree[key].id if key in tree else None) == below for tree in states), ids


async def test_a_path_whose_directories_keep_moving_is_busy() -> None:
    table = three_levels()
    resolving = resolver(table, busy_timeout=0.0)
    await resolved(resolving, "/a/b/c/f")
    table.reads, table.changes = 0, [(0, RENAME_A)]
    with pytest.raises(BusyError):
        await resolved(resolving, "/a/b/c/f")
