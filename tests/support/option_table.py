"""Table of options and their observed effects: what each option of a submitting command does to a job.

A row is one option as it is typed, and what must then be seen on the cluster: by the task itself (its
report), in what the cluster answers, or in what the command printed. Rows with the same ``job`` are given to
one submission. Nothing looks into the job file: an option that only arrives there has no effect.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

# What a task writes down. It runs as a script and as a cell of a notebook.
REPORT = """
import json, logging, os, sys, time
env = os.environ
name = env["PAI_JOB_NAME"].rpartition("~")[2]
place = "{reports}/" + "+".join((name, env["PAI_TASK_ROLE_NAME"], env["PAI_TASK_INDEX"]))
number = sum(name.startswith(os.path.basename(place) + "+") for name in os.listdir("{reports}"))
seen = dict(env=dict(env), files=sorted(os.listdir(".")), words=sys.argv[1:], lr=globals().get("lr"))
with open(place + ".part", "w") as f:
    json.dump(seen, f)
os.rename(place + ".part", f"{{place}}+{{number}}")
print("a line of", name, "with", env.get("SECRET_OF_TEST"), flush=True)
logging.getLogger("of.test").warning("a record")
os.makedirs(env["PAI_OUTPUT_DIR"], exist_ok=True)
open(os.path.join(env["PAI_OUTPUT_DIR"], "always.txt"), "w").write("always")
open("named.txt", "w").write("kept")
time.sleep(float(env.get("SLEEP_OF_TEST", 0)))
if env.get("FAIL_OF_TEST"):
    raise RuntimeError("on purpose")
"""


@dataclass
class Seen:
    """What can be seen of one submission."""

    name: str
    status: int
    out: str
    err: str
    detail: dict[str, Any]
    reports: list[dict[str, Any]]
    log: str
    storage: Path
    project: Path
    user: str
    # Launch and end of jobs, and what runs beside this one.
    times: dict[str, tuple[int, int]]
    jobs: list[str]
    events: list[str]
    extra: dict[str, Any] = field(default_factory=dict)

    @property
    def env(self) -> dict[str, str]:
        """Variables of the first task that reported."""
        assert self.reports, f"no task of {self.name} reported: {self}"
        variables: dict[str, str] = self.reports[0]["env"]
        return variables

    @property
    def files(self) -> list[str]:
        found: list[str] = self.reports[0]["files"]
        return found

    def number(self, name: str, role: str = "") -> int:
        """A number that tasks see about their role."""
        of_role = [one["env"] for one in self.reports if role in ("", one["env"]["PAI_TASK_ROLE_NAME"])]
        return int(of_role[0][f"PAI_CURRENT_TASK_ROLE_{name}"])

    def stored(self, *parts: str) -> str:
        """Content of a file of the storage; empty if it does not exist."""
        path = self.storage.joinpath(*parts)
        return path.read_text() if path.is_file() else ""

    @property
    def end(self) -> dict[str, Any]:
        found: dict[str, Any] = self.detail["jobStatus"]
        return found


@dataclass(frozen=True)
class Row:
    """One option (or key of a short job file): how it is given, in which job, and what it does."""

    option: str
    words: tuple[str, ...]
    effect: Callable[[Seen], object]
    job: str = "main"
    # The key of a short job file that is the same, and its value there.
    key: str = ""
    value: object = None


def tasks_of(seen: Seen) -> list[tuple[str, str]]:
    """Index and value of each task of a sweep that reported."""
    return [(one["env"]["PAI_TASK_INDEX"], one["env"]["size"]) for one in seen.reports]


def rows(*given: Row) -> tuple[Row, ...]:
    return given


def output(seen: Seen) -> Path:
    """The folder of the job's outputs on the storage, without a workspace of its own."""
    return seen.storage / "user" / seen.user / "jobs" / seen.name / "output"


SAMPLE_OF_SEED_7 = ["551", "567"]
"""What is drawn from the whole numbers up to 1000, as text in its order."""
OF_ARRAYS = ("--array", "--array-file", "--sample", "--sample-seed")

JOB_OPTIONS = rows(
    Row("--cluster-alias", ("-a", "real"), lambda s: s.name in s.jobs),
    Row("--output", ("-o", "json"), lambda s: json.loads(s.out)["jobName"] == s.name),
    Row("--job-name", ("-j", "{job}"), lambda s: s.reports, key="name", value="{job}"),
    Row("--tag", ("--tag", "night"), lambda s: s.detail["tags"] == ["night"], key="tags", value=["night"]),
    Row("--cpu", ("--cpu", "3"), lambda s: s.number("CPU_COUNT") == 3, key="resources:cpu", value=3),
    Row(
        "--gpu",
        ("--gpu", "1"),
        lambda s: s.env["CUDA_VISIBLE_DEVICES"].isdecimal(),
        key="resources:gpu",
        value=1,
    ),
    Row(
        "--memoryMB",
        ("--memoryMB", "777"),
        lambda s: s.number("MEM_MB") == 777,
        key="resources:memoryMB",
        value=777,
    ),
    Row("--instances", ("--instances", "2"), lambda s: len(s.reports) == 2, key="instances", value=2),
    Row(
        "--ports",
        ("--ports", "web=2"),
        lambda s: len(s.env["PAI_CONTAINER_HOST_web_PORT_LIST"].split(",")) == 2,
        key="resources:ports",
        value={"web": 2},
    ),
    Row(
        "--env",
        ("--env", "OF_TEST=x y"),
        lambda s: s.env["OF_TEST"] == "x y",
        key="env",
        value=["OF_TEST=x y"],
    ),
    Row(
        "--secret",
        ("--secret", "SECRET_OF_TEST=hidden-one"),
        lambda s: s.env["SECRET_OF_TEST"] == "hidden-one" and "hidden-one" not in s.log and "******" in s.log,
        key="secrets",
        value={"SECRET_OF_TEST": "hidden-one"},
    ),
    Row(
        "--python",
        ("--python", "{tools}/chosen-python"),
        lambda s: s.env["CHOSEN_OF_TEST"] == "1",
        key="python",
        value="{tools}/chosen-python",
    ),
    Row(
        "--capture-logging",
        ("--capture-logging",),
        lambda s: "of.test" in s.extra["warnings"] and "a record" in s.extra["warnings"],
        key="capture-logging",
        value=True,
    ),
    Row(
        "--sources",
        ("--sources", "one.txt"),
        lambda s: "one.txt" in s.files and "two.txt" not in s.files,
        key="sources",
        value=["one.txt"],
    ),
    Row(
        "--workspace",
        ("-w", "place"),
        lambda s: s.stored(s.user, "place/jobs", s.name, "output/main-0/always.txt") == "always",
        key="workspace",
        value="place",
    ),
    Row(
        "--outputs",
        ("--outputs", "named.txt"),
        lambda s: s.stored(s.user, "place/jobs", s.name, "output/main-0/named.txt") == "kept",
        key="outputs",
        value=["named.txt"],
    ),
    Row(
        "--after",
        ("--after", "first"),
        lambda s: s.times[s.name][0] >= s.times["first"][1] > 0,
        key="after",
        value="first",
    ),
    # One core: what waits there starts in the order of its priority.
    Row(
        "--virtual-cluster",
        ("--vc", "{line}"),
        lambda s: s.end["virtualCluster"] == s.env["PAI_VIRTUAL_CLUSTER"] != "default",
        "line",
        key="vc",
        value="{line}",
    ),
    Row(
        "--priority",
        ("--priority", "crit"),
        lambda s: s.times[s.name][0] < s.times[f"waits_{s.end['virtualCluster']}"][0],
        "line",
        key="priority",
        value="crit",
    ),
    Row("--mem", ("--mem", "778m"), lambda s: s.number("MEM_MB") == 778, "line", "resources:mem", "778m"),
    Row("--no-sources", ("--no-sources",), lambda s: "two.txt" not in s.files, "line"),
    Row(
        "--array",
        ("--array", "size=7,8"),
        lambda s: sorted(one["env"]["size"] for one in s.reports) == ["7", "8"],
        "array",
        key="array",
        value={"size": [7, 8]},
    ),
    Row(
        "--array-file",
        ("--array-file", "rows.csv"),
        lambda s: {(one["env"]["size"], one["env"]["kind"]) for one in s.reports} == {("7", "a"), ("8", "b")},
        "rows",
        key="array-file",
        value="rows.csv",
    ),
    Row(
        "--array",
        ("--array", "size=1..1000"),
        lambda s: all(1 <= int(one["env"]["size"]) <= 1000 for one in s.reports),
        "sample",
        key="array",
        value={"size": "1..1000"},
    ),
    Row(
        "--sample",
        ("--sample", "2"),
        lambda s: len({one["env"]["size"] for one in s.reports}) == 2,
        "sample",
        key="sample",
        value=2,
    ),
    Row(
        "--sample-seed",
        ("--sample-seed", "7"),
        lambda s: sorted(one["env"]["size"] for one in s.reports) == SAMPLE_OF_SEED_7,
        "sample",
        key="sample-seed",
        value=7,
    ),
    Row(
        "--image",
        ("-i", "registry.invalid/of/test:1"),
        lambda s: any("registry.invalid/of/test:1" in event for event in s.events),
        "array",
        key="image",
        value="registry.invalid/of/test:1",
    ),
    Row("--retry", ("--retry", "1"), lambda s: s.end["retries"] == 1, "fails", key="retry", value=1),
    Row(
        "--debug-hold",
        ("--debug-hold=1s",),
        lambda s: "the task is held for 1 second (" in s.log,
        "fails",
        key="debug-hold",
        value="1s",
    ),
    Row(
        "--timeout",
        ("--timeout", "1s"),
        lambda s: s.end["state"] == "FAILED" and s.times[s.name][1] - s.times[s.name][0] < 60_000,
        "long",
        key="timeout",
        value="1s",
    ),
    Row(
        "--pip-installs",
        ("--pip-installs", "of-test"),
        lambda s: "pip called with install of-test" in s.log,
        "long",
        key="pip",
        value="of-test",
    ),
    Row(
        "--pip-path",
        ("--pip-path", "{tools}/chosen-pip"),
        lambda s: "pip called with" in s.log,
        "long",
        key="pip-path",
        value="{tools}/chosen-pip",
    ),
)
# What a job does in which those rows are seen.
BEHAVIOUR = {
    "fails": {"FAIL_OF_TEST": "1"},
    "long": {"SLEEP_OF_TEST": "600"},
}
STRICT = Row(
    "--strict",
    ("--strict", "--gpu", "99"),
    lambda s: s.status == 1 and "can never start" in s.err and s.name not in s.jobs,
    "strict",
)
FOLLOW_OPTIONS = rows(
    Row("--follow", ("-f",), lambda s: f"a line of {s.name}" in s.out, "follow"),
    Row("--wait", ("--wait",), lambda s: s.extra["state_at_return"] == "SUCCEEDED", "wait"),
    Row(
        "--fetch",
        ("--fetch=got_{job}",),
        lambda s: (s.project / f"got_{s.name}/always.txt").read_text() == "always",
        "wait",
    ),
    Row("--preview", ("--preview",), lambda s: s.name in s.out and s.name not in s.jobs, "preview"),
)
NO_BROWSER = Row("--no-browser", ("--no-browser",), lambda s: not s.extra["opened"], "wait")


def words_of(table: Iterable[Row], job: str, names: dict[str, str]) -> list[str]:
    """The options of one submission, in the order of the table."""
    return [word.format(**names) for row in table if row.job == job for word in row.words]


def filled(value: object, names: dict[str, str]) -> object:
    """A value of a short job file with its names."""
    return value.format(**names) if isinstance(value, str) else value


ALIAS = Row("--cluster-alias", ("-a", "real"), lambda s: s.name in s.jobs)
SUB = (*JOB_OPTIONS, STRICT, *FOLLOW_OPTIONS, NO_BROWSER)
SUBMIT = rows(
    ALIAS,
    Row("--output", ("-o", "json"), lambda s: json.loads(s.out)["jobName"] == s.name),
    Row("--virtual-cluster", ("--vc", "{line}"), lambda s: s.end["virtualCluster"] == "linesubmit"),
    Row("--update", ("-u", "taskRoles:main:resourcePerInstance:cpu=1"), lambda s: s.number("CPU_COUNT") == 1),
    Row("FILE", (), lambda s: s.reports),
    Row(
        "--strict",
        ("--strict", "-u", "taskRoles:main:resourcePerInstance:gpu=99"),
        STRICT.effect,
        "strict",
    ),
    *FOLLOW_OPTIONS,
    NO_BROWSER,
)
RESUBMIT = (
    *(row for row in JOB_OPTIONS if row.option not in OF_ARRAYS),
    STRICT,
    *FOLLOW_OPTIONS,
    NO_BROWSER,
    Row("--update", ("-u", "jobRetryCount=1"), lambda s: s.end["retries"] == 1, "updated"),
    Row("JOB|NOTEBOOK", (), lambda s: s.reports),
    Row(
        "--role",
        ("--role", "worker", "--cpu", "2"),
        lambda s: (s.number("CPU_COUNT", "worker"), s.number("CPU_COUNT", "main")) == (2, 1),
        "roles",
    ),
    Row("--deployment", ("--deployment", "b"), lambda s: s.env["DEPLOYED"] == "b", "roles"),
    Row("--failed", ("--failed",), lambda s: tasks_of(s) == [("1", "8")], "failed"),
    Row("--now", ("--failed", "--now"), lambda s: tasks_of(s) == [("1", "8")], "now"),
    Row("--user", ("--user", "nobody"), lambda s: s.status == 1 and "nobody" in s.err, "stranger"),
    Row("--parameter", ("-p", "lr=6"), lambda s: s.reports[0]["lr"] == 6, "notebook"),
)
NOTEBOOK = (
    *JOB_OPTIONS,
    STRICT,
    *FOLLOW_OPTIONS,
    Row(
        "--no-browser",
        ("--no-browser",),
        lambda s: not s.extra["opened"] and s.extra["opened_by_others"],
        "wait",
    ),
    Row("--parameter", ("-p", "lr=5"), lambda s: s.reports[0]["lr"] == 5),
    Row("--no-wait", ("--no-wait",), lambda s: s.extra["state_at_return"] == "WAITING"),
    Row("--interactive", ("--interactive",), lambda s: "a.ipynb" in s.out, "live"),
    Row("--token", ("--token", "of-test"), lambda s: "token=of-test" in s.out, "live"),
    Row("notebook", (), lambda s: s.reports),
)
PADDLE = rows(
    Row("-jobname", ("-jobname", "{job}"), lambda s: s.reports),
    Row("-datacenter", ("-datacenter", "real"), lambda s: s.name in s.jobs),
    Row("-debug", ("-debug",), lambda s: "POST /" in s.err),
    Row("-parallelism", ("-p", "2"), lambda s: s.number("TASK_COUNT", "trainer") == 2),
    Row("-cpu", ("-c", "3"), lambda s: s.number("CPU_COUNT", "trainer") == 3),
    Row("-gpu", ("-g", "1"), lambda s: s.number("GPU_COUNT", "trainer") == 1),
    Row("-memory", ("-m", "201Mi"), lambda s: s.number("MEM_MB", "trainer") == 201),
    Row("-pservers", ("-pservers", "1"), lambda s: s.number("TASK_COUNT", "pserver") == 1),
    Row("-pscpu", ("-pscpu", "2"), lambda s: s.number("CPU_COUNT", "pserver") == 2),
    Row("-psmemory", ("-psmemory", "101Mi"), lambda s: s.number("MEM_MB", "pserver") == 101),
    Row("-entry", ("-e", "python train.py a-word"), lambda s: s.reports[0]["words"] == ["a-word"]),
    Row(
        "-image",
        ("-image", "registry.invalid/of/test:1"),
        lambda s: any("registry.invalid/of/test:1" in event for event in s.events),
    ),
    Row("-topology", ("-t", "conf.py"), lambda s: "--config=conf.py" in s.log, "topology"),
    Row("-passes", ("-passes", "3"), lambda s: "--num_passes=3" in s.log, "topology"),
    Row("-registry", ("-registry", "unknown"), lambda s: s.status == 1 and "unknown" in s.err, "registry"),
    Row("-faulttolerant", ("-faulttolerant",), lambda s: "master" in s.detail["taskRoles"], "tolerant"),
    Row("-min_instance", ("-min_instance", "2"), lambda s: "min_instance" in s.err, "tolerant"),
    Row("-max_instance", ("-max_instance", "2"), lambda s: "max_instance" in s.err, "tolerant"),
)
