"""A throw-away certificate authority, so that tests speak real TLS to servers of their own."""

from __future__ import annotations

import datetime as dt
import ssl
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

_DAY = dt.timedelta(days=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Authority:
    """Signs certificates; who trusts `ca_file` trusts them.

    Attributes:
        folder: Where the files are.
        key: What it signs with.
        certificate: Its own.
    """

    folder: Path
    key: ec.EllipticCurvePrivateKey
    certificate: x509.Certificate

    @property
    def ca_file(self) -> Path:
        """The file to trust."""
        return self.folder / "ca.pem"

    def server_context(self, *names: str, has_expired: bool = False) -> ssl.SSLContext:
        """Makes the TLS settings of a server that has a certificate for these names."""
        key = ec.generate_private_key(ec.SECP256R1())
        now = dt.datetime.now(dt.UTC)
        ends = now - _DAY if has_expired else now + _DAY
        certificate = (
            _certificate(names[0], key.public_key(), self.certificate.subject, ends)
            .add_extension(x509.SubjectAlternativeName([_name(name) for name in names]), False)
            .sign(self.key, hashes.SHA256())
        )
        file = self.folder / f"{'-'.join(names).replace(':', '_')}{'-expired' * has_expired}.pem"
        file.write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM,
                serialization.PrivateFormat.PKCS8,
                serialization.NoEncryption(),
            )
            + certificate.public_bytes(serialization.Encoding.PEM)
        )
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(file)
        return context


def make_authority(folder: Path) -> Authority:
    """Makes an authority whose files are in that folder."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = _subject("test authority")
    certificate = (
        _certificate("test authority", key.public_key(), subject, dt.datetime.now(dt.UTC) + _DAY)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), True)
        .sign(key, hashes.SHA256())
    )
    authority = Authority(folder=folder, key=key, certificate=certificate)
    authority.ca_file.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    return authority


def _certificate(
    name: str, key: ec.EllipticCurvePublicKey, issuer: x509.Name, ends: dt.datetime
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(_subject(name))
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(dt.datetime.now(dt.UTC) - 2 * _DAY)
        .not_valid_after(ends)
    )


def _subject(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _name(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ip_address(name))
    except ValueError:
        return x509.DNSName(name)
