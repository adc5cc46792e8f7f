"""Raw UTF-8 in request targets.

Hadoop's Java client, among others, sends a path such as ``/日本`` unencoded, and HDFS accepts it. The HTTP
parser rejects every byte above 0x7f in a target, so these bytes are percent-encoded before it sees them.
That must happen in request lines only, never in a body: received data is therefore given to the parser in
pieces that end where a section of a request may end, and the parser's callbacks alone say which section
follows. Where the bounds of a request were mistaken, its target would not be encoded and would be rejected.
"""

from __future__ import annotations

import asyncio
import re
from enum import Enum, auto
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from paicluster.api.routing.dialect import CERTIFICATE_EXTENSION
from paicluster.auth.user_certificates import PresentedCertificate

_NOT_ASCII = re.compile(rb"[\x80-\xff]")
_HEAD_END = b"\r\n\r\n"
# Ends a chunked body: an empty line, after the last chunk's size or a trailer.
_EMPTY_LINE = b"\n\r\n"


class _Section(Enum):
    """Section of the connection to which the next received byte belongs."""

    # Between two requests.
    START = auto()
    REQUEST_LINE = auto()
    HEADERS = auto()
    BODY = auto()
    CHUNKED_BODY = auto()


class RawTargetHttpProtocol(HttpToolsProtocol):
    """uvicorn's protocol, which accepts any byte above 0x7f in a request target."""

    _section = _Section.START
    # Scope of the last request that the parser has seen to its end; each request has its own.
    _complete_scope: object = None
    # Certificate of the client, which TLS has verified.
    _certificate: PresentedCertificate | None = None
    # Bytes of a body with Content-Length that have not arrived.
    _body_left = 0

    def data_received(self, data: bytes) -> None:
        while data:
            size = self._piece_size(data)
            piece, data = data[:size], data[size:]
            if self._section in _LINE and not piece.isascii():
                super().data_received(_NOT_ASCII.sub(_percent_encode, piece))
            else:
                super().data_received(piece)
            if self.scope is self._complete_scope:
                self._section = _Section.START
            elif self.transport.is_closing():
                return
            else:
                self._section = self._next_section(piece)
            if data and (self.transport.is_closing() or self.parser.should_upgrade()):
                return

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        encrypted = transport.get_extra_info("ssl_object")
        self._certificate = None if encrypted is None else _presented(encrypted.getpeercert())

    def on_message_begin(self) -> None:
        super().on_message_begin()
        if self._certificate is not None:
            extensions: Any = self.scope.setdefault("extensions", {})
            extensions[CERTIFICATE_EXTENSION] = self._certificate

    def begin_next_request(self) -> None:
        """The current request was received without this protocol, to its end."""
        self._complete_scope = self.scope
        self._section = _Section.START

    def on_message_complete(self) -> None:
        self._complete_scope = self.scope
        super().on_message_complete()

    def _piece_size(self, data: bytes) -> int:
        """How much of the data the parser may see at once: at most up to the end of a section."""
        section = self._section
        if section is _Section.START and data.isascii():
            return _end(data, _HEAD_END)
        if section is _Section.BODY:
            return self._body_left or len(data)
        if section is _Section.CHUNKED_BODY:
            return _empty_line_end(data)
        return _end(data, b"\n")

    def _next_section(self, piece: bytes) -> _Section:
        """Section after a piece of an incomplete request."""
        section = self._section
        if section is _Section.CHUNKED_BODY:
            return section
        if section is _Section.BODY:
            self._body_left = max(0, self._body_left - len(piece))
            return section
        if self.cycle is not None and self.cycle.scope is self.scope:
            # The parser has checked the headers: one of both, and a valid length.
            headers = dict(self.headers)
            self._body_left = int(headers.get(b"content-length", 0))
            return _Section.CHUNKED_BODY if b"transfer-encoding" in headers else _Section.BODY
        # Empty lines before a request belong to no line of it.
        if section is _Section.START:
            piece = piece.lstrip(b"\r\n")
        is_line = section in _LINE and b"\n" not in piece
        return _Section.REQUEST_LINE if is_line else _Section.HEADERS


_LINE = (_Section.START, _Section.REQUEST_LINE)


def _presented(certificate: Any) -> PresentedCertificate | None:
    """User and serial number of a client's certificate; None without one."""
    if not certificate:
        return None
    names = [value for part in certificate["subject"] for key, value in part if key == "commonName"]
    return PresentedCertificate(names[0] if names else "", f"{int(certificate['serialNumber'], 16):x}")


def _percent_encode(match: re.Match[bytes]) -> bytes:
    return b"%%%02X" % match[0][0]


def _end(data: bytes, separator: bytes) -> int:
    """Where the first separator ends, or the data if it has none."""
    at = data.find(separator)
    return len(data) if at < 0 else at + len(separator)


def _empty_line_end(data: bytes) -> int:
    # The line break before it may have been the end of the previous piece.
    for start in (b"\r\n", b"\n"):
        if data.startswith(start):
            return len(start)
    return _end(data, _EMPTY_LINE)
