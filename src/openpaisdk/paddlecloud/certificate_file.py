"""Name and expiry of a certificate's file. The standard library reads certificates only of connections."""

from __future__ import annotations

import calendar
import re

# The validity of a certificate: a sequence of two times, each with two or four digits of the year. A sequence
# follows, its subject.
_TIME = rb"(?:\x17\x0d(\d{12})Z|\x18\x0f(\d{14})Z)"
_VALIDITY = re.compile(rb"\x30[\x1e\x20\x22]" + _TIME + _TIME + rb"\x30", re.DOTALL)
# A common name in a subject: its object identifier, and the type of its text.
_COMMON_NAME = re.compile(rb"\x06\x03\x55\x04\x03[\x0c\x13\x14\x16]", re.DOTALL)
_PEM = re.compile(r"-----BEGIN CERTIFICATE-----\s(.*?)-----END CERTIFICATE-----", re.DOTALL)
_LONG = 0x80
"""A larger byte in place of a length tells, less this, how many bytes of length follow."""


class CertificateFile:
    """The first certificate of a PEM file: that of the user. What cannot be read is None."""

    def __init__(self, path: str):
        self._content = _read(path)
        self._validity = _VALIDITY.search(self._content)

    @property
    def expires(self) -> float | None:
        """Seconds since 1970."""
        if self._validity is None:
            return None
        _, _, short, long = self._validity.groups()
        text = (long or _century(short) + short).decode()
        parts = [int(text[:4]), *(int(text[at : at + 2]) for at in range(4, 14, 2))]
        return float(calendar.timegm((*parts, 0, 0, 0)))

    @property
    def user(self) -> str | None:
        """The common name, by which a datacenter knows the user."""
        if self._validity is None:
            return None
        subject = _value_at(self._content, self._validity.end())
        match = _COMMON_NAME.search(subject)
        return None if match is None else _value_at(subject, match.end()).decode("utf-8", "replace")


def _read(path: str) -> bytes:
    from binascii import Error, a2b_base64

    try:
        with open(path, encoding="ascii", errors="replace") as f:
            pem = _PEM.search(f.read())
        return a2b_base64(pem[1]) if pem else b""
    except (OSError, Error, ValueError):
        return b""


def _value_at(content: bytes, at: int) -> bytes:
    """The value whose length is at this place."""
    size = content[at] if at < len(content) else 0
    start = at + 1
    if size > _LONG:
        start += size - _LONG
        size = int.from_bytes(content[at + 1 : start], "big")
    return content[start : start + size]


def _century(year_first: bytes) -> bytes:
    """Two digits of a year mean 1950 to 2049."""
    return b"19" if year_first[:2] >= b"50" else b"20"
