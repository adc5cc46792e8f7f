"""What a user reads when a job failed for a known cause: ``sub``, ``wait`` and ``job-status``."""

import json

import pytest


def test_missing_module_is_explained_by_every_command(user) -> None:
    user.write(train__py="import no_such_module_here\n")
    done = user.pai("sub", "--wait", "--retry", "3", "--", "python3", "-S", "train.py")
    assert done.status == 3, done
    cause = "exit code 1, The module no_such_module_here is not installed where the task runs."
    advice = "Upload a module of your own with --sources."
    assert cause in done.err and f"What to do: {advice}" in done.err, done
    name = done.out.strip()
    shown = user.pai("job-status", name).out
    assert cause in shown.splitlines()[0]
    assert f"  what to do {advice}" in shown and "  cause " not in shown
    waited = user.pai("wait", name)
    assert waited.status == 3 and cause in waited.err and advice in waited.err, waited
    status = json.loads(user.pai("job-status", name, "-o", "json").out)["jobStatus"]
    assert status["appExitCode"] == 232 and status["retries"] == 0
    messages = [e["message"] for e in json.loads(user.pai("job-status", name, "events", "-o", "json").out)]
    assert "Exit code 232 is permanent, a retry would fail as well." in messages


def test_missing_module_that_the_user_has_is_named_with_its_place(user) -> None:
    (user.home / "of-the-home/mylib").mkdir(parents=True)
    (user.home / "of-the-home/mylib/__init__.py").touch()
    (user.project / "inside").mkdir()
    (user.project / "inside/beside.py").touch()
    paths = {"PYTHONPATH": f"{user.home}/of-the-home:{user.project}/inside"}
    for module, place, advice in (
        ("mylib", f"{user.home}/of-the-home/mylib", "copy it into the folder that you submit from"),
        ("beside", f"{user.project}/inside/beside.py", "--sources inside/beside.py --env PYTHONPATH=inside"),
    ):
        # The task's Python ignores the variable.
        done = user.pai(
            "sub", "--no-sources", "--wait", "--", "python3", "-I", "-c", f"import {module}", env=paths
        )
        assert done.status == 3, done
        advised = next(line for line in done.err.splitlines() if line.startswith("What to do: "))
        assert f"{module} is on this machine, at {place}: " in advised and advice in advised, done
        assert f"--pip-installs {module}" not in done.err, done
        shown = user.pai("job-status", done.out.strip(), env=paths).out
        assert f"  what to do {module} is on this machine, at {place}: " in shown, shown


def test_unknown_exception_is_quoted_without_advice(user) -> None:
    done = user.pai("sub", "--no-sources", "--wait", "--", "python3", "-c", "raise ValueError('bad rate')")
    assert done.status == 3 and "exit code 1, The program raised ValueError: bad rate." in done.err, done
    assert "What to do" not in done.err
    shown = user.pai("job-status", done.out.strip()).out
    assert "The program raised ValueError: bad rate." in shown.splitlines()[0]
    assert "no known cause" not in shown and "  what to do Read the end of the task's log" in shown


@pytest.mark.parametrize("line", ["echo \"ModuleNotFoundError: No module named 'x'\"; exit 3", "exit 3"])
def test_failure_without_known_cause_has_no_advice(user, line: str) -> None:
    done = user.pai("sub", "--no-sources", "--wait", line)
    assert done.status == 3 and "FAILED" in done.err and "exit code 3" in done.err, done
    assert "What to do" not in done.err and "not installed" not in done.err


def test_waiting_for_a_job_names_its_last_line_and_its_log(user) -> None:
    done = user.pai(
        "sub", "--no-sources", "--wait", r"echo started; printf '\033[31mloss is nan\033[0m\n' >&2; exit 3"
    )
    name = done.out.strip()
    assert f"Its last line: loss is nan\nIts log: pai logs {name}\n" in done.err, done
    waited = user.pai("wait", name)
    assert f"Its last line: loss is nan\nIts log: pai logs {name}\n" in waited.err, waited
    followed = user.pai("logs", "-f", name)
    assert "Its last line" not in followed.err and "Its log" not in followed.err, followed


def test_cause_of_the_task_that_failed_is_reported(user) -> None:
    line = 'if [ "$PAI_TASK_INDEX" = 1 ]; then exec python3 -c "open(\'data.csv\')"; fi; sleep 600'
    done = user.pai("sub", "--no-sources", "--instances", "2", "--wait", line)
    assert done.status == 3 and "The file 'data.csv' does not exist where the task runs." in done.err, done
    tasks = json.loads(user.pai("job-status", done.out.strip(), "-o", "json").out)["taskRoles"]["main"]
    solutions = [task["containerExitSpec"]["solution"] for task in tasks["taskStatuses"]]
    assert solutions[0] == [] and "--sources" in solutions[1][0]


def test_missing_command_is_named(user) -> None:
    done = user.pai("sub", "--no-sources", "--wait", "--", "nvidia-smy", "-L")
    assert "exit code 127, The command nvidia-smy does not exist where the task runs." in done.err, done
