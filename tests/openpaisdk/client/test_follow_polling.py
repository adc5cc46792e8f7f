"""Following a job by polling, on a cluster that cannot stream."""

import pytest

from openpaisdk.client import ClusterClient, Endpoint
from openpaisdk.client.follow import follow
from openpaisdk.client.follow_polling import follow_by_polling
from openpaisdk.client.follow_stream import FollowRequest
from support.http_peer import reply

LOG = b"".join(b"line %d\n" % i for i in range(100))


class OpenPai18:
    """Responses of an OpenPAI 1.8 cluster, with a log that grows with each poll."""

    def __init__(self, ranges: bool = True):
        self.polls = 0
        self.ranges = ranges

    def __call__(self, r):
        if r.path.endswith("/follow"):
            return reply({"code": "NoApiError", "message": f"API {r.path} is not found."}, 404)
        if r.path.endswith("/logs"):
            return reply(
                {"locations": [{"name": "all", "uri": "/log-manager/10.0.0.1:9103/api/v1/logs/all?token=t"}]}
            )
        if r.path.startswith("/log-manager/"):
            return self.log(r)
        self.polls += 1
        over = self.polls >= 4
        state = "WAITING" if self.polls == 1 else "SUCCEEDED" if over else "RUNNING"
        tasks = [
            {
                "taskIndex": 0,
                "taskState": state,
                "attemptId": 0,
                "containerLog": "/api/v2/jobs/me~j/attempts/0/taskRoles/main/taskIndex/0/attempts/0/logs",
            }
        ]
        roles = (
            {} if self.polls == 1 else {"main": {"taskRoleStatus": {"name": "main"}, "taskStatuses": tasks}}
        )
        return reply(
            {
                "name": "j",
                "jobStatus": {
                    "username": "me",
                    "state": state,
                    "attemptId": 0,
                    "appExitCode": 0 if over else None,
                },
                "taskRoles": roles,
            }
        )

    def log(self, r):
        there = LOG[: 300 * (self.polls - 1)] if self.polls < 4 else LOG
        start = int(r.headers["range"].removeprefix("bytes=").removesuffix("-"))
        if not self.ranges:
            return reply(there)
        return reply(there[start:], 206) if start < len(there) else reply(b"", 416)


@pytest.mark.parametrize("ranges", [True, False])
def test_whole_log_and_states_in_order(peer, ranges: bool) -> None:
    c = ClusterClient("old", Endpoint(peer(OpenPai18(ranges)).uri, "me", "t"))
    got = list(follow_by_polling(c, FollowRequest("j"), poll_intervals_s=(0.001,)))
    assert b"".join(f.data for f in got if f.kind == "log") == LOG
    assert [f.head["state"] for f in got if f.kind == "state"] == ["WAITING", "RUNNING", "SUCCEEDED"]
    assert got[-1].kind == "end"


def test_tail_returns_the_last_lines(peer) -> None:
    p = OpenPai18()
    p.polls = 10
    c = ClusterClient("old", Endpoint(peer(p).uri, "me", "t"))
    assert b"".join(f.data for f in follow(c, FollowRequest("j", tail=2))) == b"line 98\nline 99\n"
