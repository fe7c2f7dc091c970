"""The Spark session of a command: its JVM, its progress and its errors."""

from __future__ import annotations

import logging
import os
import re
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from tempfile import TemporaryFile
from typing import IO, TYPE_CHECKING, Any, Final

from s3k_async.cli.invocation import Invocation
from s3k_async.cli.volume_addresses import Address
from s3k_async.errors import ConfigError, InvalidArgumentError, PathExistsError, S3kError
from s3k_async.model import Progress

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    from s3k_async.spark import SparkVolume

__all__ = ["session_for", "spark_error"]

TICK_SECONDS: Final = 0.5
"""Interval of progress reports."""
_SUBMITTED: Final = "PYSPARK_GATEWAY_PORT"
"""Variable set by `spark-submit`, which also determines the master."""
_ABORTED = re.compile(r"Job aborted due to stage failure: .*?\(TID [0-9]+\) \([^)]*\): ")
"""The prefix that names the failed task, before its error."""
_CAUSE = re.compile(r"^Caused by: (?:[\w.$]+: )?(.+)$", re.MULTILINE)
_OURS = re.compile(r"^s3k_async\.errors\.(\w+): (.*)$", re.MULTILINE)
"""An error of this package at the end of a task's traceback."""


@contextmanager
def session_for(
    invocation: Invocation,
    address: Address,
    master: str | None,
    output: str | None = None,
    *,
    title: str | None = None,
) -> Iterator[tuple[SparkSession, SparkVolume]]:
    """The running session, or a new one that ends with the command, and the volume. `title`: show
    the session's tasks as progress under this title.

    Raises PathExistsError if `output` exists, before any work whose result could not be written.
    """
    try:
        from py4j.protocol import Py4JError  # type: ignore[import-untyped]
        from pyspark.errors import PySparkException
        from pyspark.sql import SparkSession
    except ImportError as error:
        raise ConfigError("PySpark is not installed: pip install 's3k-async[spark]'") from error

    if not invocation.verbose:
        # The libraries log what they also raise, and warn of what a user cannot change.
        logging.getLogger("py4j").addHandler(logging.NullHandler())
        warnings.filterwarnings("ignore", module=r"pyspark(\..*)?")
    with ExitStack() as stack, TemporaryFile() as log:
        try:
            session = SparkSession.getActiveSession()
            if session is None:
                session = _started(master, None if invocation.verbose else log)
                stack.enter_context(_stopped(session))
            if output is not None:
                _need_new(session, output)
            volume = _volume_in(session, invocation, address)
            with nullcontext() if title is None else _tasks_shown(invocation, session, title):
                yield session, volume
        except (PySparkException, Py4JError) as error:
            raise spark_error(error, _first_line(log)) from error


def _started(master: str | None, log: IO[bytes] | None) -> SparkSession:
    """A new session, local unless `master` or spark-submit specifies otherwise. The output of its
    JVM, which includes that of Python workers, is written to `log`."""
    from pyspark import SparkConf, SparkContext
    from pyspark.java_gateway import launch_gateway
    from pyspark.sql import SparkSession

    conf = SparkConf().setAppName("s3k")
    if master is not None or _SUBMITTED not in os.environ:
        conf.setMaster(master or "local[*]")
    if _SUBMITTED not in os.environ:
        is_shown = log is None and sys.stderr.isatty()
        conf.set("spark.ui.showConsoleProgress", str(is_shown).lower())
        if log is not None:
            conf.set("spark.log.level", "OFF")
            streams = {"stdout": log, "stderr": log}
            gateway = launch_gateway(conf, streams)  # type: ignore[no-untyped-call]
            SparkContext(conf=conf, gateway=gateway)
            return SparkSession.builder.getOrCreate()
    return SparkSession.builder.config(conf=conf).getOrCreate()


@contextmanager
def _stopped(session: SparkSession) -> Iterator[None]:
    """Stop a session at the end. After an error its JVM may have ended as well."""
    try:
        yield
    except BaseException:
        with suppress(Exception):
            session.stop()
        raise
    session.stop()


@contextmanager
def _tasks_shown(invocation: Invocation, session: SparkSession, title: str) -> Iterator[None]:
    """Show the tasks of the running stages while the body runs."""
    with invocation.meter(title) as meter:
        show = meter.part()
        if show is None:
            yield
            return
        over = threading.Event()
        watcher = threading.Thread(
            target=_watch, args=(session.sparkContext, title, show, over), daemon=True
        )
        watcher.start()
        try:
            yield
        finally:
            over.set()
            watcher.join()


def _watch(
    context: SparkContext, title: str, show: Callable[[Progress], None], over: threading.Event
) -> None:
    """Report the tasks of the running stages until `over` is set."""
    from py4j.protocol import Py4JError

    with suppress(Py4JError, OSError):  # the JVM has ended
        tracker = context.statusTracker()
        while not over.wait(TICK_SECONDS):
            running = map(tracker.getStageInfo, tracker.getActiveStageIds())
            stages = [each for each in running if each is not None]
            if stages:
                show(
                    Progress(
                        title,
                        sum(each.numCompletedTasks for each in stages),
                        sum(each.numTasks for each in stages),
                        phase=f"stage {stages[0].stageId}",
                        unit="tasks",
                    )
                )


def _first_line(log: IO[bytes]) -> str:
    """The first line of a JVM's output that is not a warning."""
    log.seek(0)
    lines = log.read().decode(errors="replace").splitlines()
    return next((each for each in lines if each and not each.startswith("WARNING")), "")


def spark_error(error: Exception, output: str = "") -> S3kError:
    """An error of Spark as one of this package, in one line: that of the failed task, or Spark's
    message. `output`: the first output of the JVM, which says why it did not start."""
    from s3k_async.spark.task_rows import error_from

    text = str(getattr(error, "java_exception", error))
    found = _OURS.findall(text)
    if found:
        return error_from(*found[-1])
    why = f" ({output})" if output and "JAVA_GATEWAY_EXITED" in text else ""
    return InvalidArgumentError(f"Spark: {_cause(text)}{why}")


def _cause(text: str) -> str:
    """The last line of the traceback of a Python worker, else the innermost cause, else the first
    line."""
    _, found, traceback = text.rpartition("Traceback (most recent call last):\n")
    last = next(
        (line for line in traceback.splitlines() if line.strip() and line == line.lstrip()), ""
    )
    if found and last:
        return f"in a Python worker: {last}"
    causes = _CAUSE.findall(text)
    return causes[-1] if causes else _ABORTED.sub("", text.strip().partition("\n")[0])


def _volume_in(session: SparkSession, invocation: Invocation, address: Address) -> SparkVolume:
    """The volume by the options of the command, and by the session's configuration unless --hadoop
    replaces it."""
    from s3k_async.spark import SparkVolume, spark_volume

    if invocation.config is not None and str(session.sparkContext.master).startswith("local"):
        # Workers on this machine look for credentials in the file that the command names.
        session.sparkContext.environment["S3K_CONFIG"] = os.path.abspath(
            os.path.expanduser(invocation.config)
        )
    if invocation.hadoop:
        config = invocation.resolve(address.volume)
        return SparkVolume(config, config)
    name: Any = address.volume if address.volume is not None else invocation.volume
    return spark_volume(
        session, name, context=invocation.context, config=invocation.config, **invocation.settings
    )


def _need_new(session: SparkSession, output: str) -> None:
    from s3k_async.spark.hadoop_files import exists

    if exists(session, output):
        raise PathExistsError(
            "the output exists and is not replaced; give another one", path=output
        )
