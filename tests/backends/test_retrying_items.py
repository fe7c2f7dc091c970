"""Definite answers over a store that loses them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from itertools import count

import anyio
import pytest

from s3k_async._core.concurrency import AdaptiveLimit
from s3k_async._core.retry import RetryPolicy
from s3k_async.backends.memory.memory_items import MemoryItems
from s3k_async.backends.ports.items import (
    ABSENT,
    Action,
    Check,
    Condition,
    Delete,
    Item,
    ItemPage,
    ItemStore,
    Key,
    Put,
    Update,
    refusal_of,
)
from s3k_async.backends.retrying.retrying_items import RetryingItems
from s3k_async.errors import (
    ConditionFailedError,
    CorruptDataError,
    LeaseExpiredError,
    OutcomeUnknownError,
    PermissionDeniedError,
    RequestTimeoutError,
    ResponseLostError,
    S3kError,
    ThrottledError,
    TransactionConflictError,
    UnreachableError,
    UnsupportedError,
)
from s3k_async.testing import Call, FaultPlan
from tests.support import FakeClock, fake_runtime

_names = (f"test-reliable-items-{number}" for number in count())

KEY = Key("p", "a")
LOST = [ResponseLostError("lost"), RequestTimeoutError("no answer")]
DEFINITE = [
    ThrottledError("slow down"),
    TransactionConflictError("conflict"),
    UnreachableError("refused"),
]


def item(sort: str = "a", ver: int = 1, op: str = "other") -> Item:
    return {"path": "p", "children": sort, "id": f"id-{sort}", "ver": ver, "op": op}


def at(ver: int) -> Condition:
    return Condition(equals={"id": "id-a", "ver": ver})


class Rig:
    """A reliable store over memory with faults, and a way around both, for the other client."""

    def __init__(
        self, policy: RetryPolicy | None = None, limiter: AdaptiveLimit | None = None
    ) -> None:
        name = next(_names)
        self.plan = FaultPlan()
        self.clock = FakeClock()
        self.other = MemoryItems(name)
        self.store = RetryingItems(
            self.plan.items(MemoryItems(name)),
            policy or RetryPolicy(attempts=5),
            fake_runtime(self.clock),
            limiter,
        )

    async def holding(self, *items: Item) -> Rig:
        await self.other.create()
        for each in items:
            await self.other.write(Put(each, ABSENT))
        return self

    def before_call(self, number: int, change: Callable[[], Awaitable[None]]) -> None:
        """Let the other client act just before call `number`."""

        async def gate(call: Call) -> None:
            if call.number == number:
                await change()

        self.plan.gate = gate

    def methods(self) -> list[str]:
        return [call.method for call in self.plan.calls]


CREATE = Put(item(op="ours"), ABSENT)
CHANGE = Update(KEY, at(1), {"ver": 2, "op": "ours"})
REPLACE = Put(item(ver=2, op="ours"), at(1))
REMOVE = Delete(KEY, at(1))
WRITES: list[tuple[Put | Update | Delete, Sequence[Item], Item | None]] = [
    (CREATE, [], item(op="ours")),
    (CHANGE, [item()], item(ver=2, op="ours")),
    (REPLACE, [item()], item(ver=2, op="ours")),
    (REMOVE, [item()], None),
]


@pytest.mark.parametrize(("action", "stored", "after"), WRITES)
@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("error", LOST, ids=lambda error: type(error).__name__)
async def test_a_lost_answer_ends_in_success(
    action: Put | Update | Delete,
    stored: Sequence[Item],
    after: Item | None,
    when: str,
    error: S3kError,
) -> None:
    rig = await Rig().holding(*stored)
    rig.plan.fail(1, error, when="after" if when == "after" else "before")
    await rig.store.write(action)
    assert await rig.other.get(KEY) == after
    assert len(rig.clock.sleeps) == 1


@pytest.mark.parametrize(("action", "stored", "after"), WRITES)
@pytest.mark.parametrize("error", DEFINITE, ids=lambda error: type(error).__name__)
async def test_a_request_that_was_not_applied_is_sent_again(
    action: Put | Update | Delete, stored: Sequence[Item], after: Item | None, error: S3kError
) -> None:
    rig = await Rig().holding(*stored)
    rig.plan.fail_when(lambda call: True, error, times=4)
    await rig.store.write(action)
    assert await rig.other.get(KEY) == after
    assert len(rig.plan.calls) == 5


@pytest.mark.parametrize(("action", "stored", "after"), WRITES)
@pytest.mark.parametrize("error", DEFINITE, ids=lambda error: type(error).__name__)
async def test_the_last_definite_error_is_raised_when_the_policy_ends(
    action: Put | Update | Delete, stored: Sequence[Item], after: Item | None, error: S3kError
) -> None:
    rig = await Rig().holding(*stored)
    rig.plan.fail_when(lambda call: True, error, times=100)
    with pytest.raises(type(error)):
        await rig.store.write(action)
    assert len(rig.plan.calls) == 5
    assert await rig.other.get(KEY) == (stored[0] if stored else None)


@pytest.mark.parametrize(
    ("action", "stored"),
    [(CREATE, item()), (CHANGE, item(ver=7)), (REPLACE, None), (REMOVE, item(ver=7))],
)
async def test_a_failed_condition_passes_through_with_what_is_stored(
    action: Put | Update | Delete, stored: Item | None
) -> None:
    rig = await Rig().holding(*([stored] if stored else []))
    with pytest.raises(ConditionFailedError) as failure:
        await rig.store.write(action)
    assert failure.value.current == {0: stored}
    assert len(rig.plan.calls) == 1


async def test_a_failed_condition_after_throttling_is_still_plain() -> None:
    rig = await Rig().holding(item(ver=7))
    rig.plan.fail(1, ThrottledError("slow down"))
    with pytest.raises(ConditionFailedError) as failure:
        await rig.store.write(CHANGE)
    assert failure.value.current == {0: item(ver=7)}


@pytest.mark.parametrize("action", [CREATE, CHANGE, REPLACE])
@pytest.mark.parametrize("when", ["before", "after"])
async def test_another_clients_write_after_a_lost_answer_leaves_the_outcome_unknown(
    action: Put | Update, when: str
) -> None:
    rig = await Rig().holding(*([] if action is CREATE else [item()]))
    rig.plan.fail(1, ResponseLostError("lost"), when="after" if when == "after" else "before")

    async def overwrite() -> None:
        stored = await rig.other.get(KEY)
        condition = ABSENT if stored is None else Condition(equals={"ver": stored["ver"]})
        await rig.other.write(Put(item(ver=9, op="theirs"), condition))

    rig.before_call(2, overwrite)
    with pytest.raises(OutcomeUnknownError) as unknown:
        await rig.store.write(action)
    assert unknown.value.operation == "ours"
    assert isinstance(unknown.value.__cause__, ConditionFailedError)
    assert await rig.other.get(KEY) == item(ver=9, op="theirs")


@pytest.mark.parametrize("when", ["before", "after"])
async def test_a_write_whose_every_answer_is_lost_is_resolved_by_reading_back(when: str) -> None:
    rig = await Rig().holding(item())
    rig.plan.fail(1, ResponseLostError("lost"), when="after" if when == "after" else "before")
    rig.plan.fail_when(lambda call: call.number in range(2, 6), ResponseLostError("lost"), times=4)
    await rig.store.write(CHANGE)
    assert await rig.other.get(KEY) == item(ver=2, op="ours")
    assert rig.methods()[:6] == ["write"] * 5 + ["get_many"]
    assert rig.methods()[6:] == ([] if when == "after" else ["write"])


async def test_the_outcome_is_unknown_when_nothing_answers_any_more() -> None:
    rig = await Rig().holding(item())
    rig.plan.fail_when(lambda call: True, RequestTimeoutError("no answer"), when="after", times=100)
    with pytest.raises(OutcomeUnknownError) as unknown:
        await rig.store.write(CHANGE)
    assert unknown.value.operation == "ours"
    assert "p/a" in str(unknown.value)


async def test_the_outcome_is_unknown_when_the_last_resend_is_lost_too() -> None:
    rig = await Rig().holding(item())
    rig.plan.fail_when(lambda call: call.method == "write", ResponseLostError("lost"), times=100)
    with pytest.raises(OutcomeUnknownError):
        await rig.store.write(CHANGE)
    assert rig.methods() == ["write"] * 5 + ["get_many", "write", "get_many"]


async def test_a_refusal_after_a_lost_answer_does_not_hide_our_success() -> None:
    rig = await Rig().holding(item())
    rig.plan.fail(1, ResponseLostError("lost"), when="after")
    rig.plan.fail(2, PermissionDeniedError("no longer"))
    await rig.store.write(CHANGE)


async def test_a_refusal_without_a_lost_answer_is_definite() -> None:
    rig = await Rig().holding(item())
    rig.plan.fail(1, PermissionDeniedError("no"))
    with pytest.raises(PermissionDeniedError):
        await rig.store.write(CHANGE)
    assert len(rig.plan.calls) == 1


async def test_an_item_without_an_operation_id_resolves_nothing() -> None:
    rig = await Rig().holding({"path": "p", "children": "a", "id": "id-a", "ver": 1})
    rig.plan.fail(1, ResponseLostError("lost"), when="after")
    with pytest.raises(OutcomeUnknownError):
        await rig.store.write(Update(KEY, at(1), {"ver": 2}))


async def test_a_delete_carries_a_token_so_that_its_own_success_is_recognised() -> None:
    rig = await Rig().holding(item())
    rig.plan.fail(1, ResponseLostError("lost"), when="after")
    await rig.store.write(REMOVE)
    assert rig.methods() == ["transact", "transact"]


MOVE: list[Action] = [
    Put(item("b", 2, "ours"), ABSENT),
    Delete(KEY, at(1)),
    Check(Key("p", "c"), Condition()),
]


@pytest.mark.parametrize("when", ["before", "after"])
async def test_a_transaction_is_sent_again_with_its_token(when: str) -> None:
    rig = await Rig().holding(item(), item("c"))
    rig.plan.fail(1, ResponseLostError("lost"), when="after" if when == "after" else "before")
    await rig.store.transact(MOVE, "token")
    assert await rig.other.get(KEY) is None
    assert await rig.other.get(Key("p", "b")) == item("b", 2, "ours")
    assert rig.methods() == ["transact", "transact"]


async def test_a_transaction_passes_every_failed_condition_through() -> None:
    rig = await Rig().holding(item(ver=3), item("b"))
    with pytest.raises(ConditionFailedError) as failure:
        await rig.store.transact(MOVE, "token")
    assert failure.value.current == {0: item("b"), 1: item(ver=3), 2: None}


async def test_a_transaction_that_is_throttled_until_the_policy_ends_was_not_applied() -> None:
    rig = await Rig().holding(item(), item("c"))
    rig.plan.fail_when(lambda call: True, ThrottledError("slow down"), times=100)
    with pytest.raises(ThrottledError):
        await rig.store.transact(MOVE, "token")
    assert await rig.other.get(KEY) == item()


class ForgetfulItems(MemoryItems):
    """An engine that does not know a token again."""

    async def transact(self, actions: Sequence[Action], token: str) -> None:
        self._table().tokens.clear()
        await super().transact(actions, token)


def forgetful(rig: Rig) -> ItemStore:
    inner = rig.plan.items(ForgetfulItems(rig.other._name))
    return RetryingItems(inner, RetryPolicy(attempts=5), fake_runtime(rig.clock))


async def test_a_forgotten_token_does_not_turn_success_into_a_conflict() -> None:
    rig = await Rig().holding(item(), item("c"))
    rig.plan.fail(1, ResponseLostError("lost"), when="after")
    await forgetful(rig).transact(MOVE, "token")
    assert rig.methods() == ["transact", "transact"]


async def test_our_success_shows_on_an_item_whose_condition_did_not_fail() -> None:
    rig = await Rig().holding(item(), item("c"))
    actions: list[Action] = [Delete(KEY, at(1)), Update(Key("p", "c"), Condition(), {"op": "ours"})]
    rig.plan.fail(1, ResponseLostError("lost"), when="after")
    await forgetful(rig).transact(actions, "token")
    assert rig.methods() == ["transact", "transact", "get_many"]


async def test_a_forgotten_delete_has_an_unknown_outcome() -> None:
    rig = await Rig().holding(item())
    rig.plan.fail(1, ResponseLostError("lost"), when="after")
    with pytest.raises(OutcomeUnknownError) as unknown:
        await forgetful(rig).transact([REMOVE], "the operation")
    assert unknown.value.operation == "the operation"


async def test_a_transaction_whose_conditions_hold_again_is_sent_again() -> None:
    rig = await Rig().holding(item(), item("b"), item("c"))
    rig.plan.fail(1, ResponseLostError("lost"))
    stray = Delete(Key("p", "b"), Condition())
    rig.before_call(3, lambda: rig.other.write(stray))
    await rig.store.transact(MOVE, "token")
    assert rig.methods() == ["transact", "transact", "get_many", "transact"]
    assert await rig.other.get(KEY) is None


async def test_a_transaction_whose_refusals_were_all_lost_is_sent_again() -> None:
    """The refusal of the last request has the conditions that failed."""
    rig = await Rig().holding(item(), item("b"), item("c"))
    rig.plan.fail_when(lambda call: True, ResponseLostError("lost"), when="after", times=5)
    with pytest.raises(OutcomeUnknownError) as unknown:
        await rig.store.transact(MOVE, "token")
    assert rig.methods() == ["transact"] * 5 + ["get_many", "transact", "get_many"]
    refusal = refusal_of(unknown.value)
    assert refusal is not None
    assert refusal.current == {0: item("b")}


@pytest.mark.parametrize("method", ["get", "get_many", "query", "scan"])
async def test_reads_are_retried(method: str) -> None:
    rig = await Rig().holding(item())
    rig.plan.fail(1, ResponseLostError("lost"), when="after")
    rig.plan.fail(2, ThrottledError("slow down"))
    match method:
        case "get":
            assert await rig.store.get(KEY) == item()
        case "get_many":
            assert await rig.store.get_many([KEY]) == {KEY: item()}
        case "query":
            assert (await rig.store.query("p")).items == [item()]
        case _:
            assert (await rig.store.scan(0, 1)).items == [item()]
    assert rig.methods() == [method] * 3


async def test_the_limiter_bounds_the_requests_in_flight_and_not_the_waits() -> None:
    rig = await Rig(limiter=AdaptiveLimit(2)).holding(item())
    rig.plan.fail_when(lambda call: True, ThrottledError("slow down"), times=3)
    inside = most = 0

    async def gate(call: Call) -> None:
        nonlocal inside, most
        inside += 1
        most = max(most, inside)
        await anyio.lowlevel.checkpoint()
        inside -= 1

    rig.plan.gate = gate
    async with anyio.create_task_group() as tasks:
        for _ in range(10):
            tasks.start_soon(rig.store.get, KEY)
    assert most == 2
    assert len(rig.plan.calls) == 13


# Loading


def many(count: int, text: str = "") -> list[Item]:
    return [
        {"path": "p", "children": f"{number:04}", "ver": number, "text": text}
        for number in range(count)
    ]


async def stored(rig: Rig) -> list[Item]:
    return list((await rig.other.query("p", limit=10_000)).items)


async def test_nothing_is_loaded_without_the_lock() -> None:
    rig = await Rig().holding()
    with pytest.raises(UnsupportedError, match="exclusive lock"):
        await rig.store.load(many(1))
    with rig.store.loading(lambda: None):
        pass
    with pytest.raises(UnsupportedError, match="exclusive lock"):
        await rig.store.load(many(1))
    assert rig.methods() == []


async def test_nothing_more_is_loaded_once_the_lock_is_lost() -> None:
    rig = await Rig().holding()
    asked = count(1)

    def held() -> None:
        if next(asked) > 2:
            raise LeaseExpiredError("lost")

    with rig.store.loading(held), pytest.raises(LeaseExpiredError):
        await rig.store.load(many(200))
    assert 0 < len(await stored(rig)) <= 50


async def test_a_load_is_divided_by_items() -> None:
    rig = await Rig().holding()
    with rig.store.loading(lambda: None):
        await rig.store.load(many(60))
        await rig.store.load([])
    assert await stored(rig) == many(60)
    assert rig.methods() == ["load"] * 3


async def test_a_load_is_divided_by_bytes() -> None:
    rig = await Rig().holding()
    with rig.store.loading(lambda: None):
        await rig.store.load(many(10, "\x01" * 400_000))
    assert len(await stored(rig)) == 10
    assert rig.methods() == ["load"] * 2


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("error", [*LOST, *DEFINITE], ids=lambda error: type(error).__name__)
async def test_a_load_is_sent_again(when: str, error: S3kError) -> None:
    rig = await Rig().holding(*many(1, "old"))
    rig.plan.fail_when(
        lambda call: True, error, when="after" if when == "after" else "before", times=3
    )
    with rig.store.loading(lambda: None):
        await rig.store.load(many(3))
    assert await stored(rig) == many(3)
    assert len(rig.plan.calls) == 4


async def test_an_item_is_loaded_once() -> None:
    rig = await Rig().holding()
    with rig.store.loading(lambda: None), pytest.raises(ValueError, match="twice"):
        await rig.store.load([*many(30), many(1)[0]])
    assert await stored(rig) == []


class Confused(MemoryItems):
    """A table that answers with another item than the requested one."""

    async def get(self, key: Key) -> Item | None:
        return await super().get(Key("p", "b"))

    async def get_many(self, keys: Sequence[Key]) -> dict[Key, Item]:
        found = await super().get_many([Key("p", "b")])
        return dict.fromkeys(keys[:1], *found.values()) if keys[0].sort == "a" else found

    async def query(
        self,
        partition: str,
        *,
        cursor: str | None = None,
        after: str = "",
        limit: int | None = None,
    ) -> ItemPage:
        return await super().query("p")


async def test_another_item_than_was_asked_for_is_never_an_answer() -> None:
    rig = await Rig().holding(item("a"), item("b"))
    store = RetryingItems(Confused(rig.other._name), RetryPolicy(attempts=1), fake_runtime())
    for read in (
        lambda: store.get(KEY),
        lambda: store.get_many([KEY]),
        lambda: store.get_many([Key("p", "c")]),
        lambda: store.query("q"),
    ):
        with pytest.raises(CorruptDataError):
            await read()
    assert await store.get(Key("p", "b")) == item("b")
