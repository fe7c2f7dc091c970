"""Storage rules: the storage class and the object tags of new files below a path.

Limits of tags: Amazon S3 User Guide, "Categorizing your objects using tags".
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, cast, get_args
from urllib.parse import unquote

from s3k_async._core.paths import normalize
from s3k_async.backends.aws.access import StorageClass
from s3k_async.backends.ports.storage_terms import StorageTerms
from s3k_async.errors import ConfigError, InvalidPathError
from s3k_async.model import ROOT

__all__ = ["StorageRules"]

_MOST_TAGS: Final = 10
_TAG: Final = re.compile(r"[\w .:/=+\-@]{1,128}")
_VALUE: Final = re.compile(r"[\w .:/=+\-@]{0,256}")
_CLASSES: Final = get_args(StorageClass)
_NO_TERMS: Final = StorageTerms()


@dataclass(frozen=True, slots=True)
class StorageRules:
    """The rules of the setting `storage_rules`. The rule of the nearest directory applies."""

    terms: Mapping[str, StorageTerms] = field(default_factory=dict)
    """By the path of the directory."""

    @classmethod
    def parse(cls, text: str) -> StorageRules:
        """The rules in a setting, separated by spaces: `PATH:CLASS,TAG=VALUE,...`. Other characters
        are percent-encoded. Raises ConfigError."""
        found: dict[str, StorageTerms] = {}
        for rule in text.split():
            path, _, terms = rule.partition(":")
            try:
                directory = normalize(unquote(path)) if path.startswith(ROOT) else ""
            except InvalidPathError:
                directory = ""
            if not directory:
                raise _refusal(rule, "it does not begin with an absolute path")
            if directory in found:
                raise _refusal(rule, f"there are two rules for {directory}")
            found[directory] = _terms(rule, terms)
        return cls(found)

    def __bool__(self) -> bool:
        return bool(self.terms)

    @property
    def have_tags(self) -> bool:
        """Whether a rule has tags."""
        return any(terms.tags for terms in self.terms.values())

    def at(self, path: str) -> StorageTerms:
        """The terms for a new file; use `/` if its path is not known."""
        while path != ROOT:
            path = path.rpartition("/")[0] or ROOT
            if path in self.terms:
                return self.terms[path]
        return self.terms.get(ROOT, _NO_TERMS)


def _terms(rule: str, text: str) -> StorageTerms:
    classes: list[str] = []
    tags: dict[str, str] = {}
    for part in filter(None, text.split(",")):
        name, equals, value = part.partition("=")
        if not equals:
            classes.append(name.upper())
            continue
        tag, content = unquote(name), unquote(value)
        if not _TAG.fullmatch(tag) or tag.lower().startswith("aws:"):
            raise _refusal(rule, f"{tag!r} is not the name of a tag in S3")
        if not _VALUE.fullmatch(content):
            raise _refusal(rule, f"{content!r} is not the value of a tag in S3")
        if tag in tags:
            raise _refusal(rule, f"the tag {tag!r} is given twice")
        tags[tag] = content
    if not classes and not tags:
        raise _refusal(rule, "it has neither a storage class nor tags")
    if len(classes) > 1 or any(each not in _CLASSES for each in classes):
        raise _refusal(rule, f"the storage class must be one of {', '.join(_CLASSES)}")
    if len(tags) > _MOST_TAGS:
        raise _refusal(rule, f"an object has at most {_MOST_TAGS} tags")
    stored = cast("StorageClass", classes[0]) if classes else None
    return StorageTerms(stored, tuple(tags.items()))


def _refusal(rule: str, why: str) -> ConfigError:
    return ConfigError(
        f"storage_rules: invalid rule {rule!r}: {why}; write PATH:CLASS,TAG=VALUE, as in "
        "/archive:STANDARD_IA,team=web, with a space between rules"
    )
