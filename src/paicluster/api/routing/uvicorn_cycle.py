"""uvicorn's object of a request, which an ASGI application reaches only by its `receive`."""

from __future__ import annotations

from typing import Any

from starlette.types import Receive


def cycle_of(receive: Receive) -> Any:
    """Its request-response cycle; None for requests that did not come from uvicorn."""
    return getattr(receive, "__self__", None)


def transport_of(receive: Receive) -> Any:
    """Of the connection that a request came on; None for requests that the server makes itself."""
    return getattr(cycle_of(receive), "transport", None)
