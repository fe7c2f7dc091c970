"""fsspec's own suite, as it is: what every filesystem owes to `copy`, `get`, `put`, `pipe` and
`open`.

137 tests on each volume, none skipped. Most of them are one table of patterns, three times; those,
and all on engines, are `slow` (conftest.py).
"""

from __future__ import annotations

import asyncio
import posixpath
from collections.abc import Callable, Iterator

import pytest
from fsspec.tests import abstract

from s3k_async.adapters.fsspec import S3kFileSystem
from s3k_async.volumes import init_volume
from tests.engines.volumes import VolumeMaker, fresh_name, module_volume_backends

pytestmark = module_volume_backends("embedded", "dynamodb_local+seaweedfs")


@pytest.fixture(scope="module")
def volume_fs(new_module_volume: VolumeMaker) -> Iterator[S3kFileSystem]:
    config = new_module_volume()
    asyncio.run(init_volume(config))
    fs = S3kFileSystem(config=config)
    yield fs
    fs.close_session()


class Fixtures(abstract.AbstractFixtures):  # type: ignore[misc]  # fsspec is untyped
    @pytest.fixture
    def fs(self, volume_fs: S3kFileSystem) -> S3kFileSystem:
        return volume_fs

    @pytest.fixture
    def fs_path(self, volume_fs: S3kFileSystem) -> Iterator[str]:
        path = f"/{fresh_name('suite')}"
        volume_fs.mkdir(path)
        yield path
        volume_fs.rm(path, recursive=True)

    @pytest.fixture
    def fs_join(self) -> Callable[..., str]:
        return posixpath.join

    @pytest.fixture
    def supports_empty_directories(self) -> bool:
        return True


class TestCopy(abstract.AbstractCopyTests, Fixtures):  # type: ignore[misc]  # fsspec is untyped
    pass


class TestGet(abstract.AbstractGetTests, Fixtures):  # type: ignore[misc]  # fsspec is untyped
    pass


class TestPut(abstract.AbstractPutTests, Fixtures):  # type: ignore[misc]  # fsspec is untyped
    pass


class TestPipe(abstract.AbstractPipeTests, Fixtures):  # type: ignore[misc]  # fsspec is untyped
    pass


class TestOpen(abstract.AbstractOpenTests, Fixtures):  # type: ignore[misc]  # fsspec is untyped
    pass
