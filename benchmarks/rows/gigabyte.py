"""One gigabyte written and read in pieces of 8 MiB, never held whole."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import obstore

from benchmarks.contenders.keys import bounded
from benchmarks.measuring import Case, Result, measure
from s3k_async import S3kClient

__all__ = ["results"]

SIZE = 2**30
PIECE = 8 * 2**20
PIECES = SIZE // PIECE
PARTS = 8
"""Parts in flight."""
DATA = bytes(PIECE)


async def results(fs: S3kClient, store: Any, low: Any, bucket: str) -> AsyncIterator[Result]:
    """By our file objects, by obstore's, and by aiobotocore in parts."""
    ours, objects, by_hand = _Ours(fs), _Obstore(store), _ByHand(low, bucket)
    megabytes = SIZE // 2**20
    puts = {"aiobotocore": by_hand.put, "obstore": objects.put, "ours": ours.put}
    reads = {"aiobotocore": by_hand.read, "obstore": objects.read, "ours": ours.read}
    for result in await measure(Case("put", "1 GiB", megabytes, "MiB", puts, rounds=2, warm=False)):
        yield result
    for result in await measure(
        Case("read", "1 GiB", megabytes, "MiB", reads, rounds=2, expected=SIZE, warm=False)
    ):
        yield result


class _Ours:
    def __init__(self, fs: S3kClient) -> None:
        self.fs = fs

    async def put(self) -> None:
        async with self.fs.open("/gigabyte", "wb") as file:
            for _ in range(PIECES):
                await file.write(DATA)

    async def read(self) -> int:
        total = 0
        async with self.fs.open("/gigabyte", "rb") as file:
            while block := await file.read(PIECE):
                total += len(block)
        return total


class _Obstore:
    def __init__(self, store: Any) -> None:
        self.store = store

    async def put(self) -> None:
        async with obstore.open_writer_async(self.store, "gigabyte", buffer_size=PIECE) as file:
            for _ in range(PIECES):
                await file.write(DATA)

    async def read(self) -> int:
        total = 0
        answer = await obstore.get_async(self.store, "gigabyte")
        async for block in answer.stream(PIECE):
            total += len(block)
        return total


class _ByHand:
    def __init__(self, client: Any, bucket: str) -> None:
        self.client = client
        self.place = {"Bucket": bucket, "Key": "gigabyte"}

    async def put(self) -> None:
        upload = (await self.client.create_multipart_upload(**self.place))["UploadId"]
        tags: dict[int, str] = {}

        async def send(number: int) -> None:
            answer = await self.client.upload_part(
                **self.place, UploadId=upload, PartNumber=number, Body=DATA
            )
            tags[number] = answer["ETag"]

        await bounded(send, range(1, PIECES + 1), PARTS)
        parts = [{"PartNumber": number, "ETag": tags[number]} for number in sorted(tags)]
        await self.client.complete_multipart_upload(
            **self.place, UploadId=upload, MultipartUpload={"Parts": parts}
        )

    async def read(self) -> int:
        total = 0

        async def get(number: int) -> None:
            nonlocal total
            start = number * PIECE
            answer = await self.client.get_object(
                **self.place, Range=f"bytes={start}-{start + PIECE - 1}"
            )
            async with answer["Body"] as body:
                data = await body.read()
                total += len(data)

        await bounded(get, range(PIECES), PARTS)
        return total
