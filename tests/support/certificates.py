"""Certificates for tests, made when they run: good ones, expired ones, and those of other authorities."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path
from typing import NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    KeySerializationEncryption,
    NoEncryption,
    PrivateFormat,
)
from cryptography.x509.oid import NameOID

DAY = timedelta(days=1)


class Files(NamedTuple):
    certificate: Path
    key: Path


class Authority:
    """Signs certificates, and writes them and their keys into a directory."""

    def __init__(self, directory: Path, name: str = "authority") -> None:
        self._directory = directory
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        now = datetime.now(UTC)
        certificate = (
            x509.CertificateBuilder()
            .subject_name(self._name)
            .issuer_name(self._name)
            .public_key(self._key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - DAY)
            .not_valid_after(now + DAY)
            .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
            .sign(self._key, SHA256())
        )
        self.path = directory / f"{name}.pem"
        self.path.write_bytes(certificate.public_bytes(Encoding.PEM))

    def issue(
        self,
        file: str,
        *,
        uri: str | None = None,
        host: str | None = None,
        address: str | None = None,
        expired: bool = False,
        password: bytes | None = None,
    ) -> Files:
        key = ec.generate_private_key(ec.SECP256R1())
        names: list[x509.GeneralName] = []
        if uri is not None:
            names.append(x509.UniformResourceIdentifier(uri))
        if host is not None:
            names.append(x509.DNSName(host))
        if address is not None:
            names.append(x509.IPAddress(ip_address(address)))
        now = datetime.now(UTC)
        builder = (
            x509.CertificateBuilder()
            .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, file)]))
            .issuer_name(self._name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - 3 * DAY)
            .not_valid_after(now - DAY if expired else now + DAY)
        )
        if names:
            builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
        certificate = builder.sign(self._key, SHA256())
        encryption: KeySerializationEncryption = BestAvailableEncryption(password) if password else NoEncryption()
        files = Files(self._directory / f"{file}.pem", self._directory / f"{file}.key")
        files.certificate.write_bytes(certificate.public_bytes(Encoding.PEM))
        files.key.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, encryption))
        return files
