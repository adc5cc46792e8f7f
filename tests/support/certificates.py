"""Self-made certificates."""

from __future__ import annotations

import datetime
import ipaddress
from collections.abc import Sequence
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID


def certificate(folder: Path, *names: str, by_an_authority: bool = False) -> Path:
    """A folder with cert.pem, issued for these names and addresses, and its key.pem.

    It is self-signed, or signed by an authority whose own certificate is not distributed.
    """
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, names[0])])
    issuer, signs = subject, key
    if by_an_authority:
        issuer = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "An authority")])
        signs = ec.generate_private_key(ec.SECP256R1())
    now = datetime.datetime.now(datetime.UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([_general(name) for name in names]), critical=False)
        .add_extension(x509.BasicConstraints(ca=not by_an_authority, path_length=None), critical=True)
        .sign(signs, hashes.SHA256())
    )
    (folder / "cert.pem").write_bytes(made.public_bytes(serialization.Encoding.PEM))
    plain = serialization.NoEncryption()
    pem = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, plain)
    (folder / "key.pem").write_bytes(pem)
    return folder


def _general(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


class CertificateAuthority:
    """A certificate authority: ``file`` is its certificate. It issues certificates of users."""

    def __init__(self, folder: Path, name: str = "A cluster"):
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        self.file = folder / "ca.pem"
        own = self._build(self._name, self._key.public_key(), days=1)
        own = own.add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        self.file.write_bytes(_pem(own.sign(self._key, hashes.SHA256())))

    @classmethod
    def load(cls, file: Path, key_file: Path) -> CertificateAuthority:
        """The authority of these files."""
        loaded = cls.__new__(cls)
        key = serialization.load_pem_private_key(key_file.read_bytes(), password=None)
        assert isinstance(key, ec.EllipticCurvePrivateKey)
        loaded._key = key
        loaded._name = x509.load_pem_x509_certificate(file.read_bytes()).subject
        loaded.file = file
        return loaded

    def issue(
        self, folder: Path, user: str, *, days: float = 1, organizations: Sequence[str] = ()
    ) -> tuple[Path, Path]:
        """Certificate and key of a user. With negative ``days`` the certificate has expired."""
        folder.mkdir(parents=True, exist_ok=True)
        key = ec.generate_private_key(ec.SECP256R1())
        names = [(NameOID.ORGANIZATION_NAME, name) for name in organizations if name]
        subject = x509.Name(
            [x509.NameAttribute(kind, name) for kind, name in (*names, (NameOID.COMMON_NAME, user))]
        )
        made = self._build(subject, key.public_key(), days).sign(self._key, hashes.SHA256())
        files = folder / f"{user}.pem", folder / f"{user}-key.pem"
        files[0].write_bytes(_pem(made))
        plain = serialization.NoEncryption()
        files[1].write_bytes(
            key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, plain)
        )
        return files

    def _build(
        self, subject: x509.Name, key: ec.EllipticCurvePublicKey, days: float
    ) -> x509.CertificateBuilder:
        now = datetime.datetime.now(datetime.UTC)
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - datetime.timedelta(days=10))
            .not_valid_after(now + datetime.timedelta(days=days))
        )


def _pem(made: x509.Certificate) -> bytes:
    return made.public_bytes(serialization.Encoding.PEM)
