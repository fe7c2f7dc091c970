"""The item port: transactions, and many clients at once."""

from __future__ import annotations

from collections import Counter
from functools import partial

import anyio
import pytest

from s3k_async._core.concurrency import gather
from s3k_async.backends.ports.items import (
    ABSENT,
    MAX_TRANSACTION,
    Action,
    Check,
    Condition,
    Delete,
    Key,
    Put,
    Update,
    Value,
)
from s3k_async.errors import ConditionFailedError, VolumeNotFoundError
from tests.contracts.subjects import (
    PARTITION,
    Items,
    OpenItems,
    key,
    names,
    row,
    settled,
    token,
    won,
)

EXISTS = Condition()


def ver(version: int) -> Condition:
    return Condition(equals={"ver": version})


async def stored(items: Items) -> dict[str, dict[str, Value]]:
    """What the partition of the tests holds, by name."""
    return {str(item["children"]): dict(item) for item in (await items.query(PARTITION)).items}


async def test_a_transaction_applies_all_its_actions(items: Items) -> None:
    for name in ("updated", "deleted", "checked", "replaced"):
        await items.write(Put(row(name, ver=1, keep="this"), ABSENT))
    await items.transact(
        [
            Put(row("created", ver=1), ABSENT),
            Put(row("replaced", ver=2), ver(1)),
            Update(key("updated"), ver(1), set={"ver": 2}, remove=("keep",)),
            Delete(key("deleted"), ver(1)),
            Check(key("checked"), ver(1)),
            Check(key("nothing"), ABSENT),
            Put(row("elsewhere", "another partition", ver=1), ABSENT),
        ],
        token(),
    )
    assert await stored(items) == {
        "checked": row("checked", ver=1, keep="this"),
        "created": row("created", ver=1),
        "replaced": row("replaced", ver=2),
        "updated": row("updated", ver=2),
    }
    assert await items.get(key("elsewhere", "another partition")) == row(
        "elsewhere", "another partition", ver=1
    )


async def test_one_failed_condition_stops_all(items: Items) -> None:
    await items.write(Put(row("old", ver=1), ABSENT))
    before = await stored(items)
    with pytest.raises(ConditionFailedError) as failed:
        await items.transact(
            [
                Put(row("new", ver=1), ABSENT),
                Update(key("old"), ver(2), set={"ver": 3}),
                Put(row("newer", ver=1), ABSENT),
            ],
            token(),
        )
    assert failed.value.current == {1: row("old", ver=1)}
    assert await stored(items) == before


async def test_every_failed_position_is_told(items: Items) -> None:
    for name in ("a", "b", "c", "d"):
        await items.write(Put(row(name, ver=1, id=name), ABSENT))
    before = await stored(items)
    actions: list[Action] = [
        Put(row("a", ver=5), ABSENT),
        Check(key("b"), ver(1)),
        Update(key("b2"), EXISTS, set={"ver": 2}),
        Delete(key("c"), ver(7)),
        Put(row("new", ver=1), ABSENT),
        Check(key("d"), Condition(missing=("id",))),
        Check(key("nothing"), ver(1)),
    ]
    with pytest.raises(ConditionFailedError) as failed:
        await items.transact(actions, token())
    assert failed.value.current == {
        0: row("a", ver=1, id="a"),
        2: None,
        3: row("c", ver=1, id="c"),
        5: row("d", ver=1, id="d"),
        6: None,
    }
    assert await stored(items) == before


async def test_a_transaction_of_one_action(items: Items) -> None:
    await items.transact([Put(row("file", ver=1), ABSENT)], token())
    with pytest.raises(ConditionFailedError) as failed:
        await items.transact([Put(row("file", ver=2), ABSENT)], token())
    assert failed.value.current == {0: row("file", ver=1)}


async def test_a_transaction_of_checks_changes_nothing(items: Items) -> None:
    await items.write(Put(row("file", ver=1), ABSENT))
    await items.transact([Check(key("file"), ver(1)), Check(key("nothing"), ABSENT)], token())
    with pytest.raises(ConditionFailedError) as failed:
        await items.transact([Check(key("file"), ABSENT), Check(key("nothing"), EXISTS)], token())
    assert failed.value.current == {0: row("file", ver=1), 1: None}
    assert await stored(items) == {"file": row("file", ver=1)}


async def test_a_transaction_of_one_check_of_absence(items: Items) -> None:
    await items.transact([Check(key("file"), ABSENT)], token())
    await items.write(Put(row("file", ver=1, id="an id"), ABSENT))
    with pytest.raises(ConditionFailedError) as failed:
        await items.transact([Check(key("file"), ABSENT)], token())
    assert failed.value.current == {0: row("file", ver=1, id="an id")}
    assert await stored(items) == {"file": row("file", ver=1, id="an id")}


async def test_a_transaction_of_one_check_of_values(items: Items) -> None:
    condition = Condition(equals={"ver": 1, "isdir": True}, missing=("next",))
    with pytest.raises(ConditionFailedError) as failed:
        await items.transact([Check(key("file"), condition)], token())
    assert failed.value.current == {0: None}
    await items.write(Put(row("file", ver=1, isdir=True), ABSENT))
    await items.transact([Check(key("file"), condition)], token())
    await items.write(Update(key("file"), ver(1), set={"next": "txn"}))
    with pytest.raises(ConditionFailedError) as failed:
        await items.transact([Check(key("file"), condition)], token())
    assert failed.value.current == {0: row("file", ver=1, isdir=True, next="txn")}


async def test_a_check_sees_the_rest_of_a_move_of_which_a_read_saw_a_part(
    items: Items, open_items: OpenItems
) -> None:
    """The source of a move is gone for a read: then a transaction finds the target."""
    other = await open_items()
    rounds = 10
    for number in range(rounds):
        await items.write(Put(row(f"source-{number}", ver=1), ABSENT))

    async def move() -> None:
        for number in range(rounds):
            actions: list[Action] = [
                Delete(key(f"source-{number}"), ver(1)),
                Put(row(f"source-{number}", "trash", ver=2), ABSENT),
            ]
            await settled(partial(other.transact, actions, token()))

    async def look() -> None:
        for number in range(rounds):
            while await items.get(key(f"source-{number}")) is not None:
                pass
            check = Check(key(f"source-{number}", "trash"), ABSENT)
            with pytest.raises(ConditionFailedError) as failed:
                await settled(partial(items.transact, [check], token()))
            assert failed.value.current == {0: row(f"source-{number}", "trash", ver=2)}

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(look)
        tasks.start_soon(move)


class Move:
    """A transaction as that of a directory which is moved: one of each action, and several of those
    that parents and ancestors get. Every item is in a partition of its own."""

    def __init__(self, name: str) -> None:
        def at(place: str) -> Key:
            return key(name, f"{name} {place}")

        def there(place: str) -> Condition:
            return Condition(equals={"isdir": True, "id": place}, missing=("next",))

        def touch(place: str) -> Update:
            return Update(at(place), there(place), set={"op": name})

        self.before: dict[Key, dict[str, Value] | None] = {
            at(place): row(name, f"{name} {place}", isdir=True, id=place, ver=1)
            for place in ("source", "parent", "new parent", "ancestor", "other ancestor", "beside")
        }
        self.before |= dict.fromkeys((at("target"), at("trash")))
        moved = row(name, f"{name} target", isdir=True, id="source", ver=2)
        self.actions: list[Action] = [
            Check(at("ancestor"), there("ancestor")),
            Delete(at("source"), Condition(equals={"id": "source", "ver": 1}, missing=("next",))),
            touch("parent"),
            Check(at("trash"), ABSENT),
            Put(moved, ABSENT),
            touch("new parent"),
            Check(at("other ancestor"), there("other ancestor")),
        ]
        self.after = {
            **self.before,
            at("source"): None,
            at("target"): moved,
            at("parent"): {**row_at(self.before, at("parent")), "op": name},
            at("new parent"): {**row_at(self.before, at("new parent")), "op": name},
        }

    async def make(self, items: Items, *, broken: frozenset[int] = frozenset()) -> None:
        """Write the items, those of some positions so that the conditions there fail."""
        for number, action in enumerate(self.actions):
            if number in broken:
                there = self.before[action.key]
                self.before[action.key] = (
                    row(action.key.sort, action.key.partition, id="another")
                    if there is None
                    else {**there, "next": "txn"}
                )
        await items.transact(
            [Put(item, ABSENT) for item in self.before.values() if item is not None], token()
        )

    async def found(self, items: Items) -> dict[Key, dict[str, Value] | None]:
        """The items as they are now."""
        found = await items.get_many(list(self.before))
        return {each: dict(found[each]) if each in found else None for each in self.before}


def row_at(rows: dict[Key, dict[str, Value] | None], place: Key) -> dict[str, Value]:
    found = rows[place]
    assert found is not None
    return found


async def test_a_move_with_checks_and_updates_is_applied_once(
    items: Items, open_items: OpenItems
) -> None:
    move, same = Move("directory"), token()
    await move.make(items)
    await items.transact(move.actions, same)
    assert await move.found(items) == move.after
    for store in (items, await open_items()):
        await store.transact(move.actions, same)
        assert await move.found(items) == move.after
    source, parent = move.actions[1].key, move.actions[2].key
    changed = row_at(move.before, source)
    await items.write(Put(changed, ABSENT))
    await items.write(Update(parent, Condition(), set={"op": "later"}))
    await items.transact(move.actions, same)
    later = {**row_at(move.after, parent), "op": "later"}
    assert await move.found(items) == {**move.after, source: changed, parent: later}


async def test_a_move_with_checks_and_updates_is_refused_at_each_position(items: Items) -> None:
    positions = range(len(Move("directory").actions))
    for broken in (
        *(frozenset({number}) for number in positions),
        frozenset(positions),
        frozenset(positions[::2]),
        frozenset(positions[1::2]),
    ):
        move, same = Move(f"directory {sorted(broken)}"), token()
        await move.make(items, broken=broken)
        for _ in range(2):
            with pytest.raises(ConditionFailedError) as failed:
                await items.transact(move.actions, same)
            assert failed.value.current == {
                number: move.before[move.actions[number].key] for number in broken
            }
            assert await move.found(items) == move.before


async def test_a_move_with_as_many_checks_as_fit(items: Items) -> None:
    checked = [
        row(f"{number:02}", f"level {number}", id=f"{number}")
        for number in range(MAX_TRANSACTION - 3)
    ]
    await items.write(Put(row("source", ver=1), ABSENT))
    await items.transact([Put(each, ABSENT) for each in checked], token())
    checks = [
        Check(key(str(each["children"]), str(each["path"])), Condition(equals={"id": each["id"]}))
        for each in checked
    ]
    touched = Update(checks[-1].key, checks[-1].when, set={"op": "move"})

    def moved(name: str, checks: list[Check]) -> list[Action]:
        move: list[Action] = [Delete(key("source"), ver(1)), Put(row(name, ver=2), ABSENT)]
        return [*move, Check(key("nothing"), ABSENT), *checks]

    wrong = Check(checks[50].key, Condition(equals={"id": "another"}))
    with pytest.raises(ConditionFailedError) as failed:
        await items.transact(moved("target", [*checks[:50], wrong, *checks[51:]]), token())
    assert failed.value.current == {53: checked[50]}
    assert await stored(items) == {"source": row("source", ver=1)}
    await items.transact([*moved("target", checks[:-1]), touched], token())
    assert await stored(items) == {"target": row("target", ver=2)}
    assert await items.get(touched.key) == {**checked[-1], "op": "move"}


async def test_a_hundred_actions(items: Items) -> None:
    await items.transact(
        [Put(row(f"{n:03}", ver=1), ABSENT) for n in range(MAX_TRANSACTION)], token()
    )
    assert len(await stored(items)) == MAX_TRANSACTION
    move: list[Action] = [Delete(key(f"{n:03}"), ver(1)) for n in range(50)]
    await items.transact(
        [*move, *(Put(row(f"moved-{n:03}", ver=2), ABSENT) for n in range(50))], token()
    )
    assert set(await stored(items)) == {f"{n:03}" for n in range(50, 100)} | {
        f"moved-{n:03}" for n in range(50)
    }


async def test_the_last_of_a_hundred_fails_them_all(items: Items) -> None:
    actions: list[Action] = [Put(row(f"{n:03}", ver=1), ABSENT) for n in range(99)]
    with pytest.raises(ConditionFailedError) as failed:
        await items.transact([*actions, Check(key("nothing"), EXISTS)], token())
    assert failed.value.current == {99: None}
    assert await stored(items) == {}


async def test_more_than_a_hundred_actions_are_refused(items: Items) -> None:
    with pytest.raises(ValueError, match=r"."):
        await items.transact(
            [Put(row(f"{n:03}", ver=1), ABSENT) for n in range(MAX_TRANSACTION + 1)], token()
        )
    assert await stored(items) == {}


async def test_more_than_a_hundred_actions_are_refused_before_anything_is_sent(
    open_items: OpenItems,
) -> None:
    """What is sent to a table that does not exist fails in another way."""
    store = await open_items()
    actions: list[Action] = [
        Check(key(f"{number:03}"), ABSENT) for number in range(MAX_TRANSACTION + 1)
    ]
    with pytest.raises(ValueError, match=r"."):
        await store.transact(actions, token())
    with pytest.raises(VolumeNotFoundError):
        await store.transact(actions[:-1], token())


async def test_no_actions_and_no_token_are_refused(items: Items) -> None:
    with pytest.raises(ValueError, match=r"."):
        await items.transact([], token())
    for wrong in ("", "x" * 37):
        with pytest.raises(ValueError, match=r"."):
            await items.transact([Put(row("file", ver=1), ABSENT)], wrong)
    assert await stored(items) == {}


async def test_two_actions_on_one_key_are_refused(items: Items) -> None:
    await items.write(Put(row("file", ver=1), ABSENT))
    second: list[Action] = [
        Check(key("file"), ver(1)),
        Put(row("file", ver=2), ver(1)),
        Delete(key("file"), ver(1)),
        Update(key("file"), ver(1), set={"ver": 2}),
    ]
    for action in second:
        with pytest.raises(ValueError, match=r"."):
            await items.transact([Update(key("file"), ver(1), set={"ver": 3}), action], token())
    assert await stored(items) == {"file": row("file", ver=1)}


async def test_the_same_name_in_two_partitions_is_two_keys(items: Items) -> None:
    await items.transact(
        [Put(row("file", ver=1), ABSENT), Put(row("file", "another", ver=2), ABSENT)], token()
    )
    assert await items.get(key("file")) == row("file", ver=1)
    assert await items.get(key("file", "another")) == row("file", "another", ver=2)


async def test_conditions_of_a_transaction_are_strict_about_types(items: Items) -> None:
    await items.write(Put(row("file", ver=1, isdir=True), ABSENT))
    wrongs: list[dict[str, Value]] = [{"ver": True}, {"ver": "1"}, {"isdir": 1}, {"isdir": "true"}]
    for wrong in wrongs:
        with pytest.raises(ConditionFailedError):
            await items.transact([Check(key("file"), Condition(equals=wrong))], token())
    await items.transact([Check(key("file"), Condition(equals={"ver": 1, "isdir": True}))], token())


# Tokens


async def test_a_transaction_sent_again_is_applied_once(
    items: Items, open_items: OpenItems
) -> None:
    await items.write(Put(row("source", ver=1), ABSENT))
    same = token()
    actions: list[Action] = [Delete(key("source"), ver(1)), Put(row("target", ver=2), ABSENT)]
    await items.transact(actions, same)
    await items.transact(actions, same)
    other = await open_items()
    await other.transact(actions, same)
    assert await stored(items) == {"target": row("target", ver=2)}


async def test_a_transaction_sent_again_leaves_later_changes_alone(items: Items) -> None:
    same = token()
    actions: list[Action] = [
        Put(row("file", ver=1), ABSENT),
        Update(key("beside"), ver(1), set={"ver": 2}),
    ]
    await items.write(Put(row("beside", ver=1), ABSENT))
    await items.transact(actions, same)
    await items.write(Update(key("file"), ver(1), set={"ver": 2}))
    await items.write(Delete(key("beside"), ver(2)))
    await items.write(Put(row("beside", ver=1), ABSENT))
    await items.transact(actions, same)
    assert await stored(items) == {"beside": row("beside", ver=1), "file": row("file", ver=2)}


async def test_another_token_is_another_transaction(items: Items) -> None:
    actions: list[Action] = [Put(row("file", ver=1), ABSENT)]
    await items.transact(actions, token())
    with pytest.raises(ConditionFailedError):
        await items.transact(actions, token())


async def test_a_failed_transaction_is_judged_anew(items: Items) -> None:
    same = token()
    actions: list[Action] = [Update(key("file"), ver(1), set={"ver": 2})]
    for _ in range(2):
        with pytest.raises(ConditionFailedError):
            await items.transact(actions, same)
    await items.write(Put(row("file", ver=1), ABSENT))
    await items.transact(actions, same)
    assert await stored(items) == {"file": row("file", ver=2)}


async def test_one_transaction_sent_twice_at_once(items: Items, open_items: OpenItems) -> None:
    stores = [items, await open_items()]
    for attempt in range(5):
        actions: list[Action] = [
            Put(row(f"a-{attempt}", ver=1), ABSENT),
            Put(row(f"b-{attempt}", ver=1), ABSENT),
        ]
        same = token()
        sends = [partial(store.transact, actions, same) for store in stores for _ in range(4)]
        assert await gather(won, sends, limit=8) == [True] * 8
    assert len(await stored(items)) == 10


# Many at once


async def test_of_64_creations_one_wins(items: Items, open_items: OpenItems) -> None:
    stores = [items, await open_items()]

    async def create(number: int) -> dict[int, object] | None:
        try:
            await settled(
                partial(
                    stores[number % 2].write, Put(row("file", ver=1, op=f"op-{number}"), ABSENT)
                )
            )
        except ConditionFailedError as error:
            return dict(error.current)
        return None

    results = await gather(create, range(64), limit=64)
    winners = [number for number, seen in enumerate(results) if seen is None]
    assert len(winners) == 1
    winner = row("file", ver=1, op=f"op-{winners[0]}")
    assert await stored(items) == {"file": winner}
    assert [seen for seen in results if seen is not None] == [{0: winner}] * 63


async def test_no_concurrent_update_is_lost(items: Items, open_items: OpenItems) -> None:
    stores = [items, await open_items()]
    await items.write(Put(row("file", ver=0), ABSENT))

    async def grow(number: int) -> None:
        store, grown = stores[number % 2], 0
        while grown < 5:
            now = await store.get(key("file"))
            assert now is not None
            version = now["ver"]
            assert isinstance(version, int)
            grown += await won(
                partial(store.write, Update(key("file"), ver(version), set={"ver": version + 1}))
            )

    await gather(grow, range(12), limit=12)
    assert await stored(items) == {"file": row("file", ver=60)}


async def test_of_64_moves_of_one_item_one_wins(items: Items, open_items: OpenItems) -> None:
    stores = [items, await open_items()]
    await items.write(Put(row("source", ver=1), ABSENT))

    async def move(number: int) -> bool:
        actions: list[Action] = [
            Delete(key("source"), ver(1)),
            Put(row(f"target-{number}", ver=2), ABSENT),
        ]
        return await won(partial(stores[number % 2].transact, actions, token()))

    results = await gather(move, range(64), limit=64)
    assert sum(results) == 1
    assert list(await stored(items)) == [f"target-{results.index(True)}"]


async def test_concurrent_swaps_lose_nothing(items: Items, open_items: OpenItems) -> None:
    stores = [items, await open_items()]
    places = ["a", "b", "c", "d"]
    for place in places:
        await items.write(Put(row(place, id=f"born-{place}", ver=1), ABSENT))

    async def swap(number: int) -> bool:
        store = stores[number % 2]
        first, second = places[number % 4], places[(number + 1 + number // 4 % 3) % 4]
        found = await store.get_many([key(first), key(second)])
        one, two = found[key(first)]["id"], found[key(second)]["id"]
        actions: list[Action] = [
            Update(key(first), Condition(equals={"id": one}), set={"id": two}),
            Update(key(second), Condition(equals={"id": two}), set={"id": one}),
        ]
        return await won(partial(store.transact, actions, token()))

    results = await gather(swap, range(48), limit=8)
    assert any(results)
    after = await stored(items)
    assert Counter(item["id"] for item in after.values()) == Counter(
        f"born-{place}" for place in places
    )


async def test_a_transaction_is_seen_whole_by_a_transaction(items: Items) -> None:
    await items.transact(
        [Put(row("left", ver=0), ABSENT), Put(row("right", ver=0), ABSENT)], token()
    )
    steps = 20

    async def write() -> None:
        for version in range(steps):
            both: list[Action] = [
                Update(key("left"), ver(version), set={"ver": version + 1}),
                Update(key("right"), ver(version), set={"ver": version + 1}),
            ]
            await settled(partial(items.transact, both, token()))

    async def check() -> None:
        for _ in range(steps):
            seen = await items.get(key("left"))
            assert seen is not None
            checks: list[Action] = [
                Check(key("left"), Condition(equals={"ver": seen["ver"]})),
                Check(key("right"), Condition(equals={"ver": seen["ver"]})),
            ]
            failed: set[int] = set()
            try:
                await settled(partial(items.transact, checks, token()))
            except ConditionFailedError as error:
                failed = set(error.current)
            assert failed in ({0, 1}, set()), "only one half of a transaction was seen"

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(write)
        tasks.start_soon(check)
    assert {name: item["ver"] for name, item in (await stored(items)).items()} == {
        "left": steps,
        "right": steps,
    }


async def test_deletes_and_creations_in_turn_never_leave_two(
    items: Items, open_items: OpenItems
) -> None:
    stores = [items, await open_items()]

    async def client(number: int) -> int:
        store, owned = stores[number % 2], 0
        for attempt in range(4):
            mine = row("lock", owner=f"{number}-{attempt}")
            if await won(partial(store.write, Put(mine, ABSENT))):
                owned += 1
                assert await store.get(key("lock")) == mine
                assert await won(
                    partial(
                        store.write, Delete(key("lock"), Condition(equals={"owner": mine["owner"]}))
                    )
                )
        return owned

    assert sum(await gather(client, range(16), limit=16)) >= 1
    assert names((await items.query(PARTITION)).items) == []
