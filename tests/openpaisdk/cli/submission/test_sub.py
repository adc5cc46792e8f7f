"""`pai sub`, through the real executables against a real cluster."""

import json
import os
import re
import sys
import time
import venv
from pathlib import Path

import yaml

from support.external_services import missing


def test_followed_job_prints_only_its_log_on_stdout(user) -> None:
    done = user.pai("sub", "--follow", "--", "echo", "hello")
    assert (done.status, done.out) == (0, "hello\n"), done
    assert re.search(r"echo_\w{6} SUCCEEDED after ", done.err), done


def test_exit_status_is_zero_only_on_success(user) -> None:
    for flag in ("--follow", "--wait"):
        done = user.pai("sub", flag, "exit 7")
        assert done.status == 3 and "FAILED" in done.err and "exit code 7" in done.err, done
    job = user.pai("sub", "sleep", "60").out.strip()
    assert user.pai("stop-job", job).status == 0
    done = user.pai("wait", job)
    assert done.status == 4 and "STOPPED" in done.err, done


def test_files_of_the_folder_are_uploaded(user) -> None:
    user.write(train__py="import helper; print(helper.word, open('data/x').read())", helper__py="word = 'ok'")
    (user.project / "data").mkdir()
    (user.project / "data/x").write_text("data")
    done = user.pai("sub", "--follow", "--", "python", "train.py")
    assert done.out == "ok data\n", done


def test_changed_files_are_uploaded_again(user) -> None:
    for word in ("one", "two"):
        user.write(a__txt=word)
        assert user.pai("sub", "-f", "cat", "a.txt").out == word


def test_only_changes_of_a_known_folder_are_uploaded(user) -> None:
    (user.project / "big").write_bytes(os.urandom(200_000))
    user.write(small="1")
    old = time.time() - 60
    os.utime(user.project / "big", (old, old))
    assert user.pai("sub", "-f", "cat small").out == "1"
    time.sleep(2.1)  # a file that was just written may change again with the same stamp, so it is read again
    assert user.pai("sub", "-f", "cat small").out == "1"
    user.write(small="2")
    done = user.pai("sub", "-f", "cat small; wc -c < big", env={"PAI_DEBUG": "1"})
    assert (
        done.out == "2200000\n" and "PUT /rest-server/api/v2/sources/" in done.err and "?base=" in done.err
    ), done
    home = user.cluster_home / "sources"
    for tar in home.glob("*.tar"):
        tar.unlink()  # the cluster loses the archive; then everything is uploaded
    user.write(small="3")
    assert user.pai("sub", "-f", "cat small").out == "3"


def test_ignored_files_are_not_uploaded_with_notice(user) -> None:
    user.write(a="1", b="2", __paiignore="b\n")
    done = user.pai("sub", "-f", "ls")
    assert done.out == "a\n" and "b" in done.err.splitlines()[0], done


def test_no_sources_uploads_nothing(user) -> None:
    user.write(a="1")
    assert user.pai("sub", "-f", "--no-sources", "ls").out == ""
    assert user.pai("sub", "-f", "--sources", "nothing", "ls").status == 2


def test_too_large_folder_is_rejected_before_upload(user) -> None:
    with (user.project / "big.bin").open("wb") as f:
        f.truncate(101 << 20)
    before = user.pai("list-jobs", "-o", "json", "--limit", "5000").out
    done = user.pai("sub", "true")
    assert done.status == 1 and "big.bin" in done.err and "--no-sources" in done.err, done
    assert user.pai("list-jobs", "-o", "json", "--limit", "5000").out == before


def test_large_file_is_uploaded_if_it_is_named(user) -> None:
    with (user.project / "big.bin").open("wb") as f:
        f.truncate(101 << 20)
    done = user.pai("sub", "-f", "--sources", "big.bin", "--", "stat", "-c", "%s", "big.bin")
    assert done.status == 0 and done.out == f"{101 << 20}\n", done


def test_named_file_over_the_servers_limit_names_setting_and_storage(user) -> None:
    with (user.project / "big.bin").open("wb") as f:
        f.truncate(5 << 30)
    done = user.pai("sub", "--sources", "big.bin", "--", "true")
    assert done.status == 1 and "4096.0 MB" in done.err and "big.bin (5120.0 MB)" in done.err, done
    assert "limits.sources-mb" in done.err and "pai copy big.bin pai://local/0/" in done.err, done


def test_callers_virtual_environment_is_used(user, tmp_path) -> None:
    venv.create(tmp_path / "env", with_pip=False, symlinks=True)
    line = f"source {tmp_path}/env/bin/activate && pai sub -f -- python -c 'import sys; print(sys.prefix)'"
    assert user.sh(line).out.strip() == str(tmp_path / "env")


def test_python_is_found_without_one_on_the_path(user) -> None:
    done = user.run(
        [os.path.join(os.path.dirname(sys.executable), "pai"), "sub", "-f", "python", "-c", "print(1)"],  # noqa: PTH118, PTH120
        env={"PATH": "/usr/sbin:/sbin"},
    )
    assert done.out == "1\n", done


def test_command_starts_at_first_non_option(user) -> None:
    code = "import sys; print(sys.argv[1:])"
    for words in (["-f", "python", "-c", code], ["-f", "--", "python", "-c", code]):
        done = user.pai("sub", *words, "--wait", "-j", "x y", "--", "-a")
        assert done.out.strip() == "['--wait', '-j', 'x y', '--', '-a']", done


def test_quoting_is_preserved(user) -> None:
    words = ["a b", "$HOME", "it's", '"q"', "\\n", "*", "", "new\nline", "ünï", "`date`", "!", "#x", "<%x%>"]
    done = user.pai("sub", "-f", "--", "python", "-c", "import sys; print(ascii(sys.argv[1:]))", *words)
    assert done.out.strip() == ascii(words), done


def test_single_argument_is_a_shell_line(user) -> None:
    assert user.pai("sub", "-f", "for i in 1 2; do echo $i; done && echo $((1+2))").out == "1\n2\n3\n"


def test_pipe_closes_with_the_command(user) -> None:
    done = user.sh("pai sub -f -- echo through | cat")
    assert done.out == "through\n", done


def test_names_are_generated_or_expanded(user) -> None:
    assert re.fullmatch(r"true_\w{6}\n", user.pai("sub", "true").out)
    assert re.fullmatch(r"my_\w{8}\n", user.pai("sub", "-j", "my_$", "true").out)


def test_name_conflict_is_one_line_error(user) -> None:
    name = user.pai("sub", "-j", "taken_$", "true").out.strip()
    done = user.pai("sub", "-j", name, "true")
    assert done.status == 1 and f"already has a job called {name}" in done.err, done
    assert done.out == "" and "Traceback" not in done.err


def test_preview_equals_submitted_job(user) -> None:
    user.write(a="1")
    preview = user.pai("sub", "-j", "previewed", "--cpu", "1", "--mem", "64m", "--preview", "echo", "a b")
    assert preview.status == 0 and user.pai("job-status", "previewed").status == 1
    user.pai("sub", "-j", "previewed", "--cpu", "1", "--mem", "64m", "--wait", "echo", "a b")
    config = user.pai("job-status", "previewed", "config")
    assert yaml.safe_load(config.out) == yaml.safe_load(preview.out), config


def test_json_and_yaml_output(user) -> None:
    done = user.pai("sub", "-o", "json", "--follow", "echo", "x")
    result = json.loads(done.out)
    assert result["state"] == "SUCCEEDED" and result["cluster"] == "local" and "x\n" in done.err
    listed = yaml.safe_load(user.pai("list-jobs", "-o", "yaml", "--keyword", result["jobName"]).out)
    assert [job["name"] for job in listed] == [result["jobName"]]


def test_uid_without_account_can_run_jobs(new_user, tmp_path) -> None:
    """Like a container that was started with an arbitrary uid."""
    if os.geteuid() != 0:
        missing("root, to hide /etc/passwd in a mount namespace")
    nameless = ["env", *(f"-u{name}" for name in ("USER", "LOGNAME", "LNAME", "USERNAME"))]
    # Other name services (libnss-systemd knows root and nobody) must not name the account either.
    nsswitch = tmp_path / "nsswitch.conf"
    nsswitch.write_text("passwd: files\ngroup: files\nhosts: files dns\n")
    mounts = f"mount --bind /dev/null /etc/passwd && mount --bind {nsswitch} /etc/nsswitch.conf"
    has_nsswitch = Path("/etc/nsswitch.conf").exists()
    script = f'{mounts if has_nsswitch else mounts.partition(" && ")[0]} && exec "$@"'
    hidden = ["unshare", "--mount", "sh", "-c", script, "sh"]
    lookup = "import os, pwd; pwd.getpwuid(os.getuid())"
    done = new_user.run([*hidden, sys.executable, "-c", lookup])
    assert "KeyError" in done.err, done  # the account really has no name in there
    done = new_user.run(
        [*hidden, *nameless, "pai", "sub", "--follow", "--", "sh", "-c", 'echo "$USER in $HOME"']
    )
    assert (done.status, done.out) == (0, f"user{os.getuid()} in {new_user.home}\n"), done
    done = new_user.run([*hidden, *nameless, "env", "-uHOME", "pai", "list-jobs"])
    assert done.status == 1 and "There is no home folder: HOME is not set" in done.err, done
    assert "export HOME=" in done.err
    assert not (new_user.project / "~").exists()


def test_file_of_the_folder_that_is_no_command_is_pointed_out(user) -> None:
    user.write(train__py="print('trained')", run__sh="echo run")
    for file, command in (("train.py", "python train.py"), ("./run.sh", "bash ./run.sh")):
        done = user.pai("sub", file)
        assert f"{file} is a file of this folder and not a command: write {command}" in done.err, done
    (user.project / "run.sh").chmod(0o755)
    for command in (["./run.sh"], ["python", "train.py"]):
        done = user.pai("sub", *command)
        assert "not a command" not in done.err, done
