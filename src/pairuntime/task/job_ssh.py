"""SSH between the tasks of a job, as the plugin `ssh` asks for it with `jobssh` and `sshbarrier`.

``pairuntime job-ssh [--config] [--barrier MINUTES] ROLE:COUNT ...`` prints the shell line that puts `ssh`,
`scp` and `sftp` on PATH that know each task as ROLE-INDEX. They connect through the cluster's SSH endpoint,
with the key of the job: no task needs a server. Neither the account's SSH configuration nor that of the
machine is changed; hosts other than tasks are looked up there as ever.
"""

import os
import shlex
import shutil
import sys
import time

from pairuntime.task.webhdfs import Storage, WebHdfsError

TYPE_CHECKING = False
if TYPE_CHECKING:  # Python 3.6 runs this too
    from typing import Any

PROGRAMS = ("ssh", "scp", "sftp")
# Tells the endpoint which task is meant where a client insists on another user name, as in ssh root@worker-1.
TASK_VARIABLE = "PAI_SSH_TASK"
# OpenPAI's code for a barrier that was not passed in time.
BARRIER_EXIT_STATUS = 249
# The cluster knows of a task's start a moment later than the task itself.
_START_TIMEOUT_S = 60.0
_POLL_INTERVAL_MIN_S = 0.2
_POLL_INTERVAL_MAX_S = 5.0


class NoEndpointError(Exception):
    """The cluster has no SSH endpoint. An event of the job says so."""


class JobSshError(Exception):
    """SSH between the tasks is impossible, with the reason for the user."""


def main(argv: "list[str]") -> "int":
    arguments = list(argv)
    minutes = None  # type: float | None
    wants_config = arguments[:1] == ["--config"]
    if wants_config:
        arguments.pop(0)
    if arguments[:1] == ["--barrier"]:
        minutes = float(arguments[1])
        del arguments[:2]
    tasks = ["%s-%d" % (role, index) for role, count in map(_role, arguments) for index in range(count)]
    try:
        server = Storage(os.environ["PAI_REST_SERVER_URI"], os.environ["PAI_USER_TOKEN"])
        if wants_config:
            folder = _write_files(server, tasks)
            print('export PATH=%s:"$PATH"' % shlex.quote(os.path.join(folder, "bin")))
        if minutes is not None:
            missing = _wait_for_tasks(server, tasks, minutes * 60)
            if missing:
                text = "The plugin ssh waited %g minutes for %s, which could not be reached (sshbarrier).\n"
                sys.stderr.write(text % (minutes, ", ".join(missing)))
                return BARRIER_EXIT_STATUS
    except NoEndpointError as e:
        sys.stderr.write("The plugin ssh has no effect: %s\n" % e)
    except (JobSshError, WebHdfsError) as e:
        sys.stderr.write("The plugin ssh cannot connect the tasks of this job: %s\n" % e)
        return 1
    except OSError as e:
        sys.stderr.write("The plugin ssh cannot write its files: %s\n" % e)
        return 1
    return 0


def _role(argument: "str") -> "tuple[str, int]":
    role, _, count = argument.rpartition(":")
    return role, int(count)


def _write_files(server: "Storage", tasks: "list[str]") -> "str":
    """Write key, host key, configuration and programs; returns their folder."""
    programs = {name: shutil.which(name) for name in PROGRAMS}
    if programs["ssh"] is None:
        raise JobSshError("there is no program ssh here. Use an image that has it (openssh-client).")
    info = _ssh_info(server)
    folder = os.path.join(os.path.dirname(os.environ["PAI_METRICS_FILE"]), "ssh")
    os.makedirs(os.path.join(folder, "bin"), mode=0o700, exist_ok=True)
    _write(os.path.join(folder, "key"), server.download(info["keyPair"]["privateKeyDirectDownloadLink"]))
    first = info["containers"][0]
    host, port = first["sshIp"], first["sshPort"]
    known = "[%s]:%s %s\n" % (host, port, info["hostKey"])
    _write(os.path.join(folder, "known_hosts"), known.encode())
    job = first["user"].rpartition("+")[0]
    _write(os.path.join(folder, "config"), _configuration(folder, host, port, job, tasks).encode())
    for name, program in programs.items():
        if program is not None:
            line = "#!/bin/sh\nexec %s -F %s" % tuple(map(shlex.quote, (program, folder + "/config")))
            _write(os.path.join(folder, "bin", name), (line + ' "$@"\n').encode(), 0o700)
    return folder


def _configuration(folder: "str", host: "str", port: "str", job: "str", tasks: "list[str]") -> "str":
    # A percent sign begins a token of ssh.
    quoted = folder.replace("%", "%%")
    blocks = [
        "Host %s\n  User %s+%s\n  SetEnv %s=%s\n" % (task, job, task, TASK_VARIABLE, task) for task in tasks
    ]
    common = (
        "Host %s\n  HostName %s\n  Port %s\n"
        '  IdentityFile "%s/key"\n  IdentitiesOnly yes\n  UserKnownHostsFile "%s/known_hosts"\n'
        "  StrictHostKeyChecking yes\n  BatchMode yes\n  LogLevel ERROR\n"
    ) % (" ".join(tasks), host, port, quoted, quoted)
    # Clients before 7.8 do not know SetEnv.
    others = "Match all\n  Include ~/.ssh/config\n  Include /etc/ssh/ssh_config\n"
    return "IgnoreUnknown SetEnv,Include\n" + "".join(blocks) + common + others


def _ssh_info(server: "Storage") -> "dict[str, Any]":
    """Address and key of the cluster's endpoint."""
    deadline = time.time() + _START_TIMEOUT_S
    while True:
        try:
            info = dict(server.get_json("/api/v2/jobs/%s/ssh" % os.environ["PAI_JOB_NAME"]))
        except WebHdfsError as e:
            if "no SSH endpoint" in e.hint:
                raise NoEndpointError(e.hint)
            if e.status != 404 or time.time() > deadline:
                raise
            time.sleep(_POLL_INTERVAL_MIN_S)
            continue
        if not info.get("hostKey") or not info["keyPair"]["privateKeyDirectDownloadLink"]:
            raise JobSshError("the cluster gives no key for it.")
        return info


def _wait_for_tasks(server: "Storage", tasks: "list[str]", timeout_s: "float") -> "list[str]":
    """Wait until all tasks of the job have started; returns those that have not in time.

    The endpoint reaches every task that runs, so the cluster knows what a connection would find out.
    """
    deadline = time.time() + timeout_s
    interval = _POLL_INTERVAL_MIN_S
    while True:
        roles = server.get_json("/api/v2/jobs/%s" % os.environ["PAI_JOB_NAME"])["taskRoles"]
        started = {
            "%s-%d" % (role, task["taskIndex"])
            for role, content in roles.items()
            for task in content["taskStatuses"]
            if task["taskState"] != "WAITING"
        }
        missing = [task for task in tasks if task not in started]
        if not missing or time.time() >= deadline:
            return missing
        time.sleep(max(0.0, min(interval, deadline - time.time())))
        interval = min(2 * interval, _POLL_INTERVAL_MAX_S)


def _write(path: "str", content: "bytes", mode: "int" = 0o600) -> "None":
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode)
    with os.fdopen(fd, "wb") as f:
        os.fchmod(fd, mode)
        f.write(content)
