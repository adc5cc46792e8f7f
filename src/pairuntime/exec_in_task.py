"""Run a command in a running task: in its folder, with its environment and limits.

`exec` is for a task that is a process of the server's machine, `exec-slurm` for one of a Slurm job, where
srun has already entered the allocation. Started once for each command, so it need not be as small as a
supervisor.
"""

import errno
import json
import os
import signal
import sys
import time

from pairuntime import saved_environment
from pairuntime.supervisor import process_tree

TYPE_CHECKING = False
if TYPE_CHECKING:  # Python 3.6 runs this too
    from typing import Any

# For a container that is being created: a minute in all.
_WAIT_S = 0.05
_MAX_WAITS = 1200


def run(
    folder: "str",
    command: "list[str]",
    variables: "dict[str, str] | None" = None,
    cgroup: "process_tree.Cgroup | None" = None,
) -> "int":
    """Become the command. Returns an exit status only on failure.

    ``variables``: set in addition to those of the task. With them, stdin, stdout and stderr are pipes or a
    terminal that were made for the command. ``cgroup``: that of the task, if this process was forked by it.
    """
    # Nodes of a Slurm cluster do without these imports.
    from pairuntime.supervisor import claim, limits
    from pairuntime.supervisor.shared_environment import whole_environment

    if not claim.is_held(folder):
        sys.stderr.write("The task is not running.\n")
        return 1
    spec = _read_spec(folder)
    try:
        # Read before the account changes: the folder is closed to the account of the task.
        own = dict(spec["env"])
        if "TERM" in os.environ:
            own["TERM"] = os.environ["TERM"]
        own.update(variables or {})
        environment = whole_environment(folder, own, spec.get("env_suffixes"))
        if spec.get("session_folder"):
            shell, term = spec["argv"][0], (variables or {}).get("TERM", "")
            command = saved_environment.enter(spec["session_folder"], command, shell=shell, term=term)
        # In the task's cgroup it is found, limited, and ended with the rest.
        cgroup = cgroup or cgroup_of(folder)
        if cgroup.path and os.path.isdir(cgroup.path):
            cgroup.join()
        limits.Limits(spec.get("limits") or ()).join()
        _take_limits(folder)
        if spec.get("storage_mounts"):
            _take_mounts(folder, spec["storage_mounts"], environment)
        # Before the account changes: it may not be able to read what Python would still have to import.
        programs = _programs(command[0], environment)
        account = spec.get("account")
        if account:
            if variables is not None:
                # Without this the command could not open /dev/stdout, or its terminal by name.
                for fd in range(3):
                    os.fchown(fd, account["uid"], account["gid"])
            process_tree.take_account(account)
        os.chdir(spec["cwd"])
        os.umask(0o022)
        restore_signals()
        _become_first(programs, command, environment)
    except OSError as e:
        sys.stderr.write("%s: %s\n" % (command[0], e.strerror))
    return 127


def cgroup_of(folder: "str") -> "process_tree.Cgroup":
    """The cgroup of the task."""
    return cgroup_and_account(folder)[0]


def cgroup_and_account(folder: "str") -> "tuple[process_tree.Cgroup, dict[str, Any] | None]":
    """The cgroup of the task, and its account; None: that of this process."""
    spec = _read_spec(folder)
    return process_tree.Cgroup(spec["cgroup"]["mode"], spec["cgroup"]["path"]), spec.get("account")


def restore_signals() -> "None":
    """Restore the default effect of signals.

    Python, and a shell that started the server with `nohup` or `&`, ignore some. A command must not inherit
    that: `yes | head` would print an error. Those that a client has sent already wait until now.
    """
    for signum in process_tree.ignored_signals():
        signal.signal(signum, signal.SIG_DFL)
    for signum in signal.pthread_sigmask(signal.SIG_BLOCK, ()):
        if signum not in (signal.SIGKILL, signal.SIGSTOP):
            # Until the command replaces it, this process has handlers of its host.
            signal.signal(signum, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())


def _programs(name: "str", environment: "Any") -> "list[str]":
    """Paths at which the program may be."""
    if "/" in name:
        return [name]
    return [os.path.join(os.fsdecode(folder), name) for folder in os.get_exec_path(environment)]


def _become_first(programs: "list[str]", command: "list[str]", environment: "Any") -> "None":
    """Become the first of these programs that exists."""
    failure = FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))  # type: OSError
    for program in programs:
        try:
            os.execve(program, command, environment)
        except (FileNotFoundError, NotADirectoryError):
            pass
        except OSError as e:
            failure = e
    raise failure


def _take_limits(folder: "str") -> "None":
    """Take over the resource limits that the task has from its supervisor: those of the server are higher."""
    import resource

    supervisor = _supervisor_of(folder)
    for name in dir(resource):
        if name.startswith("RLIMIT_"):
            limit = getattr(resource, name)
            try:
                resource.setrlimit(limit, resource.prlimit(supervisor, limit))
            except (OSError, ValueError):
                pass  # not one of this kernel


def _take_mounts(folder: "str", mounts: "dict[str, Any]", environment: "dict[Any, Any]") -> "None":
    """Let the command see the task's storages: enter its mount namespace, and set their variables."""
    from pairuntime.supervisor import mount_namespace, storage_mounts

    mount_namespace.join(_supervisor_of(folder))
    storage_mounts.set_variables(mounts, environment)


def _supervisor_of(folder: "str") -> "int":
    from pairuntime.supervisor import claim

    pid = (claim.read(folder) or {}).get("pid")
    return pid if isinstance(pid, int) else 0


def run_slurm(folder: "str", command: "list[str]") -> "int":
    """As `run`, on a node of a Slurm cluster."""
    spec = _read_spec(folder)
    environment = spec["env"]
    if spec.get("session_folder"):
        command = saved_environment.enter(spec["session_folder"], command)
    if spec.get("shared_exports"):
        # The environment that the gang shares is a file of shell exports.
        command = ["/bin/sh", "-c", '. "$0"; exec "$@"', spec["shared_exports"]] + command
    if spec.get("exec_prefix"):
        _wait_for_container(folder)
        # The last argument of the prefix is the container's name; options come before it.
        terminal = ["--tty"] if os.isatty(0) else []
        command = spec["exec_prefix"][:-1] + terminal + spec["exec_prefix"][-1:] + command
    try:
        if spec.get("storage_mounts"):
            _take_mounts(folder, spec["storage_mounts"], environment)
        os.chdir(spec["cwd"])
        restore_signals()
        if not os.isatty(0):
            from pairuntime.slurm import output_relay

            return output_relay.run(command, environment)
        os.execvpe(command[0], command, environment)
    except OSError as e:
        sys.stderr.write("%s: %s\n" % (command[0], os.strerror(e.errno or 0)))
    return 127


def _wait_for_container(folder: "str") -> "None":
    """A task runs from the moment its container is requested, which takes a second to create."""
    from pairuntime.slurm.slurm_attempt import NOT_STARTED
    from pairuntime.supervisor import exit_record

    for _ in range(_MAX_WAITS):
        try:
            if not os.stat(os.path.join(folder, NOT_STARTED)).st_size:
                return
        except OSError:
            pass  # not requested yet
        if os.path.exists(os.path.join(folder, exit_record.NAME)):
            return
        time.sleep(_WAIT_S)


def _read_spec(folder: "str") -> "dict[str, Any]":
    with open(os.path.join(folder, "spec.json")) as f:
        return dict(json.loads(f.read()))
