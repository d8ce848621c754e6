"""Certificates with which this machine answers to itself over https; imports `cryptography`.

For providers that send browsers to https addresses only. An authority is made once for each
workspace. Whoever trusts it risks little should its key be lost: by its own word (RFC 5280 section
4.2.1.10) it can vouch for this machine's loopback names and no other.
"""

from __future__ import annotations

import datetime as dt
import os
import ssl
import tempfile
from contextlib import suppress
from dataclasses import dataclass, field
from ipaddress import ip_address, ip_network
from pathlib import Path

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

_AUTHORITY_LIFE = dt.timedelta(days=825)
_LEAF_LIFE = dt.timedelta(days=30)
_RENEWED_BEFORE = dt.timedelta(days=7)
_EARLIER = dt.timedelta(hours=1)  # for clocks that differ
_KEY_USAGES = (
    "digital_signature",
    "content_commitment",
    "key_encipherment",
    "data_encipherment",
    "key_agreement",
    "key_cert_sign",
    "crl_sign",
    "encipher_only",
    "decipher_only",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Pair:
    """Is a certificate with its key. Its repr shows no key."""

    key: ec.EllipticCurvePrivateKey = field(repr=False)
    certificate: x509.Certificate

    def to_pem(self) -> bytes:
        """Writes both."""
        key = self.key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
        return key + self.certificate.public_bytes(serialization.Encoding.PEM)

    @classmethod
    def from_file(cls, path: Path) -> _Pair | None:
        """Reads both; None where they are not there, or are no such thing."""
        with suppress(OSError, ValueError):
            pem = path.read_bytes()
            key = serialization.load_pem_private_key(pem, password=None)
            certificate = x509.load_pem_x509_certificate(pem)
            is_pair = key.public_key() == certificate.public_key()
            if is_pair and isinstance(key, ec.EllipticCurvePrivateKey):
                return cls(key=key, certificate=certificate)
        return None

    def lasts(self, now: dt.datetime, spare: dt.timedelta) -> bool:
        """Says whether it can be used for a while."""
        certificate = self.certificate
        return certificate.not_valid_before_utc <= now < certificate.not_valid_after_utc - spare


def server_context(folder: Path, *, now: dt.datetime | None = None) -> tuple[ssl.SSLContext, Path]:
    """Gives the TLS settings of a server on the loopback host, and the authority's certificate.

    Args:
        folder: Where the certificates are kept, for their owner alone.
        now: The moment; now when left out.
    """
    now = now or dt.datetime.now(dt.UTC)
    _make_private(folder)
    authority_file, leaf_file = folder / "loopback-authority.pem", folder / "loopback.pem"
    authority = _Pair.from_file(authority_file)
    if authority is None or not authority.lasts(now, _LEAF_LIFE):
        authority = _authority(now)
        _put(authority_file, authority.to_pem())
    public_file = folder / "loopback-authority.crt"
    _put(public_file, authority.certificate.public_bytes(serialization.Encoding.PEM))
    leaf = _Pair.from_file(leaf_file)
    if leaf is None or not leaf.lasts(now, _RENEWED_BEFORE) or not _is_of(leaf, authority):
        _put(leaf_file, _leaf(authority, now).to_pem())
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(leaf_file)
    return context, public_file


def _authority(now: dt.datetime) -> _Pair:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "SegmentStream, this machine only")])
    here = [
        x509.DNSName("localhost"),
        x509.IPAddress(ip_network("127.0.0.1/32")),
        x509.IPAddress(ip_network("::1/128")),
    ]
    certificate = (
        _builder(name, name, key, now, now + _AUTHORITY_LIFE)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(x509.NameConstraints(here, None), critical=True)
        .add_extension(_usage("key_cert_sign"), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .sign(key, hashes.SHA256())
    )
    return _Pair(key=key, certificate=certificate)


def _leaf(authority: _Pair, now: dt.datetime) -> _Pair:
    key = ec.generate_private_key(ec.SECP256R1())
    issuer = authority.certificate.subject
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "localhost")])
    here = [
        x509.DNSName("localhost"),
        x509.IPAddress(ip_address("127.0.0.1")),
        x509.IPAddress(ip_address("::1")),
    ]
    signer = x509.AuthorityKeyIdentifier.from_issuer_public_key(authority.key.public_key())
    certificate = (
        _builder(name, issuer, key, now, now + _LEAF_LIFE)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.SubjectAlternativeName(here), critical=False)
        .add_extension(_usage("digital_signature"), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(signer, critical=False)
        .sign(authority.key, hashes.SHA256())
    )
    return _Pair(key=key, certificate=certificate)


def _builder(
    subject: x509.Name,
    issuer: x509.Name,
    key: ec.EllipticCurvePrivateKey,
    now: dt.datetime,
    ends: dt.datetime,
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _EARLIER)
        .not_valid_after(ends)
    )


def _usage(only: str) -> x509.KeyUsage:
    return x509.KeyUsage(**{usage: usage == only for usage in _KEY_USAGES})


def _is_of(leaf: _Pair, authority: _Pair) -> bool:
    try:
        leaf.certificate.verify_directly_issued_by(authority.certificate)
    except (ValueError, TypeError, InvalidSignature):
        return False
    return True


def _make_private(folder: Path) -> None:
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    with suppress(FileExistsError), (folder / ".gitignore").open("x") as ignored:
        ignored.write("*\n")


def _put(path: Path, content: bytes) -> None:
    """Writes a file whole or not at all, for its owner alone."""
    descriptor, name = tempfile.mkstemp(dir=path.parent)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
        Path(name).replace(path)
    finally:
        Path(name).unlink(missing_ok=True)
