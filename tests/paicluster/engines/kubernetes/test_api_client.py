"""Client of the API and watch, against a server that answers as the test says."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Callable
from typing import Any, Self

import pytest

from paicluster.engines.kubernetes.api_client import ApiClient, ApiError, ApiUnavailable
from paicluster.engines.kubernetes.api_objects import ApiPodList, Pod
from paicluster.engines.kubernetes.cluster_access import ClusterAccess, NoCredentials, StaticCredentials
from paicluster.engines.kubernetes.watcher import Watcher

DEADLINE_S = 90.0
Answer = Callable[["Server", str, asyncio.StreamWriter], Any]


def response(status: int, body: Any = "", **headers: str) -> bytes:
    data = (body if isinstance(body, str) else json.dumps(body)).encode()
    lines = [f"HTTP/1.1 {status} x", f"Content-Length: {len(data)}"]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    return ("\r\n".join(lines) + "\r\n\r\n").encode() + data


def pod(name: str, version: int, **labels: str) -> dict[str, Any]:
    return {"metadata": {"name": name, "resourceVersion": str(version), "labels": labels}}


def pod_list(version: int, *pods: dict[str, Any], more: str = "") -> dict[str, Any]:
    return {"metadata": {"resourceVersion": str(version), "continue": more}, "items": list(pods)}


# As Kubernetes 1.20 sends it.
BOOKMARK = {
    "kind": "Pod",
    "metadata": {"resourceVersion": "20", "creationTimestamp": None},
    "spec": {"containers": None},
    "status": {},
}


class Server:
    """Keeps the requests; ``answer`` says what to do with each, by its target."""

    def __init__(self, answer: Callable[[str], bytes | list[bytes]]):
        self.answer = answer
        self.requests: list[str] = []
        self.connections = 0
        # Of streams: an event to let one end.
        self.cut = asyncio.Event()

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        self.cut.set()
        self._server.close()

    @property
    def access(self) -> ClusterAccess:
        return ClusterAccess(f"http://127.0.0.1:{self.port}", NoCredentials())

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode()
                length = next(
                    (
                        int(line[15:])
                        for line in head.split("\r\n")
                        if line.lower().startswith("content-length")
                    ),
                    0,
                )
                await reader.readexactly(length)
                method, target, _ = head.split(" ", 2)
                self.requests.append(f"{method} {target}")
                answer = self.answer(f"{method} {target}")
                if isinstance(answer, list):
                    await self._stream(answer, writer)
                    break
                if not answer:
                    break
                writer.write(answer)
                await writer.drain()
        writer.close()

    async def _stream(self, lines: list[bytes], writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        for line in lines:
            # In two chunks: a line may be split anywhere.
            for part in (line[:7], line[7:] + b"\n"):
                writer.write(b"%x\r\n%s\r\n" % (len(part), part))
                await writer.drain()
        await self.cut.wait()
        self.cut.clear()


def event(kind: str, item: dict[str, Any]) -> bytes:
    return json.dumps({"type": kind, "object": item}).encode()


@contextlib.asynccontextmanager
async def client_of(server: Server) -> AsyncIterator[ApiClient]:
    client = ApiClient(server.access)
    try:
        yield client
    finally:
        await client.close()


async def until(true: Callable[[], object]) -> None:
    async with asyncio.timeout(DEADLINE_S):
        while not true():
            await asyncio.sleep(0.01)


# -- requests --------------------------------------------------------------------------------------


async def test_requests_share_a_connection() -> None:
    async with Server(lambda target: response(200, pod_list(5, pod("a", 1)))) as server:
        async with client_of(server) as client:
            for _ in range(3):
                assert (await client.get("/pods", ApiPodList, limit=5)).items[0].metadata.name == "a"
        assert server.connections == 1
        assert server.requests == ["GET /pods?limit=5"] * 3


async def test_connection_that_was_closed_meanwhile_is_replaced() -> None:
    answers = [response(200, "{}"), b"", response(200, "{}")]
    async with Server(lambda target: answers.pop(0)) as server:
        async with client_of(server) as client:
            await client.request("GET", "/a")
            await client.request("GET", "/b")
        assert server.requests == ["GET /a", "GET /b", "GET /b"]


async def test_error_has_reason_and_message_of_the_status() -> None:
    status = {"kind": "Status", "reason": "Forbidden", "message": 'pods is forbidden: verb "create"'}
    async with Server(lambda target: response(403, status)) as server, client_of(server) as client:
        with pytest.raises(ApiError) as caught:
            await client.create("/pods", {"a": 1})
    assert (caught.value.status, caught.value.reason) == (403, "Forbidden")
    assert caught.value.message == 'pods is forbidden: verb "create"'
    assert not caught.value.is_transient


async def test_error_of_a_proxy_is_no_kubernetes_status() -> None:
    async with (
        Server(lambda target: response(502, "<html>bad</html>")) as server,
        client_of(server) as client,
    ):
        with pytest.raises(ApiError) as caught:
            await client.request("GET", "/pods")
    assert "<html>bad</html>" in caught.value.message and caught.value.is_transient


async def test_throttled_request_is_repeated_after_the_time_that_the_server_says() -> None:
    answers = [response(429, "slow down", Retry_After="1"), response(200, "{}")]
    async with Server(lambda target: answers.pop(0)) as server, client_of(server) as client:
        began = asyncio.get_running_loop().time()
        await client.request("GET", "/pods")
        assert asyncio.get_running_loop().time() - began >= 1
        assert client.throttled == 1


async def test_server_that_is_not_there_is_unavailable() -> None:
    async with Server(lambda target: b"") as server:
        async with client_of(server) as client:
            with pytest.raises(ApiUnavailable):
                await client.request("GET", "/pods")
    async with client_of(server) as client:
        with pytest.raises(ApiUnavailable, match=r"127\.0\.0\.1"):
            await client.request("GET", "/pods")


async def test_deleting_what_is_gone_is_no_error() -> None:
    answers = [
        response(200, "{}"),
        response(404, {"reason": "NotFound"}),
        response(403, {"reason": "Forbidden"}),
    ]
    async with Server(lambda target: answers.pop(0)) as server, client_of(server) as client:
        assert await client.delete("/pods/a", grace_s=0)
        assert not await client.delete("/pods/a")
        with pytest.raises(ApiError):
            await client.delete("/pods/a")


async def test_credentials_are_sent_and_not_shown() -> None:
    seen: list[str] = []
    async with Server(lambda target: response(200, "{}")) as server:
        access = ClusterAccess(f"http://127.0.0.1:{server.port}", StaticCredentials(token="hidden"))
        client = ApiClient(access)
        original = access.credentials.headers

        async def spied() -> Any:
            headers = await original()
            seen.append(headers["Authorization"])
            return headers

        access.credentials.headers = spied  # type: ignore[method-assign]
        await client.request("GET", "/pods")
        await client.close()
    assert seen[-1] == "Bearer hidden" and "hidden" not in repr(access)


# -- watching --------------------------------------------------------------------------------------


class Watched:
    """A watcher with the changes that it reported."""

    def __init__(self, client: ApiClient, **options: Any):
        self.changes: list[tuple[str | None, str | None]] = []
        self.watcher: Watcher[Pod] = Watcher(client, "/pods", Pod, self._changed, selector="a=b", **options)

    def _changed(self, old: Pod | None, new: Pod | None) -> None:
        self.changes.append(
            (
                None if old is None else f"{old.metadata.name}{old.metadata.resource_version}",
                None if new is None else f"{new.metadata.name}{new.metadata.resource_version}",
            )
        )

    async def __aenter__(self) -> Self:
        self._task = asyncio.create_task(self.watcher.run())
        return self

    async def __aexit__(self, *_: object) -> None:
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)


async def test_watch_lists_once_and_continues_where_it_was_cut() -> None:
    watches = [
        [event("ADDED", pod("b", 11)), event("MODIFIED", pod("a", 12)), event("BOOKMARK", BOOKMARK)],
        [event("DELETED", pod("a", 21))],
        [],
    ]

    def answer(target: str) -> bytes | list[bytes]:
        return watches.pop(0) if "watch=1" in target else response(200, pod_list(10, pod("a", 3)))

    async with Server(answer) as server, client_of(server) as client, Watched(client) as watched:
        await until(lambda: len(watched.changes) == 3)
        assert watched.changes == [(None, "a3"), (None, "b11"), ("a3", "a12")]
        server.cut.set()
        # The last state of what was deleted comes first.
        await until(lambda: len(watched.changes) == 5)
        assert watched.changes[3:] == [("a12", "a21"), ("a21", None)]
        server.cut.set()
        await until(lambda: len(server.requests) == 4)
        assert list(watched.watcher.objects) == ["b"]
        versions = [target.partition("resourceVersion=")[2].partition("&")[0] for target in server.requests]
        assert versions == ["", "10", "20", "21"]
        assert watched.watcher.listings == 1


async def test_expired_watch_lists_again_and_reports_the_differences() -> None:
    lists = [pod_list(10, pod("a", 3), pod("b", 4)), pod_list(30, pod("b", 4), pod("c", 25))]
    expired = {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old resource version"}
    watches = [[event("ERROR", expired)], []]

    def answer(target: str) -> bytes | list[bytes]:
        return watches.pop(0) if "watch=1" in target else response(200, lists.pop(0))

    async with Server(answer) as server, client_of(server) as client, Watched(client) as watched:
        await until(lambda: len(server.requests) == 4)
        assert watched.changes == [(None, "a3"), (None, "b4"), ("a3", None), (None, "c25")]
        assert "resourceVersion=30" in server.requests[-1]


async def test_list_of_several_pages() -> None:
    pages = [pod_list(9, pod("a", 1), more="next"), pod_list(10, pod("b", 2))]

    def answer(target: str) -> bytes | list[bytes]:
        return [] if "watch=1" in target else response(200, pages.pop(0))

    async with Server(answer) as server, client_of(server) as client, Watched(client) as watched:
        await until(lambda: len(server.requests) == 3)
        assert sorted(watched.watcher.objects) == ["a", "b"]
        assert "continue=next" in server.requests[1] and "labelSelector=a%3Db" in server.requests[1]


async def test_server_that_comes_back_is_watched_again() -> None:
    down = [True]

    def answer(target: str) -> bytes | list[bytes]:
        if down[0]:
            return response(503, {"message": "apiserver is starting"})
        return [] if "watch=1" in target else response(200, pod_list(10, pod("a", 1)))

    async with Server(answer) as server, client_of(server) as client, Watched(client) as watched:
        await until(lambda: watched.watcher.problem)
        assert watched.watcher.problem == "apiserver is starting"
        assert not watched.watcher.synced.is_set()
        down[0] = False
        await until(watched.watcher.synced.is_set)
        assert not watched.watcher.problem and list(watched.watcher.objects) == ["a"]


async def test_silent_connection_is_given_up() -> None:
    def answer(target: str) -> bytes | list[bytes]:
        return [] if "watch=1" in target else response(200, pod_list(10))

    async with Server(answer) as server, client_of(server) as client:
        async with Watched(client, silence_s=0.2):
            await until(lambda: len(server.requests) >= 3)
            assert [one for one in server.requests if "watch=1" not in one] == server.requests[:1]


async def test_error_of_a_callback_does_not_end_the_watch() -> None:
    def answer(target: str) -> bytes | list[bytes]:
        return (
            [event("ADDED", pod("b", 11))]
            if "watch=1" in target
            else response(200, pod_list(10, pod("a", 1)))
        )

    def fail(old: Pod | None, new: Pod | None) -> None:
        raise ValueError("broken")

    async with Server(answer) as server, client_of(server) as client:
        watcher: Watcher[Pod] = Watcher(client, "/pods", Pod, fail)
        task = asyncio.create_task(watcher.run())
        await until(lambda: sorted(watcher.objects) == ["a", "b"])
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
