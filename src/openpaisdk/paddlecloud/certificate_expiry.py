"""Expiry of a certificate's file. The standard library reads certificates only of connections."""

from __future__ import annotations

import calendar
import re

# The validity of a certificate: a sequence of two times, each with two or four digits of the year.
_TIME = rb"(?:\x17\x0d(\d{12})Z|\x18\x0f(\d{14})Z)"
_VALIDITY = re.compile(rb"\x30[\x1e\x20\x22]" + _TIME + _TIME, re.DOTALL)
_PEM = re.compile(r"-----BEGIN CERTIFICATE-----\s(.*?)-----END CERTIFICATE-----", re.DOTALL)


def expiry_of(path: str) -> float | None:
    """When the first certificate of a PEM file expires, in seconds since 1970; None if that is unknown."""
    from binascii import Error, a2b_base64

    try:
        with open(path, encoding="ascii", errors="replace") as f:
            pem = _PEM.search(f.read())
        found = _VALIDITY.search(a2b_base64(pem[1])) if pem else None
    except (OSError, Error, ValueError):
        return None
    if found is None:
        return None
    text = (found[4] or _century(found[3]) + found[3]).decode()
    parts = [int(text[:4]), *(int(text[at : at + 2]) for at in range(4, 14, 2))]
    return float(calendar.timegm((*parts, 0, 0, 0)))


def _century(year_first: bytes) -> bytes:
    """Two digits of a year mean 1950 to 2049."""
    return b"19" if year_first[:2] >= b"50" else b"20"
