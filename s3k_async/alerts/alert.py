"""An alert: one kind of finding of a run, with the number and the first paths, and its message.

The message has the fields of s3mper's messages, for programs that read those, and some of its own.
"""

from __future__ import annotations

import getpass
import json
import os
import socket
import traceback
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import islice
from typing import Any, Final, Literal, Self, TypeAlias, get_args

from s3k_async._core.runtime import SYSTEM, Runtime

__all__ = ["FRAMES", "KINDS", "MOST_PATHS", "Alert", "AlertKind", "AlertOrigin", "AlertSource"]

AlertKind: TypeAlias = Literal[
    "missing", "orphan", "conflict", "recovered", "timeout", "throttled", "repaired"
]
KINDS: Final[tuple[AlertKind, ...]] = get_args(AlertKind)
QueryType: TypeAlias = Literal["Hive", "Pig", "Unknown"]

MOST_PATHS: Final = 10
"""Paths in a message; the number of findings is not limited."""
FRAMES: Final = 15
"""Stack frames in a message, as in s3mper's."""
_QUERIES: Final[tuple[tuple[QueryType, str, str], ...]] = (
    ("Hive", "hive_query_id", "hive_log_file"),
    ("Pig", "pig_script_id", "pig_logfile"),
    ("Unknown", "", ""),
)
"""Type of a query, and the variables of its id and log file: the keys of Hive and Pig as Hadoop
Streaming puts the configuration of a job into the environment. The first that is set counts."""
_LONGEST: Final = 500
"""Maximum characters of a detail, and of each value from the environment."""
_LONGEST_PATH: Final = 1000
"""Maximum characters of a path. Each takes at most 12 bytes of JSON in ASCII, so a message has less
than 200 KiB: SQS and SNS accept 256."""


def _clipped(text: str, longest: int = _LONGEST) -> str:
    return text if len(text) <= longest else text[: longest - 3] + "..."


@dataclass(frozen=True, slots=True)
class AlertOrigin:
    """The process that sends alerts: host, user, and the job of which it is a part, as far as the
    environment tells. Unknown values are empty."""

    hostname: str = ""
    username: str = ""
    job_id: str = ""
    task_id: str = ""
    attempt_id: str = ""
    genie_id: str = ""
    input_file: str = ""
    email: str = ""
    dataoven_id: str = ""
    query_type: QueryType = "Unknown"
    query_id: str = ""
    log_file: str = ""
    """Of the query."""

    @classmethod
    def here(
        cls, *, job: str = "", email: str = "", environ: Mapping[str, str] = os.environ
    ) -> Self:
        """The origin of alerts of this process. Without `job` the job is that of the environment:
        the variables that Hadoop Streaming and Genie set."""
        query_type, query, log = next(
            each for each in _QUERIES if each[1] in environ or not each[1]
        )
        return cls(
            hostname=socket.gethostname(),
            username=_clipped(_user()),
            job_id=_clipped(job or environ.get("mapreduce_job_id", "")),
            task_id=_clipped(environ.get("mapreduce_task_id", "")),
            attempt_id=_clipped(environ.get("mapreduce_task_attempt_id", "")),
            genie_id=_clipped(environ.get("GENIE_JOB_ID", "")),
            input_file=_clipped(environ.get("mapreduce_map_input_file", "")),
            email=_clipped(email),
            dataoven_id=_clipped(environ.get("dataoven_job_id", "")),
            query_type=query_type,
            query_id=_clipped(environ.get(query, "")),
            log_file=_clipped(environ.get(log, "")),
        )


def _user() -> str:
    try:
        return getpass.getuser()
    except (ImportError, KeyError, OSError):  # a user id without a name
        return str(os.geteuid())


@dataclass(frozen=True, slots=True)
class Alert:
    """An alert. `finding` is the kind of finding of fsck, the reason of gc or the class of an
    error; `paths` are the first of `count`: paths, or keys where no path is known."""

    kind: AlertKind
    finding: str
    operation: str
    """The command, such as `fsck verify`."""
    volume: str
    count: int
    paths: tuple[str, ...]
    time_ms: int
    """Milliseconds since the epoch."""
    origin: AlertOrigin
    detail: str = ""
    frames: tuple[str, ...] = ()
    """Stack frames of an error, the innermost first."""

    @property
    def truncated(self) -> bool:
        """Whether there are more findings than `paths`."""
        return self.count > len(self.paths)

    def message(self) -> dict[str, Any]:
        """The fields of the JSON message."""
        origin = self.origin
        return {
            "kind": self.kind,
            "finding": self.finding,
            "operation": self.operation,
            "volume": self.volume,
            "count": self.count,
            "paths": list(self.paths),
            "truncated": self.truncated,
            "detail": self.detail,
            "missingFiles": self.count if self.kind == "missing" else 0,
            "recovered": self.kind == "recovered",
            "epoch": self.time_ms,
            "timestamp": _timestamp(self.time_ms),
            "hostname": origin.hostname,
            "username": origin.username,
            "jobId": origin.job_id,
            "taskId": origin.task_id,
            "attemptId": origin.attempt_id,
            "dataovenId": origin.dataoven_id,
            "genieId": origin.genie_id,
            "inputFile": origin.input_file,
            "logFile": origin.log_file,
            "queryType": origin.query_type,
            "queryId": origin.query_id,
            "email": origin.email,
            "stackTrace": list(self.frames),
        }

    def json(self) -> str:
        """The message as one line of ASCII."""
        return json.dumps(self.message(), separators=(",", ":"))


def _timestamp(time_ms: int) -> str:
    at = datetime.fromtimestamp(time_ms / 1000, UTC)
    return at.isoformat(timespec="milliseconds").replace("+00:00", "Z")


@dataclass(frozen=True, slots=True)
class AlertSource:
    """Makes the alerts of one run of a command on a volume."""

    operation: str
    volume: str
    origin: AlertOrigin
    runtime: Runtime = SYSTEM

    def alert(
        self,
        kind: AlertKind,
        finding: str,
        count: int,
        paths: Iterable[str] = (),
        detail: str = "",
    ) -> Alert:
        """An alert about `count` findings, of whose paths the first MOST_PATHS are kept."""
        return self._made(kind, finding, count, tuple(islice(paths, MOST_PATHS)), detail, ())

    def failure(self, kind: AlertKind, error: Exception, path: str | None) -> Alert:
        """An alert about an error that ended the run."""
        frames = tuple(
            f"{frame.name} ({os.path.basename(frame.filename)}:{frame.lineno})"
            for frame in traceback.extract_tb(error.__traceback__)[: -FRAMES - 1 : -1]
        )
        paths = () if path is None else (path,)
        return self._made(kind, type(error).__name__, 1, paths, str(error), frames)

    def _made(
        self,
        kind: AlertKind,
        finding: str,
        count: int,
        paths: tuple[str, ...],
        detail: str,
        frames: tuple[str, ...],
    ) -> Alert:
        return Alert(
            kind,
            finding,
            self.operation,
            _clipped(self.volume),
            count,
            tuple(_clipped(path, _LONGEST_PATH) for path in paths),
            self.runtime.now_ms(),
            self.origin,
            _clipped(detail),
            frames,
        )
