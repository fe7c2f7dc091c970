"""What a client counts is what arrives at the services, retries included."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from urllib.parse import parse_qs

from s3k_async._core.retry import Retries, RetryPolicy
from s3k_async.client import S3kClient
from s3k_async.config import DynamoTable, S3Bucket, Tuning, VolumeConfig
from s3k_async.volumes import init_volume
from tests.client.rig import paths
from tests.engines.volumes import VolumeMaker, volume_backends
from tests.proxy import Call, FaultProxy, dynamodb_error, s3_error

TUNING = Tuning(
    multipart_threshold=6 * 1024 * 1024,
    part_size=5 * 1024 * 1024,
    retry=Retries.alike(RetryPolicy(attempts=8, base=0.0, cap=0.0)),
)
ADMINISTRATION = {"DescribeTable", "ListTagsOfResource", "TagResource"}


def through(config: VolumeConfig, table: FaultProxy, blobs: FaultProxy) -> VolumeConfig:
    assert isinstance(config.table, DynamoTable)
    assert isinstance(config.data, S3Bucket)
    return replace(
        config,
        table=replace(config.table, aws=replace(config.table.aws, endpoint=table.url)),
        data=replace(config.data, aws=replace(config.data.aws, endpoint=blobs.url)),
        log=None,
        tuning=TUNING,
    )


def s3_operation(call: Call) -> str:
    query = parse_qs(call.query, keep_blank_values=True)
    in_bucket = call.path.strip("/").count("/") > 0
    match call.method:
        case "PUT" if "partNumber" in query:
            return "UploadPartCopy" if "x-amz-copy-source" in call.headers else "UploadPart"
        case "PUT":
            return "CopyObject" if "x-amz-copy-source" in call.headers else "PutObject"
        case "POST" if "delete" in query:
            return "DeleteObjects"
        case "POST":
            return "CreateMultipartUpload" if "uploads" in query else "CompleteMultipartUpload"
        case "HEAD":
            return "HeadObject" if in_bucket else "HeadBucket"
        case "GET":
            return "GetObject" if in_bucket else "ListObjectsV2"
        case method:
            return {"DELETE": "DeleteObject"}[method]


def arrived(table: FaultProxy, blobs: FaultProxy) -> Counter[str]:
    found = Counter(call.target for call in table.calls if call.target not in ADMINISTRATION)
    found.update(s3_operation(call) for call in blobs.calls)
    return found


async def work(client: S3kClient) -> None:
    """Something of everything."""
    for number in range(4):
        await client.write(f"/in/deep/part-{number}", b"x" * (number + 1))
    await client.write("/in/large", bytes(11 * 1024 * 1024))
    async with client.open("/in/streamed", "xb") as writer:
        await writer.write(b"streamed")
    assert await client.read("/in/streamed") == b"streamed"
    await client.rename("/in/streamed", "/in/deep/streamed")
    await client.copy("/in/deep", "/copied", recursive=True)
    await client.rename("/in/deep", "/in/moved")
    assert len(await paths(client)) == 14
    await client.content_summary("/")
    await client.delete("/in", recursive=True)
    await client.delete("/nothing", missing_ok=True)


@volume_backends("dynoxide+seaweedfs")
async def test_counted_is_what_arrives(new_volume: VolumeMaker) -> None:
    config = new_volume()
    assert isinstance(config.table, DynamoTable)
    assert isinstance(config.data, S3Bucket)
    await init_volume(config)
    async with (
        FaultProxy(config.table.aws.endpoint) as table,
        FaultProxy(config.data.aws.endpoint) as blobs,
    ):
        table.rule(dynamodb_error("ThrottlingException"), target="TransactWriteItems", times=3)
        table.rule(dynamodb_error("ThrottlingException"), target="Query", times=2)
        blobs.rule(
            s3_error("SlowDown", status=503), times=4, when=lambda call: call.method == "PUT"
        )
        async with S3kClient(config=through(config, table, blobs)) as client:
            await work(client)
        counted: Counter[str] = Counter()
        for count in client.requests.counts:
            counted[count.operation] += count.requests
        assert counted == arrived(table, blobs)
        assert client.requests.retries == 9
        assert client.requests.deferred > 0
