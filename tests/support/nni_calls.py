"""Requests of NNI 2.10.1, the last version that trains on OpenPAI, as its manager sends them.

No package of it is needed. Job, addresses and headers are those of its training service `openpai`; the
command of a runner stands for NNI's own, which gets its orders in files of the shared storage, too.
"""

from __future__ import annotations

import json
from pathlib import Path

import yaml

from support.server_fixture import Reply
from support.team_cluster import TeamCluster

# What NNI makes of the state of a job; any other one is an error for it.
STATES = {
    "RUNNING": "RUNNING",
    "WAITING": "WAITING",
    "SUCCEEDED": "SUCCEEDED",
    "FAILED": "FAILED",
    "STOPPED": "USER_CANCELED",
    "STOPPING": "USER_CANCELED",
}
# Reads the orders of the manager, and reports as trials do.
_RUNNER = """
mkdir -p commands
echo started >> commands/runner_commands.txt
until [ -s commands/manager_commands.txt ]; do sleep 0.1; done
rate=$(cat commands/manager_commands.txt)
echo "metric $rate" >> commands/runner_commands.txt
"""


class NniManager:
    """The part of NNI's manager that talks to the cluster and to the folder it shares with trials."""

    def __init__(self, cluster: TeamCluster, storage: str, local: Path, container: Path):
        self.cluster = cluster
        self.experiment = "kq31vzno"
        self.storage = storage
        self.container = container / self.experiment
        self.local = local / self.experiment

    def start(self, environment: str, command: str = "sh ../runner.sh") -> Reply:
        """Submit the job of an environment, in which trials run."""
        folder = self.local / "envs" / environment
        folder.mkdir(parents=True)
        (self.local / "envs/runner.sh").write_text(_RUNNER)
        inside = self.container / "envs" / environment
        output = f"1>{inside}/trialrunner_stdout 2>{inside}/trialrunner_stderr"
        run = f"mkdir -p {inside} && cd {inside} && {command} {output}"
        job = {
            "protocolVersion": 2,
            "name": self.job_name(environment),
            "type": "job",
            "jobRetryCount": 0,
            "prerequisites": [{"type": "dockerimage", "uri": "msranni/nni:latest", "name": "docker_image_0"}],
            "taskRoles": {
                "taskrole": {
                    "instances": 1,
                    "completion": {"minFailedInstances": 1, "minSucceededInstances": -1},
                    "taskRetryCount": 0,
                    "dockerImage": "docker_image_0",
                    "resourcePerInstance": {"gpu": 0, "cpu": 1, "memoryMB": 64},
                    "commands": [f"cd {self.container} && {run}"],
                }
            },
            "extras": {"storages": [{"name": self.storage}], "submitFrom": "submit-job-v2"},
            "defaults": {"virtualCluster": "default"},
        }
        return self.cluster.ask(
            "POST",
            "/rest-server/api/v2/jobs",
            yaml.safe_dump(job).encode(),
            headers={"Content-Type": "text/yaml"},
        )

    def job_name(self, environment: str) -> str:
        return f"nni_exp_{self.experiment}_env_{environment}"

    def state(self, environment: str) -> str:
        """As the manager finds it in the list of the user's jobs, which it reads every five seconds."""
        headers = {"Content-Type": "application/json"}
        listed = self.cluster.ask("GET", "/rest-server/api/v2/jobs?username=alice", headers=headers)
        assert listed.status == 200 and isinstance(listed.json(), list)
        by_name = {one["name"]: one for one in listed.json()}
        return STATES[by_name[self.job_name(environment)]["state"]]

    def stop(self, environment: str) -> Reply:
        path = f"/rest-server/api/v2/jobs/alice~{self.job_name(environment)}/executionType"
        body = json.dumps({"value": "STOP"}).encode()
        return self.cluster.ask("PUT", path, body, headers={"Content-Type": "application/json"})

    def order(self, environment: str, text: str) -> None:
        """Write an order for the runner of an environment."""
        (self.local / "envs" / environment / "commands/manager_commands.txt").write_text(text)

    def reports(self, environment: str) -> list[str]:
        """What the runner of an environment has reported."""
        file = self.local / "envs" / environment / "commands/runner_commands.txt"
        return file.read_text().splitlines() if file.exists() else []
