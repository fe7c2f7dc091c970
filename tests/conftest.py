"""Engines for the tests that need one, and the rule that CI skips none of them.

An engine starts with the first test that asks for it, once for each test process, and ends with the
session.
"""

from __future__ import annotations

import os
from collections.abc import Generator, Iterator
from contextlib import ExitStack
from pathlib import Path
from types import ModuleType
from typing import NoReturn

import pytest

from tests.engines import dynamodb_local as dynamodb_local_engine
from tests.engines import dynoxide as dynoxide_engine
from tests.engines import extenddb as extenddb_engine
from tests.engines import moto_s3 as moto_s3_engine
from tests.engines import seaweedfs as seaweedfs_engine
from tests.engines.process import ENGINES, Engine, running
from tests.engines.volumes import BACKENDS, Rooms, VolumeMaker, backend_params

MUST_RUN = ("engine", "spark")
"""Markers of tests that may be skipped where something is missing, but not in CI."""

ENGINE_FIXTURES = frozenset({"dynamodb_local", "dynoxide", "extenddb", "seaweedfs", "moto_s3"})


def in_ci() -> bool:
    return os.environ.get("CI", "").lower() in {"true", "1", "yes"}


def unavailable(reason: str) -> NoReturn:
    """End a test that cannot run here: a failure in CI, a skip elsewhere."""
    if in_ci():
        pytest.fail(reason, pytrace=False)
    pytest.skip(reason)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if ENGINE_FIXTURES & set(getattr(item, "fixturenames", ())):
            item.add_marker("engine")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    skipped = report.skipped and not hasattr(report, "wasxfail")
    if skipped and in_ci() and any(item.get_closest_marker(name) for name in MUST_RUN):
        report.outcome = "failed"
        report.longrepr = f"skipped in CI: {_reason(report.longrepr)}"
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report() -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    report = yield
    if report.skipped and in_ci():
        report.outcome = "failed"
        report.longrepr = f"module skipped in CI: {_reason(report.longrepr)}"
    return report


def _reason(longrepr: object) -> str:
    return str(longrepr[-1] if isinstance(longrepr, tuple) else longrepr)


@pytest.fixture(scope="session")
def rounds() -> int:
    """How often a race is run: 20, or what S3K_TEST_ROUNDS says (`make test-full`: 200)."""
    return int(os.environ.get("S3K_TEST_ROUNDS", "20"))


@pytest.fixture(scope="session")
def dynamodb_local() -> Iterator[Engine]:
    """DynamoDB Local."""
    yield from _engine(dynamodb_local_engine)


@pytest.fixture(scope="session")
def dynoxide() -> Iterator[Engine]:
    """dynoxide, another DynamoDB."""
    yield from _engine(dynoxide_engine)


@pytest.fixture(scope="session")
def extenddb() -> Iterator[Engine]:
    """ExtendDB, a DynamoDB that checks signatures and throttles."""
    yield from _engine(extenddb_engine)


@pytest.fixture(scope="session")
def seaweedfs() -> Iterator[Engine]:
    """SeaweedFS, an S3 that checks signatures."""
    yield from _engine(seaweedfs_engine)


@pytest.fixture(scope="session")
def moto_s3() -> Iterator[Engine]:
    """moto, an S3 in Python."""
    yield from _engine(moto_s3_engine)


def _engine(module: ModuleType) -> Iterator[Engine]:
    reason = module.missing()
    if reason is not None:
        unavailable(reason)
    name = module.__name__.rpartition(".")[2]
    worker = os.environ.get("PYTEST_XDIST_WORKER", "main")
    with running(module.start, ENGINES / "logs" / f"{name}-{worker}.log") as server:
        yield server


@pytest.fixture(params=backend_params())
def new_volume(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[VolumeMaker]:
    """Settings of volumes that do not exist yet: `new_volume()` gives one, on each combination of
    stores in turn.

    `tests.engines.volumes.volume_backends` picks some combinations; `new_volume.backend` tells
    which one it is.
    """
    yield from _volume_maker(request, tmp_path)


@pytest.fixture(scope="module", params=backend_params())
def new_module_volume(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[VolumeMaker]:
    """As `new_volume`, for volumes that the tests of a module share."""
    yield from _volume_maker(request, tmp_path_factory.mktemp("volumes"))


def _volume_maker(request: pytest.FixtureRequest, directory: Path) -> Iterator[VolumeMaker]:
    engines = tuple(request.getfixturevalue(name) for name in BACKENDS[request.param])
    with ExitStack() as stack:
        rooms = Rooms(request.param, engines, directory)
        stack.callback(rooms.close)
        yield VolumeMaker(request.param, rooms)
