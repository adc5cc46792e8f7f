"""Table of commands: entry point and summary of each. A command's module is imported when it is called."""

from __future__ import annotations

from paiprotocol.errors import UsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

GROUPS: tuple[tuple[str, tuple[tuple[str, str, str], ...]], ...] = (
    (
        "Run and follow jobs",
        (
            ("sub", "submission.sub:sub", "run a command as a job"),
            ("submit", "submission.submit:submit", "submit a job file (YAML or JSON)"),
            ("notebook-job", "submission.notebook_job:notebook_job", "run a notebook as a job"),
            ("list-jobs", "jobs.list_jobs:list_jobs", "list your jobs"),
            ("job-status", "jobs.job_status:job_status", "show a job's state, tasks or configuration"),
            ("logs", "jobs.logs:logs", "print a job's log; -f follows it"),
            ("top", "jobs.top:top", "show what running tasks and nodes use"),
            (
                "exec",
                "interactive.exec:exec_command",
                "run a command in a running job, or open a shell in it",
            ),
            (
                "start-container",
                "interactive.start_container:start_container",
                "start a container, connect by SSH",
            ),
            ("ssh-container", "interactive.ssh_container:ssh_container", "connect with a running job by SSH"),
            (
                "ssh-config",
                "interactive.ssh_config:ssh_config",
                "print an SSH configuration for a running job",
            ),
            (
                "forward",
                "interactive.forward:forward",
                "make ports of a running job reachable on this machine",
            ),
            ("open", "interactive.open:open_portal", "open the web portal in a browser, signed in"),
            ("connect-job", "jobs.logs:connect_job", "print a job's state changes until it finishes"),
            ("wait", "jobs.logs:wait", "wait until jobs have finished"),
            ("stop-job", "jobs.stop_jobs:stop_job", "stop jobs"),
            ("resubmit", "submission.resubmit:resubmit", "submit a changed copy, or a notebook"),
            ("job-outputs", "jobs.job_outputs:job_outputs", "list, print or download a job's output files"),
            ("job-metrics", "jobs.job_outputs:job_metrics", "plot the metrics a job has logged"),
            ("runs", "jobs.runs:runs", "compare parameters and metrics of tasks and jobs"),
            ("tag-job", "jobs.tag_job:tag_job", "add tags to a job, or remove them"),
            ("delete-job", "jobs.stop_jobs:delete_jobs", "delete finished jobs"),
        ),
    ),
    (
        "Job files",
        (
            ("check-job", "submission.check_job:check_job", "validate job files; needs no cluster"),
            (
                "job-schema",
                "submission.check_job:job_schema",
                "print the JSON Schema of job files, for editors",
            ),
        ),
    ),
    (
        "Clusters",
        (
            (
                "add-cluster",
                "clusters.cluster_registration:add_cluster",
                "add a cluster, or change its entry",
            ),
            ("list-clusters", "clusters.clusters:list_clusters", "list the clusters you have added"),
            ("select-cluster", "clusters.clusters:select_cluster", "select the cluster that commands use"),
            ("delete-cluster", "clusters.clusters:delete_cluster", "remove a cluster from your list"),
            (
                "update-clusters",
                "clusters.cluster_registration:update_clusters",
                "refresh what is stored about your clusters",
            ),
            ("update-token", "clusters.cluster_registration:update_token", "get a new token for a cluster"),
            ("edit-clusters", "clusters.edit_clusters:edit_clusters", "open the clusters file in an editor"),
            (
                "cluster-resources",
                "clusters.cluster_resources:cluster_resources",
                "show free GPUs, cores and memory",
            ),
            ("quota", "clusters.quota:quota", "show your quotas and what you use of them"),
        ),
    ),
    (
        "Files",
        (
            ("listdir", "storage.storage:listdir", "list a folder"),
            ("copy", "storage.storage_copy:copy", "copy files to, from and between clusters"),
            ("sync", "storage.storage_copy:sync", "make a folder equal to another, sending only changes"),
            ("pack", "storage.pack:pack", "pack many small files into few large ones"),
            ("unpack", "storage.pack:unpack", "write the records of a pack as files"),
            ("mount", "storage.mount:mount", "use the files of a storage as a folder of this machine"),
            ("unmount", "storage.mount:unmount", "end a mount"),
            ("makedir", "storage.storage:makedir", "create folders"),
            ("remove", "storage.storage:remove", "remove files and folders"),
            ("getinfo", "storage.storage:getinfo", "show size, times and permissions of a file or folder"),
            ("disk-usage", "storage.storage:disk_usage", "show the size of a folder"),
            ("list-storages", "storage.storages:list_storages", "list the storages of a cluster"),
            ("select-storage", "storage.storages:select_storage", "select a cluster's default storage (0)"),
            (
                "add-storage-cluster",
                "storage.storages:add_storage_cluster",
                "add a storage that is on no cluster",
            ),
        ),
    ),
    (
        "The embedded cluster on this machine",
        (
            (
                "start-cluster",
                "clusters.embedded:start_cluster",
                "start it (commands that need it also start it)",
            ),
            (
                "stop-cluster",
                "clusters.embedded:stop_cluster",
                "stop it; running jobs continue (--now stops them)",
            ),
            (
                "cluster-status",
                "clusters.embedded:cluster_status",
                "show its state and the folder of its files",
            ),
        ),
    ),
    (
        "Defaults",
        (
            ("set", "setup.defaults:set_defaults", "set default values of options, or show them"),
            ("unset", "setup.defaults:unset_defaults", "remove default values"),
        ),
    ),
    (
        "pai itself",
        (
            ("doctor", "setup.doctor:doctor", "check your setup and suggest fixes"),
            ("completion", "setup.completion:completion", "print the TAB completion script of a shell"),
        ),
    ),
)
ALIASES = {
    "run": "sub",
    "ps": "list-jobs",
    "stop-jobs": "stop-job",
    "cancel": "stop-job",
    "clone-job": "resubmit",
    "list-dir": "listdir",
    "ls": "listdir",
    "cp": "copy",
    "makedirs": "makedir",
    "delete": "remove",
    "rm": "remove",
}
ENTRY_POINTS = {name: entry_point for _, group in GROUPS for name, entry_point, _ in group}

HEAD = """\
pai runs jobs on OpenPAI clusters. Without one, it starts one on this machine.

Try it:
  pai sub --follow -- echo hello        run a command as a job, show its log
  pai sub --follow -- python train.py   run your script with this folder's files
  pai list-jobs                         list your jobs

Usage: pai <command> [options]
"""
FOOT = """
pai <command> --help describes a command, with an example.
pai --version prints the version.
"""


def help_text() -> str:
    parts = [HEAD]
    for title, group in GROUPS:
        parts.append(f"\n{title}:\n")
        parts.extend(f"  {name:<19} {summary}{_also(name)}\n" for name, _, summary in group)
    parts.append(FOOT)
    return "".join(parts)


def _also(name: str) -> str:
    names = aliases_of(name)
    return f" (also: {', '.join(names)})" if names else ""


def aliases_of(command: str) -> list[str]:
    """The other names of a command."""
    return [alias for alias, name in ALIASES.items() if name == command]


def command_summary(name: str) -> str:
    return next(summary for _, group in GROUPS for n, _, summary in group if n == name)


def command_named(name: str) -> Callable[[list[str]], int]:
    """The function that runs a command, by the command's name or alias."""
    entry_point = ENTRY_POINTS.get(ALIASES.get(name, name))
    if entry_point is None:
        raise _unknown_command(name)
    module, _, function = entry_point.partition(":")
    # __import__ instead of importlib: importlib would be one more import for every command.
    handler: Callable[[list[str]], int] = getattr(
        __import__(f"openpaisdk.cli.{module}", fromlist=[function]), function
    )
    return handler


def _unknown_command(word: str) -> UsageError:
    if word.startswith("-"):
        return UsageError(f"pai has no option {word}.", hint="pai --help lists the commands.")
    near = _NAMES_ELSEWHERE.get(word) or _similar_commands(word)
    suggestion = f" Did you mean {' or '.join(f'pai {name}' for name in near)}?" if near else ""
    return UsageError(f"There is no command {word!r}.{suggestion}", hint="pai --help lists the commands.")


# The names of these commands in other programs.
_NAMES_ELSEWHERE = {
    "kill": ["stop-job"],
    "cat": ["logs", "copy"],
    "upload": ["copy"],
    "download": ["copy"],
    "mkdir": ["makedir"],
    "login": ["add-cluster", "update-token"],
    "status": ["job-status", "cluster-status"],
    "sbatch": ["sub", "submit"],
    "srun": ["sub"],
    "squeue": ["list-jobs"],
    "scancel": ["stop-job"],
    "sacct": ["list-jobs", "job-status"],
    "scontrol": ["job-status"],
    "sinfo": ["cluster-resources"],
    "launch": ["sub", "submit"],
    "queue": ["list-jobs"],
    "describe": ["job-status"],
}


def _similar_commands(word: str) -> list[str]:
    """Commands spelled like the word, or with a part spelled like it; those that only read come first."""
    from difflib import get_close_matches

    close = get_close_matches(word, [*ENTRY_POINTS, *ALIASES], 2, 0.65)
    parts = [name for name in ENTRY_POINTS if get_close_matches(word, name.split("-"), 1, 0.7)]
    parts.sort(key=lambda name: not name.startswith("list"))
    return list(dict.fromkeys((*close, *parts)))[:3]
