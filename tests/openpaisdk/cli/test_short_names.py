"""Short names of commands (`pai ps`), and documented commands that are not built yet."""

import re

import pytest

from openpaisdk.cli.main import run
from openpaisdk.cli.setup.completer import candidates
from support.cli_user import done_job, until

SHORT_NAMES = {
    "ps": "list-jobs",
    "ls": "listdir",
    "cp": "copy",
    "rm": "remove",
    "cancel": "stop-job",
    "run": "sub",
}


@pytest.mark.parametrize("short", SHORT_NAMES)
def test_help_of_a_short_name_is_the_help_of_its_command(capsys, short: str) -> None:
    with pytest.raises(SystemExit):
        run([short, "--help"])
    by_short_name = capsys.readouterr().out
    with pytest.raises(SystemExit):
        run(["help", SHORT_NAMES[short]])
    assert by_short_name == capsys.readouterr().out
    assert f"pai {SHORT_NAMES[short]}" in by_short_name
    also = re.search(r"Also: (.*?)\.", " ".join(by_short_name.split()))
    assert also and f"pai {short}" in also[1].split(", "), by_short_name


def test_overview_and_completion_know_short_names(capsys) -> None:
    run(["--help"])
    lines = capsys.readouterr().out.splitlines()
    for short, command in SHORT_NAMES.items():
        line = next(line for line in lines if line.startswith(f"  {command} "))
        names = line.rpartition("(also: ")[2].rstrip(")").split(", ")
        assert short in names, line
        assert short in candidates([short]), short
    assert "--follow" in candidates(["run", "--fol"])
    assert max(map(len, lines)) <= 80, "the overview fits a window of 80 columns"


def test_jobs_run_are_listed_and_cancelled_by_short_names(user) -> None:
    done = user.pai("run", "--no-sources", "--mem", "16m", "-j", "short_$", "sleep 60")
    name = done.out.strip()
    assert done.status == 0 and name.startswith("short_"), done
    assert name in user.pai("ps").out
    done = user.pai("cancel", name)
    assert done.status == 0 and done.out == f"Stopping {name}\n", done
    until(lambda: user.state(name) == "STOPPED")


def test_files_are_copied_listed_and_removed_by_short_names(user) -> None:
    user.write(a__txt="content")
    assert user.pai("cp", "a.txt", "b.txt").status == 0
    assert (user.project / "b.txt").read_text() == "content"
    assert "b.txt" in user.pai("ls", ".").out
    assert user.pai("rm", "b.txt").status == 0
    assert not (user.project / "b.txt").exists()
    (user.project / "folder").mkdir()
    assert user.pai("rm", "-r", "folder").status == 0
    assert not (user.project / "folder").exists()


@pytest.mark.parametrize("command", ["rm", "remove"])
def test_rm_of_a_job_names_delete_job(user, command: str) -> None:
    job = done_job(user, "kept_$")
    done = user.pai(command, job)
    assert done.status == 2 and done.out == "", done
    assert done.err == (
        f"pai: {job}: there is no such file or folder.\n     If it is a job: pai delete-job {job}\n"
    )
    assert user.state(job) == "SUCCEEDED"


def test_rm_of_a_missing_file_does_not_mention_jobs(user) -> None:
    done = user.pai("rm", "missing.txt")
    assert done.status == 2 and done.err == "pai: missing.txt: there is no such file or folder.\n", done
