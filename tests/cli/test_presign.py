"""presign."""

from __future__ import annotations

import shlex
from pathlib import Path
from urllib.request import urlopen

import pytest

from s3k_async.cli.examples import EXAMPLES
from tests.cli.conftest import Cli
from tests.engines.process import Engine
from tests.engines.volumes import fresh_bucket


@pytest.mark.engine
@pytest.mark.usefixtures("service")
def test_the_url_of_a_file(cli: Cli, moto_s3: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    with fresh_bucket(moto_s3) as bucket:
        volume = f"s3k://{bucket.bucket}"
        monkeypatch.setenv("S3K_VOLUME", volume)
        cli.ok("init", volume, "--table", "memory://presign", "--bucket", bucket.bucket)
        for path in ("/raw/a.csv", "/raw/b.csv"):
            cli.ok("put", "-", path, stdin=path.encode())
        for example in EXAMPLES["presign"]:
            url = cli.ok(*shlex.split(example)[1:]).lines[0]
            with urlopen(url, timeout=60) as answer:
                assert answer.read() == b"/raw/a.csv"
        assert "X-Amz-Expires=604800" in cli.ok("presign", "--expires", "7d", "/raw/a.csv").out
        first, second = cli.ok("--json", "presign", "/raw/*", "--method", "head").json_lines()
        assert first == {
            "volume": "memory://presign/",
            "path": "/raw/a.csv",
            "url": first["url"],
            "method": "HEAD",
            "expires": 3600,
        }
        assert first["url"] != second["url"]
        assert moto_s3.secret_key not in first["url"].split("?")[1].split("&")
        assert "seven days" in cli.fails(2, "presign", "/raw/a.csv", "--expires", "8d").errors
        cli.fails(3, "presign", "/none")
        cli.fails(2, "presign", "/raw/a.csv", "--method", "PUT")


def test_an_embedded_volume_has_no_urls(cli: Cli) -> None:
    cli.ok("init", "./vol")
    cli.ok("put", "-", "./vol:/f", stdin=b"x")
    assert "only data in S3" in cli.fails(1, "presign", "./vol:/f").errors


def test_an_empty_file_that_was_written_in_bulk_has_no_url(cli: Cli) -> None:
    Path("many").mkdir()
    Path("many/empty").touch()
    Path("many/full").write_text("x")
    cli.ok("init", "./vol")
    cli.ok("put", "-r", "many", "./vol:/d")
    refused = cli.fails(1, "presign", "./vol:/d/empty").errors
    assert refused == (
        "s3k: the file is empty, and has no physical object: s3k put of this file alone creates "
        "one, as does writing it by itself: /d/empty\n"
    )
