"""pyarrow's own tests of a filesystem, over a volume: those of `pyarrow.tests.test_fs` that take
one.

No test module of ours: `test_arrow_suite.py` runs it in a process of its own, with the plugin of
pyarrow, which sets options, environment and settings of hypothesis for everything that runs beside
it.
"""

from __future__ import annotations

import inspect
import itertools
import os
from collections.abc import Callable
from typing import Any

import pytest
from pyarrow.fs import PyFileSystem
from pyarrow.tests import test_fs

from s3k_async.adapters.arrow import arrow_filesystem

FORMS = os.environ.get("ARROW_SUITE_FORMS", "absolute").split(",")
"""How the tests are to write their paths."""

Config = dict[str, Any]

_numbers = itertools.count()


for _name, _test in vars(test_fs).items():
    if _name.startswith("test_") and {"fs", "filesystem_config"} & set(
        inspect.signature(_test).parameters
    ):
        globals()[_name] = _test
pickle_with_and_without_subtree_filesystem = test_fs.pickle_with_and_without_subtree_filesystem


@pytest.fixture(scope="session")
def volume() -> PyFileSystem:
    """The volume that the configuration names by default."""
    return arrow_filesystem()


@pytest.fixture(params=FORMS)
def filesystem_config(request: pytest.FixtureRequest, volume: PyFileSystem) -> Config:
    """What the tests want to know, for paths of one form, in a directory that only one test
    uses."""
    place = f"test-{next(_numbers)}/"
    above = {"relative": "", "absolute": "/", "url": f"s3k://{volume.handler.client.name}/"}[
        request.param
    ]
    return {
        "fs": volume,
        "pathfn": (above + place).__add__,
        "allow_move_dir": True,
        "allow_append_to_file": True,
    }


@pytest.fixture
def fs(filesystem_config: Config) -> PyFileSystem:
    """The volume."""
    return filesystem_config["fs"]


@pytest.fixture
def pathfn(filesystem_config: Config) -> Callable[[str], str]:
    """A test's name for a file to its path."""
    pathfn: Callable[[str], str] = filesystem_config["pathfn"]
    return pathfn


@pytest.fixture
def allow_move_dir(filesystem_config: Config) -> bool:
    """Directories can be moved."""
    return bool(filesystem_config["allow_move_dir"])


@pytest.fixture
def allow_append_to_file(filesystem_config: Config) -> bool:
    """Files can be appended to."""
    return bool(filesystem_config["allow_append_to_file"])
