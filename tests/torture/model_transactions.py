"""Transactions of the caller's own in the model: their steps, all of them or none."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import TypeAlias, TypeGuard

import pytest

from s3k_async import S3kClient
from s3k_async.errors import S3kError
from s3k_async.model import StagedFile
from s3k_async.namespace import multi_path_commit
from tests.torture import model_lists
from tests.torture.model import (
    Answer,
    Delete,
    MakeDirectory,
    Operation,
    Outcome,
    Refusal,
    Rename,
    Tree,
    Write,
)

__all__ = ["Step", "Transact", "paths_of"]

Step: TypeAlias = Write | Delete | Rename | MakeDirectory


def paths_of(step: Step) -> list[str]:
    """What a step names."""
    return [step.source, step.target] if isinstance(step, Rename) else [step.path]


def is_write(step: Step) -> TypeGuard[Write]:
    return isinstance(step, Write)


async def stage(fs: S3kClient, data: bytes) -> StagedFile:
    async with fs.stage() as file:
        await file.write(data)
    return file.staged


@dataclass(frozen=True)
class Transact:
    """`transaction`. No step is on, above or below the path of another."""

    stamp: int
    steps: tuple[Step, ...]
    by_record: bool = False
    """Whether it is carried out as if it did not fit into one transaction of the table."""
    staged: bool = False
    """Whether its bytes are uploaded before it begins, as if by another process, and published by
    it."""

    async def run(self, fs: S3kClient) -> Outcome:
        with pytest.MonkeyPatch.context() as patched:
            if self.by_record:
                patched.setattr(multi_path_commit, "AT_ONCE", 0)
            uploads = {
                step.path: await stage(fs, step.data)
                for step in self.steps
                if self.staged and is_write(step)
            }
            async with fs.transaction() as tx:
                for step in self.steps:
                    match step:
                        case Write() if self.staged:
                            await tx.publish(
                                step.path, uploads[step.path], overwrite=step.overwrite
                            )
                        case Write():
                            await tx.write(step.path, step.data, overwrite=step.overwrite)
                        case Delete():
                            await tx.delete(
                                step.path, recursive=step.recursive, missing_ok=step.missing_ok
                            )
                        case Rename():
                            await tx.rename(step.source, step.target, overwrite=step.overwrite)
                        case MakeDirectory():
                            await tx.makedirs(step.path)

    def apply(
        self,
        tree: Tree,
        applied: Callable[[Operation], model_lists.Step] = lambda operation: operation,
    ) -> Answer | Refusal:
        """`applied`: each step as it is in the layout of the volume."""
        refusals: set[type[S3kError]] = set()
        # What is made comes first: a file may be moved into a directory that the transaction makes.
        for step in sorted(self.steps, key=lambda each: isinstance(each, Rename)):
            result = applied(replace(step, stamp=self.stamp)).apply(tree)
            if isinstance(result, Refusal):
                refusals |= result
            else:
                tree = result.tree
        return Refusal(refusals) if refusals else Answer(None, tree)

    def leftovers(self, tree: Tree) -> Iterator[Tree]:
        """Not even a directory that it needed."""
        return iter(())
