"""Certificates of users, for TLS clients that log in with one: issued and revoked by the cluster's CA.

A certificate names its user and has a row in the database. It is valid while the CA's signature is,
which TLS checks, and while the row exists. The CA's key is in the cluster's folder of keys.
"""

from __future__ import annotations

import datetime
import os
import time
from dataclasses import dataclass
from pathlib import Path

from sqlalchemy import Connection

from paicluster.auth.tokens import Identity, TokenKind
from paicluster.auth.users import DisabledUser
from paicluster.store import Store, groups, user_records, users
from paicluster.store.user_records import CERTIFICATE, CERTIFICATE_DAYS, UserRecord
from paicluster.store.writer import certificate_holder_id, touch_tokens
from paiprotocol.errors import ConfigError, InvalidParameters, Unauthorized

MAX_CERTIFICATES = 100
"""Certificates of a user that are not revoked."""

_CA, _CA_KEY = "user-authority.pem", "user-authority-key.pem"
_CA_NAME = "paicluster users"
_CA_DAYS = 3650


@dataclass(frozen=True, slots=True)
class IssuedCertificate:
    """PEM texts of a certificate and its key, which the cluster does not keep."""

    certificate: str
    key: str
    serial: str
    expires_ms: int


@dataclass(frozen=True, slots=True)
class PresentedCertificate:
    """What TLS has verified of a client's certificate. ``serial``: hexadecimal."""

    username: str
    serial: str


class UserCertificates:
    """Issues, verifies and revokes certificates. ``keys``: the folder of the CA's key."""

    def __init__(self, store: Store, keys: Path):
        self._store = store
        self._keys = keys

    def ca_file(self) -> Path:
        """The CA's certificate, created on first use; the TLS listener verifies clients by it."""
        file, key_file = self._keys / _CA, self._keys / _CA_KEY
        if not file.exists() or not key_file.exists():
            _create_ca(file, key_file)
        return file

    async def issue(self, username: str) -> IssuedCertificate:
        issued = self._sign(username)
        record = UserRecord(CERTIFICATE, issued.serial, username, int(time.time() * 1000), b"")

        def add(conn: Connection) -> None:
            if user_records.count_records(conn, CERTIFICATE, username) >= MAX_CERTIFICATES:
                raise InvalidParameters(
                    f"User {username} has {MAX_CERTIFICATES} certificates, which is the limit.",
                    hint="Revoke them first.",
                )
            user_records.put_record(conn, record)

        await self._store.write(add)
        return issued

    async def revoke(self, username: str) -> int:
        """Revoke all certificates of a user; their number."""

        def revoke(conn: Connection) -> int:
            records = user_records.list_records(conn, CERTIFICATE, username)
            for record in records:
                user_records.delete_record(conn, CERTIFICATE, username, record.name)
            touch_tokens(conn, [certificate_holder_id(record.name) for record in records])
            return len(records)

        return await self._store.write(revoke)

    async def verify(self, presented: PresentedCertificate) -> Identity:
        """The user of a certificate; Unauthorized if it was revoked or has expired, or its user is disabled.

        TLS has looked at the time, but when the connection was opened, or the session which that resumes.
        """
        username = presented.username

        def read(conn: Connection) -> Identity | None:
            record = user_records.find_record(conn, CERTIFICATE, presented.serial, username)
            if record is None or record.certificate_expires_s <= time.time():
                return None
            user = users.get_user(conn, username)
            if user is None:
                return None
            if user.disabled_ms is not None:
                raise DisabledUser(username)
            access = groups.access_of(conn, username)
            holder = certificate_holder_id(presented.serial)
            return Identity(username, access.admin, TokenKind.APPLICATION, None, holder, access)

        identity = await self._store.read(read)
        if identity is None:
            raise Unauthorized(
                f"The certificate of {username} was revoked, or has expired.",
                hint="Ask an administrator for a new one.",
            )
        return identity

    def _sign(self, username: str) -> IssuedCertificate:
        from cryptography import x509
        from cryptography.hazmat.primitives import hashes, serialization
        from cryptography.hazmat.primitives.asymmetric import ec
        from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

        file = self.ca_file()
        try:
            ca = x509.load_pem_x509_certificate(file.read_bytes())
            signer = serialization.load_pem_private_key((self._keys / _CA_KEY).read_bytes(), password=None)
        except (OSError, ValueError) as error:
            raise ConfigError(f"The authority {file} cannot be used: {error}.") from error
        assert isinstance(signer, ec.EllipticCurvePrivateKey)
        key = ec.generate_private_key(ec.SECP256R1())
        now = datetime.datetime.now(datetime.UTC)
        expires = now + datetime.timedelta(days=CERTIFICATE_DAYS)
        serial = x509.random_serial_number()
        made = (
            x509.CertificateBuilder()
            .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, username)]))
            .issuer_name(ca.subject)
            .public_key(key.public_key())
            .serial_number(serial)
            # A client's clock may be a little behind.
            .not_valid_before(now - datetime.timedelta(minutes=5))
            .not_valid_after(expires)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CLIENT_AUTH]), critical=False)
            .sign(signer, hashes.SHA256())
        )
        return IssuedCertificate(
            made.public_bytes(serialization.Encoding.PEM).decode(),
            key.private_bytes(
                serialization.Encoding.PEM,
                serialization.PrivateFormat.PKCS8,
                serialization.NoEncryption(),
            ).decode(),
            f"{serial:x}",
            int(expires.timestamp() * 1000),
        )


def _create_ca(file: Path, key_file: Path) -> None:
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509.oid import NameOID

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, _CA_NAME)])
    now = datetime.datetime.now(datetime.UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(minutes=5))
        .not_valid_after(now + datetime.timedelta(days=_CA_DAYS))
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(key, hashes.SHA256())
    )
    pem = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    try:
        key_file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        # The certificate last: it exists only beside its key.
        _write(key_file, pem)
        _write(file, made.public_bytes(serialization.Encoding.PEM))
    except OSError as error:
        raise ConfigError(f"The authority {file} cannot be created: {error.strerror}.") from error


def _write(file: Path, content: bytes) -> None:
    temporary = file.with_name(f".{file.name}.{os.getpid()}")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "wb") as opened:
        opened.write(content)
        opened.flush()
        os.fsync(opened.fileno())
    temporary.replace(file)
