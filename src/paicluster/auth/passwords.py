"""Passwords are kept as scrypt hashes; the parameters travel in the string, so they can grow later."""

from __future__ import annotations

import base64
import hashlib
import hmac
import secrets

# 16 MiB and some 50 ms for each try, on the server as for whoever steals the hashes.
_N, _R, _P = 2**14, 8, 1


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
        found = _scrypt(password, base64.b64decode(salt, validate=True), n, r, p)
    except ValueError:
        return False
    return hmac.compare_digest(found, expected)


def _scrypt(password: str, salt: bytes, n: int, r: int, p: int) -> bytes:
    # OpenSSL wants to be told that it may use the memory which the parameters ask for.
    return hashlib.scrypt(
        password.encode(), salt=salt, n=n, r=r, p=p, maxmem=256 * n * r + (1 << 20), dklen=32
    )


def _text(data: bytes) -> str:
    return base64.b64encode(data).decode()
