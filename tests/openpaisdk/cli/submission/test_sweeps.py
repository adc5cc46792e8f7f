"""Sweeps of `pai sub` and short job files: values of a file and of a sample, in the tasks and in displays."""

import json
import re

import pytest
import yaml

from support.terminal import run_on_terminal

ROWS = 'lr,name\n0.10,"a b"\n2e-3,it\'s\n'


def sub(user, *words: str, **options):
    return user.pai("sub", "--no-sources", "--mem", "32m", *words, **options)


def preview(user, *words: str) -> dict:
    done = sub(user, "--preview", *words)
    assert done.status == 0, done
    return yaml.safe_load(done.out)


def logs(user, job: str, count: int) -> list[str]:
    return [user.pai("logs", "--index", str(index), job).out for index in range(count)]


def test_one_task_for_each_row_of_a_file(user) -> None:
    user.write(params__csv=ROWS)
    done = sub(
        user, "-j", "rows_$", "--wait", "--array-file", "params.csv%1", "--", "echo", "{lr}", "-{name}-"
    )
    job = done.out.strip()
    assert done.status == 0 and logs(user, job, 2) == ["0.10 -a b-\n", "2e-3 -it's-\n"], done
    config = yaml.safe_load(user.pai("job-status", job, "config").out)["extras"]["openpaisdk"]
    assert config["arrayRows"] == {"lr": ["0.10", "2e-3"], "name": ["a b", "it's"]}
    assert config["arrayLimit"] == 1
    status = user.pai("job-status", job).out
    assert re.search(r"TASK .* lr +name\n", status) and re.search(r"main\[1\] .* 2e-3 +it's\n", status), (
        status
    )
    tasks = json.loads(user.pai("job-status", job, "tasks", "-o", "json").out)
    assert tasks[0]["arrayValues"] == {"lr": "0.10", "name": "a b"}


def test_misspelt_variable_of_the_command_is_named(user) -> None:
    words = ("--array", "seed=1-3", "--array", "lr=1,2")
    done = sub(user, "--preview", *words, "--", "echo", "{sed} {LR} {seed} ${seed} {other} {{seeds}}")
    assert [line for line in done.err.splitlines() if "Did you mean" in line] == [
        "The array has no sed, so {sed} stays in the command. Did you mean {seed}?",
        "The array has no LR, so {LR} stays in the command. Did you mean {lr}?",
    ]
    (command,) = yaml.safe_load(done.out)["taskRoles"]["main"]["commands"]
    assert "{sed} {LR}" in command
    for command in ("awk '{print $1}' {lr}", "ls *.{txt,md} {seed}", "git log --format=%h{seed}"):
        assert "Did you mean" not in sub(user, "--preview", *words, command).err
    sent = sub(user, *words, "--wait", "echo {sed}")
    assert sent.status == 0 and "Did you mean {seed}?" in sent.err


def test_no_more_tasks_than_values(user) -> None:
    job = sub(user, "-j", "few_$", "--wait", "--array", "seed=1-3", "true").out.strip()
    for change in ("--instances=4", "taskRoles:main:instances=4"):
        words = [change] if change.startswith("--") else ["-u", change]
        done = user.pai("resubmit", job, *words)
        assert done.status != 0 and done.err.count("pai sub --array") == 1, done
    assert "4 tasks are more than the 3 combinations of values in extras.openpaisdk.array" in done.err
    fewer = user.pai("resubmit", job, "-u", "taskRoles:main:instances=2", "--wait")
    assert fewer.status == 0, fewer


def test_lines_of_json_on_the_standard_input(user) -> None:
    lines = '{"lr": 0.10}\n{"lr": 1e-5}\n'
    done = sub(user, "--preview", "--array-file", "-", "true", stdin=lines)
    job = yaml.safe_load(done.out)
    assert job["extras"]["openpaisdk"]["arrayRows"] == {"lr": ["0.10", "1e-5"]}, done


def test_preview_shows_the_values_of_a_sample_and_the_job_has_them(user) -> None:
    space = ["--array", "lr=log(1e-5,1e-1)", "--array", "layers=1..8", "--array", "opt=adam|sgd"]
    words = ["-j", "drawn_$", "--sample", "3%2", "--sample-seed", "7", *space]
    job = preview(user, *words, "true")
    rows = job["extras"]["openpaisdk"]["arrayRows"]
    assert job["taskRoles"]["main"]["instances"] == 3 and job["extras"]["openpaisdk"]["arrayLimit"] == 2
    assert rows["lr"] == ["0.000259764", "0.0121792", "0.00140338"]
    done = sub(user, *words, "--wait", "echo {lr} {layers} {opt}")
    expected = [f"{lr} {n} {opt}\n" for lr, n, opt in zip(*rows.values(), strict=True)]
    assert logs(user, done.out.strip(), 3) == expected
    assert preview(user, "--sample", "3", *space, "true")["extras"]["openpaisdk"]["arrayRows"] != rows


def test_array_without_a_sample_is_as_it_was(user) -> None:
    """Each word is a value: other clients and older versions know no other meaning of it."""
    job = preview(user, "--array", "lr=log(1e-5,1e-1)", "--array", "n=1..8", "true")
    assert job["extras"]["openpaisdk"]["array"] == {"lr": ["log(1e-5", "1e-1)"], "n": ["1..8"]}
    assert "arrayRows" not in job["extras"]["openpaisdk"] and job["taskRoles"]["main"]["instances"] == 2


def test_file_of_a_short_job_file_is_beside_it(user) -> None:
    user.write(
        params__csv=ROWS, job__yaml="command: echo {name}\narray-file: params.csv\nresources: {mem: 32m}\n"
    )
    (user.project / "below").mkdir()
    done = user.sh("cd below && pai submit --wait ../job.yaml")
    assert done.status == 0 and logs(user, done.out.strip(), 2) == ["a b\n", "it's\n"], done


def test_rows_and_samples_in_short_job_files(user) -> None:
    user.write(rows__yaml="command: 'true'\nsources: []\narray: [{lr: 0.1, n: 1}, {lr: 0.2, n: x}]\n")
    job = yaml.safe_load(user.pai("submit", "--preview", "rows.yaml").out)
    assert job["extras"]["openpaisdk"]["arrayRows"] == {"lr": ["0.1", "0.2"], "n": ["1", "x"]}
    user.write(drawn__yaml="command: 'true'\nsources: []\nsample: 2\narray: {n: 1..9, opt: [adam, sgd]}\n")
    job = yaml.safe_load(user.pai("submit", "--preview", "drawn.yaml").out)
    assert [len(values) for values in job["extras"]["openpaisdk"]["arrayRows"].values()] == [2, 2]
    user.write(wrong__yaml="command: 'true'\nsample: none\n")
    done = user.pai("check-job", "wrong.yaml")
    assert done.status == 1 and "use the number of tasks" in done.out, done


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--array-file", "none.csv"], "none.csv cannot be read: No such file"),
        (
            ["--array-file", "params.csv", "--array", "n=1,2"],
            "--array and --array-file contradict each other",
        ),
        (["--array-file", "params.csv", "--sample", "3"], "--array-file and --sample contradict each other"),
        (["--array-file", "params.csv", "--instances", "3"], "--array and --instances contradict each other"),
        (["--array-file", "params.csv", "--env", "lr=3"], "lr is given with --array and with --env"),
        (["--array-file", "bad.csv"], "bad.csv, line 3: the row has 1 value, and there are 2 columns"),
        (["--sample", "3"], "there is nothing to draw from"),
        (["--sample", "0", "--array", "n=1,2"], "--sample 0: use the number of tasks"),
        (["--sample", "3", "--array", "10"], "contradict each other"),
        (["--sample-seed", "3", "--array", "n=1,2"], "there is no --sample"),
        (["--sample", "3", "--sample-seed", "x", "--array", "n=1,2"], "--sample-seed"),
    ],
)
def test_wrong_sweep_is_one_line_and_sends_nothing(user, words: list[str], says: str) -> None:
    user.write(params__csv=ROWS, bad__csv="a,b\n1,2\n3\n")
    done = user.pai("sub", *words, "true")
    assert done.status == 2 and says in done.err and done.out == "", done
    assert "Traceback" not in done.err


def test_job_that_is_too_large_is_refused_before_anything_is_sent(user) -> None:
    user.write(params__csv="text\n" + f"{'x' * 300}\n" * 2000, data="large")
    done = user.pai("sub", "--array-file", "params.csv", "true")
    assert done.status == 2 and done.out == "", done
    assert "With its 2000 rows of values the job has 1.2 MiB of text, and a job may have 1 MiB" in done.err
    assert "about 1" in done.err and "Sending" not in done.err


def test_ten_thousand_rows_are_one_job(user) -> None:
    user.write(params__csv="lr,seed\n" + "".join(f"0.{i:06},{i}\n" for i in range(10_000)))
    job = preview(user, "--array-file", "params.csv", "echo {seed}")
    assert job["taskRoles"]["main"]["instances"] == 10_000
    (command,) = job["deployments"][0]["taskRoles"]["main"]["preCommands"]
    assert command.count("\n") == 10_001


def test_columns_fit_the_terminal(user) -> None:
    user.write(params__csv="lr,text\n" + f"1,{'long ' * 30}\n2,b\n")
    job = sub(user, "--wait", "--array-file", "params.csv", "true").out.strip()
    lines = run_on_terminal(user, "job-status", job).lines
    (row,) = [line for line in lines if line.startswith("main[0]")]
    assert len(row) <= 80 and "..." in row, lines
