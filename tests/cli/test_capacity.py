"""Options of a new table, and set-capacity."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from botocore.session import get_session

from tests.cli.conftest import Cli
from tests.engines.process import Engine
from tests.engines.volumes import fresh_name


@pytest.mark.usefixtures("service")
def test_a_volume_gets_a_table_with_options_and_another_capacity(cli: Cli) -> None:
    name = fresh_name("options")
    place = f"s3k://{name}"
    given = ["--table", name, "--data-location", f"memory://{name}"]
    refused = cli.fails(11, "init", place, *given, "--read-units", "5")
    assert "both read_units and write_units" in refused.errors
    assert "NAME=VALUE" in cli.fails(11, "init", place, *given, "--table-tag", "x").errors
    assert "DynamoDB table" in cli.fails(11, "init", "./v", "--deletion-protection").errors
    units = ["--read-units", "5", "--write-units", "6"]
    cli.ok("init", place, *given, *units, "--stream", "NEW_IMAGE", "--table-tag", "team=data")
    assert cli.ok("set-capacity", place, *units).out == (
        f"{name}: 5 read units, 6 write units (unchanged)\n"
    )
    table = cli.ok("info", place, "--json", "--expect", "table.read_units=5").json()["table"]
    assert (table["read_units"], table["write_units"]) == (5, 6)
    assert "table capacity: provisioned, 5 read and 6 write units\n" in cli.ok("info", place).out
    assert cli.ok("set-capacity", place, "--on-demand", "--json").json() == {
        "table": name,
        "read_units": None,
        "write_units": None,
        "changed": True,
    }


def test_nothing_of_a_volume_with_a_protected_table_is_destroyed(
    cli: Cli, service: None, moto_s3: Engine, tmp_path: Path
) -> None:
    name = fresh_name("protected")
    place = f"s3k://{name}"
    cli.ok(
        "init", place, "--table", name, "--data-location", str(tmp_path), "--deletion-protection"
    )
    cli.ok("put", "-", f"{place}/a", stdin=b"content")
    refused = cli.fails(5, "destroy", place, "--yes", "--force")
    assert "disable the protection in DynamoDB first" in refused.errors
    assert cli.ok("cat", f"{place}/a").output == b"content"
    own = moto_s3.aws()
    assert own.access_key_id is not None
    assert own.secret_access_key is not None
    table: Any = get_session().create_client(
        "dynamodb",
        region_name=own.region,
        endpoint_url=moto_s3.endpoint,
        aws_access_key_id=own.access_key_id.reveal(),
        aws_secret_access_key=own.secret_access_key.reveal(),
    )
    table.update_table(TableName=name, DeletionProtectionEnabled=False)
    cli.ok("destroy", place, "--yes", "--force")
    assert name not in table.list_tables()["TableNames"]


def test_an_embedded_volume_has_no_capacity_units(cli: Cli) -> None:
    cli.ok("init", "./v")
    assert "no capacity units" in cli.fails(1, "set-capacity", "./v", "--on-demand").errors
