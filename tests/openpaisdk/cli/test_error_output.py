"""Help, usage errors, colours and pipes."""

import os
import pty
import subprocess

import pytest

from openpaisdk.cli.commands import ALIASES, ENTRY_POINTS
from support.ports import free_port
from support.small_disk import mounted
from support.terminal import is_readable


def test_pai_without_arguments_prints_first_steps(new_user) -> None:
    done = new_user.pai()
    assert done.status == 0 and "pai sub --follow -- echo hello" in done.out
    for name in ENTRY_POINTS:
        assert f"  {name} " in done.out
    assert new_user.pai("--help").out == done.out
    assert not (new_user.home / ".openpai").exists()


def test_version_is_printed(new_user) -> None:
    from openpaisdk import __version__

    assert new_user.pai("--version").out == f"pai {__version__}\n"


@pytest.mark.parametrize(
    ("foreign", "ours"),
    [
        ("sbatch", "pai sub or pai submit"),
        ("srun", "pai sub"),
        ("squeue", "pai list-jobs"),
        ("scancel", "pai stop-job"),
        ("sacct", "pai list-jobs or pai job-status"),
        ("sinfo", "pai cluster-resources"),
        ("launch", "pai sub or pai submit"),
        ("queue", "pai list-jobs"),
        ("describe", "pai job-status"),
    ],
)
def test_commands_of_other_tools_are_known(new_user, foreign: str, ours: str) -> None:
    done = new_user.pai(foreign, "x")
    assert done.status == 2 and f"There is no command '{foreign}'. Did you mean {ours}?" in done.err


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        (["sub", "--wrap", "echo a"], "Write the command itself: pai sub 'first && second'"),
        (["sub", "--wrap=echo a"], "Write the command itself: pai sub 'first && second'"),
        (["sub", "--partition", "gpu", "true"], "Write --vc NAME."),
        (["sub", "-p", "gpu", "true"], "Write --vc NAME."),
        (["sub", "--gres=gpu:2", "true"], "Write --gpu N."),
        (["sub", "-c", "2", "true"], "Write --cpu N."),
        (["sub", "--ntasks", "2", "true"], "Write --instances N."),
        (["sub", "--dependency=afterok:x", "true"], "Write --after JOB, or --after JOB:end."),
        (["sub", "-J", "x", "true"], "Write -j NAME."),
        (["sub", "--memory", "4g", "true"], "Write --mem 4g, or --memoryMB 4096."),
        (["logs", "-n", "5", "x"], "Write --tail N."),
    ],
)
def test_options_of_other_tools_are_known(new_user, words: list[str], hint: str) -> None:
    done = new_user.pai(*words)
    option = words[1].partition("=")[0]
    assert (done.status, done.err) == (2, f"pai: pai {words[0]} has no option {option}.\n     {hint}\n")


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["submit"], "submit: the following arguments are required: FILE."),
        (["list-jobs", "a", "b"], "list-jobs: unexpected argument 'b'."),
        (["sub", "--p", "x", "true"], "sub: --p is ambiguous: "),
        (["list-jobs", "--watch", "-o", "json"], "list-jobs: --watch "),
    ],
)
def test_program_is_named_once_before_an_error(new_user, words: list[str], says: str) -> None:
    done = new_user.pai(*words)
    assert done.status == 2 and done.err.startswith(f"pai: {says}"), done


def test_package_runs_as_a_module(new_user) -> None:
    done = new_user.run(["python", "-m", "openpaisdk", "--version"])
    assert (done.status, done.out) == (0, new_user.pai("--version").out)


@pytest.mark.parametrize("name", [*ENTRY_POINTS, *ALIASES])
def test_every_help_has_an_example(new_user, name: str) -> None:
    done = new_user.pai(name, "--help")
    assert done.status == 0 and f"example:\n  pai {ALIASES.get(name, name)}" in done.out, done
    assert not (new_user.home / ".openpai").exists()


@pytest.mark.parametrize(
    ("words", "status", "says"),
    [
        (["sbu", "x"], 2, "Did you mean pai sub"),
        (["--verion"], 2, "no option --verion"),
        (["list-jobs", "--stat", "x", "--nope"], 2, "no option --nope"),
        (["list-jobs", "-o", "xml"], 2, "xml"),
        (["list-jobs", "a", "b"], 2, "unexpected argument 'b'"),
        (["cluster-status", "a"], 2, "unexpected argument 'a'"),
        (["copy", "f", "pai:/local/0/f"], 2, "write pai://local/0/f"),
        (["sub", "--folow", "true"], 2, "Did you mean --follow"),
        (["sub"], 2, "no command to run"),
        (["sub", "--", ""], 2, "no command to run"),
        (["sub", "--cpu", "0", "true"], 2, "--cpu"),
        (["sub", "-j", "not a name", "true"], 2, "is not a valid job name"),
        (["sub", "-j=-h", "true"], 2, "do not begin with -"),
        (["sub", "--image=-h", "true"], 2, "'-h' is not an image"),
        (["sub", "--ports", "http=8080", "true"], 2, "how many ports"),
        (["sub", "-a", "nowhere", "true"], 2, "no cluster called 'nowhere'"),
        (["submit", "none.yaml"], 2, "none.yaml cannot be read: No such file"),
        (["select-cluster", "nowhere"], 2, "no cluster called 'nowhere'"),
        (["delete-cluster", "nowhere"], 2, "no cluster called 'nowhere'"),
        (["set", "imaeg=x"], 2, "Did you mean image"),
        (["unset", "image"], 2, "image is not set"),
        (["logs"], 2, "job"),
        (["add-cluster", "-a", "x"], 2, "--pai-uri"),
    ],
)
def test_usage_error_is_one_line_and_starts_nothing(
    new_user, words: list[str], status: int, says: str
) -> None:
    done = new_user.pai(*words)
    assert done.status == status and says in done.err and done.out == "", done
    assert done.err.startswith("pai: ") and len(done.err.splitlines()) <= 2, done
    assert not (new_user.home / ".openpai/local").exists()


@pytest.mark.parametrize("command", ["logs", "job-status", "stop-job", "connect-job", "wait"])
def test_unknown_job_is_one_line_error(user, command: str) -> None:
    done = user.pai(command, "nosuchjob")
    assert done.status == 1 and "There is no job 'nosuchjob' on the cluster local" in done.err, done
    assert done.out == ""


def test_invalid_settings_file_is_named(new_user) -> None:
    (new_user.home / ".openpai").mkdir()
    (new_user.home / ".openpai/clusters.yaml").write_text("- a: [\n")
    done = new_user.pai("list-jobs")
    assert done.status == 1 and "~/.openpai/clusters.yaml" in done.err and "not valid YAML" in done.err, done


def test_unreachable_cluster_is_one_line_error(new_user) -> None:
    port = free_port()
    (new_user.home / ".openpai").mkdir()
    entry = f"- {{cluster_alias: gone, pai_uri: 'http://127.0.0.1:{port}', user: me, token: t}}\n"
    (new_user.home / ".openpai/clusters.yaml").write_text(entry)
    for words in (["list-jobs"], ["sub", "-i", "x", "true"], ["cluster-resources"]):
        done = new_user.pai(*words)
        assert done.status == 1 and f"gone at http://127.0.0.1:{port} does not respond" in done.err, done
        assert done.out == "" and "Traceback" not in done.err


def test_unwritable_home_is_one_line_error(new_user) -> None:
    done = new_user.pai("sub", "true", env={"HOME": "/proc/nowhere"})
    assert done.status == 1 and done.err.startswith("pai: ") and "Traceback" not in done.err, done


def test_full_disk_is_one_line_error(new_user) -> None:
    with mounted(new_user.home, "size=64k"):
        (new_user.home / "filler").write_bytes(b"x" * (48 << 10))
        done = new_user.pai("sub", "true")
        assert done.status == 1 and done.err.splitlines()[-2 if "log is" in done.err else -1].startswith(
            "pai: "
        ), done
        assert "Traceback" not in done.err and "space" in done.err.lower(), done


def test_traceback_only_with_debug(new_user) -> None:
    assert "Traceback" not in new_user.pai("sub").err
    assert "Traceback" in new_user.pai("--debug", "sub").err


def test_closed_output_pipe_exits_quietly(user) -> None:
    user.pai("sub", "true")
    read, write = os.pipe()
    os.close(read)
    done = subprocess.run(
        ["pai", "list-jobs"],
        stdout=write,
        stderr=subprocess.PIPE,
        env=user.env(),
        cwd=user.project,
        text=True,
    )
    os.close(write)
    assert (done.returncode, done.stderr) == (141, "")
    assert user.sh("pai --help | head -1; echo ${PIPESTATUS[1]}").err == ""


def test_command_works_with_closed_standard_streams(user) -> None:
    done = user.sh("pai sub -f -j unseen -- echo x <&- >&- && pai job-status unseen 2>&- >&-; echo $?")
    assert done.out == "0\n" and "Traceback" not in done.err and "unseen SUCCEEDED" in done.err, done


def run_on_terminal(command: list[str], **options) -> str:
    """The output of a command on a terminal."""
    master, slave = pty.openpty()
    process = subprocess.Popen(command, stdin=slave, stdout=slave, stderr=slave, **options)
    os.close(slave)
    out = b""
    while True:
        ready = is_readable(master, 30)
        try:
            data = os.read(master, 65536) if ready else b""
        except OSError:
            break
        if not data:
            break
        out += data
    process.wait(90)
    os.close(master)
    return out.decode()


def test_colours_only_on_terminals(user) -> None:
    user.pai("sub", "--wait", "true")
    assert "\x1b[" not in user.pai("list-jobs").out
    how = {"cwd": user.project}
    assert "\x1b[32mSUCCEEDED\x1b[0m" in run_on_terminal(["pai", "list-jobs"], env=user.env(), **how)
    assert "\x1b[" not in run_on_terminal(["pai", "list-jobs"], env=user.env(NO_COLOR="1"), **how)


def test_non_ascii_names_print_on_ascii_terminal(user) -> None:
    done = user.pai(
        "sub", "-f", "echo 'grün'", env={"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    )
    assert done.status == 0 and done.out == "grün\n", done


def test_unambiguous_option_prefixes_are_accepted(user) -> None:
    assert user.pai("list-jobs", "--lim", "1").status == 0
    assert user.pai("sub", "--fol", "echo", "x").out == "x\n"
