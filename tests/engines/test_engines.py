"""The engines themselves: where they listen, and that they check what the tests rely on."""

from __future__ import annotations

import re
import urllib.error
import urllib.request
from dataclasses import replace
from pathlib import Path

import pytest
from botocore.exceptions import ClientError

from tests.engines.process import Engine, listening_addresses
from tests.engines.volumes import closing_client, fresh_name

EVERY = ["dynamodb_local", "dynoxide", "extenddb", "seaweedfs", "moto_s3", "redis_server"]


@pytest.fixture(params=[pytest.param(name, marks=pytest.mark.engine) for name in EVERY])
def server(request: pytest.FixtureRequest) -> Engine:
    engine: Engine = request.getfixturevalue(request.param)
    return engine


def test_the_documentation_names_the_engines() -> None:
    page = (Path(__file__).parents[2] / "docs/requests.md").read_text(encoding="utf-8")
    assert re.findall(r"^\| \w[^|]* \(`(\w+)`\) \|", page, re.MULTILINE) == EVERY


def test_engines_listen_on_loopback_only(server: Engine) -> None:
    addresses = listening_addresses(server.pid)
    assert int(server.endpoint.rpartition(":")[2]) in {port for _, port in addresses}
    assert {address for address, _ in addresses} == {"127.0.0.1"}


def test_seaweedfs_refuses_who_does_not_sign(seaweedfs: Engine) -> None:
    with pytest.raises(urllib.error.HTTPError) as refused:
        urllib.request.urlopen(f"{seaweedfs.endpoint}/")
    refused.value.close()
    assert refused.value.code == 403


def test_seaweedfs_refuses_a_wrong_secret(seaweedfs: Engine) -> None:
    wrong = replace(seaweedfs, secret_key="another")
    with closing_client(wrong, "s3") as client, pytest.raises(ClientError) as refused:
        client.create_bucket(Bucket=fresh_name("refused"))
    assert refused.value.response["Error"]["Code"] == "SignatureDoesNotMatch"
