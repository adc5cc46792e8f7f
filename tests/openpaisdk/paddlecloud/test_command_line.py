"""The command line: forms of options, help, errors and exit statuses. Nothing here needs a cluster."""

import json
import re

import pytest

from openpaisdk.paddlecloud.commands import ALIASES, COLLECTIONS, ENTRY_POINTS, command_of
from support.http_peer import Peer, reply
from support.paths import TESTS

DESIGN = ["-p", "4", "-c", "2", "-m", "10Gi", "-t", "modules/train.py"]


@pytest.fixture(name="jobs_peer")
def jobs_peer_fixture(paddle_user):
    """A server that accepts every job, and a user of it."""

    def respond(request):
        if request.path == "/api-token-auth/":
            return reply({"token": "abc"})
        if request.path.startswith("/api/v1/jobs"):
            name = json.loads(request.body)["name"] + "-x63f" if request.method == "POST" else ""
            return reply({"code": 200, "msg": "" if request.path.endswith("/") else "OK", "name": name})
        return reply({"code": 404, "msg": "no"}, 404)

    peer = Peer(respond)
    paddle_user.configure(f"dc1: {{username: u1, password: p, endpoint: '{peer.uri}'}}")
    yield peer
    peer.close()


def submitted(peer) -> dict:
    return json.loads(next(r.body for r in peer.requests if r.path.startswith("/api/v1/jobs")))


PACKAGE = "/pfs/dc1/home/u1/job_word_emb"


@pytest.mark.parametrize(
    "words",
    [
        [PACKAGE, *DESIGN],
        [*DESIGN, PACKAGE],
        ["-parallelism", "4", "-cpu=2", PACKAGE, "--memory", "10Gi", "--topology=modules/train.py"],
        ["--p=4", "--c", "2", "-m=10Gi", "-t", "modules/train.py", "--", PACKAGE],
    ],
)
def test_options_with_one_dash_or_two_before_or_after_the_package(paddle_user, jobs_peer, words) -> None:
    done = paddle_user.paddlecloud("submit", *words)
    assert done.status == 0, done
    job = submitted(jobs_peer)
    assert job == {
        "name": "paddle-job",
        "job_package": PACKAGE,
        "parallelism": 4,
        "cpu": 2,
        "gpu": 0,
        "memory": "10Gi",
        "pservers": 4,
        "pscpu": 1,
        "psmemory": "1Gi",
        "entry": "paddle train",
        "topology": "modules/train.py",
        "datacenter": "dc1",
        "passes": 1,
        "image": "",
        "registry": "",
        "faulttolerant": False,
        "maxInstance": 1,
        "minInstance": 1,
    }
    assert "paddle-job-x63f" in done.err


def test_defaults_of_submit(paddle_user, jobs_peer) -> None:
    assert paddle_user.paddlecloud("submit", PACKAGE).status == 0
    job = submitted(jobs_peer)
    of_trainers = [job[key] for key in ("parallelism", "cpu", "gpu", "memory")]
    assert of_trainers == [1, 1, 0, "1Gi"]
    assert [job[key] for key in ("pservers", "pscpu", "psmemory")] == [1, 1, "1Gi"]
    assert (job["entry"], job["topology"]) == ("paddle train", "")


def test_every_option_of_submit_is_sent(paddle_user, jobs_peer) -> None:
    line = (
        "-jobname word-emb -parallelism 3 -cpu 2 -gpu 1 -memory 2Gi -pservers 0 -pscpu 4 -psmemory 512Mi "
        "-topology t.py -passes 5 -image i:1 -registry hub -faulttolerant -min_instance 2 -max_instance 9"
    )
    done = paddle_user.paddlecloud("submit", *line.split(), "-entry", "python train.py", PACKAGE)
    assert done.status == 0, done
    assert submitted(jobs_peer) == {
        "name": "word-emb",
        "jobPackage": PACKAGE,
        "parallelism": 3,
        "cpu": 2,
        "gpu": 1,
        "memory": "2Gi",
        "pservers": 0,
        "pscpu": 4,
        "psmemory": "512Mi",
        "entry": "python train.py",
        "topology": "t.py",
        "datacenter": "dc1",
        "passes": 5,
        "image": "i:1",
        "registry": "hub",
        "faulttolerant": True,
        "maxInstance": 9,
        "minInstance": 2,
    }


@pytest.mark.parametrize("memory", ["1Ei", "2Pi", "3Ti", "4Gi", "5Mi", "6Ki", "1073741824"])
def test_memory_has_the_suffixes_of_the_design_document(paddle_user, jobs_peer, memory: str) -> None:
    assert paddle_user.paddlecloud("submit", "-memory", memory, PACKAGE).status == 0
    assert submitted(jobs_peer)["memory"] == memory


def test_requests_are_in_paddleclouds_form(paddle_user, jobs_peer) -> None:
    assert paddle_user.paddlecloud("submit", PACKAGE, "-e", "true", "-g", "1").status == 0
    login, job = jobs_peer.requests
    assert (login.method, login.target) == ("POST", "/api-token-auth/")
    assert json.loads(login.body) == {"password": "p", "username": "u1"}
    assert (job.method, job.target) == ("POST", "/api/v1/jobs")
    assert job.headers["authorization"] == "Token abc"
    assert job.headers["content-type"] == "application/json"
    assert paddle_user.paddlecloud("kill", "-rm", "j").status == 0
    assert paddle_user.paddlecloud("kill", "j").status == 0
    kept, removed = jobs_peer.requests[-1], jobs_peer.requests[-2]
    assert [(r.method, r.target) for r in (kept, removed)] == [("DELETE", "/api/v1/jobs")] * 2
    assert json.loads(removed.body) == {"jobname": "j", "rm": True}
    assert json.loads(kept.body) == {"jobname": "j"}
    assert len(jobs_peer.requests) == 4, "the token was fetched once"


def test_named_job_is_posted_with_a_slash_so_that_it_keeps_its_name(paddle_user, jobs_peer) -> None:
    assert paddle_user.paddlecloud("submit", "-jobname", "mine", PACKAGE).status == 0
    assert jobs_peer.requests[-1].target == "/api/v1/jobs/"


@pytest.mark.parametrize("name", [*ENTRY_POINTS, *ALIASES])
def test_every_command_has_help_with_its_options(paddle_user, name: str) -> None:
    done = paddle_user.paddlecloud(*name.split(), "--help")
    command = command_of(ALIASES.get(name, name))
    assert done.status == 0, done
    assert done.out == command.help_text()
    assert paddle_user.paddlecloud("help", *name.split()).out == done.out


def test_help_lists_all_commands(paddle_user) -> None:
    for words in ((), ("--help",), ("-h",), ("help",), ("commands",), ("flags",)):
        done = paddle_user.paddlecloud(*words)
        assert done.status == 0
        assert all(f"  {name} " in done.out for name in ENTRY_POINTS), done


@pytest.mark.parametrize("collection", COLLECTIONS)
def test_collection_alone_lists_its_commands(paddle_user, collection: str) -> None:
    done = paddle_user.paddlecloud(collection)
    assert done.status == 0
    assert re.findall(r"^  (\w+) ", done.out, re.MULTILINE) == [collection] * sum(
        name.startswith(collection + " ") for name in ENTRY_POINTS
    )


def test_version(paddle_user) -> None:
    done = paddle_user.paddlecloud("--version")
    assert re.fullmatch(r"paddlecloud \d+\.\d+\S*\n", done.out)


def test_logging_options_of_the_go_client_are_accepted(paddle_user, jobs_peer) -> None:
    words = ["-v", "3", "-logtostderr", "--alsologtostderr", "-log_dir=/tmp", "-stderrthreshold", "ERROR"]
    more = ["-vmodule", "a=1", "-log_backtrace_at", "f:1"]
    assert paddle_user.paddlecloud(*words, *more, "kill", "j").status == 0


def test_datacenter_may_be_chosen_before_or_after_the_command(paddle_user, jobs_peer) -> None:
    for words in (("-datacenter", "dc1", "kill", "j"), ("kill", "--datacenter=dc1", "j")):
        assert paddle_user.paddlecloud(*words).status == 0
    done = paddle_user.paddlecloud("--datacenter", "dc9", "kill", "j")
    assert done.status == 2
    assert "has no datacenter 'dc9'; it has dc1" in done.err


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["submit", "-m", "1.5Q", "x"], "'1.5Q' is no amount of memory"),
        (["submit", "-memory", "1.5Gi", "x"], "'1.5Gi' is no amount of memory"),
        (["submit", "-psmemory", "0", "x"], "'0' is no amount of memory"),
        (["submit", "-memory=", "x"], "'' is no amount of memory"),
        (["submit", "-p", "-3", "x"], "'-3' is not a whole number of at least 1"),
        (["submit", "-p", "two", "x"], "'two' is not a whole number"),
        (["submit", "-pservers", "-1", "x"], "'-1' is not a whole number of at least 0"),
        (["submit", "-jobname", "a.b", "x"], "cannot contain '.' or '_'"),
        (["submit", "-jobname", "a_b", "x"], "cannot contain '.' or '_'"),
        (["submit", "-jobname", "", "x"], "cannot be a job name"),
        (["submit", "-jobname", "-a", "x"], "cannot be a job name"),
        (["submit", "-jobname", "a" * 51, "x"], "cannot be a job name"),
        (["submit", "missing"], "The package missing does not exist."),
        (["submit"], "arguments are missing: <package path>"),
        (["submit", "a", "b"], "unexpected argument 'b'"),
        (["submit", "-p"], "-p needs a value: -p N"),
        (["submit", "-pservres", "3", "x"], "has no option -pservres. Did you mean -pservers?"),
        (["submit", "-faulttolerant=perhaps", "x"], "-faulttolerant is either true or false"),
        (["submit", "-faulttolerant", "-t", "train.py", "x"], "-faulttolerant needs -entry"),
        (["submit", "/pfs/dc1/home"], "names no user"),
        (["submit", "/pfs/dc1/home/u/../v"], "contains '..'"),
        (["get"], "arguments are missing"),
        (["get", "pods"], "there is no resource 'pods'; there are jobs, workers, quota, registry"),
        (["get", "jobs", "x"], "unexpected argument 'x'"),
        (["kill"], "arguments are missing: <job name>"),
        (["logs", "-n", "0", "j"], "'0' is not a whole number of at least 1"),
        (["pfs", "move"], "There is no command 'pfs move'"),
        (["kil"], "There is no command 'kil'. Did you mean paddlecloud kill?"),
        (["-x"], "There is no command '-x'"),
        (["pfs", "ls"], "arguments are missing: <path>.\n"),
        (["pfs", "ls", "relative"], "'relative' is not a path in the cloud."),
        (["pfs", "ls", "/pfs/dc1/tmp/x"], "is not a path in the cloud."),
        (["pfs", "rm", "/pfs/dc1/home/u/../../v"], "contains '..'"),
        (["pfs", "mkdir", "/pfs/dc1/home/u/a", "/pfs/dc2/home/u/b"], "several datacenters: dc1, dc2"),
        (["pfs", "cp", "a", "b"], "Either all sources or the destination must be in the cloud."),
        (["pfs", "cp", "/pfs/dc1/home/u/a", "/pfs/dc1/home/u/b"], "from the cloud to the cloud"),
        (["pfs", "cp", "-chunksize", "2", "a", "b"], "'2' is not a whole number of at least 4"),
        (["pfs", "cp", "-chunksize", "40000", "a", "b"], "at most 32768 kB"),
        (["pfs", "cp", "missing", "/pfs/dc1/home/u/a"], "missing: no such file or folder."),
        (["registry", "-name", "hub"], "missing are username, password, server"),
        (["delete", "registry"], "arguments are missing: <name>"),
        (["pfs", "ls", "/pfs/dc9/home/u"], "There is no datacenter 'dc9'"),
    ],
)
def test_mistakes_are_one_sentence_and_status_2(paddle_user, words: list[str], sentence: str) -> None:
    done = paddle_user.paddlecloud(*words)
    assert done.status == 2, done
    assert sentence in done.err
    assert done.out == ""
    assert "Traceback" not in done.err


def test_package_must_be_a_folder_with_files(paddle_user) -> None:
    paddle_user.write(train__py="")
    done = paddle_user.paddlecloud("submit", "train.py")
    assert (done.status, "is not a folder" in done.err) == (2, True)
    (paddle_user.project / "empty").mkdir()
    done = paddle_user.paddlecloud("submit", "empty")
    assert done.status == 2
    assert done.out == "Collecting package ... Failed\n"
    assert "contains no files" in done.err


TRIED = "\n".join(path.read_text() for path in (TESTS / "openpaisdk/paddlecloud").glob("test_*.py"))


@pytest.mark.parametrize("name", list(ENTRY_POINTS))
def test_every_option_is_used_in_a_test(name: str) -> None:
    missing = [
        flag.shown
        for flag in command_of(name).flags
        if not any(re.search(rf"[\"' ]--?{option}[\"'= ]", TRIED) for option in flag.names)
    ]
    assert not missing


def test_debug_prints_requests(paddle_user, jobs_peer) -> None:
    for words in (["--debug", "kill", "j"], ["kill", "-debug", "j"]):
        assert "DELETE /api/v1/jobs: 200" in paddle_user.paddlecloud(*words).err


def test_least_number_of_trainers_is_not_above_the_greatest(paddle_user) -> None:
    (paddle_user.project / "pkg").mkdir()
    words = ["submit", "-faulttolerant", "-min_instance", "3", "-max_instance", "2", "pkg"]
    done = paddle_user.paddlecloud(*words)
    assert (done.status, done.err) == (
        2,
        "paddlecloud: submit: -min_instance is greater than -max_instance.\n"
        "             paddlecloud submit --help shows the usage.\n",
    )
