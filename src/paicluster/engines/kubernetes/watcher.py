"""Watch of the objects of one kind: listed once, then followed by resource version."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import time
from collections.abc import Callable
from typing import Generic, Protocol, TypeVar

import msgspec

from paicluster.engines.kubernetes.api_client import ApiClient, ApiError, ApiUnavailable
from paicluster.engines.kubernetes.api_objects import ApiListMetadata, ApiObject, Metadata, WatchEvent
from paiprotocol.errors import ConfigError

log = logging.getLogger(__name__)

_PAGE = 500
# A watch ends by itself after this time, and continues on another connection.
_WATCH_S = 300
# Longer than the API server is silent: at least a bookmark comes every minute.
_SILENCE_S = 90.0
_BACKOFF_MIN_S = 0.2
_BACKOFF_MAX_S = 15.0
_EXPIRED = 410


class KubernetesObject(Protocol):
    @property
    def metadata(self) -> Metadata: ...


T = TypeVar("T", bound=KubernetesObject)


class _List(ApiObject, frozen=True):
    metadata: ApiListMetadata
    items: list[msgspec.Raw] = msgspec.field(default_factory=list)


class _Bookmark(ApiObject, frozen=True):
    metadata: Metadata


class _Failure(ApiObject, frozen=True):
    code: int = 0
    message: str = ""


class Watcher(Generic[T]):
    """Current objects by name (of several namespaces: by namespace and name), and a callback for each change.

    A lost connection continues where it was. Where the API server no longer has the changes since then (410),
    all objects are listed again, and the differences are reported.
    """

    def __init__(
        self,
        client: ApiClient,
        path: str,
        kind: type[T],
        on_change: Callable[[T | None, T | None], None],
        *,
        selector: str = "",
        fields: str = "",
        is_of_all: bool = False,
        silence_s: float = _SILENCE_S,
    ):
        """``on_change(old, new)``: None for an object that was not there, or is no more.

        ``selector``: by labels, ``fields``: by fields. ``is_of_all``: of objects in all namespaces.
        """
        self._client = client
        self._path = path
        self._decoder = msgspec.json.Decoder(kind)
        self._on_change = on_change
        self._query: dict[str, str | int] = {}
        if selector:
            self._query["labelSelector"] = selector
        if fields:
            self._query["fieldSelector"] = fields
        self._silence_s = silence_s
        self._is_of_all = is_of_all
        self._version = ""
        self.objects: dict[str, T] = {}
        # Set while the objects are known to be those of the API server, or were a moment ago.
        self.synced = asyncio.Event()
        # Why the API server cannot be watched; empty while it can.
        self.problem = ""
        self.listings = 0

    async def run(self) -> None:
        """Watch until cancelled."""
        backoff_s = _BACKOFF_MIN_S
        while True:
            began = time.monotonic()
            pause_s = 0.0
            try:
                if not self._version:
                    await self._list()
                await self._watch()
                # One that ends at once, again and again, must not be a load.
                if time.monotonic() - began > _BACKOFF_MAX_S:
                    backoff_s = _BACKOFF_MIN_S
            except ApiError as error:
                self._fail(error.message)
                pause_s = error.retry_after_s
                if error.status == _EXPIRED:
                    self._version = ""
            except (ApiUnavailable, ConfigError) as error:
                self._fail(str(error))
            pause_s = max(pause_s, backoff_s * random.uniform(0.5, 1.5))
            await asyncio.sleep(pause_s)
            backoff_s = min(backoff_s * 2, _BACKOFF_MAX_S)

    def _fail(self, reason: str) -> None:
        if reason != self.problem:
            log.warning("Kubernetes cannot be watched (%s): %s", self._path, reason)
        self.problem = reason

    def _succeed(self) -> None:
        if self.problem:
            log.info("Kubernetes is watched again (%s).", self._path)
        self.problem = ""
        self.synced.set()

    async def _list(self) -> None:
        self.listings += 1
        found: dict[str, T] = {}
        query: dict[str, str | int] = {**self._query, "limit": _PAGE}
        while True:
            page = await self._client.get(self._path, _List, **query)
            for raw in page.items:
                item = self._decoder.decode(raw)
                found[self._key(item)] = item
            if not page.metadata.continue_:
                break
            query["continue"] = page.metadata.continue_
        for name in self.objects.keys() - found.keys():
            self._set(name, None)
        for name, item in found.items():
            known = self.objects.get(name)
            if known is None or known.metadata.resource_version != item.metadata.resource_version:
                self._set(name, item)
        self._version = page.metadata.resource_version
        self._succeed()

    async def _watch(self) -> None:
        query: dict[str, str | int] = {
            **self._query,
            "watch": "1",
            "resourceVersion": self._version,
            "allowWatchBookmarks": "true",
            "timeoutSeconds": int(_WATCH_S * random.uniform(0.8, 1.2)),
        }
        decoder = msgspec.json.Decoder(WatchEvent)
        lines = self._client.lines(self._path, query=query, idle_timeout_s=self._silence_s)
        async with contextlib.aclosing(lines):
            async for line in lines:
                self._succeed()
                event = decoder.decode(line)
                if event.type == "ERROR":
                    failure = msgspec.json.decode(event.object, type=_Failure)
                    raise ApiError(failure.code, message=failure.message)
                if event.type == "BOOKMARK":
                    # An object with a version and nothing else, not even what it must have.
                    mark = msgspec.json.decode(event.object, type=_Bookmark)
                    self._version = mark.metadata.resource_version
                    continue
                item = self._decoder.decode(event.object)
                self._version = item.metadata.resource_version or self._version
                if event.type == "DELETED":
                    # Its last state first: it may have ended between two events.
                    self._set(self._key(item), item)
                self._set(self._key(item), None if event.type == "DELETED" else item)

    def _key(self, item: T) -> str:
        metadata = item.metadata
        return f"{metadata.namespace}/{metadata.name}" if self._is_of_all else metadata.name

    def _set(self, name: str, new: T | None) -> None:
        old = self.objects.pop(name, None)
        if new is not None:
            self.objects[name] = new
        try:
            self._on_change(old, new)
        except Exception:
            # A failure of one object must not end the watch of all others.
            log.exception("A change of %s could not be processed.", name)
