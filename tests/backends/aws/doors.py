"""What may stand between a client and a service: TLS with certificates of our own, and a proxy that
tunnels."""

from __future__ import annotations

import asyncio
import ipaddress
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from tests.proxy import served

__all__ = ["Authority", "connect_proxy", "tls_door"]

_SIGNS_CERTIFICATES = x509.KeyUsage(
    digital_signature=False,
    content_commitment=False,
    key_encipherment=False,
    data_encipherment=False,
    key_agreement=False,
    key_cert_sign=True,
    crl_sign=False,
    encipher_only=False,
    decipher_only=False,
)

Accept = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@dataclass(frozen=True)
class Authority:
    """One that issues certificates, in files of `directory`."""

    directory: Path
    key: ec.EllipticCurvePrivateKey
    name: x509.Name

    @classmethod
    def new(cls, directory: Path) -> Authority:
        made = cls(directory, ec.generate_private_key(ec.SECP256R1()), _name("test authority"))
        made.bundle.write_bytes(_pem(made._issue(made.name, made.key.public_key(), None)))
        return made

    @property
    def bundle(self) -> Path:
        """The file that a client trusts."""
        return self.directory / "authority.pem"

    def server(self, address: str) -> ssl.SSLContext:
        """The context of a server that proves to be at an IP address."""
        key = ec.generate_private_key(ec.SECP256R1())
        place = self.directory / f"{address}.pem"
        private = key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
        place.write_bytes(private + _pem(self._issue(_name("server"), key.public_key(), address)))
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(place)
        return context

    def _issue(
        self, subject: x509.Name, key: ec.EllipticCurvePublicKey, address: str | None
    ) -> x509.Certificate:
        today = datetime.now(UTC)
        certificate = (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self.name)
            .public_key(key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(today - timedelta(days=1))
            .not_valid_after(today + timedelta(days=1))
            .add_extension(
                x509.BasicConstraints(ca=address is None, path_length=None), critical=True
            )
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
        )
        # Python 3.13 and later refuse an authority without a key usage, and a server without the
        # identifier of its authority's key.
        if address is None:
            certificate = certificate.add_extension(_SIGNS_CERTIFICATES, critical=True)
        else:
            names = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address(address))])
            issuer = x509.AuthorityKeyIdentifier.from_issuer_public_key(self.key.public_key())
            certificate = certificate.add_extension(names, critical=False)
            certificate = certificate.add_extension(issuer, critical=False)
        return certificate.sign(self.key, hashes.SHA256())


@asynccontextmanager
async def tls_door(context: ssl.SSLContext, port: int) -> AsyncIterator[int]:
    """The port at which a server on loopback is reached by TLS."""

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await _join(reader, writer, "127.0.0.1", port)

    async with _served(accept, context) as door:
        yield door


@asynccontextmanager
async def connect_proxy(heads: list[str]) -> AsyncIterator[int]:
    """The port of a proxy that opens tunnels; `heads` takes what it was asked."""

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        heads.append(head)
        host, _, port = head.split(" ")[1].rpartition(":")
        writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
        await _join(reader, writer, host, int(port))

    async with _served(accept, None) as door:
        yield door


@asynccontextmanager
async def _served(accept: Accept, context: ssl.SSLContext | None) -> AsyncIterator[int]:
    async with served(accept, context) as place:
        yield int(place.rpartition(":")[2])


async def _join(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, host: str, port: int
) -> None:
    """Carry bytes both ways until one side ends."""
    there, back = await asyncio.open_connection(host, port)
    try:
        carrying = [
            asyncio.create_task(_carry(reader, back)),
            asyncio.create_task(_carry(there, writer)),
        ]
        try:
            await asyncio.wait(carrying, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in carrying:
                task.cancel()
            await asyncio.gather(*carrying, return_exceptions=True)
    finally:
        back.close()


async def _carry(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while piece := await reader.read(65536):
        writer.write(piece)
        await writer.drain()


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)
