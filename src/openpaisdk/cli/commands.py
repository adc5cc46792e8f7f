"""The table of commands: where each one lives and what it is for. Nothing is imported until one is called."""

from __future__ import annotations

GROUPS: tuple[tuple[str, tuple[tuple[str, str, str], ...]], ...] = (
    (
        "Run and watch jobs",
        (
            ("sub", "sub:sub", "run a command as a job"),
            ("submit", "submit:submit", "hand in a job file (YAML or JSON)"),
            ("list-jobs", "list_jobs:list_jobs", "list your jobs"),
            ("job-status", "list_jobs:job_status", "show one job: its state, its tasks, its configuration"),
            ("logs", "logs:logs", "print what a job wrote, and follow it with -f"),
            ("connect-job", "logs:connect_job", "print a job's state as it changes, until it is over"),
            ("wait", "logs:wait", "wait until jobs are over"),
            ("stop-job", "stop_jobs:stop_job", "stop jobs (also: stop-jobs)"),
            ("clone-job", "submit:clone_job", "hand a job in again, changed (also: resubmit)"),
            ("job-outputs", "job_outputs:job_outputs", "list, look into or fetch the files a job kept"),
            ("job-metrics", "job_outputs:job_metrics", "plot the figures a job keeps of its steps"),
            ("tag-job", "tag_job:tag_job", "put tags on a job"),
            ("delete-job", "stop_jobs:delete_job", "delete jobs that are over"),
        ),
    ),
    (
        "Job files",
        (
            ("check-job", "job_files:check_job", "say what is wrong with job files; needs no cluster"),
            ("job-schema", "job_files:job_schema", "print the JSON Schema of job files, for editors"),
        ),
    ),
    (
        "Clusters",
        (
            ("add-cluster", "cluster_registration:add_cluster", "add a cluster, or change how it is reached"),
            ("list-clusters", "clusters:list_clusters", "list the clusters you have added"),
            ("select-cluster", "clusters:select_cluster", "choose the cluster that commands use"),
            ("delete-cluster", "clusters:delete_cluster", "forget a cluster"),
            (
                "update-clusters",
                "cluster_registration:update_clusters",
                "ask all clusters anew what they have for you",
            ),
            ("update-token", "cluster_registration:update_token", "get a new token for a cluster"),
            ("edit-clusters", "edit_clusters:edit_clusters", "open the clusters file in an editor"),
            (
                "cluster-resources",
                "cluster_resources:cluster_resources",
                "show what is free: GPUs, cores, memory",
            ),
        ),
    ),
    (
        "Files",
        (
            ("listdir", "storage:listdir", "list a folder (also: list-dir)"),
            ("copy", "storage_copy:copy", "copy files and folders to, from and between clusters"),
            ("sync", "storage_copy:sync", "make a folder like another one: only what differs moves"),
            ("makedir", "storage:makedir", "make folders (also: makedirs)"),
            ("remove", "storage:remove", "remove files and folders (also: delete)"),
            ("getinfo", "storage:getinfo", "show what is known of a file or a folder"),
            ("disk-usage", "storage:disk_usage", "show how much lies in a folder"),
            ("list-storages", "storages:list_storages", "list the storages of a cluster"),
            ("select-storage", "storages:select_storage", "choose the storage that 0 means"),
            ("add-storage-cluster", "storages:add_storage_cluster", "add a storage by hand"),
        ),
    ),
    (
        "The cluster on this machine",
        (
            ("start-cluster", "embedded:start_cluster", "start it (any command that needs it does that too)"),
            (
                "stop-cluster",
                "embedded:stop_cluster",
                "stop it; running jobs go on, with --now they are stopped",
            ),
            ("cluster-status", "embedded:cluster_status", "say whether it runs, and where its files are"),
        ),
    ),
    (
        "Defaults",
        (
            ("set", "defaults:set_defaults", "set defaults of options, or show them"),
            ("unset", "defaults:unset_defaults", "remove defaults"),
        ),
    ),
    (
        "pai itself",
        (
            ("doctor", "doctor:doctor", "say what is wrong with your setup, and how to mend it"),
            ("completion", "completion:completion", "print what makes a shell complete words with TAB"),
        ),
    ),
)
ALIASES = {
    "stop-jobs": "stop-job",
    "resubmit": "clone-job",
    "list-dir": "listdir",
    "makedirs": "makedir",
    "delete": "remove",
}
PLACES = {name: place for _, group in GROUPS for name, place, _ in group}

HEAD = """\
pai runs jobs on OpenPAI clusters. With none at hand, it starts one right here.

Try it:
  pai sub --follow -- echo hello        run a command as a job and watch it
  pai sub --follow -- python train.py   run your script with this folder's files
  pai list-jobs                         see your jobs

Usage: pai <command> [options]
"""
FOOT = """
pai <command> --help says more, with an example.
pai --version says which version this is.
"""


def help_text() -> str:
    parts = [HEAD]
    for title, group in GROUPS:
        parts.append(f"\n{title}:\n")
        parts.extend(f"  {name:<19} {what}\n" for name, _, what in group)
    parts.append(FOOT)
    return "".join(parts)


def summary_of(name: str) -> str:
    return next(what for _, group in GROUPS for n, _, what in group if n == name)
