"""Engines for the tests that need one, and the rule that CI skips none of them.

An engine starts with the first test that asks for it, once for all workers of a run, and ends with
the last worker that uses it.
"""

from __future__ import annotations

import gc
import os
import signal
from collections.abc import Generator, Iterator
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from types import ModuleType
from typing import NoReturn
from unittest.mock import patch

import pytest
from botocore.httpsession import get_cert_path
from hypothesis import HealthCheck, settings

from s3k_async.backends import ballast
from s3k_async.model import LayoutName
from tests.engines import dynamodb_local as dynamodb_local_engine
from tests.engines import dynoxide as dynoxide_engine
from tests.engines import extenddb as extenddb_engine
from tests.engines import moto_s3 as moto_s3_engine
from tests.engines import redis_server as redis_server_engine
from tests.engines import seaweedfs as seaweedfs_engine
from tests.engines.process import Engine
from tests.engines.selection import in_short_run, needs_no_engine
from tests.engines.sharing import shared
from tests.engines.volumes import BACKENDS, Rooms, VolumeMaker, backend_params
from tests.level import FULL

# A busy machine is no failure of a generated test.
settings.register_profile("s3k", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("s3k")

MUST_RUN = ("engine", "spark")
"""Markers of tests that may be skipped where something is missing, but not in CI."""

ENGINE_FIXTURES = frozenset(
    {"dynamodb_local", "dynoxide", "extenddb", "seaweedfs", "moto_s3", "redis_server"}
)


def in_ci() -> bool:
    return os.environ.get("CI", "").lower() in {"true", "1", "yes"}


def unavailable(reason: str) -> NoReturn:
    """End a test that cannot run here: a failure in CI, a skip elsewhere."""
    if in_ci():
        pytest.fail(reason, pytrace=False)
    pytest.skip(reason)


def pytest_configure() -> None:
    """Let tests of Ctrl-C work in a background job, which inherits that SIGINT is ignored."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(tryfirst=True)  # before groups and marks are looked at
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    twins = {
        _name(item)
        for item in items
        if isinstance(item, pytest.Function)
        and hasattr(item, "callspec")
        and needs_no_engine(item.callspec.id.split("-"))
    }
    for item in items:
        fixtures = set(getattr(item, "fixturenames", ()))
        if fixtures & ENGINE_FIXTURES:
            item.add_marker("engine")
        if "spark" in fixtures:
            item.add_marker(pytest.mark.xdist_group("spark"))  # one session in one worker
        if isinstance(item, pytest.Function) and hasattr(item, "callspec"):
            name = _name(item)
            # Layout `tree` on engines is for the full run; `tests/layouts` has a sample.
            in_tree = item.callspec.params.get("layout") == "tree"
            is_long = in_tree and item.get_closest_marker("engine") is not None
            ids = item.callspec.id.split("-")
            if is_long or not in_short_run(name, ids, has_twin=name in twins):
                item.add_marker("slow")
    items.sort(key=_turn)


def _name(item: pytest.Item) -> str:
    return item.nodeid.partition("[")[0].removeprefix("tests/")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    mark = metafunc.definition.get_closest_marker("layouts")
    if mark is not None and "layout" in metafunc.fixturenames:
        metafunc.parametrize("layout", mark.args, indirect=True)


def pytest_collection_finish(session: pytest.Session) -> None:
    """Fail where pytest-xdist has lost its groups: each worker would start a Spark session."""
    if session.config.getoption("loadgroup", False):
        for item in session.items:
            group = item.get_closest_marker("xdist_group")
            if group and not item.nodeid.endswith(f"@{group.args[0]}"):
                raise pytest.UsageError("pytest-xdist and this pytest do not group tests")


def _turn(item: pytest.Item) -> int:
    """Start the longest tests first, so that none of them runs alone at the end: those with the
    mark `long`, then those of the shared Spark session, then those that start Spark themselves."""
    if item.get_closest_marker("long"):
        return 0
    if "spark" in getattr(item, "fixturenames", ()):
        return 1
    return 2 if item.get_closest_marker("spark") else 3


@pytest.hookimpl(wrapper=True)
def pytest_collection(session: pytest.Session) -> Generator[None, object, object]:
    """Collect without the garbage collector: tests stay for as long as their process, and it would
    look at all of them again and again, a fifth of the time. Afterwards it runs less often than by
    default: what the tests import stays, too, and looking at it was another fifth."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.set_threshold(20_000, 20, 20)
        gc.enable()


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


@pytest.fixture(scope="session", autouse=True)
def _one_authority(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Clients trust one of the usual authorities: each client of botocore reads their certificates,
    and all of them take longer than most tests."""
    every = Path(str(get_cert_path(True))).read_text(encoding="utf-8")
    first, end, _ = every.partition("-----END CERTIFICATE-----\n")
    file = tmp_path_factory.mktemp("authorities") / "one.pem"
    file.write_text(first + end, encoding="utf-8")
    # This variable counts more than botocore's own list and REQUESTS_CA_BUNDLE.
    with patch.dict(os.environ, AWS_CA_BUNDLE=str(file)):
        yield


@pytest.fixture(scope="session", autouse=True)
def _small_ballast() -> Iterator[None]:
    """Volumes reserve little space: allocating it would take longer than the rest of a volume's
    creation."""
    with patch.object(ballast, "SIZE", ballast.OPENING):
        yield


@pytest.fixture
def tmp_path() -> Iterator[Path]:
    """An empty directory for this test alone. Pytest's own fixture has names of about 80
    characters, and the locations of a volume have to fit into a table tag of 256."""
    with TemporaryDirectory(prefix="s3k-", ignore_cleanup_errors=True) as directory:
        yield Path(directory).resolve()


@pytest.fixture
def layout(request: pytest.FixtureRequest) -> LayoutName:
    """The layout of the volume; the mark `layouts` names those of a module or test."""
    name: LayoutName = getattr(request, "param", "path")
    return name


@pytest.fixture(scope="session")
def rounds() -> int:
    """How often a race is run."""
    return 200 if FULL else 5


@pytest.fixture(scope="session")
def dynamodb_local(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    """DynamoDB Local."""
    yield from _engine(dynamodb_local_engine, tmp_path_factory)


@pytest.fixture(scope="session")
def dynoxide(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    """dynoxide, another DynamoDB."""
    yield from _engine(dynoxide_engine, tmp_path_factory)


@pytest.fixture(scope="session")
def extenddb(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    """ExtendDB, a DynamoDB that checks signatures and throttles."""
    yield from _engine(extenddb_engine, tmp_path_factory)


@pytest.fixture(scope="session")
def seaweedfs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    """SeaweedFS, an S3 that checks signatures."""
    yield from _engine(seaweedfs_engine, tmp_path_factory)


@pytest.fixture(scope="session")
def moto_s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    """moto, an S3 in Python."""
    yield from _engine(moto_s3_engine, tmp_path_factory)


@pytest.fixture(scope="session")
def redis_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    """Redis, which syncs every write."""
    yield from _engine(redis_server_engine, tmp_path_factory)


def _engine(module: ModuleType, places: pytest.TempPathFactory) -> Iterator[Engine]:
    reason = module.missing()
    if reason is not None:
        unavailable(reason)
    name = module.__name__.rpartition(".")[2]
    base = places.getbasetemp()
    of_run = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base
    with shared(module.start, of_run / name) as server:
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
