"""The model's read and write units are those of the items that are really read and written."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest

from s3k_async.client import S3kClient
from s3k_async.cost_model import (
    SINGLE_VERBS,
    TREE_VERBS,
    TreeShape,
    VerbArguments,
    Workload,
    lay_out,
    on_tree,
    reclamation,
    single,
)
from s3k_async.cost_model.service_limits import Service
from s3k_async.model import LayoutName
from tests.cost_model.counting import LAYOUTS, MEMORY, Scales, client_of, laid, plant
from tests.cost_model.test_counts import reclaim, run_single

FILES = [f"part-{number:05}" for number in range(230)]
SERVICE = Service(page_items=MEMORY.page_items)
both = pytest.mark.parametrize("layout", LAYOUTS)


async def weighed(
    run: Callable[[], Awaitable[object]], patch: pytest.MonkeyPatch
) -> tuple[int, int]:
    """Read and write units of a call."""
    with patch.context() as patched:
        scales = Scales(patched)
        await run()
    return scales.read, scales.written


def units(work: Workload) -> tuple[float, float]:
    return work.read_units, work.write_units


@pytest.mark.parametrize("parents", [0, 1, 4])
@pytest.mark.parametrize("verb", SINGLE_VERBS)
@both
async def test_single_verbs(
    layout: LayoutName, verb: str, parents: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = "".join(f"/d{number}" for number in range(parents))
    async with client_of(4, layout) as maker:
        await maker.makedirs(directory or "/")
        if verb not in {"write", "makedirs"}:
            await maker.write(f"{directory}/file", b"x" * 120)
        async with S3kClient(config=maker.config) as client:
            await client.makedirs(directory or "/")  # which reads the directories
            subject = VerbArguments(
                parents,
                file_bytes=120,
                tuning=client.config.tuning,
                known_parent=True,
                layout=layout,
            )
            found = await weighed(
                lambda: run_single(client, verb, f"{directory}/file"), monkeypatch
            )
    assert found == units(single(verb, subject, SERVICE))


@pytest.mark.parametrize("atomic", [True, False], ids=["atomic", "plain"])
@pytest.mark.parametrize("top", ["/tree", "/in/tree", "/a/b/c/tree"])
@pytest.mark.parametrize("verb", TREE_VERBS)
@both
async def test_trees(
    layout: LayoutName, verb: str, top: str, atomic: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with client_of(3, layout) as client:
        await client.makedirs(top)
        await client.stat(top)
        if verb != "load":
            await plant(client, top, FILES)
        tree = await laid(client, top, MEMORY)

        async def run() -> None:
            match verb:
                case "list":
                    assert len([each async for each in client.list(top, recursive=True)]) == 230
                case "rename":
                    await client.rename(top, f"{top}-2", atomic=atomic)
                case "delete":
                    await client.delete(top, recursive=True, atomic=atomic)
                case _:
                    await client.write_many([(f"{top}/{file}", b"1") for file in FILES])

        read, written = await weighed(run, monkeypatch)
        if verb == "load":
            tree = await laid(client, top, MEMORY)
        subject = VerbArguments.below(tree, client.config.tuning)
        work = on_tree(verb, tree, subject, SERVICE, atomic=atomic)
        assert written == work.write_units
        if verb != "load" or layout == "tree":
            assert read == work.read_units
        else:  # the client has the parent in its cache, which the model does not assume
            assert read == work.read_units - tree.parents(tree.top)


@pytest.mark.parametrize("atomic", [True, False], ids=["atomic", "plain"])
@pytest.mark.parametrize(("verb", "each"), [("rename", 4), ("delete", 2)])
def test_each_file_is_written_several_times_in_layout_path(
    verb: str, each: int, atomic: bool
) -> None:
    """Four times to be renamed at once, twice to be deleted; half as often otherwise."""
    tree = lay_out(TreeShape(230), 3, SERVICE)
    work = on_tree(verb, tree, VerbArguments(), SERVICE, atomic=atomic)
    in_transactions = 2 * len(FILES) * (each if atomic else each // 2)
    assert 0 <= work.write_units - in_transactions < 20


@pytest.mark.parametrize(
    "files",
    [FILES, [f"d{number}/e{number % 3}/f" for number in range(130)]],
    ids=["flat", "directories"],
)
async def test_reclamation(files: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    async with client_of(3, "tree") as client:
        await plant(client, "/in/tree", files)
        tree = await laid(client, "/in/tree", MEMORY)
        await client.delete("/in/tree", recursive=True)
        read, written = await weighed(lambda: reclaim(client), monkeypatch)
    trash = 2 * tree.suffix_count
    assert (read - trash, written) == units(reclamation(tree, SERVICE))
