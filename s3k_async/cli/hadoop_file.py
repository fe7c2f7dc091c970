"""Hadoop properties from a file, for `--hadoop`."""

from __future__ import annotations

import json
from xml.etree import ElementTree as ET

from s3k_async.bulk.local_tree import local_errors
from s3k_async.errors import ConfigError

__all__ = ["read_hadoop_file"]


def read_hadoop_file(path: str) -> dict[str, str]:
    """The properties in a file: a JSON object of names and values, or Hadoop's XML
    (`configuration`, `property`, `name`, `value`). Raises ConfigError.
    """
    with local_errors(path), open(path, "rb") as file:
        data = file.read()
    return _xml(data, path) if data.lstrip().startswith(b"<") else _json(data, path)


def _json(data: bytes, path: str) -> dict[str, str]:
    try:
        content = json.loads(data)
    except ValueError as error:
        raise ConfigError(
            f"Hadoop properties are JSON or XML, and this is neither: {error}", path=path
        ) from error
    if not isinstance(content, dict) or any(
        isinstance(value, dict | list) for value in content.values()
    ):
        raise ConfigError("Hadoop properties in JSON are one object of names and values", path=path)
    return {name: _text(value) for name, value in content.items()}


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
    properties: dict[str, str] = {}
    for each in root.iter("property"):
        name = (each.findtext("name") or "").strip()
        if not name:
            raise ConfigError("a property of the Hadoop configuration has no name", path=path)
        properties[name] = (each.findtext("value") or "").strip()
    return properties
