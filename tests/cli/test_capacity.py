"""Options of a new table, and set-capacity."""

from __future__ import annotations

import pytest

from tests.cli.conftest import Cli
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
    assert cli.ok("set-capacity", place, "--on-demand", "--json").json() == {
        "table": name,
        "read_units": None,
        "write_units": None,
        "changed": True,
    }


def test_an_embedded_volume_has_no_capacity_units(cli: Cli) -> None:
    cli.ok("init", "./v")
    assert "no capacity units" in cli.fails(1, "set-capacity", "./v", "--on-demand").errors
