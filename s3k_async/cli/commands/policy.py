"""policy: the IAM policy of a role in a volume."""

from __future__ import annotations

import json
from typing import cast

import click

from s3k_async.cli.command import VolumeCommand, adopted_option
from s3k_async.cli.invocation import Invocation
from s3k_async.cli.volume_addresses import whole_volume
from s3k_async.errors import InvalidArgumentError
from s3k_async.volumes.iam_policies import ROLES, Role, iam_policy

__all__ = ["policy"]


@click.command(cls=VolumeCommand)
@click.argument("role", type=click.Choice(ROLES))
@click.argument("volume", required=False)
@click.option(
    "--hot",
    default="",
    metavar="LOCATION",
    help="The hot location of the volume, which its settings do not have.",
)
@click.option(
    "--table-kms-key",
    default="",
    metavar="ARN",
    help="The KMS key of the table, as in s3k init.",
)
@adopted_option("Another bucket whose objects are adopted; repeatable.")
@click.option(
    "--account", default="*", metavar="ID", help="The id of the table's account [default: any]."
)
@click.option(
    "--partition",
    type=click.Choice(["aws", "aws-cn", "aws-us-gov"]),
    default="aws",
    help="The partition of AWS [default: aws].",
)
@click.pass_obj
def policy(
    invocation: Invocation,
    role: str,
    volume: str | None,
    hot: str,
    table_kms_key: str,
    adopted: tuple[str, ...],
    account: str,
    partition: str,
) -> None:
    """Print the IAM policy with the permissions that ROLE needs for VOLUME, and no others.

    No service is contacted, and the volume need not exist.
    """
    address = whole_volume(volume)
    if account != "*" and not (account.isascii() and account.isdigit() and len(account) == 12):
        raise InvalidArgumentError("an account id has twelve digits", path=account)
    if table_kms_key and not table_kms_key.startswith("arn:"):
        raise InvalidArgumentError(
            "a policy names a KMS key by its ARN, not by its id or an alias", path=table_kms_key
        )
    config = invocation.resolve(address.volume)
    document = iam_policy(
        config,
        cast("Role", role),
        hot=hot,
        table_key=table_kms_key,
        adopted=adopted,
        account=account,
        partition=partition,
    )
    click.echo(json.dumps(document, indent=2))
