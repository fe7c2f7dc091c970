"""Access to a service by settings and environment variables alone, without botocore.

botocore determines region, endpoint and credentials from many more sources: profiles, the instance
metadata service, IAM Identity Center, processes, roles. Importing it takes longer than a short
command. It is therefore not imported if none of those sources can have an effect: the keys are in
the settings or the environment, there is no shared configuration file, and no variable or proxy
requires anything else. Otherwise `static_access` returns None, and botocore decides.

Variables: "Environment variables" of the AWS SDKs and Tools Reference Guide. Endpoints: "Service
endpoints" of the AWS General Reference.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import urlsplit
from urllib.request import getproxies

from s3k_async.backends.aws.access import AwsConfig
from s3k_async.backends.aws.credentials import Keys

__all__ = ["REGION_VARIABLE", "StaticAccess", "default_region", "static_access"]

REGION_VARIABLE: Final = "AWS_REGION"
"""The first variable for the region in the other SDKs and the command line of AWS; botocore knows
AWS_DEFAULT_REGION alone."""
_DEFAULT_REGION: Final = "us-east-1"
_AMAZON: Final = re.compile(
    r"(?:.*[.-])?([a-z]{2}(?:-[a-z]+)+-\d+)\.(?:vpce\.)?amazonaws\.com(?:\.cn)?"
)
"""A host of AWS, such as `s3.eu-west-1.amazonaws.com`, `s3-eu-west-1.amazonaws.com` or
`s3.dualstack.eu-west-1.amazonaws.com`."""
_SERVICES: Final = ("dynamodb", "s3")
_FILES: Final = (
    ("AWS_CONFIG_FILE", "~/.aws/config"),
    ("AWS_SHARED_CREDENTIALS_FILE", "~/.aws/credentials"),
)
_OTHER_VARIABLES: Final = (
    "AWS_ACCOUNT_ID",
    "AWS_CREDENTIAL_EXPIRATION",
    "AWS_DEFAULTS_MODE",
    "AWS_DEFAULT_PROFILE",
    "AWS_ENDPOINT_URL",
    "AWS_PROFILE",
    "AWS_S3_",
    "AWS_SECURITY_TOKEN",
    "AWS_USE_",
    "BOTO_CONFIG",
)
"""Prefixes of variables by which botocore may choose another endpoint or other credentials."""
_COMMERCIAL: Final = re.compile(r"(?!cn-)[a-z]{2}-[a-z]+-[0-9]+")
"""Regions of the partition `aws`."""
_LABEL: Final = re.compile(r"[A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?")
_HOST: Final = r"(?!-)[a-z0-9-]{1,63}(?<!-)"
_ENDPOINT: Final = re.compile(
    rf"(?i:https?)://({_HOST}(\.{_HOST})*|\[[0-9a-f:]+\])(:[0-9]+)?(/[\w.~/-]*)?"
)


@dataclass(frozen=True, slots=True)
class StaticAccess:
    """Endpoint, region and keys of a service. A source of credentials for `Credentials`, with the
    attributes that botocore's have."""

    endpoint: str
    region: str
    keys: Keys
    method: str
    """Where the keys come from, as botocore names it: `explicit` or `env`."""
    authorities: str | bool = field(default=True)
    """File of trusted certificates; True: those that botocore trusts; False: no
    certificate is verified."""

    async def get_frozen_credentials(self) -> Keys:
        """The keys, which never change."""
        return self.keys


def static_access(config: AwsConfig, service: str) -> StaticAccess | None:
    """The access to a service, or None if botocore has to determine it. Looks for files."""
    if (
        service not in _SERVICES
        or config.delegated is not None
        or config.role_arn is not None
        or config.profile is not None
        or config.proxy is not None
        or any(name.startswith(_OTHER_VARIABLES) for name in os.environ)
        or any(_exists(os.environ.get(name, usual)) for name, usual in _FILES)
    ):
        return None
    keys = _keys(config)
    region = _region(config)
    endpoint = config.endpoint
    if endpoint is None:
        endpoint = _standard_endpoint(service, region)
    if keys is None or endpoint is None:
        return None
    region = region or default_region(endpoint)
    if not _LABEL.fullmatch(region):
        return None
    if not _ENDPOINT.fullmatch(endpoint) or _is_proxied(endpoint):
        return None
    return StaticAccess(endpoint, region, keys[0], keys[1], _authorities(config))


def default_region(endpoint: str) -> str:
    """The region of an endpoint without a setting for it: that in a host of AWS, else
    `us-east-1`."""
    found = _AMAZON.fullmatch(urlsplit(endpoint).hostname or "")
    return _DEFAULT_REGION if found is None else found[1]


def _keys(config: AwsConfig) -> tuple[Keys, str] | None:
    """The keys and their source, if they are complete."""
    if config.access_key_id or config.secret_access_key or config.session_token:
        found = (config.access_key_id, config.secret_access_key, config.session_token)
        access, secret, token = (each.reveal() for each in found)
        method = "explicit"
    else:
        names = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN")
        access, secret, token = (os.environ.get(name, "") for name in names)
        method = "env"
    return (Keys(access, secret, token or None), method) if access and secret else None


def _region(config: AwsConfig) -> str | None:
    variables = (REGION_VARIABLE, "AWS_DEFAULT_REGION")
    return config.region or next(filter(None, map(os.environ.get, variables)), None)


def _standard_endpoint(service: str, region: str | None) -> str | None:
    """The endpoint of a service in a region of the partition `aws`."""
    if region is None or not _COMMERCIAL.fullmatch(region):
        return None
    if service == "s3" and region == _DEFAULT_REGION:
        return "https://s3.amazonaws.com"
    return f"https://{service}.{region}.amazonaws.com"


def _authorities(config: AwsConfig) -> str | bool:
    if config.ca_bundle or not config.verify_tls:
        return config.ca_bundle or False
    named = os.environ.get("AWS_CA_BUNDLE") or os.environ.get("REQUESTS_CA_BUNDLE")
    return named or True


def _exists(path: str) -> bool:
    """Whether botocore would find a file: there is none without a home directory, or in an
    unreadable one."""
    return os.path.exists(os.path.expanduser(os.path.expandvars(path)))


def _is_proxied(endpoint: str) -> bool:
    """Whether a proxy may apply to an endpoint; botocore evaluates exceptions such as
    `no_proxy`."""
    return not {urlsplit(endpoint).scheme.lower(), "all"}.isdisjoint(getproxies())
