"""Waits of a launch in which another program works: the server is not at work on the job meanwhile."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from typing import Any, TypeVar

T = TypeVar("T")

_wrapper: ContextVar[Callable[[Awaitable[Any]], Awaitable[Any]] | None] = ContextVar("wrapper", default=None)


def set_wrapper(wrapper: Callable[[Awaitable[Any]], Awaitable[Any]]) -> None:
    """Wrap each wait of launches in this asyncio task: ``wrapper`` returns what is awaited in its place."""
    _wrapper.set(wrapper)


async def outside(waited_for: Awaitable[T]) -> T:
    """Await something that takes long and needs nothing of the server, such as the pull of an image."""
    wrapper = _wrapper.get()
    result: T = await (waited_for if wrapper is None else wrapper(waited_for))
    return result
