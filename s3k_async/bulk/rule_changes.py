"""Lifecycle rules of a volume: set, list, remove."""

from __future__ import annotations

from s3k_async.errors import NotDirectoryError, PathNotFoundError, UnsupportedError
from s3k_async.lifecycle_rules import LifecycleRule, check_name_prefix
from s3k_async.model import ROOT
from s3k_async.namespace.due_index import DueIndex
from s3k_async.volumes.volume import Volume

__all__ = ["list_rules", "remove_rule", "rule_index", "set_rule"]


def rule_index(volume: Volume, path: str) -> DueIndex:
    """The due index of a volume that may be changed. Raises UnsupportedError for a volume without
    the feature `rules`, ReadOnlyVolumeError for one that cannot be changed."""
    volume.store.require_writable(path)
    index = volume.store.indexes.due
    if index is None:
        raise UnsupportedError(
            "the volume has no lifecycle rules: s3k migrate --enable rules adds them", path=path
        )
    return index


async def set_rule(volume: Volume, rule: LifecycleRule) -> LifecycleRule:
    """Set a rule, in place of the former one of its directory and name prefix. Raises
    ArgumentTypeError, InvalidArgumentError, NotDirectoryError (a file is at the path),
    PermissionDeniedError (in a volume with permissions, for anybody but the superuser)."""
    index = rule_index(volume, rule.path)
    volume.store.access.require_superuser("set lifecycle rules", rule.path)
    rule.checked()
    found = await volume.store.get(rule.path)
    if found is not None and not found.is_dir:
        raise NotDirectoryError(
            "a rule applies to a directory, and a file is at the path: s3k attr --set "
            "ExpiresAfter=SECONDS sets the same of a file",
            path=rule.path,
        )
    await index.set_rule(rule)
    return rule


async def remove_rule(volume: Volume, path: str, name_prefix: str = "") -> None:
    """Remove the rule of a directory, or of names in it. Raises PathNotFoundError if there is none,
    PermissionDeniedError as `set_rule`."""
    index = rule_index(volume, path)
    volume.store.access.require_superuser("remove lifecycle rules", path)
    check_name_prefix(name_prefix, path)
    if not await index.remove_rule(path, name_prefix):
        names = f" for names that begin with {name_prefix!r}" if name_prefix else ""
        raise PathNotFoundError(f"the directory has no lifecycle rule{names}", path=path)


async def list_rules(volume: Volume) -> list[LifecycleRule]:
    """The rules of a volume, by path and name prefix."""
    found = await rule_index(volume, ROOT).rules.newest()
    rules = (rule for of_directory in found.rules.values() for rule in of_directory)
    return sorted(rules, key=lambda each: (each.path, each.name_prefix))
