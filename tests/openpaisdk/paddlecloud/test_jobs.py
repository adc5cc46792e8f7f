"""Jobs of `paddlecloud` on a real embedded cluster: nothing is configured."""

import os
import re

from support.cli_user import until

PROGRAM = """
import os, sys
print("trainer", os.environ["PADDLE_INIT_TRAINER_ID"], "of", os.environ["TRAINERS"])
os.makedirs("output", exist_ok=True)
open("output/model", "w").write("trained by " + sys.argv[1])
"""
STEPS = "Collecting package ... Done\nUploading package ... Done\nStarting kuberntes job ... Done\n"


def paddlecloud(user, *words: str, **more):
    return user.run(["paddlecloud", *words], **more)


def make_package(user, name: str, **files: str) -> None:
    folder = user.project / name
    folder.mkdir()
    for file, text in (files or {"train__py": PROGRAM}).items():
        (folder / file.replace("__", ".")).write_text(text)


def submit(user, *words: str) -> str:
    """Submit a job of trainers alone; returns its name."""
    done = paddlecloud(user, "submit", "-pservers", "0", "-memory", "64Mi", *words)
    assert (done.status, done.out) == (0, STEPS), done
    return re.fullmatch(r"(?:.*\n)*The job's name is (\S+)\.\n", done.err)[1]


def wait(user, name: str) -> None:
    assert user.pai("wait", name).status in (0, 3, 4)


def listed(user, *words: str) -> dict[str, list[str]]:
    done = paddlecloud(user, *words)
    assert done.status == 0, done
    head, *rows = (line.split() for line in done.out.splitlines())
    assert head == ["NAMESPACE", "NAME", "DESIRED", "SUCCESSFUL", "AGE"]
    return {row[1]: row for row in rows}


def home(user) -> str:
    return f"/pfs/local/home/{user.handshake()['user']}"


def test_submitted_package_runs_and_its_output_is_downloaded(user) -> None:
    make_package(user, "job_word_emb")
    name = submit(user, "./job_word_emb", "-p", "2", "-e", "python train.py us")
    assert re.fullmatch(r"paddle-job-[a-z0-9]{4}", name)
    wait(user, name)
    done = paddlecloud(user, "pfs", "cp", f"{home(user)}/job_word_emb/output", "./output")
    assert done.out == f"Downloading {home(user)}/job_word_emb/output ... Done\n"
    assert (user.project / "output/model").read_text() == "trained by us"
    row = listed(user, "get", "jobs", "-a")[name]
    assert row[2:4] == ["2", "2"] and re.fullmatch(r"\d+s", row[4])
    assert name not in listed(user, "get", "jobs")
    assert name in listed(user, "jobs", "-a") and name not in listed(user, "jobs")
    log = paddlecloud(user, "logs", name).out
    assert "trainer 0 of 2\n" in log and "trainer 1 of 2\n" in log
    workers = paddlecloud(user, "get", "workers", name).out.splitlines()
    assert workers[0].split() == ["NAME", "STATUS", "START", "EXIT_CODE", "MSG"]
    assert [line.split()[:2] for line in workers[1:]] == [
        [f"{name}-trainer-0", "Succeeded"],
        [f"{name}-trainer-1", "Succeeded"],
    ]
    one = paddlecloud(user, "logs", "-n", "100", "-w", f"{name}-trainer-1", name).out
    assert "trainer 1 of 2\n" in one and "trainer 0 of 2" not in one and "====" not in one


def test_named_job_keeps_its_name_and_its_package_lies_under_it(user) -> None:
    make_package(user, "pkg", train__py="print(open('data').read())", data="its data")
    assert submit(user, "-jobname", "named-job", "-entry", "python train.py", "pkg") == "named-job"
    wait(user, "named-job")
    assert "its data" in paddlecloud(user, "logs", "named-job").out
    files = paddlecloud(user, "pfs", "ls", f"{home(user)}/jobs/named-job").out
    assert f"{home(user)}/jobs/named-job/train.py" in files
    again = paddlecloud(user, "submit", "-pservers", "0", "-jobname", "named-job", "-e", "true", "pkg")
    assert again.status == 1
    assert "named-job" in again.err and "already" in again.err
    assert again.out == "Collecting package ... Done\n"  # nothing was uploaded
    assert "paddlecloud kill -rm named-job" in again.err


def own_packages(user, job: str) -> list[str]:
    """Folders with the package of a job as it was at its submission."""
    done = paddlecloud(user, "pfs", "ls", f"{home(user)}/job-packages")
    paths = (line.split()[-1] for line in done.out.splitlines()[1:] if line)
    return [path for path in paths if path.rpartition("/")[2].startswith(f"{job}.")]


def test_job_that_waits_runs_the_code_it_was_submitted_with(new_user) -> None:
    user = new_user
    user.start_cluster()
    make_package(user, "changing", train__py="print('the first code')")
    all_cores = str(len(os.sched_getaffinity(0)))
    assert user.pai("sub", "--no-sources", "-j", "blocker", "--cpu", all_cores, "sleep", "600").status == 0
    until(lambda: "RUNNING" in user.pai("list-jobs").out)
    words = ("changing", "-e", "python train.py")
    named, unnamed = submit(user, "-jobname", "waits", *words), submit(user, *words)
    (user.project / "changing/train.py").write_text("print('the second code')")
    refused = paddlecloud(user, "submit", "-pservers", "0", "-jobname", "waits", *words)
    assert refused.status == 1 and "paddlecloud kill -rm waits" in refused.err
    later = submit(user, *words)
    (own,) = own_packages(user, named)
    assert f"{own}/train.py" in paddlecloud(user, "pfs", "ls", own).out
    assert user.pai("stop-job", "blocker").status == 0
    for job, code in ((named, "first"), (unnamed, "first"), (later, "second")):
        wait(user, job)
        assert f"the {code} code\n" in paddlecloud(user, "logs", job).out
    # Only -rm frees the name of a job that has ended, and removes its package.
    assert paddlecloud(user, "kill", named).status == 0
    assert paddlecloud(user, "submit", "-pservers", "0", "-jobname", named, *words).status == 1
    assert paddlecloud(user, "kill", "-rm", named).status == 0
    assert own_packages(user, named) == [] and len(own_packages(user, later)) == 1
    assert submit(user, "-jobname", named, *words) == named


def test_kill_keeps_the_history_unless_it_is_removed(user) -> None:
    make_package(user, "sleeper", run__sh="sleep 600")
    name = submit(user, "sleeper", "-e", "sh run.sh")
    until(lambda: name in listed(user, "jobs"))
    assert (paddlecloud(user, "kill", name).status, paddlecloud(user, "kill", name).out) == (0, "")
    wait(user, name)
    until(lambda: name not in listed(user, "jobs"))
    assert name in listed(user, "get", "jobs", "-a")
    assert paddlecloud(user, "kill", "-rm", name).status == 0
    assert name not in listed(user, "get", "-a", "jobs")
    done = paddlecloud(user, "kill", name)
    assert (done.status, f"There is no job {name}" in done.err) == (1, True)


def test_logs_without_a_name_are_those_of_the_newest_job(new_user) -> None:
    new_user.start_cluster()
    make_package(new_user, "talking", train__py="import sys; print('this is', sys.argv[1])")
    for name in ("first", "second"):
        submit(new_user, "-jobname", name, "-e", f"python train.py {name}", "talking")
        wait(new_user, name)
    assert "this is second\n" in paddlecloud(new_user, "logs").out


def test_logs_without_a_name_are_those_of_the_last_submission_by_paddlecloud(new_user) -> None:
    new_user.start_cluster()
    make_package(new_user, "talking", train__py="print('this one ran')")
    submit(new_user, "-jobname", "modest", "-e", "python train.py", "talking")
    wait(new_user, "modest")
    other = new_user.pai("sub", "--no-sources", "--wait", "-j", "other", "--", "echo not of Paddle")
    assert other.status == 0, other
    assert "this one ran\n" in paddlecloud(new_user, "logs").out
    submit(new_user, "-jobname", "greedy", "-gpu", "999", "-e", "true", "talking")
    pending = paddlecloud(new_user, "logs")
    assert (pending.status, pending.out) == (0, "")
    why = "See why: paddlecloud get workers greedy\n"
    assert pending.err == f"Job greedy is pending: it has no log yet. {why}"


def test_logs_without_a_name_of_a_user_without_jobs_of_paddlecloud(new_user) -> None:
    new_user.pai("sub", "--no-sources", "--wait", "-j", "other", "--", "echo not of Paddle")
    assert "not of Paddle\n" in paddlecloud(new_user, "logs").out


def test_logs_without_a_name_are_those_of_a_job_that_is_being_stopped(new_user) -> None:
    make_package(new_user, "stubborn", run__sh="trap 'sleep 3' TERM; echo this one stays; sleep 600 & wait")
    make_package(new_user, "talking", train__py="print('this one ran')")
    submit(new_user, "-jobname", "earlier", "-e", "python train.py", "talking")
    submit(new_user, "-jobname", "later", "-e", "sh run.sh", "stubborn")
    until(lambda: "this one stays\n" in paddlecloud(new_user, "logs", "later").out)
    assert paddlecloud(new_user, "kill", "later").status == 0
    assert "this one stays\n" in paddlecloud(new_user, "logs").out


def test_logs_are_the_last_lines_of_each_trainer(user) -> None:
    make_package(user, "counting", train__py="for number in range(30): print('line', number)")
    submit(user, "-jobname", "counting", "-p", "2", "-e", "python train.py", "counting")
    wait(user, "counting")
    # The launcher adds one line to those of the program.
    for words, first in (((), 21), (("-n", "3"), 28), (("-n=3", "counting"), 28)):
        lines = paddlecloud(
            user, "logs", *words, *(() if "counting" in words else ("counting",))
        ).out.splitlines()
        heads = [line for line in lines if line.startswith("=====")]
        assert [head.strip("=") for head in heads] == ["counting-trainer-0", "counting-trainer-1"]
        shown = [f"line {number}" for number in range(first, 30)]
        end = "job returned 0...setting pod return message..."
        assert lines == [heads[0], *shown, end, heads[1], *shown, end]


def test_workers_without_a_job_are_those_of_all_unfinished_jobs(user) -> None:
    make_package(user, "waiting", run__sh="sleep 600")
    names = [submit(user, "waiting", "-e", "sh run.sh", "-jobname", name) for name in ("waits-1", "waits-2")]
    words = paddlecloud(user, "get", "workers").out.split()
    assert {f"{name}-trainer-0" for name in names} <= set(words)
    for name in names:
        assert paddlecloud(user, "kill", "-rm", name).status == 0
    assert not {f"{name}-trainer-0" for name in names} & set(paddlecloud(user, "get", "workers").out.split())


def test_both_commands_show_the_jobs_of_each_other(user) -> None:
    ours = user.pai("sub", "--no-sources", "--wait", "-j", "from-pai", "echo", "hello from pai")
    assert ours.status == 0, ours
    assert listed(user, "get", "-a", "jobs")["from-pai"][2:4] == ["1", "1"]
    assert "hello from pai\n" in paddlecloud(user, "logs", "from-pai").out
    make_package(user, "pkg2")
    name = submit(user, "pkg2", "-e", "python train.py it")
    assert name in user.pai("list-jobs").out
    wait(user, name)


def test_quota_shows_use_and_limit(user) -> None:
    rows = [line.split() for line in paddlecloud(user, "get", "quota").out.splitlines()]
    assert rows[0] == ["RESOURCE", "USED", "LIMIT"]
    assert {row[0] for row in rows[1:]} == {"CPU", "Memory", "GPU", "MaxParallelism"}
    assert all(len(row) == 3 for row in rows)


def test_failed_trainer_has_its_exit_code_and_message(user) -> None:
    make_package(user, "failing", train__py="raise SystemExit(1)")
    name = submit(user, "failing", "-e", "python train.py")
    wait(user, name)
    (line,) = paddlecloud(user, "get", "workers", name).out.splitlines()[1:]
    assert re.search(r"Failed .* 1 +General Error$", line), line


def test_refusal_of_the_launcher_is_the_message_of_its_worker(user) -> None:
    make_package(user, "without_paddle")
    name = submit(user, "without_paddle")
    wait(user, name)
    (line,) = paddlecloud(user, "get", "workers", name).out.splitlines()[1:]
    assert re.search(r"Failed .* 127 +There is no program here with the command `paddle train`", line), line


def test_program_finds_the_python_of_the_submitting_shell(user) -> None:
    make_package(user, "mine", run__sh='echo "found $(command -v mine)"')
    folder = user.project / "bin"
    folder.mkdir()
    (folder / "mine").write_text("#!/bin/sh\n")
    (folder / "mine").chmod(0o755)
    path = f"{folder}:{user.env()['PATH']}"
    done = paddlecloud(
        user,
        "submit",
        "-pservers",
        "0",
        "mine",
        "-e",
        "sh run.sh",
        "-jobname",
        "path-job",
        env={"PATH": path},
    )
    assert done.status == 0, done
    wait(user, "path-job")
    assert f"found {folder}/mine" in paddlecloud(user, "logs", "path-job").out


# Stands for Paddle's program: prints how it was called, and serves until it is stopped. The trainer waits for
# the server, which would otherwise be stopped before it began.
PADDLE = """#!/bin/sh
# It has the commands train and pserver.
echo "called: paddle $*"
if [ "$1" = train ]; then
  until [ -e "${0%/*}/serves" ]; do sleep 0.05; done
  exec cat "$PAI_WORK_DIR/trainer_id" modules/train.py
fi
touch "${0%/*}/serves"
exec sleep 600
"""


def test_v1_job_runs_paddle_train_and_paddle_pserver(user) -> None:
    make_package(user, "topology", data="")
    (user.project / "topology/modules").mkdir()
    (user.project / "topology/modules/train.py").write_text("# the topology\n")
    folder = user.project / "paddle-bin"
    folder.mkdir()
    (folder / "paddle").write_text(PADDLE)
    (folder / "paddle").chmod(0o755)
    words = (
        "submit ./topology -jobname topology -p 1 -c 1 -m 64Mi -psmemory 64Mi -t modules/train.py -passes 7"
    )
    done = paddlecloud(user, *words.split(), env={"PATH": f"{folder}:{user.env()['PATH']}"})
    assert done.status == 0, done
    wait(user, "topology")
    log = paddlecloud(user, "logs", "-n", "100", "topology").out
    assert "version:  v1\n" in log
    called, trainer_id = log.partition("called: ")[2].splitlines()[:2]
    assert trainer_id == "0# the topology"
    program, command, *options = called.split()
    assert (program, command) == ("paddle", "train")
    port = dict(option.split("=") for option in options)["--port"]
    pservers = dict(option.split("=") for option in options)["--pservers"]
    assert options == [
        *(f"--port={port}", "--ports_num=1", "--ports_num_for_sparse=1", "--num_passes=7"),
        *("--trainer_count=1", "--saving_period=1", "--log_period=20", "--local=0", "--rdma_tcp=tcp"),
        *("--config=modules/train.py", "--use_gpu=0", "--trainer_id=0", "--save_dir=output"),
        *(f"--pservers={pservers}", "--num_gradient_servers=1"),
    ]
    served = paddlecloud(user, "logs", "-w", "topology-pserver-0", "topology").out
    assert re.search(
        rf"^called: paddle pserver --use_gpu=0 --port={port} --ports_num=1 --ports_num_for_sparse=1 "
        r"--comment=paddle_process_k8s --num_gradient_servers=1$",
        served,
        re.MULTILINE,
    ), served
    workers = paddlecloud(user, "get", "workers", "topology").out
    assert workers.count("Succeeded") == 2, workers


def test_package_leaves_out_what_pai_leaves_out(user) -> None:
    make_package(user, "ignoring", train__py="", big__bin="x")
    (user.project / "ignoring/.paiignore").write_text("*.bin\n")
    done = paddlecloud(user, "submit", "-pservers", "0", "ignoring", "-e", "true")
    assert (done.status, "Left out of the package: big.bin" in done.err) == (0, True), done
    assert "big.bin" not in paddlecloud(user, "pfs", "ls", "-r", f"{home(user)}/ignoring").out


def test_package_that_is_not_in_the_cloud(user) -> None:
    done = paddlecloud(user, "submit", f"{home(user)}/nope", "-e", "true")
    assert (done.status, "package not exist in cloud" in done.err) == (1, True), done
    assert done.out == "Starting kuberntes job ... Failed\n"


def test_lists_of_a_user_without_jobs(new_user) -> None:
    new_user.start_cluster()
    assert listed(new_user, "jobs") == {}
    assert paddlecloud(new_user, "get", "workers").out.split() == [
        "NAME",
        "STATUS",
        "START",
        "EXIT_CODE",
        "MSG",
    ]
    done = paddlecloud(new_user, "logs")
    assert (done.status, "You have no jobs" in done.err) == (1, True)


def test_job_that_can_never_start_says_why(user) -> None:
    make_package(user, "huge")
    words = ["submit", "-jobname", "huge", "-c", "100000", "-pservers", "0", "-e", "true", "huge"]
    done = paddlecloud(user, *words)
    assert (done.status, done.out) == (0, STEPS), done
    reason = "the job asks for 100000 cores"
    assert f"The datacenter local says: The job stays pending until the cluster changes: {reason}" in done.err
    log = paddlecloud(user, "logs", "huge")
    assert (log.status, log.out) == (0, "")
    assert log.err == "Job huge has no log yet. See why: paddlecloud get workers huge\n"
    until(lambda: "asks for 100000 cores" in paddlecloud(user, "get", "workers", "huge").out)
    row = paddlecloud(user, "get", "workers", "huge").out.splitlines()[1].split()
    assert row[:4] == ["huge-trainer-0", "Pending", "-", "-"]
    assert paddlecloud(user, "kill", "-rm", "huge").status == 0


def test_unknown_names(user) -> None:
    for words in (["kill", "nope"], ["logs", "nope"], ["get", "workers", "nope"]):
        done = paddlecloud(user, *words)
        assert (done.status, done.out, "There is no job nope" in done.err) == (1, "", True), done


def test_command_in_a_task_uses_the_cluster_of_the_task(user) -> None:
    job = user.pai("sub", "--no-sources", "--follow", "-j", "inside", "--", "paddlecloud", "jobs")
    assert job.status == 0, job
    assert re.search(r"^\S+ +inside +1 +0 +\d+s$", job.out, re.MULTILINE), job


def test_reader_that_closes_its_end_early_is_no_error(user) -> None:
    done = user.sh("set -o pipefail; paddlecloud get -a jobs | true; echo ${PIPESTATUS[0]}")
    assert done.out.strip() in ("0", "141"), done
    assert "Traceback" not in done.err and "Broken" not in done.err
