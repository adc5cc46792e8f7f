"""Following a job over connections that break: no byte lost, none twice."""

import json
import random

import pytest

from openpaisdk.client import ClusterClient, Endpoint
from openpaisdk.client import follow_stream as follow_stream_module
from openpaisdk.client import transport as transport_module
from openpaisdk.client.follow_stream import FollowRequest, follow_stream
from openpaisdk.errors import ConnectionFailed, NotFound
from support.http_peer import reply


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch):
    monkeypatch.setattr(transport_module, "RETRY_DELAYS_S", (0.001,))
    monkeypatch.setattr(follow_stream_module, "RECONNECT_DELAYS_S", (0.001,))


def frame(kind: str, data: bytes = b"", **head: object) -> bytes:
    if data:
        head["size"] = len(data)
    return json.dumps({"kind": kind, **head}).encode() + b"\n" + data


def stream(log: bytes, start: int, rng: random.Random) -> bytes:
    """What a cluster sends from an offset on: state, the log in frames of any size, the end."""
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


def streamed(data: bytes) -> bytes:
    return b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + b"%x\r\n%s\r\n" % (len(data), data)


@pytest.mark.parametrize("turn", range(12))
def test_every_byte_comes_once_however_often_the_connection_breaks(peer, turn: int) -> None:
    rng = random.Random(turn)
    log = rng.randbytes(20_000)

    def answer(r):
        start = int(r.query.get("from", "0.0:0").replace("%3A", ":").partition(":")[2])
        whole = streamed(stream(log, start, rng)) + b"0\r\n\r\n"
        cut = rng.randint(1, len(whole)) if rng.random() < 0.85 else len(whole)
        yield whole[:cut]

    p = peer(answer)
    c = ClusterClient("test", Endpoint(p.uri, "me", "t"))
    frames = list(follow_stream(c, FollowRequest("j")))
    assert b"".join(f.data for f in frames if f.kind == "log") == log
    assert frames[-1].kind == "end" and frames[-1].head["state"] == "SUCCEEDED"
    assert sum(f.kind == "end" for f in frames) == 1


def test_a_new_attempt_is_followed_from_its_own_beginning(peer) -> None:
    asked = []

    def answer(r):
        asked.append(r.query.get("from"))
        if len(asked) == 1:
            yield streamed(
                frame("log", b"first", attempt=0, taskAttempt=0, offset=0)
                + frame("log", b"sec", attempt=1, taskAttempt=2, offset=0)
            )
        else:
            yield streamed(
                frame("log", b"ond", attempt=1, taskAttempt=2, offset=3)
                + frame("end", state="FAILED", exitCode=1)
            )

    frames = list(follow_stream(ClusterClient("test", Endpoint(peer(answer).uri)), FollowRequest("j")))
    assert b"".join(f.data for f in frames) == b"firstsecond"
    assert asked == [None, "1.2%3A3"]


def test_tail_counts_once_and_not_again_after_a_break(peer) -> None:
    asked = []

    def answer(r):
        asked.append((r.query.get("tail"), r.query.get("from")))
        yield (
            streamed(frame("log", b"x", attempt=0, taskAttempt=0, offset=9))
            if len(asked) == 1
            else streamed(frame("end", state="STOPPED", exitCode=-210))
        )

    list(follow_stream(ClusterClient("test", Endpoint(peer(answer).uri)), FollowRequest("j", tail=1)))
    assert asked == [("1", None), (None, "0.0%3A10")]


def test_what_the_cluster_had_to_drop_leaves_a_marker(peer) -> None:
    """A full disk, or a log of too many megabytes: the oldest part goes, and nobody must think it is all."""

    def answer(r):
        yield streamed(
            frame("log", b"late\n", attempt=0, taskAttempt=0, offset=100)
            + frame("log", b"later\n", attempt=0, taskAttempt=0, offset=105)
            + frame("log", b"last\n", attempt=0, taskAttempt=0, offset=131)
            + frame("log", b"again\n", attempt=1, taskAttempt=0, offset=7)
            + frame("end", state="SUCCEEDED", exitCode=0)
        )

    said = list(follow_stream(ClusterClient("test", Endpoint(peer(answer).uri)), FollowRequest("j")))
    assert b"".join(f.data for f in said).decode() == (
        "[100 bytes of older output were dropped]\nlate\nlater\n"
        "[20 bytes of older output were dropped]\nlast\n"
        "[7 bytes of older output were dropped]\nagain\n"
    )
    assert said[0].head["size"] == len(said[0].data)
    asked_for_the_end = list(
        follow_stream(ClusterClient("test", Endpoint(peer(answer).uri)), FollowRequest("j", tail=5))
    )
    assert asked_for_the_end[0].data == b"late\n"


def test_without_keep_it_ends_with_what_there_is(peer) -> None:
    p = peer(
        lambda r: iter([streamed(frame("log", b"now", attempt=0, taskAttempt=0, offset=0)) + b"0\r\n\r\n"])
    )
    frames = list(follow_stream(ClusterClient("test", Endpoint(p.uri)), FollowRequest("j", follow=False)))
    assert [f.data for f in frames] == [b"now"]
    assert p.requests[0].query["follow"] == "false"


def test_an_unknown_job_is_an_error_at_once(peer) -> None:
    p = peer(lambda r: reply({"code": "NoJobError", "message": "no"}, 404))
    with pytest.raises(NotFound):
        list(follow_stream(ClusterClient("test", Endpoint(p.uri)), FollowRequest("j")))


def test_a_cluster_that_does_not_come_back_is_given_up(peer) -> None:
    count = []

    def answer(r):
        count.append(1)
        return (
            iter([streamed(frame("log", b"x", attempt=0, taskAttempt=0, offset=0))])
            if len(count) == 1
            else None
        )

    p = peer(answer)
    with pytest.raises(ConnectionFailed, match="did not come back"):
        list(
            follow_stream(ClusterClient("test", Endpoint(p.uri)), FollowRequest("j"), reconnect_timeout_s=0.2)
        )


def test_a_gap_worth_a_word_is_told_and_so_is_its_end(peer, monkeypatch) -> None:
    monkeypatch.setattr(follow_stream_module, "NOTICE_AFTER_S", 0.0)
    count = []

    def answer(r):
        count.append(1)
        if len(count) == 1:
            return iter([streamed(frame("state", state="RUNNING"))])
        if len(count) < 5:
            return None
        return iter([streamed(frame("end", state="SUCCEEDED", exitCode=0))])

    kinds = [
        f.kind for f in follow_stream(ClusterClient("test", Endpoint(peer(answer).uri)), FollowRequest("j"))
    ]
    assert kinds == ["state", "lost", "back", "end"]


def test_a_follower_finds_a_cluster_that_moved(peer) -> None:
    first = peer(lambda r: iter([streamed(frame("log", b"one ", attempt=0, taskAttempt=0, offset=0))]))
    second = peer(
        lambda r: iter(
            [
                streamed(
                    frame("log", b"two", attempt=0, taskAttempt=0, offset=4)
                    + frame("end", state="SUCCEEDED", exitCode=0)
                )
            ]
        )
    )
    c = ClusterClient("local", Endpoint(first.uri), renew=lambda why, failed: Endpoint(second.uri))
    assert b"".join(f.data for f in follow_stream(c, FollowRequest("j"))) == b"one two"
    assert second.requests[0].query["from"] == "0.0%3A4"
