"""A client whose credentials come from a source uses the newest ones without being reopened."""

from __future__ import annotations

import pytest

from s3k_async.backends.aws.credential_source import TemporaryCredentials
from s3k_async.backends.s3.s3_blobs import S3Blobs
from s3k_async.backends.s3.s3_wire import WireBlobs
from s3k_async.config import AwsConfig, Secret
from s3k_async.errors import CredentialsError
from tests.engines.process import Engine
from tests.engines.volumes import fresh_name
from tests.proxy import FaultProxy, s3_error


class Source:
    """Returns its current credentials, which have not expired."""

    def __init__(self) -> None:
        self.token: str | None = "first"

    def current(self) -> TemporaryCredentials:
        if self.token is None:
            raise CredentialsError("they have expired")
        key, secret, token = (Secret(f"{name}-{self.token}") for name in ("key", "secret", "token"))
        return TemporaryCredentials(key, secret, token, None)


@pytest.mark.parametrize("store", [WireBlobs, S3Blobs])
async def test_an_open_client_takes_the_newest_credentials(
    store: type[S3Blobs], moto_s3: Engine
) -> None:
    source = Source()
    async with FaultProxy(moto_s3.endpoint) as proxy:
        aws = AwsConfig(region="eu-west-1", endpoint=proxy.url, delegated=source)
        blobs = store(fresh_name("delegated"), "", aws)
        await blobs.create()
        await blobs.put("k", b"bytes")
        source.token = "second"
        refused = s3_error("ExpiredToken", status=400)
        proxy.rule(refused, when=lambda call: "token-first" in str(call.headers), times=1)
        if store is WireBlobs:
            assert await blobs.get("k") == b"bytes"
            assert proxy.calls[-1].headers["x-amz-security-token"] == "token-second"
        else:
            with pytest.raises(CredentialsError):
                await blobs.get("k")
        await blobs.close()
        source.token = None
        blobs = store("bucket", "", aws)
        proxy.clear()
        with pytest.raises(CredentialsError, match="they have expired"):
            await blobs.get("k")
        await blobs.close()
        assert proxy.calls == []
