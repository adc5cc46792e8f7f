"""Every option of the commands that submit jobs, and every key of short job files, has its effect.

One table (`support.option_table`), one cluster: all submissions are made, then the cluster is looked at.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from openpaisdk.cli.parser import get_parser
from openpaisdk.jobs.short_job_file import _RESOURCES, SHORT_JOB
from openpaisdk.paddlecloud.submit import SUBMIT as PADDLE_SUBMIT
from support import option_table
from support.cli_user import BIN, CliUser, CommandResult
from support.notebooks import cell, write_notebook
from support.option_table import BEHAVIOUR, Row, Seen, filled, words_of
from support.ports import free_port
from support.prepared_database import prepare_database
from support.server_fixture import Cluster, eventually, job, role

pytestmark = pytest.mark.slow

TABLES = {
    "sub": option_table.SUB,
    "submit": option_table.SUBMIT,
    "resubmit": option_table.RESUBMIT,
    "notebook-job": option_table.NOTEBOOK,
    "paddlecloud": option_table.PADDLE,
}
SHORT = tuple(row for row in option_table.JOB_OPTIONS if row.key)
# Other names of the same keys, and a command, in one file.
SYNONYMS = {
    "job-name": lambda s: s.reports,
    "virtual-cluster": lambda s: s.end["virtualCluster"] == "other",
    "pip-installs": lambda s: "pip called with install of-test" in s.log,
    "src": lambda s: "one.txt" in s.files and "two.txt" not in s.files,
    "command": lambda s: [one["words"] for one in s.reports] == [["a-word"]],
}
OPTIONS = [(command, row) for command, table in TABLES.items() for row in table]


class Run:
    """All submissions on one cluster."""

    def __init__(self, folder: Path):
        self.reports, self.tools, self.go = folder / "reports", folder / "tools", folder / "go"
        for made in (self.reports, self.tools):
            made.mkdir()
        self.user = CliUser(folder / "user")
        self.results: dict[str, CommandResult] = {}
        self.extra: dict[str, dict[str, Any]] = {}
        self.report = self.tools / "report.py"
        self.report.write_text(option_table.REPORT.format(reports=self.reports))
        self._write_tools()
        self._write_project()
        home = folder / "cluster"
        prepare_database(home)
        lines = [
            word
            for line in ("sub", "submit", "short", "resubmit", "notebookjob")
            for word in ("--virtual-cluster", f"line{line}=0,1,4096")
        ]
        room = ("--cpus", "256", "--memory-mb", "262144", "--gpus", "32", *lines)
        other = ("--virtual-cluster", "other=0,8,8192")
        # Without podman and docker: a job says which image it does not run in.
        self.cluster = Cluster(home, ("--embedded", *room, *other), variables={"PATH": str(self.programs)})

    def _write_tools(self) -> None:
        programs = {
            "chosen-python": f'CHOSEN_OF_TEST=1 exec {BIN}/python "$@"',
            "chosen-pip": 'echo "pip called with $*"',
            "paddle": 'echo "paddle train was called with $*"',
            "browser": 'echo "$1" >> "$OPENED"',
        }
        for name, line in programs.items():
            (self.tools / name).write_text(f"#!/bin/sh\n{line}\n")
            (self.tools / name).chmod(0o755)
        self.programs = self.tools / "programs"
        self.programs.mkdir()
        for program in (*Path("/usr/bin").iterdir(), *Path("/bin").iterdir()):
            if program.name not in ("podman", "docker") and not (self.programs / program.name).exists():
                (self.programs / program.name).symlink_to(program)

    def _write_project(self) -> None:
        self.user.write(one__txt="1", two__txt="2", rows__csv="size,kind\n7,a\n8,b\n")
        source = f"exec(open({str(self.report)!r}).read())"
        write_notebook(self.user.project / "a.ipynb", cell("lr = 1", "parameters"), source)
        line = f"python {self.report}"
        deployments = [
            {"name": name, "taskRoles": {"main": {"preCommands": [f"export DEPLOYED={name}"]}}}
            for name in ("a", "b")
        ]
        self.full = job("submit_main", line, cpu=2, memory_mb=256)
        roles = {"main": role(line, memory_mb=256), "worker": role(line, memory_mb=256)}
        two = {**job("two"), "taskRoles": roles, "deployments": deployments, "defaults": {"deployment": "a"}}
        self.user.write(two__yaml=yaml.safe_dump(two))
        package = self.user.project / "package"
        package.mkdir()
        # By this word a program says that it may be a parameter server.
        (package / "train.py").write_text(f"# TRAINING_ROLE\n{self.report.read_text()}")
        (package / "conf.py").write_text("")

    # -- submissions -----------------------------------------------------------------------------------

    def type(self, name: str, *words: str) -> CommandResult:
        """Run a command that submits the job of this name, and look at its state at once."""
        opened = self.user.home / f"opened_{name}"
        env = {"PATH": f"{BIN}:{self.tools}:/usr/bin:/bin", "BROWSER": str(self.tools / "browser")}
        done = self.user.run(list(words), env={**env, "OPENED": str(opened), "DISPLAY": ":9"})
        assert "Traceback" not in done.err, done
        self.results[name] = done
        reply = self.cluster.get(self.cluster.path(name))
        state = reply.json()["jobStatus"]["state"] if reply.status == 200 else ""
        self.extra[name] = {"state_at_return": state, "opened": opened}
        return done

    def submit_all(self) -> None:
        cluster = self.cluster
        waits = f"until [ -e {self.go} ]; do sleep 0.05; done"
        cluster.accept(job("first", waits))
        for command in ("sub", "short", "resubmit", "notebookjob"):
            for name, line in (("blocks", waits), ("waits", "true")):
                vc = f"line{command}"
                cluster.accept(job(f"{name}_{vc}", line, defaults={"virtualCluster": vc}))
        assert self.type("base", "pai", "sub", "-a", "real", "-j", "base", "--", *self.command).status == 0
        assert self.type("two", "pai", "submit", "-a", "real", "two.yaml").status == 0
        self._submit_sweeps(waits)
        for command, table in TABLES.items():
            for group in dict.fromkeys(row.job for row in table if row.job not in ("wait", "follow")):
                self._submit(command, table, group)
        self._submit_short()
        self.go.touch()
        for command, table in TABLES.items():
            for group in dict.fromkeys(row.job for row in table if row.job in ("wait", "follow")):
                self._submit(command, table, group)

    def _submit_sweeps(self, waits: str) -> None:
        """Arrays of which the second task has failed; the first one of the other still runs."""
        line = f"{' '.join(self.command)}; test $size = 7"
        words = ("pai", "sub", "-a", "real", "--array", "size=7,8", "-j")
        assert self.type("failed", *words, "failed", "--wait", line).status == 3
        assert self.type("runs", *words, "runs", f"{line}; {waits}").status == 0

        def states() -> list[str]:
            roles = self.cluster.detail("runs")["taskRoles"]  # empty before the first attempt
            return [task["taskState"] for role in roles.values() for task in role["taskStatuses"]]

        eventually(lambda: states() == ["RUNNING", "FAILED"], "the failure of a task")

    @property
    def command(self) -> list[str]:
        return ["python", str(self.report)]

    def _submit(self, command: str, table: Iterable[Row], group: str) -> None:
        name = name_of(command, group)
        names = {"job": name, "tools": str(self.tools), "line": f"line{command.replace('-', '')}"}
        words = words_of(table, group, names)
        behaviour = [word for pair in BEHAVIOUR.get(group, {}).items() for word in ("--env", "=".join(pair))]
        if group != "main":
            words = [*(("-datacenter", "real") if command == "paddlecloud" else ("-a", "real")), *words]
        if command == "paddlecloud":
            named = [] if group == "main" else ["-jobname", name, "-m", "100Mi", "-psmemory", "100Mi"]
            entry = [] if group in ("main", "topology") else ["-entry", "python train.py"]
            alone = [] if group == "main" else ["-pservers", "0"]
            self.type(name, "paddlecloud", "submit", *words, *named, *entry, *alone, "package")
            return
        if command == "submit":
            self.user.write(**{f"{name}__yaml": json.dumps({**self.full, "name": name})})
            self.type(name, "pai", "submit", *words, f"{name}.yaml")
            return
        words += [] if "-j" in words else ["-j", name]
        if command == "sub":
            self.type(name, "pai", "sub", *words, *behaviour, "--", *self.command)
        elif command == "resubmit":
            source = {"roles": "two", "notebook": "a.ipynb", "failed": "failed", "now": "runs"}.get(
                group, "base"
            )
            fails = ["--env", "FAIL_OF_TEST=1"] if group == "updated" else []
            self.type(name, "pai", "resubmit", *words, *behaviour, *fails, source)
        else:
            waits = group in ("wait", "follow", "main", "live")
            wait = [] if waits else ["--no-wait"]
            self.type(name, "pai", "notebook-job", *words, *wait, *behaviour, "a.ipynb")

    def _submit_short(self) -> None:
        names = {"tools": str(self.tools), "line": "lineshort"}
        for group in dict.fromkeys(row.job for row in SHORT):
            name = name_of("short", group)
            data: dict[str, Any] = {"name": name, "command": " ".join(self.command)}
            data["env"] = [f"{key}={value}" for key, value in BEHAVIOUR.get(group, {}).items()]
            for row in SHORT:
                if row.job == group and row.key != "name":
                    *place, key = row.key.split(":")
                    target = data.setdefault(place[0], {}) if place else data
                    target[key] = filled(row.value, names)
            self._submit_file(name, data)
        name = name_of("short", "synonyms")
        other = {"job-name": name, "virtual-cluster": "other", "pip-installs": "of-test", "src": "one.txt"}
        self._submit_file(
            name,
            {
                "command": [f"python {self.report} a-word"],
                "pip-path": str(self.tools / "chosen-pip"),
                **other,
            },
        )

    def _submit_file(self, name: str, data: dict[str, Any]) -> None:
        self.user.write(**{f"{name}__yaml": yaml.safe_dump(data)})
        done = self.type(name, "pai", "submit", "-a", "real", f"{name}.yaml")
        assert done.status == 0, done

    # -- what is seen ----------------------------------------------------------------------------------

    def look(self) -> None:
        cluster = self.cluster
        stays = ("notebookjob_live", "paddlecloud-tolerant")
        for name in stays:
            if cluster.get(cluster.path(name)).status == 200:
                cluster.stop(name)

        unfinished = "/api/v2/jobs?state=WAITING,RUNNING,STOPPING,UNKNOWN&limit=1"
        eventually(lambda: cluster.get(unfinished).json() == [], "the end of all jobs")
        found = cluster.get("/api/v2/jobs?limit=500").json()
        self.times = {one["name"]: (one["launchedTime"], one["completedTime"]) for one in found}
        for command in ("sub", "short", "resubmit", "notebookjob"):
            name = f"{command}_main"
            self.extra[name]["warnings"] = self.user.pai("logs", "-a", "real", "--level", "warning", name).out

    def seen(self, name: str) -> Seen:
        result = self.results[name]
        exists = name in self.times
        reports = sorted(self.reports.glob(f"{name}+*"))
        opened = [path.name for path in self.user.home.glob("opened_*")]
        extra = {
            **self.extra[name],
            "opened": self.extra[name]["opened"].exists(),
            "opened_by_others": opened,
        }
        return Seen(
            name=name,
            status=result.status,
            out=result.out,
            err=result.err,
            detail=self.cluster.detail(name) if exists else {},
            reports=[json.loads(path.read_text()) for path in reports if not path.name.endswith(".part")],
            log=self.cluster.log_of(name).decode(errors="replace") if exists else "",
            storage=self.cluster.home / "storage",
            project=self.user.project,
            user=self.cluster.user,
            times=self.times,
            jobs=list(self.times),
            events=[event["message"] for event in self.cluster.events(name)] if exists else [],
            extra=extra,
        )


def name_of(command: str, group: str) -> str:
    """The job of a command; PaddleCloud's names have no underscore."""
    return f"paddlecloud-{group}" if command == "paddlecloud" else f"{command.replace('-', '')}_{group}"


@pytest.fixture(scope="module", name="run")
def run_fixture(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Run]:
    run = Run(tmp_path_factory.mktemp("options"))
    run.cluster.start()
    try:
        host, port = run.cluster.address
        entry = [
            "--pai-uri",
            f"http://{host}:{port}",
            "--user",
            run.cluster.user,
            "--token",
            run.cluster.token,
        ]
        assert run.user.pai("add-cluster", "-a", "real", *entry).status == 0
        # Without -a a command uses a cluster that does not answer.
        clusters = run.user.home / ".openpai/clusters.yaml"
        known = [{**entry, "embedded": True} for entry in yaml.safe_load(clusters.read_text())]
        nowhere = {**known[0], "cluster_alias": "nowhere", "pai_uri": f"http://127.0.0.1:{free_port()}"}
        clusters.write_text(yaml.safe_dump([*known, nowhere]))
        assert run.user.pai("select-cluster", "-g", "nowhere").status == 0
        run.submit_all()
        run.look()
        yield run
    finally:
        run.cluster.close()


@pytest.mark.parametrize(("command", "row"), OPTIONS, ids=[f"{c} {row.option}" for c, row in OPTIONS])
def test_option_has_its_effect(run: Run, command: str, row: Row) -> None:
    seen = run.seen(name_of(command, row.job))
    assert row.effect(seen), seen


@pytest.mark.parametrize("row", SHORT, ids=[row.key for row in SHORT])
def test_key_of_a_short_job_file_has_its_effect(run: Run, row: Row) -> None:
    seen = run.seen(name_of("short", row.job))
    assert row.effect(seen), seen


@pytest.mark.parametrize("key", SYNONYMS)
def test_other_name_of_a_key_has_its_effect(run: Run, key: str) -> None:
    seen = run.seen(name_of("short", "synonyms"))
    assert SYNONYMS[key](seen), seen


@pytest.mark.parametrize("command", ["sub", "submit", "resubmit", "notebook-job"])
def test_every_option_has_a_row(command: str) -> None:
    rows = {row.option for row in TABLES[command]}
    actions = get_parser(command).visible_actions
    missing = [
        action.option_strings or action.metavar or action.dest
        for action in actions
        if not rows & {*action.option_strings, str(action.metavar), action.dest}
    ]
    assert not missing, f"no effect of {missing} of pai {command} is in the table"


def test_every_option_of_paddlecloud_submit_has_a_row() -> None:
    rows = {row.option for row in TABLES["paddlecloud"]}
    missing = [flag.names for flag in PADDLE_SUBMIT.flags if not rows & {f"-{name}" for name in flag.names}]
    assert not missing


def test_every_key_of_short_job_files_has_a_row() -> None:
    rows = {row.key for row in SHORT} | SYNONYMS.keys()
    keys = {
        *(key for key in SHORT_JOB.fields if key != "resources"),
        *(f"resources:{k}" for k in _RESOURCES.fields),
    }
    assert keys <= rows, keys - rows
