"""Password hashing with scrypt. The hash string carries its parameters, so they can be raised later."""

from __future__ import annotations

import base64
import hashlib
import hmac
import secrets

# 16 MiB and about 50 ms per attempt, for the server and for an attacker with stolen hashes.
_N, _R, _P = 2**14, 8, 1

NO_PASSWORD = "!"
"""In place of a hash: no password is correct."""


def hash_password(password: str) -> str:
    """``scrypt$n,r,p$salt$hash``. Takes tens of milliseconds: not on an event loop."""
    salt = secrets.token_bytes(16)
    digest = _scrypt(password, salt, _N, _R, _P)
    return f"scrypt${_N},{_R},{_P}${_text(salt)}${_text(digest)}"


def verify_password(password: str, stored: str) -> bool:
    """Whether ``password`` is the one that was hashed. Takes tens of milliseconds: not on an event loop."""
    try:
        scheme, parameters, salt, digest = stored.split("$")
        n, r, p = (int(value) for value in parameters.split(","))
        if scheme != "scrypt":
            return False
        expected = base64.b64decode(digest, validate=True)
        computed = _scrypt(password, base64.b64decode(salt, validate=True), n, r, p)
    except ValueError:
        return False
    return hmac.compare_digest(computed, expected)


def _scrypt(password: str, salt: bytes, n: int, r: int, p: int) -> bytes:
    # OpenSSL must be allowed to use the memory the parameters need.
    return hashlib.scrypt(
        password.encode(), salt=salt, n=n, r=r, p=p, maxmem=256 * n * r + (1 << 20), dklen=32
    )


def _text(data: bytes) -> str:
    return base64.b64encode(data).decode()
