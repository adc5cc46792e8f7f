"""Base classes of the wire types, and the types that many routes share."""

from functools import partial
from typing import Annotated

import msgspec
from msgspec import Meta

from paicluster.api.wire import body_decoder

_MAX_NAME_LENGTH = 255
_NAME = r"^[A-Za-z0-9_.-]+$"
# The error message shows OpenPAI's pattern.
_read_name = partial(
    body_decoder.text, max_length=_MAX_NAME_LENGTH, pattern=_NAME, shown_pattern=r"^[\w.-]+$"
)
Name = Annotated[str, Meta(pattern=_NAME, max_length=_MAX_NAME_LENGTH, extra={"read": _read_name})]
"""Of a user or a storage server."""
GroupName = Annotated[str, Meta(pattern=r"^[A-Za-z0-9_]+$", max_length=_MAX_NAME_LENGTH)]
"""Of a group, a virtual cluster or a storage config."""


class WireModel(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    """Base of JSON objects with exactly these keys, in camel case."""


class OpenModel(msgspec.Struct, rename="camel"):
    """As `WireModel`, for objects that may have further keys."""


class Problem(WireModel):
    """Body of every error response."""

    code: str
    message: str
    hint: str | msgspec.UnsetType = msgspec.UNSET


class Message(WireModel):
    """Response with a message only."""

    message: str


class MessageWithStatus(WireModel):
    status: int
    message: str
