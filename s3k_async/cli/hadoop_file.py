"""Hadoop properties from a file, for `--hadoop`."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Final
from xml.etree import ElementTree as ET

from s3k_async.bulk.local_tree import local_errors
from s3k_async.errors import ConfigError

__all__ = ["expand_variables", "read_hadoop_file"]

_BOM: Final = b"\xef\xbb\xbf"
_VARIABLE: Final = re.compile(r"\$\{([^}$ ]+)\}")
_SUBSTITUTIONS: Final = 20
"""Limit of Hadoop for one value."""
_INCLUDE: Final = "{http://www.w3.org/2001/XInclude}include"


def read_hadoop_file(path: str) -> dict[str, str]:
    """The properties in a file: a JSON object of names and values, or Hadoop's XML
    (`configuration`, `property`, `name`, `value`). Raises ConfigError.
    """
    with local_errors(path), open(path, "rb") as file:
        data = file.read().removeprefix(_BOM)
    return _xml(data, path) if data.lstrip().startswith(b"<") else _json(data, path)


def expand_variables(properties: Mapping[str, str]) -> dict[str, str]:
    """The properties with `${name}` replaced by the value of that property, as by Hadoop's
    `Configuration`: one of no property remains as it is, and so does a value in which a variable
    refers to itself. Raises ConfigError after 20 substitutions in one value."""
    return {name: _expanded(name, properties) for name in properties}


def _expanded(name: str, properties: Mapping[str, str]) -> str:
    text = properties[name]
    for _ in range(_SUBSTITUTIONS):
        found = _VARIABLE.search(text)
        value = None if found is None else properties.get(found[1])
        if found is None or value is None:
            return text
        if found[0] in value:
            return properties[name]
        text = text[: found.start()] + value + text[found.end() :]
    raise ConfigError(
        f"Hadoop setting {name} needs more than {_SUBSTITUTIONS} substitutions of variables"
    )


def _json(data: bytes, path: str) -> dict[str, str]:
    try:
        content = json.loads(data)
    except ValueError as error:
        raise ConfigError(
            f"Hadoop properties are JSON or XML, and this is neither: {error}", path=path
        ) from error
    except RecursionError as error:
        raise ConfigError("Hadoop properties in JSON are nested too deeply", path=path) from error
    if not isinstance(content, dict) or any(
        isinstance(value, dict | list) for value in content.values()
    ):
        raise ConfigError("Hadoop properties in JSON are one object of names and values", path=path)
    return {name: _text(value) for name, value in content.items() if value is not None}


def _text(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def _xml(data: bytes, path: str) -> dict[str, str]:
    try:
        root = ET.fromstring(data)  # noqa: S314 - the caller's own configuration
    except ET.ParseError as error:
        raise ConfigError(f"the Hadoop configuration is not XML: {error}", path=path) from error
    if root.tag != "configuration":
        raise ConfigError(
            f"a Hadoop configuration is a <configuration>, not <{root.tag}>", path=path
        )
    if next(root.iter(_INCLUDE), None) is not None:
        raise ConfigError(
            "the Hadoop configuration includes another file, which is not read: give that by a "
            "--hadoop of its own, before this one, and remove <xi:include>",
            path=path,
        )
    properties: dict[str, str] = {}
    for each in root.iter("property"):
        name = (each.findtext("name") or "").strip()
        if not name:
            raise ConfigError("a property of the Hadoop configuration has no name", path=path)
        properties[name] = (each.findtext("value") or "").strip()
    return properties
