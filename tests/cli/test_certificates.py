"""The certificates with which the loopback server speaks TLS."""

from __future__ import annotations

import datetime as dt
import ssl
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from cryptography.x509.verification import PolicyBuilder, Store, VerificationError

from segmentstream.cli.certificates import server_context

_NOW = dt.datetime(2026, 5, 1, tzinfo=dt.UTC)


def leaf_of(folder: Path) -> x509.Certificate:
    """The certificate that the server shows."""
    return x509.load_pem_x509_certificate((folder / "loopback.pem").read_bytes())


def authority_of(folder: Path) -> x509.Certificate:
    """The certificate of the authority."""
    return x509.load_pem_x509_certificate((folder / "loopback-authority.crt").read_bytes())


def test_all_of_it_is_private(tmp_path: Path) -> None:
    """The folder and the files in it are their owner's alone, and no repository's."""
    folder = tmp_path / "private"
    server_context(folder)
    assert folder.stat().st_mode & 0o777 == 0o700
    assert {path.stat().st_mode & 0o077 for path in folder.glob("loopback*")} == {0}
    assert (folder / ".gitignore").read_text() == "*\n"


def test_it_is_made_once(tmp_path: Path) -> None:
    """The next login shows the same certificate, so that a browser warns once."""
    server_context(tmp_path)
    first = leaf_of(tmp_path)
    server_context(tmp_path)
    assert leaf_of(tmp_path) == first


def test_the_leaf_is_renewed_and_the_authority_stays(tmp_path: Path) -> None:
    """Before the leaf ends there is another, of the same authority."""
    server_context(tmp_path, now=_NOW)
    authority, leaf = authority_of(tmp_path), leaf_of(tmp_path)
    server_context(tmp_path, now=_NOW + dt.timedelta(days=25))
    assert leaf_of(tmp_path) != leaf
    assert authority_of(tmp_path) == authority
    leaf_of(tmp_path).verify_directly_issued_by(authority)


def test_an_authority_that_ends_is_renewed_with_its_leaf(tmp_path: Path) -> None:
    """No leaf outlives what vouches for it."""
    server_context(tmp_path, now=_NOW)
    authority = authority_of(tmp_path)
    server_context(tmp_path, now=_NOW + dt.timedelta(days=800))
    assert authority_of(tmp_path) != authority
    leaf_of(tmp_path).verify_directly_issued_by(authority_of(tmp_path))


@pytest.mark.parametrize("file", ["loopback.pem", "loopback-authority.pem"])
@pytest.mark.parametrize("content", [b"", b"nonsense", None])
def test_what_is_damaged_is_made_anew(tmp_path: Path, file: str, content: bytes | None) -> None:
    """A file that is gone or no certificate does not end a login."""
    server_context(tmp_path)
    if content is None:
        (tmp_path / file).unlink()
    else:
        (tmp_path / file).write_bytes(content)
    context, _ = server_context(tmp_path)
    assert isinstance(context, ssl.SSLContext)
    leaf_of(tmp_path).verify_directly_issued_by(authority_of(tmp_path))


def test_the_authority_can_vouch_for_this_machine_alone(tmp_path: Path) -> None:
    """A certificate for another name is not believed, though its signature is right."""
    server_context(tmp_path)
    authority = authority_of(tmp_path)
    key = serialization.load_pem_private_key(
        (tmp_path / "loopback-authority.pem").read_bytes(), password=None
    )
    assert isinstance(key, ec.EllipticCurvePrivateKey)
    verifier = PolicyBuilder().store(Store([authority])).build_server_verifier
    verifier(x509.DNSName("localhost")).verify(leaf_of(tmp_path), [])
    elsewhere = x509.DNSName("bank.example")
    forged = (
        x509.CertificateBuilder()
        .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "bank.example")]))
        .issuer_name(authority.subject)
        .public_key(leaf_of(tmp_path).public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(dt.datetime.now(dt.UTC) - dt.timedelta(hours=1))
        .not_valid_after(dt.datetime.now(dt.UTC) + dt.timedelta(days=1))
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.SubjectAlternativeName([elsewhere]), critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(authority.public_key()),  # type: ignore[arg-type]  # an elliptic key
            critical=False,
        )
        .sign(key, hashes.SHA256())
    )
    with pytest.raises(VerificationError, match="name constraints"):
        verifier(elsewhere).verify(forged, [])
