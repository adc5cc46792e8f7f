"""Options of `paicluster serve`, merged with the cluster's file into its settings."""

from __future__ import annotations

import argparse

from paicluster.config import cluster_file
from paicluster.config.settings import Settings, virtual_clusters


def options(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Run the cluster in the foreground. Tasks keep running when it stops; the next start\nadopts them."
    )
    parser.epilog = (
        "Settings come from cluster.yaml in the home (see `paicluster init`); options\n"
        "override them.\n"
        "The first start of a home creates the user 'admin'; its password comes from\n"
        "PAICLUSTER_ADMIN_PASSWORD, or is generated and shown once.\n\n"
        "examples:\n"
        "  paicluster serve --home ./cluster --host 127.0.0.1 --port 9186\n"
        "  paicluster serve --config /etc/paicluster.yaml"
    )
    add = parser.add_argument
    add("--home", metavar="DIR", help="the cluster's home: database, keys, logs and files")
    add(
        "--config",
        metavar="FILE",
        help="the cluster's file (default: cluster.yaml in the home, if it exists)",
    )
    add("--host", metavar="H", help="address to listen on (default: 127.0.0.1)")
    add("--port", type=int, metavar="P", help="port; 0 selects a free one (default: 9186)")
    add("--external-url", metavar="URL", help="address for users and tasks, e.g. of a reverse proxy")
    add(
        "--external-ca",
        metavar="FILE",
        help="CA certificates of that address, if tasks do not trust them already",
    )
    add("--tls-cert", metavar="FILE", help="certificate chain, PEM")
    add("--tls-key", metavar="FILE", help="private key, PEM")
    add(
        "--allow-plain-http",
        action="store_true",
        default=None,
        help="serve other machines without TLS: passwords and tokens travel in the clear",
    )
    add(
        "--allow-shared-account",
        action="store_true",
        default=None,
        help="run all users' jobs as the server's account: they can read each other's files",
    )
    add("--cpus", type=int, metavar="N", help="cores to schedule (default: all of the machine)")
    add("--memory-mb", type=int, metavar="N", help="memory to schedule (default: all of the machine)")
    add("--gpus", type=int, metavar="N", help="GPUs to schedule (default: all of the machine)")
    add(
        "--grace",
        type=float,
        metavar="S",
        help="seconds between SIGTERM and SIGKILL when a task is stopped (10)",
    )
    add(
        "--virtual-cluster",
        action="append",
        default=[],
        metavar="NAME=GPUS,CORES,MEMORY_MB",
        help="quota of a virtual cluster; may be repeated, 'default' has the rest",
    )
    add(
        "--keep-days",
        type=float,
        metavar="D",
        help="how long to keep finished jobs (30; on an embedded cluster forever)",
    )
    add("--keep-jobs", type=int, metavar="N", help="number of finished jobs to keep (100000)")
    add("--keep-mb", type=int, metavar="MB", help="size of the files of finished jobs to keep (no limit)")
    add(
        "--limits",
        choices=("off", "enforce"),
        help="limit tasks to the cores and memory they requested (default: enforce)",
    )
    add("--clean-after", type=float, metavar="S", help=argparse.SUPPRESS)
    add("--embedded", action="store_true", help=argparse.SUPPRESS)
    add("--idle-exit", type=float, metavar="S", help=argparse.SUPPRESS)


# Options by the field they set, where the names differ.
_RENAMED_OPTIONS = {"grace": "grace_s", "clean_after": "clean_after_s", "idle_exit": "idle_exit_s"}
_FIELD_OPTIONS = (
    "host",
    "port",
    "external_ca",
    "tls_cert",
    "tls_key",
    "allow_plain_http",
    "allow_shared_account",
    "cpus",
    "memory_mb",
    "gpus",
    "keep_days",
    "keep_jobs",
    "keep_mb",
)


def settings(arguments: argparse.Namespace) -> Settings:
    """Defaults, overridden by the file, overridden by the command line; checked."""
    fields = cluster_file.of_options(arguments.home, arguments.config)
    for name, field in (*((name, name) for name in _FIELD_OPTIONS), *_RENAMED_OPTIONS.items()):
        value = getattr(arguments, name)
        if value is not None:
            fields[field] = value
    if arguments.external_url is not None:
        fields["external_url"] = arguments.external_url.rstrip("/")
    if arguments.limits is not None:
        fields["enforce_limits"] = arguments.limits == "enforce"
    if arguments.virtual_cluster:
        fields["virtual_clusters"] = virtual_clusters(arguments.virtual_cluster)
    return cluster_file.settings_of(fields, arguments.embedded).check()
