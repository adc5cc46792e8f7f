"""Every option of ``pai sub``: its place in the job, and its effect."""

import json
import re
import shlex
import signal
import sys
from pathlib import Path

import pytest
import yaml

from support.cli_user import until

NASTY = 'it\'s "a" $HOME `x` \\ <tag> & ü'


def preview(user, *words: str) -> dict:
    done = user.pai("sub", "--preview", *words)
    assert done.status == 0, done
    return yaml.safe_load(done.out)


def run(user, *words: str):
    return user.pai("sub", "--no-sources", "--mem", "32m", *words)


def test_every_option_is_in_the_job(user) -> None:
    line = (
        "-j all_$ -i img --cpu 3 --gpu 1 --mem 2g --ports http=2 --no-sources -w /me/space --env A=1 "
        "--secret S=s --pip numpy --pip-installs 'torch>2' --python /opt/env/bin/python --instances 2 "
        "--timeout 1d --retry 4 --priority prod --after first --after second:end --outputs model "
        "--tag one --tag two --debug-hold 5m --vc default --no-browser python train.py"
    )
    job = preview(user, *shlex.split(line))
    assert re.fullmatch(r"all_\w{8}", job["name"])
    role = job["taskRoles"]["main"]
    assert role["instances"] == 2 and role["commands"] == ["python train.py"]
    assert role["resourcePerInstance"] == {"cpu": 3, "gpu": 1, "memoryMB": 2048, "ports": {"http": 2}}
    assert job["prerequisites"][0]["uri"] == "img" and job["jobRetryCount"] == 4
    assert job["parameters"] == {"work_directory": f"/me/space/jobs/{job['name']}"}
    assert job["secrets"] == "******"
    assert job["defaults"] == {"virtualCluster": "default", "deployment": "sdk_deployment"}
    extras = job["extras"]
    assert extras["tags"] == ["one", "two"]
    assert extras["hivedScheduler"] == {"jobPriorityClass": "prod"}
    ours = extras["openpaisdk"]
    assert ours["after"] == [{"job": "first"}, {"job": "second", "on": "end"}]
    assert ours["timeLimit"] == 86400 and ours["outputs"] == ["model"] and "sources" not in ours
    before = job["deployments"][0]["taskRoles"]["main"]["preCommands"]
    assert "held for 300 seconds" in before[0] and before[1] == "export A=1" and "$secrets.S" in before[2]
    assert "command -v /opt/env/bin/python " in before[3]
    # With our runtime a cached environment, otherwise pip.
    assert "pai-runtime packages --python /opt/env/bin/python numpy 'torch>2'" in before[4]
    assert "/opt/env/bin/python -m pip install numpy 'torch>2'" in before[4]


def test_memory_without_unit_is_rejected_with_both_readings(user) -> None:
    for words in (["sub", "--mem", "4", "true"], ["set", "mem=4"]):
        done = user.pai(*words)
        assert done.status == 2 and "may mean 4 MB or 4 GB" in done.err, done
        assert "Write 4m for megabytes or 4g for gigabytes" in done.err
    role = preview(user, "--no-sources", "--memoryMB", "4", "true")["taskRoles"]["main"]
    assert role["resourcePerInstance"]["memoryMB"] == 4


def test_port_label_may_have_a_hyphen(user) -> None:
    done = run(user, "--ports", "tensor-board=2", "-f", "echo $PAI_CONTAINER_HOST_tensor_board_PORT_LIST")
    assert done.status == 0 and re.fullmatch(r"\d+,\d+\n", done.out), done
    assert "--ports tensor-board: the job reads $PAI_CONTAINER_HOST_tensor_board_PORT_LIST" in done.err


def test_port_number_offers_the_right_request(user) -> None:
    done = run(user, "--ports", "http=8080", "true")
    assert done.status == 2 and "how many ports" in done.err and "Write http=1:" in done.err, done


def test_job_without_options_has_no_deployment(user) -> None:
    job = preview(user, "--no-sources", "true")
    assert not {"deployments", "parameters", "secrets", "defaults", "jobRetryCount"} & set(job)


def test_packages_and_sdk_branch_become_pre_commands(user) -> None:
    user.pai("set", "container-sdk-branch=git+https://example.org/sdk@next", "pip-installs+=pyyaml")
    job = preview(user, "--pip", "numpy", "--pip-path", "pip3", "true")
    assert job["deployments"][0]["taskRoles"]["main"]["preCommands"] == [
        "pip3 install -U git+https://example.org/sdk@next\npip3 install numpy pyyaml"
    ]


def test_variables_and_secrets_are_exact_and_secrets_masked(user) -> None:
    secret = "hush-" + NASTY
    show = 'printf "%s|%s|%s" "$A" "$B" "$S" > got; echo "secret is $S"; cat got | wc -c'
    words = ["-j", "exact_$", "--env", f"A={NASTY}", "--env", "B", "--secret", f"S={secret}", "--wait", show]
    done = user.pai("sub", "--no-sources", "--mem", "32m", *words, env={"B": "from here"})
    name = done.out.strip()
    assert done.status == 0, done
    folder = Path(re.search(r"Its files are in (.*)", done.err)[1].replace("~", str(user.home)))
    assert (folder / "got").read_text() == f"{NASTY}|from here|{secret}"
    assert "hush-" not in user.pai("logs", name).out
    assert "hush-" not in user.pai("job-status", name, "config").out
    assert "hush-" not in user.pai("sub", "--preview", "--secret", f"S={secret}", "true").out


def test_array_runs_every_task_and_names_failed_ones(user) -> None:
    done = run(user, "-j", "sweep_$", "--array", "3%1", "--wait", "-o", "json", "exit $PAI_TASK_INDEX")
    failed = "2 of its 3 tasks failed: main[1] (exit code 1), main[2] (exit code 2)"
    assert done.status == 3 and failed in done.err, done
    assert f"The folders of its tasks: pai job-status {json.loads(done.out)['jobName']} tasks" in done.err
    assert "Its files are in" not in done.err
    job = json.loads(user.pai("job-status", json.loads(done.out)["jobName"], "-o", "json").out)
    assert len(job["taskRoles"]["main"]["taskStatuses"]) == 3


def test_array_over_values(user) -> None:
    words = ["-j", "values_$", "--array", "lr=0.1,0.01", "--array", "who='a b',it%2", "--wait"]
    check = 'echo "$lr|$who|$*"; test "$lr$who" != 0.01it'
    done = run(user, *words, "--", "sh", "-c", check, "-", "--lr={lr}", "{who}")
    assert done.status == 3 and "1 of its 4 tasks failed: main[3] (lr=0.01 who=it, exit code 1)" in done.err
    logs = [user.pai("logs", "--index", str(i), done.out.strip()).out for i in range(4)]
    assert logs == [
        "0.1|a b|--lr=0.1 a b\n",
        "0.1|it|--lr=0.1 it\n",
        "0.01|a b|--lr=0.01 a b\n",
        "0.01|it|--lr=0.01 it\n",
    ]
    status = user.pai("job-status", done.out.strip()).out
    assert re.search(r"TASK .* lr +who\n", status), status
    assert re.search(r"main\[2\] .* 0\.01 +a b\n", status), status
    detail = json.loads(user.pai("job-status", done.out.strip(), "-o", "json").out)
    tasks = json.loads(user.pai("job-status", done.out.strip(), "tasks", "-o", "json").out)
    for statuses in (detail["taskRoles"]["main"]["taskStatuses"], tasks):
        values = {status["taskIndex"]: status["arrayValues"] for status in statuses}
        assert values[2] == {"lr": "0.01", "who": "a b"} and len(values) == 4


def test_array_over_values_in_preview(user) -> None:
    job = preview(user, "--no-sources", "--array", "lr=0.1,0.01%1", "train --lr {lr} > '{lr}.log'")
    role = job["taskRoles"]["main"]
    assert role["instances"] == 2 and role["commands"] == ['train --lr "$lr" > "$lr"\'.log\'']
    assert job["extras"]["gangAllocation"] is False
    assert job["extras"]["openpaisdk"]["array"] == {"lr": ["0.1", "0.01"]}
    assert job["extras"]["openpaisdk"]["arrayLimit"] == 1
    (command,) = job["deployments"][0]["taskRoles"]["main"]["preCommands"]
    assert "0) export lr=0.1 ;;" in command and "1) export lr=0.01 ;;" in command


def test_instances_start_together(user) -> None:
    done = run(user, "--instances", "2", "-f", "echo $PAI_TASK_INDEX of $PAI_CURRENT_TASK_ROLE_TASK_COUNT")
    assert done.status == 0, done
    assert sorted(done.out.split("\n"))[-2:] == ["main[0] | 0 of 2", "main[1] | 1 of 2"], done


def test_after_delays_start(user) -> None:
    first = run(user, "-j", "first_$", "sleep 0.3; exit 1").out.strip()
    never = run(user, "--after", first, "true").out.strip()
    done = run(user, "--after", f"{first}:end", "--wait", "true")
    assert done.status == 0 and user.state(first) == "FAILED", done
    until(lambda: user.state(never) != "RUNNING")
    assert user.state(never) != "SUCCEEDED"
    user.pai("stop-job", never)


def test_timeout_stops_task_and_retry_runs_it_again(user) -> None:
    done = run(user, "--timeout", "1s", "--wait", "sleep 60")
    assert done.status == 3, done
    done = run(user, "--retry", "1", "--wait", "-o", "json", "exit 5")
    job = json.loads(user.pai("job-status", json.loads(done.out)["jobName"], "-o", "json").out)
    assert job["jobStatus"]["retries"] == 1


def test_follow_shows_attempts_that_ended_before_it_began(user) -> None:
    """A connection that comes late must still show the whole log of the new job."""
    job = json.loads(run(user, "--retry", "1", "--wait", "-o", "json", "echo attempt; exit 5").out)["jobName"]
    late = (
        "import sys; from openpaisdk import Cluster; "
        "from openpaisdk.client.follow_stream import FollowRequest, follow_stream; "
        "[sys.stdout.write(f.data.decode()) for f in follow_stream(Cluster().client, "
        f"FollowRequest({job!r}, all_attempts=%s))]"
    )
    assert user.run([sys.executable, "-c", late % "True"]).out == "attempt\nattempt\n"
    assert user.run([sys.executable, "-c", late % "False"]).out == "attempt\n"
    assert run(user, "--retry", "1", "-f", "echo attempt; exit 5").out == "attempt\nattempt\n"


def test_debug_hold_keeps_failed_task(user) -> None:
    done = run(user, "--debug-hold=1", "-f", "echo before; exit 7")
    assert done.status == 3 and "before" in done.out and "held for 1 second" in done.out, done
    assert "exit code 7" in done.err
    assert "held" not in run(user, "--debug-hold", "-f", "true").out


def test_file_ends_the_hold(user) -> None:
    job = run(user, "--debug-hold", "-j", "released_$", "exit 7").out.strip()
    until(lambda: "ends the hold" in user.pai("logs", job).out)
    assert user.pai("exec", job, "--", "sh", "-c", 'touch "$PAI_WORK_DIR/.pai/release"').status == 0
    until(lambda: user.state(job) == "FAILED")
    assert "exit code 7" in user.pai("job-status", job).out


def test_optional_values_may_be_words_of_their_own(user) -> None:
    keep = "echo kept > $PAI_OUTPUT_DIR/x; exit 7"
    done = run(user, "--fetch", "out", "--debug-hold", "1s", "-f", "--", keep)
    assert done.status == 3 and "held for 1 second" in done.out, done
    assert (user.project / "out/x").read_text() == "kept\n"
    (command,) = preview(user, "--fetch", "--no-s", "--", "echo", "out")["taskRoles"]["main"]["commands"]
    assert command == "echo out"
    done = user.pai("sub", "--debug-hold", "soon", "--", "true")
    assert done.status == 2 and "'soon' is not a duration" in done.err, done


def test_folder_of_fetch_before_a_command_without_dashes_is_named(user) -> None:
    done = user.pai("sub", "--preview", "--no-sources", "--fetch", "out", "echo", "x")
    assert "out is taken as the command" in done.err and "--fetch=out" in done.err, done
    assert "taken as" not in user.pai("sub", "--preview", "--no-sources", "--fetch", "echo", "x").err


def test_held_task_can_be_stopped_at_once(user) -> None:
    # A shell that is terminated after a failed command would otherwise hold again.
    job = run(user, "--debug-hold", "-j", "held_$", "echo begun; false || sleep 60").out.strip()
    until(lambda: "begun" in user.pai("logs", job).out)
    user.pai("stop-job", job)
    until(lambda: user.state(job) == "STOPPED")
    roles = json.loads(user.pai("job-status", job, "-o", "json").out)["taskRoles"]
    (task,) = roles["main"]["taskStatuses"]
    assert task["originUserExitCode"] == 128 + signal.SIGTERM, "it was killed when its grace was over"


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--ports", "http=8080"], "how many ports"),
        (["--env", "no-name=1"], "--env"),
        (["--env", "NOT_SET_ANYWHERE"], "there is no such variable here"),
        (["--secret", "1=hush"], "--secret ...:"),
        (["--env", "A=1", "--secret", "A=2"], "use only one of them"),
        (["--timeout", "soon"], "not a duration"),
        (["--array", "0"], "--array 0"),
        (["--array", "3", "--instances", "2"], "contradict"),
        (["--array", "lr=1,2", "--env", "lr=3"], "use only one of them"),
        (["--array", "l-r=1,2"], "cannot be the name of an environment variable"),
        (["--array", "1-10"], "--array i=1-10"),
        (["--array", "n=1-20000"], "10000 tasks at most"),
        (["--priority", "high"], "high"),
        (["--after", "x:later"], "--after x:later"),
        (["--mem", "much"], "not an amount of memory"),
        (["--no-sources", "--sources", "x"], "contradict"),
    ],
)
def test_invalid_option_is_one_line_error(user, words: list[str], says: str) -> None:
    done = user.pai("sub", *words, "true")
    assert done.status == 2 and says in done.err and "hush" not in done.err and done.out == "", done


def test_home_folder_is_not_uploaded(user) -> None:
    (user.home / "hello.py").write_text("print('hello')")
    (user.home / "private").write_text("diary")
    done = user.pai("sub", "--mem", "64m", "-f", "python hello.py; ls", cwd=user.home)
    assert done.status == 0 and "only hello.py is uploaded" in done.err, done
    assert done.out == "hello\nhello.py\n"
    done = user.pai("sub", "--mem", "64m", "-f", "ls", cwd=user.home)
    assert done.status == 0 and "nothing is uploaded" in done.err and done.out == "", done
    done = user.pai("sub", "--mem", "64m", "-f", "--src", "private", "ls", cwd=user.home)
    assert done.out == "private\n" and "home folder" not in done.err, done


def test_sub_accepts_option_prefixes(user) -> None:
    job = preview(user, "--job", "short", "--inst", "2", "--no-s", "true")
    assert job["name"] == "short" and job["taskRoles"]["main"]["instances"] == 2
