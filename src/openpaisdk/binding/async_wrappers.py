"""Awaitable variants of methods: the synchronous method runs in a thread, so both always behave the same."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from typing import Any, Concatenate, ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")

_END = object()


class AsyncWrapper:
    """Base class of wrappers: holds the synchronous object."""

    def __init__(self, sync: Any):
        self.sync = sync

    def __repr__(self) -> str:
        return f"<await {self.sync!r}>"


def async_method(
    method: Callable[Concatenate[Any, P], R],
) -> Callable[Concatenate[Any, P], Coroutine[Any, Any, R]]:
    """The same method, as a coroutine."""

    async def call(self: AsyncWrapper, /, *args: P.args, **kwargs: P.kwargs) -> R:
        return await asyncio.to_thread(method, self.sync, *args, **kwargs)

    call.__name__, call.__doc__ = method.__name__, method.__doc__
    return call


def async_generator(
    method: Callable[Concatenate[Any, P], Iterator[R]],
) -> Callable[Concatenate[Any, P], AsyncIterator[R]]:
    """The same generator, for ``async for``: each step runs in a thread."""

    async def call(self: AsyncWrapper, /, *args: P.args, **kwargs: P.kwargs) -> AsyncIterator[R]:
        steps = iter(method(self.sync, *args, **kwargs))
        while True:
            value = await asyncio.to_thread(next, steps, _END)
            if value is _END:
                return
            yield value  # type: ignore[misc]

    call.__name__, call.__doc__ = method.__name__, method.__doc__
    return call
