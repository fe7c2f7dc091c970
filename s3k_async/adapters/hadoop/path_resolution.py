"""Paths of Hadoop in a volume: URLs, the working directory, the home directory."""

from __future__ import annotations

import getpass
import os
import re

from s3k_async._core import paths
from s3k_async.adapters.hadoop.accounts import Accounts
from s3k_async.adapters.hadoop.status import BLOCK_SIZE, REPLICATION
from s3k_async.client import S3kClient
from s3k_async.errors import CrossVolumeError
from s3k_async.model import ROOT

__all__ = ["PathResolution"]

SCHEME = "s3k"
_URL = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://([^/]*)(.*)", re.DOTALL)


class PathResolution:
    """A volume, and the resolution of paths in it."""

    def __init__(self, client: S3kClient, *, user: str | None = None) -> None:
        """`client`: an open client. `user`: owner and group of entries that have none, and name of
        the home directory; None: the user of this process."""
        self._client = client
        self._user = user if user is not None else _process_user()
        self._accounts = Accounts(self._user)
        self._working_directory = ROOT

    # Paths

    def get_scheme(self) -> str:
        """`s3k`."""
        return SCHEME

    def get_uri(self) -> str:
        """`s3k://<volume>`, without a path."""
        return f"{SCHEME}://{self._client.name}"

    def get_canonical_service_name(self) -> str:
        """The same as `get_uri`: there are no delegation tokens."""
        return self.get_uri()

    def check_path(self, path: str) -> None:
        """Raise CrossVolumeError unless a path belongs to this volume."""
        self._local(path)

    def make_qualified(self, path: str) -> str:
        """The path as a URL, normalised."""
        return self._url(self._local(path))

    def get_working_directory(self) -> str:
        """The base of relative paths, as a URL; initially the root."""
        return self._url(self._working_directory)

    def set_working_directory(self, path: str) -> None:
        """Change the base of relative paths. It need not exist."""
        self._working_directory = self._local(path)

    def get_home_directory(self) -> str:
        """`/user/<user>`, as a URL. It need not exist."""
        return self._url(paths.normalize(f"/user/{self._user}"))

    def get_default_block_size(self, path: str = ROOT) -> int:
        """128 MiB."""
        self.check_path(path)
        return BLOCK_SIZE

    def get_default_replication(self, path: str = ROOT) -> int:
        """1."""
        self.check_path(path)
        return REPLICATION

    # Internals

    def _local(self, path: str) -> str:
        """The path inside the volume, normalised. Raises CrossVolumeError."""
        return paths.normalize(self._inside(path))

    def _inside(self, path: str) -> str:
        """The path inside the volume, absolute unless empty, not normalised. Raises
        CrossVolumeError."""
        url = _URL.fullmatch(path)
        if url is not None:
            if (url[1].lower(), url[2]) != (SCHEME, self._client.name):
                raise CrossVolumeError(f"wrong file system, expected {self.get_uri()}/", path=path)
            return url[3] or ROOT
        return path if path.startswith("/") or not path else f"{self._working_directory}/{path}"

    def _url(self, local: str) -> str:
        return self.get_uri() + local


def _process_user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return str(os.getuid())
