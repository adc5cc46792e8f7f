"""Jobs that jobs submit with their own tokens: how deep and how many is limited, in every dialect."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

from support.paddlecloud_cluster import put_package
from support.server_fixture import job
from support.team_cluster import NewTeam, TeamCluster


def submissions(name: str) -> dict[str, tuple[str, dict[str, Any]]]:
    """Path and body of a submission, by dialect."""
    task = {"name": "main", "command": "true", "memoryMB": 16}
    paddle = {
        "name": name,
        "job_package": f"/pfs/dc1/home/alice/jobs/{name}",
        "entry": "true",
        "pservers": 0,
        "memory": "64Mi",
    }
    return {
        "version 2": ("/api/v2/jobs", job(name, "true")),
        "version 1": ("/api/v1/user/alice/jobs", {"jobName": name, "image": "host", "taskRoles": [task]}),
        "PaddleCloud": ("/api/v1/jobs", paddle),
    }


def test_chain_of_jobs_ends_and_the_error_names_it(team: TeamCluster) -> None:
    token = team.token
    for depth in range(4):  # the first one is submitted by a user
        token = team.token_of_job(f"link-{depth}", token)
    put_package(team, "link-4")
    for dialect, (path, body) in submissions("link-4").items():
        reply = team.ask("POST", path, body, token=token)
        assert reply.status == (200 if dialect == "PaddleCloud" else 403), (dialect, reply.text)
        assert "may be 3 deep" in reply.text, (dialect, reply.text)
        assert "link-0 -> link-1 -> link-2 -> link-3" in reply.text.replace("\\u003e", ">"), reply.text
        assert "limits.submission-depth" in reply.text, (dialect, reply.text)
    assert team.submit(job("link-4", "true"), token=token).json()["code"] == "SubmissionDepthError"
    assert team.get("/api/v2/jobs/alice~link-4").status == 404
    # What the job may do else, and what its user may do, is as before.
    assert team.get("/api/v2/jobs/alice~link-3", token=token).status == 200
    assert team.submit(job("link-4", "true")).status == 202


def test_number_of_jobs_that_one_job_submits_is_limited(new_team: NewTeam) -> None:
    team = new_team("limits: {submissions-per-job: 4}\n")
    token = team.token_of_job("many", team.token)
    assert team.submit(job("same", "true"), key="k", token=token).status == 202
    assert team.submit(job("same", "true"), key="k", token=token).status == 202, "no other job"
    assert team.submit(job("same", "true"), token=token).status == 409
    with ThreadPoolExecutor(8) as at_once:
        replies = list(at_once.map(lambda i: team.submit(job(f"n-{i}", "true"), token=token), range(8)))
    assert sorted(reply.status for reply in replies) == [202] * 3 + [403] * 5
    refused = next(reply for reply in replies if reply.status == 403).json()
    assert refused["code"] == "SubmissionNumberError"
    assert "Job many has submitted 4 jobs: one job may submit 4." in refused["message"]
    # The number is kept over a restart, and it is that of this job only.
    team.terminate()
    team.start()
    assert team.submit(job("later", "true"), token=token).status == 403
    assert team.submit(job("later", "true")).status == 202
    other = team.token_of_job("other", team.token)
    assert team.submit(job("of-other", "true"), token=other).status == 202
