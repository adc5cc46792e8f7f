"""Recorded responses of two OpenPAI generations: a server of version 0.14 and one of 1.8.

Each records the requests that change something, for tests. Formats, codes and messages are OpenPAI's.
"""

import base64
import json
import time

from support.http_peer import Request, reply

USER, PASSWORD = "alice", "open-sesame"
HOUR = 3_600_000


def token(end: float) -> str:
    """A token as these servers issue them; its signature is not checked."""
    part = lambda value: base64.urlsafe_b64encode(json.dumps(value).encode()).rstrip(b"=").decode()  # noqa: E731
    return f"{part({'alg': 'HS256'})}.{part({'username': USER, 'exp': end})}.signature"


def error_reply(code: str, message: str, status: int) -> bytes:
    return reply({"code": code, "message": message}, status)


class _Server:
    def __init__(self) -> None:
        self.token = token(time.time() + 7 * 86400)
        self.stopped: list[str] = []
        self.submitted: list[tuple[str, bytes]] = []
        self.tags: list[str] = []

    def __call__(self, r: Request) -> bytes:
        path = r.path.removeprefix("/rest-server")
        if path == r.path and not path.startswith(("/log-manager", "/yarn")):
            return reply(b"<html>the portal</html>", 404, "Content-Type: text/html")
        return self.respond(r, path)

    def is_authenticated(self, r: Request) -> bool:
        return r.headers.get("authorization") == f"Bearer {self.token}"

    def login(self, r: Request) -> bytes:
        credentials = json.loads(r.body)
        if credentials.get("username") != USER:
            return error_reply("NoUserError", f"User {credentials.get('username')} is not found.", 400)
        if credentials.get("password") != PASSWORD:
            return error_reply("IncorrectPasswordError", "Password is incorrect.", 400)
        return reply({"user": USER, "token": self.token, "admin": False, "hasGitHubPAT": False})

    def respond(self, r: Request, path: str) -> bytes:
        raise NotImplementedError


class V014(_Server):
    """0.14 on YARN: version 1 of the API, reads need no token, logs are pages of the node manager."""

    def __init__(self) -> None:
        super().__init__()
        self.port = 0
        now = int(time.time() * 1000)
        self.list = [
            self.summary("old_one", "SUCCEEDED", now - 2 * HOUR, 0),
            self.summary("new_one", "RUNNING", now - HOUR // 2, None),
        ]

    @staticmethod
    def summary(name: str, state: str, created: int, code: int | None) -> dict:
        return {
            "name": name,
            "username": USER,
            "state": state,
            "subState": "FRAMEWORK_COMPLETED" if code is not None else "APPLICATION_RUNNING",
            "executionType": "START",
            "retries": 0,
            "retryDetails": {"user": 0, "platform": 0, "resource": 0},
            "createdTime": created,
            "completedTime": created + HOUR if code is not None else None,
            "appExitCode": code,
            "virtualCluster": "default",
            "totalGpuNumber": 1,
            "totalTaskNumber": 1,
            "totalTaskRoleNumber": 1,
        }

    def detail(self, job: dict) -> dict:
        task = {
            "taskIndex": 0,
            "taskState": job["state"],
            "containerId": "container_e01_0001_01_000002",
            "containerIp": "10.0.0.1",
            "containerPorts": {"ssh": "25001", "http": "25002"},
            "containerGpus": 1,
            "containerLog": f"http://127.0.0.1:{self.port}/yarn/node/containerlogs/container_e01/alice/",
            "containerExitCode": job["appExitCode"],
        }
        return {
            "name": job["name"],
            "jobStatus": {**job, "appId": "application_1_1", "appExitType": None},
            "taskRoles": {"main": {"taskRoleStatus": {"name": "main"}, "taskStatuses": [task]}},
        }

    def respond(self, r: Request, path: str) -> bytes:
        if path.startswith("/yarn/"):
            lines = b"" if "stderr" in path else b"epoch 1 &lt; 2\nepoch 2\n"
            if int(r.query.get("start", 0)):
                lines = b""
            return reply(
                b"<html><body><pre>" + lines + b"</pre></body></html>", 200, "Content-Type: text/html"
            )
        if path == "/api/v1":
            return reply(b"<pre>PAI RESTful API</pre>", 200, "Content-Type: text/html")
        if path == "/api/v1/token" and r.method == "POST":
            return self.login(r)
        if path == f"/api/v1/user/{USER}":
            if not self.is_authenticated(r):
                return error_reply("UnauthorizedUserError", "Your token is invalid.", 401)
            return reply({"username": USER, "admin": False, "virtualCluster": "default,vc1"})
        if path == "/api/v1/virtual-clusters":
            vc = {
                "capacity": 100,
                "maxCapacity": 100,
                "usedCapacity": 25,
                "numJobs": 1,
                "resourcesUsed": {"memory": 1024, "vCores": 2, "GPUs": 1},
                "resourcesTotal": {"memory": 8192, "vCores": 8, "GPUs": 4},
                "status": "RUNNING",
            }
            return reply({"default": vc, "vc1": {**vc, "resourcesUsed": {}}})
        if path in ("/api/v1/jobs", f"/api/v1/user/{USER}/jobs") and r.method == "GET":
            return reply(self.list)
        if path == f"/api/v1/user/{USER}/jobs" and r.method == "POST":
            if not self.is_authenticated(r):
                return error_reply("UnauthorizedUserError", "Guest is not allowed to do this operation.", 401)
            self.submitted.append((path, r.body))
            return reply({"message": "update job x successfully"}, 202)
        if path == "/api/v2/jobs" and r.method == "POST":
            if not self.is_authenticated(r):
                return error_reply("UnauthorizedUserError", "Guest is not allowed to do this operation.", 401)
            self.submitted.append((path, r.body))
            return reply({"status": 202, "message": "update job x successfully"}, 202)
        return self.one_job(r, path)

    def one_job(self, r: Request, path: str) -> bytes:
        head, _, rest = path.removeprefix(f"/api/v1/user/{USER}/jobs/").partition("/")
        job = next((j for j in self.list if j["name"] == head), None)
        if not path.startswith(f"/api/v1/user/{USER}/jobs/"):
            return error_reply("NoApiError", f"API {path} is not found.", 404)
        if job is None:
            return error_reply("NoJobError", f"Job {head} is not found.", 404)
        if not rest and r.method == "DELETE":
            self.list.remove(job)
            return reply({"message": f"deleted job {head} successfully"}, 202)
        if not rest:
            return reply(self.detail(job))
        if rest == "config":
            return reply({"jobName": head, "image": "img", "taskRoles": [{"name": "main", "command": "x"}]})
        if rest == "ssh":
            return reply(
                {
                    "containers": [{"id": "c1", "sshIp": "10.0.0.1", "sshPort": "25001"}],
                    "keyPair": {
                        "privateKeyFileName": f"{USER}~{head}",
                        "privateKeyDirectDownloadLink": "http://10.0.0.9/key?op=OPEN",
                    },
                }
            )
        if rest == "executionType" and self.is_authenticated(r):
            self.stopped.append(head)
            return reply({"message": f"execute job {head} successfully"}, 202)
        return error_reply("NoApiError", f"API {path} is not found.", 404)


class V18(_Server):
    """1.8 on Kubernetes: version 2 of the API, reads need a token, logs are served by the log manager."""

    LOG = b"epoch 1\nepoch 2\n"

    def respond(self, r: Request, path: str) -> bytes:
        if path == "/api/v2/info":
            return reply(
                {
                    "name": "PAI RESTful API",
                    "version": "v1.8.1",
                    "launcherType": "k8s",
                    "authnMethod": "basic",
                }
            )
        if path == "/api/v2/authn/basic/login":
            return self.login(r)
        if path.startswith("/log-manager/"):
            start = int(r.headers.get("range", "bytes=0-").removeprefix("bytes=").removesuffix("-"))
            return reply(self.LOG[start:], 206) if start < len(self.LOG) else reply(b"", 416)
        if not self.is_authenticated(r):
            message = (
                "Your token is invalid." if "authorization" in r.headers else "Guest is not allowed to do"
            )
            return error_reply("UnauthorizedUserError", message, 401)
        if path == "/api/v2/virtual-clusters":
            used, total = (
                {"cpu": c, "memory": m, "gpu": g, "vCores": c, "GPUs": g}
                for c, m, g in ((2, 1024, 1), (8, 8192, 4))
            )
            vc = {"capacity": 100, "maxCapacity": 100, "usedCapacity": 25, "dedicated": False}
            return reply({"default": {**vc, "resourcesUsed": used, "resourcesTotal": total}})
        if path == "/api/v2/storages":
            storage = {"name": "team_nfs", "share": True, "volumeName": "pv", "default": True}
            return reply({"storages": [storage]})
        if path == "/api/v2/jobs" and r.method == "GET":
            return self.jobs(r)
        if path == "/api/v2/jobs":
            self.submitted.append((path, r.body))
            return reply({"status": 202, "message": "Update job x for user alice successfully."}, 202)
        return self.one_job(r, path)

    def jobs(self, r: Request) -> bytes:
        now = int(time.time() * 1000)
        found = [
            {
                "debugId": "d",
                "name": name,
                "username": USER,
                "state": state,
                "submissionTime": now - ago,
                "launchedTime": now - ago,
                "completedTime": None,
                "virtualCluster": "default",
                "totalTaskNumber": 1,
                "totalGpuNumber": 0,
                "tags": [],
            }
            for name, state, ago in (("new_one", "RUNNING", HOUR // 2), ("old_one", "SUCCEEDED", 5 * HOUR))
            if r.query.get("state") in (None, state) and r.query.get("keyword", "") in name
        ]
        if r.query.get("withTotalCount") == "true":
            return reply({"totalCount": len(found), "data": found[: int(r.query["limit"])]})
        offset = int(r.query.get("offset", 0))
        return reply(found[offset : offset + int(r.query.get("limit", 5000))])

    def one_job(self, r: Request, path: str) -> bytes:
        name, _, rest = path.removeprefix("/api/v2/jobs/").partition("/")
        if not path.startswith("/api/v2/jobs/") or rest == "follow" or (r.method == "DELETE" and not rest):
            return error_reply("NoApiError", f"API {path} is not found.", 404)
        if name not in (f"{USER}~new_one", f"{USER}~old_one"):
            return error_reply("NoJobError", f"Job {name} is not found.", 404)
        if rest == "executionType":
            self.stopped.append(name)
            return reply({"status": 202, "message": f"Execute job {name} successfully."}, 202)
        if rest == "tag":
            value = json.loads(r.body)["value"]
            self.tags.append(value) if r.method == "PUT" else self.tags.remove(value)
            return reply({"status": 200, "message": "done"})
        if rest == "ssh":
            return error_reply("NoJobSshInfoError", f"SSH info of job {name} is not found.", 404)
        if rest == "config":
            job = {
                "protocolVersion": 2,
                "name": name.partition("~")[2],
                "type": "job",
                "prerequisites": [{"name": "i", "type": "dockerimage", "uri": "img"}],
                "taskRoles": {
                    "main": {
                        "dockerImage": "i",
                        "resourcePerInstance": {"cpu": 1, "memoryMB": 1, "gpu": 0},
                        "commands": ["x"],
                    }
                },
            }
            return reply(job, 200, "Content-Type: text/yaml")
        if rest == "events":
            return reply({"totalCount": 0, "data": []})
        if rest.endswith("/logs"):
            return reply(
                {"locations": [{"name": "all", "uri": "/log-manager/10.0.0.1:9103/api/v1/logs/all"}]}
            )
        if rest:
            return error_reply("NoApiError", f"API {path} is not found.", 404)
        log = f"/api/v2/jobs/{name}/attempts/0/taskRoles/main/taskIndex/0/attempts/0/logs"
        task = {
            "taskIndex": 0,
            "taskState": "SUCCEEDED",
            "containerIp": "10.0.0.1",
            "containerPorts": {"ssh": "25001"},
            "containerLog": log,
            "containerExitCode": 0,
            "attemptId": 0,
        }
        status = {"username": USER, "state": "SUCCEEDED", "attemptId": 0, "appExitCode": 0, "retries": 0}
        return reply(
            {
                "name": name.partition("~")[2],
                "tags": self.tags,
                "jobStatus": {**status, "virtualCluster": "default"},
                "taskRoles": {"main": {"taskRoleStatus": {"name": "main"}, "taskStatuses": [task]}},
            }
        )
