"""Following a job over connections that break: no byte lost, none twice."""

import json
import random
from collections.abc import Iterator

import pytest

from openpaisdk.client import ClusterClient, Endpoint
from openpaisdk.client.follow_stream import FollowRequest, Frame, follow_stream
from paiprotocol.errors import ConnectionFailed, NotFound
from support.http_peer import reply


def quick_stream(cluster: ClusterClient, request: FollowRequest, **options: float) -> Iterator[Frame]:
    """The frames of a job, without delays before a connection is tried again."""
    cluster.transport.retry_delays_s = (0.001,)
    return follow_stream(cluster, request, reconnect_delays_s=(0.001,), **options)


def frame(kind: str, data: bytes = b"", **head: object) -> bytes:
    if data:
        head["size"] = len(data)
    return json.dumps({"kind": kind, **head}).encode() + b"\n" + data


def stream(log: bytes, start: int, rng: random.Random) -> bytes:
    """Frames from an offset on: state, the log in frames of any size, the end."""
    out = [frame("state", state="RUNNING")]
    at = start
    while at < len(log):
        size = rng.randint(1, 300)
        out.append(frame("log", log[at : at + size], attempt=0, taskAttempt=0, offset=at, stream="all"))
        at += size
        if rng.random() < 0.2:
            out.append(frame("ping"))
    out.append(frame("end", state="SUCCEEDED", exitCode=0))
    return b"".join(out)


def chunked_response(data: bytes) -> bytes:
    return b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + b"%x\r\n%s\r\n" % (len(data), data)


@pytest.mark.parametrize("turn", range(12))
def test_every_byte_arrives_once_despite_connection_breaks(peer, turn: int) -> None:
    rng = random.Random(turn)
    log = rng.randbytes(20_000)

    def respond(r):
        start = int(r.query.get("from", "0.0:0").replace("%3A", ":").partition(":")[2])
        whole = chunked_response(stream(log, start, rng)) + b"0\r\n\r\n"
        cut = rng.randint(1, len(whole)) if rng.random() < 0.85 else len(whole)
        yield whole[:cut]

    p = peer(respond)
    c = ClusterClient("test", Endpoint(p.uri, "me", "t"))
    frames = list(quick_stream(c, FollowRequest("j")))
    assert b"".join(f.data for f in frames if f.kind == "log") == log
    assert frames[-1].kind == "end" and frames[-1].head["state"] == "SUCCEEDED"
    assert sum(f.kind == "end" for f in frames) == 1


def test_new_attempt_is_followed_from_its_start(peer) -> None:
    queries = []

    def respond(r):
        queries.append(r.query.get("from"))
        if len(queries) == 1:
            yield chunked_response(
                frame("log", b"first", attempt=0, taskAttempt=0, offset=0)
                + frame("log", b"sec", attempt=1, taskAttempt=2, offset=0)
            )
        else:
            yield chunked_response(
                frame("log", b"ond", attempt=1, taskAttempt=2, offset=3)
                + frame("end", state="FAILED", exitCode=1)
            )

    frames = list(quick_stream(ClusterClient("test", Endpoint(peer(respond).uri)), FollowRequest("j")))
    assert b"".join(f.data for f in frames) == b"firstsecond"
    assert queries == [None, "1.2%3A3"]


def test_tail_is_not_repeated_after_reconnect(peer) -> None:
    queries = []

    def respond(r):
        queries.append((r.query.get("tail"), r.query.get("from")))
        yield (
            chunked_response(frame("log", b"x", attempt=0, taskAttempt=0, offset=9))
            if len(queries) == 1
            else chunked_response(frame("end", state="STOPPED", exitCode=-210))
        )

    list(quick_stream(ClusterClient("test", Endpoint(peer(respond).uri)), FollowRequest("j", tail=1)))
    assert queries == [("1", None), (None, "0.0%3A10")]


def test_dropped_output_leaves_a_marker(peer) -> None:
    """After a full disk or at the size limit the oldest part is dropped, and the reader must notice."""

    def respond(r):
        yield chunked_response(
            frame("log", b"late\n", attempt=0, taskAttempt=0, offset=100)
            + frame("log", b"later\n", attempt=0, taskAttempt=0, offset=105)
            + frame("log", b"last\n", attempt=0, taskAttempt=0, offset=131)
            + frame("log", b"again\n", attempt=1, taskAttempt=0, offset=7)
            + frame("end", state="SUCCEEDED", exitCode=0)
        )

    frames = list(quick_stream(ClusterClient("test", Endpoint(peer(respond).uri)), FollowRequest("j")))
    assert b"".join(f.data for f in frames).decode() == (
        "[100 bytes of older output were dropped]\nlate\nlater\n"
        "[20 bytes of older output were dropped]\nlast\n"
        "[7 bytes of older output were dropped]\nagain\n"
    )
    assert frames[0].head["size"] == len(frames[0].data)
    asked_for_the_end = list(
        quick_stream(ClusterClient("test", Endpoint(peer(respond).uri)), FollowRequest("j", tail=5))
    )
    assert asked_for_the_end[0].data == b"late\n"


def test_without_follow_it_ends_after_existing_output(peer) -> None:
    p = peer(
        lambda r: iter(
            [chunked_response(frame("log", b"now", attempt=0, taskAttempt=0, offset=0)) + b"0\r\n\r\n"]
        )
    )
    frames = list(quick_stream(ClusterClient("test", Endpoint(p.uri)), FollowRequest("j", follow=False)))
    assert [f.data for f in frames] == [b"now"]
    assert p.requests[0].query["follow"] == "false"


def test_unknown_job_fails_at_once(peer) -> None:
    p = peer(lambda r: reply({"code": "NoJobError", "message": "no"}, 404))
    with pytest.raises(NotFound):
        list(quick_stream(ClusterClient("test", Endpoint(p.uri)), FollowRequest("j")))


def test_reconnect_timeout_ends_the_stream(peer) -> None:
    count = []

    def respond(r):
        count.append(1)
        return (
            iter([chunked_response(frame("log", b"x", attempt=0, taskAttempt=0, offset=0))])
            if len(count) == 1
            else None
        )

    p = peer(respond)
    with pytest.raises(ConnectionFailed, match="did not come back"):
        list(
            quick_stream(ClusterClient("test", Endpoint(p.uri)), FollowRequest("j"), reconnect_timeout_s=0.2)
        )


def test_long_interruption_is_reported_with_its_end(peer) -> None:
    count = []

    def respond(r):
        count.append(1)
        if len(count) == 1:
            return iter([chunked_response(frame("state", state="RUNNING"))])
        if len(count) < 5:
            return None
        return iter([chunked_response(frame("end", state="SUCCEEDED", exitCode=0))])

    c = ClusterClient("test", Endpoint(peer(respond).uri))
    kinds = [f.kind for f in quick_stream(c, FollowRequest("j"), notice_after_s=0.0)]
    assert kinds == ["state", "lost", "back", "end"]


def test_follower_finds_a_moved_cluster(peer) -> None:
    first = peer(
        lambda r: iter([chunked_response(frame("log", b"one ", attempt=0, taskAttempt=0, offset=0))])
    )
    second = peer(
        lambda r: iter(
            [
                chunked_response(
                    frame("log", b"two", attempt=0, taskAttempt=0, offset=4)
                    + frame("end", state="SUCCEEDED", exitCode=0)
                )
            ]
        )
    )
    c = ClusterClient("local", Endpoint(first.uri), renew=lambda why, failed: Endpoint(second.uri))
    assert b"".join(f.data for f in quick_stream(c, FollowRequest("j"))) == b"one two"
    assert second.requests[0].query["from"] == "0.0%3A4"


@pytest.mark.parametrize("line", [b'{"kind": "log", "size": -5}', b'{"kind": "log", "size": 1e999}', b"5"])
def test_malformed_stream_is_not_followed_for_ever(peer, line: bytes) -> None:
    p = peer(lambda _: iter([chunked_response(frame("state", state="RUNNING") + line + b"\n")]))
    c = ClusterClient("test", Endpoint(p.uri))
    with pytest.raises(ConnectionFailed):
        list(quick_stream(c, FollowRequest("j"), max_useless_streams=5))


def test_stream_that_always_ends_without_the_job_is_given_up(peer) -> None:
    p = peer(lambda _: iter([chunked_response(frame("state", state="RUNNING")) + b"0\r\n\r\n"]))
    with pytest.raises(ConnectionFailed, match="ends the stream of the job, but not the job"):
        list(quick_stream(ClusterClient("test", Endpoint(p.uri)), FollowRequest("j"), max_useless_streams=5))
